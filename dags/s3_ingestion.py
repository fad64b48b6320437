"""Ingest the objects below an S3 prefix, or the files of a folder: each one once, by its name and version.

Each run finds new objects, packs them into partitions of similar duration, and starts a Spark job that delivers them. A
run that finds nothing new ends there. Runs may overlap: a job leaves partitions alone that another job has leased. A
damaged object becomes its own partition, which waits and is retried.

It runs unchanged with three connections: `coordination_default` (type coordination), `aws_default` and
`spark_default`. Set the path, the format and the output path as params.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset

EVENTS = S3Objects(
    paths="{{ params.path }}",
    source="{{ params.source }}",
    format="{{ params.format }}",
    format_options={"columns": "{{ params.columns }}"},
)

with DAG(
    dag_id="s3_ingestion",
    description="Ingest S3 objects into Parquet, each once",
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
            description="The location of the objects: s3://bucket/prefix, or a folder that every worker can reach.",
        ),
        "source": Param("events", type="string", minLength=1, description="The name of the source."),
        "format": Param(
            "json", enum=["avro", "csv", "json", "orc", "parquet", "text"], description="The format of the objects."
        ),
        "columns": Param(
            "",
            type="string",
            description="Columns and types, such as `id BIGINT, name STRING`; if empty, those of the format.",
        ),
        "output_path": Param(
            "/data/events",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker can reach.",
        ),
    },
) as dag:
    find = CreatePartitionsOperator(task_id="find_objects", reads=EVENTS, skip_when_empty=True)

    ingest = CoordinatedSparkSubmitOperator(
        task_id="ingest",
        ingestion=Ingestion(
            reads=EVENTS,
            writes=ParquetDataset("{{ params.output_path }}"),
        ),
        name="s3-ingest",
    )

    find >> ingest
