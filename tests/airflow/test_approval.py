"""A reset waits for a person if it reads again more than a limit, and does what was approved, or nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.bases.notifier import BaseNotifier

from airflow_provider_coordination.airflow_names import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    TaskDeferred,
)
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import Partition, format_instant
from airflow_provider_coordination.operators import approval as approval_module
from airflow_provider_coordination.operators.approval import Amount, Approval
from airflow_provider_coordination.operators.partitions import ResetPartitionsOperator
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key
from tests.support.approvals import Comms, answer, waits

HOUR = timedelta(hours=1)
NOW = datetime.now(UTC).replace(microsecond=0)
SHARDS = ("shardId-000000000000", "shardId-000000000001")
KEYS = [partition_key("s", 7, shard) for shard in SHARDS]


@pytest.fixture(autouse=True)
def shards(coordination: SourceCoordinator) -> None:
    """Two shards that are delivered up to now, at 1 MiB a second."""
    coordination.create_partitions(
        {key: delivered(shard).to_mapping() for key, shard in zip(KEYS, SHARDS, strict=True)}
    )


def delivered(shard: str, until: datetime = NOW, number: int = 5) -> ShardProgress:
    return ShardProgress(
        stream="s", shard_id=shard, parent_shard_ids=(), starting_hash_key="0", ending_hash_key="9",
        checkpoint=str(number), delivered_until=until, throughput=float(2**20),
    )  # fmt: skip


def reset(approval: Approval | None, to: datetime | str = NOW - 2 * HOUR, **arguments: Any) -> ResetPartitionsOperator:
    given = {"partition_keys": KEYS, **arguments}
    return ResetPartitionsOperator(task_id="reset", source="clicks", to=to, approval=approval, **given)


def checkpoints(coordination: SourceCoordinator) -> list[str]:
    return [p.progress["checkpoint"] for key in KEYS if (p := coordination.view.get(key))]


def deliver(coordination: SourceCoordinator, until: datetime, number: int) -> None:
    """Let jobs deliver more of both shards."""
    for key, shard in zip(KEYS, SHARDS, strict=True):
        partition = coordination.view.get(key)
        assert isinstance(partition, Partition)
        changed = partition.with_progress(delivered(shard, until, number).to_mapping())
        coordination.store.transact(update=[changed])


def test_reset_asks_with_all_that_it_would_do(coordination: SourceCoordinator, in_try: Any, comms: Comms) -> None:
    waits(reset(Approval(above=HOUR)), in_try)
    [question] = comms.messages
    assert question.options == ["Approve", "Reject"]
    assert "2 partitions, up to 2 h 0 min of each partition, about 14.1 GiB" in question.subject
    assert f"| `{KEYS[0]}` | `5` | 2 h 0 min | 7.0 GiB |" in question.body
    assert "hold these rows twice" in question.body
    assert checkpoints(coordination) == ["5", "5"]


def test_approved_reset_is_done_and_names_the_person(
    coordination: SourceCoordinator, in_try: Any, comms: Comms, caplog: pytest.LogCaptureFixture
) -> None:
    task = reset(Approval(above=HOUR))
    summary = task.execute_complete(in_try, answer("Approve"), **waits(task, in_try))
    assert summary["reset"] == 2
    assert checkpoints(coordination) == [f"AT_TIMESTAMP:{format_instant(NOW - 2 * HOUR)}"] * 2
    assert "approved by ann" in caplog.text


def test_rejected_or_unanswered_reset_does_nothing(coordination: SourceCoordinator, in_try: Any, comms: Comms) -> None:
    task = reset(Approval(above=HOUR, timeout=HOUR))
    kwargs = waits(task, in_try)
    with pytest.raises(AirflowSkipException, match="nothing was done: it was rejected by ann"):
        task.execute_complete(in_try, answer("Reject"), **kwargs)
    with pytest.raises(AirflowFailException, match="nothing was done: no response arrived in time"):
        task.execute_complete(in_try, {"error": "timeout", "error_type": "timeout"}, **kwargs)
    with pytest.raises(AirflowFailException, match="there was no response: gone"):
        task.execute_complete(in_try, {"error": "gone", "error_type": "unknown"}, **kwargs)
    assert checkpoints(coordination) == ["5", "5"]


@pytest.mark.parametrize("above", [3 * HOUR, 20 * 2**30])
def test_reset_below_the_limit_asks_nobody(
    coordination: SourceCoordinator, in_try: Any, comms: Comms, above: timedelta | int
) -> None:
    assert reset(Approval(above=above)).execute(in_try)["reset"] == 2
    assert comms.messages == []


@pytest.mark.parametrize("above", [10 * HOUR, 2**60])
def test_unknown_amount_counts_as_more_than_any_limit(in_try: Any, comms: Comms, above: timedelta | int) -> None:
    waits(reset(Approval(above=above), to="earliest"), in_try)
    assert "an unknown time, unknown size" in comms.messages[0].subject


def test_reset_that_reads_nothing_again_asks_nobody(in_try: Any, comms: Comms) -> None:
    assert reset(Approval(), to="latest").execute(in_try)["reset"] == 2
    assert comms.messages == []


def test_reset_that_grew_within_the_limit_is_still_approved(
    coordination: SourceCoordinator, in_try: Any, comms: Comms
) -> None:
    task = reset(Approval(above=HOUR))
    kwargs = waits(task, in_try)
    deliver(coordination, NOW + HOUR / 2, 6)
    assert task.execute_complete(in_try, answer("Approve"), **kwargs)["reset"] == 2


@pytest.mark.parametrize("to", [NOW - 2 * HOUR, "earliest"])
def test_reset_that_grew_beyond_its_approval_does_nothing(
    coordination: SourceCoordinator, in_try: Any, comms: Comms, to: datetime | str
) -> None:
    task = reset(Approval(above=HOUR), to=to)
    kwargs = waits(task, in_try)
    deliver(coordination, NOW + 2 * HOUR, 6)
    with pytest.raises(AirflowException, match="not what ann approved: it would now read again") as error:
        task.execute_complete(in_try, answer("Approve"), **kwargs)
    assert not isinstance(error.value, AirflowFailException), "a retry asks again"
    assert checkpoints(coordination) == ["6", "6"]


def test_other_partitions_than_the_approved_are_not_reset(
    coordination: SourceCoordinator, in_try: Any, comms: Comms
) -> None:
    kwargs = waits(reset(Approval(above=HOUR), partition_keys=KEYS[:1]), in_try)
    with pytest.raises(AirflowException, match="other partitions or ranges are affected"):
        reset(Approval(above=HOUR)).execute_complete(in_try, answer("Approve"), **kwargs)
    assert checkpoints(coordination) == ["5", "5"]


def test_size_of_objects_is_known(coordination: SourceCoordinator, in_try: Any, comms: Comms) -> None:
    items = tuple(
        {"uri": f"s3://b/{n}", "size": 2**20, "version": "v", "modified": format_instant(NOW)} for n in range(4)
    )
    progress = PartitionProgress(kind="s3", items=items, checkpoint="2:17")
    coordination.create_partitions({"objects": progress.to_mapping(), "own": {"rows": 3}, "new": {}})
    waits(reset(Approval(above=2 * 2**20), to="earliest", partition_keys=["objects"]), in_try)
    assert "about 3.0 MiB" in comms.messages[0].subject
    waits(reset(Approval(above=2**60), to="earliest", partition_keys=["own"]), in_try)
    assert reset(Approval(), to="earliest", partition_keys=["new"]).execute(in_try)["reset"] == 1


class Bell(BaseNotifier):
    """Rings when a task begins to wait."""

    rung: list[str] = []  # noqa: RUF012 - for the test

    def notify(self, context: Any) -> None:
        self.rung.append(context["ti"].task_id)


def test_question_goes_to_the_named_users_and_notifiers(in_try: Any, comms: Comms) -> None:
    waits(reset(Approval(assigned_users=[{"id": "7", "name": "ann"}], notifiers=[Bell()])), in_try)
    assert [user.name for user in comms.messages[0].assigned_users] == ["ann"]
    assert Bell.rung == ["task"]


@pytest.mark.parametrize("above", [-1, timedelta(seconds=-1), True, "10 GiB", 1.5, None])
def test_wrong_limit_names_its_field(above: Any) -> None:
    with pytest.raises(ValueError, match="field 'above' must be a timedelta, or a number of bytes"):
        Approval(above=above)


@pytest.mark.parametrize("timeout", [timedelta(0), 5])
def test_wrong_timeout_names_its_field(timeout: Any) -> None:
    with pytest.raises(ValueError, match="field 'timeout' must be a positive timedelta"):
        Approval(timeout=timeout)


def test_airflow_without_such_tasks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(approval_module, "NEEDED", ("airflow.sdk.no_such_package.hitl",))
    with pytest.raises(ValueError, match=r"is missing in Airflow .*; upgrade apache-airflow-providers-standard"):
        Approval()


def test_older_airflow_waits_in_the_triggerer(in_try: Any, comms: Comms, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk import exceptions

    monkeypatch.delattr(exceptions, "TaskAwaitingInput", raising=False)
    with pytest.raises(TaskDeferred) as deferred:
        reset(Approval(timeout=HOUR)).execute(in_try)
    assert type(deferred.value.trigger).__name__ == "HITLTrigger"
    assert deferred.value.kwargs is not None and "proposal" in deferred.value.kwargs


def test_growth_of_an_unknown_amount_is_unknown() -> None:
    known, unknown = Amount(span=HOUR, bytes=5), Amount(span=None, bytes=None)
    assert known.since(unknown) == unknown.since(known) == unknown
    assert known.since(Amount(span=HOUR / 2, bytes=2)) == Amount(span=HOUR / 2, bytes=3)
