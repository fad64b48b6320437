"""Acquisition reads each page once, from the front when alone, and spreads over pages otherwise."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from airflow_provider_coordination.stores.dynamodb.writes import KnownVersions
from tests.stores.dynamodb.conftest import MakeStore, RawTable
from tests.support.aws_wire import AwsWire
from tests.support.partitions import NOW, SOURCE, a_partition, acquisition, keys

pytestmark = pytest.mark.integration


def available(store: DynamoDbStore, status: PartitionStatus, count: int) -> list[str]:
    """Create a number of partitions of a status, due two minutes ago, and return their keys in order."""
    due = NOW - timedelta(minutes=2)
    partitions = [a_partition(f"p{n:02}", age_seconds=120 - n / 1000) for n in range(count)]
    store.create(partitions)
    for n, partition in enumerate(partitions):
        at = due + timedelta(milliseconds=n)
        if status is PartitionStatus.ASSIGNED:
            store.transact(update=[partition.acquired("dead", at)])
        elif status is PartitionStatus.CLOSED:
            store.transact(update=[partition.closed(at)])
    return keys(partitions)


AVAILABLE = [PartitionStatus.ASSIGNED, PartitionStatus.CLOSED, PartitionStatus.UNASSIGNED]


@pytest.mark.parametrize("status", AVAILABLE)
def test_s22_next_partition_is_acquired_after_a_lost_race(
    make_store: MakeStore, store: DynamoDbStore, other: DynamoDbStore, raw: RawTable, status: PartitionStatus
) -> None:
    """S22: owner, ASSIGNED, combination key, timeout and priority are written. We differ: no expirationTime yet."""
    first, second = available(store, status, 2)
    mine = make_store(ttl_seconds=30)
    AwsWire(mine.client).before("UpdateItem", lambda: other.acquire(acquisition(1, owner="other")))

    assert keys(mine.acquire(acquisition(1))) == [second]

    item = raw.item(second)
    assert item["partitionOwner"] == {"S": "me"}
    assert item["sourcePartitionStatus"] == {"S": "ASSIGNED"}
    assert item["sourceStatusCombinationKey"] == {"S": f"{SOURCE}|ASSIGNED"}
    assert item["partitionOwnershipTimeout"] == item["partitionPriority"] == {"S": "2026-03-01T12:01:00.000000Z"}
    assert "expirationTime" not in item
    assert raw.item(first)["partitionOwner"] == {"S": "other"}


@pytest.mark.parametrize("status", AVAILABLE)
def test_s22_queue_is_reread_after_losing_a_whole_page(
    store: DynamoDbStore, other: DynamoDbStore, wire: AwsWire, status: PartitionStatus
) -> None:
    available(store, status, 12)
    wire.requests.clear()
    wire.before("UpdateItem", lambda: other.acquire(acquisition(8, owner="other")))

    [acquired] = store.acquire(acquisition(1))

    assert acquired.partition_key >= "p08"
    assert wire.counts == {"Query": 2 + AVAILABLE.index(status), "UpdateItem": 2}


def test_s24_statuses_are_queried_in_order_until_enough(store: DynamoDbStore, wire: AwsWire) -> None:
    """S24: there ASSIGNED, UNASSIGNED, CLOSED, with pages of 1, 5 and 1. We differ, as the DESIGN says in section 4."""
    expired = available(store, PartitionStatus.ASSIGNED, 1)
    wire.requests.clear()

    assert keys(store.acquire(acquisition(1))) == expired
    assert wire.counts == {"Query": 1, "UpdateItem": 1}
    wire.requests.clear()
    assert store.acquire(acquisition(1)) == []
    asked = [request["ExpressionAttributeValues"][":queue"]["S"] for _, request in wire.requests]
    assert asked == [f"{SOURCE}|{status}" for status in ("ASSIGNED", "CLOSED", "UNASSIGNED")]


def test_s24_pages_never_cap_acquisition(store: DynamoDbStore) -> None:
    made = available(store, PartitionStatus.UNASSIGNED, 30)

    assert keys(store.acquire(acquisition(9))) == made[:9]
    assert keys(store.acquire(acquisition(100))) == made[9:]


def test_many_partitions_cost_few_reads_and_one_write_each(store: DynamoDbStore, wire: AwsWire) -> None:
    available(store, PartitionStatus.UNASSIGNED, 20)
    wire.requests.clear()

    assert len(store.acquire(acquisition(20))) == 20
    assert wire.counts == {"Query": 3, "UpdateItem": 20}


def test_idle_queues_are_not_queried_for_five_seconds(store: DynamoDbStore, wire: AwsWire) -> None:
    available(store, PartitionStatus.UNASSIGNED, 20)
    asked = []
    for seconds in (0, 1, 4.9, 5):
        wire.requests.clear()
        store.acquire(acquisition(2, at=NOW + timedelta(seconds=seconds)))
        asked.append(wire.counts["Query"])

    assert asked == [3, 1, 1, 3]


def test_skipped_queues_are_queried_before_returning_too_few(store: DynamoDbStore, other: DynamoDbStore) -> None:
    a, b, c = (a_partition(key) for key in "abc")
    store.create([a, b, c])
    other.transact(update=[b.acquired("dead", NOW + timedelta(seconds=55))])
    other.transact(update=[c.closed(NOW + timedelta(seconds=61))])
    assert keys(store.acquire(acquisition(1, at=NOW + timedelta(seconds=59)))) == ["a"]

    assert keys(store.acquire(acquisition(at=NOW + timedelta(seconds=61)))) == ["b", "c"]


def test_expired_lease_precedes_unassigned_after_five_seconds(store: DynamoDbStore, other: DynamoDbStore) -> None:
    made = available(store, PartitionStatus.UNASSIGNED, 20)
    store.acquire(acquisition(1))
    other.acquire(replace(acquisition(1, owner="dead"), ownership_timeout=NOW - timedelta(seconds=6)))

    assert keys(store.acquire(acquisition(1, at=NOW + timedelta(seconds=5)))) == [made[1]]


def test_clock_set_back_delays_no_queue(store: DynamoDbStore, wire: AwsWire) -> None:
    available(store, PartitionStatus.UNASSIGNED, 20)
    store.acquire(acquisition(1, at=NOW + timedelta(hours=1)))
    wire.requests.clear()

    store.acquire(acquisition(1))

    assert wire.counts["Query"] == 3


def test_partitions_not_due_are_not_read(store: DynamoDbStore, wire: AwsWire) -> None:
    later = [a_partition(f"p{n}", age_seconds=-1 - n) for n in range(30)]
    store.create(later)
    store.transact(update=[later[0].acquired("other", NOW + timedelta(seconds=1))])
    store.transact(update=[later[1].closed(NOW + timedelta(seconds=1))])
    answers: list[int] = []
    store.client.meta.events.register(
        "after-call.dynamodb.Query", lambda parsed, **_: answers.append(parsed["ScannedCount"])
    )

    assert store.acquire(acquisition()) == []
    assert answers == [0, 0, 0]


@pytest.mark.parametrize("attribute", ["partitionOwnershipTimeout", "reOpenAt"])
def test_wrong_priority_does_not_make_a_partition_due(
    store: DynamoDbStore, raw: RawTable, wire: AwsWire, attribute: str
) -> None:
    status = "ASSIGNED" if attribute == "partitionOwnershipTimeout" else "CLOSED"
    raw.put(
        "a",
        sourcePartitionStatus=status,
        sourceStatusCombinationKey=f"{SOURCE}|{status}",
        partitionPriority="2026-03-01T11:00:00Z",
        version=4,
        **{attribute: "2026-03-01T12:00:01Z"},
    )

    assert store.acquire(acquisition()) == []
    assert "UpdateItem" not in wire.counts


def test_contended_worker_begins_anywhere_for_a_while(
    make_store: MakeStore, store: DynamoDbStore, other: DynamoDbStore
) -> None:
    available(store, PartitionStatus.UNASSIGNED, 60)
    mine = make_store(randomness=random.Random(7))
    wire = AwsWire(mine.client)
    wire.before("UpdateItem", lambda: other.acquire(acquisition(1, owner="other")))
    mine.acquire(acquisition(1))

    taken = [key for _ in range(15) for key in keys(mine.acquire(acquisition(1)))]
    assert taken != sorted(taken)
    front = keys(store.query(SOURCE, PartitionStatus.UNASSIGNED, limit=1))
    assert keys(mine.acquire(acquisition(1))) == front


@pytest.mark.parametrize(("limit", "requests"), [(1, 4.8), (4, 2.8)])
def test_eight_competing_workers_make_few_requests_per_partition(
    make_store: MakeStore, store: DynamoDbStore, limit: int, requests: float
) -> None:
    """Three reads and one write is the least for one at a time; Data Prepper's way takes about nine requests."""
    store.create([a_partition(f"p{n:03}", age_seconds=200 - n / 10) for n in range(200)])
    stores = [make_store() for _ in range(8)]
    wires = [AwsWire(each.client) for each in stores]

    def work(worker: int) -> list[str]:
        taken: list[str] = []
        while got := stores[worker].acquire(acquisition(limit, owner=f"worker-{worker}")):
            taken += keys(got)
        return taken

    with ThreadPoolExecutor(8) as pool:
        taken = [key for mine in pool.map(work, range(8)) for key in mine]

    assert len(taken) == len(set(taken)) == 200
    made = sum((Counter(wire.counts) for wire in wires), Counter())
    assert made.total() / 200 < requests


