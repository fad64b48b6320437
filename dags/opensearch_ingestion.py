"""Ingest OpenSearch indices: each run finds new indices, and delivers each one once.

It is for indices that no longer change when they are read, such as those of past days. With the default params, a run
leaves the index of its own day to the next run. To read changing indices again, use `interval`.

It runs unchanged with three connections: `coordination_default` (type coordination), `opensearch_default` and
`spark_default`. Set the indices and the output path as params.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.sources.opensearch.kind import OpenSearchIndices
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

with DAG(
    dag_id="opensearch_ingestion",
    description="Ingest the documents of OpenSearch indices into Parquet, each once",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "opensearch"],
    params={
        "indices": Param(
            "logs-*", type="string", minLength=1, description="The names of the indices; * for any characters."
        ),
        "exclude": Param(
            "logs-{{ ds }}", type="string", minLength=1, description="The names of the indices to leave out."
        ),
        "output_path": Param(
            "/data/logs",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker can reach.",
        ),
    },
) as dag:
    coordinated_ingestion(
        Ingestion(
            reads=OpenSearchIndices(indices="{{ params.indices }}", exclude="{{ params.exclude }}"),
            writes=ParquetDataset("{{ params.output_path }}"),
        ),
        workers="auto",
        name="opensearch-ingestion",
    )
