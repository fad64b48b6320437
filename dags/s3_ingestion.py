"""Ingest the objects below a prefix of S3, or the files of a folder: each once, by its name and version.

Each run looks for objects that are new, packs them into partitions that take about as long as each other, and starts a
Spark job that delivers them; a run that finds nothing new ends there. Runs may overlap: what one job has leased the
other leaves alone. An object that is damaged becomes a partition of its own, which rests and is tried again.

Runnable as it stands with three connections: `coordination_default` (type coordination), `aws_default` and
`spark_default`. Set the path, the format and the output path as params.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.reads.s3 import S3Objects
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.operators.writes.parquet import ParquetDataset

EVENTS = S3Objects(
    paths="{{ params.path }}",
    source="{{ params.source }}",
    format="{{ params.format }}",
    format_options={"columns": "{{ params.columns }}"},
)

with DAG(
    dag_id="s3_ingestion",
    description="Objects of S3, each once, in Parquet",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "s3"],
    params={
        "path": Param(
            "s3://events/in/",
            type="string",
            minLength=1,
            description="Where the objects are: s3://bucket/prefix, or a folder that every worker reaches.",
        ),
        "source": Param("events", type="string", minLength=1, description="The source's name."),
        "format": Param("json", enum=["csv", "json", "parquet", "text"], description="What the objects hold."),
        "columns": Param(
            "", type="string", description="Columns and types, as `id BIGINT, name STRING`; empty for the format's own."
        ),
        "output_path": Param(
            "/data/events",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker reaches.",
        ),
    },
) as dag:
    find = CreatePartitionsOperator(task_id="find_objects", reads=EVENTS, skip_when_empty=True)

    ingest = CoordinatedSparkSubmitOperator(
        task_id="ingest",
        reads=EVENTS,
        writes=ParquetDataset("{{ params.output_path }}"),
        name="s3-ingest",
    )

    find >> ingest
