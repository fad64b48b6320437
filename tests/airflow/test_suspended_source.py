"""A suspended source: tasks start no job, sensors and triggers keep waiting, and repairs work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowSkipException, TaskDeferred
from airflow_provider_coordination.coordination import suspension
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.suspension import KEY
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.operators.create_partitions import CreatePartitionsOperator, work_for_jobs
from airflow_provider_coordination.operators.job_follower import JobFollower
from airflow_provider_coordination.operators.partitions import ReleasePartitionsOperator, ResetPartitionsOperator
from airflow_provider_coordination.operators.reopen_partitions import ReopenPartitionsOperator
from airflow_provider_coordination.operators.shard_sync import ShardSyncOperator
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sensors.partitions import PartitionsAvailableSensor, PartitionsCompletedSensor
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.writes import ParquetDataset
from airflow_provider_coordination.task_groups import ingestion
from airflow_provider_coordination.triggers.partitions import PartitionsReopenedTrigger
from tests.airflow.conftest import SECRET, FakeKinesis, StubSpark
from tests.airflow.weather import weather
from tests.support.delivered import status
from tests.support.ingestions import with_ingestion
from tests.support.watched import first_payload

IS_SUSPENDED = r"source '{}' is suspended by ann since \S+Z: the table is migrated"


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everybody hear of a suspension at the next look."""
    monkeypatch.setattr(suspension, "CACHE_SECONDS", 0.0)


def suspend(coordinator: SourceCoordinator) -> None:
    coordinator.view.suspensions.suspend("ann", "the table is migrated")


def resumes(coordinator: SourceCoordinator) -> Callable[[], object]:
    return lambda: coordinator.view.suspensions.resume("bob")


@pytest.fixture
def suspended(coordination: SourceCoordinator) -> SourceCoordinator:
    """The source `clicks`, with a partition that waits, suspended."""
    coordination.create_partitions({"a": {}})
    suspend(coordination)
    return coordination


def of_weather(coordination: SourceCoordinator) -> SourceCoordinator:
    coordinator = SourceCoordinator(coordination.store, "weather", "test")
    coordinator.initialize()
    return coordinator


# Jobs


@pytest.fixture
def ingest(connect: Any, spark: StubSpark, tmp_path: Path) -> Callable[..., CoordinatedSparkSubmitOperator]:
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra={"region_name": "eu-west-1"})

    def make(**arguments: Any) -> CoordinatedSparkSubmitOperator:
        defaults = {
            "reads": KinesisStreams("clicks"),
            "writes": ParquetDataset(str(tmp_path / "out")),
            "env_vars": {"PATH": spark.path},
        }
        return CoordinatedSparkSubmitOperator(task_id="ingest", **with_ingestion(defaults | arguments))

    return make


@pytest.mark.parametrize("deferrable", [False, True])
def test_job_of_a_suspended_source_is_skipped_before_submission(
    suspended: SourceCoordinator, ingest: Any, spark: StubSpark, context: Any, deferrable: bool
) -> None:
    with pytest.raises(
        AirflowSkipException,
        match=IS_SUSPENDED.format("clicks") + "; no job is started until `airflow-coordination resume` resumes it",
    ):
        ingest(deferrable=deferrable).execute(context)
    assert spark.calls == [] and Jobs(suspended.view).unfinished() == []


def test_job_of_an_earlier_try_is_followed_to_its_end(
    suspended: SourceCoordinator, ingest: Any, spark: StubSpark, context: Any
) -> None:
    connection = CoordinationHook().settings
    job_settings = ingest(deferrable=True).job_settings(connection, context)
    JobFollower(connection=connection, source="clicks", task="dag/run/task/3").submit(job_settings, None)
    with pytest.raises(TaskDeferred) as defers:
        ingest(deferrable=True).execute(context)
    assert defers.value.trigger.owner == job_settings.owner and spark.calls == []  # type: ignore[attr-defined]


def test_task_without_remaining_work_succeeds(coordination: SourceCoordinator, ingest: Any, context: Any) -> None:
    source = of_weather(coordination)
    source.create_partitions({"oslo": {}})
    source.leases.acquire(1)
    source.leases.complete("oslo")
    suspend(source)
    assert ingest(reads=weather()).execute(context)["stopped_because"] == "nothing is left to do"


def test_resumed_source_submits_jobs(suspended: SourceCoordinator, ingest: Any, spark: StubSpark, context: Any) -> None:
    resumes(suspended)()
    ingest().execute(context)
    assert len(spark.calls) == 1


def test_group_plans_no_job_and_logs_the_reason(
    suspended: SourceCoordinator, context: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ingestion, "get_current_context", lambda: context)
    arguments: dict[str, Any] = {
        "name": "x",
        "workers": 2,
        "max_workers": 4,
        "partitions_per_worker": 16,
        "coordination_conn_id": CoordinationHook.default_conn_name,
    }
    for shared in (True, False):
        assert ingestion.plan_jobs({"source": "clicks"}, shared=shared, **arguments) == []
    assert "no job is started, the source is suspended by ann since" in caplog.text
    resumes(suspended)()
    assert ingestion.plan_jobs({"source": "clicks"}, shared=True, **arguments) == ["x-0"]


def test_suspended_source_has_no_work_for_jobs(suspended: SourceCoordinator) -> None:
    suspended.view.suspensions.invalidate()
    assert work_for_jobs(suspended.view, 9, shared=True) == 0


# What discovers work


