"""The next decision of a supervisor: a pure function of its stored state and an observation.

A decision is the supervisor's new state and its next actions. It is written before the actions are carried out. If the
write is refused, the decision is discarded. If the supervisor dies between the write and the actions, the next poll
finds the plan: a job that was planned but not submitted, or one that was not yet requested to stop.

This module decides the number of jobs and what follows from their ends, and `job_plan` which jobs start and end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.job_reports import ErrorEvent, RecordCounts
from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.coordination.texts import storable
from airflow_provider_coordination.spark.outcome import EXIT_LOST_WORK
from airflow_provider_coordination.supervisor.idling import with_idleness
from airflow_provider_coordination.supervisor.job_plan import (
    TRANSITION,
    Action,
    DiscoverPartitions,
    EndJob,
    JobPlan,
    RequestStop,
    StartJob,
    configured_count,
    first_decision_at,
    scale,
    window_of,
)
from airflow_provider_coordination.supervisor.observation import Observation
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.supervision import (
    DetailedState,
    Supervision,
    TaskCountChange,
)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The next decision of a supervisor.

    :param supervision: its new state, to be written before the actions are carried out.
    :param noted: its new state before any action is planned: what it learns about its jobs, and the scaled number.
    :param actions: its next actions, in this order.
    :param wanted: the wanted number of jobs; None if unknown.
    :param reason: the reason for this number, in a sentence.
    :param next_due: when something will be due, as far as it is known now (aware); None if nothing is.
    """

    supervision: Supervision
    noted: Supervision
    actions: tuple[Action, ...] = ()
    wanted: int | None = None
    reason: str = ""
    next_due: datetime | None = None


def decide(memory: Supervision, observation: Observation, new_owner: Callable[[], str]) -> Decision:
    """Decide what a supervisor does next.

    :param memory: the stored state of the supervisor.
    :param observation: the observation of the source.
    :param new_owner: returns the owner for a new job; a different one at each call.
    """
    memory = noted = _updated(memory, observation)
    plan = JobPlan(memory, observation, new_owner)
    plan.end_overdue()
    plan.stop_orphans()
    wanted, reason = wanted_job_count(plan.memory, observation)
    if memory.terminated_at is not None or observation.is_suspended:
        plan.stop_all(reason)
    elif wanted is not None:
        plan.reach_count(wanted)
    plan.discover_partitions()
    plan.confirm_positions()
    return Decision(
        supervision=_settled(plan.memory, plan.actions, observation),
        noted=noted,
        actions=tuple(plan.actions),
        wanted=wanted,
        reason=reason,
        next_due=plan.next_due(),
    )


def run_ended(memory: Supervision, observation: Observation, errors: Sequence[ErrorEvent] = ()) -> Supervision:
    """Return the state of a supervisor after a run: an observation and the actions that followed.

    :param errors: the errors of the actions; those of the observation are part of it.
    """
    if not memory.spec_version:
        return replace(memory, polled_at=observation.at)
    health = _under_rules(memory, observation).health
    for error in (*observation.errors, *errors):
        health = health.with_error(error)
    succeeded = not observation.errors and not errors and not health.cannot_read(observation.failing)
    health = health.run_ended(succeeded=succeeded, steady=_steady(memory, observation))
    open_partitions = memory.open_partitions if observation.open_partitions is None else observation.open_partitions
    return replace(memory, health=health, polled_at=observation.at, open_partitions=open_partitions)


def _under_rules(memory: Supervision, observation: Observation) -> Supervision:
    """Return the state with the rules of the spec for its health."""
    if observation.settings is None:
        return memory
    return replace(memory, health=memory.health.under(observation.settings.health_rules))


def _updated(memory: Supervision, observation: Observation) -> Supervision:
    known = {(job.owner, job.began_at) for job in memory.jobs}
    memory = without_ended(_with_errors(_under_rules(memory, observation), observation), observation)
    if observation.settings is not None and memory.started_at is None:
        memory = replace(memory, started_at=observation.at)
    began = [
        replace(job, began_at=observation.at)
        if job.began_at is None and observation.state_of(job.owner) is JobState.RUNNING
        else job
        for job in memory.jobs
    ]
    memory = replace(memory, jobs=tuple(began))
    if {(job.owner, job.began_at) for job in began} != known:
        memory = replace(memory, lag_since=observation.at)
    return with_task_count(memory, observation)


