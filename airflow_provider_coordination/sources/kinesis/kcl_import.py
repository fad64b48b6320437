"""Importing the leases of the Kinesis Client Library: reading the table and the stream, and making partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    Partition,
    new_partition,
)
from airflow_provider_coordination.sources.kinesis.aggregation import expand, is_aggregated
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, kinesis_errors
from airflow_provider_coordination.sources.kinesis.kcl import (
    CheckpointRecord,
    ImportPlan,
    ShardPlan,
    checkpoints_to_look_up,
    plan_import,
)
from airflow_provider_coordination.sources.kinesis.kcl_table import (
    SETTLE_SECONDS,
    Item,
    check_unchanged,
    lease_table,
    read_items,
    read_stable_items,
)
from airflow_provider_coordination.sources.kinesis.pacing import READS_PER_SECOND
from airflow_provider_coordination.sources.kinesis.positions import AT_TIMESTAMP
from airflow_provider_coordination.sources.kinesis.progress import partition_key
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, list_shards
from airflow_provider_coordination.sources.kinesis.stream_names import naming
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls

MAX_PAGES_READ = 50
"""How many pages without a record are read before the record at a checkpoint counts as unknown."""


@dataclass(frozen=True)
class KclImport:
    """An import that is planned and not done.

    :param plan: what each lease becomes.
    :param items: the items of the lease table that the plan is based on.
    """

    plan: ImportPlan
    items: Sequence[Item]

    def check_unchanged(self, leases: DynamoDbCalls) -> None:
        """Check, right before the import, that the application was not started in the meantime.

        :param leases: makes calls to the lease table.
        :raises KclRunningError: if an item has changed.
        """
        check_unchanged(self.items, read_items(leases))


def prepare_import(
    leases: DynamoDbCalls,
    client: KinesisClient,
    stream_name: str,
    *,
    now: datetime,
    account: str | None = None,
    settle_seconds: float = SETTLE_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
    **unread: Any,
) -> KclImport:
    """Read a lease table and its stream, and decide what each lease becomes. Writes nothing.

    :param leases: makes calls to the lease table.
    :param client: as `kinesis_client` returns it.
    :param stream_name: the name or ARN of the stream whose leases are imported.
    :param now: as for `plan_import`, also `account`.
    :param settle_seconds: the wait between two readings of the table.
    :param sleep: waits that many seconds.
    :param unread: the other arguments of `plan_import`: where shards without a checkpoint start.
    :raises KclRunningError: if the application is still running.
    :raises ConfigurationError: if the table or the stream does not exist, or access is denied.
    :raises StoreUnavailableError: if DynamoDB is unavailable.
    :raises SourceError: if Kinesis is unavailable.
    """
    # Leases before shards: a shard that splits in between is still seen with its children.
    items = read_stable_items(leases, settle_seconds=settle_seconds, sleep=sleep)
    table = lease_table(items)
    stream = describe_stream(client, stream_name)
    shards = list_shards(client, stream_name)
    records = {
        shard_id: checkpoint_record(client, stream_name, shard_id, checkpoint, sleep=sleep)
        for shard_id, checkpoint in checkpoints_to_look_up(table, stream, shards, account=account).items()
    }
    plan = plan_import(
        table,
        stream,
        shards,
        records,
        now=min(now, stream.described_at or now),  # a local clock that is ahead of the service's would skip records
        account=account,
        **unread,
    )
    return KclImport(plan, items)


def checkpoint_record(
    client: KinesisClient,
    stream_name: str,
    shard_id: str,
    sequence_number: str,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> CheckpointRecord:
    """Return the record of a stream at a sequence number. Errors that concern one shard are returned, not raised.

    :param client: as `kinesis_client` returns it.
    :param stream_name: the stream.
    :param shard_id: the shard.
    :param sequence_number: the sequence number of the record.
    :param sleep: waits that many seconds.
    """
    try:
        with kinesis_errors(client, stream_name, shard_id):
            iterator = client.get_shard_iterator(
                **naming(stream_name),
                ShardId=shard_id,
                ShardIteratorType="AT_SEQUENCE_NUMBER",
                StartingSequenceNumber=sequence_number,
            )["ShardIterator"]
            for _ in range(MAX_PAGES_READ):
                page = client.get_records(ShardIterator=iterator, Limit=1)
                if page["Records"]:
                    return _checkpoint_record(page["Records"][0], sequence_number)
                iterator = page.get("NextShardIterator")
                if not iterator or page.get("MillisBehindLatest") == 0:
                    return CheckpointRecord()
                sleep(1 / READS_PER_SECOND)
    except SourceError as error:
        return CheckpointRecord(problem=str(error))
    return CheckpointRecord(problem=f"{MAX_PAGES_READ} reads in a row returned no record; try again")


def partition_of(plan: ImportPlan, shard: ShardPlan, source_identifier: str, now: datetime) -> Partition | None:
    """Return the partition of a shard's plan, or None if it gets none. A refused shard is parked.

    Without a partition, the next shard sync would read a refused shard from its earliest record on.

    :param source_identifier: the source's item family.
    :param now: the instant of the import (aware); it is its place in the queue.
    """
    if shard.progress is None:
        return None
    key = partition_key(plan.stream.name, plan.stream.creation_epoch, shard.progress.shard_id)
    partition = new_partition(source_identifier, key, now).with_progress(shard.progress.to_mapping())
    if shard.is_refused:
        return partition.failed(f"not imported: {shard.note}; {shard.remedy}").resting(PARKED_UNTIL)
    return partition.completed(now) if shard.progress.is_finished else partition


def keep_earlier_start(shard: ShardPlan, partition: Partition, existing: Partition | None) -> Partition:
    """Return a partition with the start that an earlier import gave it, if there was one: the instant of that import.

    :param shard: the shard's plan.
    :param partition: as it would be created now.
    :param existing: as the store has it; None if it does not exist.
    """
    if existing is None or not shard.is_from_now_on:
        return partition
    instant = {"checkpoint", "delivered_until"}
    imported, stored = (
        {name: value for name, value in p.progress.items() if name not in instant} for p in (partition, existing)
    )
    began = existing.progress.get("checkpoint")
    if imported != stored or not isinstance(began, str) or not began.startswith(AT_TIMESTAMP):
        return partition
    return partition.with_progress(existing.progress)


def _checkpoint_record(record: Mapping[str, Any], sequence_number: str) -> CheckpointRecord:
    """Return the checkpoint's record, given the first record that was read from the sequence number on."""
    number = int(record["SequenceNumber"])
    if number > int(sequence_number):
        return CheckpointRecord()
    if number < int(sequence_number):
        return CheckpointRecord(problem=f"Kinesis returned the record {number}, which is before the checkpoint")
    data, key = record["Data"], record["PartitionKey"]
    records = expand(data, key)
    if is_aggregated(data) and records == [(0, key, data)]:
        return CheckpointRecord(problem="it looks like an aggregate and cannot be split into user records")
    return CheckpointRecord(user_records=len(records))
