"""The commands that prepare jobs: `job-settings` for submission by a script, `spark-archive` for a faster start."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from airflow_provider_coordination.cli.access import airflow_connections, import_airflow
from airflow_provider_coordination.cli.commands import (
    EXIT_REFUSED,
    JSON,
    VERBOSE,
    CommandContext,
    CommandError,
    reporting_errors,
)
from airflow_provider_coordination.cli.output import Output
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.operators.packaging import local_environment, packaged_application
from airflow_provider_coordination.spark.class_archive import ArchiveError, make_archive
from airflow_provider_coordination.spark.outcome import Outcome
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file

COMMAND = "job-settings"
APPLICATION = "rehearse.py"


class Submitter(StrEnum):
    """The system that submits a job; each has its own format of job settings."""

    EMR = "emr"
    EMR_SERVERLESS = "emr-serverless"
    EMR_CONTAINERS = "emr-containers"
    GLUE = "glue"
    DATAPROC = "dataproc"
    DATAPROC_SERVERLESS = "dataproc-serverless"
    LIVY = "livy"
    DATABRICKS = "databricks"


SPEC = Annotated[Path, typer.Argument(help="Spec, a YAML or JSON file.")]
FOLDER = Annotated[
    str,
    typer.Option(
        "--folder", help="Path or URI that this command writes, and that the cluster's role may read and delete."
    ),
]
AWS_CONN_ID = Annotated[str | None, typer.Option("--aws-conn-id", help="AWS connection to write the folder.")]
FOR = Annotated[Submitter | None, typer.Option("--for", help="Print only the settings that this submitter accepts.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("spark-archive")(spark_archive)
    app.command(COMMAND)(job_settings)


def job_settings(
    ctx: typer.Context,
    spec: SPEC,
    *,
    folder: FOLDER,
    aws_conn_id: AWS_CONN_ID = None,
    submitter: FOR = None,
    as_json: JSON = False,
    verbose: VERBOSE = False,
) -> None:
    """Prepare the job of a spec for another system to submit, and print its settings as JSON."""
    context: CommandContext = ctx.obj or CommandContext()
    with reporting_errors(verbose=verbose):
        import_airflow()
        read = IngestionSpec.read(read_spec_file(spec)[0])
        with airflow_connections():
            settings = _prepared(read, context.user(), folder, aws_conn_id, submitter)
    typer.echo(json.dumps(settings, indent=None if as_json else 2))


def _prepared(
    spec: IngestionSpec, user: str, folder: str, aws_conn_id: str | None, submitter: Submitter | None
) -> Mapping[str, Any]:
    from airflow_provider_coordination.hooks.coordination import CoordinationHook
    from airflow_provider_coordination.operators import prepared_jobs
    from airflow_provider_coordination.operators.claims import claim_for_job
    from airflow_provider_coordination.operators.job_follower import JobFollower
    from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator

    run = f"{user}__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"
    ti = SimpleNamespace(dag_id="airflow-coordination", run_id=run, task_id=COMMAND, map_index=None, try_number=1)
    airflow_context: Any = {"ti": ti}
    arguments = spec.job_arguments()
    conf = prepared_jobs.properties_of(arguments)
    task = CoordinatedSparkSubmitOperator(**arguments, task_id="ingest")
    connection = CoordinationHook(task.coordination_conn_id).settings
    settings = task.job_settings(connection, airflow_context)
    suspension = claim_for_job(connection, airflow_context, settings, task.ingestion.reads).suspension
    if suspension is not None:
        raise CoordinationError(
            f"source {settings.source!r} is {suspension}; resume it with `airflow-coordination resume`"
        )
    job = prepared_jobs.write_prepared_job(
        task, connection, settings, f"{COMMAND}/{run}", conf, folder=folder, aws_conn_id=aws_conn_id
    )
    forms: Mapping[Submitter, Callable[[Any], dict[str, Any]]] = {
        Submitter.EMR: prepared_jobs.emr_step,
        Submitter.EMR_SERVERLESS: prepared_jobs.emr_serverless_driver,
        Submitter.EMR_CONTAINERS: prepared_jobs.emr_containers_driver,
        Submitter.GLUE: prepared_jobs.glue_arguments,
        Submitter.DATAPROC: prepared_jobs.dataproc_job,
        Submitter.DATAPROC_SERVERLESS: prepared_jobs.dataproc_batch,
        Submitter.LIVY: prepared_jobs.livy_batch,
        Submitter.DATABRICKS: prepared_jobs.databricks_task,
    }
    if submitter is None:
        return job.to_mapping()
    try:
        return forms[submitter](job)
    except ConfigurationError as error:
        outcome = Outcome(exit_code=None, error=f"the job cannot be submitted: {error}")
        JobFollower(connection=connection, source=job.source, task=job.task).final_outcome(job.owner, outcome)
        raise


def spark_archive(
    ctx: typer.Context,
    archive: Annotated[Path, typer.Argument(metavar="PATH", help="File to write, such as /opt/spark/spark.jsa.")],
    *,
    spark_submit: Annotated[str, typer.Option("--spark-submit", help="Program that submits jobs.")] = "spark-submit",
    as_json: JSON = False,
    verbose: VERBOSE = False,
) -> None:
    """Archive the classes that Spark jobs load, so that jobs that use the archive start sooner."""
    context: CommandContext = ctx.obj or CommandContext()
    environment = context.environment
    output = Output(as_json=as_json)
    started = context.clock.monotonic()
    with reporting_errors(verbose=verbose):
        try:
            result = make_archive(
                archive,
                packaged_application(APPLICATION),
                {**environment, **local_environment(environment)},
                spark_submit=spark_submit,
                report=output.info,
            )
        except ArchiveError as error:
            raise CommandError(str(error), EXIT_REFUSED) from None
    seconds = context.clock.monotonic() - started
    if as_json:
        output.record(
            {"archive": str(archive.absolute()), "bytes": result.bytes, "classes": result.classes, "seconds": seconds}
        )
        return
    output.line(
        f"{archive.absolute()}: {result.bytes / 2**20:.0f} MiB, made in {seconds:.0f} s; "
        f"{result.classes} classes were loaded from it"
    )
    output.line(f"use it in jobs with spark_archive={str(archive.absolute())!r}")
