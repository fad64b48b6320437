"""Ingest the objects of a bucket on AWS Glue: Amazon's operator starts the run, and the store reports its result.

`prepare` writes the files that the run needs to a folder of the bucket: the program, this package and the job's
settings. The settings are encrypted, and the driver deletes them. `submit` makes the Glue job if there is none of its
name, and starts a run. `follow` waits in the triggerer until the run ends.

It runs unchanged with two connections: `coordination_default` (type coordination) and `aws_default`. Set the locations
and the role as params.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.providers.amazon.aws.operators.glue import GlueJobOperator
from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.prepared_jobs import FollowJobOperator, glue_arguments, prepare_job
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

MODULES = ["cryptography>=44.0.3", "msgspec>=0.19", "psycopg[binary]>=3.1.4", "pyarrow>=18.0", "sqlalchemy>=2.0.48"]
"""What a driver needs for a store in PostgreSQL; Glue has boto3."""

with DAG(
    dag_id="glue_ingestion",
    description="Ingest S3 objects into Parquet on AWS Glue, each once",
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["coordination", "s3", "glue"],
    params={
        "path": Param("s3://events/in/", type="string", minLength=1, description="The location of the objects."),
        "role": Param(
            "arn:aws:iam::123456789012:role/ingest", type="string", minLength=1, description="The role of the run."
        ),
        "glue_version": Param("6.0", enum=["5.0", "5.1", "6.0"], description="The Glue version of a new Glue job."),
        "folder": Param(
            "s3://lake/coordination",
            type="string",
            minLength=1,
            description="Where the run finds its files.",
        ),
        "output_path": Param("s3://lake/events", type="string", minLength=1, description="The dataset."),
    },
) as dag:
    find = CreatePartitionsOperator(
        task_id="find_objects", reads=S3Objects(paths="{{ params.path }}", source="events", format="json")
    )

    @task(multiple_outputs=True)
    def prepare(params: dict[str, Any]) -> dict[str, Any]:
        """Write the files of the run."""
        job = prepare_job(
            folder=params["folder"],
            aws_conn_id="aws_default",
            ingestion=Ingestion(
                reads=S3Objects(paths=params["path"], source="events", format="json"),
                writes=ParquetDataset(params["output_path"]),
            ),
        )
        arguments = glue_arguments(job, python_modules=MODULES)
        return {"job": job.to_mapping(), "program": job.application, "arguments": arguments}

    prepared = prepare()  # type: ignore[call-arg]
    submit = GlueJobOperator(
        task_id="submit",
        job_name="coordinated-ingestion",
        script_location=prepared["program"],
        script_args=prepared["arguments"],
        iam_role_arn="{{ params.role }}",
        create_job_kwargs={"GlueVersion": "{{ params.glue_version }}", "WorkerType": "G.1X", "NumberOfWorkers": 2},
        wait_for_completion=False,
    )
    follow = FollowJobOperator(task_id="follow", job=prepared["job"])

    find >> prepared >> submit >> follow
