"""The example DAG: rejected batches are delivered again, and approved batches are acknowledged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.airflow.conftest import REPOSITORY, SECRET, FakeKinesis, StubSpark, run_dag
from tests.support.airflow_dags import DagBag

GOOD, BAD = json.dumps({"user": 1}), json.dumps({"usr": 1})


@pytest.fixture(scope="module")
def dag() -> Any:
    bag = DagBag(str(REPOSITORY / "dags" / "acknowledged_delivery.py"))
    assert bag.import_errors == {}
    return bag.dags["acknowledged_delivery"]


def test_tasks_run_from_sync_through_jobs_and_check_to_wait(dag: Any) -> None:
    edges = {(up.task_id, down) for up in dag.tasks for down in up.downstream_task_ids}
    assert edges == {
        ("sync_shards", "deliver_to_staging"),
        ("deliver_to_staging", "check"),
        ("deliver_to_staging", "wait_for_acknowledgments"),
        ("check", "wait_for_acknowledgments"),
    }


def test_every_task_is_retried_and_every_param_is_documented(dag: Any) -> None:
    assert {task.retries for task in dag.tasks} == {2}
    assert all(dag.params.get_param(name).description for name in dag.params)


@pytest.fixture
def checked(coordination: SourceCoordinator) -> SourceCoordinator:
    """Look at the DAG's own source."""
    coordinator = SourceCoordinator(coordination.store, "clicks-checked", "test")
    coordinator.initialize()
    return coordinator


@pytest.fixture
def run(
    dag: Any,
    database: None,
    checked: SourceCoordinator,
    kinesis: FakeKinesis,
    spark: StubSpark,
    connect: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., dict[str, str]]:
    kinesis.streams["clicks"] = ["s0", "s1"]
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIA", password=SECRET, extra=extra)
    (spark.folder / "spark-submit").rename(spark.folder / "spark2-submit")
    connect("spark_default", "spark", host="local[1]", extra={"spark-binary": "spark2-submit"})
    monkeypatch.setenv("PATH", spark.path)

    def once(*payloads: str, **params: Any) -> dict[str, str]:
        """Run the DAG with a job that delivers these payloads for each shard; return how its tasks ended."""
        spark.will(deliver=payloads)
        done = run_dag(dag, stream="clicks", output_path=str(tmp_path / "lake"), **params)
        return {ti.task_id: str(ti.state) for ti in done.get_task_instances()} | {"run": str(done.state)}

    return once


def progress(checked: SourceCoordinator) -> list[ShardProgress]:
    return [ShardProgress.from_mapping(partition.progress) for partition in checked.view.partitions()]


@pytest.mark.integration  # needs no server, but half a minute
def test_rejected_batches_are_delivered_again_by_the_next_run(
    run: Any, checked: SourceCoordinator, tmp_path: Path
) -> None:
    ended = run(GOOD, BAD, required_field="user")
    assert (ended["check"], ended["wait_for_acknowledgments"], ended["run"]) == ("failed", "upstream_failed", "failed")
    rejected = [shard.landed[0] for shard in progress(checked)]
    assert [(batch.redeliver, batch.acknowledged) for batch in rejected] == [(True, False)] * 2
    for partition in checked.view.partitions():
        assert partition.attempts == 1 and partition.last_error is not None
        assert "record 1 has no field 'user'" in partition.last_error

    assert set(run(GOOD, GOOD, required_field="user").values()) == {"success"}
    assert [shard.checkpoint for shard in progress(checked)] == [batch.end for batch in rejected]
    staged = {file.stem for file in (tmp_path / "lake" / "staging").glob("*.parquet")}
    assert staged == {batch.batch_id for batch in rejected}
