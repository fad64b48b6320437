"""Items are those of Data Prepper's source coordination, so that both can work on one table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError, PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from tests.stores.dynamodb.conftest import MakeStore, RawTable
from tests.support.partitions import NOW, SOURCE, a_partition, acquisition, keys

pytestmark = pytest.mark.integration


DECADE = 10 * 365 * 86400
"""A time to live that ends after today: the server deletes what is over."""


def the(store: DynamoDbStore, key: str) -> Partition:
    found = store.get(SOURCE, key)
    assert found is not None
    return found


def put_as_data_prepper(raw: RawTable, key: str, status: str, priority: str, **more: Any) -> None:
    """Put an item as Data Prepper writes it: a status that is null leaves its attribute out."""
    item = {
        "sourceStatusCombinationKey": f"{SOURCE}|{status}",
        "partitionPriority": priority,
        "closedCount": 0,
        "version": 0,
        **({"sourcePartitionStatus": status} if status != "null" else {}),
        **more,
    }
    raw.put(key, **item)


def test_new_partition_is_a_minimal_item(store: DynamoDbStore, raw: RawTable) -> None:
    store.create([a_partition("bucket|key 1/ü")])

    assert raw.item("bucket|key 1/ü") == {
        "sourceIdentifier": {"S": "test|clicks|PARTITION"},
        "sourcePartitionKey": {"S": "bucket|key 1/ü"},
        "sourcePartitionStatus": {"S": "UNASSIGNED"},
        "sourceStatusCombinationKey": {"S": "test|clicks|PARTITION|UNASSIGNED"},
        "partitionPriority": {"S": "2026-03-01T12:00:00.000000Z"},
        "closedCount": {"N": "0"},
        "version": {"N": "0"},
    }


def test_leased_partition_is_an_item_with_lease_and_failures(store: DynamoDbStore, raw: RawTable) -> None:
    store.create([a_partition("a", checkpoint="7")])
    [mine] = store.acquire(acquisition())
    store.transact(update=[mine.failed("boom")])

    assert raw.item("a") == {
        "sourceIdentifier": {"S": SOURCE},
        "sourcePartitionKey": {"S": "a"},
        "sourcePartitionStatus": {"S": "ASSIGNED"},
        "sourceStatusCombinationKey": {"S": f"{SOURCE}|ASSIGNED"},
        "partitionOwner": {"S": "me"},
        "partitionOwnershipTimeout": {"S": "2026-03-01T12:01:00.000000Z"},
        "heldSince": {"S": "2026-03-01T12:00:00.000000Z"},
        "partitionPriority": {"S": "2026-03-01T12:01:00.000000Z"},
        "partitionProgressState": {"S": '{"checkpoint":"7"}'},
        "closedCount": {"N": "0"},
        "version": {"N": "2"},
        "attempts": {"N": "1"},
        "lastError": {"S": "boom"},
    }


def test_obsolete_attributes_are_removed(store: DynamoDbStore, raw: RawTable) -> None:
    store.create([a_partition("a", checkpoint="7")])
    [mine] = store.acquire(acquisition())
    [failed] = store.transact(update=[mine.failed("boom")])
    [closed] = store.transact(update=[failed.recovered().with_progress({}).closed(NOW + timedelta(seconds=1))])

    assert raw.item("a") == {
        "sourceIdentifier": {"S": SOURCE},
        "sourcePartitionKey": {"S": "a"},
        "sourcePartitionStatus": {"S": "CLOSED"},
        "sourceStatusCombinationKey": {"S": f"{SOURCE}|CLOSED"},
        "reOpenAt": {"S": "2026-03-01T12:00:01.000000Z"},
        "partitionPriority": {"S": "2026-03-01T12:00:01.000000Z"},
        "closedCount": {"N": "1"},
        "version": {"N": "3"},
    }
    [reopened] = store.acquire(acquisition(at=NOW + timedelta(seconds=2)))
    assert reopened.version == closed.version + 1
    assert "reOpenAt" not in raw.item("a")


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2026-03-01T11:59:00Z", datetime(2026, 3, 1, 11, 59, tzinfo=UTC)),
        ("2026-03-01T11:59:00.120Z", datetime(2026, 3, 1, 11, 59, 0, 120_000, tzinfo=UTC)),
        ("2026-03-01T11:59:00.123456Z", datetime(2026, 3, 1, 11, 59, 0, 123_456, tzinfo=UTC)),
        ("2026-03-01T11:59:00.123456789Z", datetime(2026, 3, 1, 11, 59, 0, 123_456, tzinfo=UTC)),
    ],
)
def test_java_instants_are_read_with_any_digits(
    store: DynamoDbStore, raw: RawTable, text: str, instant: datetime
) -> None:
    put_as_data_prepper(
        raw, "a", "ASSIGNED", text, partitionOwnershipTimeout=text, partitionOwner="clicks:host", version=3
    )

    assert the(store, "a") == Partition(
        source_identifier=SOURCE,
        partition_key="a",
        status=PartitionStatus.ASSIGNED,
        owner="clicks:host",
        ownership_timeout=instant,
        priority=instant,
        version=3,
    )
    assert keys(store.acquire(acquisition())) == ["a"]


@pytest.mark.parametrize("state", ["null", "{}"])
def test_empty_states_are_an_empty_progress(store: DynamoDbStore, raw: RawTable, state: str) -> None:
    put_as_data_prepper(raw, "a", "UNASSIGNED", "2026-03-01T11:59:00Z", partitionProgressState=state)

    assert the(store, "a").progress == {}


def test_state_that_is_not_json_survives_every_write(store: DynamoDbStore, raw: RawTable) -> None:
    put_as_data_prepper(raw, "a", "UNASSIGNED", "2026-03-01T11:59:00Z", partitionProgressState="<not json>")

    [mine] = store.acquire(acquisition())
    store.transact(update=[mine.given_up(NOW)])

    assert mine.unreadable_progress == "<not json>"
    assert raw.item("a")["partitionProgressState"] == {"S": "<not json>"}


def test_global_item_without_status_is_found_and_never_acquired(store: DynamoDbStore, raw: RawTable) -> None:
    put_as_data_prepper(raw, "global", "null", "2026-03-01T11:59:00Z", partitionProgressState='{"last":5}')

    found = the(store, "global")
    assert (found.status, found.progress) == (PartitionStatus.UNASSIGNED, {"last": 5})
    assert store.acquire(acquisition()) == []
    assert store.count_by_status(SOURCE) == dict.fromkeys(PartitionStatus, 0)


def test_item_with_only_its_key_is_read(store: DynamoDbStore, raw: RawTable) -> None:
    raw.put("bare")

    assert the(store, "bare").status is PartitionStatus.UNASSIGNED


def test_foreign_attributes_survive_our_writes(store: DynamoDbStore, raw: RawTable) -> None:
    put_as_data_prepper(raw, "a", "UNASSIGNED", "2026-03-01T11:59:00Z", theirs="keep me")

    [mine] = store.acquire(acquisition())
    [saved] = store.transact(update=[mine.with_progress({"read": 1})])
    store.transact(update=[saved.completed(NOW)], create=[a_partition("child")])

    assert raw.item("a")["theirs"] == {"S": "keep me"}


def test_data_prepper_write_is_read_without_our_attributes(store: DynamoDbStore, raw: RawTable) -> None:
    store.create([a_partition("a")])
    [mine] = store.acquire(acquisition())
    store.transact(update=[mine.failed("boom").given_up(NOW)])
    put_as_data_prepper(raw, "a", "UNASSIGNED", "2026-03-01T12:00:00Z", version=3)

    assert (the(store, "a").attempts, the(store, "a").last_error) == (0, None)


def test_data_prepper_items_are_processed_without_loss(store: DynamoDbStore, raw: RawTable) -> None:
    """The issue's "a table written by a real Data Prepper-shaped item set read and worked on without loss"."""
    state = '{"objectKey":"a","ü":[1,2]}'
    put_as_data_prepper(raw, "new", "UNASSIGNED", "2026-03-01T11:00:00.5Z")
    put_as_data_prepper(raw, "given-up", "UNASSIGNED", "2026-03-01T11:10:00Z", partitionProgressState=state)
    put_as_data_prepper(
        raw,
        "crashed",
        "ASSIGNED",
        "2026-03-01T11:50:00.123456789Z",
        partitionOwner="test|clicks:host",
        partitionOwnershipTimeout="2026-03-01T11:50:00.123456789Z",
        partitionProgressState=state,
        version=41,
        expirationTime=1_900_000_000,
    )
    put_as_data_prepper(
        raw, "closed", "CLOSED", "2026-03-01T11:55:00Z", reOpenAt="2026-03-01T11:55:00Z", closedCount=3, version=7
    )
    put_as_data_prepper(raw, "done", "COMPLETED", "2026-03-01T11:00:00Z", version=9, expirationTime=1_900_000_000)

    acquired = store.acquire(acquisition())

    assert [(p.partition_key, p.version, dict(p.progress), p.closed_count) for p in acquired] == [
        ("crashed", 42, {"objectKey": "a", "ü": [1, 2]}, 0),
        ("closed", 8, {}, 3),
        ("new", 1, {}, 0),
        ("given-up", 1, {"objectKey": "a", "ü": [1, 2]}, 0),
    ]
    for partition in acquired:
        store.transact(update=[partition.completed(NOW)])
    assert store.count_by_status(SOURCE)[PartitionStatus.COMPLETED] == 5
    assert raw.item("done")["version"] == {"N": "9"}


