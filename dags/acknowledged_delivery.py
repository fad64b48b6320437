"""Deliver a Kinesis stream to staging; a batch counts as delivered only once a check has approved it.

Sync shards -> N Spark jobs land the stream and deliver it to `<output_path>/staging` -> a check reads the staged files
-> the run is done when all its batches are acknowledged. If the check fails, it rejects the batches. Then the next run
delivers the same ranges again, from the landed files, and replaces the files in staging. After three rejections in a
row, a partition waits before the next retry, so that bad data is not delivered endlessly.

It runs unchanged with three connections: `coordination_default` (type coordination), `aws_default` and `spark_default`.
Trigger it with a stream and an output path; give it a schedule to run it regularly.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sensors.acknowledgments import AcknowledgmentSensor
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import AcknowledgmentSettings, RoundSettings
from airflow_provider_coordination.spark.writes import ParquetDataset

WORKERS = 2
"""The number of Spark jobs that share the stream in one run."""

# A separate source, so that another DAG that ingests the same stream does not acquire the shards.
SOURCE = "{{ params.source or params.stream ~ '-checked' }}"
STREAMS = KinesisStreams("{{ params.stream }}", source=SOURCE)
STAGING = "{{ params.output_path }}/staging"

with DAG(
    dag_id="acknowledged_delivery",
    description="Deliver a Kinesis stream once a check has approved it",
    schedule=None,
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=4,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    doc_md=__doc__,
    tags=["coordination", "kinesis", "acknowledgments"],
    params={
        "stream": Param(type="string", minLength=1, description="Name of the Kinesis stream."),
        "output_path": Param(
            type="string",
            minLength=1,
            description="The location of staging: a path or URI that every worker can reach.",
        ),
        "source": Param(
            None,
            type=["null", "string"],
            description="The source of leases and progress; by default the stream's name and -checked.",
        ),
        "required_field": Param(
            None,
            type=["null", "string"],
            description="A field that the JSON of every record must have; by default records are only counted.",
        ),
        "acknowledgment_timeout": Param(
            3600,
            type="number",
            exclusiveMinimum=0,
            description="How long a batch may wait for the check before it is delivered again, in seconds.",
        ),
        "max_idle_rounds": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            description="Stop a job after this number of rounds without a record.",
        ),
    },
) as dag:
    sync = ShardSyncOperator(task_id="sync_shards", reads=STREAMS)

    jobs = CoordinatedSparkSubmitOperator.partial(
        task_id="deliver_to_staging",
        ingestion=Ingestion(
            reads=STREAMS,
            writes=ParquetDataset(STAGING),
            acknowledgments=AcknowledgmentSettings(by="downstream", timeout="{{ params.acknowledgment_timeout }}"),
            rounds=RoundSettings(max_idle_rounds="{{ params.max_idle_rounds or '' }}"),
        ),
        workers=WORKERS,
        map_index_template="{{ task.name }}",
    ).expand(name=[f"acknowledged-delivery-{number}" for number in range(WORKERS)])

    # If one job failed, the other job's batches are still checked.
    @task.acknowledges(source=SOURCE, trigger_rule="all_done")
    def check(acknowledgment_sets: list[dict[str, Any]], staging: str, required_field: str) -> dict[str, int]:
        """Read the batches that this run delivered; return their counts, or fail with the error."""
        import pyarrow.parquet as pq

        records = 0
        for each in acknowledgment_sets:
            file = f"{staging}/{each['batch_id']}.parquet"
            payloads = pq.read_table(file, columns=["data"])["data"].to_pylist()
            # Retries do not improve bad data, so it is rejected at once. Other failures are retried first.
            if len(payloads) != each["batch"]["records"]:
                raise AirflowFailException(f"{file} has {len(payloads)} records, not {each['batch']['records']}")
            for number, payload in enumerate(payloads):
                if required_field and required_field not in json.loads(payload):
                    raise AirflowFailException(f"{file}: record {number} has no field {required_field!r}")
            records += len(payloads)
        return {"batches": len(acknowledgment_sets), "records": records}

    checked = check(staging=STAGING, required_field="{{ params.required_field or '' }}")  # type: ignore[call-arg]

    # Also detects a check that acknowledged too late.
    acknowledged = AcknowledgmentSensor(
        task_id="wait_for_acknowledgments", source=SOURCE, deferrable=True, timeout=timedelta(hours=2)
    )

    sync >> jobs >> checked >> acknowledged
    jobs >> acknowledged
