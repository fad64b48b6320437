"""Jobs that a deferred task submitted and does not wait for on a worker: how its tries find and follow them.

Everything that must survive the task is in the store: which job works for which task, its settings' digest, and how it
ended. So a worker or a triggerer may die at any time. A later try finds the job of an earlier one. If both have the
same settings, the later try waits for that job or uses its outcome. Otherwise, or if the task was cleared in between or
the job was requested to stop, it stops the job.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NoReturn, Self

from airflow.sdk import BaseOperator, Context

from airflow_provider_coordination.airflow_names import (
    AirflowException,
    AirflowFailException,
    TaskDeferralError,
    TaskDeferralTimeout,
)
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.hooks.job_resources import (
    SettingsLocation,
    end_local_processes,
    remove_settings,
    settings_file_of,
    stop_job,
)
from airflow_provider_coordination.operators.job_results import JobOutput
from airflow_provider_coordination.operators.lineage import JobDatasets
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import ApplicationSettings, IngestSettings
from airflow_provider_coordination.spark.submission import tail_of
from airflow_provider_coordination.triggers.supervisor import JobTrigger
from airflow_provider_coordination.versions import refusal_of_java

log = logging.getLogger(__name__)

LINES_SHOWN = 2000
DIGEST_ROUNDS = 100_000
"""The settings of a reader may hold secrets, so it must be slow to guess them from their digest."""
TRY_SPECIFIC_FIELDS = ("owner", "expires_at", "store", "traceparent", "is_followed")
"""Fields that differ between two tries of a task whose jobs have the same work."""


def task_of(context: Context) -> str:
    """Return the name that all tries of a task in one run share."""
    ti: Any = context["ti"]
    map_index = ti.map_index if ti.map_index is not None else -1
    return "/".join((ti.dag_id, ti.run_id, ti.task_id, str(map_index)))


def digest_of(settings: ApplicationSettings, salt: str, max_tries: int) -> str:
    """Return the digest of a job's settings, without the fields that differ between tries.

    :param salt: the owner of the job whose digest is compared.
    :param max_tries: see `JobFollower`.
    """
    compared = {name: value for name, value in write_settings(settings).items() if name not in TRY_SPECIFIC_FIELDS}
    if (reads := compared.get("reads")) is not None:
        # The credentials for the source may change between tries, for example when keys are renewed.
        compared["reads"] = {**reads, "settings": {n: value for n, value in reads["settings"].items() if n != "aws"}}
    text = json.dumps([compared, max_tries], sort_keys=True).encode()
    return hashlib.pbkdf2_hmac("sha256", text, salt.encode(), DIGEST_ROUNDS).hex()


@dataclass(frozen=True, kw_only=True)
class JobFollower:
    """Records, finds and stops the jobs of a task, through the store.

    :param connection: the settings of the store's connection.
    :param source: the source's name.
    :param task: the task, as `task_of` names it.
    :param max_tries: the number of the last try; Airflow raises it when the task is cleared. A try finds no job of a
        try that was cleared, since its trigger may not end in time, or not know that it was cleared.
    """

    connection: ConnectionSettings
    source: str
    task: str
    max_tries: int = 0

    @classmethod
    def for_try(cls, connection: ConnectionSettings, source: str, context: Context) -> Self:
        """Return the follower of a try's jobs."""
        return cls(connection=connection, source=source, task=task_of(context), max_tries=max_tries_of(context))

    @contextmanager
    def jobs(self) -> Iterator[tuple[SourceCoordinator, Jobs]]:
        """Open the store; yield a coordinator that acts for the task, and the source's jobs."""
        coordinator = self.connection.coordinator(self.source, f"{self.task}:task")
        with closing(coordinator.store):
            yield coordinator, Jobs(coordinator.view)

    def submit(
        self, settings: ApplicationSettings, job_log: str | None, location: SettingsLocation | None = None
    ) -> None:
        """Record a job that is about to be submitted.

        :param job_log: the path of its output on this machine; None for a job that runs in a cluster.
        :param location: where its settings will be; None for a file beside its output, or in `--files`.
        :raises CoordinationError: if the job was given up before.
        """
        with self.jobs() as (coordinator, jobs):
            self._give_up_late(coordinator, jobs)
            jobs.purge()
            may_begin = jobs.submit(
                settings.owner,
                task=self.task,
                digest=digest_of(settings, settings.owner, self.max_tries),
                start_by=settings.expires_at,
                log=job_log,
                settings=None if location is None else location.to_text(),
                datasets=JobDatasets.of(settings).to_text() if isinstance(settings, IngestSettings) else None,
            )
        if not may_begin:
            raise CoordinationError(f"job {settings.owner!r} was given up before it was submitted; let the task retry")

    def note_submitted(self, owner: str, cluster_id: str) -> None:
        """Record the id by which the cluster manager ends a job; a failure to record it does no harm."""
        with suppress(CoordinationError), self.jobs() as (_, jobs):
            jobs.note_submitted(owner, cluster_id)

    def find_earlier(self, settings: IngestSettings) -> Job | None:
        """Return the job of an earlier try that this try may continue with; stop the others.

        That job has the same settings and no stop request, and its try was not cleared. It runs, may still begin, or
        succeeded without reporting its outcome to the task.
        """
        earlier: Job | None = None
        with self.jobs() as (coordinator, jobs):
            now = coordinator.clock.now()
            for job in reversed(jobs.of_task(self.task)):
                at = job.given_up_at(jobs.safety_margin)
                is_over = at is not None and at <= now
                if is_over:
                    self._give_up(coordinator, jobs, job)
                elif earlier is None and _is_usable(job) and self._has_same_work(job, settings):
                    earlier = job
                elif job.state is not JobState.ENDED:
                    was_killed = end_local_processes(job.log)
                    stop_job(coordinator, job.owner, "another try of its task began", was_killed=was_killed)
                elif not job.is_reported:
                    remove_settings(job)
        return earlier

    def outcome_of(self, owner: str) -> Outcome | None:
        """Return how a job ended, according to the store; None if it may still be waited for.

        A job that gave no sign of life in time is given up, and its leases are released.
        """
        with self.jobs() as (coordinator, jobs):
            while True:
                job = jobs.get(owner)
                if job is None:
                    error = f"the store no longer has a record of the job: owner={owner}"
                    return Outcome(exit_code=None, error=error)
                if job.state is JobState.ENDED:
                    return Outcome.from_mapping(job.outcome or {})
                at = job.given_up_at(jobs.safety_margin)
                if at is None or at > coordinator.clock.now():
                    return None
                self._give_up(coordinator, jobs, job)

    def failed_or_stopped(self, owner: str, outcome: Outcome | None) -> bool:
        """Return whether a job did not succeed, or was requested to stop.

        :param outcome: what `outcome_of` returned. A stop that came later counts too.
        """
        with self.jobs() as (_, jobs):
            job = jobs.get(owner)
        return (job is not None and job.stop is not None) or (outcome is not None and outcome.exit_code != 0)

    def end(self, owner: str, error: str) -> None:
        """Record that a job will not run."""
        with self.jobs() as (_, jobs):
            jobs.end(owner, Outcome(exit_code=None, error=error).to_mapping())

    def note_reported(self, owner: str) -> Job | None:
        """Record that the task knows how a job ended, and delete the rest of its settings; return the job."""
        with self.jobs() as (_, jobs):
            jobs.note_reported(owner)
            job = jobs.get(owner)
        remove_settings(job)
        return job

    def final_outcome(self, owner: str, outcome: Outcome) -> Outcome:
        """Return how a job in a cluster ended: the outcome that it recorded in the store, if there is one.

        :param outcome: the outcome to record and return if the job recorded none.
        """
        with suppress(CoordinationError):
            with self.jobs() as (_, jobs):
                jobs.end(owner, outcome.to_mapping())
            if (job := self.note_reported(owner)) is not None and job.outcome is not None:
                return Outcome.from_mapping(job.outcome)
        return outcome

    def stop(self, reason: str, *, removes_settings: bool = True) -> None:
        """Stop every job that works for the task.

        :param removes_settings: False if Airflow cannot be queried for a connection.
        """
        with self.jobs() as (coordinator, jobs):
            for job in jobs.of_task(self.task):
                if job.state is not JobState.ENDED:
                    was_killed = end_local_processes(job.log)
                    stop_job(coordinator, job.owner, reason, was_killed=was_killed, removes_settings=removes_settings)

    def _has_same_work(self, job: Job, settings: IngestSettings) -> bool:
        return job.digest == digest_of(settings, job.owner, self.max_tries)

    def _give_up_late(self, coordinator: SourceCoordinator, jobs: Jobs) -> None:
        """Give up the jobs that did not begin in time and that no task follows: their settings may still exist."""
        now = coordinator.clock.now()
        for job in jobs.unfinished():
            at = job.given_up_at(jobs.safety_margin)
            if job.settings is not None and not job.was_started and at is not None and at <= now:
                self._give_up(coordinator, jobs, job)

    def _give_up(self, coordinator: SourceCoordinator, jobs: Jobs, job: Job) -> None:
        """Record that a job vanished or did not begin in time, unless it has ended since."""
        if job.has_begun:
            since = f"{job.since:%Y-%m-%d %H:%M:%S} UTC"
            error = f"the job vanished: it has not responded since its lease expired at {since}; read its log"
            tail = ""
        else:
            by = f"{job.start_by:%Y-%m-%d %H:%M:%S} UTC"
            error = f"the job did not begin by {by}; raise 'start_timeout' if it had to queue"
            redaction = self._redaction_of(job)  # the next line deletes what it needs
            end_local_processes(job.log)
            tail = tail_of(Path(job.log), redaction) if job.log else ""
        remove_settings(job)
        if jobs.end(job.owner, Outcome(exit_code=None, error=error, tail=tail).to_mapping()):
            keys = coordinator.give_up_owner(job.owner)
            log.warning(
                "%s; %d leases released: source=%s owner=%s partitions=%s",
                error, len(keys), self.source, job.owner, ", ".join(keys) or "none",
            )  # fmt: skip

    def _redaction_of(self, job: Job) -> Redaction:
        """Return the redaction of a job that has not begun; its settings still exist."""
        holders: list[object] = [self.connection.store, dict(os.environ)]
        if job.log is not None:
            with suppress(OSError, ValueError, ConfigurationError):
                settings = json.loads(settings_file_of(job.log).read_text(encoding="utf-8"))
                holders.append(read_settings(IngestSettings, "ingest settings", settings))
        return Redaction(*holders)