def test_unreadable_item_is_reported_by_key_and_stops_no_other(
    store: DynamoDbStore, raw: RawTable, caplog: pytest.LogCaptureFixture
) -> None:
    store.create([a_partition("good")])
    put_as_data_prepper(raw, "bad", "UNASSIGNED", "2026-03-01T11:00:00Z", reOpenAt="in a while")

    assert keys(store.acquire(acquisition())) == ["good"]
    assert "partition 'bad' of 'test|clicks|PARTITION': its item in DynamoDB cannot be read" in caplog.text
    with pytest.raises(ConfigurationError, match=r"'bad'.*cannot be read.*fix it, or delete it"):
        store.get(SOURCE, "bad")


def test_s26_partition_given_up_by_data_prepper_awaits_its_priority(store: DynamoDbStore, raw: RawTable) -> None:
    """S26: P1's priority is its last lease's end, and P2 comes first. We differ: P1 is not available before."""
    put_as_data_prepper(raw, "p1", "UNASSIGNED", "2026-03-01T12:10:00Z", version=2)
    put_as_data_prepper(raw, "p2", "UNASSIGNED", "2026-03-01T11:59:59Z")

    assert keys(store.acquire(acquisition())) == ["p2"]
    assert keys(store.acquire(acquisition(at=NOW + timedelta(minutes=11)))) == ["p2", "p1"]


