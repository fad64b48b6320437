"""Ingest a Kinesis stream an hour at a time, each hour exactly, no matter when and how often its run is started.

Each interval has its own leases. So its run works alongside live ingestion and other intervals. It continues where an
earlier try stopped, and changes nothing once its hour is delivered. `airflow backfill create --dag-id
interval_ingestion --from-date ... --to-date ...` ingests missed hours, as far back as the stream keeps its records. A
manual run takes its bounds from the params. It runs unchanged with three connections: `coordination_default` (type
coordination), `aws_default` and `spark_default`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.airflow_names import CronDataIntervalTimetable
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

with DAG(
    dag_id="interval_ingestion",
    description="Ingest exactly the records of a Kinesis stream that arrived in each hour",
    schedule=CronDataIntervalTimetable("@hourly", timezone="UTC"),
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=4,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "kinesis", "backfill"],
    params={
        "stream": Param("clicks", type="string", minLength=1, description="Name of the Kinesis stream."),
        "output_path": Param(
            "/data/clicks_by_the_hour",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker can reach.",
        ),
        "interval": Param(
            "data_interval",
            type="string",
            minLength=1,
            description="The interval: `data_interval` for the run's own, or for example 2026-01-01T00:00:00Z/PT1H.",
        ),
    },
) as dag:
    coordinated_ingestion(
        Ingestion(
            reads=KinesisStreams("{{ params.stream }}", on_data_loss="fail"),
            writes=ParquetDataset("{{ params.output_path }}"),
        ),
        interval="{{ params.interval }}",
    )
