"""A deferred job ingests a stream while another task wants the same slot."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.writes import ParquetDataset

POOL = "one_slot"

with DAG(
    dag_id="followed_ingestion",
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
            rounds=RoundSettings(until_caught_up=False, max_duration=600, round_duration=1, idle_duration=0.5),
        ),
        deferrable=True,
        pool=POOL,
        priority_weight=10,
    )

    @task(pool=POOL)
    def beside() -> str:
        """Run where the job would be in the way, if its task held the slot."""
        return "done"

    sync >> [ingest, beside()]
