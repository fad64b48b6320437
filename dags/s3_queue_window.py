"""Ingest in a nightly window the objects of S3 that a queue announces: a sensor waits for the first of them.

The sensor waits in the triggerer, without a worker slot, until the queue has messages or partitions are left of the
night before. If nothing arrives in six hours, the run is skipped. A run that starts on each arrival instead is in
`s3_queue_ingestion.py`.

Set the environment variables `EVENTS_QUEUE`, `EVENTS_PATH` and `WINDOW_OUTPUT`, or write your own values here. It needs
three connections: `coordination_default` (type coordination), `aws_default` and `spark_default`.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sensors.partitions import PartitionsAvailableSensor
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

SOURCE = "nightly_events"
QUEUE = os.environ.get("EVENTS_QUEUE", "https://sqs.eu-west-1.amazonaws.com/123456789012/events")
EVENTS = S3Objects(paths=os.environ.get("EVENTS_PATH", "s3://events/in/"), source=SOURCE, queue=QUEUE)

with DAG(
    dag_id="s3_queue_window",
    description="Ingest S3 objects at night, once a queue announces some",
    schedule="0 1 * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "s3"],
) as dag:
    arrival = PartitionsAvailableSensor(
        task_id="wait_for_objects",
        source=SOURCE,
        queue_url=QUEUE,
        deferrable=True,
        timeout=timedelta(hours=6),
        soft_fail=True,
    )

    find = CreatePartitionsOperator(task_id="find_objects", reads=EVENTS)

    ingest = CoordinatedSparkSubmitOperator(
        task_id="ingest",
        ingestion=Ingestion(reads=EVENTS, writes=ParquetDataset(os.environ.get("WINDOW_OUTPUT", "/data/nightly"))),
        name="s3-queue-window",
    )

    arrival >> find >> ingest
