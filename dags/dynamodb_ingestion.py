"""Ingest a table of DynamoDB once a day: each run scans all of it, in parallel segments.

Every run's scan has partitions of its own, named after the run, so a run that is cleared goes on where it was and
adds nothing once it is done.

Runnable as it stands with three connections: `coordination_default` (type coordination), `aws_default` and
`spark_default`. Set the table and the output path as params.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.operators.reads.dynamodb import DynamoDBTable
from airflow_provider_coordination.operators.writes.parquet import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

with DAG(
    dag_id="dynamodb_ingestion",
    description="The items of a table of DynamoDB, once a day, in Parquet",
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
            None, type=["null", "number"], exclusiveMinimum=0, description="Most capacity that reading takes."
        ),
        "output_path": Param(
            "/data/orders",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker reaches.",
        ),
    },
) as dag:
    coordinated_ingestion(
        reads=DynamoDBTable(
            table="{{ params.table }}",
            scan="{{ run_id }}",
            read_units_per_second="{{ params.read_units_per_second }}",
        ),
        writes=ParquetDataset("{{ params.output_path }}"),
        workers="auto",
        name="dynamodb-ingestion",
    )
