"""Starts and ends the jobs of a supervisor, from the task that takes its turns."""

from __future__ import annotations

import logging
import os
import subprocess
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from airflow.sdk import Context

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.owner import new_owner
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.hooks.job_termination import end_local_processes
from airflow_provider_coordination.hooks.settings_locations import remove_settings
from airflow_provider_coordination.operators.claims import claim_for_job
from airflow_provider_coordination.operators.job_follower import JobFollower, delete_log, show_log
from airflow_provider_coordination.operators.packaging import packaged_application
from airflow_provider_coordination.operators.spark_hook import kill_command
from airflow_provider_coordination.operators.spark_submit import APPLICATION, CoordinatedSparkSubmitOperator
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.turn import JobRequest, Launcher

log = logging.getLogger(__name__)

KILL_TIMEOUT_SECONDS = 60
"""How long a turn waits for the cluster manager to end a job."""


@dataclass(frozen=True, kw_only=True)
class SparkLauncher(Launcher):
    """Submits jobs to Spark in the deploy mode of the connection, without waiting for any; see `Launcher`.

    :param connection: the settings of the store's connection.
    :param source: the source's name.
    :param context: the context of the task that takes turns; it submits the jobs.
    """

    connection: ConnectionSettings
    source: str
    context: Context

    @override
    def new_owner(self) -> str:
        ti: Any = self.context["ti"]
        return new_owner(ti.dag_id, ti.run_id, ti.task_id, -1, ti.try_number)

    @override
    def start(self, request: JobRequest) -> None:
        job = job_operator(request)
        settings = replace(
            job.job_settings(self.connection, self.context, request.job.owner),
            is_followed=True,
            expires_at=datetime.now(UTC) + request.spec.tuning.start_timeout,
        )
        claim_for_job(self.connection, self.context, settings, job.ingestion.reads, is_supervised=True)
        job.submit(JobFollower(connection=self.connection, source=self.source, task=request.task), settings)

    @override
    def end(self, job: Job, spec: IngestionSpec | None, reason: str) -> None:
        if end_local_processes(job.log):
            log.info("job killed: source=%s owner=%s: %s", self.source, job.owner, reason)
        if job.cluster_id is not None and spec is not None:
            self._end_in_cluster(job.owner, job.cluster_id, spec, reason)
        remove_settings(job)

    def _end_in_cluster(self, owner: str, cluster_id: str, spec: IngestionSpec, reason: str) -> None:
        """Request the cluster manager to end a job. If it does not, the job ends once it finds its leases taken."""
        operator = CoordinatedSparkSubmitOperator(**spec.job_arguments(), task_id="ingest", application="")
        try:
            ended = subprocess.run(
                kill_command(operator._get_hook(), cluster_id),
                env=os.environ | {name: str(value) for name, value in (operator.env_vars or {}).items()},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=KILL_TIMEOUT_SECONDS,
                check=True,
            )
        except (ConfigurationError, OSError, subprocess.SubprocessError) as error:
            output = getattr(error, "output", None) or ""
            log.warning(
                "the cluster did not end job %s: source=%s owner=%s: %s %s",
                cluster_id, self.source, owner, error, Redaction(dict(os.environ)).text(str(output)[-1000:]),
            )  # fmt: skip
        else:
            log.info(
                "job killed in the cluster: source=%s owner=%s job=%s exit code %d: %s",
                self.source, owner, cluster_id, ended.returncode, reason,
            )  # fmt: skip


def job_operator(request: JobRequest) -> CoordinatedSparkSubmitOperator:
    """Return the operator that submits a job; it is not a task of any DAG."""
    arguments = request.spec.job_arguments()
    ingestion = replace(
        arguments["ingestion"],
        rejection=request.spec.supervise.rejection(request.job.planned_at),
        rounds=replace(arguments["ingestion"].rounds, max_duration=request.max_duration),
    )
    return CoordinatedSparkSubmitOperator(
        **arguments
        | {
            "task_id": "ingest",
            "application": packaged_application(APPLICATION),
            "ingestion": ingestion,
            "workers": request.workers,
            "deferrable": True,
        }
    )


def log_ended_jobs(follower: JobFollower) -> None:
    """Log the jobs that ended since the last call; for a failed job also the end of its output.

    :param follower: the follower of the supervisor's jobs.
    """
    with follower.jobs() as (_, jobs):
        ended = [job for job in jobs.of_task(follower.task) if job.state is JobState.ENDED and not job.is_reported]
    for job in ended:
        outcome = Outcome.from_mapping(job.outcome or {})
        if outcome.exit_code == 0:
            log.info("job ended: source=%s owner=%s %s", follower.source, job.owner, dict(outcome.summary))
            delete_log(job.log)
        else:
            log.error(
                "job failed: source=%s owner=%s exit code %s: %s\n%s",
                follower.source, job.owner, outcome.exit_code, outcome.error or "it left no error", outcome.tail,
            )  # fmt: skip
            show_log(job.log, Redaction(follower.connection.store, dict(os.environ)))
        follower.note_reported(job.owner)
