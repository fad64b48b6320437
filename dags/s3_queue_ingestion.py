"""Ingest objects of S3 as a queue announces them: a run starts on arrival, and no bucket is listed.

The bucket sends its events `ObjectCreated:*` to an SQS queue, directly, through SNS or through EventBridge. The
triggerer asks the queue whether it has messages, without a worker slot. A run then records the announced objects,
deletes their messages, and starts a Spark job that delivers each object once. Once a day the run also scans the bucket,
and finds what the queue lost.

Set the environment variables `EVENTS_QUEUE`, `EVENTS_PATH` and `EVENTS_OUTPUT`, or write your own values here: a
trigger has no params. It needs three connections: `coordination_default` (type coordination), `aws_default` and
`spark_default`.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta

from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.triggers.partitions import PartitionsAvailableTrigger

SOURCE = "announced_events"
QUEUE = os.environ.get("EVENTS_QUEUE", "https://sqs.eu-west-1.amazonaws.com/123456789012/events")
EVENTS = S3Objects(
    paths=os.environ.get("EVENTS_PATH", "s3://events/in/"),
    source=SOURCE,
    queue=QUEUE,
    reconcile=timedelta(days=1),
)

arrivals = Asset(
    "s3_queue_ingestion_arrivals",
    watchers=[AssetWatcher(name="s3_queue_arrivals", trigger=PartitionsAvailableTrigger(source=SOURCE, queue=QUEUE))],
)

with DAG(
    dag_id="s3_queue_ingestion",
    description="Ingest S3 objects on arrival, each once",
    schedule=[arrivals],
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "s3"],
) as dag:
    find = CreatePartitionsOperator(task_id="find_objects", reads=EVENTS, skip_when_empty=True)

    ingest = CoordinatedSparkSubmitOperator(
        task_id="ingest",
        ingestion=Ingestion(reads=EVENTS, writes=ParquetDataset(os.environ.get("EVENTS_OUTPUT", "/data/events"))),
        name="s3-queue-ingest",
    )

    find >> ingest
