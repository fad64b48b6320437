"""The DAGs that `airflow-coordination init` writes are loaded by Airflow, for every kind of source and sink."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_provider_coordination.cli.app import application
from tests.support.airflow_dags import DagBag, cron_of
from tests.support.first_ingestions import SINK_OPTIONS, SOURCE_OPTIONS

PAIRS = [(source, sink) for source in SOURCE_OPTIONS for sink in SINK_OPTIONS]


def write(folder: Path, name: str, source: str, sink: str, *options: str) -> None:
    """Write the DAG of a source and a sink, as the command does."""
    files = ("--dag-file", str(folder / f"{name}.py"), "--name", name)
    given = ("--source", source, *SOURCE_OPTIONS[source], "--sink", sink, *SINK_OPTIONS[sink], *files, *options)
    result = CliRunner().invoke(application(), ["init", *given], catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> DagBag:
    folder = tmp_path_factory.mktemp("dags")
    for source, sink in PAIRS:
        write(folder, f"{source}-{sink}", source, sink, "--coordination-conn-id", "leases", "--spark-conn-id", "yarn")
        write(folder, f"{source}-{sink}-always", source, sink, "--supervised")
    return DagBag(str(folder))


def test_every_dag_is_loaded(bag: DagBag) -> None:
    assert bag.import_errors == {}
    names = [f"{source}-{sink}" for source, sink in PAIRS]
    assert sorted(bag.dags) == sorted([*names, *(f"supervise_{name}-always" for name in names)])


@pytest.mark.parametrize(
    ("source", "finder", "cron"),
    [("kinesis", "ShardSyncOperator", "*/10 * * * *"), ("s3", "CreatePartitionsOperator", "0 * * * *")],
)
def test_scheduled_dag_ingests_by_the_spec(bag: DagBag, source: str, finder: str, cron: str) -> None:
    dag = bag.dags[f"{source}-parquet"]
    job = dag.get_task("ingestion.ingest")
    assert type(dag.get_task("ingestion.create_partitions")).__name__ == finder
    assert cron_of(dag) == cron
    assert (job.partial_kwargs["coordination_conn_id"], job.partial_kwargs["conn_id"]) == ("leases", "yarn")


def test_supervised_dag_reads_the_spec_beside_it(bag: DagBag) -> None:
    dag = bag.dags["supervise_kinesis-delta-always"]
    [task] = dag.tasks
    assert Path(task.spec_file) == Path(dag.fileloc).parent / "specs" / "kinesis-delta-always.yaml"
