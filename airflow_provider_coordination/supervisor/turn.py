"""A running supervisor: it observes its source, decides, writes the decision, and carries it out.

It runs in two places. In the triggerer, which watches many sources cheaply, a poll records health and lag and returns
whether a turn is needed. In a worker, a turn observes again and carries the decision out: it starts and ends jobs.

Two interfaces separate what runs elsewhere: a `Launcher` submits jobs and ends them by force, and a `Probe` queries the
source. Neither makes decisions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Protocol

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionUpdateError,
    StoreUnavailableError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.coordination.jobs import Job, Jobs
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.texts import storable
from airflow_provider_coordination.supervisor.decisions import Decision, decide, run_ended
from airflow_provider_coordination.supervisor.job_plan import (
    Action,
    ConfirmPositions,
    DiscoverPartitions,
    EndJob,
    EndKind,
    RequestStop,
    StartJob,
    Terminate,
)
from airflow_provider_coordination.supervisor.observation import REVIEWED_EVERY, Observation
from airflow_provider_coordination.supervisor.observer import Observer, Probe, error_event
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.store import LEASE, StoredSupervision, SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant, SupervisedJob, Supervision

log = logging.getLogger(__name__)

MAX_PASSES = 5
"""The maximum number of passes of a turn, each of which observes the results of the one before."""


def task_of(source: str) -> str:
    """Return the name of the task that a supervisor's jobs work for, as recorded in their items."""
    return f"supervisor/{source}"


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """A request to start a job.

    :param job: the job: its owner, and when it was planned, which determines late and early records.
    :param spec: the spec that it works with.
    :param task: the task that it works for; recorded in its item, so that the supervisor finds it.
    :param max_duration: after this time the job ends on its own, in case it is no longer supervised.
    :param workers: the number of jobs that share the source.
    """

    job: SupervisedJob
    spec: IngestionSpec
    task: str
    max_duration: timedelta
    workers: int


