"""A custom source: a function finds the items, a class reads them, and Spark jobs share them.

Here the source is a folder of text files with one JSON event a line. `find_files` yields the files. The reader, in
`dags/own_source_reader.py`, is shipped to Spark by `py_files`. Everything else is the same as for every source: leases,
progress, exactly-once delivery into Parquet. The number of jobs follows the number of waiting files.

It runs unchanged with two connections: `coordination_default` (type coordination) and `spark_default`; set the
folder and the output path as params.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task

from airflow_provider_coordination.sources.own_source import Items
from airflow_provider_coordination.spark.ingestion import Ingestion
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups.ingestion import coordinated_ingestion

READER = Path(__file__).with_name("own_source_reader.py")

EVENTS = Items(
    kind="event_files",
    reader="own_source_reader:EventFiles",
    reader_settings={"root": "{{ params.folder }}"},
    located_by=["root"],
    source="{{ params.source }}",
)

with DAG(
    dag_id="own_source",
    description="Ingest files of events by a custom source into Parquet, exactly once",
    schedule=None,
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    doc_md=__doc__,
    tags=["coordination"],
    params={
        "folder": Param("/data/events", type="string", minLength=1, description="The folder of the files."),
        "output_path": Param(
            "/data/own_source",
            type="string",
            minLength=1,
            description="The dataset: a path or URI that every worker can reach.",
        ),
        "source": Param("own_source", type="string", minLength=1, description="The name of the source."),
    },
):

    @task.partitions(reads=EVENTS)
    def find_files(folder: str) -> Iterator[dict[str, Any]]:
        """Yield each file. Its name is the partition key, so a known file is left alone."""
        for file in sorted(Path(folder).glob("*.jsonl")):
            yield {"key": file.name, "size": file.stat().st_size}

    coordinated_ingestion(
        Ingestion(
            reads=EVENTS,
            writes=ParquetDataset("{{ params.output_path }}"),
        ),
        partitions=find_files("{{ params.folder }}"),
        workers="auto",
        max_workers=2,
        partitions_per_worker=4,
        py_files=str(READER),
        name="own-source",
    )
