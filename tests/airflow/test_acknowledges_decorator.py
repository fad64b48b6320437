"""The result of a decorated function acknowledges or rejects the batches that it checked."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_coordination import airflow_names
from airflow_provider_coordination.airflow_names import AirflowFailException, AirflowSkipException, AirflowTaskTimeout
from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.airflow.conftest import run_dag
from tests.support.delivered import delivered, state, status, the_set

ACKNOWLEDGED, PENDING, REJECTED = (AcknowledgmentState[name] for name in ("ACKNOWLEDGED", "PENDING", "REJECTED"))


def run(check: Any, *args: Any, task_id: str = "check", try_number: int = 1, max_tries: int = 0, **kwargs: Any) -> Any:
    """Call a decorated function in a DAG, and run the task that it becomes once."""
    with DAG("dag", schedule=None):
        operator = check(*args, **kwargs).operator
    ti = SimpleNamespace(
        dag_id="dag", run_id="run", task_id=task_id, map_index=-1, try_number=try_number, max_tries=max_tries
    )
    return operator.execute({"ti": ti, "outlet_events": {}})


@task.acknowledges(source="clicks")
def returns_7() -> int:
    return 7


@task.acknowledges(source="clicks")
def finds_a_hole() -> None:
    raise ValueError("batch has a hole")


def test_returning_function_acknowledges_the_pending_sets_of_the_run(coordination: SourceCoordinator) -> None:
    ours = delivered(coordination, "a", "b")
    [theirs] = delivered(coordination, "c", run="dag/another run")
    assert run(returns_7) == 7
    assert {state(coordination, set_id) for set_id in ours} == {ACKNOWLEDGED}
    assert state(coordination, theirs) is PENDING


def test_raising_function_rejects_with_the_exception_as_reason(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")
    with pytest.raises(ValueError, match="batch has a hole"):
        run(finds_a_hole)
    assert state(coordination, waiting) is REJECTED
    assert the_set(coordination, waiting).reason == "downstream: ValueError: batch has a hole"
    assert status(coordination, "a") is PartitionStatus.UNASSIGNED


def test_reason_is_stored_without_secrets(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")

    @task.acknowledges(source="clicks")
    def check() -> None:
        raise ValueError("cannot reach postgresql://ann:of-the-warehouse@host/db")

    with pytest.raises(ValueError, match="cannot reach"):
        run(check)
    reason = the_set(coordination, waiting).reason
    assert reason == "downstream: ValueError: cannot reach postgresql://ann:***@host/db"


def test_exception_without_a_text_gives_a_reason(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")

    @task.acknowledges(source="clicks")
    def check() -> None:
        raise AssertionError

    with pytest.raises(AssertionError):
        run(check)
    assert the_set(coordination, waiting).reason == "downstream: AssertionError"


def test_failure_with_tries_left_rejects_nothing(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")
    for try_number, becomes in ((1, PENDING), (2, PENDING), (3, REJECTED)):
        with pytest.raises(ValueError, match="batch has a hole"):
            run(finds_a_hole, try_number=try_number, max_tries=2)
        assert state(coordination, waiting) is becomes


def test_failure_without_a_retry_rejects_at_once(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")

    @task.acknowledges(source="clicks")
    def check() -> None:
        raise AirflowFailException("no use")

    with pytest.raises(AirflowFailException, match="no use"):
        run(check, max_tries=5)
    assert state(coordination, waiting) is REJECTED


def test_function_that_times_out_rejects(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")

    @task.acknowledges(source="clicks")
    def check() -> None:
        raise AirflowTaskTimeout("Timeout")

    with pytest.raises(AirflowTaskTimeout):
        run(check)
    assert state(coordination, waiting) is REJECTED


def test_skipping_function_neither_acknowledges_nor_rejects(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")

    @task.acknowledges(source="clicks")
    def check() -> None:
        raise AirflowSkipException

    with pytest.raises(AirflowSkipException):
        run(check)
    assert state(coordination, waiting) is PENDING


def test_function_receives_the_sets_as_plain_dicts(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")

    @task.acknowledges(source="clicks")
    def check(acknowledgment_sets: list[dict[str, Any]], other: str = "x") -> Any:
        return acknowledgment_sets, other

    [given], other = run(check, other="y")
    assert (given["set_id"], given["batch_id"], given["partition_key"]) == (waiting, "batch-of-a", "a")
    assert (given["batch"], given["run"], given["references"]) == (
        {"records": 7},
        "dag/run",
        {"main": 0, "downstream": 1},
    )
    assert given["expires_at"].endswith("Z") and other == "y"


def test_function_runs_without_pending_sets(coordination: SourceCoordinator) -> None:
    @task.acknowledges(source="clicks")
    def check(acknowledgment_sets: list[dict[str, Any]]) -> int:
        return len(acknowledgment_sets)

    assert run(check) == 0


def test_sets_created_during_the_function_are_left_alone(coordination: SourceCoordinator) -> None:
    [early] = delivered(coordination, "a")
    late = []

    @task.acknowledges(source="clicks")
    def check() -> None:
        late.extend(delivered(coordination, "b"))

    run(check)
    assert (state(coordination, early), state(coordination, late[0])) == (ACKNOWLEDGED, PENDING)


@pytest.mark.parametrize("by_position", [True, False])
def test_call_may_name_the_sets(coordination: SourceCoordinator, by_position: bool) -> None:
    a, b, c = delivered(coordination, "a", "b", "c")

    @task.acknowledges(source="clicks")
    def check(acknowledgment_sets: Any) -> list[str]:
        return [each["set_id"] for each in acknowledgment_sets]

    assert (run(check, a) if by_position else run(check, acknowledgment_sets=a)) == [a]
    assert (run(check, [b]) if by_position else run(check, acknowledgment_sets=[b])) == [b]
    assert [state(coordination, set_id) for set_id in (a, b, c)] == [ACKNOWLEDGED, ACKNOWLEDGED, PENDING]


def test_decorator_may_name_the_sets(coordination: SourceCoordinator) -> None:
    a, b = delivered(coordination, "a", "b")

    @task.acknowledges(source="clicks", acknowledgment_sets=[a])
    def check() -> None:
        pass

    run(check)
    assert [state(coordination, set_id) for set_id in (a, b)] == [ACKNOWLEDGED, PENDING]


def test_sets_named_twice_are_refused(coordination: SourceCoordinator) -> None:
    @task.acknowledges(source="clicks", acknowledgment_sets=[])
    def check(acknowledgment_sets: Any) -> None:
        pass

    with pytest.raises(AirflowFailException, match="either in the call or to the decorator, not both"):
        run(check, acknowledgment_sets=[])


def test_invalid_handle_fails_before_the_function_runs(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")
    called = []

    @task.acknowledges(source="clicks", handle="chekc")
    def check() -> None:
        called.append(True)

    with pytest.raises(AirflowFailException, match="has no handle 'chekc'"):
        run(check)
    assert not called and state(coordination, waiting) is PENDING


def test_each_handle_has_its_own_function(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a", handles=["check", "load"])
    run(returns_7.override(handle="check"))
    assert state(coordination, waiting) is PENDING
    run(returns_7.override(handle="load"), task_id="load")
    assert state(coordination, waiting) is ACKNOWLEDGED


def test_set_that_ended_during_the_function_is_warned_of(
    coordination: SourceCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    [waiting] = delivered(coordination, "a")

    @task.acknowledges(source="clicks")
    def check() -> str:
        AcknowledgmentSets(coordination).cancel(waiting, "the sink was emptied")
        return "fine"

    assert run(check) == "fine"
    assert "1 of 1 releases were late and changed nothing" in caplog.text


def test_failed_rejection_raises_the_error_of_the_function(
    coordination: SourceCoordinator, connect: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    [waiting] = delivered(coordination, "a")

    @task.acknowledges(source="clicks")
    def check() -> None:
        connect("coordination_default", "http")
        raise ValueError("batch has a hole")

    with pytest.raises(ValueError, match="batch has a hole"):
        run(check)
    assert "the sets could not be rejected, so they will expire: source=clicks" in capsys.readouterr().out
    assert state(coordination, waiting) is PENDING


def test_coroutine_acknowledges_where_airflow_awaits_it(coordination: SourceCoordinator) -> None:
    [waiting] = delivered(coordination, "a")

    @task.acknowledges(source="clicks")
    async def check(acknowledgment_sets: list[dict[str, Any]]) -> int:
        return len(acknowledgment_sets)

    if airflow_names.AIRFLOW < airflow_names.COROUTINES_SINCE:
        with pytest.raises(ValueError, match=r"needs Airflow 3\.2 or newer"):
            check()
        return
    assert run(check) == 1
    assert state(coordination, waiting) is ACKNOWLEDGED


def test_coroutine_is_refused_where_airflow_would_not_await_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow_names, "AIRFLOW", (3, 1, 8))

    @task.acknowledges(source="clicks")
    async def check() -> None: ...

    with pytest.raises(
        ValueError, match=r"@task.acknowledges: function '.*check' is 'async', which needs Airflow 3.2 or"
    ):
        check()


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_mapped_task_rejects_only_the_bad_set(coordination: SourceCoordinator, database: None) -> None:
    ids = delivered(coordination, "good", "bad")
    with DAG("mapped", schedule=None, start_date=datetime(2026, 1, 1, tzinfo=UTC)) as dag:

        @task
        def pending() -> list[str]:
            return ids

        @task.acknowledges(source="clicks")
        def check(acknowledgment_sets: list[dict[str, Any]]) -> None:
            [each] = acknowledgment_sets
            if each["partition_key"] == "bad":
                raise ValueError("batch has a hole")

        check.expand(acknowledgment_sets=pending())
    assert run_dag(dag).state == "failed"
    assert [state(coordination, set_id) for set_id in ids] == [ACKNOWLEDGED, REJECTED]
