"""Ingest a Kinesis stream an hour at a time: each run delivers the records that arrived before the end of its hour.

The first run starts at the end of the stream (`LATEST`). If a run fails or is missed, the next run catches up, since
the partitions remember their positions. It runs unchanged with three connections: `coordination_default` (type
coordination), `aws_default` and `spark_default`; set the stream and the output path as params.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.airflow_names import CronDataIntervalTimetable
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(
    dag_id="hourly_ingestion",
    description="Ingest the records of a Kinesis stream that arrived before the end of each hour",
    schedule=CronDataIntervalTimetable("@hourly", timezone="UTC"),
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
) as dag:
    clicks = KinesisStreams(
        "{{ params.stream }}",
        initial_position="LATEST",
        stop_at="{{ data_interval_end.isoformat() }}",
        on_data_loss="earliest",
    )
    sync = ShardSyncOperator(task_id="sync_shards", reads=clicks)
    ingest = CoordinatedSparkSubmitOperator(
        task_id="ingest",
        ingestion=Ingestion(
            reads=clicks,
            writes=ParquetDataset("{{ params.output_path }}"),
        ),
    )
    sync >> ingest
