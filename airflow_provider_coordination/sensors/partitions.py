"""Waiting until a source's partitions are done, or have delivered everything up to an instant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pendulum
from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.metrics import PARTITIONS, Metrics
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus, parse_instant
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.metrics import AirflowMetrics
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try

KEYS_SHOWN = 5


class PartitionsCompletedSensor(BaseSensorOperator):
    """Waits until every partition of a source is COMPLETED or has delivered everything up to an instant.

    A source without partitions is waited for: its shard sync has yet to come. Fails without a retry if a partition that
    it waits for is parked: it failed so often that only a person reopens it. Returns how many partitions
    each status has, and notes it at each look as the gauge `coordination.partitions`.

    :param source: the source's name. (templated)
    :param delivered_until: an instant: aware, or in UTC; text is parsed as ISO 8601. A partition that is
        still open, as an open shard always is, is waited for only until its progress says `delivered_until`
        at or after it. None waits until every partition is COMPLETED. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    """

    template_fields: Sequence[str] = ("source", "delivered_until", "coordination_conn_id")
    ui_color = "#e6f0d8"

    def __init__(
        self,
        *,
        source: str,
        delivered_until: datetime | str | None = None,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.source = source
        self.delivered_until = delivered_until
        self.coordination_conn_id = coordination_conn_id

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once.

        :raises AirflowFailException: if only a person can put things right: a setting is wrong, or a partition that is
            waited for is parked.
        :raises StoreUnavailableError: if the store does not answer.
        """
        with failing_when_misconfigured():
            instant = instant_of(self.delivered_until)
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(self.source, owner_of_try(context))
        with closing(coordinator.store):
            look = look_at(coordinator, instant)
            # A partition that changes its status while pages are read may be seen in neither; a second
            # look is not deceived by the same move.
            if look.is_met:
                look = look_at(coordinator, instant)
        self.log.info("source %s: %s", self.source, look)
        note_partitions(AirflowMetrics(), coordinator, look.counts)
        if look.parked:
            raise AirflowFailException(f"source {self.source!r}: {look.parked_message}")
        return PokeReturnValue(is_done=look.is_met, xcom_value={str(s): n for s, n in look.counts.items()})


@dataclass(frozen=True)
class Look:
    """What one look at a source's partitions found.

    :param counts: how many partitions each status has.
    :param waiting_for: the keys of those that are not done.
    :param is_complete: whether every unfinished partition was seen.
    :param parked: those that are not done and parked: waiting does not help.
    """

    counts: dict[PartitionStatus, int]
    waiting_for: list[str]
    is_complete: bool
    parked: list[Partition]

    @property
    def is_met(self) -> bool:
        """Whether there is nothing to wait for."""
        return self.is_complete and not self.waiting_for and any(self.counts.values())

    @property
    def parked_message(self) -> str:
        """What is parked, why, and what to do."""
        shown = "; ".join(
            f"{p.partition_key} (attempts {p.attempts}: {p.last_error})" for p in self.parked[:KEYS_SHOWN]
        )
        return (
            f"{len(self.parked)} partitions failed too often and are parked: {shown}; "
            "mend what is wrong, then reopen them with `airflow-coordination reopen`"
        )

    def __str__(self) -> str:
        if not any(self.counts.values()):
            return "no partitions yet; waiting for a shard sync"
        counts = ", ".join(f"{status} {count}" for status, count in self.counts.items())
        if not self.waiting_for:
            return f"{counts}; {'nothing to wait for' if self.is_met else 'changing, looking again'}"
        shown = ", ".join(self.waiting_for[:KEYS_SHOWN])
        more = len(self.waiting_for) - KEYS_SHOWN
        return f"{counts}; waiting for {len(self.waiting_for)}: {shown}{f' and {more} more' if more > 0 else ''}"


def look_at(coordinator: SourceCoordinator, instant: datetime | None) -> Look:
    """Read the unfinished partitions, then the counts.

    :param instant: until when a partition must have delivered if it is not COMPLETED; None if it must be.
    """
    seen = {partition.partition_key: partition for partition in coordinator.partitions(*UNFINISHED)}
    counts = coordinator.count_by_status()
    unfinished = sum(counts[status] for status in UNFINISHED)
    behind = keys_behind(seen.values(), instant)
    parked = [seen[key] for key in behind if seen[key].is_parked]
    return Look(counts, behind, is_complete=len(seen) >= unfinished, parked=parked)


def note_partitions(metrics: Metrics, coordinator: SourceCoordinator, counts: Mapping[PartitionStatus, int]) -> None:
    """Note how many partitions of a source each status has, zeros included."""
    tags = {"source": coordinator.source, "store": coordinator.store.kind}
    for status, count in counts.items():
        metrics.gauge(PARTITIONS, count, {**tags, "status": str(status)})


def keys_behind(partitions: Iterable[Partition], instant: datetime | None) -> list[str]:
    """Return the keys of unfinished partitions not delivered up to an instant; all if it is None."""
    return [p.partition_key for p in partitions if instant is None or not _has_delivered(p, instant)]


def instant_of(value: datetime | str | None) -> datetime | None:
    """Return an instant, aware and in UTC, from what a user or a template gives; None if it is not given.

    :raises ConfigurationError: if it is no instant.
    """
    if value in (None, "", "None"):
        return None
    try:
        parsed = value if isinstance(value, datetime) else pendulum.parse(str(value))
    except ValueError:
        parsed = None
    if not isinstance(parsed, datetime):
        raise ConfigurationError(
            f"field 'delivered_until' must be an instant, such as 2026-01-31T00:00:00Z; got {value!r}"
        )
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)


def _has_delivered(partition: Partition, instant: datetime) -> bool:
    text = partition.progress.get("delivered_until")
    return isinstance(text, str) and parse_instant(text) >= instant
