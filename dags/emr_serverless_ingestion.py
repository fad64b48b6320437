"""Ingest a Kinesis stream on EMR Serverless: Amazon's operator submits the job, and the store reports its result.

`prepare` writes the files that the application needs to a folder of the bucket: the program, this package and the job's
settings. The settings are encrypted, and the driver deletes them. `submit` starts the job run. `follow` waits in the
triggerer until the job ends.

It runs unchanged with two connections: `coordination_default` (type coordination) and `aws_default`. Set the stream,
the application, its role and the locations as params.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.providers.amazon.aws.operators.emr import EmrServerlessStartJobOperator
from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.prepared_jobs import FollowJobOperator, emr_serverless_driver, prepare_job
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(
    dag_id="emr_serverless_ingestion",
    description="Ingest a Kinesis stream into Parquet on EMR Serverless",
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["coordination", "kinesis", "emr"],
    params={
        "stream": Param("clicks", type="string", minLength=1, description="The Kinesis stream."),
        "application": Param("00example", type="string", minLength=1, description="The application's id."),
        "role": Param(
            "arn:aws:iam::123456789012:role/ingest", type="string", minLength=1, description="The role of its jobs."
        ),
        "folder": Param(
            "s3://lake/coordination",
            type="string",
            minLength=1,
            description="Where the application finds the files of its jobs.",
        ),
        "output_path": Param("s3://lake/clicks", type="string", minLength=1, description="The dataset."),
    },
) as dag:
    sync = ShardSyncOperator(task_id="sync_shards", reads=KinesisStreams("{{ params.stream }}"), retries=2)

    @task(multiple_outputs=True)
    def prepare(params: dict[str, Any]) -> dict[str, Any]:
        """Write the files of the job."""
        job = prepare_job(
            folder=params["folder"],
            aws_conn_id="aws_default",
            ingestion=Ingestion(
                reads=KinesisStreams(params["stream"]),
                writes=ParquetDataset(params["output_path"]),
            ),
        )
        return {"job": job.to_mapping(), "driver": emr_serverless_driver(job)}

    prepared = prepare()  # type: ignore[call-arg]
    submit = EmrServerlessStartJobOperator(
        task_id="submit",
        application_id="{{ params.application }}",
        execution_role_arn="{{ params.role }}",
        job_driver=prepared["driver"],
        wait_for_completion=False,
    )
    follow = FollowJobOperator(task_id="follow", job=prepared["job"])

    sync >> prepared >> submit >> follow
