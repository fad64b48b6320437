"""Lease tables as the Kinesis Client Library writes them, attribute by attribute, for tests of the import."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinesis.kcl import ImportPlan
from airflow_provider_coordination.sources.kinesis.kcl_import import partition_of


def create_lease_table(client: Any, table: str) -> None:
    """Create an empty lease table with the index that version 3 adds; versions 1 and 2 have no use for it."""
    client.create_table(
        TableName=table,
        KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
        AttributeDefinitions=[
            {"AttributeName": "leaseKey", "AttributeType": "S"},
            {"AttributeName": "leaseOwner", "AttributeType": "S"},
        ],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "LeaseOwnerToLeaseKeyIndex",
                "KeySchema": [
                    {"AttributeName": "leaseOwner", "KeyType": "HASH"},
                    {"AttributeName": "leaseKey", "KeyType": "RANGE"},
                ],
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
        ],
        BillingMode="PAY_PER_REQUEST",
    )


def lease_item(
    version: int,
    shard: Any,
    checkpoint: str,
    *,
    sub_sequence_number: int = 0,
    owner: str | None = "worker-1",
    counter: int = 7,
    children: tuple[str, ...] = (),
    stream_identifier: str | None = None,
    pending: str | None = None,
) -> dict[str, dict[str, Any]]:
    """Return a lease as that version of the library writes it.

    :param version: 1, 2 or 3.
    :param shard: a `Shard`, as `list_shards` returns it.
    :param checkpoint: a sequence number or a sentinel.
    :param stream_identifier: `account:stream:epoch` for a multi-stream application, of version 2 or 3.
    """
    item: dict[str, dict[str, Any]] = {
        "leaseKey": {"S": shard.shard_id},
        "leaseCounter": {"N": str(counter)},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub_sequence_number)},
    }
    if owner:
        item["leaseOwner"] = {"S": owner}
    if shard.parent_shard_ids:
        item["parentShardId"] = {"SS": list(shard.parent_shard_ids)}
    if pending:
        item["pendingCheckpoint"] = {"S": pending}
        item["pendingCheckpointSubSequenceNumber"] = {"N": "0"}
    if version >= 2:
        item["startingHashKey"] = {"S": shard.starting_hash_key}
        item["endingHashKey"] = {"S": shard.ending_hash_key}
        if pending:
            item["pendingCheckpointState"] = {"B": b"\x01\x02"}
        if children:
            item["childShardIds"] = {"SS": list(children)}
        if stream_identifier:
            item["leaseKey"] = {"S": f"{stream_identifier}:{shard.shard_id}"}
            item["streamName"] = {"S": stream_identifier}
            item["shardId"] = {"S": shard.shard_id}
    if version >= 3:
        item["throughputKBps"] = {"N": "3.141593"}
        item["entityType"] = {"S": "LEASE"}
    return item


def other_items() -> list[dict[str, dict[str, Any]]]:
    """Return what version 3.5 may keep beside the leases."""
    return [
        {"leaseKey": {"S": "Leader"}, "entityType": {"S": "LEADER"}, "leaseOwner": {"S": "worker-1"}},
        {"leaseKey": {"S": "Migration3.0"}, "entityType": {"S": "CLIENT_VERSION_MIGRATION"}, "cv": {"S": "3"}},
        {
            "leaseKey": {"S": "worker-1"},
            "entityType": {"S": "WORKER_METRIC_STATS"},
            "sts": {"M": {"C": {"L": [{"N": "12.5"}]}}},
        },
    ]


def write_items(client: Any, table: str, items: list[dict[str, dict[str, Any]]]) -> None:
    """Write items as they are."""
    for item in items:
        client.put_item(TableName=table, Item=item)


def partitions_of(plan: ImportPlan, source_identifier: str, now: datetime) -> list[Partition]:
    """Return the partitions of a plan, as the command imports them."""
    partitions = (partition_of(plan, shard, source_identifier, now) for shard in plan.shards)
    return [partition for partition in partitions if partition is not None]
