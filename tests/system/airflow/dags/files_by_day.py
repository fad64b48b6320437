"""Files of a folder are ingested by day of modification: by intervals, and by partitions.

The job of one day can be made to kill itself in its first try. A run ends once the file `gate` exists, if there is one.
"""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.airflow_names import CronDataIntervalTimetable
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

try:
    from airflow.sdk import CronPartitionTimetable
except ImportError:  # Airflow 3.1 has no runs of partitions
    CronPartitionTimetable = None

FILES = S3Objects(paths="{{ params.folder }}", source="{{ params.source }}", max_objects=1)
START = datetime(2026, 1, 1, tzinfo=UTC)
OF_ALL = {"retries": 2, "retry_delay": timedelta(seconds=1)}
DAY_OF_RUN = "{{ data_interval_start | ds if data_interval_start is defined else 'by_hand' }}"
PARAMS = {
    "folder": Param("/nowhere", type="string"),
    "source": Param("nothing", type="string"),
    "output_path": Param("/nowhere", type="string"),
}

with DAG(
    dag_id="files_by_day",
    schedule=CronDataIntervalTimetable("@daily", timezone="UTC"),
    start_date=START,
    catchup=False,
    max_active_runs=4,
    default_args=OF_ALL,
    params=PARAMS
    | {
        "interval": Param("data_interval", type="string"),
        "killed_day": Param("", type="string"),
        "gate": Param("", type="string"),
        "deduplicate_against": Param("", type="string"),
    },
):

    @task
    def wait(gate: str) -> None:
        """Let the run go on until a file exists."""
        while gate and not Path(gate).exists():
            time.sleep(0.2)

    wait("{{ params.gate }}")
    coordinated_ingestion(
        Ingestion(
            reads=FILES,
            writes=ParquetDataset("{{ params.output_path }}/" + DAY_OF_RUN),
        ),
        interval="{{ params.interval }}",
        deduplicate_against="{{ params.deduplicate_against }}",
        application=os.environ["CRASHING_APPLICATION"],
        env_vars={
            "CRASH_AT": "{{ 'delivered:1' if ti.try_number == 1 and data_interval_start is defined "
            "and data_interval_start | ds == params.killed_day else 'never:1' }}"
        },
    )

if CronPartitionTimetable:
    with DAG(
        dag_id="files_by_partition",
        schedule=CronPartitionTimetable("@daily", timezone="UTC", run_offset=-1),
        start_date=START,
        catchup=False,
        default_args=OF_ALL,
        params=PARAMS,
    ):
        coordinated_ingestion(
            Ingestion(
                reads=FILES,
                writes=ParquetDataset("{{ params.output_path }}/{{ dag_run.partition_date | ds }}"),
            ),
            interval="{{ dag_run.partition_date.isoformat() }}/P1D",
        )
