"""Ingest the changes of a DynamoDB table into Parquet: sync shards -> N Spark jobs under leases.

Each row is a change of an item: its key, its images before and after, and the operation. The stream of the table must
be on. It keeps changes for 24 hours, so run the DAG more often than that.

It runs unchanged with three connections: `coordination_default` (type coordination), `aws_default` and
`spark_default`. Set the table and the output path as params.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.dynamodb_streams.settings import DynamoDBStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.writes import ParquetDataset

WORKERS = 1
"""The number of Spark jobs that share the shards in one run."""

CHANGES = DynamoDBStreams("{{ params.table }}", view_type="{{ params.view_type }}")

with DAG(
    dag_id="dynamodb_streams_ingestion",
    description="Ingest the changes of a DynamoDB table into Parquet, exactly once",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=2,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "dynamodb"],
    params={
        "table": Param("orders", type="string", minLength=3, description="The table, by its name or ARN."),
        "view_type": Param(
            "NEW_AND_OLD_IMAGES",
            enum=["KEYS_ONLY", "NEW_IMAGE", "OLD_IMAGE", "NEW_AND_OLD_IMAGES"],
            description="What the stream must hold at least.",
        ),
        "output_path": Param(
            "/data/changes",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker can reach.",
        ),
    },
) as dag:
    sync = ShardSyncOperator(task_id="sync_shards", reads=CHANGES)

    jobs = CoordinatedSparkSubmitOperator.partial(
        task_id="ingest",
        ingestion=Ingestion(
            reads=CHANGES,
            writes=ParquetDataset("{{ params.output_path }}"),
            rounds=RoundSettings(until_caught_up=True),
        ),
        workers=WORKERS,
        map_index_template="{{ task.name }}",
    ).expand(name=[f"changes-{number}" for number in range(WORKERS)])

    sync >> jobs
