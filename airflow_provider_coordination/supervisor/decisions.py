"""What a supervisor does next: a pure function of what it remembers and what it sees.

A decision is what the supervisor is going to remember, and what it is going to do. It is written before it is acted
upon; a supervisor whose write is refused forgets the decision. Whoever dies between the two leaves a plan that the next
look finds: a job that was planned and never submitted, or one that was to be asked to end and was not.

How many jobs there should be: `job_count`. Which ones start and end for that: `job_plan`. What their ends lead to:
`job_ends`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.jobs import JobState
from airflow_provider_coordination.supervisor.actions import Action, LookForPartitions, StartJob
from airflow_provider_coordination.supervisor.job_count import counted, wanted_jobs
from airflow_provider_coordination.supervisor.job_ends import with_ended
from airflow_provider_coordination.supervisor.job_plan import JobPlan
from airflow_provider_coordination.supervisor.observation import Observation
from airflow_provider_coordination.supervisor.states import DetailedState
from airflow_provider_coordination.supervisor.supervision import Supervision


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a supervisor does next.

    :param supervision: what it remembers; to be written before anything is done.
    :param actions: what it does, in this order.
    :param wanted: how many jobs there should be; None if that is not known.
    :param reason: why, in a sentence.
    :param next_due: when to look again because of what is known now (aware); None if nothing will be due.
    """

    supervision: Supervision
    actions: tuple[Action, ...] = ()
    wanted: int | None = None
    reason: str = ""
    next_due: datetime | None = None


def decide(memory: Supervision, seen: Observation, new_owner: Callable[[], str]) -> Decision:
    """Decide what a supervisor does next.

    :param memory: what it remembers.
    :param seen: what it sees.
    :param new_owner: names the owner of a job that is to be started, another one at each call.
    """
    memory = _noted(memory, seen)
    plan = JobPlan(memory, seen, new_owner)
    plan.end_overdue()
    plan.stop_strays()
    wanted, reason = wanted_jobs(plan.memory, seen)
    if memory.terminated_at is not None or seen.is_suspended:
        plan.stop_all(reason)
    elif wanted is not None:
        plan.reach(wanted)
    plan.look_for_partitions()
    return Decision(
        supervision=_settled(plan.memory, plan.actions, seen),
        actions=tuple(plan.actions),
        wanted=wanted,
        reason=reason,
        next_due=plan.next_due(),
    )


def run_ended(memory: Supervision, seen: Observation, errors: Sequence[ErrorEvent] = ()) -> Supervision:
    """Return the memory of a supervisor whose run has ended: a look, and what followed from it.

    :param errors: what went wrong in what followed; what went wrong in the look is known already.
    """
    if not memory.spec_version:
        return replace(memory, looked_at=seen.at)
    health = memory.health
    for error in (*seen.errors, *errors):
        health = health.noting(error)
    well = not seen.errors and not errors and not health.cannot_read(seen.failing)
    health = health.run_ended(well=well, steady=_steady(memory, seen))
    open_partitions = memory.open_partitions if seen.open_partitions is None else seen.open_partitions
    return replace(memory, health=health, looked_at=seen.at, open_partitions=open_partitions)


def _noted(memory: Supervision, seen: Observation) -> Supervision:
    memory = with_ended(_with_errors(memory, seen), seen)
    if seen.settings is not None and memory.started_at is None:
        memory = replace(memory, started_at=seen.at)
    began = [
        replace(job, began_at=seen.at) if job.began_at is None and seen.state_of(job.owner) is JobState.RUNNING else job
        for job in memory.jobs
    ]
    return counted(replace(memory, jobs=tuple(began)), seen)


def _with_errors(memory: Supervision, seen: Observation) -> Supervision:
    """Return it with the errors that its jobs reported since they were noted last, each of them once."""
    health, jobs = memory.health, []
    for job in memory.jobs:
        known = seen.jobs.get(job.owner)
        report = None if known is None else known.report
        if report is not None and report.error_count > job.errors_noted:
            for error in report.errors_after(job.errors_noted):
                health = health.noting(replace(error, owner=job.owner))
            job = replace(job, errors_noted=report.error_count)
        jobs.append(job)
    return replace(memory, health=health, jobs=tuple(jobs))


def _settled(memory: Supervision, actions: Sequence[Action], seen: Observation) -> Supervision:
    """Return it in the state that a decision leads to, without a wish for a handover that is fulfilled."""
    if not memory.spec_version:
        return memory
    asked_at = memory.handover_requested_at
    if asked_at is not None and all(
        job.is_ending or job.began_at is None or job.began_at >= asked_at for job in memory.jobs
    ):
        memory = replace(memory, handover_requested_at=None)
    if memory.terminated_at is not None:
        proposed = _steady(memory, seen)
    elif any(isinstance(action, LookForPartitions) for action in actions):
        proposed = DetailedState.CONNECTING_TO_STREAM
    elif any(isinstance(action, StartJob) for action in actions):
        proposed = DetailedState.CREATING_TASKS
    elif seen.partitions is None or seen.partitions.is_empty:
        proposed = DetailedState.DISCOVERING_INITIAL_TASKS
    else:
        proposed = _steady(memory, seen)
    return replace(memory, health=memory.health.proposing(proposed))


def _steady(memory: Supervision, seen: Observation) -> DetailedState:
    if memory.terminated_at is not None:
        return DetailedState.STOPPING if memory.jobs else DetailedState.TERMINATED
    return DetailedState.SUSPENDED if seen.is_suspended else DetailedState.RUNNING
