"""What a trigger waits for, judged by what one look at its source found; no I/O.

A condition that holds is a doorbell, not the truth: what it is judged by may be a few seconds old. Whoever is woken
reads the store, and waits again if there is nothing yet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Flag, auto
from typing import Protocol

from airflow_provider_coordination.supervisor.supervision import Claimant

NEVER = datetime.min.replace(tzinfo=UTC)
"""Up to when a partition has delivered that says nothing of it."""
ALWAYS = datetime.max.replace(tzinfo=UTC)


class Wanted(Flag):
    """What a look has to find out beside what it does in any case."""

    NOTHING = 0
    SETS = auto()
    """Which acknowledgment sets ended lately."""
    LISTING = auto()
    """Which acknowledgment sets are pending."""
    COMPLETION = auto()
    """Whether partitions are unfinished, and whether some are parked."""
    AVAILABILITY = auto()
    """Whether a worker could acquire a partition."""
    JOBS = auto()
    """Which jobs that are followed have no outcome."""
    SUSPENSION = auto()
    """Whether the source is suspended."""
    SUPERVISION = auto()
    """Whether a supervisor has something to start or end: the source is asked, too."""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """What one look at a source found. What was not wanted keeps its default.

    :param pending: the pending acknowledgment sets of each Airflow run, by the run's name; None if they were not
        listed.
    :param ended: the acknowledgment sets that ended lately.
    :param reopens_at: when the first CLOSED partition reopens (aware); None if none does by itself.
    :param is_available: whether a worker could acquire a partition: none of a suspended source.
    :param exists: whether the source has partitions at all.
    :param is_unfinished: whether some are not COMPLETED.
    :param delivered_until: up to when all that are not COMPLETED have delivered, where that is as late as some
        condition asks for; else up to when one has that is too early for each (aware).
    :param is_parked: whether some are parked.
    :param parked_until: up to when all that are parked have delivered (aware).
    :param jobs: the jobs without an outcome, by owner: whether its time is up in which it had to begin, or to give a
        sign of life; None if they were not listed.
    :param is_suspended: whether the source is suspended.
    :param turns: what supervisors have to wake for, in one word, by who supervises; nothing of one that may rest.
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
    turns: Mapping[Claimant, str] = field(default_factory=dict)


class Condition(Protocol):
    """What is waited for."""

    @property
    def wanted(self) -> Wanted:
        """What a look has to find out for it."""
        ...

    @property
    def instant(self) -> datetime | None:
        """Up to when unfinished partitions have to deliver; None if that does not matter."""
        ...

    def met_by(self, seen: Sighting) -> str | None:
        """Return in one word what came about; None to go on waiting."""
        ...


class SetsEnded:
    """None of these acknowledgment sets is pending, or none of an Airflow run's.

    Sets that the source does not have are not pending either.

    :param set_ids: the sets; None for those of the run.
    :param run: the run, as `run_name` names it.
    """

    instant = None

    def __init__(self, set_ids: Iterable[str] | None, run: str = "") -> None:
        self._set_ids = None if set_ids is None else frozenset(set_ids)
        self._run = run
        self._waiting: set[str] | None = None

    @property
    def wanted(self) -> Wanted:
        """See `Condition.wanted`: who begins to wait has to know what is pending."""
        return Wanted.SETS | (Wanted.LISTING if self._waiting is None else Wanted.NOTHING)

    def met_by(self, seen: Sighting) -> str | None:
        """See `Condition.met_by`."""
        if seen.pending is not None:
            self._waiting = self._pending(seen.pending)
        if self._waiting is None:
            return None
        self._waiting -= seen.ended
        return None if self._waiting else "ended"

    def _pending(self, pending: Mapping[str, Collection[str]]) -> set[str]:
        if self._set_ids is None:
            return set(pending.get(self._run, ()))
        return {set_id for set_id in self._set_ids if any(set_id in of_a_run for of_a_run in pending.values())}


@dataclass(frozen=True)
class PartitionsDone:
    """Every partition is COMPLETED or has delivered up to an instant; or one that is behind is parked.

    :param instant: see `Condition.instant`; None to wait until every partition is COMPLETED.
    """

    instant: datetime | None = None
    wanted: Wanted = field(default=Wanted.COMPLETION, init=False)

    def met_by(self, seen: Sighting) -> str | None:
        """See `Condition.met_by`."""
        if seen.is_parked and (self.instant is None or seen.parked_until < self.instant):
            return "parked"
        behind = seen.is_unfinished if self.instant is None else seen.delivered_until < self.instant
        return "done" if seen.exists and not behind else None


@dataclass(frozen=True)
class WorkAvailable:
    """A worker could acquire a partition."""

    instant: None = field(default=None, init=False)
    wanted: Wanted = field(default=Wanted.AVAILABILITY, init=False)

    def met_by(self, seen: Sighting) -> str | None:
        """See `Condition.met_by`."""
        return "available" if seen.is_available else None


@dataclass(frozen=True)
class JobOver:
    """A job has an outcome, or gave no sign of life in time.

    :param owner: the owner of its leases.
    """

    owner: str
    instant: None = field(default=None, init=False)
    wanted: Wanted = field(default=Wanted.JOBS, init=False)

    def met_by(self, seen: Sighting) -> str | None:
        """See `Condition.met_by`."""
        if seen.jobs is None:
            return None
        if self.owner not in seen.jobs:
            return "ended"
        return "overdue" if seen.jobs[self.owner] else None


@dataclass(frozen=True)
class PartitionsReopened:
    """No partition is CLOSED any more that reopens by an instant, and the source is not suspended.

    :param reopens_at: the instant (aware).
    """

    reopens_at: datetime
    instant: None = field(default=None, init=False)
    wanted: Wanted = field(default=Wanted.SUSPENSION, init=False)

    def met_by(self, seen: Sighting) -> str | None:
        """See `Condition.met_by`: what reopens meanwhile is told once there is somebody to take it."""
        if seen.is_suspended:
            return None
        return "reopened" if seen.reopens_at is None or seen.reopens_at > self.reopens_at else None


@dataclass(frozen=True)
class TurnNeeded:
    """A supervisor has something to start or end, or is not the one that supervises any more.

    :param claimant: who supervises.
    """

    claimant: Claimant
    instant: None = field(default=None, init=False)
    wanted: Wanted = field(default=Wanted.SUPERVISION, init=False)

    def met_by(self, seen: Sighting) -> str | None:
        """See `Condition.met_by`."""
        return seen.turns.get(self.claimant)
