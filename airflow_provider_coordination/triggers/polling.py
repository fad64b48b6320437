"""How a source is polled: one poll does what is due, and reads what triggers wait for; pollers share a store's threads.

Any number of processes may end overdue acknowledgment sets and reopen due partitions at the same time: each write is
conditional, and exactly one process makes it. A poll acquires nothing, and touches no lease that is alive. A store that
hangs blocks only its own threads; the event loop never waits for a store.

The cost of a poll depends on what is wanted, not on the number of triggers. A poll in which nothing is due makes one
query for the next expiry and one for the next reopening. Waiting for acknowledgment sets adds one query, waiting for
availability or a job adds two, waiting for completion one to three, and waiting for the
watermark reads all partitions. A supervisor reads its item, its jobs and the
unfinished partitions; it queries the source itself once a period. The supervisor of an idle source polls once a period.
A queue is asked for messages every 20 seconds, and
whether messages are kept is looked up once a minute. Whether the source is suspended is read at most once
in five seconds, and only if partitions are available or a trigger waits for a reopening.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from asgiref.sync import sync_to_async

from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError, SupervisedElsewhereError
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    UNFINISHED,
    Partition,
    PartitionStatus,
    parse_instant,
)
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions
from airflow_provider_coordination.hooks.connections import AirflowConnections
from airflow_provider_coordination.hooks.supervision import supervisor_of
from airflow_provider_coordination.sources.kept_messages import KeptMessages
from airflow_provider_coordination.sources.queues import Queue, QueueAddress
from airflow_provider_coordination.sources.watermarks import watermark_of
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import Supervisor, TurnPoll
from airflow_provider_coordination.triggers.conditions import ALWAYS, NEVER, SourceSnapshot, Wanted

log = logging.getLogger(__name__)

ASKED_EVERY = timedelta(seconds=20)
"""How often a queue is asked whether it has messages."""
TENDED_EVERY = timedelta(minutes=1)
"""How often the messages that a source keeps are looked at."""
REOPENED_EVERY = timedelta(hours=1)
"""How often the connection of a queue is read again."""


class QueueWatch:
    """Watches the queues of one source; one call at a time.

    :param coordinator: an initialized coordinator of the source.
    :param region: the AWS region if nothing else names one.
    :param open_queue: returns a queue by its address.
    """

    def __init__(
        self,
        coordinator: SourceCoordinator,
        region: str | None,
        open_queue: Callable[[QueueAddress], Queue] | None = None,
    ) -> None:
        self.keeps = False
        self._view = coordinator.view
        self._clock = coordinator.clock
        self._kept = KeptMessages(coordinator.view)
        self._open = open_queue or (lambda address: address.open(AirflowConnections(region)))
        self._opened: dict[QueueAddress, tuple[Queue, datetime]] = {}
        self._asked: dict[QueueAddress, tuple[bool, datetime]] = {}
        self._tended_at: datetime | None = None

    def waiting(self, queues: Collection[QueueAddress]) -> frozenset[QueueAddress]:
        """Return the queues that have messages to receive; none if the source is suspended.

        A queue that does not respond has none for now, and the reason is logged.
        """
        found = frozenset(address for address in queues if self._has_messages(address))
        return frozenset() if found and self._view.suspension() is not None else found

    def tend(self) -> None:
        """Delete kept messages whose data is delivered, and hide the others for longer, if it is time."""
        now = self._clock.now()
        if self._tended_at is not None and now - self._tended_at < TENDED_EVERY:
            return
        if not self.keeps:  # the queue is called by the next poll, on a thread for sources
            self.keeps = bool(self._kept.queues())
            self._tended_at = None if self.keeps else now
            return
        self._tended_at = now
        try:
            self.keeps = self._kept.tend(self._queue) > 0
        except (ConfigurationError, SourceError) as error:
            self._opened.clear()
            log.warning("the kept messages of source %s are received again: %s", self._view.source, error)

    def _has_messages(self, address: QueueAddress) -> bool:
        now = self._clock.now()
        has_messages, asked_at = self._asked.get(address, (False, None))
        if asked_at is None or now - asked_at >= ASKED_EVERY:
            try:
                has_messages = self._queue(address).waiting() > 0
            except (ConfigurationError, SourceError) as error:
                has_messages = False
                self._opened.pop(address, None)
                log.warning("source %s is not woken by its queue: %s", self._view.source, error)
            self._asked[address] = has_messages, now
        return has_messages

    def _queue(self, address: QueueAddress) -> Queue:
        now = self._clock.now()
        queue, opened_at = self._opened.get(address, (None, now))
        if queue is None or now - opened_at >= REOPENED_EVERY:
            queue = self._open(address)
            self._opened[address] = queue, now
        return queue


THREADS_PER_STORE = 4
THREADS_FOR_SOURCES = 16
"""Work that also queries a source has its own threads, so that sources that hang do not block access to the store."""
CLOSING = "coordination-watch-close"
"""The name of the thread that waits until all work with a store is over, and closes it."""

T = TypeVar("T")


class SharedStore:
    """A store that is opened at its first use, and closed after its last user has left.

    :param settings: the settings of the store.
    """

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings
        self._users = 0
        self._store: CoordinationStore | None = None
        self._opening = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS_PER_STORE, thread_name_prefix="coordination-watch")
        self._threads_for_sources = ThreadPoolExecutor(THREADS_FOR_SOURCES, thread_name_prefix="coordination-probe")

    def open(self) -> CoordinationStore:
        """Return the store, the same each time. Call it only in one of the threads.

        :raises ConfigurationError: if the settings are not usable.
        """
        with self._opening:
            self._store = self._store or open_store(self._settings)
            return self._store

    async def run(self, work: Callable[[], T], *, queries_source: bool = False) -> T:
        """Run work that queries the store in one of the threads, which may query Airflow; return its result.

        :param queries_source: whether the work may also query a source.
        """
        threads = self._threads_for_sources if queries_source else self._threads
        # The threads have to know the event loop: some triggerers take the requests of others out of order, then fail.
        return await sync_to_async(work, thread_sensitive=False, executor=threads)()

    def enter(self) -> None:
        """Add a user."""
        self._users += 1

    def leave(self) -> bool:
        """Remove a user; after the last one, close the store once its threads have finished.

        :returns: whether this was the last user.
        """
        self._users -= 1
        if self._users:
            return False
        # Work in progress may take its time: neither the event loop nor the end of the process waits for it.
        threading.Thread(target=self._close, name=CLOSING, daemon=True).start()
        return True

    def _close(self) -> None:
        for threads in (self._threads, self._threads_for_sources):
            threads.shutdown(wait=True, cancel_futures=True)
        if self._store is not None:
            self._store.close()


ENDED_MARGIN = timedelta(seconds=30)
"""A set's end is dated before it is written, by another machine's clock: it may appear this much later."""
LISTING_INTERVAL = timedelta(minutes=1)
"""How often the pending sets are listed without a new trigger: this finds what earlier polls missed."""
PURGE_INTERVAL = timedelta(minutes=10)
TURN = "turn"
"""A supervisor must start or end something."""
ELSEWHERE = "elsewhere"
"""Another supervisor supervises the source."""
PURGED_AT_A_TIME = 200
"""Limits the duration of a poll; later polls purge the rest."""


@dataclass(frozen=True, kw_only=True)
class PollResult:
    """The result of a poll.

    :param snapshot: the facts that conditions are evaluated on.
    :param next_due: when the next known event is due (aware), possibly in the past by now; None if none is known.
    :param is_idle: whether nothing else is expected until then: only supervisors of an idle source wait.
    """

    snapshot: SourceSnapshot
    next_due: datetime | None
    is_idle: bool = False


class SourcePoller:
    """Polls one source repeatedly; one poll at a time.

    :param coordinator: an initialized coordinator of the source.
    :param sets: the source's acknowledgment sets.
    :param region: the AWS region to use if a supervisor's spec and connections name none.
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
        self._messages = QueueWatch(coordinator, region)
        # Pollers that start together must not purge together.
        self._purge_at = self._clock.now() + PURGE_INTERVAL * random.random()
        self._behind: str | None = None

    @property
    def keeps_messages(self) -> bool:
        """Whether the source keeps messages of a queue, so that the next poll may call the queue."""
        return self._messages.keeps

    def poll(
        self,
        wanted: Wanted,
        instants: Iterable[datetime] = (),
        claimants: Collection[Claimant] = (),
        queues: Collection[QueueAddress] = (),
    ) -> PollResult:
        """Do what is due, and read what is wanted.

        :param instants: the instants up to which triggers wait for partitions to deliver.
        :param claimants: the supervisors of the source: usually one, or none.
        :param queues: the queues that triggers wait for messages of.
        :raises CoordinationError: if the store does not respond.
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
        turns, supervised = self._supervise(claimants)
        self._messages.tend()
        snapshot = SourceSnapshot(
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
            watermark=watermark_of(self.coordinator.view) if Wanted.WATERMARK in wanted else None,
            jobs=None if jobs is None else {owner: at is not None and at <= began for owner, at in jobs.items()},
            messages=self._messages.waiting(queues),
            turns=turns,
        )
        due = [expires_at, reopens_at]
        if Wanted.AVAILABILITY in wanted:
            due += map(self.coordinator.view.available_at, firsts)
        due += (jobs or {}).values()
        due += (each.next_due for each in supervised)
        # What was already overdue cannot be done now: it is tried again at the next poll, but not at once.
        next_due = min((at for at in due if at is not None and at > began), default=None)
        is_idle = wanted is Wanted.SUPERVISION and not turns and all(each.is_idle for each in supervised)
        return PollResult(snapshot=snapshot, next_due=next_due, is_idle=is_idle)

    # What is due

    def _end_overdue_sets(self) -> datetime | None:
        expires_at = self.sets.view.next_expiry()
        if expires_at is not None and expires_at <= self._clock.now():
            self.sets.expire_overdue()
            return self.sets.view.next_expiry()
        return expires_at

    def _reopen_due_partitions(self) -> Partition | None:
        """Reopen partitions that are due; return the CLOSED partition that reopens next."""
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
        """Return the sets that ended since the last poll, and some that ended shortly before it."""
        now = self._clock.now()
        since, self._ended_since = self._ended_since or now, now  # the pending sets were listed before
        return frozenset(ended.set_id for ended in self.sets.view.ended_since(since - ENDED_MARGIN))

    # Jobs

    def _unfinished_jobs(self) -> dict[str, datetime | None]:
        """Return the jobs without an outcome, each with the instant at which it is given up."""
        return {job.owner: job.given_up_at(self._jobs.safety_margin) for job in self._jobs.unfinished()}

    # Supervisors

    def _supervise(self, claimants: Collection[Claimant]) -> tuple[dict[Claimant, str], list[TurnPoll]]:
        """Poll as each supervisor does; return why supervisors must wake, and the results of their polls."""
        self._supervisors = {
            claimant: self._supervisors.get(claimant) or supervisor_of(self.coordinator, claimant, self._region)
            for claimant in claimants
        }
        turns: dict[Claimant, str] = {}
        polls: list[TurnPoll] = []
        for claimant, supervisor in self._supervisors.items():
            try:
                result = supervisor.poll()
            except SupervisedElsewhereError:
                turns[claimant] = ELSEWHERE
            else:
                polls.append(result)
                if result.needs_turn:
                    turns[claimant] = TURN
        return turns, polls

    # Partitions

    def _is_available(self, firsts: Iterable[Partition]) -> bool:
        return any(map(self.coordinator.view.may_acquire, firsts)) and self.coordinator.view.suspension() is None

    def _first(self, status: PartitionStatus) -> Partition | None:
        return self.coordinator.view.first(status)

    def _firsts(self, wanted: Wanted, closed: Partition | None) -> list[Partition]:
        """Return the first partition of each unfinished status that has one, as far as a trigger needs it."""
        firsts = [] if closed is None else [closed]
        for status in (PartitionStatus.UNASSIGNED, PartitionStatus.ASSIGNED):
            if Wanted.AVAILABILITY in wanted or (Wanted.COMPLETION in wanted and not firsts):
                first = self._first(status)
                firsts += [] if first is None else [first]
        return firsts

    def _parked_until(self, closed: Partition | None, instant: datetime | None) -> datetime | None:
        """Return the instant up to which all parked partitions have delivered; None if no partition is parked."""
        if closed is None:
            return None
        if instant is None:
            coordinator = self.coordinator
            parked = coordinator.store.query(
                coordinator.view.source_identifier, PartitionStatus.CLOSED, since=PARKED_UNTIL, limit=1
            )
            return NEVER if parked else None
        parked_partitions = all_partitions(
            self.coordinator.store,
            self.coordinator.view.source_identifier,
            PartitionStatus.CLOSED,
            since=PARKED_UNTIL,
        )
        return min(map(delivered_until, parked_partitions), default=None)

    def _delivered_until(self, instant: datetime, firsts: Sequence[Partition]) -> datetime:
        """Return the instant up to which all unfinished partitions, or one that is behind, have delivered.

        The partition that was behind at the last poll is read first: usually it still is.
        """
        if not firsts:
            return ALWAYS
        known = self.coordinator.view.get(self._behind) if self._behind is not None else None
        if known is not None and known.status in UNFINISHED and delivered_until(known) < instant:
            return delivered_until(known)
        earliest = ALWAYS
        for partition in self.coordinator.view.partitions(*UNFINISHED):
            earliest = min(earliest, delivered_until(partition))
            if earliest < instant:
                self._behind = partition.partition_key
                break
        return earliest


def delivered_until(partition: Partition) -> datetime:
    """Return the instant up to which a partition has delivered by its own progress; `NEVER` if it holds none."""
    text = partition.progress.get("delivered_until")
    try:
        return parse_instant(text) if isinstance(text, str) else NEVER
    except ValueError:
        return NEVER