def test_s26_partition_given_up_by_us_queues_by_its_time(store: DynamoDbStore) -> None:
    """S26 with a priority: P2 first, then P1. Ours always gives one."""
    store.create([a_partition("p1", age_seconds=1), a_partition("p2")])
    [p1] = store.acquire(acquisition(1))
    store.transact(update=[p1.given_up(NOW + timedelta(seconds=1))])

    assert keys(store.acquire(acquisition(at=NOW + timedelta(seconds=2)))) == ["p2", "p1"]


def test_s27_completed_partitions_are_found_by_completion_time(store: DynamoDbStore, raw: RawTable) -> None:
    """S27: there the lease's end counts. We differ for what we completed; what Data Prepper did is where it put it."""
    store.create([a_partition("ours")])
    [ours] = store.acquire(acquisition())
    store.transact(update=[ours.completed(NOW)])
    put_as_data_prepper(raw, "theirs", "COMPLETED", "2026-03-01T12:10:00Z")

    def completed_since(since: datetime) -> list[str]:
        return keys(store.query(SOURCE, PartitionStatus.COMPLETED, since=since))

    assert completed_since(NOW) == ["ours", "theirs"]
    assert completed_since(NOW + timedelta(minutes=5)) == ["theirs"]
    assert completed_since(NOW + timedelta(minutes=10)) == ["theirs"]
    assert completed_since(NOW + timedelta(minutes=10, microseconds=1)) == []


