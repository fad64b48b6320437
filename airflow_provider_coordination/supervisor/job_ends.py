"""What follows from the end of jobs: each end is counted once, and failures delay the next start. Pure functions.

The outcome of a job is read from its item only. The write that removes the job from the supervision also counts it.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.job_reports import RecordCounts
from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.spark.outcome import EXIT_LOST_WORK
from airflow_provider_coordination.supervisor.observation import Observation
from airflow_provider_coordination.supervisor.supervision import Supervision

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
        elif job.is_ending:
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
