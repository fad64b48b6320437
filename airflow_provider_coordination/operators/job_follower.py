"""A task that submits a job and is away while it runs: what it leaves behind, and how it finds its way back.

Everything that has to survive the task is in the store: which job works for which task, what it was told, and how it
ended. So a worker or a triggerer may die at any time. A later try finds the job of an earlier one and goes on waiting
for it, or takes its outcome, where it was told the same; what was told otherwise, or to stop, is stopped.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.sdk import Context
from airflow.sdk.exceptions import AirflowException

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.hooks.job_termination import end_local_processes, settings_file_of, stop_job
from airflow_provider_coordination.hooks.settings_locations import SettingsPlace, remove_settings
from airflow_provider_coordination.operators.job_output import JobOutput
from airflow_provider_coordination.operators.spark_hook import (
    submission_target,
    submit_command,
    submit_without_waiting,
)
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.submission import LOG_NAME, command, tail_of

log = logging.getLogger(__name__)

FOLDER_PREFIX = "coordination-job-"
LOGS_KEPT = timedelta(days=7)
"""How long the output of a job is kept that no task came back for."""
LINES_SHOWN = 2000
DIGEST_ROUNDS = 100_000
"""The settings of a reader may hold secrets: guessing them by their digest has to be slow."""
OF_ONE_TRY = ("owner", "expires_at", "store", "traceparent", "is_followed")
"""Fields that differ between two tries of a task whose jobs have the same to do."""


def task_of(context: Context) -> str:
    """Return the name that all tries of a task of one run have in common."""
    ti: Any = context["ti"]
    map_index = ti.map_index if ti.map_index is not None else -1
    return "/".join((ti.dag_id, ti.run_id, ti.task_id, str(map_index)))


def digest_of(settings: IngestSettings, salt: str) -> str:
    """Return the digest of the settings of a job, without what differs between tries.

    :param salt: the owner of the job that it is compared with.
    """
    compared = {name: value for name, value in write_settings(settings).items() if name not in OF_ONE_TRY}
    reads = compared["reads"]
    # Who asks the source may change between tries, such as by keys that are renewed.
    compared["reads"] = {**reads, "settings": {n: value for n, value in reads["settings"].items() if n != "aws"}}
    text = json.dumps(compared, sort_keys=True).encode()
    return hashlib.pbkdf2_hmac("sha256", text, salt.encode(), DIGEST_ROUNDS).hex()


@dataclass(frozen=True, kw_only=True)
class JobFollower:
    """What a task does about the jobs that work for it, through the store.

    :param connection: where the store is.
    :param source: the source's name.
    :param task: the task, as `task_of` names it.
    """

    connection: ConnectionSettings
    source: str
    task: str

    @contextmanager
    def jobs(self) -> Iterator[tuple[SourceCoordinator, Jobs]]:
        """Open the store; give a coordinator that acts for the task, and the source's jobs."""
        coordinator = self.connection.coordinator(self.source, f"{self.task}:task")
        with closing(coordinator.store):
            yield coordinator, Jobs(coordinator.view)

    def submit(self, settings: IngestSettings, job_log: str | None, place: SettingsPlace | None = None) -> None:
        """Write down a job that is about to be submitted.

        :param job_log: where its output goes, on this machine; None for one that goes to a cluster.
        :param place: where its settings will lie; None for a file beside its output, or in `--files`.
        :raises CoordinationError: if somebody has given it up before.
        """
        with self.jobs() as (coordinator, jobs):
            self._give_up_late(coordinator, jobs)
            jobs.purge()
            may_begin = jobs.submit(
                settings.owner,
                task=self.task,
                digest=digest_of(settings, settings.owner),
                start_by=settings.expires_at,
                log=job_log,
                settings=None if place is None else place.to_text(),
            )
        if not may_begin:
            raise CoordinationError(f"job {settings.owner!r} was given up before it was submitted")

    def note_submitted(self, owner: str, cluster_id: str) -> None:
        """Note by what the cluster manager ends a job that it has accepted; without that, nobody is worse off."""
        with suppress(CoordinationError), self.jobs() as (_, jobs):
            jobs.note_submitted(owner, cluster_id)

    def earlier(self, settings: IngestSettings) -> Job | None:
        """Return the job of an earlier try that this one may go on with; stop the others.

        That is a job that was told the same, that nobody told to stop, and that runs, may still begin, or ended well
        without the task having heard of it.
        """
        found: Job | None = None
        with self.jobs() as (coordinator, jobs):
            now = coordinator.clock.now()
            for job in reversed(jobs.of_task(self.task)):
                at = job.given_up_at(jobs.safety_margin)
                is_over = at is not None and at <= now
                if is_over:
                    self._give_up(coordinator, jobs, job)
                elif found is None and _is_worth_it(job) and job.digest == digest_of(settings, job.owner):
                    found = job
                elif job.state is not JobState.ENDED:
                    was_killed = end_local_processes(job.log)
                    stop_job(coordinator, job.owner, "another try of its task began", was_killed=was_killed)
                elif not job.is_reported:
                    remove_settings(job)
        return found

    def judged(self, owner: str) -> Outcome | None:
        """Return how a job ended, as the store knows it; None if it may still be waited for.

        A job that gave no sign of life in time is given up, and its leases are given back.
        """
        with self.jobs() as (coordinator, jobs):
            while True:
                job = jobs.get(owner)
                if job is None:
                    error = f"the store has no record of the job any more: owner={owner}"
                    return Outcome(exit_code=None, error=error)
                if job.state is JobState.ENDED:
                    return Outcome.from_mapping(job.outcome or {})
                at = job.given_up_at(jobs.safety_margin)
                if at is None or at > coordinator.clock.now():
                    return None
                self._give_up(coordinator, jobs, job)

    def was_in_vain(self, owner: str) -> bool:
        """Tell whether a job did not end well, or somebody told it to stop."""
        outcome = self.judged(owner)
        with self.jobs() as (_, jobs):
            job = jobs.get(owner)
        return (job is not None and job.stop is not None) or (outcome is not None and outcome.exit_code != 0)

    def end(self, owner: str, error: str) -> None:
        """Write down that a job will not run."""
        with self.jobs() as (_, jobs):
            jobs.end(owner, Outcome(exit_code=None, error=error).to_mapping())

    def note_reported(self, owner: str) -> Job | None:
        """Note that the task has heard how a job ended, and remove what is left of its settings; return the job."""
        with self.jobs() as (_, jobs):
            jobs.note_reported(owner)
            job = jobs.get(owner)
        remove_settings(job)
        return job

    def conclude(self, owner: str, outcome: Outcome) -> Outcome:
        """Return how a job in a cluster ended that its task waited for: as it left it in the store.

        :param outcome: how it ended otherwise.
        """
        with suppress(CoordinationError):
            with self.jobs() as (_, jobs):
                jobs.end(owner, outcome.to_mapping())
            if (job := self.note_reported(owner)) is not None and job.outcome is not None:
                return Outcome.from_mapping(job.outcome)
        return outcome

    def stop(self, reason: str, *, removes_settings: bool = True) -> None:
        """Stop every job that works for the task.

        :param removes_settings: False where Airflow cannot be asked for a connection.
        """
        with self.jobs() as (coordinator, jobs):
            for job in jobs.of_task(self.task):
                if job.state is not JobState.ENDED:
                    was_killed = end_local_processes(job.log)
                    stop_job(coordinator, job.owner, reason, was_killed=was_killed, removes_settings=removes_settings)

    def _give_up_late(self, coordinator: SourceCoordinator, jobs: Jobs) -> None:
        """Give up the jobs that did not begin in time and that nobody follows: their settings may lie somewhere."""
        now = coordinator.clock.now()
        for job in jobs.unfinished():
            at = job.given_up_at(jobs.safety_margin)
            if job.settings is not None and not job.was_taken and at is not None and at <= now:
                self._give_up(coordinator, jobs, job)

    def _give_up(self, coordinator: SourceCoordinator, jobs: Jobs, job: Job) -> None:
        """Write down that a job vanished or did not begin in time, unless it ended meanwhile."""
        if job.has_begun:
            error = f"the job vanished: it gave no sign of life since its lease ran out at {job.since:%H:%M:%S} UTC"
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
                "%s; %d leases given back: source=%s owner=%s partitions=%s",
                error, len(keys), self.source, job.owner, ", ".join(keys) or "none",
            )  # fmt: skip

    def _redaction_of(self, job: Job) -> Redaction:
        """Return what hides the secrets of a job that has not begun: its settings are still there then."""
        holders: list[object] = [self.connection.store, dict(os.environ)]
        if job.log is not None:
            with suppress(OSError, ValueError, ConfigurationError):
                settings = json.loads(settings_file_of(job.log).read_text(encoding="utf-8"))
                holders.append(read_settings(IngestSettings, "ingest settings", settings))
        return Redaction(*holders)


