"""The status of connections and their sources."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from airflow_provider_coordination.ui.models.values import Owner

AlarmSubject = Literal[
    "lost", "parked", "overdue", "suspended", "expired", "waiting", "lag", "failing", "supervisor", "sink"
]


class ConnectionRow(BaseModel):
    """A connection of type `coordination`. `problem` is why it cannot be used."""

    connection_id: str
    may_change: bool
    problem: str | None = None


class Connections(BaseModel):
    """The connections that the user may view."""

    connections: list[ConnectionRow]


class OldestLease(BaseModel):
    """The held lease that was acquired first.

    `held_for` is in seconds, and null if no lease has a start time. If `is_longest` is false, another lease may be
    older: it has no start time, or the source has more leases than were read.
    """

    partition_key: str
    owner: Owner
    held_for: float | None
    is_longest: bool


class SuspensionFacts(BaseModel):
    """The suspension of a source."""

    since: datetime
    by: str
    reason: str


class FailingPartition(BaseModel):
    """A partition that fails."""

    partition_key: str
    attempts: int
    last_error: str | None


class Alarm(BaseModel):
    """Something that an operator should act on.

    `text` says what it means and what to press. `about` is its subject, by which a program distinguishes alarms.
    `manual` is the place in the manual that says more, as `page#anchor`.
    """

    level: Literal["error", "warning"]
    about: AlarmSubject
    text: str
    manual: str


class SinkFacts(BaseModel):
    """The status of a sink, as jobs report it.

    `unavailable_since` is null while the sink is available. Otherwise `error` is why it is not, and `waiting_batches`
    is the number of batches that wait for it.
    """

    name: str
    kind: str
    is_exactly_once: bool
    unavailable_since: datetime | None
    error: str
    waiting_batches: int


class SourceCard(BaseModel):
    """The status of a source.

    `completed` is the number of partitions that were completed in each five minutes of the last hour, the oldest first;
    null where it is unknown. `parked` and `lost`, the parked ones that lost data stops, are counted first. Up to
    20,000 they are exact. `is_complete` is whether the statistics cover every unfinished partition; else `failing`,
    `expired_leases`, `lag` and `throughput` are lower bounds, and null where none was found. `sinks` are those of the
    job that reported last. `pages` are the source's pages in addition to those of every source: of its kind, and of
    its supervisor. `oldest_waiting_seconds` is how long the partition that waits longest has waited.
    """

    connection_id: str
    source: str
    kind: str | None
    pages: list[str]
    counts: dict[str, int]
    parked: int
    lost: int
    failing: int | None
    expired_leases: int | None
    oldest_lease: OldestLease | None
    oldest_waiting_seconds: float | None
    lag: float | None
    throughput: float | None
    workers: int
    pending_sets: int
    next_set_expires_at: datetime | None
    suspended: SuspensionFacts | None
    failing_partitions: list[FailingPartition]
    completed: list[int | None]
    is_complete: bool
    sinks: list[SinkFacts]
    alarms: list[Alarm]


class SourceCards(BaseModel):
    """The status of each source of a connection, by name."""

    as_of: datetime
    sources: list[SourceCard]
