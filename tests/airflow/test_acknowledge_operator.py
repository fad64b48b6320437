"""A task acknowledges or rejects batches that await an acknowledgment from outside the job."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.operators.acknowledge import AcknowledgeOperator
from tests.support.delivered import RUN, delivered, state, status, the_set

ACKNOWLEDGED, PENDING, REJECTED = (AcknowledgmentState[name] for name in ("ACKNOWLEDGED", "PENDING", "REJECTED"))


def acknowledge(context: Any, **arguments: Any) -> dict[str, Any]:
    return AcknowledgeOperator(task_id="acknowledge", source="clicks", **arguments).execute(context)


def at(**changes: Any) -> dict[str, Any]:
    """Return the context of a task try."""
    ti = {"dag_id": "dag", "run_id": "run", "task_id": "task", "map_index": -1, "try_number": 1, **changes}
    return {"ti": SimpleNamespace(**ti)}


def test_all_pending_sets_of_the_run_are_acknowledged(coordination: SourceCoordinator, context: Any) -> None:
    ours = delivered(coordination, "a", "b")
    [theirs] = delivered(coordination, "c", run="dag/another run")
    summary = acknowledge(context)
    assert summary == {
        "source": "clicks",
        "positive": True,
        "released": 2,
        "duplicate": 0,
        "late": 0,
        "states": {"ACKNOWLEDGED": 2},
        "acknowledgment_sets": ours,
    }
    assert json.loads(json.dumps(summary)) == summary
    assert {status(coordination, key) for key in "ab"} == {PartitionStatus.COMPLETED}
    assert state(coordination, theirs) is PENDING


def test_run_without_pending_sets_succeeds(coordination: SourceCoordinator, context: Any) -> None:
    summary = acknowledge(context)
    assert (summary["released"], summary["states"], summary["acknowledgment_sets"]) == (0, {}, [])


def test_sets_released_by_the_job_alone_are_ignored(coordination: SourceCoordinator, context: Any) -> None:
    coordination.create_partitions({"a": {}})
    coordination.leases.acquire(1)
    sets = AcknowledgmentSets(coordination)
    working = sets.begin("a", "b", ["main"], sinks=["main"], timeout=timedelta(hours=1), run=RUN)
    assert acknowledge(context)["released"] == 0
    assert state(coordination, working.set_id) is PENDING


@pytest.mark.parametrize("given", [lambda ids: ids[0], lambda ids: ids[:1], lambda ids: str(ids[:1])])
def test_sets_may_be_named(coordination: SourceCoordinator, context: Any, given: Any) -> None:
    ids = delivered(coordination, "a", "b")
    assert acknowledge(context, acknowledgment_sets=given(ids))["acknowledgment_sets"] == ids[:1]
    assert [state(coordination, set_id) for set_id in ids] == [ACKNOWLEDGED, PENDING]


def test_list_of_lists_names_the_sets_of_mapped_jobs(coordination: SourceCoordinator, context: Any) -> None:
    a, b, c = delivered(coordination, "a", "b", "c")
    assert acknowledge(context, acknowledgment_sets=[[a, b], [], [b]])["released"] == 2
    assert state(coordination, c) is PENDING


def test_empty_list_selects_no_sets(coordination: SourceCoordinator, context: Any) -> None:
    [waiting] = delivered(coordination, "a")
    assert acknowledge(context, acknowledgment_sets=[])["released"] == 0
    assert state(coordination, waiting) is PENDING


def test_sets_of_another_run_may_be_selected(coordination: SourceCoordinator, context: Any) -> None:
    [other_run] = delivered(coordination, "a", run="dag/other")
    [other_dag] = delivered(coordination, "b", run="loads/other")
    assert acknowledge(context, run_id="other")["acknowledgment_sets"] == [other_run]
    assert acknowledge(context, run_id="other", run_dag_id="loads")["acknowledgment_sets"] == [other_dag]


def test_rejection_releases_the_partition_with_the_reason(coordination: SourceCoordinator, context: Any) -> None:
    [waiting] = delivered(coordination, "a")
    summary = acknowledge(context, positive="false", reason="7 of 10 rows have no user")
    assert (summary["positive"], summary["states"]) == (False, {"REJECTED": 1})
    assert the_set(coordination, waiting).reason == "downstream: 7 of 10 rows have no user"
    partition = coordination.view.get("a")
    assert partition is not None
    assert (partition.status, partition.attempts) == (PartitionStatus.UNASSIGNED, 1)
    assert "7 of 10 rows have no user" in (partition.last_error or "")


def test_rejection_without_a_reason_fails_when_parsed() -> None:
    with pytest.raises(ValueError, match="field 'reason' is missing"):
        AcknowledgeOperator(task_id="reject", source="clicks", positive=False)


@pytest.mark.parametrize("reason", [None, "", " ", "None"])
def test_templated_rejection_without_a_reason_changes_nothing(
    coordination: SourceCoordinator, context: Any, reason: str | None
) -> None:
    [waiting] = delivered(coordination, "a")
    with pytest.raises(AirflowFailException, match="field 'reason' is missing"):
        acknowledge(context, positive="no", reason=reason)
    assert state(coordination, waiting) is PENDING


def test_retry_and_cleared_task_count_once(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a", handles=["check", "check"])
    assert acknowledge(at(try_number=1))["released"] == 1
    for try_number in (2, 3):
        assert acknowledge(at(try_number=try_number))["duplicate"] == 1
    assert state(coordination, waiting) is PENDING
    assert acknowledge(at(map_index=1))["states"] == {"ACKNOWLEDGED": 1}


def test_release_id_may_be_given(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a", handles=["check", "check"])
    assert acknowledge(at(task_id="one"), release_id="table 7")["released"] == 1
    assert acknowledge(at(task_id="two"), release_id="table 7")["duplicate"] == 1
    assert the_set(coordination, waiting).owed == 1


def test_long_airflow_names_still_give_a_release_id(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a", handles=["check", "check"])
    long = {"dag_id": "d" * 250, "task_id": "t" * 250}
    assert acknowledge(at(**long), acknowledgment_sets=waiting)["released"] == 1
    assert acknowledge(at(**long, try_number=2), acknowledgment_sets=waiting)["duplicate"] == 1
    assert acknowledge(at(**long, run_id="r" * 250), acknowledgment_sets=waiting)["released"] == 1


def test_each_handle_is_released_by_its_own_task(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a", handles=["check", "load"])
    with pytest.raises(
        AirflowFailException, match="give a handle; the handles released from outside are 'check', 'load'"
    ):
        acknowledge(at())
    assert acknowledge(at(task_id="check"), handle="check")["states"] == {"PENDING": 1}
    assert acknowledge(at(task_id="check again"), handle="check")["released"] == 0
    assert acknowledge(at(task_id="load"), handle="load")["states"] == {"ACKNOWLEDGED": 1}
    assert state(coordination, waiting) is ACKNOWLEDGED


def test_late_release_is_warned_of_and_counted(
    coordination: SourceCoordinator, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    [waiting] = delivered(coordination, "a")
    AcknowledgmentSets(coordination).cancel(waiting, "the sink was emptied")
    summary = acknowledge(context, acknowledgment_sets=waiting)
    assert (summary["released"], summary["late"], summary["states"]) == (0, 1, {"CANCELLED": 1})
    assert "1 of 1 releases were late and changed nothing" in caplog.text
    assert status(coordination, "a") is PartitionStatus.UNASSIGNED


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"acknowledgment_sets": "nope"}, "source 'clicks' has no acknowledgment set 'nope'"),
        ({"acknowledgment_sets": 7}, "'acknowledgment_sets' must be the id of a set, or a list of ids; got 7"),
        ({"acknowledgment_sets": [None]}, "must be the id of a set, or a list of ids; got None"),
        ({"acknowledgment_sets": {"a": 1}}, "must be the id of a set, or a list of ids; got {'a': 1}"),
        ({"handle": "chekc"}, "has no handle 'chekc'; its handles are 'main', 'downstream'"),
        ({"handle": "main"}, "handle 'main' is released by the delivering job; .* are 'downstream'"),
        ({"positive": "perhaps"}, "field 'positive' must be true or false; got 'perhaps'"),
        ({"run_dag_id": "loads"}, "'run_id' must be given with 'run_dag_id'"),
        ({"run_id": "r", "acknowledgment_sets": []}, "'run_id' selects all sets of a run"),
        ({"release_id": "x" * 129}, "is not usable: give 1 to 128 printable characters"),
    ],
)
def test_invalid_release_fails_without_a_retry_and_changes_nothing(
    coordination: SourceCoordinator, context: Any, arguments: dict[str, Any], message: str
) -> None:
    [waiting] = delivered(coordination, "a")
    with pytest.raises(AirflowFailException, match=message):
        acknowledge(context, **arguments)
    assert state(coordination, waiting) is PENDING


def test_unknown_set_among_others_prevents_every_release(coordination: SourceCoordinator, context: Any) -> None:
    [waiting] = delivered(coordination, "a")
    with pytest.raises(AirflowFailException, match="no acknowledgment set 'nope'"):
        acknowledge(context, acknowledgment_sets=[waiting, "nope"])
    assert state(coordination, waiting) is PENDING


def test_set_of_another_source_is_unknown(coordination: SourceCoordinator, context: Any) -> None:
    orders = SourceCoordinator(coordination.store, "orders", "test")
    orders.initialize()
    [theirs] = delivered(orders, "a")
    with pytest.raises(AirflowFailException, match="source 'clicks' has no acknowledgment set"):
        acknowledge(context, acknowledgment_sets=theirs)
    assert state(orders, theirs) is PENDING


def test_operator_is_mapped_over_sets() -> None:
    with DAG("mapped", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)):
        mapped: Any = AcknowledgeOperator.partial(
            task_id="acknowledge", source="clicks", positive=False, reason="empty"
        ).expand(acknowledgment_sets=["s-1", ["s-2", "s-3"]])
    assert mapped.is_mapped and mapped.partial_kwargs["reason"] == "empty"
