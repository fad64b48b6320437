"""A supervisor at work: it looks, decides, writes the decision, and acts on it.

The same look is made in two places. Where many sources are watched cheaply, it notes health and lag, and says whether
a turn is needed. A turn looks once more, and does what is decided: it starts and ends jobs, which takes a worker.

What runs elsewhere is behind two seams: a `Launcher` submits jobs and ends them by force, a `Probe` asks the source
itself. Neither decides anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    PartitionUpdateError,
    SourceError,
    StoreUnavailableError,
    SupervisedElsewhereError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.jobs import Job, Jobs
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus
from airflow_provider_coordination.coordination.storable import storable
from airflow_provider_coordination.supervisor.decisions import (
    Action,
    Decision,
    EndJob,
    EndKind,
    LookForPartitions,
    Observation,
    PartitionCounts,
    RequestStop,
    StartJob,
    Terminate,
    decide,
    run_ended,
)
from airflow_provider_coordination.supervisor.lag import LagReading, LagSeries
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.states import ErrorEvent
from airflow_provider_coordination.supervisor.store import LEASE, StoredSupervision, SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant, SpecVersion, SupervisedJob, Supervision

log = logging.getLogger(__name__)

PASSES = 5
"""How often a turn looks again because of what it did, at most."""
LAGS_PROBED = 20
"""How many partitions that nobody reads a look asks the source about, at most."""


def task_of(source: str) -> str:
    """Return what the jobs of a supervisor work for, as their items name it."""
    return f"supervisor/{source}"


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """What a job is to be started with.

    :param job: the job: its owner, and when it was planned, which late and early records are judged by.
    :param spec: the version of the spec that it works by.
    :param task: what it works for; goes into its item, so that the supervisor finds it.
    :param max_duration: it ends by itself after this time, in case nobody supervises it any more.
    :param workers: how many jobs share the source.
    """

    job: SupervisedJob
    spec: SpecVersion
    task: str
    max_duration: timedelta
    workers: int


class Launcher(Protocol):
    """Starts jobs and ends them by force."""

    def new_owner(self) -> str:
        """Return the owner of a job that is to be started, another one at each call."""
        ...

    def start(self, order: JobOrder) -> None:
        """Submit a job without waiting for it, its item first; not at all if `Jobs.submit` returns False.

        :raises Exception: if it cannot be submitted; it counts as failed then.
        """
        ...

    def end(self, job: Job, reason: str) -> None:
        """End the processes of a job, as far as they can be reached from here.

        Its outcome is written, and its leases are given back, whatever becomes of them.
        """
        ...


class Probe(Protocol):
    """Asks the source itself."""

    @property
    def looks_for_partitions(self) -> bool:
        """Whether nobody but the supervisor looks for new partitions, as with objects or tables."""
        ...

    def look_for_partitions(self) -> None:
        """Create the partitions of what is new in the source: shard sync, or its supplier. In a worker.

        :raises SourceError: if the source does not answer, or refuses.
        """
        ...

    def count(self) -> int | None:
        """Return how many open shards the source has, or whatever it consists of; None if nobody can say.

        :raises SourceError: if the source does not answer, or refuses: contact with it is lost.
        """
        ...

    def lags(self, partitions: Sequence[Partition]) -> Mapping[str, int]:
        """Return how far behind partitions are that nobody reads, in milliseconds, by key; without those unknown.

        :raises SourceError: if the source does not answer, or refuses.
        """
        ...


class SpecReader(Protocol):
    """Reads stored specs as far as a supervisor needs them."""

    def settings(self, spec: Mapping[str, Any]) -> SuperviseSettings:
        """Return how the source is supervised.

        :raises ConfigurationError: if the spec is wrong, or of a newer version.
        """
        ...

    def changes_jobs(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
        """Return whether jobs of one spec do something else than those of another: they have to hand over."""
        ...


@dataclass(frozen=True, kw_only=True)
class Look:
    """What a look came to.

    :param needs_turn: whether there is something to start or end.
    :param decision: what a turn would do.
    :param next_due: when to look again at the latest (aware).
    """

    needs_turn: bool
    decision: Decision
    next_due: datetime


@dataclass(frozen=True, kw_only=True)
class Turn:
    """What a turn did.

    :param actions: what it did, in order.
    :param errors: what went wrong.
    :param supervision: what the supervisor remembers now.
    """

    actions: tuple[Action, ...]
    errors: tuple[ErrorEvent, ...]
    supervision: Supervision


@dataclass
class _Seen:
    """What was read from the store and the source in one look."""

    observation: Observation
    lag: LagSeries | None = None
    jobs: dict[str, Job] = field(default_factory=dict)


class Supervisor:
    """Supervises one source on behalf of one try of a DAG's task.

    Keep it for several looks: it remembers specs, which never change, and what it asked the source lately.

    :param coordinator: of the source, initialized, for the supervisor.
    :param claimant: who supervises.
    :param probe: asks the source.
    :param specs: reads specs.
    """

    def __init__(self, coordinator: SourceCoordinator, claimant: Claimant, *, probe: Probe, specs: SpecReader) -> None:
        self._coordinator = coordinator
        self._view = coordinator.view
        self._clock = coordinator.clock
        self._claimant = claimant
        self._probe = probe
        self._specs = specs
        self._versions: dict[int, SpecVersion] = {}
        self.store = SupervisionStore(coordinator.view)
        self.jobs = Jobs(coordinator.view)
        self.source = coordinator.source

    def look(self) -> Look:
        """Look at the source; note health and lag; return whether a turn is needed.

        :raises SupervisedElsewhereError: if somebody else supervises the source.
        :raises StoreUnavailableError: if the store does not answer.
        """
        stored = self.store.acquire(self._claimant)
        seen = self._see(stored.supervision)
        decision = decide(stored.supervision, seen.observation, lambda: "")
        if not decision.actions:
            self._note(stored, decision.supervision, seen)
        settings = seen.observation.settings or SuperviseSettings()
        latest = seen.observation.at + min(settings.period, LEASE / 3)
        return Look(
            needs_turn=bool(decision.actions),
            decision=decision,
            next_due=latest if decision.next_due is None else min(latest, decision.next_due),
        )

    def turn(self, launcher: Launcher) -> Turn:
        """Look, and do what is decided, until there is nothing left to do now.

        :raises SupervisedElsewhereError: if somebody else supervises the source.
        :raises StoreUnavailableError: if the store does not answer.
        """
        done: list[Action] = []
        errors: list[ErrorEvent] = []
        memory = Supervision()
        for _ in range(PASSES):
            stored = self.store.acquire(self._claimant)
            seen = self._see(stored.supervision)
            decision = decide(stored.supervision, seen.observation, launcher.new_owner)
            memory = decision.supervision
            try:
                stored = self.store.save(stored, memory)
            except PartitionUpdateError:  # a verb, or another turn, came in between: decide anew
                continue
            failed = self._act(decision, seen, launcher)
            done += decision.actions
            errors += failed
            memory = self._after(stored, seen, failed)
            if not decision.actions or failed:
                break
        return Turn(actions=tuple(done), errors=tuple(errors), supervision=memory)

    def release(self) -> None:
        """Give the lease on the supervision back: the next run need not wait for its end."""
        self.store.release(self._claimant)

    # Looking

    def _see(self, memory: Supervision) -> _Seen:
        now = self._clock.now()
        errors: list[ErrorEvent] = []
        settings, outdated = None, frozenset[int]()
        with self._noting(errors, now):
            settings, outdated = self._rules(memory)
        jobs = self._jobs_of(memory)
        partitions = {each.partition_key: each for each in self._view.partitions(*UNFINISHED)}
        counts = self._counts(list(partitions.values()), now, settings)
        is_suspended = self._view.suspensions.get() is not None
        shards = memory.shards
        if settings is not None:
            with self._noting(errors, now):
                shards = self._probe.count()
        series = self.store.lag()
        lag = None
        if settings is not None and self._is_lag_due(series, settings, now):
            with self._noting(errors, now):
                lag = series.adding(self._lag(partitions, jobs, now))
        return _Seen(
            observation=Observation(
                at=now,
                settings=settings,
                outdated=outdated,
                is_suspended=is_suspended,
                partitions=counts,
                jobs=jobs,
                safety_margin=self._view.safety_margin,
                lag=(lag or series).points,
                shards=shards,
                looks_for_partitions=self._probe.looks_for_partitions,
                errors=tuple(errors),
            ),
            lag=lag,
            jobs=jobs,
        )

    def _rules(self, memory: Supervision) -> tuple[SuperviseSettings | None, frozenset[int]]:
        """Return how the source is supervised, and the versions whose jobs have something else to do."""
        current = self._version(memory.spec_version)
        if current is None or current.spec is None:
            return None, frozenset()
        settings = self._specs.settings(current.spec)
        outdated = set()
        for version in {job.spec_version for job in memory.jobs} - {current.version}:
            former = self._version(version)
            if former is None or former.spec is None or self._specs.changes_jobs(former.spec, current.spec):
                outdated.add(version)
        return settings, frozenset(outdated)

    def _version(self, version: int) -> SpecVersion | None:
        if version not in self._versions and (found := self.store.spec(version)) is not None:
            self._versions[version] = found
        return self._versions.get(version)

    def _jobs_of(self, memory: Supervision) -> dict[str, Job]:
        known = {job.owner: self.jobs.get(job.owner) for job in memory.jobs}
        return {owner: job for owner, job in known.items() if job is not None}

    def _counts(
        self, partitions: Sequence[Partition], now: datetime, settings: SuperviseSettings | None
    ) -> PartitionCounts:
        soon = now + (timedelta(0) if settings is None else settings.period)
        readable = sum(_is_readable(partition, soon) for partition in partitions)
        is_empty = not partitions and self._view.first(PartitionStatus.COMPLETED) is None
        return PartitionCounts(readable=readable, unfinished=len(partitions), is_empty=is_empty)

    def _is_lag_due(self, series: LagSeries, settings: SuperviseSettings, now: datetime) -> bool:
        interval = settings.period if settings.auto_scale is None else settings.auto_scale.lag_collection_interval
        return not series.points or now - series.points[-1].at >= interval

    def _lag(self, partitions: Mapping[str, Partition], jobs: Mapping[str, Job], now: datetime) -> LagReading:
        lags: dict[str, int | None] = dict.fromkeys(partitions)
        for job in jobs.values():
            if job.report is not None:
                lags.update({key: lag for key, lag in job.report.lag_ms.items() if key in lags})
        unread = [each for each in partitions.values() if lags[each.partition_key] is None and each.owner is None]
        lags.update(self._probe.lags(unread[:LAGS_PROBED]) if unread else {})
        return LagReading(at=now, partitions=lags)

    # Writing

    def _note(self, stored: StoredSupervision, memory: Supervision, seen: _Seen) -> None:
        """Write what a look found, if it is new; somebody else who writes at the same time goes first."""
        is_due = memory.looked_at is None or seen.observation.at - memory.looked_at >= _period(seen.observation)
        if is_due:
            memory = run_ended(memory, seen.observation)
        is_old = stored.leased_until is None or stored.leased_until - seen.observation.at < LEASE * 2 / 3
        try:
            if memory != stored.supervision or is_old:
                self.store.save(stored, memory)
            if seen.lag is not None:
                self.store.save_lag(seen.lag)
        except PartitionUpdateError:
            log.debug("a look is not noted, somebody wrote in between: source=%s", self.source)

    def _after(self, stored: StoredSupervision, seen: _Seen, errors: Sequence[ErrorEvent]) -> Supervision:
        """Write that a turn's pass has ended."""
        memory = run_ended(stored.supervision, seen.observation, errors)
        try:
            self.store.save(stored, memory)
            if seen.lag is not None:
                self.store.save_lag(seen.lag)
        except PartitionUpdateError:
            log.info("the end of a turn is not noted, somebody wrote in between: source=%s", self.source)
        return memory

    # Acting

    def _act(self, decision: Decision, seen: _Seen, launcher: Launcher) -> list[ErrorEvent]:
        errors: list[ErrorEvent] = []
        for action in decision.actions:
            log.info("supervisor: source=%s %s", self.source, action)
            with self._noting(errors, seen.observation.at):
                self._do(action, decision, seen, launcher)
        return errors

    def _do(self, action: Action, decision: Decision, seen: _Seen, launcher: Launcher) -> None:
        match action:
            case StartJob(job=job):
                self._start(job, decision, seen, launcher)
            case RequestStop(owner=owner, reason=reason):
                self.jobs.request_stop(owner, reason)
            case EndJob(owner=owner, kind=kind, reason=reason):
                self._end(owner, kind, reason, seen, launcher)
            case LookForPartitions():
                self._probe.look_for_partitions()
            case Terminate(reason=reason):
                self._terminate(reason)

    def _start(self, job: SupervisedJob, decision: Decision, seen: _Seen, launcher: Launcher) -> None:
        settings, spec = seen.observation.settings, self._version(job.spec_version)
        if settings is None or spec is None:
            return
        order = JobOrder(
            job=job,
            spec=spec,
            task=task_of(self.source),
            max_duration=settings.task_duration + settings.completion_timeout,
            workers=max(1, decision.wanted or 1),
        )
        try:
            launcher.start(order)
        except Exception as error:
            log.exception("a job could not be submitted: source=%s owner=%s", self.source, job.owner)
            self.jobs.give_up(job.owner, order.task, _outcome(f"{type(error).__name__}: {error}"))

    def _end(self, owner: str, kind: EndKind, reason: str, seen: _Seen, launcher: Launcher) -> None:
        """End a job; whatever it still writes is refused from here on."""
        job = seen.jobs.get(owner)
        outcome = _outcome(None if kind is EndKind.WITHDRAWN else reason)
        if job is not None:
            launcher.end(job, reason)
        self.jobs.give_up(owner, task_of(self.source), outcome)
        keys = self._coordinator.give_up_owner(owner)
        log.warning("job %s, %d leases given back: source=%s owner=%s: %s", kind, len(keys), self.source, owner, reason)

    def _terminate(self, reason: str) -> None:
        try:
            self.store.terminate(by=self._claimant.dag_id, reason=reason)
        except SupervisionError:  # somebody did in between
            log.info("terminated already: source=%s", self.source)

    @contextmanager
    def _noting(self, errors: list[ErrorEvent], at: datetime) -> Iterator[None]:
        """Go on after what concerns one action, or the source, alone; note it."""
        try:
            yield
        except (StoreUnavailableError, SupervisedElsewhereError):
            raise
        except Exception as error:
            log.warning("supervisor: source=%s: %s: %s", self.source, type(error).__name__, error)
            errors.append(_event(error, at))


def _period(seen: Observation) -> timedelta:
    return (seen.settings or SuperviseSettings()).period


def _is_readable(partition: Partition, soon: datetime) -> bool:
    if partition.status is PartitionStatus.CLOSED:
        return partition.priority <= soon
    return not partition.is_awaiting


def _outcome(error: str | None) -> dict[str, Any]:
    """Return the outcome of a job that could not leave one itself; without an error, it was withdrawn."""
    return {"exit_code": None, "error": None if error is None else storable(error)}


def _event(error: Exception, at: datetime) -> ErrorEvent:
    """Return an error as it is noted: by the class of its cause, where it has one."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return ErrorEvent(
        at=at,
        error_class=type(cause).__name__,
        message=storable(str(error)),
        is_stream_error=isinstance(error, SourceError),
    )
