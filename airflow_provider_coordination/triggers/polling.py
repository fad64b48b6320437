"""One look at a source: what time asks for is done, and what is waited for is found out. Runs in a thread.

Ending overdue acknowledgment sets and reopening partitions whose time has come may be done by any number of processes
at once: each write is conditional, and exactly one of them makes it. Nothing is acquired here, and no lease that lives
is touched.

What a look costs depends on what is wanted, not on how many want it. A look at which nothing is due makes a query for
the next expiry and one for the next reopening; who waits for sets adds one, for availability or a job two, for
completion one to three. A supervisor reads its item, its jobs and what is unfinished; what it asks of the source itself
it asks once a period. Whether the source is suspended is read once in five seconds at the most, and only where
partitions are available, or a reopening is waited for.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import SupervisedElsewhereError
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    UNFINISHED,
    Partition,
    PartitionStatus,
    parse_instant,
)
from airflow_provider_coordination.coordination.store import all_partitions
from airflow_provider_coordination.hooks.supervision import supervisor_of
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import Supervisor
from airflow_provider_coordination.triggers.conditions import ALWAYS, NEVER, Sighting, Wanted

ENDED_MARGIN = timedelta(seconds=30)
"""A set's end is dated before it is written, by another machine's clock: it may appear this much later."""
LISTING_INTERVAL = timedelta(minutes=1)
"""How often the pending sets are listed although nobody new waits: what was missed is found by then."""
PURGE_INTERVAL = timedelta(minutes=10)
TURN = "turn"
"""A supervisor has something to start or end."""
ELSEWHERE = "elsewhere"
"""Somebody else supervises the source."""
PURGED_AT_A_TIME = 200
"""A look must not take long; what is left goes with the next ones."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look found.

    :param sighting: what conditions are judged by.
    :param next_due: when something is due next that is known of (aware), perhaps by now; None if nothing is.
    """

    sighting: Sighting
    next_due: datetime | None


class SourceWatch:
    """Looks at one source again and again; one look at a time.

    :param coordinator: of the source, initialized.
    :param sets: its acknowledgment sets.
    :param region: the AWS region where a supervisor's spec and connections name none.
    """

    def __init__(self, coordinator: SourceCoordinator, sets: AcknowledgmentSets, region: str | None = None) -> None:
        self.coordinator = coordinator
        self.sets = sets
        self._region = region
        self._supervisors: dict[Claimant, Supervisor] = {}
        self._jobs = Jobs(coordinator.view)
        self._clock = coordinator.clock
        self._ended_since: datetime | None = None
        self._listed_at: datetime | None = None
        # Watchers that begin together do not purge together.
        self._purge_at = self._clock.now() + PURGE_INTERVAL * random.random()
        self._behind: str | None = None

    def look(self, wanted: Wanted, instants: Iterable[datetime] = (), claimants: Collection[Claimant] = ()) -> Look:
        """Do what is due, and find out what is wanted.

        :param instants: up to when those wait for partitions to deliver who wait for that.
        :param claimants: who supervises the source: mostly one, or none.
        :raises CoordinationError: if the store does not answer.
        """
        began = self._clock.now()
        expires_at = self._end_overdue_sets()
        closed = self._reopen_due_partitions()
        self._purge()
        pending = self._list_pending() if self._is_listing_due(wanted) else None
        firsts = self._firsts(wanted, closed)
        first_instant = min(instants, default=None)
        parked_until = self._parked_until(closed, first_instant) if Wanted.COMPLETION in wanted else None
        reopens_at = None if closed is None or closed.is_parked else closed.priority
        jobs = self._unfinished_jobs() if Wanted.JOBS in wanted else None
        turns, looks_due = self._supervise(claimants)
        sighting = Sighting(
            pending=pending,
            ended=self._ended() if Wanted.SETS in wanted and pending is None else frozenset(),
            reopens_at=reopens_at,
            is_available=Wanted.AVAILABILITY in wanted and self._is_available(firsts),
            exists=Wanted.COMPLETION in wanted and (bool(firsts) or self._first(PartitionStatus.COMPLETED) is not None),
            is_unfinished=bool(firsts),
            delivered_until=NEVER if first_instant is None else self._delivered_until(first_instant, firsts),
            is_parked=parked_until is not None,
            parked_until=ALWAYS if parked_until is None else parked_until,
            is_suspended=Wanted.SUSPENSION in wanted and self.coordinator.view.suspension() is not None,
            jobs=None if jobs is None else {owner: at is not None and at <= began for owner, at in jobs.items()},
            turns=turns,
        )
        due = [expires_at, reopens_at]
        if Wanted.AVAILABILITY in wanted:
            due += map(self.coordinator.view.available_at, firsts)
        due += (jobs or {}).values()
        due += looks_due
        # What was overdue before, and still is, cannot be done now: it is tried again, but not at once.
        next_due = min((at for at in due if at is not None and at > began), default=None)
        return Look(sighting=sighting, next_due=next_due)

    # What time asks for

    def _end_overdue_sets(self) -> datetime | None:
        expires_at = self.sets.view.next_expiry()
        if expires_at is not None and expires_at <= self._clock.now():
            self.sets.expire_overdue()
            return self.sets.view.next_expiry()
        return expires_at

    def _reopen_due_partitions(self) -> Partition | None:
        """Reopen what is due; return the CLOSED partition that reopens next."""
        closed = self._first(PartitionStatus.CLOSED)
        if closed is not None and closed.priority <= self._clock.now():
            self.coordinator.reopen_due()
            return self._first(PartitionStatus.CLOSED)
        return closed

    def _purge(self) -> None:
        now = self._clock.now()
        if now >= self._purge_at and self.sets.purge(limit=PURGED_AT_A_TIME) < PURGED_AT_A_TIME:
            self._purge_at = now + PURGE_INTERVAL

    # Acknowledgment sets

    def _is_listing_due(self, wanted: Wanted) -> bool:
        if Wanted.SETS not in wanted:
            return False
        outdated = self._listed_at is None or self._clock.now() - self._listed_at >= LISTING_INTERVAL
        return outdated or Wanted.LISTING in wanted

    def _list_pending(self) -> dict[str, frozenset[str]]:
        self._listed_at = self._ended_since = self._clock.now()
        by_run: dict[str, set[str]] = {}
        for pending in self.sets.view.pending():
            by_run.setdefault(pending.run, set()).add(pending.set_id)
        return {run: frozenset(set_ids) for run, set_ids in by_run.items()}

    def _ended(self) -> frozenset[str]:
        """Return the sets that ended since the last look, and some that ended shortly before it."""
        now = self._clock.now()
        since, self._ended_since = self._ended_since or now, now  # it was listed before
        return frozenset(ended.set_id for ended in self.sets.view.ended_since(since - ENDED_MARGIN))

    # Jobs

    def _unfinished_jobs(self) -> dict[str, datetime | None]:
        """Return the jobs without an outcome, each with when its time is up."""
        return {job.owner: job.given_up_at(self._jobs.safety_margin) for job in self._jobs.unfinished()}

    # Supervisors

    def _supervise(self, claimants: Collection[Claimant]) -> tuple[dict[Claimant, str], list[datetime]]:
        """Look as each supervisor does; return what they have to wake for, and when they look again at the latest."""
        self._supervisors = {
            claimant: self._supervisors.get(claimant) or supervisor_of(self.coordinator, claimant, self._region)
            for claimant in claimants
        }
        turns: dict[Claimant, str] = {}
        due: list[datetime] = []
        for claimant, supervisor in self._supervisors.items():
            try:
                look = supervisor.look()
            except SupervisedElsewhereError:
                turns[claimant] = ELSEWHERE
            else:
                due.append(look.next_due)
                if look.needs_turn:
                    turns[claimant] = TURN
        return turns, due

    # Partitions

    def _is_available(self, firsts: Iterable[Partition]) -> bool:
        return any(map(self.coordinator.view.may_acquire, firsts)) and self.coordinator.view.suspension() is None

    def _first(self, status: PartitionStatus) -> Partition | None:
        return self.coordinator.view.first(status)

    def _firsts(self, wanted: Wanted, closed: Partition | None) -> list[Partition]:
        """Return the first partition of each unfinished status that has one, as far as somebody wants to know."""
        firsts = [] if closed is None else [closed]
        for status in (PartitionStatus.UNASSIGNED, PartitionStatus.ASSIGNED):
            if Wanted.AVAILABILITY in wanted or (Wanted.COMPLETION in wanted and not firsts):
                first = self._first(status)
                firsts += [] if first is None else [first]
        return firsts

    def _parked_until(self, closed: Partition | None, instant: datetime | None) -> datetime | None:
        """Return up to when all parked partitions have delivered; None if there is none."""
        if closed is None:
            return None
        if instant is None:
            coordinator = self.coordinator
            parked = coordinator.store.query(
                coordinator.view.source_identifier, PartitionStatus.CLOSED, since=PARKED_UNTIL, limit=1
            )
            return NEVER if parked else None
        every = all_partitions(
            self.coordinator.store,
            self.coordinator.view.source_identifier,
            PartitionStatus.CLOSED,
            since=PARKED_UNTIL,
        )
        return min(map(delivered_until, every), default=None)

    def _delivered_until(self, instant: datetime, firsts: Sequence[Partition]) -> datetime:
        """Return up to when all unfinished partitions have delivered, or one has that is behind the instant.

        The one that was behind at the last look is asked first: most of the time it still is.
        """
        if not firsts:
            return ALWAYS
        known = self.coordinator.view.get(self._behind) if self._behind is not None else None
        if known is not None and known.status in UNFINISHED and delivered_until(known) < instant:
            return delivered_until(known)
        least = ALWAYS
        for partition in self.coordinator.view.partitions(*UNFINISHED):
            least = min(least, delivered_until(partition))
            if least < instant:
                self._behind = partition.partition_key
                break
        return least


def delivered_until(partition: Partition) -> datetime:
    """Return up to when a partition says that it has delivered; `NEVER` if it says nothing."""
    text = partition.progress.get("delivered_until")
    try:
        return parse_instant(text) if isinstance(text, str) else NEVER
    except ValueError:
        return NEVER