def test_exhausted_page_returns_what_was_acquired(store: DynamoDbStore, other: DynamoDbStore, wire: AwsWire) -> None:
    available(store, PartitionStatus.UNASSIGNED, 30)
    wire.before("UpdateItem", lambda: other.acquire(acquisition(1, owner="other")))
    store.acquire(acquisition(1))
    wire.requests.clear()
    wire.before("UpdateItem", lambda: None)
    wire.before("UpdateItem", lambda: other.acquire(acquisition(30, owner="other")))

    assert len(store.acquire(acquisition(20))) == 1
    assert wire.counts == {"Query": 3, "UpdateItem": 5}


def test_stale_index_costs_no_second_write(store: DynamoDbStore, wire: AwsWire, raw: RawTable) -> None:
    """The server's index never is, so what it showed before is shown again."""
    store.create([a_partition("a")])
    before = raw.client.query(
        TableName=raw.name,
        IndexName="source-status",
        KeyConditionExpression="sourceStatusCombinationKey = :queue",
        ExpressionAttributeValues={":queue": {"S": f"{SOURCE}|UNASSIGNED"}},
    )
    assert keys(store.acquire(acquisition())) == ["a"]
    wire.requests.clear()
    nothing = {"Items": [], "Count": 0}
    for body in (nothing, nothing, {"Items": before["Items"], "Count": 1}):
        wire.answer("Query", body)

    assert store.acquire(acquisition()) == []
    assert wire.counts == {"Query": 3}