def _is_usable(job: Job) -> bool:
    """Return whether a job runs, or succeeded without reporting its outcome to the task."""
    if job.state is not JobState.ENDED:
        return job.stop is None
    return job.stop is None and not job.is_reported and Outcome.from_mapping(job.outcome or {}).exit_code == 0


class JobFollowingOperator(BaseOperator):
    """Base of operators that follow a job in the triggerer: if no try will follow the job, it is stopped."""

    coordination_conn_id: str

    @abstractmethod
    def follower_of(self, context: Context) -> JobFollower:
        """Return the follower of the jobs of this task."""

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> Any:
        """Resume after a deferral.

        :param event: the payload of the trigger's event.
        """
        raise NotImplementedError

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Resume after a deferral; stop the job if no try will follow it.

        :raises TaskDeferralError: if the deferral ran out of time, or its trigger failed.
        """
        try:
            return super().resume_execution(next_method, next_kwargs, context)
        except TaskDeferralTimeout:
            self._stop_followed(context, "its task ran out of time")
            raise
        except TaskDeferralError:
            if not will_be_retried(context):  # a retry finds the job, and continues with it
                self._stop_followed(context, "its task failed")
            raise

    def defer_until_over(
        self, follower: JobFollower, owner: str, deadline: datetime | None, job_log: str | None = None
    ) -> NoReturn:
        """Defer until a job has ended or may be given up.

        :param owner: the owner of the job's leases.
        :param deadline: when the task runs out of time (aware); None if it does not.
        :param job_log: the path of its output on this machine; None if it runs elsewhere.
        """
        left = None if deadline is None else max(timedelta(seconds=1), deadline - datetime.now(UTC))
        self.defer(
            trigger=JobTrigger(
                source=follower.source,
                owner=owner,
                coordination_conn_id=self.coordination_conn_id,
                job_log=job_log,
                deadline=None if deadline is None else format_instant(deadline),
            ),
            method_name=self.execute_complete.__name__,
            timeout=left,
        )

    def _stop_followed(self, context: Context, reason: str) -> None:
        try:
            self.follower_of(context).stop(reason)
        except Exception as error:  # the task fails with its own error, not with this one
            self.log.warning("the stop request may not have reached the job: %s", error)


def summary_of(owner: str, outcome: Outcome) -> dict[str, Any]:
    """Return the task's result for an outcome.

    :raises AirflowFailException: for an error that only a user can fix.
    :raises AirflowException: if the job failed, lost its leases or vanished; a retry continues where it stopped.
    """
    if outcome.exit_code == 0:
        return {"owner": owner, **outcome.summary}
    output = JobOutput()
    output.last_error = outcome.error
    if exception := output.exception_for(outcome.exit_code):
        raise exception
    if problem := refusal_of_java(outcome.tail or ""):
        raise AirflowFailException(problem)
    what = outcome.error or f"the job ended with exit code {outcome.exit_code}"
    tail = f"\nThe last lines of its output:\n{outcome.tail}" if outcome.tail else ""
    raise AirflowException(f"{what}; no data is lost, a retry continues from there{tail}")


def show_log(job_log: str | None, redaction: Redaction) -> None:
    """Copy the end of a job's output into the task's log, without secrets, then delete it; if it is on this machine."""
    if job_log is None or not (path := Path(job_log)).is_file():
        return
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = file.read().splitlines()
    if len(lines) > LINES_SHOWN:
        log.info("the job's output has %d lines; the last %d:", len(lines), LINES_SHOWN)
    for line in lines[-LINES_SHOWN:]:
        log.info("%s", redaction.text(line))
    delete_log(job_log)


def delete_log(job_log: str | None) -> None:
    """Delete a job's output and its folder, if they are on this machine."""
    if job_log is not None and Path(job_log).is_file():
        shutil.rmtree(Path(job_log).parent, ignore_errors=True)


def submitted_by_this_try(owner: str, context: Context) -> bool:
    """Return whether this try of the task submitted the job itself.

    :param owner: the job's owner, as `new_owner` makes it.
    """
    ti: Any = context["ti"]
    return owner.rsplit(":", 2)[-2:-1] == [str(ti.try_number)]


def will_be_retried(context: Context) -> bool:
    """Return whether another try follows if this one fails."""
    ti: Any = context["ti"]
    return bool(ti.try_number <= max_tries_of(context))


def max_tries_of(context: Context) -> int:
    """Return the number of the last try of the task."""
    return getattr(context["ti"], "max_tries", None) or 0
