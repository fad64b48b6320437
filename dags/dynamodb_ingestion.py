"""Ingest a DynamoDB table once a day: each run scans the whole table, in parallel segments.

The scan of each run has its own partitions, named after the run. So a cleared run continues where it stopped, and adds
nothing once it is done.

It runs unchanged with three connections: `coordination_default` (type coordination), `aws_default` and
`spark_default`. Set the table and the output path as params.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

with DAG(
    dag_id="dynamodb_ingestion",
    description="Ingest the items of a DynamoDB table into Parquet once a day",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "dynamodb"],
    params={
        "table": Param("orders", type="string", minLength=3, description="The table."),
        "read_units_per_second": Param(
            None,
            type=["null", "number"],
            exclusiveMinimum=0,
            description="The limit of read capacity that the scan uses.",
        ),
        "output_path": Param(
            "/data/orders",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker can reach.",
        ),
    },
) as dag:
    coordinated_ingestion(
        Ingestion(
            reads=DynamoDBTable(
                table="{{ params.table }}",
                scan="{{ run_id }}",
                read_units_per_second="{{ params.read_units_per_second }}",
            ),
            writes=ParquetDataset("{{ params.output_path }}"),
        ),
        workers="auto",
        name="dynamodb-ingestion",
    )