def _with_errors(memory: Supervision, observation: Observation) -> Supervision:
    """Return the state with the new errors that its jobs reported, each once."""
    health, jobs = memory.health, []
    for job in memory.jobs:
        known = observation.jobs.get(job.owner)
        report = None if known is None else known.report
        if report is not None and report.error_count > job.errors_noted:
            for error in report.errors_after(job.errors_noted):
                health = health.with_error(replace(error, owner=job.owner))
            job = replace(job, errors_noted=report.error_count)
        jobs.append(job)
    return replace(memory, health=health, jobs=tuple(jobs))


def _settled(memory: Supervision, actions: Sequence[Action], observation: Observation) -> Supervision:
    """Return the state that a decision leads to, without a request for a handover that is complete."""
    if not memory.spec_version:
        return memory
    asked_at = memory.handover_requested_at
    if asked_at is not None and all(
        job.is_ending or job.began_at is None or job.began_at >= asked_at for job in memory.jobs
    ):
        memory = replace(memory, handover_requested_at=None)
    if any(isinstance(action, StartJob | RequestStop | EndJob) for action in actions):
        memory = replace(memory, lag_since=observation.at)
    if memory.terminated_at is not None:
        state = _steady(memory, observation)
    elif any(isinstance(action, DiscoverPartitions) for action in actions):
        state = DetailedState.CONNECTING_TO_STREAM
    elif any(isinstance(action, StartJob) for action in actions):
        state = DetailedState.CREATING_TASKS
    elif observation.partitions is None or observation.partitions.is_empty:
        state = DetailedState.DISCOVERING_INITIAL_TASKS
    else:
        state = _steady(memory, observation)
    return replace(memory, health=memory.health.with_state(state))


def _steady(memory: Supervision, observation: Observation) -> DetailedState:
    if memory.terminated_at is not None:
        return DetailedState.STOPPING if memory.jobs else DetailedState.TERMINATED
    if observation.is_suspended:
        return DetailedState.SUSPENDED
    return DetailedState.RUNNING if memory.idle is None or memory.jobs else DetailedState.IDLE


LONGEST_BACKOFF = timedelta(minutes=10)
"""The longest wait after failures before another job is started."""


def without_ended(memory: Supervision, observation: Observation) -> Supervision:
    """Return the state without the jobs that have ended, with each of them counted."""
    ended = [job for job in memory.jobs if observation.state_of(job.owner) is JobState.ENDED]
    ended.sort(key=lambda job: observation.jobs[job.owner].since)
    health, start_after, totals = memory.health, memory.start_after, RecordCounts.from_mapping(memory.totals)
    for job in ended:
        known = observation.jobs[job.owner]
        if known.report is not None:
            totals += known.report.totals
        succeeded, error = _outcome_of(known)
        if succeeded is None:
            continue
        health = health.job_ended(succeeded=succeeded)
        period = timedelta(0) if observation.settings is None else observation.settings.period
        if not succeeded:
            event = ErrorEvent(
                at=observation.at, error_class=_class_in(error), message=storable(error), owner=job.owner
            )
            health = health.with_error(event)
            start_after = observation.at + backoff(period, health.failed_jobs)
        elif job.is_ending or any(each.replaces == job.owner for each in memory.jobs):
            start_after = None
        else:  # a job that found nothing to do and ended at once must not be restarted in a loop
            start_after = job.planned_at + period
    left = tuple(job for job in memory.jobs if job not in ended)
    return replace(memory, jobs=left, health=health, start_after=start_after, totals=totals.to_mapping())


def _outcome_of(known: Job) -> tuple[bool | None, str]:
    """Return whether a job succeeded, and its error. None means that the job was withdrawn before it started.

    A job that lost leases has not failed: a user reset its partitions, or other jobs continue with them.
    """
    outcome = known.outcome or {}
    code, error = outcome.get("exit_code"), outcome.get("error")
    if code in (0, EXIT_LOST_WORK):
        return True, ""
    if code is None and error is None:
        return None, ""
    return False, str(error or f"the job ended with exit code {code}")


def _class_in(error: str) -> str:
    """Return the class of an error from a message such as `ValueError: text`."""
    name = error.partition(":")[0].rpartition(".")[2]
    return name if name.isidentifier() and name[:1].isupper() else "JobFailed"


