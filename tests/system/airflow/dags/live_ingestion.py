"""A stream is ingested until the test ends."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param

from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(
    dag_id="live_ingestion",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    params={"stream": Param(type="string"), "output_path": Param(type="string")},
) as dag:
    sync = ShardSyncOperator(task_id="sync", reads=KinesisStreams("{{ params.stream }}"))
    ingest = CoordinatedSparkSubmitOperator(
        task_id="ingest",
        ingestion=Ingestion(
            reads=KinesisStreams("{{ params.stream }}"),
            writes=ParquetDataset("{{ params.output_path }}"),
            rounds=RoundSettings(until_caught_up=False, max_duration=1200, round_duration=1, idle_duration=1),
        ),
    )
    sync >> ingest
