"""The example that ingests objects of S3, as Airflow parses it."""

from __future__ import annotations

from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.s3.kind import FORMATS, S3Objects
from tests.conftest import REPOSITORY
from tests.support.airflow_dags import DagBag


def test_example_finds_objects_and_reads_them() -> None:
    bag = DagBag(str(REPOSITORY / "dags" / "s3_ingestion.py"))
    assert bag.import_errors == {}
    dag = bag.dags["s3_ingestion"]
    find, ingest = dag.get_task("find_objects"), dag.get_task("ingest")
    assert isinstance(find, CreatePartitionsOperator) and isinstance(ingest, CoordinatedSparkSubmitOperator)
    assert find.downstream_task_ids == {"ingest"} and find.skip_when_empty
    assert isinstance(find.reads, S3Objects) and find.reads == ingest.ingestion.reads
    assert tuple(dag.params.get_param("format").schema["enum"]) == FORMATS