@pytest.mark.parametrize("status", list(PartitionStatus))
def test_s29_write_needs_the_stored_version(store: DynamoDbStore, raw: RawTable, status: PartitionStatus) -> None:
    """S29: a version behind is refused and the row remains; the same version is applied, in all four statuses."""
    store.create([a_partition("a")])
    [mine] = store.acquire(acquisition())
    changed = {
        PartitionStatus.UNASSIGNED: mine.given_up(NOW),
        PartitionStatus.ASSIGNED: mine.renewed(NOW + timedelta(hours=1)),
        PartitionStatus.CLOSED: mine.closed(NOW),
        PartitionStatus.COMPLETED: mine.completed(NOW),
    }[status]
    [stored] = store.transact(update=[changed])

    for refused in (store.delete, lambda p: store.transact(update=[p])):
        with pytest.raises(PartitionUpdateError, match="no longer holds version 1"):
            refused(changed)
    assert the(store, "a") == stored
    assert stored.status is status

    store.delete(stored)
    assert store.get(SOURCE, "a") is None


def test_s31_only_completed_items_expire(make_store: MakeStore, raw: RawTable) -> None:
    """S31: there all items expire, global ones after an update. We differ: completed ones alone do."""
    store = make_store(ttl_seconds=DECADE)
    store.initialize()
    store.create([a_partition("a")])
    assert "expirationTime" not in raw.item("a")
    [mine] = store.acquire(acquisition())
    assert "expirationTime" not in raw.item("a")

    [done] = store.transact(update=[mine.completed(NOW)])
    assert raw.item("a")["expirationTime"] == {"N": str(int(NOW.timestamp()) + DECADE)}

    store.transact(update=[done.reopened(NOW)])
    assert "expirationTime" not in raw.item("a")


def test_acquisition_removes_an_expiry_of_data_prepper(store: DynamoDbStore, raw: RawTable) -> None:
    put_as_data_prepper(raw, "a", "UNASSIGNED", "2026-03-01T11:59:00Z", expirationTime=1_900_000_000)

    store.acquire(acquisition())

    assert "expirationTime" not in raw.item("a")


def test_pages_neither_skip_nor_repeat_java_items(store: DynamoDbStore, raw: RawTable) -> None:
    """Texts of different digits are in order but for one second, and each is found once whatever the page."""
    texts = ["00Z", "00.1Z", "00.000001Z", "00.123456789Z", "00.123456001Z", "01Z", "01.000000Z", "01Z"]
    for n, text in enumerate(texts):
        put_as_data_prepper(raw, f"p{n}", "COMPLETED", f"2026-03-01T11:59:{text}")

    for limit in (1, 2, 3, 100):
        found: list[str] = []
        last = None
        while page := store.query(SOURCE, PartitionStatus.COMPLETED, after=last, limit=limit):
            found += keys(page)
            last = page[-1]
        assert sorted(found) == [f"p{n}" for n in range(len(texts))]
        assert set(found[:5]) == {"p0", "p1", "p2", "p3", "p4"}


def test_page_continues_after_a_partition_that_left_the_queue(store: DynamoDbStore) -> None:
    store.create([a_partition(f"p{n}", age_seconds=10 - n) for n in range(4)])
    first = store.query(SOURCE, PartitionStatus.UNASSIGNED, limit=2)
    store.transact(update=[first[-1].completed(NOW)])

    assert keys(store.query(SOURCE, PartitionStatus.UNASSIGNED, after=first[-1], limit=5)) == ["p2", "p3"]


def test_sources_of_a_table_are_listed_once(store: DynamoDbStore, raw: RawTable) -> None:
    store.create([a_partition("a"), a_partition("b")])
    raw.put("leader", source="test|clicks|GLOBAL")

    assert store.source_identifiers() == ["test|clicks|GLOBAL", "test|clicks|PARTITION"]


def test_claim_never_expires(make_store: MakeStore, raw: RawTable) -> None:
    """What it names would be read again."""
    store = make_store(ttl_seconds=DECADE)
    store.initialize()
    claims = "test|clicks|CLAIM"
    store.create([a_partition("x", source=claims).completed(NOW), a_partition("x").completed(NOW)])
    assert "expirationTime" not in raw.item("x", claims)
    assert "expirationTime" in raw.item("x")
