"""The wanted number of jobs, and every change of it with its reason. Pure functions."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_coordination.supervisor.job_plan import TRANSITION
from airflow_provider_coordination.supervisor.observation import Observation
from airflow_provider_coordination.supervisor.scaling import configured_count, first_decision_at, scale, window_of
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.supervision import CHANGES_KEPT, Supervision, TaskCountChange


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
        memory = _with_change(memory, change)
    memory = _scaled(memory, observation)
    return replace(memory, planned_count=task_count(memory, observation.settings))


def _scaled(memory: Supervision, observation: Observation) -> Supervision:
    """Return the state with the number of jobs that the lag requires, if a scaling decision is due."""
    settings = None if observation.settings is None else observation.settings.auto_scale
    if observation.settings is None or settings is None or memory.started_at is None:
        return memory
    if observation.is_suspended or observation.partitions is None or not observation.partitions.readable:
        return memory
    judged_at = memory.scale_evaluated_at
    is_due = judged_at is None or observation.at - judged_at >= settings.scale_action_period
    if not is_due or observation.at < first_decision_at(settings, memory.started_at):
        return memory
    points = [point for point in observation.lag if memory.lag_since is None or point.at > memory.lag_since]
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
    if scaling.count != count:
        memory = replace(memory, task_count=scaling.count, scaled_at=observation.at, lag_since=observation.at)
    if scaling.count < count:  # the surplus is no effect of a reshard, so its jobs stop at once
        memory = replace(memory, surplus_since=observation.at - TRANSITION)
    if not scaling.reason:
        return memory
    return _with_change(
        memory, TaskCountChange(at=observation.at, before=count, after=scaling.count, reason=scaling.reason)
    )


def _with_change(memory: Supervision, change: TaskCountChange) -> Supervision:
    """Return the state with a change or refusal added. Of consecutive refusals, only the last is kept."""
    changes = memory.task_count_changes
    if change.is_refusal and changes and changes[-1].is_refusal:
        changes = changes[:-1]
    return replace(memory, task_count_changes=(*changes, change)[-CHANGES_KEPT:])
