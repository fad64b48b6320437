"""A plain model of a source's partitions, written without the code that it judges."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.coordination.store import CoordinationStore

LEASE, MARGIN = timedelta(seconds=60), timedelta(seconds=5)
MAX_ATTEMPTS, FIRST_DELAY, MAX_CLOSED_COUNT = 2, timedelta(seconds=60), 1


@dataclass(frozen=True)
class Row:
    """One partition.

    :param until: its place in the queue: when it became available, reopens, or was completed, or when its lease ends.
    :param count: its checkpoint.
    """

    status: str
    until: datetime
    owner: str | None = None
    count: int = 0
    attempts: int = 0
    error: str | None = None
    closed_count: int = 0

    @property
    def is_parked(self) -> bool:
        return self.until == PARKED_UNTIL

    def is_available(self, now: datetime) -> bool:
        if self.status == "ASSIGNED":
            return self.until + MARGIN <= now
        return self.status != "COMPLETED" and self.until <= now

    def place(self) -> tuple[int, datetime]:
        return ["ASSIGNED", "CLOSED", "UNASSIGNED"].index(self.status), self.until

    def acquired(self, owner: str, now: datetime) -> Row:
        return replace(self, status="ASSIGNED", owner=owner, until=now + LEASE)

    def renewed(self, now: datetime, lease: timedelta = LEASE) -> Row:
        return replace(self, until=max(self.until, now + lease))

    def awaiting(self, now: datetime, wait: timedelta) -> Row:
        return replace(self.renewed(now, wait), owner=f"{self.owner}:acknowledgment")

    def saved(self, count: int, now: datetime) -> Row:
        return replace(self.renewed(now), count=count)

    def checkpointed(self, count: int, now: datetime) -> Row:
        return replace(self.saved(count, now), attempts=0, error=None)

    def completed(self, now: datetime) -> Row:
        return replace(self, status="COMPLETED", owner=None, until=now, attempts=0, error=None)

    def given_up(self, at: datetime) -> Row:
        return replace(self, status="UNASSIGNED", owner=None, until=at)

    def reopened(self, now: datetime) -> Row:
        at = min(self.until, now) if self.status == "UNASSIGNED" else now
        return replace(self.given_up(at), attempts=0, error=None)

    def closed(self, until: datetime, max_closed_count: int | None, now: datetime) -> Row:
        count = self.closed_count + 1
        if max_closed_count is not None and count >= max_closed_count:
            return replace(self, status="COMPLETED", owner=None, until=now, closed_count=count)
        return replace(self, status="CLOSED", owner=None, until=until, closed_count=count)

    def failed(self, error: str, now: datetime) -> Row:
        failed = replace(self, attempts=self.attempts + 1, error=error)
        if failed.attempts % MAX_ATTEMPTS:
            return failed.given_up(now)
        parks = failed.attempts // MAX_ATTEMPTS > MAX_CLOSED_COUNT
        return replace(failed, status="CLOSED", owner=None, until=PARKED_UNTIL if parks else now + FIRST_DELAY)


def row(partition: Partition) -> Row:
    """Read a partition as the model sees it, after checking that it agrees with itself."""
    assigned = partition.status == "ASSIGNED"
    assert (partition.owner is not None) == assigned
    assert partition.ownership_timeout == (partition.priority if assigned else None)
    assert partition.reopen_at == (partition.priority if partition.status == "CLOSED" else None)
    return Row(
        status=str(partition.status),
        until=partition.priority,
        owner=partition.owner,
        count=partition.progress["count"],
        attempts=partition.attempts,
        error=partition.last_error,
        closed_count=partition.closed_count,
    )


def a_coordinator(store: CoordinationStore, owner: str, clock: Clock) -> SourceCoordinator:
    """Return a coordinator with the times and the patience that the model reckons with."""
    coordinator = SourceCoordinator(
        store,
        "clicks",
        owner,
        ownership_timeout=LEASE,
        safety_margin=MARGIN,
        retry_policy=RetryPolicy(
            max_attempts=MAX_ATTEMPTS,
            first_delay=FIRST_DELAY,
            max_delay=FIRST_DELAY,
            max_closed_count=MAX_CLOSED_COUNT,
        ),
        clock=clock,
    )
    coordinator.initialize()
    return coordinator
