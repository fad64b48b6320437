"""Ingest a Kinesis stream, report each hour as an event once it is complete, and let a DAG read the hour.

An event of the asset `complete_hours` has the hour as its partition key, and the counts of the hour. From Airflow 3.2
on, the DAG `hour_report` runs once for each hour. Older versions have no partitions: there it runs once an hour, and
waits. Give `complete_hours` a schedule, such as one run every ten minutes. Both run unchanged with three connections:
`coordination_default` (type coordination), `aws_default` and `spark_default`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from airflow import sdk
from airflow.sdk import DAG, Asset, Param, task

from airflow_provider_coordination.airflow_names import CronDataIntervalTimetable
from airflow_provider_coordination.sensors.intervals import IntervalCompleteSensor
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

HOURS = Asset("complete_hours")

with DAG(
    dag_id="complete_hours",
    description="Ingest a Kinesis stream, and report each hour once it is complete",
    schedule=None,
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "kinesis"],
    params={
        "stream": Param("clicks", type="string", minLength=1, description="Name of the Kinesis stream."),
        "output_path": Param(
            "/data/clicks",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker can reach.",
        ),
    },
):
    coordinated_ingestion(
        Ingestion(
            reads=KinesisStreams("{{ params.stream }}"),
            writes=ParquetDataset("{{ params.output_path }}"),
            completes=timedelta(hours=1),
        ),
        completed=HOURS,
    )

timetable: Any = getattr(sdk, "PartitionedAssetTimetable", None)

with DAG(
    dag_id="hour_report",
    description="Do something with an hour of data that is complete",
    schedule=CronDataIntervalTimetable("@hourly", timezone="UTC") if timetable is None else timetable(assets=HOURS),
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    tags=["coordination", "kinesis"],
):

    @task
    def report(hour: str) -> str:
        """Return which hour is complete; a real task reads its rows."""
        return f"{hour} is complete"

    if timetable is None:
        wait = IntervalCompleteSensor(task_id="wait", source="clicks", deferrable=True)
        wait >> report("{{ data_interval_start }}")
    else:
        report("{{ dag_run.partition_key }}")