def _is_worth_it(job: Job) -> bool:
    """Tell whether a job runs, or ended well without anybody having heard of it."""
    if job.state is not JobState.ENDED:
        return job.stop is None
    return job.stop is None and not job.is_reported and Outcome.from_mapping(job.outcome or {}).exit_code == 0


def summary_of(owner: str, outcome: Outcome) -> dict[str, Any]:
    """Return what the task returns for an outcome.

    :raises AirflowFailException: if only a person can put things right.
    :raises AirflowException: if the job failed, lost its leases or vanished; a retry continues where it stopped.
    """
    if outcome.exit_code == 0:
        return {"owner": owner, **outcome.summary}
    output = JobOutput()
    output.last_error = outcome.error
    if explained := output.explained(outcome.exit_code):
        raise explained
    what = outcome.error or f"the job ended with exit code {outcome.exit_code}"
    tail = f"\nThe last lines of its output:\n{outcome.tail}" if outcome.tail else ""
    raise AirflowException(f"{what}; no data is lost, a retry continues from there{tail}")


def show_log(job_log: str | None, redaction: Redaction) -> None:
    """Copy the end of a job's output into the task's log, without secrets, if it is on this machine; then delete it."""
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
    """Delete a job's output, and its folder, if they are on this machine."""
    if job_log is not None and Path(job_log).is_file():
        shutil.rmtree(Path(job_log).parent, ignore_errors=True)


