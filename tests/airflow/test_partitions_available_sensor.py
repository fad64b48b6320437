"""The sensors of partitions can wait in the triggerer; one of them waits for work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException, TaskDeferred
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.sensors.partitions import PartitionsAvailableSensor, PartitionsCompletedSensor
from airflow_provider_coordination.triggers.partitions import PartitionsAvailableTrigger, PartitionsCompletedTrigger
from tests.support.watched import first_payload

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def poke(context: Any) -> Any:
    return PartitionsAvailableSensor(task_id="wait", source="clicks").poke(context)


def deferred(task: Any, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as defers:
        task.execute(context)
    return defers.value


def test_sensor_succeeds_once_a_partition_is_available(coordination: SourceCoordinator, context: Any) -> None:
    assert not poke(context).is_done
    coordination.create_partitions({"a": {}, "b": {}})
    answer = poke(context)
    assert answer.is_done
    assert answer.xcom_value == {"UNASSIGNED": 2, "ASSIGNED": 0, "CLOSED": 0, "COMPLETED": 0}
    coordination.leases.acquire(2)
    assert not poke(context).is_done


def test_closed_partition_is_work_once_due(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {}})
    coordination.leases.acquire(1)
    coordination.leases.close("a", timedelta(hours=1))
    assert not poke(context).is_done
    coordination.create_partitions({"b": {}})
    coordination.leases.acquire(1)
    coordination.leases.close("b", timedelta(0))
    assert poke(context).is_done


def test_each_poll_logs_the_source_status_in_one_line(
    coordination: SourceCoordinator, context: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    poke(context)
    said = capsys.readouterr().out
    assert "source clicks: UNASSIGNED 0, ASSIGNED 0, CLOSED 0, COMPLETED 0; waiting for work" in said


def test_bad_connection_fails_without_a_retry(context: Any) -> None:
    with pytest.raises(AirflowFailException, match="connection 'coordination_default' is not defined"):
        poke(context)


def test_sensor_defers_until_work_is_available(coordination: SourceCoordinator, context: Any) -> None:
    task = PartitionsAvailableSensor(task_id="wait", source="clicks", deferrable=True)
    waiting = deferred(task, context)
    assert isinstance(waiting.trigger, PartitionsAvailableTrigger)

    payload = first_payload(waiting.trigger, while_waiting=lambda: coordination.create_partitions({"a": {}}))

    assert task.resume_execution(waiting.method_name, {"event": payload}, context)["UNASSIGNED"] == 1


def test_work_taken_by_another_worker_defers_again(coordination: SourceCoordinator, context: Any) -> None:
    task = PartitionsAvailableSensor(task_id="wait", source="clicks", deferrable=True)
    event = {"status": "available", "deadline": deferred(task, context).trigger.deadline}
    with pytest.raises(TaskDeferred):
        task.resume_execution("poll_again", {"event": event}, context)


def completed(**arguments: Any) -> PartitionsCompletedSensor:
    return PartitionsCompletedSensor(task_id="wait", source="clicks", deferrable=True, **arguments)


def test_completion_sensor_defers(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {}})
    coordination.leases.acquire(1)
    task = completed(delivered_until=NOON.isoformat())
    waiting = deferred(task, context)
    assert isinstance(waiting.trigger, PartitionsCompletedTrigger)
    assert waiting.trigger.delivered_until == "2026-01-31T12:00:00.000000Z"

    payload = first_payload(waiting.trigger, while_waiting=lambda: coordination.leases.complete("a"))

    assert task.resume_execution(waiting.method_name, {"event": payload}, context)["COMPLETED"] == 1


def test_completion_sensor_polls_once_before_it_defers(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {}})
    coordination.leases.acquire(1)
    coordination.leases.complete("a")
    assert completed().execute(context)["COMPLETED"] == 1


def test_parked_partition_fails_the_deferred_task(coordination: SourceCoordinator, context: Any) -> None:
    strict = SourceCoordinator(
        coordination.store, "clicks", "strict", retry_policy=RetryPolicy(max_attempts=1, max_closed_count=0)
    )
    strict.initialize()
    strict.create_partitions({"a": {}})
    strict.leases.acquire(1)
    waiting = deferred(completed(), context)

    payload = first_payload(waiting.trigger, while_waiting=lambda: strict.leases.fail("a", "the sink is broken"))

    assert payload["status"] == "parked"
    assert [p.status for p in strict.view.partitions()] == [PartitionStatus.CLOSED]
    with pytest.raises(AirflowFailException, match="parked: a \\(failures: 1, last error: the sink is broken\\)"):
        completed().resume_execution("poll_again", {"event": payload}, context)
