"""What follows from how jobs ended: each end is counted once, and after failures the next start waits. Pure.

How a job ended is read from its item alone, and counted by the write that removes it from the supervision.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.job_reports import RecordCounts
from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.supervisor.observation import Observation
from airflow_provider_coordination.supervisor.supervision import Supervision

LONGEST_BACKOFF = timedelta(minutes=10)
"""The longest wait after failures before another job is started."""


def with_ended(memory: Supervision, seen: Observation) -> Supervision:
    """Return it without the jobs that have ended, each of which is counted."""
    ended = [job for job in memory.jobs if seen.state_of(job.owner) is JobState.ENDED]
    ended.sort(key=lambda job: seen.jobs[job.owner].since)
    health, start_after, totals = memory.health, memory.start_after, RecordCounts.from_mapping(memory.totals)
    for job in ended:
        known = seen.jobs[job.owner]
        if known.report is not None:
            totals += known.report.totals
        well, error = _how_it_ended(known)
        if well is None:
            continue
        health = health.job_ended(well=well)
        period = timedelta(0) if seen.settings is None else seen.settings.period
        if not well:
            event = ErrorEvent(at=seen.at, error_class=_class_in(error), message=storable(error), owner=job.owner)
            health = health.noting(event)
            start_after = seen.at + backoff(period, health.failed_jobs)
        elif job.is_ending:
            start_after = None
        else:  # one that found nothing to do, and ended at once, is not started again and again
            start_after = job.planned_at + period
    left = tuple(job for job in memory.jobs if job not in ended)
    return replace(memory, jobs=left, health=health, start_after=start_after, totals=totals.to_mapping())


def _how_it_ended(known: Job) -> tuple[bool | None, str]:
    """Return whether a job ended well, None for one that was withdrawn before it began, and its error."""
    outcome = known.outcome or {}
    code, error = outcome.get("exit_code"), outcome.get("error")
    if code == 0:
        return True, ""
    if code is None and error is None:
        return None, ""
    return False, str(error or f"the job ended with exit code {code}")


def _class_in(error: str) -> str:
    """Return the class of an error that is written before a colon, as logs write it."""
    name = error.partition(":")[0].rpartition(".")[2]
    return name if name.isidentifier() and name[:1].isupper() else "JobFailed"


def backoff(period: timedelta, failures: int) -> timedelta:
    """Return how long to wait after this many failures in a row before another job is started."""
    return min(period * 2 ** min(failures - 1, 16), LONGEST_BACKOFF) if failures else timedelta(0)
