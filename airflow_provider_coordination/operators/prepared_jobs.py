"""Jobs that somebody else submits: an operator of Amazon's, Livy, Databricks, a script of your own.

Whoever submits needs a program, an archive with this package, Spark properties, and two arguments: where the driver
finds its settings, with the key of their seal, and the job's owner. The settings lie sealed in a folder that Airflow
writes and the cluster's role reads and deletes; see `spark.settings_reference`. The job is followed through the store,
by `FollowJobOperator`, as one that the operator here submits.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.sdk import Context, get_current_context
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.settings_locations import OBJECT, SettingsPlace
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.operators.claims import claim_for_job
from airflow_provider_coordination.operators.ingest_settings import START_TIMEOUT, ingest_settings
from airflow_provider_coordination.operators.job_follower import JobFollower, task_of
from airflow_provider_coordination.operators.packaging import packaged_application, write_package_archive
from airflow_provider_coordination.operators.spark_submit import (
    APPLICATION,
    NOTHING_LEFT,
    CoordinatedSparkSubmitOperator,
    nothing_begins,
)
from airflow_provider_coordination.operators.template_values import seconds_value
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.settings_reference import SettingsReference

ONCE = {"spark.yarn.maxAppAttempts": "1"}
"""Settings serve one driver: another one that YARN began would be refused."""
PROPERTIES = {
    "archives": "spark.archives",
    "driver_class_path": "spark.driver.extraClassPath",
    "driver_memory": "spark.driver.memory",
    "exclude_packages": "spark.jars.excludes",
    "executor_cores": "spark.executor.cores",
    "executor_memory": "spark.executor.memory",
    "files": "spark.files",
    "jars": "spark.jars",
    "name": "spark.app.name",
    "num_executors": "spark.executor.instances",
    "packages": "spark.jars.packages",
    "repositories": "spark.jars.repositories",
    "total_executor_cores": "spark.cores.max",
    "yarn_queue": "spark.yarn.queue",
}
"""Spark's names for arguments of the operator that a submitter is told as properties."""
OF_SPARK_SUBMIT = (
    "deferrable", "deploy_mode", "env_vars", "keytab", "principal", "properties_file", "proxy_user", "spark_archive",
    "spark_binary", "use_krb5ccache", "verbose",
)  # fmt: skip
"""Arguments that say something to the spark-submit of an Airflow task alone."""


@dataclass(frozen=True, kw_only=True)
class PreparedJob:
    """What a submitter needs, and a follower. It holds no secret: the key in it opens what the driver deletes.

    :param source: the source's name.
    :param owner: the owner of the job's leases.
    :param task: what the job works for, as its record in the store says.
    :param coordination_conn_id: the connection of type `coordination`.
    :param application: the path or URI of the program.
    :param py_files: that of the archive with this package.
    :param arguments: what the program is given.
    :param conf: Spark properties.
    """

    source: str
    owner: str
    task: str
    coordination_conn_id: str
    application: str
    py_files: str
    arguments: tuple[str, ...]
    conf: dict[str, str] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object, for XCom."""
        return write_settings(self)

    @classmethod
    def from_mapping(cls, values: object) -> PreparedJob:
        """Return the job that `to_mapping` made.

        :raises ConfigurationError: naming what is wrong.
        """
        return read_settings(cls, "field 'job'", values)


def prepare_job(
    *, folder: str, aws_conn_id: str | None = None, context: Context | None = None, **arguments: Any
) -> PreparedJob:
    """Make ready a job that somebody else submits; call it in a task, and submit what it returns in the next one.

    What it leaves in the folder is the program and the archive, once for each version of them, and the settings, until
    the driver has read them or the job is over. A job that has not begun within `start_timeout` is given up.

    :param folder: a path or URI that Airflow writes, and that the role of the cluster reads and deletes from, such as
        `s3://bucket/coordination`.
    :param aws_conn_id: the AWS connection by which Airflow reaches the folder; None for the AWS SDK's default chain.
    :param context: of the task; that of the task that runs, by default.
    :param arguments: what the job has to do, as `CoordinatedSparkSubmitOperator` is told; templates are not rendered.
    :raises AirflowFailException: if only a person can put things right.
    :raises AirflowSkipException: if the source is suspended, or nothing is left to do.
    :raises CoordinationError: if the store or the folder does not answer.
    """
    context = get_current_context() if context is None else context
    with failing_when_misconfigured():
        conf = properties_of(arguments)
        task = CoordinatedSparkSubmitOperator(**{"task_id": "ingest", **arguments})
        connection = CoordinationHook(task.coordination_conn_id).settings
        settings = ingest_settings(task, connection, context)
        prospect = claim_for_job(connection, context, settings, task.reads)
        if prospect.suspension is not None:
            raise nothing_begins(settings.source, prospect.suspension)
        if not prospect.is_anything_left:
            raise AirflowSkipException(f"source {settings.source!r}: {NOTHING_LEFT}")
        return prepared(task, connection, settings, task_of(context), conf, folder=folder, aws_conn_id=aws_conn_id)


def properties_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the Spark properties that arguments of `CoordinatedSparkSubmitOperator` ask for.

    :raises ConfigurationError: if one says something to its spark-submit alone.
    """
    for name in OF_SPARK_SUBMIT:
        if arguments.get(name):
            raise ConfigurationError(
                f"field {name!r} is for a spark-submit of this package's operator; leave it out, and tell the one "
                "that submits the job"
            )
    named = {PROPERTIES[name]: value for name, value in arguments.items() if name in PROPERTIES and value is not None}
    return {str(name): str(value) for name, value in {**ONCE, **named, **(arguments.get("conf") or {})}.items()}