def test_recreated_partition_differs_from_the_old_one(store: DynamoDbStore, other: DynamoDbStore) -> None:
    for creator in (store, other):
        store.create([a_partition("a")])
        [mine] = store.acquire(acquisition())
        store.delete(mine)
        creator.create([a_partition("a")])
        [again] = store.acquire(acquisition())
        store.delete(again)


def test_known_version_is_forgotten_after_the_index_delay() -> None:
    now = 1000.0
    known = KnownVersions(lambda: now)
    known.note(a_partition("a"), 3)

    assert known.outdated(a_partition("a"))
    now += 5
    assert not known.outdated(a_partition("a"))


def test_stale_candidate_is_left_to_its_new_owner(store: DynamoDbStore, other: DynamoDbStore, wire: AwsWire) -> None:
    store.create([a_partition("a")])
    wire.before("UpdateItem", lambda: other.acquire(acquisition(owner="other")))

    assert store.acquire(acquisition()) == []
    stored: Partition | None = store.get(SOURCE, "a")
    assert stored is not None and (stored.owner, stored.version) == ("other", 1)


def test_request_time_decides_instead_of_machine_time(store: DynamoDbStore) -> None:
    store.create([a_partition("a", age_seconds=-3600)])

    later: datetime = NOW + timedelta(hours=1)
    assert store.acquire(acquisition()) == []
    assert keys(store.acquire(acquisition(at=later))) == ["a"]
