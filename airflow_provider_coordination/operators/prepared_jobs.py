"""Jobs that another tool submits: an operator for AWS, Google or Databricks, Livy, or your own script.

The submitter needs a program, an archive with this package, Spark properties, and two arguments: a reference to the
settings with the key of their seal, and the job's owner. Airflow writes the sealed settings to a folder; the cluster's
role reads and deletes them; see `spark.settings_reference`. `FollowJobOperator` follows the job through the store, in
the same way as jobs that this package's operator submits.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow.sdk import Context, get_current_context

from airflow_provider_coordination.airflow_names import AirflowFailException, AirflowSkipException
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import parse_instant
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.job_resources import OBJECT, SettingsLocation
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.operators.claims import claim_for_job, followed, suspended_skip
from airflow_provider_coordination.operators.job_follower import JobFollower, JobFollowingOperator, summary_of, task_of
from airflow_provider_coordination.operators.job_results import no_stream, report_to_outlets
from airflow_provider_coordination.operators.packaging import packaged_application, write_package_archive
from airflow_provider_coordination.operators.spark_submit import (
    APPLICATION,
    NOTHING_LEFT,
    CoordinatedSparkSubmitOperator,
)
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.settings import (
    OWNER_ARGUMENT,
    SETTINGS_ARGUMENT,
    IngestSettings,
    SettingsReference,
)
from airflow_provider_coordination.triggers.deferral import event_with

SINGLE_ATTEMPT = {"spark.yarn.maxAppAttempts": "1"}
"""Settings serve one driver: a second attempt by YARN would be refused."""
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
"""Spark's property names for arguments of the operator that a submitter receives as properties."""
SPARK_SUBMIT_ONLY = (
    "deferrable", "deploy_mode", "env_vars", "keytab", "principal", "properties_file", "proxy_user", "spark_archive",
    "spark_binary", "use_krb5ccache", "verbose",
)  # fmt: skip
"""Arguments that only apply to the spark-submit of an Airflow task."""
NOT_ON_GLUE = ("spark.yarn.",)
NOT_ON_DATAPROC_SERVERLESS = ("spark.master", "spark.shuffle.service.", "spark.yarn.")
"""The prefixes of properties that a service without YARN refuses."""