def prepared(
    task: CoordinatedSparkSubmitOperator,
    connection: ConnectionSettings,
    settings: IngestSettings,
    works_for: str,
    conf: dict[str, str],
    *,
    folder: str,
    aws_conn_id: str | None = None,
) -> PreparedJob:
    """Write a job down, and put into a folder what its submitter needs.

    :param task: its templates rendered.
    :param settings: what the job is told.
    :param works_for: what it works for; tries of one task share it.
    :param conf: Spark properties; see `properties_of`.
    :param folder: see `prepare_job`.
    :raises ConfigurationError: if the folder cannot be used.
    :raises CoordinationError: if the store or the folder does not answer.
    """
    if not folder:
        raise ConfigurationError("field 'folder' must not be empty; give a path or URI that the cluster reads")
    start_timeout = seconds_value("start_timeout", task.start_timeout)
    wait = START_TIMEOUT if start_timeout is None else timedelta(seconds=start_timeout)
    settings = replace(settings, is_followed=True, expires_at=datetime.now(UTC) + wait)
    name = hashlib.sha256(settings.owner.encode()).hexdigest()[:32]
    reference = SettingsReference.sealed(f"{folder.rstrip('/')}/settings/{name}")
    place = SettingsPlace(kind=OBJECT, conn_id=aws_conn_id or "", location=reference.uri)
    access = place.access
    with TemporaryDirectory(prefix="coordination-") as local:
        archive = shipped(write_package_archive(Path(local)), folder, access)
        application = task.application or shipped(Path(packaged_application(APPLICATION)), folder, access)
    follower = JobFollower(connection=connection, source=settings.source, task=works_for)
    follower.stop("another try of its task began")
    follower.submit(settings, None, place)  # first: whoever finds the record removes the settings
    try:
        reference.write(json.dumps(write_settings(settings)), access)
    except CoordinationError as error:
        follower.end(settings.owner, f"it was not prepared: {error}")
        raise
    return PreparedJob(
        source=settings.source,
        owner=settings.owner,
        task=works_for,
        coordination_conn_id=task.coordination_conn_id,
        application=application,
        py_files=",".join(filter(None, (task.py_files, archive))),
        arguments=(reference.to_text(), settings.owner),
        conf=conf,
    )


def shipped(file: Path, folder: str, access: Access) -> str:
    """Put a file into a folder, under a name that says what it holds, unless it is there; return its URI.

    :raises CoordinationError: if it cannot be written.
    """
    from airflow_provider_coordination.spark.filesystems import open_files

    content = file.read_bytes()
    digest = hashlib.sha256(content).hexdigest()[:16]
    uri = f"{folder.rstrip('/')}/packages/{digest}/{file.name}"
    files, path = open_files(uri, access)
    try:
        if files.size(path) != len(content):
            files.write(path, content)
    except OSError as error:
        raise CoordinationError(f"field 'folder': {uri} cannot be written: {error}") from None
    return uri


# What submitters are told, each in its own words


def emr_step(job: PreparedJob, *, name: str = "ingest", action_on_failure: str = "CONTINUE") -> dict[str, Any]:
    """Return the step of EMR on EC2 that runs a job, as `EmrAddStepsOperator` takes it."""
    command = ["spark-submit", "--deploy-mode", "cluster", *_options(job), job.application, *job.arguments]
    return {
        "Name": name,
        "ActionOnFailure": action_on_failure,
        "HadoopJarStep": {"Jar": "command-runner.jar", "Args": command},
    }


def emr_serverless_driver(job: PreparedJob) -> dict[str, Any]:
    """Return the `job_driver` of EMR Serverless, as `EmrServerlessStartJobOperator` takes it."""
    return {
        "sparkSubmit": {
            "entryPoint": job.application,
            "entryPointArguments": list(job.arguments),
            "sparkSubmitParameters": shlex.join(_options(job)),
        }
    }


def emr_containers_driver(job: PreparedJob) -> dict[str, Any]:
    """Return the `job_driver` of EMR on EKS, as `EmrContainerOperator` takes it."""
    return {"sparkSubmitJobDriver": emr_serverless_driver(job)["sparkSubmit"]}


def livy_batch(job: PreparedJob, *, name: str | None = None) -> dict[str, Any]:
    """Return the body of Livy's `POST /batches`."""
    named = {} if name is None else {"name": name}
    return {
        "file": job.application,
        "args": list(job.arguments),
        "pyFiles": job.py_files.split(","),
        "conf": dict(job.conf),
        **named,
    }


def databricks_task(job: PreparedJob) -> dict[str, Any]:
    """Return the `spark_submit_task` of a run of Databricks, as `DatabricksSubmitRunOperator` takes it."""
    return {"parameters": [*_options(job), job.application, *job.arguments]}


def _options(job: PreparedJob) -> list[str]:
    conf: Mapping[str, str] = job.conf
    return [
        "--py-files",
        job.py_files,
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
    ]
