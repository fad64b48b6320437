"""Shard sync: the step that turns a stream's shards into partitions.

It only ever creates, and creating what exists is no error, so it may run at any time, twice, and beside
itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.leases import (
    leases_to_create,
    parse_partition_key,
    partition_key,
)
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, list_shards

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardSyncSummary:
    """What a shard sync found and did.

    :param stream: the stream's name.
    :param creation_epoch: when the stream was created, in whole seconds since 1970.
    :param shards: how many shards are listed.
    :param open_shards: how many of them take records.
    :param created: the keys of the partitions it created.
    :param existing: how many partitions of this stream there were before.
    """

    stream: str
    creation_epoch: int
    shards: int
    open_shards: int
    created: list[str]
    existing: int


def sync_shards(client: KinesisClient, coordinator: SourceCoordinator, stream_name: str) -> ShardSyncSummary:
    """Create the partitions that a stream's shards call for, to be read from the earliest record on.

    :param client: as `kinesis_client` returns it.
    :param coordinator: of the source, initialized.
    :param stream_name: the stream.
    :raises StreamNotFoundError: if there is no such stream.
    :raises SourceError: if it cannot be listed.
    """
    stream = describe_stream(client, stream_name)
    # Leases before shards: whatever happens in between, a parent whose lease was completed, or cleaned up, is
    # seen as finished, since the later listing holds its children.
    existing = statuses_by_shard(coordinator.partitions(), stream_name, stream.creation_epoch)
    shards = list_shards(client, stream_name)
    wanted = {
        partition_key(stream_name, stream.creation_epoch, shard.shard_id): ShardProgress.first(stream_name, shard)
        for shard in leases_to_create(shards, existing)
    }
    created = coordinator.create_partitions({key: progress.to_mapping() for key, progress in wanted.items()})
    summary = ShardSyncSummary(
        stream=stream_name,
        creation_epoch=stream.creation_epoch,
        shards=len(shards),
        open_shards=sum(shard.is_open for shard in shards),
        created=created,
        existing=len(existing),
    )
    log.info(
        "shard sync: stream=%s epoch=%d shards=%d open=%d partitions_before=%d created=%d: %s",
        summary.stream,
        summary.creation_epoch,
        summary.shards,
        summary.open_shards,
        summary.existing,
        len(created),
        ", ".join(created) or "none",
    )
    return summary


def statuses_by_shard(partitions: Iterable[Partition], stream: str, creation_epoch: int) -> dict[str, PartitionStatus]:
    """Return the status of each shard of this stream that has a partition, leaving other streams out.

    :param partitions: all partitions of the source.
    :param stream: the stream's name.
    :param creation_epoch: when the stream was created, in whole seconds since 1970.
    """
    statuses = {}
    for partition in partitions:
        try:
            key = parse_partition_key(partition.partition_key)
        except ValueError:
            continue  # not a shard: the source may hold partitions of other kinds
        if (key.stream, key.creation_epoch) == (stream, creation_epoch):
            statuses[key.shard_id] = partition.status
    return statuses
