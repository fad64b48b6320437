"""What becomes of Data Prepper's items: judged one by one, and as partitions of another store."""

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
def test_what_would_hurt_is_put_right_and_nothing_else(name: str) -> None:
    checked = check_item(ITEMS[name], NOW)

    assert (checked.repairs, checked.problem) == (EXPECTED_REPAIRS.get(name, ()), "")


@pytest.mark.parametrize("name", ["leased", "expired", "leader"])
def test_leases_are_ended_only_if_a_person_says_so(name: str) -> None:
    assert Repair.RELEASE not in check_item(ITEMS[name], NOW).repairs
    assert Repair.RELEASE in check_item(ITEMS[name], NOW, release=True).repairs


def test_it_is_reported_which_items_somebody_works_on() -> None:
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
def test_what_only_a_person_can_put_right_is_reported_and_left_alone(damaged: Item, problem: str) -> None:
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


def test_every_item_is_copied_under_its_own_name_as_a_new_partition() -> None:
    for name, each in ITEMS.items():
        copy = copy_of(name)
        assert copy.source_identifier == each["sourceIdentifier"]["S"]
        assert copy.partition_key == each["sourcePartitionKey"]["S"]
        assert (copy.version, copy.owner, copy.ownership_timeout) == (0, None, None)


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
def test_where_it_stands_is_kept_and_a_lease_runs_to_its_end(
    name: str, status: PartitionStatus, priority: datetime
) -> None:
    assert (copy_of(name).status, copy_of(name).priority) == (status, priority)


def test_a_lease_ends_at_once_if_a_person_says_so() -> None:
    assert copy_of("leased", release=True).priority == NOW


def test_a_closed_one_keeps_when_it_reopens_and_how_often_it_was_closed() -> None:
    assert (copy_of("closed").reopen_at, copy_of("closed").closed_count) == (REOPENS, 2)


@pytest.mark.parametrize("name", ["quoted", "corrupt"])
def test_a_state_that_is_no_json_object_is_kept_to_the_byte(name: str) -> None:
    assert progress_text(copy_of(name)) == ITEMS[name]["partitionProgressState"]["S"]


@pytest.mark.parametrize("state", ['{"rate": NaN}', '{"rate": 1e999}'])
def test_a_state_that_json_does_not_know_is_kept_to_the_byte(state: str) -> None:
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
def test_what_no_other_store_can_hold_is_refused(too_large: Item, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        copied(check_item(too_large, NOW), NOW)


def test_what_cannot_be_read_is_refused() -> None:
    damaged = check_item(ITEMS["fresh"] | {"sourcePartitionStatus": {"S": "PAUSED"}}, NOW)

    with pytest.raises(ConfigurationError, match="PAUSED"):
        copied(damaged, NOW)


def test_the_owner_is_the_hosts_and_not_kept() -> None:
    assert ITEMS["leased"]["partitionOwner"]["S"] == OWNER and copy_of("leased").owner is None