def test_supplier_creates_no_partitions_and_reports_the_reason(coordination: SourceCoordinator, context: Any) -> None:
    source = of_weather(coordination)
    suspend(source)
    summary = CreatePartitionsOperator(task_id="create", reads=weather()).execute(context)
    assert summary["supplier"].startswith("did not run: the source is suspended by ann since ")
    assert (summary["created"], summary["available"]) == (0, False)
    with pytest.raises(AirflowSkipException, match=IS_SUSPENDED.format("weather")):
        CreatePartitionsOperator(task_id="create", reads=weather(), skip_when_empty=True).execute(context)
    assert list(source.view.partitions()) == []


def test_shard_sync_does_nothing_and_reports_the_reason(
    coordination: SourceCoordinator, connect: Any, kinesis: FakeKinesis, context: Any
) -> None:
    extra = {"region_name": "eu-west-1", "endpoint_url": kinesis.url}
    connect("aws_default", "aws", login="AKIAEXAMPLE", password=SECRET, extra=extra)
    kinesis.streams["clicks"] = ["shardId-000000000000"]
    suspend(coordination)
    summary = ShardSyncOperator(task_id="sync", reads=KinesisStreams("clicks")).execute(context)
    assert summary["skipped"].startswith("the source is suspended by ann since ")
    assert list(coordination.view.partitions()) == [] and kinesis.requests == []


# What waits


def test_available_sensor_waits_until_the_source_is_resumed(suspended: SourceCoordinator, context: Any) -> None:
    sensor = PartitionsAvailableSensor(task_id="wait", source="clicks", deferrable=True)
    assert not sensor.poke(context).is_done
    with pytest.raises(TaskDeferred) as defers:
        sensor.execute(context)
    assert first_payload(defers.value.trigger, while_waiting=resumes(suspended))["status"] == "available"


def test_completion_sensor_keeps_waiting_and_logs_the_reason(
    suspended: SourceCoordinator, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert not PartitionsCompletedSensor(task_id="wait", source="clicks").poke(context).is_done
    assert "source is suspended by ann since" in caplog.text


def reopening(**arguments: Any) -> ReopenPartitionsOperator:
    return ReopenPartitionsOperator(task_id="reopen", source="clicks", deferrable=True, **arguments)


def closed(coordination: SourceCoordinator, **reopen_after: timedelta) -> None:
    coordination.create_partitions({key: {} for key in reopen_after})
    coordination.leases.acquire(len(reopen_after))
    for key, after in reopen_after.items():
        coordination.leases.close(key, after)


@pytest.mark.parametrize("after", [0.0, 0.3], ids=["due", "due soon"])
def test_trigger_fires_once_reopened_partitions_are_acquirable(
    coordination: SourceCoordinator, context: Any, after: float
) -> None:
    closed(coordination, a=timedelta(seconds=after))
    suspend(coordination)
    with pytest.raises(TaskDeferred) as defers:
        reopening().execute(context)
    assert isinstance(defers.value.trigger, PartitionsReopenedTrigger)

    def is_reopened_and_resumes() -> None:
        pause = threading.Event()
        while status(coordination, "a") is not PartitionStatus.UNASSIGNED:
            pause.wait(0.01)
        resumes(coordination)()

    payload = first_payload(defers.value.trigger, while_waiting=is_reopened_and_resumes)
    summary = reopening().resume_execution(defers.value.method_name, {"event": payload}, context)
    assert (summary["reopened"], summary["partition_keys"]) == (1, ["a"])


def test_early_reopening_event_waits_again(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, a=timedelta(0))
    suspend(coordination)
    with pytest.raises(TaskDeferred) as defers:
        reopening().execute(context)
    trigger = defers.value.trigger
    event = {name: getattr(trigger, name) for name in ("reopens_at", "partitions", "partition_keys", "deadline")} | {
        "status": "reopened"
    }
    with pytest.raises(TaskDeferred):
        reopening().resume_execution(defers.value.method_name, {"event": event}, context)


def test_reopening_without_waiting_reopens_at_once(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, a=timedelta(0))
    suspend(coordination)
    assert reopening(wait=False).execute(context)["reopened"] == 1


def test_reopening_without_due_partitions_waits_for_nothing(suspended: SourceCoordinator, context: Any) -> None:
    assert reopening().execute(context)["reopened"] == 0


# Repair


def test_manual_repairs_work_in_a_suspended_source(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, b=timedelta(hours=1))
    coordination.create_partitions({"a": {}, "c": {"n": 1}})
    coordination.leases.acquire(1)
    suspend(coordination)
    of_clicks: dict[str, Any] = {"task_id": "repair", "source": "clicks"}
    assert ReleasePartitionsOperator(partition_keys="a", force=True, **of_clicks).execute(context)["released"] == 1
    assert ReopenPartitionsOperator(partition_keys="b", force=True, **of_clicks).execute(context)["reopened"] == 1
    assert ResetPartitionsOperator(partition_keys="c", to="earliest", **of_clicks).execute(context)["reset"] == 1
    assert {status(coordination, key) for key in "abc"} == {PartitionStatus.UNASSIGNED}
    assert coordination.store.get("clicks|SUPERVISOR", KEY) is not None


def test_log_names_the_task_and_run_of_a_repair(
    coordination: SourceCoordinator, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    coordination.create_partitions({"a": {}})
    coordination.leases.acquire(1)
    with caplog.at_level("INFO"):
        ReleasePartitionsOperator(task_id="repair", source="clicks", partition_keys="a", force=True).execute(context)
    assert "partition released by hand: " in caplog.text and "by=dag.task reason='run run'" in caplog.text
