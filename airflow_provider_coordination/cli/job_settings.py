"""The command `job-settings`: makes ready the job of a spec, which a script submits."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import typer

from airflow_provider_coordination.cli.access import connections_of_airflow, import_airflow
from airflow_provider_coordination.cli.commands import (
    EXIT_REFUSED,
    EXIT_USAGE,
    JSON,
    VERBOSE,
    CommandError,
    Surroundings,
    logging_to_stderr,
)
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.stores.redaction import without_secrets
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_file

COMMAND = "job-settings"


class Submitter(StrEnum):
    """Who submits a job, and is told of it in words of its own."""

    EMR = "emr"
    EMR_SERVERLESS = "emr-serverless"
    EMR_CONTAINERS = "emr-containers"
    LIVY = "livy"
    DATABRICKS = "databricks"


SPEC = Annotated[Path, typer.Argument(help="The spec, a file of YAML or JSON.", show_default=False)]
FOLDER = Annotated[
    str,
    typer.Option(
        "--folder",
        help="A path or URI that is written here, and that the cluster's role reads and deletes from.",
        show_default=False,
    ),
]
AWS_CONN_ID = Annotated[
    str | None,
    typer.Option("--aws-conn-id", help="The AWS connection by which the folder is reached here.", show_default=False),
]
FOR = Annotated[
    Submitter | None,
    typer.Option("--for", help="Write what this submitter takes, and nothing else.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(COMMAND)(job_settings)


def job_settings(
    context: typer.Context,
    spec: SPEC,
    *,
    folder: FOLDER,
    aws_conn_id: AWS_CONN_ID = None,
    submitter: FOR = None,
    as_json: JSON = False,
    verbose: VERBOSE = False,
) -> None:
    """Make ready the job of a spec for somebody else to submit, and write what that takes as JSON."""
    surroundings: Surroundings = context.obj or Surroundings()
    with logging_to_stderr(verbose=verbose):
        try:
            import_airflow()
            read = IngestionSpec.read(read_spec_file(spec)[0])
            with connections_of_airflow():
                made = _prepared(read, surroundings.user(), folder, aws_conn_id, submitter)
        except ConfigurationError as error:
            raise CommandError(without_secrets(str(error)), EXIT_USAGE) from None
        except CoordinationError as error:
            raise CommandError(without_secrets(str(error)), EXIT_REFUSED) from None
    typer.echo(json.dumps(made, indent=None if as_json else 2))


def _prepared(
    spec: IngestionSpec, user: str, folder: str, aws_conn_id: str | None, submitter: Submitter | None
) -> Mapping[str, Any]:
    from airflow_provider_coordination.hooks.coordination import CoordinationHook
    from airflow_provider_coordination.operators import prepared_jobs
    from airflow_provider_coordination.operators.claims import claim_for_job
    from airflow_provider_coordination.operators.ingest_settings import ingest_settings
    from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator

    run = f"{user}__{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%f}"
    ti = SimpleNamespace(dag_id="airflow-coordination", run_id=run, task_id=COMMAND, map_index=None, try_number=1)
    context: Any = {"ti": ti}
    arguments = spec.job_arguments()
    conf = prepared_jobs.properties_of(arguments)
    task = CoordinatedSparkSubmitOperator(**arguments, task_id="ingest")
    connection = CoordinationHook(task.coordination_conn_id).settings
    settings = ingest_settings(task, connection, context)
    suspension = claim_for_job(connection, context, settings, task.reads).suspension
    if suspension is not None:
        raise CoordinationError(
            f"source {settings.source!r} is {suspension}; `airflow-coordination resume` lets it go on"
        )
    job = prepared_jobs.prepared(
        task, connection, settings, f"{COMMAND}/{run}", conf, folder=folder, aws_conn_id=aws_conn_id
    )
    forms: Mapping[Submitter, Callable[[Any], dict[str, Any]]] = {
        Submitter.EMR: prepared_jobs.emr_step,
        Submitter.EMR_SERVERLESS: prepared_jobs.emr_serverless_driver,
        Submitter.EMR_CONTAINERS: prepared_jobs.emr_containers_driver,
        Submitter.LIVY: prepared_jobs.livy_batch,
        Submitter.DATABRICKS: prepared_jobs.databricks_task,
    }
    return job.to_mapping() if submitter is None else forms[submitter](job)
