"""The example DAG of bounded runs: each job receives a `stop_at` at the end of the run's hour."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinesis.positions import AT_TIMESTAMP
from airflow_provider_coordination.spark.outcome import SUMMARY_MARK
from tests.airflow.conftest import REPOSITORY, SECRET, FakeKinesis, StubSpark, run_dag
from tests.support.airflow_dags import DagBag, cron_of


@pytest.fixture(scope="module")
def dag() -> Any:
    bag = DagBag(str(REPOSITORY / "dags"))
    assert bag.import_errors == {}
    return bag.dags["hourly_ingestion"]


def test_dag_runs_hourly_without_overlap(dag: Any) -> None:
    assert cron_of(dag) in ("@hourly", "0 * * * *")
    assert (dag.max_active_runs, dag.catchup) == (1, False)


@pytest.mark.integration
def test_run_stops_at_the_end_of_its_interval(
    dag: Any,
    database: None,
    coordination: SourceCoordinator,
    kinesis: FakeKinesis,
    spark: StubSpark,
    connect: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kinesis.streams["clicks"] = ["s0", "s1"]
    aws = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra=aws)
    (spark.folder / "spark-submit").rename(spark.folder / "spark2-submit")
    connect("spark_default", "spark", host="local[1]", extra={"spark-binary": "spark2-submit"})
    monkeypatch.setenv("PATH", spark.path)
    spark.will(acquire=10, complete=True, lines=[SUMMARY_MARK + '{"records": 7}'])

    done = run_dag(dag, stream="clicks", output_path="/lake/out")

    assert done.state == "success"
    [job_settings] = [call["settings"] for call in spark.calls]
    assert job_settings["reads"]["settings"]["stop_at"] == done.data_interval_end.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    assert job_settings["reads"]["settings"]["on_data_loss"] == "earliest"
    began = {partition.progress["checkpoint"] for partition in coordination.view.partitions()}
    assert all(str(position).startswith(AT_TIMESTAMP) for position in began)
