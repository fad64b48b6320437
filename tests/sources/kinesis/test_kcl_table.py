"""Lease tables as the Kinesis Client Library writes them, read item by item."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.sources.kinesis.kcl_table import (
    KclLease,
    KclRunningError,
    KclStream,
    check_unchanged,
    lease_table,
    parse_lease,
)

VERSION_1 = {
    "leaseKey": {"S": "shardId-000000000001"},
    "leaseOwner": {"S": "worker-1"},
    "leaseCounter": {"N": "1204"},
    "ownerSwitchesSinceCheckpoint": {"N": "0"},
    "checkpoint": {"S": "49590338271490256608559692538361571095921575989136588802"},
    "checkpointSubSequenceNumber": {"N": "3"},
    "parentShardId": {"SS": ["shardId-000000000000"]},
}
VERSION_2 = VERSION_1 | {
    "childShardIds": {"SS": ["shardId-000000000003", "shardId-000000000002"]},
    "startingHashKey": {"S": "0"},
    "endingHashKey": {"S": "170141183460469231731687303715884105727"},
    "pendingCheckpoint": {"S": "49590338271490256608559692538361571095921575989136588803"},
    "pendingCheckpointSubSequenceNumber": {"N": "0"},
    "pendingCheckpointState": {"B": b"\x00\xff"},
}
VERSION_3 = VERSION_2 | {
    "leaseKey": {"S": "123456789012:clicks:1767268800:shardId-000000000001"},
    "streamName": {"S": "123456789012:clicks:1767268800"},
    "shardId": {"S": "shardId-000000000001"},
    "throughputKBps": {"N": "12.345678"},
    "checkpointOwner": {"S": "worker-2"},
    "entityType": {"S": "LEASE"},
}


def test_version_1_lease_has_shard_checkpoint_and_parents() -> None:
    assert parse_lease(VERSION_1) == KclLease(
        lease_key="shardId-000000000001",
        shard_id="shardId-000000000001",
        checkpoint="49590338271490256608559692538361571095921575989136588802",
        sub_sequence_number=3,
        owner="worker-1",
        parent_shard_ids=("shardId-000000000000",),
    )


def test_version_2_lease_adds_children_hash_keys_and_prepared_checkpoint() -> None:
    lease = parse_lease(VERSION_2)

    assert lease.child_shard_ids == ("shardId-000000000002", "shardId-000000000003")
    assert lease.hash_key_range == (0, 2**127 - 1)
    assert lease.pending_checkpoint == "49590338271490256608559692538361571095921575989136588803"


def test_multi_stream_lease_has_its_stream() -> None:
    lease = parse_lease(VERSION_3)

    assert lease.stream == KclStream("123456789012", "clicks", 1767268800)
    assert lease.shard_id == "shardId-000000000001"


def test_unowned_lease_has_no_owner() -> None:
    unowned = {name: value for name, value in VERSION_1.items() if name != "leaseOwner"}

    assert parse_lease(unowned).owner is None


@pytest.mark.parametrize(
    ("attribute", "value", "problem"),
    [
        ("checkpoint", None, "checkpoint is missing"),
        ("checkpoint", {"S": ""}, "checkpoint is missing"),
        ("checkpoint", {"S": "FINISHED"}, "checkpoint 'FINISHED' is neither a sequence number nor one of TRIM_HORIZON"),
        ("checkpoint", {"S": "-5"}, "neither a sequence number"),
        ("checkpoint", {"S": "٣"}, "neither a sequence number"),
        ("checkpoint", {"N": "5"}, "checkpoint is of type N and not S"),
        ("checkpointSubSequenceNumber", {"N": "-1"}, "checkpointSubSequenceNumber '-1' is not a whole number"),
        ("parentShardId", {"S": "shardId-000000000000"}, "parentShardId is of type S and not SS"),
        ("endingHashKey", None, "startingHashKey '0' and endingHashKey None are not two numbers"),
        ("startingHashKey", {"S": "zero"}, "are not two numbers"),
        ("streamName", {"S": "123456789012:other:1767268800"}, "is not the stream of leaseKey"),
        ("shardId", {"S": "shardId-000000000009"}, "is not the shard of leaseKey"),
        ("leaseKey", {"S": "clicks:shardId-000000000001"}, "is not <account>:<stream>:<creation epoch>:<shard>"),
        ("leaseKey", {"S": "1:clicks:0:shardId-000000000001"}, "is not <account>:<stream>:<creation epoch>:<shard>"),
        ("entityType", {"N": "1"}, "entityType is of type N and not S"),
    ],
)
def test_damaged_item_is_reported_without_stopping(attribute: str, value: dict[str, Any] | None, problem: str) -> None:
    damaged = {name: v for name, v in (VERSION_3 | {attribute: value}).items() if v is not None}

    table = lease_table([damaged, VERSION_1])

    assert [lease.lease_key for lease in table.leases] == ["shardId-000000000001"]
    [unreadable] = table.unreadable
    assert unreadable.lease_key == damaged["leaseKey"]["S"]
    assert problem in unreadable.problem


def test_items_of_other_kinds_are_skipped() -> None:
    others = [
        {"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}},
        {"leaseKey": {"S": "worker-1"}, "entityType": {"S": "WORKER_METRIC_STATS"}},
        {"leaseKey": {"S": "worker-2"}, "entityType": {"S": "WORKER_METRIC_STATS"}},
        {"leaseKey": {"S": "Migration3.0"}, "entityType": {"S": "CLIENT_VERSION_MIGRATION"}},
    ]

    table = lease_table([*others, VERSION_3])

    assert [lease.lease_key for lease in table.leases] == [VERSION_3["leaseKey"]["S"]]
    assert table.unreadable == ()
    assert table.other_items == {"LEADER": 1, "WORKER_METRIC_STATS": 2, "CLIENT_VERSION_MIGRATION": 1}


@pytest.mark.parametrize(
    "after",
    [
        [VERSION_1 | {"leaseCounter": {"N": "1205"}}],
        [VERSION_1 | {"leaseOwner": {"S": "worker-2"}}],
        [VERSION_1, VERSION_3],
        [],
    ],
    ids=["renewed", "taken", "created", "deleted"],
)
def test_table_changing_between_reads_is_in_use(after: list[Any]) -> None:
    with pytest.raises(KclRunningError, match=r"still writes to its lease table: .*shardId-000000000001 changed"):
        check_unchanged([VERSION_1], after)


def test_reordered_table_has_not_changed() -> None:
    reordered = VERSION_2 | {"childShardIds": {"SS": ["shardId-000000000002", "shardId-000000000003"]}}

    check_unchanged([VERSION_2, VERSION_3], [VERSION_3, reordered])
