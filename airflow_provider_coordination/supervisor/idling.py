"""When a source is idle, so that no job runs, and when records have arrived again. Pure functions.

A source becomes idle once all its partitions are read and nothing arrived for `idle_after`. Then the supervisor, which
polls in the triggerer, reads the lag of each partition once a period. A lag starts the jobs again, and so does all that
only a job can do: to deliver what another one has landed, to read new shards, and to find the lag of a partition whose
lag is not known. The delay before a source is idle again is the hysteresis.

No job moves the positions of an idle source, so they would grow older than the source keeps its records. Then nothing
would show whether records are missing. So the supervisor writes, a few times a day, that everything is read.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from airflow_provider_coordination.field_hints import format_duration
from airflow_provider_coordination.supervisor.observation import LagPoint, Observation
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.supervision import Idleness, Supervision, TaskCountChange

POINTS_IN_A_ROW = 3
"""How often in a row a lag must be unknown to start a job: a throttled request is no reason."""


def with_idleness(memory: Supervision, observation: Observation, count: int) -> Supervision:
    """Return the state of a source that became idle, or is no longer idle, and the change of the number of jobs.

    :param count: the number of jobs of the source while it is not idle.
    """
    settings = observation.settings
    if settings is None or observation.partitions is None:
        return memory
    if memory.idle is None:
        if observation.is_suspended or not _is_quiet(memory, observation, settings):
            return memory
        reason = f"nothing has arrived for {format_duration(settings.idle_after or timedelta(0))}: the source is idle"
        idle = Idleness(
            since=observation.at,
            spec_version=memory.spec_version,
            open_partitions=observation.open_partitions,
            confirmed_at=observation.at,
        )
        return _changed(replace(memory, idle=idle), observation.at, count, 0, reason)
    reason = _why_awake(memory, memory.idle, observation, settings)
    if not reason:
        return memory
    awake = replace(memory, idle=None, active_since=observation.at, lag_since=observation.at)
    return _changed(awake, observation.at, 0, count, reason)


def _is_quiet(memory: Supervision, observation: Observation, settings: SuperviseSettings) -> bool:
    """Return whether everything is read, and nothing arrived for `idle_after`."""
    began, partitions = memory.active_since or memory.started_at, observation.partitions
    if settings.idle_after is None or began is None or partitions is None or partitions.is_empty:
        return False
    if partitions.undelivered or observation.errors or memory.health.cannot_read(observation.failing):
        return False
    since = observation.at - settings.idle_after
    if not partitions.unfinished:
        return not memory.jobs and began <= since
    if (observation.open_partitions or 0) > partitions.unfinished:  # a job has to find new shards
        return False
    points = [point for point in observation.lag if point.at > began]
    earlier = [point for point in points if point.at <= since]
    window = [*earlier[-1:], *(point for point in points if point.at > since)]
    is_recent = bool(window) and observation.at - window[-1].at < 2 * settings.lag_interval
    return bool(earlier) and is_recent and all(_is_like(point, window[0]) for point in window)


def _is_like(point: LagPoint, first: LagPoint) -> bool:
    """Return whether everything was read by a point, and nothing since the first one."""
    return point.oldest_ms == 0 and not point.unknown and point.counted == first.counted


def _why_awake(memory: Supervision, idle: Idleness, observation: Observation, settings: SuperviseSettings) -> str:
    """Return why jobs are needed again; empty if they are not."""
    partitions = observation.partitions
    if settings.idle_after is None:
        return "the spec no longer has 'idle_after'"
    if idle.spec_version != memory.spec_version:
        return f"version {memory.spec_version} of the spec"
    if observation.is_suspended or partitions is None:
        return ""
    if partitions.undelivered:
        return f"{partitions.undelivered} partitions have landed data that is not delivered"
    if memory.health.cannot_read(observation.failing):
        return "partitions could not be read: a job has to try again"
    if observation.must_discover_partitions and partitions.readable:  # the source may not know their lag
        return f"{partitions.readable} partitions can be read"
    if observation.open_partitions != idle.open_partitions:
        return f"the source has {observation.open_partitions} open partitions, and had {idle.open_partitions}"
    latest = [point for point in observation.lag if point.at > idle.since][-POINTS_IN_A_ROW:]
    if not latest or observation.errors or memory.health.failed_runs:  # the lag is unknown while contact is lost
        return ""
    if latest[-1].oldest_ms:
        return f"records have arrived: they have waited for {latest[-1].oldest_ms / 1000:g} s"
    if len(latest) == POINTS_IN_A_ROW and all(point.unknown for point in latest):
        return f"the lag of {latest[-1].unknown} partitions is unknown"
    return ""


def _changed(memory: Supervision, at: datetime, before: int, after: int, reason: str) -> Supervision:
    return memory.with_change(TaskCountChange(at=at, before=before, after=after, reason=reason))
