"""Ingest a Kinesis stream an hour at a time, each hour exactly, whenever and as often as its run is started.

Each interval has leases of its own, so its run goes on beside live ingestion and beside other intervals, takes up where
a try before it stopped, and changes nothing once its hour is delivered. Hours that were missed are made up for by
`airflow backfill create --dag-id interval_ingestion --from-date ... --to-date ...`, as far back as the stream keeps its
records; a run that is started by hand takes the bounds in its params. Runnable as it stands with three connections:
`coordination_default` (type coordination), `aws_default` and `spark_default`.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from airflow_provider_coordination.operators.reads.kinesis import KinesisStreams
from airflow_provider_coordination.operators.writes.parquet import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

with DAG(
    dag_id="interval_ingestion",
    description="What arrived in a Kinesis stream in each hour, exactly",
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
            description="The dataset: a path or URI that every worker reaches.",
        ),
        "interval": Param(
            "data_interval",
            type="string",
            minLength=1,
            description="What to ingest: `data_interval` for the run's own, or such as 2026-01-01T00:00:00Z/PT1H.",
        ),
    },
) as dag:
    coordinated_ingestion(
        reads=KinesisStreams("{{ params.stream }}", on_data_loss="fail"),
        writes=ParquetDataset("{{ params.output_path }}"),
        interval="{{ params.interval }}",
    )
