"""Ingest a Kinesis stream on EMR on EC2: Amazon's operator submits the job, and the store reports its result.

`prepare` writes the files that the cluster needs to a folder of the bucket: the program, this package and the job's
settings. The settings are encrypted, and the driver deletes them. `submit` adds the step. `follow` waits in the
triggerer until the job ends.

It runs unchanged with two connections: `coordination_default` (type coordination) and `aws_default`. Set the stream,
the cluster and the locations as params.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.prepared_jobs import FollowJobOperator, emr_step, prepare_job
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(
    dag_id="emr_ingestion",
    description="Ingest a Kinesis stream into Parquet on EMR on EC2",
    schedule="*/30 * * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    doc_md=__doc__,
    tags=["coordination", "kinesis", "emr"],
    params={
        "stream": Param("clicks", type="string", minLength=1, description="The Kinesis stream."),
        "cluster": Param("j-EXAMPLE", type="string", minLength=1, description="The EMR cluster's id."),
        "folder": Param(
            "s3://lake/coordination",
            type="string",
            minLength=1,
            description="Where the cluster finds the files of its jobs.",
        ),
        "output_path": Param("s3://lake/clicks", type="string", minLength=1, description="The dataset."),
        "python": Param("python3", type="string", minLength=1, description="Python 3.11 or newer on the cluster."),
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
            conf={"spark.pyspark.python": params["python"]},
        )
        return {"job": job.to_mapping(), "step": emr_step(job, name=f"ingest {params['stream']}")}

    prepared = prepare()  # type: ignore[call-arg]
    submit = EmrAddStepsOperator(task_id="submit", job_flow_id="{{ params.cluster }}", steps=[prepared["step"]])
    follow = FollowJobOperator(task_id="follow", job=prepared["job"])

    sync >> prepared >> submit >> follow
