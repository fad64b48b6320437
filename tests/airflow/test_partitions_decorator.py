"""A decorated function as the supplier of a source."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, task

from airflow_provider_coordination.airflow_names import AirflowFailException, AirflowSkipException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.operators.create_partitions import TaskKilledError
from tests.airflow.weather import weather


def run(find: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a decorated function in a DAG, and run the task that it becomes once."""
    with DAG("dag", schedule=None):
        operator = find(*args, **kwargs).operator
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id="find", map_index=-1, try_number=1, max_tries=0)
    return operator.execute({"ti": ti, "outlet_events": {}})


def keys(coordination: SourceCoordinator) -> list[str]:
    return sorted(partition.partition_key for partition in coordination.view.partitions())


def test_yielded_partitions_are_created(coordination: SourceCoordinator) -> None:
    @task.partitions(reads=weather(), source="clicks")
    def find(prefix: str) -> Iterator[Any]:
        yield f"{prefix}-1"
        yield {"key": f"{prefix}-2", "size": 7}
        yield [f"{prefix}-3"]

    summary = run(find, "x")
    assert (summary["source"], summary["created"]) == ("clicks", 3)
    assert keys(coordination) == ["x-1", "x-2", "x-3"]
    stored = coordination.view.get("x-2")
    assert stored is not None and stored.progress["items"] == [{"key": "x-2", "size": 7}]
    assert stored.progress["kind"] == "weather"


def test_function_may_return_a_list(coordination: SourceCoordinator) -> None:
    @task.partitions(source="clicks")
    def find() -> list[str]:
        return ["a", "b"]

    assert run(find)["created"] == 2


def test_function_without_partitions_may_return_none(coordination: SourceCoordinator) -> None:
    @task.partitions(source="clicks")
    def find() -> None: ...

    assert run(find)["created"] == 0


@pytest.mark.parametrize("returned", [7, "text", {"a": {}}])
def test_function_with_another_return_type_fails(coordination: SourceCoordinator, returned: Any) -> None:
    @task.partitions(source="clicks")
    def find() -> Any:
        return returned

    with pytest.raises(AirflowFailException, match="function 'find' must yield keys or items, or return a list"):
        run(find)


def test_pages_are_created_while_the_function_runs(coordination: SourceCoordinator) -> None:
    @task.partitions(source="clicks")
    def find() -> Iterator[list[str]]:
        yield ["a"]
        assert keys(coordination) == ["a"]
        yield ["b"]
        raise OSError("the listing broke off")

    with pytest.raises(OSError, match="the listing broke off"):
        run(find)
    assert keys(coordination) == ["a", "b"]


def test_function_receives_its_previous_state(coordination: SourceCoordinator) -> None:
    @task.partitions(source="clicks")
    def find(state: dict[str, Any], step: int) -> Iterator[Page]:
        day = state.get("day", 0) + step
        yield Page({f"day-{day}": {}}, state={"day": day})

    for _ in range(2):
        run(find, step=2)
    assert keys(coordination) == ["day-2", "day-4"]


def test_function_is_not_called_while_the_supplier_is_busy(
    coordination: SourceCoordinator,
) -> None:
    @task.partitions(source="clicks", leave_when_busy=True)
    def find() -> list[str]:
        raise AssertionError("must not run")

    def busy(state: Any) -> Iterator[Page]:
        assert run(find)["supplier"] == "left to another worker"
        yield Page({"a": {}})

    assert coordination.supply(busy) == ["a"]


def test_killed_task_releases_the_lease_and_ends(coordination: SourceCoordinator) -> None:
    @task.partitions(source="clicks")
    def find() -> Iterator[list[str]]:
        yield ["a"]
        operator.on_kill()
        yield ["b"]

    with DAG("dag", schedule=None):
        operator = find().operator
    ti = SimpleNamespace(dag_id="dag", run_id="run", task_id="find", map_index=-1, try_number=1, max_tries=0)
    with pytest.raises(TaskKilledError):
        operator.execute({"ti": ti, "outlet_events": {}})
    assert keys(coordination) == ["a"]
    assert coordination.supply(lambda state: []) == []


def test_source_without_available_work_skips_only_on_request(coordination: SourceCoordinator) -> None:
    @task.partitions(source="clicks", skip_when_empty=True)
    def find() -> list[str]:
        return []

    with pytest.raises(AirflowSkipException):
        run(find)


def test_source_must_have_a_name() -> None:
    with (
        pytest.raises(ValueError, match="field 'source' is missing: give it, or give 'reads'"),
        DAG("dag", schedule=None),
    ):
        task.partitions()(list)()