@dataclass(frozen=True, kw_only=True)
class PreparedJob:
    """What the submitter and the follower of a job need.

    It holds no secret: its key opens only the settings, which the driver deletes.

    :param source: the source's name.
    :param owner: the owner of the job's leases.
    :param task: the task that the job works for, as in the job's record in the store.
    :param coordination_conn_id: the connection of type `coordination`.
    :param application: the path or URI of the program.
    :param py_files: the path or URI of the archive with this package.
    :param arguments: the arguments of the program.
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
        """Return the job as a JSON object, for XCom."""
        return write_settings(self)

    @classmethod
    def from_mapping(cls, values: object) -> PreparedJob:
        """Return the job that `to_mapping` wrote.

        :raises ConfigurationError: if the mapping is not valid.
        """
        return read_settings(cls, "field 'job'", values)


def prepare_job(
    *, folder: str, aws_conn_id: str | None = None, context: Context | None = None, **arguments: Any
) -> PreparedJob:
    """Prepare a job that another tool submits. Call it in a task, and submit the returned job in the next task.

    It writes the program and the archive to the folder, once for each version, and the settings. The settings stay
    there until the driver has read them or the job has ended. A job that has not begun within `start_timeout` is given
    up.

    :param folder: a path or URI that Airflow writes to, and that the cluster's role reads and deletes from, such as
        `s3://bucket/coordination`.
    :param aws_conn_id: the AWS connection by which Airflow reaches the folder; None for the AWS default credential
        chain.
    :param context: the context of the task; by default the context of the running task.
    :param arguments: the arguments of `CoordinatedSparkSubmitOperator`; templates are not rendered.
    :raises AirflowFailException: for an error that only a user can fix.
    :raises AirflowSkipException: if the source is suspended, or nothing is left to do.
    :raises CoordinationError: if the store or the folder does not respond.
    """
    context = get_current_context() if context is None else context
    with failing_when_misconfigured():
        conf = properties_of(arguments)
        task = CoordinatedSparkSubmitOperator(**{"task_id": "ingest", **arguments})
        connection = CoordinationHook(task.coordination_conn_id).settings
        settings = task.job_settings(connection, context)
        remaining = claim_for_job(connection, context, settings, task.ingestion.reads)
        if remaining.suspension is not None:
            raise suspended_skip(settings.source, remaining.suspension)
        if not remaining.has_work:
            raise AirflowSkipException(f"source {settings.source!r}: {NOTHING_LEFT}")
        return write_prepared_job(
            task, connection, settings, task_of(context), conf, folder=folder, aws_conn_id=aws_conn_id
        )


def properties_of(arguments: Mapping[str, Any]) -> dict[str, str]:
    """Return the Spark properties for arguments of `CoordinatedSparkSubmitOperator`.

    :raises ConfigurationError: if an argument only applies to its spark-submit.
    """
    for name in SPARK_SUBMIT_ONLY:
        if arguments.get(name):
            raise ConfigurationError(
                f"field {name!r} is for a spark-submit of this package's operator; leave it out, and configure the "
                "tool that submits the job instead"
            )
    named = {PROPERTIES[name]: value for name, value in arguments.items() if name in PROPERTIES and value is not None}
    properties = {**SINGLE_ATTEMPT, **named, **(arguments.get("conf") or {})}
    return {str(name): str(value) for name, value in properties.items()}


def write_prepared_job(
    task: CoordinatedSparkSubmitOperator,
    connection: ConnectionSettings,
    settings: IngestSettings,
    works_for: str,
    conf: dict[str, str],
    *,
    folder: str,
    aws_conn_id: str | None = None,
) -> PreparedJob:
    """Record a job in the store, and write what its submitter needs to a folder.

    :param task: the task, with its templates rendered.
    :param settings: the job's settings.
    :param works_for: the name of the task that the job works for; all tries of a task share it.
    :param conf: Spark properties; see `properties_of`.
    :param folder: see `prepare_job`.
    :raises ConfigurationError: if the folder cannot be used.
    :raises CoordinationError: if the store or the folder does not respond.
    """
    if not folder:
        raise ConfigurationError("field 'folder' must not be empty; give a path or URI that the cluster reads")
    settings = followed(settings, task.start_timeout)
    name = hashlib.sha256(settings.owner.encode()).hexdigest()[:32]
    reference = SettingsReference.sealed(f"{folder.rstrip('/')}/settings/{name}")
    location = SettingsLocation(kind=OBJECT, conn_id=aws_conn_id or "", location=reference.uri)
    access = location.access
    with TemporaryDirectory(prefix="coordination-") as local:
        archive = upload(write_package_archive(Path(local)), folder, access)
        application = task.application or upload(Path(packaged_application(APPLICATION)), folder, access)
    follower = JobFollower(connection=connection, source=settings.source, task=works_for)
    follower.stop("another try of its task began")
    follower.submit(settings, None, location)  # before the write: the record is what leads to the settings' deletion
    try:
        reference.write(json.dumps(write_settings(settings)), access)
    except CoordinationError as error:
        follower.end(settings.owner, f"the job could not be prepared: {error}")
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


def upload(file: Path, folder: str, access: Access) -> str:
    """Write a file to a folder, under a name made of its content, unless it is there; return its URI.

    :raises CoordinationError: if the file cannot be written.
    """
    from airflow_provider_coordination.spark.storage import open_files

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


# What each submitter needs, in its own format


def emr_step(job: PreparedJob, *, name: str = "ingest", action_on_failure: str = "CONTINUE") -> dict[str, Any]:
    """Return the step of EMR on EC2 that runs a job, for `EmrAddStepsOperator`."""
    command = ["spark-submit", "--deploy-mode", "cluster", *_options(job), job.application, *job.arguments]
    return {
        "Name": name,
        "ActionOnFailure": action_on_failure,
        "HadoopJarStep": {"Jar": "command-runner.jar", "Args": command},
    }


def emr_serverless_driver(job: PreparedJob) -> dict[str, Any]:
    """Return the `job_driver` of EMR Serverless, for `EmrServerlessStartJobOperator`."""
    return {
        "sparkSubmit": {
            "entryPoint": job.application,
            "entryPointArguments": list(job.arguments),
            "sparkSubmitParameters": shlex.join(_options(job)),
        }
    }


def emr_containers_driver(job: PreparedJob) -> dict[str, Any]:
    """Return the `job_driver` of EMR on EKS, for `EmrContainerOperator`."""
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
    """Return the `spark_submit_task` of a Databricks run, for `DatabricksSubmitRunOperator`."""
    return {"parameters": [*_options(job), job.application, *job.arguments]}


def glue_arguments(job: PreparedJob, *, python_modules: Sequence[str] = ()) -> dict[str, str]:
    """Return the `script_args` of `GlueJobOperator`, which are the `Arguments` of Glue's `StartJobRun`.

    They name the program too, so that each run has the program of its own package, whatever the Glue job was made with.

    :param python_modules: what `pip` installs before the run, such as `cryptography==46.0.3`.
    :raises ConfigurationError: if Glue cannot run the job.
    """
    _check_folder(job, "AWS Glue", "s3://")
    conf = _conf_without(job, NOT_ON_GLUE, "AWS Glue")
    for name, value in conf.items():
        if re.search(r"\s", name + value):
            raise ConfigurationError(
                f"conf {name!r} is {value!r}: AWS Glue takes all properties as one text that it splits at spaces; use "
                "a value without spaces"
            )
    for module in python_modules:
        if not module.strip() or "," in module:
            raise ConfigurationError(f"field 'python_modules': {module!r} is not one module; give a text for each")
    named = {
        "--conf": " --conf ".join(f"{name}={value}" for name, value in conf.items()),
        "--additional-python-modules": ",".join(python_modules),
    }
    return {
        "--scriptLocation": job.application,
        "--extra-py-files": job.py_files,
        "--job-bookmark-option": "job-bookmark-disable",  # the store holds the positions
        **{name: value for name, value in named.items() if value},
        SETTINGS_ARGUMENT: job.arguments[0],
        OWNER_ARGUMENT: job.arguments[1],
    }


def dataproc_job(job: PreparedJob, *, cluster: str | None = None) -> dict[str, Any]:
    """Return the `job` of `DataprocSubmitJobOperator`, for a cluster of Dataproc.

    :param cluster: the cluster's name; None to add another `placement`.
    """
    made = {"pyspark_job": {**_dataproc_program(job), "properties": dict(job.conf)}}
    return made if cluster is None else {"placement": {"cluster_name": cluster}, **made}


def dataproc_batch(job: PreparedJob, *, version: str | None = None) -> dict[str, Any]:
    """Return the `batch` of `DataprocCreateBatchOperator`, for Dataproc Serverless.

    :param version: the version of the runtime, such as `3.0`; None for the default version of Dataproc.
    :raises ConfigurationError: if Dataproc Serverless cannot run the job.
    """
    _check_folder(job, "Dataproc Serverless", "gs://")
    conf = _conf_without(job, NOT_ON_DATAPROC_SERVERLESS, "Dataproc Serverless")
    versioned = {} if version is None else {"version": version}
    return {"pyspark_batch": _dataproc_program(job), "runtime_config": {**versioned, "properties": conf}}


def _dataproc_program(job: PreparedJob) -> dict[str, Any]:
    return {
        "main_python_file_uri": job.application,
        "python_file_uris": job.py_files.split(","),
        "args": list(job.arguments),
    }


def _check_folder(job: PreparedJob, service: str, scheme: str) -> None:
    for uri in (job.application, *job.py_files.split(",")):
        if not uri.startswith(scheme):
            raise ConfigurationError(f"{uri}: {service} only reads {scheme} URIs; give such a 'folder' to prepare_job")


def _conf_without(job: PreparedJob, refused: tuple[str, ...], service: str) -> dict[str, str]:
    conf = {name: value for name, value in job.conf.items() if name not in SINGLE_ATTEMPT}
    for name in conf:
        if name.startswith(refused):
            raise ConfigurationError(f"conf {name!r} does not apply to {service}; leave it out")
    return conf


def _options(job: PreparedJob) -> list[str]:
    conf: Mapping[str, str] = job.conf
    return [
        "--py-files",
        job.py_files,
        *(part for name, value in conf.items() for part in ("--conf", f"{name}={value}")),
    ]


class FollowJobOperator(JobFollowingOperator):
    """Waits in the triggerer for a job that `prepare_job` prepared and another tool submitted.

    The job's record in the store shows its state, whatever runs the job. The task deletes the rest of the job's
    settings. It fails with the job's own error and without a retry, because settings serve only one driver: prepare
    another job to try again. If a user ends the task, or it runs out of time, the job is requested to stop.

    Returns the job's summary, with its `owner`.

    :param job: the result of `PreparedJob.to_mapping`. (templated)
    """

    template_fields: Sequence[str] = ("job",)
    operator_extra_links = (LeasesLink(),)

    def __init__(self, *, job: Mapping[str, Any] | PreparedJob, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.job = job
        self.source_worked_on = ""
        self.coordination_conn_id = CoordinationHook.default_conn_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Defer until the job has ended.

        :raises AirflowFailException: if the job failed, lost its leases, vanished, or did not begin in time.
        """
        deadline = None if self.execution_timeout is None else datetime.now(UTC) + self.execution_timeout
        return self._result_or_defer(context, deadline)

    def execute_complete(self, context: Context, event: dict[str, Any] | None = None) -> dict[str, Any]:
        """Resume after a deferral.

        :param event: the payload of the trigger's event.
        :raises AirflowFailException: as `execute`.
        """
        event = event_with(event, "owner")
        return self._result_or_defer(context, None if event["deadline"] is None else parse_instant(event["deadline"]))

    def _result_or_defer(self, context: Context, deadline: datetime | None) -> dict[str, Any]:
        job, follower = self._followed()
        outcome = follower.outcome_of(job.owner)
        if outcome is None:
            self.defer_until_over(follower, job.owner, deadline)
        follower.note_reported(job.owner)
        try:
            result = summary_of(job.owner, outcome)
        except AirflowFailException:
            raise
        except Exception as error:
            remedy = "to prepare another job, clear the task that prepared this one"
            raise AirflowFailException(f"{error}; {remedy}") from None
        report_to_outlets(context, self.outlets, job.source, result, no_stream)
        return result

    def _followed(self) -> tuple[PreparedJob, JobFollower]:
        with failing_when_misconfigured():
            job = self.job if isinstance(self.job, PreparedJob) else PreparedJob.from_mapping(self.job)
            connection = CoordinationHook(job.coordination_conn_id).settings
        self.source_worked_on, self.coordination_conn_id = job.source, job.coordination_conn_id
        return job, JobFollower(connection=connection, source=job.source, task=job.task)

    @override
    def follower_of(self, context: Context) -> JobFollower:
        return self._followed()[1]
