"""Conditions that triggers wait for, evaluated on the snapshot that one poll of a source returns; no I/O.

A condition that holds is only a wake-up signal: its snapshot may be a few seconds old. The task that it wakes reads the
store, and waits again if there is nothing yet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Flag, auto

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.queues import QueueAddress
from airflow_provider_coordination.sources.watermarks import Watermark
from airflow_provider_coordination.supervisor.supervision import Claimant

NEVER = datetime.min.replace(tzinfo=UTC)
"""The delivery instant of a partition whose progress holds none."""
ALWAYS = datetime.max.replace(tzinfo=UTC)


class Wanted(Flag):
    """What a poll must read in addition to what it always reads."""

    NOTHING = 0
    SETS = auto()
    """Which acknowledgment sets ended recently."""
    LISTING = auto()
    """Which acknowledgment sets are pending."""
    COMPLETION = auto()
    """Whether partitions are unfinished, and whether some are parked."""
    AVAILABILITY = auto()
    """Whether a worker could acquire a partition."""
    JOBS = auto()
    """Which followed jobs have no outcome."""
    SUSPENSION = auto()
    """Whether the source is suspended."""
    WATERMARK = auto()
    """Up to when everything that arrived is delivered; this reads all partitions."""
    SUPERVISION = auto()
    """Whether a supervisor must start or end something; this also queries the source."""


@dataclass(frozen=True, kw_only=True)
class SourceSnapshot:
    """What one poll of a source found. Fields that were not wanted keep their defaults.

    :param pending: the pending acknowledgment sets of each Airflow run, by the run's name; None if they were not
        listed.
    :param ended: the acknowledgment sets that ended recently.
    :param reopens_at: when the first CLOSED partition reopens (aware); None if none reopens on its own.
    :param is_available: whether a worker could acquire a partition; never in a suspended source.
    :param exists: whether the source has partitions.
    :param is_unfinished: whether some partitions are not COMPLETED.
    :param delivered_until: the instant up to which all unfinished partitions have delivered, if it is late enough for
        some condition; otherwise the delivery instant of one partition that is too early for all of them (aware).
    :param is_parked: whether some partitions are parked.
    :param parked_until: the instant up to which all parked partitions have delivered (aware).
    :param jobs: the jobs without an outcome, by owner, and whether each one is overdue: it did not begin, or gave no
        sign of life, in time. None if they were not listed.
    :param is_suspended: whether the source is suspended.
    :param watermark: the watermark of the source; None if it has none.
    :param messages: the queues that have messages to receive; none in a suspended source.
    :param turns: the reason to wake each supervisor, as one word, by claimant; supervisors that may sleep are left out.
    """

    pending: Mapping[str, frozenset[str]] | None = None
    ended: frozenset[str] = frozenset()
    reopens_at: datetime | None = None
    is_available: bool = False
    exists: bool = False
    is_unfinished: bool = True
    delivered_until: datetime = NEVER
    is_parked: bool = False
    parked_until: datetime = ALWAYS
    jobs: Mapping[str, bool] | None = None
    is_suspended: bool = False
    watermark: Watermark | None = None
    messages: frozenset[QueueAddress] = frozenset()
    turns: Mapping[Claimant, str] = field(default_factory=dict)


class Condition(ABC):
    """A condition that a trigger waits for."""

    instant: datetime | None = None
    """The instant up to which unfinished partitions must deliver; None if that does not matter."""
    claimant: Claimant | None = None
    """The supervisor that must be polled; None if there is none."""
    queue: QueueAddress | None = None
    """The queue that must be asked for messages; None if there is none."""

    @property
    @abstractmethod
    def wanted(self) -> Wanted:
        """What a poll must read for the condition."""

    @abstractmethod
    def met_by(self, snapshot: SourceSnapshot) -> str | None:
        """Return the resulting status as one word; None to continue waiting."""


class SetsEnded(Condition):
    """None of these acknowledgment sets, or none of an Airflow run's sets, is pending.

    Sets that the source does not have do not count as pending.

    :param set_ids: the sets; None for those of the run.
    :param run: the run, as `run_name` names it.
    """

    def __init__(self, set_ids: Iterable[str] | None, run: str = "") -> None:
        self._set_ids = None if set_ids is None else frozenset(set_ids)
        self._run = run
        self._waiting: set[str] | None = None

    @property
    @override
    def wanted(self) -> Wanted:  # the first poll must list the pending sets
        return Wanted.SETS | (Wanted.LISTING if self._waiting is None else Wanted.NOTHING)

    @override
    def met_by(self, snapshot: SourceSnapshot) -> str | None:
        if snapshot.pending is not None:
            self._waiting = self._pending(snapshot.pending)
        if self._waiting is None:
            return None
        self._waiting -= snapshot.ended
        return None if self._waiting else "ended"

    def _pending(self, pending: Mapping[str, Collection[str]]) -> set[str]:
        if self._set_ids is None:
            return set(pending.get(self._run, ()))
        return {set_id for set_id in self._set_ids if any(set_id in set_ids for set_ids in pending.values())}


@dataclass(frozen=True)
class PartitionsDone(Condition):
    """Every partition is COMPLETED or has delivered up to an instant, or a partition that is behind is parked.

    :param instant: see `Condition.instant`; None to wait until every partition is COMPLETED.
    """

    instant: datetime | None = None
    wanted = Wanted.COMPLETION

    @override
    def met_by(self, snapshot: SourceSnapshot) -> str | None:
        if snapshot.is_parked and (self.instant is None or snapshot.parked_until < self.instant):
            return "parked"
        behind = snapshot.is_unfinished if self.instant is None else snapshot.delivered_until < self.instant
        return "done" if snapshot.exists and not behind else None


@dataclass(frozen=True)
class WatermarkReached(Condition):
    """Everything that arrived before an instant is delivered, or a partition that holds the watermark is parked.

    :param until: the instant (aware); None for any watermark.
    """

    until: datetime | None
    wanted = Wanted.WATERMARK

    @override
    def met_by(self, snapshot: SourceSnapshot) -> str | None:
        watermark = snapshot.watermark
        if watermark is None:
            return None
        if watermark.has_reached(self.until or NEVER):
            return "reached"
        return "parked" if self.until is not None and watermark.parked_before(self.until) else None


@dataclass(frozen=True)
class WorkAvailable(Condition):
    """A worker could acquire a partition, or a queue has messages that announce data.

    :param queue: see `Condition.queue`.
    """

    queue: QueueAddress | None = None
    wanted = Wanted.AVAILABILITY

    @override
    def met_by(self, snapshot: SourceSnapshot) -> str | None:
        if snapshot.is_available:
            return "available"
        return "messages" if self.queue in snapshot.messages else None


@dataclass(frozen=True)
class JobOver(Condition):
    """A job has an outcome, or gave no sign of life in time.

    :param owner: the owner of its leases.
    """

    owner: str
    wanted = Wanted.JOBS

    @override
    def met_by(self, snapshot: SourceSnapshot) -> str | None:
        if snapshot.jobs is None:
            return None
        if self.owner not in snapshot.jobs:
            return "ended"
        return "overdue" if snapshot.jobs[self.owner] else None


@dataclass(frozen=True)
class PartitionsReopened(Condition):
    """No CLOSED partition reopens by an instant any more, and the source is not suspended.

    :param reopens_at: the instant (aware).
    """

    reopens_at: datetime
    wanted = Wanted.SUSPENSION

    @override
    def met_by(self, snapshot: SourceSnapshot) -> str | None:
        if snapshot.is_suspended:  # no worker can acquire what has reopened
            return None
        return "reopened" if snapshot.reopens_at is None or snapshot.reopens_at > self.reopens_at else None


@dataclass(frozen=True)
class TurnNeeded(Condition):
    """A supervisor must start or end something, or another one supervises the source now.

    :param claimant: the supervisor that waits.
    """

    claimant: Claimant
    wanted = Wanted.SUPERVISION

    @override
    def met_by(self, snapshot: SourceSnapshot) -> str | None:
        return snapshot.turns.get(self.claimant)
