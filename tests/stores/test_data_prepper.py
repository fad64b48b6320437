"""Items of Data Prepper are judged one by one, and become partitions of another store."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, progress_text
from airflow_provider_coordination.stores.data_prepper import Repair, check_item, copied, is_of, summarize
from tests.support.data_prepper_items import GLOBAL, OWNER, PARTITIONS, Item, item, item_set, java_instant

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ITEMS = item_set(NOW)
LEASE_END = (NOW + timedelta(minutes=8)).replace(microsecond=123456)
REOPENS = (NOW + timedelta(minutes=8)).replace(microsecond=123000)

EXPECTED_REPAIRS: dict[str, tuple[Repair, ...]] = {
    "fresh": (Repair.KEEP,),
    "fresh-null": (Repair.KEEP,),
    "with-state": (Repair.KEEP,),
    "given-up": (Repair.KEEP, Repair.QUEUE),
    "leased": (Repair.KEEP,),
    "expired": (Repair.KEEP,),
    "closed": (Repair.KEEP,),
    "due": (Repair.KEEP,),
    "global-state": (Repair.KEEP,),
    "stream-state": (Repair.KEEP,),
}


@pytest.mark.parametrize("name", ITEMS)
def test_harmful_states_alone_are_repaired(name: str) -> None:
    checked = check_item(ITEMS[name], NOW)

    assert (checked.repairs, checked.problem) == (EXPECTED_REPAIRS.get(name, ()), "")


@pytest.mark.parametrize("name", ["leased", "expired", "leader"])
def test_leases_are_released_only_on_request(name: str) -> None:
    assert Repair.RELEASE not in check_item(ITEMS[name], NOW).repairs
    assert Repair.RELEASE in check_item(ITEMS[name], NOW, release=True).repairs


def test_items_in_use_are_reported() -> None:
    assert [name for name, each in ITEMS.items() if check_item(each, NOW).is_leased] == ["leased"]


def without(name: str) -> Item:
    return {attribute: value for attribute, value in ITEMS["given-up"].items() if attribute != name}


@pytest.mark.parametrize(
    ("damaged", "problem"),
    [
        (without("sourceStatusCombinationKey"), "it is in the queue None and should be in"),
        (without("partitionPriority"), "it is in no queue"),
        (without("version"), "it has no version"),
        (ITEMS["given-up"] | {"sourceStatusCombinationKey": {"S": f"{PARTITIONS}|CLOSED"}}, "should be in"),
        (ITEMS["given-up"] | {"sourcePartitionStatus": {"S": "PAUSED"}}, "'PAUSED' is not a valid PartitionStatus"),
        (ITEMS["given-up"] | {"partitionPriority": {"S": "yesterday"}}, "cannot be read"),
    ],
)
def test_items_needing_manual_repair_are_reported_and_kept(damaged: Item, problem: str) -> None:
    checked = check_item(damaged, NOW, release=True)

    assert problem in checked.problem and checked.repairs == ()


@pytest.mark.parametrize(
    ("identifier", "source", "prefix", "belongs"),
    [
        ("clicks|PARTITION", None, None, True),
        ("clicks|PARTITION", "clicks", None, True),
        ("clicks|GLOBAL", "clicks", "", True),
        ("clicks|PARTITION", "views", None, False),
        ("prod|clicks|PARTITION", "clicks", None, True),
        ("prod|clicks|PARTITION", "clicks", "prod", True),
        ("prod|clicks|PARTITION", None, "prod", True),
        ("prod|clicks|PARTITION", "clicks", "test", False),
        ("prod|clicks|PARTITION", "prod", None, False),
        ("clicks|PARTITION", "clicks", "prod", False),
    ],
)
def test_items_are_chosen_by_source_and_prefix(
    identifier: str, source: str | None, prefix: str | None, belongs: bool
) -> None:
    assert is_of({"sourceIdentifier": {"S": identifier}}, source, prefix) is belongs


def test_each_family_is_counted_by_status() -> None:
    summaries = {s.source_identifier: s for s in summarize(check_item(each, NOW) for each in ITEMS.values())}

    assert summaries[PARTITIONS].statuses == {"ASSIGNED": 2, "CLOSED": 2, "COMPLETED": 1, "UNASSIGNED": 8}
    assert (summaries[PARTITIONS].unreadable_progress, summaries[PARTITIONS].leased) == (2, 1)
    assert summaries[PARTITIONS].repairs == {Repair.KEEP: 8, Repair.QUEUE: 1}
    assert summaries[GLOBAL].statuses == {"none": 2}


# As partitions of another store


def copy_of(name: str, **options: Any) -> Partition:
    return copied(check_item(ITEMS[name], NOW), NOW, **options)


def test_items_are_copied_by_name_as_new_partitions() -> None:
    copies = [copy_of(name) for name in ITEMS]
    assert len(copies) > 10
    assert [(copy.source_identifier, copy.partition_key) for copy in copies] == [
        (item["sourceIdentifier"]["S"], item["sourcePartitionKey"]["S"]) for item in ITEMS.values()
    ]
    assert {(copy.version, copy.owner, copy.ownership_timeout) for copy in copies} == {(0, None, None)}


@pytest.mark.parametrize(
    ("name", "status", "priority"),
    [
        ("unexpiring", PartitionStatus.UNASSIGNED, (NOW - timedelta(minutes=30)).replace(microsecond=123456)),
        ("given-up", PartitionStatus.UNASSIGNED, NOW),
        ("leased", PartitionStatus.UNASSIGNED, LEASE_END),
        ("closed", PartitionStatus.CLOSED, REOPENS),
        ("done", PartitionStatus.COMPLETED, NOW),
        ("export-state", PartitionStatus.UNASSIGNED, NOW - timedelta(minutes=30)),
    ],
)
def test_copy_keeps_its_status_and_lease_end(name: str, status: PartitionStatus, priority: datetime) -> None:
    assert (copy_of(name).status, copy_of(name).priority) == (status, priority)


def test_copied_lease_ends_at_once_on_request() -> None:
    assert copy_of("leased", release=True).priority == NOW


def test_copied_closed_partition_keeps_reopening_time_and_count() -> None:
    assert (copy_of("closed").reopen_at, copy_of("closed").closed_count) == (REOPENS, 2)


@pytest.mark.parametrize("name", ["quoted", "corrupt"])
def test_state_that_is_no_json_object_is_kept_exactly(name: str) -> None:
    assert progress_text(copy_of(name)) == ITEMS[name]["partitionProgressState"]["S"]


@pytest.mark.parametrize("state", ['{"rate": NaN}', '{"rate": 1e999}'])
def test_state_invalid_in_json_is_kept_exactly(state: str) -> None:
    checked = check_item(item("k", "UNASSIGNED", java_instant(NOW), state=state), NOW)

    assert progress_text(copied(checked, NOW)) == state


@pytest.mark.parametrize(
    ("too_large", "message"),
    [
        (item("k", "UNASSIGNED", java_instant(NOW), state=f'{{"list":"{"x" * 70_000}"}}'), "the limit is 65536"),
        (item("k", "UNASSIGNED", java_instant(NOW), state="x" * 70_000), "the limit is 65536"),
        (item("k", "UNASSIGNED", java_instant(NOW), family="p" * 260 + "|PARTITION"), "more than 256 bytes"),
    ],
)
def test_item_that_no_other_store_can_hold_is_refused(too_large: Item, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        copied(check_item(too_large, NOW), NOW)


def test_unreadable_item_is_refused() -> None:
    damaged = check_item(ITEMS["fresh"] | {"sourcePartitionStatus": {"S": "PAUSED"}}, NOW)

    with pytest.raises(ConfigurationError, match="PAUSED"):
        copied(damaged, NOW)


def test_copy_drops_the_owner() -> None:
    assert ITEMS["leased"]["partitionOwner"]["S"] == OWNER and copy_of("leased").owner is None