def job_folder() -> Path:
    """Make a folder, for its owner alone, that outlives the task; delete those that nobody came back for."""
    root = Path(tempfile.gettempdir())
    for old in root.glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            kept = [file.stat().st_mtime for file in (old, *old.iterdir())]
            if max(kept) < time.time() - LOGS_KEPT.total_seconds():
                shutil.rmtree(old, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX))


def do_not_wait(
    hook: SparkSubmitHook,
    settings_file: Path,
    env_vars: Mapping[str, Any],
    submitting: Callable[[str | None], None],
    submitted: Callable[[str], None],
) -> str | None:
    """Let a hook's `submit` return as soon as the job is on its way.

    :param hook: made with what `SubmissionTarget.without_waiting` returns.
    :param settings_file: the job's settings, in a folder of its own.
    :param env_vars: the variables that a spark-submit on this machine is given.
    :param submitting: called right before, with the path of the job's output.
    :param submitted: called once a cluster has accepted the job, with what the cluster manager ends it by.
    :returns: where its output will be; None for a job that goes to a cluster.
    """
    target = submission_target(hook)
    job_log = None if target.is_in_cluster else str(settings_file.with_name(LOG_NAME))

    def submit_alone(application: str = "", **kwargs: Any) -> None:
        submitting(job_log)
        if target.is_in_cluster:
            cluster_id = submit_without_waiting(hook, target, application)
            if cluster_id is not None:
                submitted(cluster_id)
        else:
            _submit_here(submit_command(hook, application), env_vars, settings_file)

    hook.submit = submit_alone  # type: ignore[method-assign]
    return job_log


def _submit_here(spark_submit: list[str], env_vars: Mapping[str, Any], settings_file: Path) -> None:
    """Start a spark-submit whose driver is on this machine, in a session of its own, and leave it alone."""
    process = subprocess.Popen(
        command(settings_file, spark_submit),
        env=os.environ | {name: str(value) for name, value in env_vars.items()},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # what ends the task's process group spares it
    )
    process.returncode = 0  # nobody waits for it, and that is meant
    log.info("job submitted: pid=%d log=%s", process.pid, settings_file.with_name(LOG_NAME))


def left_of(deadline: datetime | None) -> timedelta | None:
    """Return how long it is until an instant (aware), at least a second; None if there is no end."""
    return None if deadline is None else max(timedelta(seconds=1), deadline - datetime.now(UTC))


def is_of_this_try(owner: str, context: Context) -> bool:
    """Tell whether this try of the task submitted a job itself.

    :param owner: the job's, as `new_owner` makes them.
    """
    ti: Any = context["ti"]
    return owner.rsplit(":", 2)[-2:-1] == [str(ti.try_number)]


def will_be_retried(context: Context) -> bool:
    """Tell whether another try follows if this one fails."""
    ti: Any = context["ti"]
    return bool(ti.try_number <= (getattr(ti, "max_tries", None) or 0))
