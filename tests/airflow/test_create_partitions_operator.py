"""Creating partitions as a task."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, XComArg, task

from airflow_provider_coordination.airflow_names import AirflowFailException, AirflowSkipException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import SupplierBusyError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_claim import SourceClaim, claimed
from airflow_provider_coordination.coordination.supplier import GLOBAL_STATE_KEY, Page
from airflow_provider_coordination.coordination.suspension import CACHE_SECONDS
from airflow_provider_coordination.operators.create_partitions import (
    CreatePartitionsOperator,
    TaskKilledError,
    supply,
    work_for_jobs,
)
from airflow_provider_coordination.sources.own_source import Items
from airflow_provider_coordination.sources.reset import forget
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.airflow.weather import weather
from tests.support.clock import ManualClock


@pytest.fixture
def source(coordination: SourceCoordinator, store_url: str) -> SourceCoordinator:
    """The source `weather`."""
    return coordinator_of("weather", store_url)


def coordinator_of(source: str, store_url: str, owner: str = "test") -> SourceCoordinator:
    coordinator = SourceCoordinator(open_store(StoreSettings.from_url(store_url)), source, owner)
    coordinator.initialize()
    return coordinator


def create(context: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    return CreatePartitionsOperator(task_id="create", **arguments).execute(context)


def stored(source: SourceCoordinator) -> dict[str, Partition]:
    return {partition.partition_key: partition for partition in source.view.partitions()}


def test_supplier_of_a_source_creates_its_partitions(source: SourceCoordinator, context: Any) -> None:
    assert create(context, reads=weather()) == {
        "source": "weather",
        "supplier": "ran",
        "created": 3,
        "partition_keys": ["oslo", "rome", "cairo"],
        "available": True,
        "partitions": {"UNASSIGNED": 3, "ASSIGNED": 0, "CLOSED": 0, "COMPLETED": 0},
    }
    assert stored(source)["cairo"].progress["items"] == [{"key": "cairo", "size": 3}]


def test_existing_partitions_are_left_alone(source: SourceCoordinator, context: Any) -> None:
    create(context, reads=weather())
    before = stored(source)
    assert create(context, reads=weather())["created"] == 0
    assert stored(source) == before


def test_progress_is_logged_during_the_run(
    source: SourceCoordinator, context: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        create(context, reads=weather())
    assert "page 1 of the supplier: 1 partitions, 1 so far" in caplog.text
    assert "page 2 of the supplier: 2 partitions, 3 so far" in caplog.text


def test_summary_stays_small(source: SourceCoordinator, context: Any) -> None:
    summary = create(context, reads=weather(), partitions=[str(number) for number in range(200)])
    assert summary["created"] == 200
    assert len(json.dumps(summary)) < 1000


def test_busy_supplier_is_left_to_its_worker_on_request(
    source: SourceCoordinator, context: Any, store_url: str
) -> None:
    inside: list[dict[str, Any]] = []

    def busy(state: Mapping[str, Any]) -> Iterator[Page]:
        inside.append(create(context, reads=weather(), leave_when_busy="True"))
        yield Page({"oslo": {}})

    coordinator_of("weather", store_url, "other").supply(busy)
    assert (inside[0]["supplier"], inside[0]["created"]) == ("left to another worker", 0)


def busy_worker(clock: ManualClock) -> tuple[SourceCoordinator, SourceCoordinator]:
    """A worker that holds the lease of the supplier of a source, and another one."""
    store = InMemoryStore()
    holder, waiting = (SourceCoordinator(store, "weather", name, clock=clock) for name in ("holder", "waiting"))
    for coordinator in (holder, waiting):
        coordinator.initialize()
    holder.supply(lambda state: [])
    renewed(holder)
    return holder, waiting


def renewed(holder: SourceCoordinator) -> None:
    item = holder.store.get("weather|GLOBAL_STATE", GLOBAL_STATE_KEY)
    assert item is not None
    holder.store.transact(update=[item.acquired("holder", holder.clock.now() + holder.leases.ownership_timeout)])


def test_supplier_busy_for_too_long_fails_with_a_remedy() -> None:
    clock = ManualClock()
    holder, waiting = busy_worker(clock)

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        renewed(holder)

    with pytest.raises(
        SupplierBusyError, match=r"another worker, holder, .*[Ll]et the task retry, or set 'leave_when_busy' if"
    ):
        supply(waiting, lambda state: [Page({"oslo": {}})], skip_when_empty=False, sleep=sleep)
    assert list(waiting.view.partitions()) == []


def test_expired_supplier_lease_of_a_dead_worker_is_taken_over() -> None:
    clock = ManualClock()
    _, waiting = busy_worker(clock)
    summary = supply(waiting, lambda state: [Page({"oslo": {}})], skip_when_empty=False, sleep=clock.advance)
    assert (summary["supplier"], summary["created"]) == ("ran", 1)


def test_overtaken_run_does_not_report_that_it_ran() -> None:
    clock = ManualClock()
    holder, waiting = busy_worker(clock)
    clock.advance(100)

    def overtaken(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"oslo": {}})
        renewed(holder)
        yield Page({"rome": {}})

    summary = supply(waiting, overtaken, skip_when_empty=False, leave_when_busy=True)
    assert (summary["supplier"], summary["created"]) == ("left to another worker", 1)


def test_run_ended_by_a_suspension_does_not_report_completion() -> None:
    clock = ManualClock()
    holder, coordinator = busy_worker(clock)
    clock.advance(100)

    def suspended(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"oslo": {}})
        holder.view.suspensions.suspend("ann")
        clock.advance(CACHE_SECONDS)
        yield Page({"rome": {}})

    summary = supply(coordinator, suspended, skip_when_empty=False)
    assert summary["supplier"].startswith("ended early: the source is suspended by ann since ")
    assert summary["created"] == 1


def test_killed_task_releases_the_lease_and_ends(source: SourceCoordinator, context: Any) -> None:
    def finds(state: Mapping[str, Any]) -> Iterator[Any]:
        yield ["oslo"]
        try:
            operator.on_kill()  # as Airflow's signal handler does, in the middle of whatever runs
        except Exception as error:
            raise AssertionError("a supplier must not take it for an error of its own") from error
        yield ["rome"]

    operator = CreatePartitionsOperator(task_id="create", reads=weather(supplier=finds))
    with pytest.raises(TaskKilledError, match="task 'create' was killed while it searched for partitions"):
        operator.execute(context)
    assert sorted(stored(source)) == ["oslo"]
    item = source.store.get("weather|GLOBAL_STATE", GLOBAL_STATE_KEY)
    assert item is not None and item.owner is None


def test_kill_before_or_after_the_supplier_is_harmless(source: SourceCoordinator, context: Any) -> None:
    operator = CreatePartitionsOperator(task_id="create", reads=weather())
    operator.on_kill()
    operator.execute(context)
    operator.on_kill()


def test_supplier_receives_its_previous_state(source: SourceCoordinator, context: Any) -> None:
    given = []

    def day_by_day(state: Mapping[str, Any]) -> Iterator[Page]:
        given.append(dict(state))
        day = state.get("day", 0) + 1
        yield Page({f"day-{day}": {"day": day}}, state={"day": day})

    for _ in range(2):
        create(context, reads=weather(supplier=day_by_day))
    assert given == [{}, {"day": 1}]
    assert sorted(stored(source)) == ["day-1", "day-2"]


def test_source_without_available_work_skips_only_on_request(source: SourceCoordinator, context: Any) -> None:
    nothing = weather(supplier=lambda state: [])
    assert create(context, reads=nothing)["available"] is False
    with pytest.raises(AirflowSkipException, match="source 'weather' has no partition that is available"):
        create(context, reads=nothing, skip_when_empty="True")
    assert create(context, reads=weather(), skip_when_empty=True)["created"] == 3


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (["a", {"key": "b"}], ["a", "b"]),
        ({"a": {"n": 1}, "b": [{"n": 2}, {"n": 3}]}, ["a", "b"]),
        ("['a', 'b']", ["a", "b"]),
        ('{"a": {"n": 1}}', ["a"]),
        ("a", ["a"]),
    ],
)
def test_partitions_may_be_given_by_hand_and_by_templates(
    source: SourceCoordinator, context: Any, given: Any, keys: list[str]
) -> None:
    create(context, reads=weather(), partitions=given)
    assert sorted(stored(source)) == keys
    assert {partition.progress["kind"] for partition in stored(source).values()} == {"weather"}


def test_partitions_may_be_created_without_reads(coordination: SourceCoordinator, context: Any) -> None:
    create(context, source="clicks", partitions={"attic": {"looks": 0}, "cellar": {"looks": 0}})
    assert {key: dict(p.progress) for key, p in stored(coordination).items()} == {
        "attic": {"looks": 0},
        "cellar": {"looks": 0},
    }


@pytest.mark.parametrize("given", ["[", 7, "{1"])
def test_invalid_partitions_are_refused(source: SourceCoordinator, context: Any, given: Any) -> None:
    with pytest.raises(AirflowFailException, match="field 'partitions' must be a list of keys or items"):
        create(context, reads=weather(), partitions=given)


def test_missing_fields_are_named() -> None:
    with pytest.raises(ValueError, match="fields 'reads' and 'partitions' are missing"):
        CreatePartitionsOperator(task_id="create", source="clicks")
    with pytest.raises(ValueError, match="field 'source' is missing"):
        CreatePartitionsOperator(task_id="create", partitions=["a"])


def test_source_is_claimed_for_the_dag(source: SourceCoordinator, context: Any) -> None:
    create(context, reads=weather())
    item = claimed(source.view)
    assert item is not None
    assert SourceClaim.of(item).dag_id == "dag"
    context["ti"].dag_id = "another"
    with pytest.raises(AirflowFailException, match=r"claimed by DAG 'dag'.*but DAG 'another' reads something else"):
        create(context, reads=weather(reader="mine:Other"))


def test_another_location_is_refused_until_the_source_forgets(source: SourceCoordinator, context: Any) -> None:
    def of(url: str) -> Items:
        return weather(reader_settings={"url": url}, located_by=["url"])

    create(context, reads=of("a"))
    with pytest.raises(AirflowFailException) as refused:
        create(context, reads=of("b"))
    assert str(refused.value).startswith(
        "source 'weather' has read url 'a', and this task reads something else: url 'b' here and 'a' there. "
    )
    assert "'airflow-coordination reset weather --forget'" in str(refused.value)
    create(context, reads=of("a"))
    source.view.suspensions.suspend("ann")
    forget(source)
    source.view.suspensions.resume("ann", "")
    assert create(context, reads=of("b"))["created"] == 3


def test_reads_built_from_a_task_run_after_it() -> None:
    with DAG("dag", schedule=None):

        @task
        def where() -> str:
            return "a"

        operator = CreatePartitionsOperator(task_id="create", reads=weather(conn_id=where()))
    assert operator.upstream_task_ids == {"where"}
    assert isinstance(operator.reads.conn_id, XComArg)  # type: ignore[union-attr]


def test_work_count_stops_at_the_limit(source: SourceCoordinator, context: Any) -> None:
    create(context, reads=weather(), partitions=[str(number) for number in range(10)])
    assert work_for_jobs(source.view, 4, shared=False) == 4
    assert work_for_jobs(source.view, 40, shared=False) == 10


def test_leases_of_others_count_as_work_only_when_shared(source: SourceCoordinator, context: Any) -> None:
    create(context, reads=weather(), partitions=[str(number) for number in range(5)])
    held = source.leases.acquire(3)
    source.leases.close(held[0].partition_key, timedelta(hours=1))
    assert work_for_jobs(source.view, 40, shared=False) == 2
    assert work_for_jobs(source.view, 40, shared=True) == 4
    source.leases.await_acknowledgment(held[1].partition_key, timedelta(hours=1))
    assert work_for_jobs(source.view, 40, shared=True) == 3
