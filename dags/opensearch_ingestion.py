"""Ingest indices of OpenSearch: each run finds the indices that are new, and delivers each of them once.

For indices that are finished when they are read, such as those of the days that are over: with the params as they
are, the index of the run's own day is left to the next run. Indices that go on changing are read again with
`interval`.

Runnable as it stands with three connections: `coordination_default` (type coordination), `opensearch_default` and
`spark_default`. Set the indices and the output path as params.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.sdk import DAG, Param

from airflow_provider_coordination.operators.reads.opensearch import OpenSearchIndices
from airflow_provider_coordination.operators.writes.parquet import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

with DAG(
    dag_id="opensearch_ingestion",
    description="The documents of OpenSearch's indices, each once, in Parquet",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=30)},
    doc_md=__doc__,
    tags=["coordination", "opensearch"],
    params={
        "indices": Param("logs-*", type="string", minLength=1, description="Their names; * for any characters."),
        "exclude": Param(
            "logs-{{ ds }}", type="string", minLength=1, description="The names of those that are left out."
        ),
        "output_path": Param(
            "/data/logs",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker reaches.",
        ),
    },
) as dag:
    coordinated_ingestion(
        reads=OpenSearchIndices(indices="{{ params.indices }}", exclude="{{ params.exclude }}"),
        writes=ParquetDataset("{{ params.output_path }}"),
        workers="auto",
        name="opensearch-ingestion",
    )
