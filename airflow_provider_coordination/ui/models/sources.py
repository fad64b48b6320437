"""The status of connections and their sources: partitions of runs, holdings on a timeline, and workers."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from airflow_provider_coordination.coordination.job_reports import SinkReport
from airflow_provider_coordination.ui.models.partitions import PartitionRow
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
    sinks: list[SinkReport]
    alarms: list[Alarm]


class SourceCards(BaseModel):
    """The status of each source of a connection, by name."""

    as_of: datetime
    sources: list[SourceCard]


class RunPartition(PartitionRow):
    """A partition that a run holds, or held."""

    connection_id: str
    source: str
    is_held_now: bool


class RunPartitions(BaseModel):
    """The partitions that a run holds or held. `unreachable` lists the connections whose store is unavailable."""

    as_of: datetime
    partitions: list[RunPartition]
    complete: bool
    unreachable: list[str]


class HoldingFacts(BaseModel):
    """A time during which one owner held a partition. `began_at` is null if the history no longer has it."""

    owner: Owner
    began_at: datetime | None
    begin: str
    ended_at: datetime | None
    end: str
    reason: str
    by: str | None


class PartitionLine(BaseModel):
    """The owners of a partition, the first one first."""

    partition_key: str
    holdings: list[HoldingFacts]


class Timeline(BaseModel):
    """The owners of partitions over time. `complete` is whether nothing is missing."""

    as_of: datetime
    since: datetime
    until: datetime
    has_history: bool
    complete: bool
    partitions: list[PartitionLine]


class JobFacts(BaseModel):
    """A Spark job that is followed through the store. `ui_url` redirects to its Spark UI while it runs."""

    state: str
    application_id: str | None
    ui_url: str | None
    stop_reason: str | None


class WorkerRow(BaseModel):
    """A worker. `registered_until` is null for one that holds a lease and has not registered."""

    owner: Owner
    registered_until: datetime | None
    started_at: datetime | None
    max_leases: int | None
    leases: int
    is_live: bool
    job: JobFacts | None


class WorkerList(BaseModel):
    """The workers of a source. `complete` is whether every lease was counted."""

    as_of: datetime
    workers: list[WorkerRow]
    complete: bool
