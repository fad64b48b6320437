"""The example DAG: imports when nothing is up, and has the expected graph."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.settings import read_settings
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.outcome import SUMMARY_MARK
from tests.airflow.conftest import CREATION_EPOCH, REPOSITORY, SECRET, FakeKinesis, StubSpark, run_dag
from tests.support.airflow_dags import DagBag


@pytest.fixture(scope="module")
def dag() -> Any:
    bag = DagBag(str(REPOSITORY / "dags"))
    assert bag.import_errors == {}
    return bag.dags["kinesis_ingestion"]


def test_tasks_run_from_sync_through_jobs_to_the_summary(dag: Any) -> None:
    edges = {(up.task_id, down) for up in dag.tasks for down in up.downstream_task_ids}
    assert edges == {
        ("sync_shards", "ingest"),
        ("ingest", "wait_for_partitions"),
        ("ingest", "summarize"),
        ("wait_for_partitions", "summarize"),
    }


def test_jobs_are_mapped(dag: Any) -> None:
    assert dag.get_task("ingest").is_mapped
    assert dag.get_task("ingest").partial_kwargs["workers"] == 2


def test_every_task_is_retried_and_runs_may_overlap(dag: Any) -> None:
    assert {task.retries for task in dag.tasks} == {2}
    assert dag.max_active_runs > 1


def test_run_needs_a_stream_and_an_output_path(dag: Any) -> None:
    params = dag.params
    for name in ("stream", "output_path"):
        with pytest.raises(Exception, match=r"No value passed|is too short"):
            params.get_param(name).resolve()
    assert params["until_caught_up"] is True


def test_every_param_is_documented(dag: Any) -> None:
    assert "until_caught_up" in dag.params
    assert all(param.description for param in (dag.params.get_param(name) for name in dag.params))


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_run_goes_from_sync_to_summary(
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
    # By another name that the provider allows, as spark-submit itself is found beside this Python.
    (spark.folder / "spark-submit").rename(spark.folder / "spark2-submit")
    connect("spark_default", "spark", host="local[1]", extra={"spark-binary": "spark2-submit"})
    monkeypatch.setenv("PATH", spark.path)
    spark.will(acquire=10, complete=True, lines=[SUMMARY_MARK + '{"records": 7}'])

    done = run_dag(dag, stream="clicks", output_path="/lake/out", max_idle_rounds=3, max_duration=60, idle_duration=0)

    assert done.state == "success"
    submitted = [call["settings"] for call in spark.calls]
    assert {
        (tuple(t["reads"]["settings"]["streams"]), t["source"], t["writes"][0]["location"], t["workers"])
        for t in submitted
    } == {(("clicks",), "clicks", "/lake/out", 2)}
    rounds = [read_settings(RoundSettings, "rounds", t["rounds"]) for t in submitted]
    expected = RoundSettings(max_idle_rounds=3, max_duration=timedelta(minutes=1), idle_duration=timedelta(0))
    assert rounds == [expected, expected]
    assert {t["transform"] for t in submitted} == {None}
    names = {call["arguments"][call["arguments"].index("--name") + 1] for call in spark.calls}
    assert names == {"kinesis-ingest-0", "kinesis-ingest-1"}
    assert [p.partition_key for p in coordination.view.partitions()] == [
        f"clicks:{CREATION_EPOCH}:s0",
        f"clicks:{CREATION_EPOCH}:s1",
    ]
    (summary,) = [ti.xcom_pull(task_ids="summarize") for ti in done.get_task_instances() if ti.task_id == "summarize"]
    assert summary["partitions"] == {"UNASSIGNED": 0, "ASSIGNED": 0, "CLOSED": 0, "COMPLETED": 2}
    assert sorted(job["owner"] for job in summary["jobs"]) == sorted(t["owner"] for t in submitted)
    assert [job["records"] for job in summary["jobs"]] == [7, 7]
