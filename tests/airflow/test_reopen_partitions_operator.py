"""The operator reopens what is due, waits for what is due next, or reopens by force."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException, AirflowSkipException, TaskDeferred
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus, format_instant
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.operators.reopen_partitions import ReopenPartitionsOperator
from airflow_provider_coordination.triggers.partitions import PartitionsReopenedTrigger
from tests.support.delivered import status
from tests.support.watched import first_payload

HOUR = timedelta(hours=1)


def reopen(**arguments: Any) -> ReopenPartitionsOperator:
    return ReopenPartitionsOperator(task_id="reopen", source="clicks", **arguments)


def closed(coordination: SourceCoordinator, **reopen_after: timedelta) -> None:
    coordination.create_partitions({key: {} for key in reopen_after})
    coordination.leases.acquire(len(reopen_after))
    for key, after in reopen_after.items():
        coordination.leases.close(key, after)


def parked(coordination: SourceCoordinator, key: str) -> None:
    strict = SourceCoordinator(
        coordination.store, "clicks", "strict", retry_policy=RetryPolicy(max_attempts=1, max_closed_count=0)
    )
    strict.initialize()
    strict.create_partitions({key: {}})
    strict.leases.acquire(1)
    strict.leases.fail(key, "the sink is broken")


def reopens_at(coordination: SourceCoordinator, key: str) -> Any:
    partition = coordination.view.get(key)
    assert partition is not None
    return partition.reopen_at


def deferred(task: ReopenPartitionsOperator, context: Any) -> TaskDeferred:
    with pytest.raises(TaskDeferred) as defers:
        task.execute(context)
    assert isinstance(defers.value.trigger, PartitionsReopenedTrigger)
    return defers.value


def test_due_partitions_are_reopened_at_once(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, a=timedelta(0), b=timedelta(0), c=HOUR)
    summary = reopen(deferrable=True).execute(context)
    assert summary == {
        "source": "clicks",
        "reopened": 2,
        "partition_keys": ["a", "b"],
        "closed": 1,
        "next_reopening": reopens_at(coordination, "c").isoformat(),
    }
    assert json.loads(json.dumps(summary)) == summary
    assert status(coordination, "a") is PartitionStatus.UNASSIGNED


def test_empty_reopening_succeeds_without_waiting(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, a=HOUR)
    summary = reopen(wait="False").execute(context)
    assert (summary["reopened"], summary["closed"]) == (0, 1)


def test_operator_without_closed_partitions_does_not_wait(coordination: SourceCoordinator, context: Any) -> None:
    parked(coordination, "b")
    coordination.create_partitions({"a": {}})
    assert reopen(deferrable=True).execute(context)["next_reopening"] is None


def test_operator_defers_until_the_next_due_partitions_reopen(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, a=timedelta(seconds=1), b=timedelta(seconds=1), c=HOUR)
    coordination.reopen_due()
    task = reopen(deferrable=True)
    waiting = deferred(task, context)

    payload = first_payload(waiting.trigger)

    assert (payload["status"], payload["partitions"], payload["partition_keys"]) == ("reopened", 2, ["a", "b"])
    assert status(coordination, "a") is PartitionStatus.UNASSIGNED
    coordination.leases.acquire(1)  # a job is fast
    summary = reopen(deferrable=True).resume_execution(waiting.method_name, {"event": payload}, context)
    assert (summary["reopened"], summary["partition_keys"], summary["closed"]) == (2, ["a", "b"], 1)


def test_only_named_partitions_are_waited_for(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, a=timedelta(0), b=HOUR, c=2 * HOUR, d=3 * HOUR)
    waiting = deferred(reopen(partition_keys=["a", "b", "c"], deferrable=True), context)
    trigger = waiting.trigger
    assert trigger.reopens_at == format_instant(reopens_at(coordination, "c"))
    assert (trigger.partitions, trigger.partition_keys) == (3, ["a", "b", "c"])


def test_named_partitions_that_are_not_closed_are_ignored(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, a=HOUR)
    coordination.create_partitions({"b": {}})
    assert reopen(partition_keys="b").execute(context)["reopened"] == 0


@pytest.mark.parametrize("force", [False, True])
def test_unknown_partition_fails_without_a_retry(coordination: SourceCoordinator, context: Any, force: bool) -> None:
    with pytest.raises(AirflowFailException, match="source 'clicks' has no partition 'x'; check the key"):
        reopen(partition_keys=["x"], force=force).execute(context)


def test_parked_partition_is_not_waited_for(coordination: SourceCoordinator, context: Any) -> None:
    parked(coordination, "a")
    with pytest.raises(AirflowFailException, match="partition 'a' is parked and never reopens on its own"):
        reopen(partition_keys=["a"]).execute(context)


@pytest.mark.parametrize(("keys", "left"), [(None, 0), (["a", "p", "free"], 1)])
def test_force_reopens_partitions_early_and_parked_ones(
    coordination: SourceCoordinator, context: Any, keys: Sequence[str] | None, left: int
) -> None:
    closed(coordination, a=HOUR, b=HOUR)
    parked(coordination, "p")
    coordination.create_partitions({"free": {}})
    summary = reopen(partition_keys=keys, force=True).execute(context)
    assert (summary["reopened"], summary["closed"]) == (3 - left, left)
    assert [status(coordination, key) for key in ("a", "p")] == [PartitionStatus.UNASSIGNED] * 2
    partition = coordination.view.get("p")
    assert partition is not None and (partition.attempts, partition.last_error) == (0, None)


def test_operator_on_a_worker_pokes_until_partitions_reopen(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, a=timedelta(milliseconds=300))
    summary = reopen(poke_interval=0.1).execute(context)
    assert (summary["reopened"], summary["partition_keys"]) == (1, ["a"])


def test_soft_fail_skips_a_wait_without_a_result(coordination: SourceCoordinator, context: Any) -> None:
    closed(coordination, a=HOUR)
    with pytest.raises(AirflowSkipException):
        reopen(deferrable=True, timeout=0, soft_fail=True).execute(context)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"wait": "perhaps"}, "field 'wait' must be true or false"), ({"partition_keys": [7]}, "field 'partition_keys'")],
)
def test_wrong_settings_fail_without_a_retry(
    coordination: SourceCoordinator, context: Any, wrong: Any, message: str
) -> None:
    with pytest.raises(AirflowFailException, match=message):
        reopen(**wrong).execute(context)
