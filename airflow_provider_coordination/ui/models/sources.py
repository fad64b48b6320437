"""How connections and their sources stand."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pydantic import BaseModel

from airflow_provider_coordination.ui.models.values import Owner


class ConnectionRow(BaseModel):
    """A connection of type `coordination`; `problem` says why it cannot be used."""

    connection_id: str
    may_change: bool
    problem: str | None = None


class Connections(BaseModel):
    """The connections that somebody may see."""

    connections: list[ConnectionRow]


class OldestLease(BaseModel):
    """The lease that was acquired first of those that are held, as far as they say since when.

    `held_for` is null where none says so. Where `is_longest` is false, another one may be held for longer: it does not
    say since when, or there are more than were looked at.
    """

    partition_key: str
    owner: Owner
    held_for: float | None
    is_longest: bool


class SuspensionFacts(BaseModel):
    """That a source is suspended."""

    since: datetime
    by: str
    reason: str


class FailingPartition(BaseModel):
    """A partition that fails."""

    partition_key: str
    attempts: int
    last_error: str | None


class Alarm(BaseModel):
    """Something that a person should look at; `about` is what it is about, by which a program tells alarms apart."""

    level: Literal["error", "warning"]
    about: Literal["parked", "overdue", "suspended", "expired", "waiting", "lag", "failing", "supervisor", "sink"]
    text: str


class SinkFacts(BaseModel):
    """A sink, as jobs report of it.

    `away_since` is null where it takes what it is given; else `error` says why it takes nothing, and `held` how many
    batches wait for it.
    """

    name: str
    kind: str
    is_exactly_once: bool
    away_since: datetime | None
    error: str
    held: int


class SourceCard(BaseModel):
    """How a source stands.

    `completed` is how many partitions were completed in each five minutes of the last hour, the oldest first; null
    where that is not known. `is_complete` says whether every unfinished partition was looked at for the figures.
    `sinks` are those of the job that reported last.
    `pages` are those that it has beside those of every source: of its kind, and of its supervisor.
    """

    connection_id: str
    source: str
    kind: str | None
    pages: list[str]
    counts: dict[str, int]
    parked: int
    failing: int
    expired_leases: int
    oldest_lease: OldestLease | None
    oldest_waiting: float | None
    lag: float | None
    throughput: float | None
    workers: int
    pending_sets: int
    next_set_expires_at: datetime | None
    suspended: SuspensionFacts | None
    errors: list[FailingPartition]
    completed: list[int | None]
    is_complete: bool
    sinks: list[SinkFacts]
    alarms: list[Alarm]


class SourceCards(BaseModel):
    """How the sources of a connection stand, by name."""

    as_of: datetime
    sources: list[SourceCard]
