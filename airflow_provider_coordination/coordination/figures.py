"""Figures about a source that the store alone can tell, for people and for monitoring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.partition import UNFINISHED, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions, is_available


@dataclass(frozen=True, kw_only=True)
class SourceFigures:
    """How a source stands.

    :param partitions: how many partitions each status has, zeros included.
    :param expired_leases: how many leases ran out and were not taken over yet.
    :param parked: how many partitions only a person reopens.
    :param failing: how many unfinished partitions failed the last time that somebody worked on them.
    :param oldest_waiting: how long the partition that waits longest has been available; None if none is.
    :param owners: how many leases each owner holds that have not run out.
    """

    partitions: Mapping[PartitionStatus, int]
    expired_leases: int
    parked: int
    failing: int
    oldest_waiting: timedelta | None
    owners: Mapping[str, int]


def source_figures(store: CoordinationStore, source_identifier: str, now: datetime) -> SourceFigures:
    """Read every unfinished partition of a source, count the finished ones, and return the figures.

    :param now: the present instant (aware).
    """
    expired, parked, failing = 0, 0, 0
    available_since = now
    waits = False
    owners: Counter[str] = Counter()
    for partition in all_partitions(store, source_identifier, *UNFINISHED):
        failing += partition.attempts > 0
        parked += partition.is_parked
        if is_available(partition, now):
            waits, available_since = True, min(available_since, partition.priority)
            expired += partition.status is PartitionStatus.ASSIGNED
        elif partition.owner:
            owners[partition.owner] += 1
    return SourceFigures(
        partitions=store.count_by_status(source_identifier),
        expired_leases=expired,
        parked=parked,
        failing=failing,
        oldest_waiting=now - available_since if waits else None,
        owners=dict(sorted(owners.items())),
    )
