"""Follow a DynamoDB table into Parquet: sync its items and shards -> N Spark jobs under leases.

The items of the table are read once, then its changes. Each row is an item, or a change of one, and `change_order` says
which of two rows of an item is the later one. The stream of the table must be on, with new images. It keeps changes for
24 hours, so run the DAG more often than that.

It runs unchanged with three connections: `coordination_default` (type coordination), `aws_default` and
`spark_default`. Set the table and the output path as params.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.writes import ParquetDataset

WORKERS = 1
"""The number of Spark jobs that share the partitions in one run."""

TABLE = DynamoDBTable("{{ params.table }}", follow=True)

with DAG(
    dag_id="dynamodb_follow_ingestion",
    description="Follow a DynamoDB table into Parquet, exactly once",
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=2,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "dynamodb"],
    params={
        "table": Param("orders", type="string", minLength=3, description="The table, by its name."),
        "output_path": Param(
            "/data/orders",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker can reach.",
        ),
    },
) as dag:
    sync = ShardSyncOperator(task_id="sync_table", reads=TABLE)

    jobs = CoordinatedSparkSubmitOperator.partial(
        task_id="ingest",
        ingestion=Ingestion(
            reads=TABLE,
            writes=ParquetDataset("{{ params.output_path }}"),
            rounds=RoundSettings(until_caught_up=True),
        ),
        workers=WORKERS,
        map_index_template="{{ task.name }}",
    ).expand(name=[f"table-{number}" for number in range(WORKERS)])

    sync >> jobs
