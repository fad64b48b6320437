"""Ingest a Kinesis stream into Parquet: sync shards -> N Spark jobs under leases -> wait -> summary.

It runs unchanged with three connections: `coordination_default` (type coordination), `aws_default` and
`spark_default`. Trigger it with a stream and an output path; give it a schedule to run it regularly. Runs may overlap:
leases keep two runs of one source apart, and together they deliver each record once.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sensors.partitions import PartitionsCompletedSensor
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.writes import ParquetDataset

WORKERS = 2
"""The number of Spark jobs that share the stream in one run."""

SOURCE = "{{ params.source or params.stream }}"
STREAMS = KinesisStreams("{{ params.stream }}", source=SOURCE)

log = logging.getLogger(__name__)

with DAG(
    dag_id="kinesis_ingestion",
    description="Ingest a Kinesis stream into Parquet, exactly once",
    schedule=None,
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=4,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    doc_md=__doc__,
    tags=["coordination", "kinesis"],
    params={
        "stream": Param(type="string", minLength=1, description="Name of the Kinesis stream."),
        "output_path": Param(
            type="string", minLength=1, description="The dataset: a path or URI that every worker can reach."
        ),
        "output_conn_id": Param(
            None,
            type=["null", "string"],
            description="The AWS connection of an output path on S3; if empty, the AWS default credential chain.",
        ),
        "source": Param(
            None,
            type=["null", "string"],
            description="The source of leases and progress; by default the stream's name.",
        ),
        "transform": Param(
            None,
            type=["null", "string"],
            description="module:function, from DataFrame to DataFrame; by default the raw records are delivered.",
        ),
        "until_caught_up": Param(
            True,
            type="boolean",
            description="Stop once all records that were in the stream at the start are delivered.",
        ),
        "max_idle_rounds": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            description="Stop a job after this number of rounds without a record.",
        ),
        "max_duration": Param(
            None,
            type=["null", "number"],
            exclusiveMinimum=0,
            description="Start no new round after this time, in seconds. The next run delivers the remaining records.",
        ),
        "round_duration": Param(
            None,
            type=["null", "number"],
            exclusiveMinimum=0,
            description="How long a shard is read in one round, in seconds; if empty, the default.",
        ),
        "idle_duration": Param(
            None,
            type=["null", "number"],
            minimum=0,
            description="The pause after a round without a record, in seconds; if empty, the default.",
        ),
    },
) as dag:
    sync = ShardSyncOperator(task_id="sync_shards", reads=STREAMS)

    jobs = CoordinatedSparkSubmitOperator.partial(
        task_id="ingest",
        ingestion=Ingestion(
            reads=STREAMS,
            writes=ParquetDataset("{{ params.output_path }}", aws_conn_id="{{ params.output_conn_id or '' }}"),
            transform="{{ params.transform or '' }}",
            rounds=RoundSettings(
                until_caught_up="{{ params.until_caught_up }}",
                max_idle_rounds="{{ params.max_idle_rounds or '' }}",
                max_duration="{{ params.max_duration or '' }}",
                round_duration="{{ params.round_duration }}",
                idle_duration="{{ params.idle_duration }}",
            ),
        ),
        workers=WORKERS,
        map_index_template="{{ task.name }}",
    ).expand(name=[f"kinesis-ingest-{number}" for number in range(WORKERS)])

    # Another run's job may hold some of the shards. This run is done once they have passed its start as well.
    wait = PartitionsCompletedSensor(
        task_id="wait_for_partitions",
        source=SOURCE,
        delivered_until="{{ dag_run.start_date.isoformat() }}",
        mode="reschedule",
        poke_interval=10,
        timeout=timedelta(minutes=15),
    )

    @task
    def summarize(summaries: list[dict[str, Any]], source: str) -> dict[str, Any]:
        """Log the summaries of the jobs and the status of the partitions."""
        from contextlib import closing

        view = CoordinationHook().view(source)
        with closing(view.store):
            counts = {str(status): count for status, count in view.count_by_status().items()}
        lines = [
            f"{'partitions':<12} {'count':>8}",
            *(f"{status:<12} {n:>8}" for status, n in counts.items()),
        ]
        # The XComs of a mapped task are one lazy sequence.
        jobs = [dict(summary) for summary in summaries]
        for job in jobs:
            lines += ["", *(f"{key:<24} {value}" for key, value in job.items())]
        log.info("source %s\n%s", source, "\n".join(lines))
        return {"source": source, "partitions": counts, "jobs": jobs}

    sync >> jobs >> wait >> summarize(jobs.output, SOURCE)
