"""The next decision of a supervisor: a pure function of its stored state and an observation.

A decision is the supervisor's new state and its next actions. It is written before the actions are carried out. If the
write is refused, the decision is discarded. If the supervisor dies between the write and the actions, the next poll
finds the plan: a job that was planned but not submitted, or one that was not yet requested to stop.

`job_count` decides the number of jobs, `job_plan` which jobs start and end, and `job_ends` what follows from their
ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.jobs import JobState
from airflow_provider_coordination.supervisor.actions import Action, DiscoverPartitions, StartJob
from airflow_provider_coordination.supervisor.job_count import wanted_job_count, with_task_count
from airflow_provider_coordination.supervisor.job_ends import without_ended
from airflow_provider_coordination.supervisor.job_plan import JobPlan
from airflow_provider_coordination.supervisor.observation import Observation
from airflow_provider_coordination.supervisor.states import DetailedState
from airflow_provider_coordination.supervisor.supervision import Supervision


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
    health = memory.health
    for error in (*observation.errors, *errors):
        health = health.with_error(error)
    succeeded = not observation.errors and not errors and not health.cannot_read(observation.failing)
    health = health.run_ended(succeeded=succeeded, steady=_steady(memory, observation))
    open_partitions = memory.open_partitions if observation.open_partitions is None else observation.open_partitions
    return replace(memory, health=health, polled_at=observation.at, open_partitions=open_partitions)


def _updated(memory: Supervision, observation: Observation) -> Supervision:
    memory = without_ended(_with_errors(memory, observation), observation)
    if observation.settings is not None and memory.started_at is None:
        memory = replace(memory, started_at=observation.at)
    began = [
        replace(job, began_at=observation.at)
        if job.began_at is None and observation.state_of(job.owner) is JobState.RUNNING
        else job
        for job in memory.jobs
    ]
    return with_task_count(replace(memory, jobs=tuple(began)), observation)


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
    return DetailedState.SUSPENDED if observation.is_suspended else DetailedState.RUNNING
