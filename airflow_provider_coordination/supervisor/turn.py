"""A supervisor at work: it looks, decides, writes the decision, and acts on it.

The same look is made in two places. Where many sources are watched cheaply, it notes health and lag, and says whether
a turn is needed. A turn looks once more, and does what is decided: it starts and ends jobs, which takes a worker.

What runs elsewhere is behind two seams: a `Launcher` submits jobs and ends them by force, a `Probe` asks the source
itself. Neither decides anything.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionUpdateError,
    StoreUnavailableError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.jobs import Job, Jobs
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.supervisor.actions import (
    Action,
    EndJob,
    EndKind,
    LookForPartitions,
    RequestStop,
    StartJob,
    Terminate,
)
from airflow_provider_coordination.supervisor.decisions import Decision, decide, run_ended
from airflow_provider_coordination.supervisor.observation import Observation
from airflow_provider_coordination.supervisor.observer import Observer, Probe, error_event
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.store import LEASE, StoredSupervision, SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant, SupervisedJob, Supervision

log = logging.getLogger(__name__)

PASSES = 5
"""How often a turn looks again because of what it did, at most."""


def task_of(source: str) -> str:
    """Return what the jobs of a supervisor work for, as their items name it."""
    return f"supervisor/{source}"


@dataclass(frozen=True, kw_only=True)
class JobOrder:
    """What a job is to be started with.

    :param job: the job: its owner, and when it was planned, which late and early records are judged by.
    :param spec: what it works by.
    :param task: what it works for; goes into its item, so that the supervisor finds it.
    :param max_duration: it ends by itself after this time, in case nobody supervises it any more.
    :param workers: how many jobs share the source.
    """

    job: SupervisedJob
    spec: IngestionSpec
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

    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        """End the processes of a job, on this machine or in the cluster, as far as they can be reached from here.

        :param spec: what it works by; None if that is not known any more.

        Its outcome is written, and its leases are given back, whatever becomes of them.
        """
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


class Supervisor:
    """Supervises one source on behalf of one try of a DAG's task.

    Keep it for several looks: it remembers specs, which never change, and what it asked the source lately.

    :param coordinator: of the source, initialized, for the supervisor.
    :param claimant: who supervises.
    :param probe: asks the source.
    """

    def __init__(self, coordinator: SourceCoordinator, claimant: Claimant, *, probe: Probe) -> None:
        self.source = coordinator.source
        self.store = SupervisionStore(coordinator.view)
        self.jobs = Jobs(coordinator.view)
        self._coordinator = coordinator
        self._claimant = claimant
        self._probe = probe
        self._task = task_of(self.source)
        self._observer = Observer(coordinator.view, self.store, self.jobs, probe, self._task)

    def look(self) -> Look:
        """Look at the source; note health and lag; return whether a turn is needed.

        :raises SupervisedElsewhereError: if somebody else supervises the source.
        :raises StoreUnavailableError: if the store does not answer.
        """
        stored = self.store.acquire(self._claimant)
        seen = self._observer.observe(stored.supervision)
        decision = decide(stored.supervision, seen, lambda: "")
        if not decision.actions:
            self._note(stored, decision.supervision, seen)
        settings = seen.settings or SuperviseSettings()
        scaling = settings.auto_scale
        interval = settings.period if scaling is None else min(settings.period, scaling.lag_collection_interval)
        latest = seen.at + min(interval, LEASE / 3)
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
        passes = 0
        run: Observation | None = None
        while True:
            passes += 1
            stored = self.store.acquire(self._claimant)
            seen = self._observer.observe(stored.supervision, anew=run is None or _changes_partitions(done))
            run = seen if run is None or seen.is_run else run
            decision = decide(stored.supervision, seen, launcher.new_owner)
            is_refused = not self._write(stored, decision.supervision)
            if not is_refused:
                errors += self._act(decision, seen, launcher)
                done += decision.actions
            if passes == PASSES or errors or not (is_refused or decision.actions):
                break
        return Turn(actions=tuple(done), errors=tuple(errors), supervision=self._finished(run, errors))

    def release(self) -> None:
        """Give the lease on the supervision back: the next run need not wait for its end."""
        self.store.release(self._claimant)

    # Writing

    def _write(self, stored: StoredSupervision, memory: Supervision) -> bool:
        """Write what the supervisor remembers; return False if a verb, or another turn, came in between."""
        try:
            self.store.save(stored, memory)
        except PartitionUpdateError:
            log.info("supervisor: source=%s: somebody else wrote in between, nothing is done", self.source)
            return False
        return True

    def _note(self, stored: StoredSupervision, memory: Supervision, seen: Observation) -> None:
        """Write what a look found, if it is new; somebody else who writes at the same time goes first."""
        if seen.is_run:
            memory = run_ended(memory, seen)
        if memory != stored.supervision:
            self._write(stored, memory)
        self._observer.save_lag()

    def _finished(self, seen: Observation, errors: Sequence[ErrorEvent]) -> Supervision:
        """Write that a turn has ended; return what the supervisor remembers now."""
        stored = self.store.acquire(self._claimant)
        memory = run_ended(stored.supervision, seen, errors)
        self._write(stored, memory)
        self._observer.save_lag()
        return memory

    # Acting

    def _act(self, decision: Decision, seen: Observation, launcher: Launcher) -> list[ErrorEvent]:
        """Do what is decided; return what went wrong. What concerns one action alone does not stop the others."""
        errors: list[ErrorEvent] = []
        for action in decision.actions:
            log.info("supervisor of source %s %s", self.source, action)
            self.store.acquire(self._claimant)  # actions may take long: renew, or leave the rest to whoever took over
            try:
                self._do(action, decision, seen, launcher)
            except StoreUnavailableError:
                raise
            except Exception as error:
                log.warning("supervisor: source=%s: %s: %s", self.source, type(error).__name__, error)
                errors.append(error_event(error, seen.at, of_source=isinstance(action, LookForPartitions)))
        return errors

    def _do(self, action: Action, decision: Decision, seen: Observation, launcher: Launcher) -> None:
        match action:
            case StartJob(job=job):
                self._start(job, decision, seen, launcher)
            case RequestStop(owner=owner, reason=reason):
                self.jobs.request_stop(owner, reason)
            case EndJob():
                self._end(action, decision, seen, launcher)
            case LookForPartitions():
                self._probe.look_for_partitions()
            case Terminate(reason=reason):
                with suppress(SupervisionError):  # somebody did in between
                    self.store.terminate(by=self._claimant.dag_id, reason=reason)

    def _start(self, job: SupervisedJob, decision: Decision, seen: Observation, launcher: Launcher) -> None:
        settings, spec = seen.settings, self._observer.spec(job.spec_version)
        if settings is None or spec is None:
            return
        order = JobOrder(
            job=job,
            spec=spec,
            task=self._task,
            max_duration=settings.task_duration + settings.completion_timeout,
            workers=max(1, decision.wanted or 1),
        )
        try:
            launcher.start(order)
        except Exception as error:
            log.exception("a job could not be submitted: source=%s owner=%s", self.source, job.owner)
            self.jobs.give_up(job.owner, self._task, _outcome(f"{type(error).__name__}: {error}"))

    def _end(self, action: EndJob, decision: Decision, seen: Observation, launcher: Launcher) -> None:
        """End a job; whatever it still writes is refused from here on."""
        owner, kind, reason = action.owner, action.kind, action.reason
        job = seen.jobs.get(owner)
        try:
            if job is not None:
                launcher.end(job, self._spec_of(owner, decision), reason)
        finally:
            self.jobs.give_up(owner, self._task, _outcome(None if kind is EndKind.WITHDRAWN else reason))
            keys = self._coordinator.give_up_owner(owner)
            log.warning(
                "job %s, %d leases given back: source=%s owner=%s: %s", kind, len(keys), self.source, owner, reason
            )

    def _spec_of(self, owner: str, decision: Decision) -> IngestionSpec | None:
        """Return what a job works by; None if that cannot be read any more."""
        versions = [job.spec_version for job in decision.supervision.jobs if job.owner == owner]
        try:
            return self._observer.spec(versions[0]) if versions else None
        except ConfigurationError:
            return None


def _changes_partitions(done: Sequence[Action]) -> bool:
    """Return whether a turn that has done this has to look at the partitions anew: there may be more, or more free."""
    return any(isinstance(action, LookForPartitions | EndJob) for action in done)


def _outcome(error: str | None) -> dict[str, Any]:
    """Return the outcome of a job that could not leave one itself; without an error, it was withdrawn."""
    return {"exit_code": None, "error": None if error is None else storable(error)}
