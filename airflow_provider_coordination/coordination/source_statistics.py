"""Figures about a source that the store alone can tell, for people and for monitoring."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore, is_available

PAGE = 500
ERRORS_LISTED = 5


@dataclass(frozen=True, kw_only=True)
class SourceFigures:
    """How a source stands.

    :param partitions: how many partitions each status has, zeros included.
    :param expired_leases: how many leases ran out and were not taken over yet.
    :param parked: how many partitions only a person reopens.
    :param failing: how many unfinished partitions failed the last time that somebody worked on them.
    :param oldest_waiting: how long the partition that waits longest has been available; None if none is.
    :param owners: how many leases each owner holds that have not run out.
    :param worst: the partitions that failed most often in a row, a few, the worst first.
    :param incomplete: the statuses of which not every partition was looked at: all but `partitions` is of some alone.
    """

    partitions: Mapping[PartitionStatus, int]
    expired_leases: int
    parked: int
    failing: int
    oldest_waiting: timedelta | None
    owners: Mapping[str, int]
    worst: Sequence[Partition] = ()
    incomplete: frozenset[PartitionStatus] = frozenset()

    @property
    def is_complete(self) -> bool:
        """Whether every unfinished partition was looked at."""
        return not self.incomplete


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """How much is looked at for figures that somebody waits for.

    :param partitions: so many partitions, at most.
    :param seconds: for so long, at most; a page of each status is read in any case.
    """

    partitions: int
    seconds: float


def source_figures(
    store: CoordinationStore,
    source_identifier: str,
    now: datetime,
    *,
    bounds: Bounds | None = None,
    looked_at: Callable[[Partition], None] = lambda partition: None,
) -> SourceFigures:
    """Read the unfinished partitions of a source, count the finished ones, and return the figures.

    :param now: the present instant (aware).
    :param bounds: how much is looked at; None for every unfinished partition.
    :param looked_at: called with each partition that is looked at.
    """
    expired, parked, failing = 0, 0, 0
    waiting_since: datetime | None = None
    owners: Counter[str] = Counter()
    worst: list[tuple[int, int, Partition]] = []
    order = count(0, -1)
    reading = _Reading(store, source_identifier, bounds)
    for status in (PartitionStatus.ASSIGNED, PartitionStatus.CLOSED, PartitionStatus.UNASSIGNED):
        for page in reading.pages(status):
            for partition in page:
                looked_at(partition)
                if partition.attempts:
                    failing += 1
                    heapq.heappush(worst, (partition.attempts, next(order), partition))
                    if len(worst) > ERRORS_LISTED:
                        heapq.heappop(worst)
                parked += partition.is_parked
                if is_available(partition, now):
                    waiting_since = min(waiting_since or partition.priority, partition.priority)
                    expired += status is PartitionStatus.ASSIGNED
                elif partition.owner:
                    owners[partition.owner] += 1
    return SourceFigures(
        partitions=store.count_by_status(source_identifier),
        expired_leases=expired,
        parked=parked,
        failing=failing,
        oldest_waiting=None if waiting_since is None else now - waiting_since,
        owners=dict(sorted(owners.items())),
        worst=[partition for _, _, partition in sorted(worst, reverse=True)],
        incomplete=frozenset(reading.incomplete),
    )


class _Reading:
    """Reads page by page until a bound is reached, the partitions that matter first."""

    def __init__(self, store: CoordinationStore, source_identifier: str, bounds: Bounds | None) -> None:
        self._store = store
        self._source_identifier = source_identifier
        self._left = None if bounds is None else bounds.partitions
        self._until = None if bounds is None else time.monotonic() + bounds.seconds
        self.incomplete: set[PartitionStatus] = set()

    def pages(self, status: PartitionStatus) -> Iterator[list[Partition]]:
        """Yield the pages of a status, the oldest partitions first."""
        last: Partition | None = None
        while page := self._store.query(self._source_identifier, status, after=last, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            last = page[-1]
            if self._left is not None:
                self._left -= len(page)
                if self._left <= 0 or (self._until is not None and time.monotonic() >= self._until):
                    self.incomplete.add(status)
                    return
