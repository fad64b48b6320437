"""A stream is delivered and waits for a confirmation, which a run gives only if its configuration says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.operators.acknowledge import AcknowledgeOperator
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sensors.acknowledgments import AcknowledgmentSensor
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import AcknowledgmentSettings, RoundSettings
from airflow_provider_coordination.spark.writes import ParquetDataset

with DAG(
    dag_id="confirmed_ingestion",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    params={
        "stream": Param(type="string"),
        "output_path": Param(type="string"),
        "timeout_seconds": Param(type="number"),
        "confirm": Param(type="boolean"),
    },
) as dag:
    sync = ShardSyncOperator(task_id="sync", reads=KinesisStreams("{{ params.stream }}"))
    ingest = CoordinatedSparkSubmitOperator(
        task_id="ingest",
        ingestion=Ingestion(
            reads=KinesisStreams("{{ params.stream }}"),
            writes=ParquetDataset("{{ params.output_path }}"),
            acknowledgments=AcknowledgmentSettings(by="downstream", timeout="{{ params.timeout_seconds }}"),
            rounds=RoundSettings(round_duration=2),
        ),
    )
    wait = AcknowledgmentSensor(
        task_id="wait", source="{{ params.stream }}", deferrable=True, timeout=timedelta(minutes=10).total_seconds()
    )

    @task.short_circuit
    def confirming(confirm: str) -> bool:
        """Return whether this run confirms."""
        return confirm == "True"

    confirm = AcknowledgeOperator(task_id="confirm", source="{{ params.stream }}")
    sync >> ingest >> wait
    ingest >> confirming("{{ params.confirm }}") >> confirm