def backoff(period: timedelta, failures: int) -> timedelta:
    """Return how long to wait before the next start, after a number of consecutive failures."""
    return min(period * 2 ** min(failures - 1, 16), LONGEST_BACKOFF) if failures else timedelta(0)


def wanted_job_count(memory: Supervision, observation: Observation) -> tuple[int | None, str]:
    """Return the wanted number of jobs and the reason; None if it is unknown, so that nothing is changed."""
    if memory.terminated_at is not None:
        return 0, "the supervisor is terminated"
    if observation.is_suspended:
        return 0, "the source is suspended"
    if observation.settings is None:
        return None, "no spec can be read"
    if observation.partitions is None:
        return None, "the partitions are unknown"
    if memory.idle is not None:
        return 0, f"the source is idle since {memory.idle.since:%Y-%m-%d %H:%M:%S} UTC"
    count, readable = task_count(memory, observation.settings), observation.partitions.readable
    if count > readable:
        return readable, f"{readable} partitions can be read"
    if memory.task_count is not None and observation.settings.auto_scale is not None:
        return count, "as decided by scaling"
    return count, "as configured in the spec"


def task_count(memory: Supervision, settings: SuperviseSettings) -> int:
    """Return the number of jobs, provided that there are enough partitions."""
    scaling = settings.auto_scale
    if scaling is None:
        return settings.task_count
    if memory.task_count is None:
        return configured_count(scaling, settings.task_count)
    return min(max(memory.task_count, scaling.task_count_min), scaling.task_count_max)


def with_task_count(memory: Supervision, observation: Observation) -> Supervision:
    """Return the state with the wanted number of jobs, and with each change of it and the reason."""
    if observation.settings is None:
        return memory
    count = task_count(memory, observation.settings)
    if memory.planned_count not in (None, count):
        reason = f"version {memory.spec_version} of the spec"
        change = TaskCountChange(at=observation.at, before=memory.planned_count or 0, after=count, reason=reason)
        memory = memory.with_change(change)
    memory = _scaled(memory, observation)
    count = task_count(memory, observation.settings)
    memory = with_idleness(replace(memory, planned_count=count), observation, count)
    if memory.idle is not None and memory.jobs:  # as after scaling in, its jobs stop at once
        memory = replace(memory, surplus_since=memory.surplus_since or observation.at - TRANSITION)
    return memory


def _scaled(memory: Supervision, observation: Observation) -> Supervision:
    """Return the state with the number of jobs that the lag requires, if a scaling decision is due."""
    settings = None if observation.settings is None else observation.settings.auto_scale
    if observation.settings is None or settings is None or memory.started_at is None or memory.idle is not None:
        return memory
    if observation.partitions is None:
        return memory
    points = [point for point in observation.lag if memory.lag_since is None or point.at > memory.lag_since]
    is_read = any(job.began_at is not None and not job.is_ending for job in memory.jobs)
    if observation.is_suspended or not observation.partitions.readable or not is_read:
        return replace(memory, lag_since=observation.at) if points else memory
    judged_at = memory.scale_evaluated_at
    is_due = judged_at is None or observation.at - judged_at >= settings.scale_action_period
    if not is_due or observation.at < first_decision_at(settings, memory.started_at):
        return memory
    readable = observation.partitions.readable
    count = min(task_count(memory, observation.settings), readable)
    scaling = scale(
        settings,
        count,
        window_of(settings, points, observation.at),
        partitions=readable,
        now=observation.at,
        ending=sum(job.is_ending for job in memory.jobs),
        changed_at=memory.scaled_at,
    )
    memory = replace(memory, scale_evaluated_at=observation.at)
    if scaling.is_decided:
        memory = replace(memory, lag_since=observation.at)
    if scaling.count != count:
        memory = replace(memory, task_count=scaling.count, scaled_at=observation.at)
    if scaling.count < count:  # the surplus is no effect of a reshard, so its jobs stop at once
        memory = replace(memory, surplus_since=observation.at - TRANSITION)
    latest = memory.task_count_changes[-1:]
    if not scaling.reason or (not scaling.is_decided and latest and latest[0].is_refusal):
        return memory  # a window that fills again explains less than the refusal that emptied it
    return memory.with_change(
        TaskCountChange(at=observation.at, before=count, after=scaling.count, reason=scaling.reason)
    )
