"""A table of Data Prepper is adopted without loss: in place, and copied into SQL."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.cli.imports import TransferState, compare_with_store, write_to_store
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.data_prepper import (
    CheckedItem,
    check_item,
    check_table,
    copied,
    read_items,
    repair_items,
)
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls
from airflow_provider_coordination.stores.kinds.dynamodb import DynamoDbSettings
from tests.support.clock import ManualClock
from tests.support.data_prepper_items import PARTITIONS, Item, create_table, item_set, stored_item, write_items

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "importing.md"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ITEMS = item_set(NOW)
AVAILABLE = (
    "fresh", "fresh-null", "with-state", "given-up", "unexpiring", "quoted", "corrupt", "unknown", "expired", "due",
)  # fmt: skip
LATER = ("leased", "closed")


@pytest.fixture
def aws(dynamodb: Any) -> AwsSettings:
    return AwsSettings(
        region="us-east-1", endpoint_url=dynamodb.endpoint_url, access_key_id="test", secret_access_key="test"
    )


@pytest.fixture
def table(dynamodb: Any, dynamodb_table: str) -> str:
    """A table that Data Prepper has worked on."""
    create_table(dynamodb.client(), dynamodb_table)
    write_items(dynamodb.client(), dynamodb_table, ITEMS)
    return dynamodb_table


@pytest.fixture
def calls(aws: AwsSettings, table: str) -> DynamoDbCalls:
    return DynamoDbCalls(aws, table, 15.0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def adopted_source(
    calls: DynamoDbCalls, aws: AwsSettings, table: str, clock: ManualClock
) -> Iterator[SourceCoordinator]:
    """The table adopted, and a worker on it."""
    assert repair_items(calls, checked(calls), NOW) == []
    store = open_store(StoreSettings.of("dynamodb", DynamoDbSettings(aws=aws, table=table, skip_table_creation=True)))
    yield a_worker(store, clock)
    store.close()


@pytest.fixture
def sql_copy(calls: DynamoDbCalls, clock: ManualClock, tmp_path: Path) -> Iterator[SourceCoordinator]:
    """The items copied into SQL, and a worker there."""
    store = open_store(StoreSettings.from_url(f"sqlite:///{tmp_path}/coordination.db"))
    worker = a_worker(store, clock)
    assert write_to_store(store, compare_with_store(store, copies(calls))) == []
    yield worker
    store.close()


@pytest.fixture(params=["adopted_source", "sql_copy"])
def worker(request: pytest.FixtureRequest) -> SourceCoordinator:
    """A worker on what Data Prepper left, in either place."""
    found: SourceCoordinator = request.getfixturevalue(request.param)
    return found


def a_worker(store: Any, clock: ManualClock) -> SourceCoordinator:
    coordinator = SourceCoordinator(store, "clicks-pipeline", "worker-1", prefix="prod", clock=clock)
    coordinator.initialize()
    return coordinator


def checked(calls: DynamoDbCalls, **options: Any) -> list[CheckedItem]:
    return [check_item(item, NOW, **options) for item in read_items(calls)]


def copies(calls: DynamoDbCalls) -> list[Partition]:
    return [copied(item, NOW) for item in checked(calls)]


def keys(*names: str) -> set[str]:
    return {ITEMS[name]["sourcePartitionKey"]["S"] for name in names}


def key(name: str) -> str:
    [found] = keys(name)
    return found


def named(partitions: Sequence[Partition]) -> set[str]:
    return {partition.partition_key for partition in partitions}


# In place


def test_table_is_recognized(calls: DynamoDbCalls) -> None:
    assert check_table(calls) is False  # and its TTL is off


def test_unrelated_table_is_refused(dynamodb: Any, dynamodb_table: str, aws: AwsSettings) -> None:
    dynamodb.client().create_table(
        TableName=dynamodb_table,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )

    with pytest.raises(ConfigurationError, match="the table has the key"):
        check_table(DynamoDbCalls(aws, dynamodb_table, 15.0))


def test_adoption_changes_only_harmful_attributes(
    dynamodb: Any, table: str, calls: DynamoDbCalls, adopted_source: SourceCoordinator
) -> None:
    changing = {"version", "expirationTime", "partitionPriority"}
    harmful = {name for name, written in ITEMS.items() if check_item(written, NOW).repairs}
    assert 0 < len(harmful) < len(ITEMS)
    for name, written in ITEMS.items():
        stored = stored_item(dynamodb.client(), table, written)
        if name not in harmful:
            assert stored == written, name
            continue
        assert {k: v for k, v in stored.items() if k not in changing} == {
            k: v for k, v in written.items() if k not in changing
        }, name
        assert int(stored["version"]["N"]) == int(written["version"]["N"]) + 1, name
        assert "expirationTime" not in stored, name
        queued = stored["partitionPriority"] != written["partitionPriority"]
        assert queued is (name == "given-up"), name


def test_repeated_adoption_changes_nothing(
    dynamodb: Any, calls: DynamoDbCalls, adopted_source: SourceCoordinator
) -> None:
    assert [item for item in checked(calls) if item.repairs] == []


def test_adoption_calls_only_documented_operations(calls: DynamoDbCalls) -> None:
    called: set[str] = set()
    calls.client.meta.events.register("before-call", lambda model, **_: called.add(f"dynamodb:{model.name}"))

    check_table(calls)
    repair_items(calls, checked(calls), NOW)

    [sentence] = re.findall(r"^In place needs (.*?) A copy", MANUAL.read_text(), re.MULTILINE | re.DOTALL)
    assert called == set(re.findall(r"`(.*?)`", sentence))


def test_item_changed_during_the_adoption_is_left_alone(dynamodb: Any, table: str, calls: DynamoDbCalls) -> None:
    seen = checked(calls)
    written = ITEMS["given-up"] | {"version": {"N": "4"}, "partitionProgressState": {"S": '{"lastRecord":8}'}}
    dynamodb.client().put_item(TableName=table, Item=written)

    [left] = repair_items(calls, seen, NOW)

    assert left.partition_key == key("given-up")
    assert stored_item(dynamodb.client(), table, written) == written


def test_lease_is_ended_on_request(
    dynamodb: Any, table: str, calls: DynamoDbCalls, aws: AwsSettings, clock: ManualClock
) -> None:
    repair_items(calls, checked(calls, release=True), NOW)
    store = open_store(StoreSettings.of("dynamodb", DynamoDbSettings(aws=aws, table=table)))

    assert key("leased") in named(a_worker(store, clock).leases.acquire(50))
    store.close()


# Worked on, in either place


def test_only_available_partitions_are_acquired(worker: SourceCoordinator, clock: ManualClock) -> None:
    assert named(worker.leases.acquire(50)) == keys(*AVAILABLE)
    assert worker.leases.acquire(50) == []
    assert named(list(worker.view.completed_since(NOW - timedelta(days=1)))) == keys("done")

    for name in AVAILABLE:
        if name not in ("quoted", "corrupt"):
            worker.leases.complete(key(name))
    clock.advance(9 * 60)  # the lease of Data Prepper's host ends, and what it closed reopens
    assert named(worker.leases.acquire(50)) >= keys(*LATER)


def test_progress_is_read_as_stored(worker: SourceCoordinator) -> None:
    progress = {partition.partition_key: partition.progress for partition in worker.leases.acquire(50)}

    for name in ("with-state", "given-up", "unknown", "expired"):
        assert progress[key(name)] == json.loads(ITEMS[name]["partitionProgressState"]["S"])
    for name in ("fresh", "fresh-null", "due"):
        assert progress[key(name)] == {}


def test_saved_progress_is_read_by_the_next_owner(worker: SourceCoordinator) -> None:
    worker.leases.acquire(50)

    worker.leases.save_progress(key("with-state"), {"lastRecord": 43})
    worker.leases.give_up(key("with-state"))

    [again] = worker.leases.acquire(1)
    assert (again.partition_key, again.progress) == (key("with-state"), {"lastRecord": 43})


@pytest.mark.parametrize("name", ["quoted", "corrupt"])
def test_state_that_is_no_json_object_is_never_overwritten(worker: SourceCoordinator, name: str) -> None:
    worker.leases.acquire(50)

    with pytest.raises(ProgressError):
        worker.leases.save_progress(key(name), {"lastRecord": 1})
    worker.leases.renew(key(name))
    worker.leases.fail(key(name), "cannot be read")

    stored = worker.view.get(key(name))
    assert stored is not None and stored.unreadable_progress == ITEMS[name]["partitionProgressState"]["S"]


def test_closed_partition_continues_its_count_and_reopens(worker: SourceCoordinator, clock: ManualClock) -> None:
    worker.leases.acquire(50)

    closed = worker.leases.close(key("due"), timedelta(minutes=1))
    assert (closed.status, closed.closed_count) == (PartitionStatus.CLOSED, 2)

    for held in worker.leases.held:
        worker.leases.complete(held)
    clock.advance(61)
    assert named(worker.leases.acquire(50)) == keys("due")


def test_completed_partition_keeps_status_and_progress(worker: SourceCoordinator) -> None:
    worker.leases.acquire(50)
    worker.leases.complete(key("with-state"))

    for name in ("with-state", "done"):
        stored = worker.view.get(key(name))
        assert stored is not None and stored.status is PartitionStatus.COMPLETED
        assert stored.progress == json.loads(ITEMS[name]["partitionProgressState"]["S"])
    assert worker.create_partitions({key("done"): {}}) == []


def test_supplier_continues_from_the_global_state(worker: SourceCoordinator) -> None:
    given: list[Any] = []

    def supplier(state: Any) -> Iterator[Page]:
        given.append(state)
        yield Page({"bucket|a/new.json": {}, key("fresh"): {"again": True}}, state={"bucket": "2026-03-01T12:00:00Z"})

    assert worker.supply(supplier) == ["bucket|a/new.json"]
    worker.supply(supplier)
    assert given == [{"bucket": "2026-01-01T00:00:00Z"}, {"bucket": "2026-03-01T12:00:00Z"}]


def test_items_of_other_families_are_unchanged(worker: SourceCoordinator) -> None:
    for name in ("leader", "stream-state", "export-state", "file"):
        written = ITEMS[name]
        stored = worker.store.get(written["sourceIdentifier"]["S"], key(name))
        assert stored is not None
        assert stored.progress == json.loads(written.get("partitionProgressState", {"S": "{}"})["S"])


def test_unknown_attributes_survive_a_whole_life(dynamodb: Any, table: str, adopted_source: SourceCoordinator) -> None:
    adopted_source.leases.acquire(50)
    adopted_source.leases.save_progress(key("unknown"), {"lastRecord": 4})
    adopted_source.leases.close(key("unknown"), timedelta(0))
    adopted_source.leases.acquire(50)
    adopted_source.leases.complete(key("unknown"))

    stored: Item = stored_item(dynamodb.client(), table, ITEMS["unknown"])
    assert {name: stored[name] for name in ("pluginVersion", "tags")} == {
        name: ITEMS["unknown"][name] for name in ("pluginVersion", "tags")
    }
    assert stored["sourceStatusCombinationKey"] == {"S": f"{PARTITIONS}|COMPLETED"}


# Copied again


def test_repeated_copy_changes_nothing_after_work_began(calls: DynamoDbCalls, sql_copy: SourceCoordinator) -> None:
    store = sql_copy.store
    sql_copy.leases.acquire(50)

    again = compare_with_store(store, copies(calls))

    assert {transfer.state for transfer in again} == {TransferState.PRESENT}
    before = {p.partition_key: p for p in sql_copy.view.partitions()}
    write_to_store(store, again)
    assert {p.partition_key: p for p in sql_copy.view.partitions()} == before


def test_further_progress_is_a_conflict_and_stays(calls: DynamoDbCalls, sql_copy: SourceCoordinator) -> None:
    sql_copy.leases.acquire(50)
    sql_copy.leases.save_progress(key("with-state"), {"lastRecord": 43})
    sql_copy.leases.complete(key("fresh"))

    again = compare_with_store(sql_copy.store, copies(calls))
    write_to_store(sql_copy.store, again)

    conflicts = [transfer.partition for transfer in again if transfer.state is TransferState.CONFLICT]
    assert named(conflicts) == keys("with-state", "fresh")
    stored = sql_copy.view.get(key("with-state"))
    assert stored is not None and stored.progress == {"lastRecord": 43}