class Launcher(Protocol):
    """Starts jobs and ends them by force."""

    def new_owner(self) -> str:
        """Return the owner for a new job; a different one at each call."""
        ...

    def start(self, request: JobRequest) -> None:
        """Record a job and submit it without waiting for it. If `Jobs.submit` returns False, do not submit it.

        :raises Exception: if the job cannot be submitted; it counts as failed.
        """
        ...

    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        """End the processes of a job, on this machine or in the cluster, as far as they can be reached from here.

        The caller records the outcome and releases the leases even if the processes cannot be ended.

        :param spec: the spec that the job works with; None if it can no longer be read.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class TurnPoll:
    """The result of a poll.

    :param needs_turn: whether a turn has actions to carry out, or a job to report that has ended.
    :param decision: the decision that a turn would make.
    :param next_due: the latest instant of the next poll (aware).
    :param is_idle: whether the source is idle, and nothing is left to do: the next poll need not be earlier.
    """

    needs_turn: bool
    decision: Decision
    next_due: datetime
    is_idle: bool


@dataclass(frozen=True, kw_only=True)
class TurnResult:
    """The result of a turn.

    :param actions: the actions, in order.
    :param errors: the errors of the actions.
    :param supervision: the state of the supervisor after the turn.
    """

    actions: tuple[Action, ...]
    errors: tuple[ErrorEvent, ...]
    supervision: Supervision


class Supervisor:
    """Supervises one source for one try of a DAG's task.

    Reuse it for several polls: it caches specs, which never change, and recent results of the source.

    :param coordinator: an initialized coordinator of the source.
    :param claimant: the task try that supervises.
    :param probe: queries the source.
    """

    def __init__(self, coordinator: SourceCoordinator, claimant: Claimant, *, probe: Probe) -> None:
        self.source = coordinator.source
        self.store = SupervisionStore(coordinator.view)
        self.jobs = Jobs(coordinator.view)
        self._coordinator = coordinator
        self._claimant = claimant
        self._probe = probe
        self._task = task_of(self.source)
        self._observer = Observer(coordinator.view, self.store, self.jobs, probe, self._task, coordinator.events.gauge)

    def poll(self) -> TurnPoll:
        """Observe the source, record health, lag and scaling, and return whether a turn is needed.

        :raises SupervisedElsewhereError: if another DAG or a later run supervises the source.
        :raises StoreUnavailableError: if the store is unavailable.
        """
        stored = self.store.acquire(self._claimant)
        observation = self._observer.observe(stored.supervision)
        decision = decide(stored.supervision, observation, lambda: "")
        if not decision.actions:
            self._note(stored, decision.supervision, observation)
        else:  # a window that is shorter than the start of a turn is not complete there: scaling is decided here
            self._save(stored, decision.noted)
        settings = observation.settings or SuperviseSettings()
        is_idle = decision.supervision.idle is not None and not (decision.supervision.jobs or decision.actions)
        renewal = LEASE / 2 if is_idle else LEASE / 3
        latest = observation.at + min(settings.period, settings.lag_interval, renewal)
        return TurnPoll(
            needs_turn=bool(decision.actions) or len(decision.noted.jobs) < len(stored.supervision.jobs),
            decision=decision,
            next_due=latest if decision.next_due is None else min(latest, decision.next_due),
            is_idle=is_idle,
        )

    def turn(self, launcher: Launcher) -> TurnResult:
        """Observe the source and carry out decisions until nothing is left to do.

        :raises SupervisedElsewhereError: if another DAG or a later run supervises the source.
        :raises StoreUnavailableError: if the store is unavailable.
        """
        done: list[Action] = []
        errors: list[ErrorEvent] = []
        passes = 0
        run: Observation | None = None
        while True:
            passes += 1
            stored = self.store.acquire(self._claimant)
            observation = self._observer.observe(stored.supervision, refresh=run is None or _changes_partitions(done))
            run = observation if run is None or observation.is_full else run
            decision = decide(stored.supervision, observation, launcher.new_owner)
            is_refused = not self._write(stored, decision.supervision)
            if not is_refused:
                errors += self._act(decision, observation, launcher)
                done += decision.actions
            if passes == MAX_PASSES or errors or not (is_refused or decision.actions):
                break
        return TurnResult(actions=tuple(done), errors=tuple(errors), supervision=self._finished(run, errors))

    def release(self) -> None:
        """Release the lease on the supervision, so that the next run does not wait for its expiry."""
        self.store.release(self._claimant)

    # Writing

    def _write(self, stored: StoredSupervision, memory: Supervision) -> bool:
        """Write the state of the supervisor; return False if a verb or another turn wrote in between."""
        try:
            self.store.save(stored, memory)
        except PartitionUpdateError:
            log.info("supervisor: source=%s: another process wrote in between; no action is taken", self.source)
            return False
        return True

    def _note(self, stored: StoredSupervision, memory: Supervision, observation: Observation) -> None:
        """Write what a poll found, if it is new. A concurrent write of another process takes precedence."""
        if observation.is_full:
            memory = run_ended(memory, observation)
        self._save(stored, memory)

    def _save(self, stored: StoredSupervision, memory: Supervision) -> None:
        """Write a state if it is new, and the lag."""
        if memory != stored.supervision and not _is_one_more_idle_run(stored.supervision, memory):
            self._write(stored, memory)
        self._observer.save_lag(is_idle=memory.idle is not None)

    def _finished(self, observation: Observation, errors: Sequence[ErrorEvent]) -> Supervision:
        """Record the end of a turn; return the state of the supervisor."""
        stored = self.store.acquire(self._claimant)
        memory = run_ended(stored.supervision, observation, errors)
        self._write(stored, memory)
        self._observer.save_lag()
        return memory

    # Acting

    def _act(self, decision: Decision, observation: Observation, launcher: Launcher) -> list[ErrorEvent]:
        """Carry out the actions of a decision; return their errors. A failed action does not stop the others."""
        errors: list[ErrorEvent] = []
        for action in decision.actions:
            log.info("supervisor of source %s %s", self.source, action)
            self.store.acquire(
                self._claimant
            )  # actions may take long: renew the lease, or leave the rest to the new owner
            try:
                self._do(action, decision, observation, launcher)
            except StoreUnavailableError:
                raise
            except Exception as error:
                log.warning("supervisor: source=%s: %s: %s", self.source, type(error).__name__, error)
                errors.append(
                    error_event(
                        error, observation.at, of_source=isinstance(action, DiscoverPartitions | ConfirmPositions)
                    )
                )
        return errors

    def _do(self, action: Action, decision: Decision, observation: Observation, launcher: Launcher) -> None:
        match action:
            case StartJob(job=job):
                self._start(job, decision, observation, launcher)
            case RequestStop(owner=owner, reason=reason):
                self.jobs.request_stop(owner, reason)
            case EndJob():
                self._end(action, decision, observation, launcher)
            case DiscoverPartitions():
                self._probe.discover_partitions()
            case ConfirmPositions():
                self._confirm_positions(observation.at)
            case Terminate(reason=reason):
                with suppress(SupervisionError):  # it was terminated in between
                    self.store.terminate(by=self._claimant.dag_id, reason=reason)

    def _confirm_positions(self, at: datetime) -> None:
        """Write that everything is read, for each partition of an idle source that no job has leased since.

        :param at: the instant of the turn (aware). It is noted last, so that what dies before is repeated.
        """
        for partition in list(self._coordinator.view.partitions(PartitionStatus.UNASSIGNED)):
            progress = self._probe.confirmed_progress(partition)
            if progress is not None:
                with suppress(PartitionUpdateError):  # a job leased it, and continues from there
                    self._coordinator.store.transact(update=[partition.with_progress(progress)])
        stored = self.store.acquire(self._claimant)
        if (idle := stored.supervision.idle) is not None:
            self._write(stored, replace(stored.supervision, idle=replace(idle, confirmed_at=at)))

    def _start(self, job: SupervisedJob, decision: Decision, observation: Observation, launcher: Launcher) -> None:
        settings, spec = observation.settings, self._observer.spec(job.spec_version)
        if settings is None or spec is None:
            return
        request = JobRequest(
            job=job,
            spec=spec,
            task=self._task,
            max_duration=settings.task_duration + settings.completion_timeout,
            workers=max(1, decision.wanted or 1),
        )
        try:
            launcher.start(request)
        except Exception as error:
            log.exception("job could not be submitted: source=%s owner=%s", self.source, job.owner)
            self.jobs.give_up(job.owner, self._task, _outcome(f"{type(error).__name__}: {error}"))

    def _end(self, action: EndJob, decision: Decision, observation: Observation, launcher: Launcher) -> None:
        """End a job. Its further writes are refused."""
        owner, kind, reason = action.owner, action.kind, action.reason
        job = observation.jobs.get(owner)
        try:
            if job is not None:
                launcher.end(job, self._spec_of(owner, decision), reason)
        finally:
            self.jobs.give_up(owner, self._task, _outcome(None if kind is EndKind.WITHDRAWN else reason))
            keys = self._coordinator.give_up_owner(owner)
            log.warning(
                "job %s, %d leases released: source=%s owner=%s: %s", kind, len(keys), self.source, owner, reason
            )

    def _spec_of(self, owner: str, decision: Decision) -> IngestionSpec | None:
        """Return the spec that a job works with; None if it can no longer be read."""
        versions = [job.spec_version for job in decision.supervision.jobs if job.owner == owner]
        try:
            return self._observer.spec(versions[0]) if versions else None
        except ConfigurationError:
            return None


def _is_one_more_idle_run(before: Supervision, after: Supervision) -> bool:
    """Return whether a state differs only by one more successful run of an idle source, shortly after the last one."""
    if after.idle is None or before.polled_at is None or after.polled_at is None:
        return False
    health = replace(after.health, successful_runs=before.health.successful_runs)
    is_same = replace(after, polled_at=before.polled_at, health=health) == before
    return is_same and after.polled_at - before.polled_at < REVIEWED_EVERY


def _changes_partitions(done: Sequence[Action]) -> bool:
    """Return whether the actions may have created or released partitions, so that they must be read again."""
    return any(isinstance(action, DiscoverPartitions | EndJob) for action in done)


def _outcome(error: str | None) -> dict[str, Any]:
    """Return the outcome of a job that recorded none itself; without an error, the job was withdrawn."""
    return {"exit_code": None, "error": None if error is None else storable(error)}
