"""How many jobs there should be, and every change of that with its reason. Pure."""

from __future__ import annotations

from dataclasses import replace

from airflow_provider_coordination.supervisor.observation import Observation
from airflow_provider_coordination.supervisor.scaling import configured_count, first_judged_at, scale, window_of
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.supervision import CHANGES_KEPT, Supervision, TaskCountChange


def wanted_jobs(memory: Supervision, seen: Observation) -> tuple[int | None, str]:
    """Return how many jobs there should be, and why; None if nobody can say, so that everything stays as it is."""
    if memory.terminated_at is not None:
        return 0, "the supervisor is terminated"
    if seen.is_suspended:
        return 0, "the source is suspended"
    if seen.settings is None:
        return None, "there is no spec that can be read"
    if seen.partitions is None:
        return None, "nothing is known of the partitions"
    count = task_count(memory, seen.settings)
    if count > seen.partitions.readable:
        return seen.partitions.readable, f"{seen.partitions.readable} partitions can be read"
    if memory.task_count is not None and seen.settings.auto_scale is not None:
        return count, "as scaling wants"
    return count, "as the spec says"


def task_count(memory: Supervision, settings: SuperviseSettings) -> int:
    """Return how many jobs there should be if there are enough partitions."""
    scaling = settings.auto_scale
    if scaling is None:
        return settings.task_count
    if memory.task_count is None:
        return configured_count(scaling, settings.task_count)
    return min(max(memory.task_count, scaling.task_count_min), scaling.task_count_max)


def counted(memory: Supervision, seen: Observation) -> Supervision:
    """Return it with the number of jobs that there are to be, and every change of that with its reason."""
    if seen.settings is None:
        return memory
    count = task_count(memory, seen.settings)
    if memory.planned_count not in (None, count):
        reason = f"version {memory.spec_version} of the spec"
        change = TaskCountChange(at=seen.at, before=memory.planned_count or 0, after=count, reason=reason)
        memory = _with_change(memory, change)
    memory = _scaled(memory, seen)
    return replace(memory, planned_count=task_count(memory, seen.settings))


def _scaled(memory: Supervision, seen: Observation) -> Supervision:
    """Return it with the number of jobs that the lag asks for, if a decision is due."""
    settings = None if seen.settings is None else seen.settings.auto_scale
    if seen.settings is None or settings is None or memory.started_at is None:
        return memory
    if seen.is_suspended or seen.partitions is None or not seen.partitions.readable:
        return memory
    judged_at = memory.scale_judged_at
    is_due = judged_at is None or seen.at - judged_at >= settings.scale_action_period
    if not is_due or seen.at < first_judged_at(settings, memory.started_at):
        return memory
    points = [point for point in seen.lag if memory.lag_since is None or point.at > memory.lag_since]
    count = task_count(memory, seen.settings)
    scaling = scale(
        settings,
        count,
        window_of(settings, points, seen.at),
        partitions=seen.partitions.readable,
        now=seen.at,
        ending=sum(job.is_ending for job in memory.jobs),
        changed_at=memory.scaled_at,
    )
    memory = replace(memory, scale_judged_at=seen.at)
    if scaling.count != count:
        memory = replace(memory, task_count=scaling.count, scaled_at=seen.at, lag_since=seen.at)
    if not scaling.reason:
        return memory
    return _with_change(memory, TaskCountChange(at=seen.at, before=count, after=scaling.count, reason=scaling.reason))


def _with_change(memory: Supervision, change: TaskCountChange) -> Supervision:
    """Return it with a change, or refusal, noted; of refusals one after another, the last one is kept."""
    changes = memory.task_count_changes
    if change.is_refusal and changes and changes[-1].is_refusal and changes[-1].before == change.before:
        changes = changes[:-1]
    return replace(memory, task_count_changes=(*changes, change)[-CHANGES_KEPT:])
