"""A stream whose only shard was split, and the leases that its source stores."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, list_shards


class SplitStream:
    """A stream of a finished parent and two children that a source reads."""

    def __init__(self, coordination: SourceCoordinator, account: Any) -> None:
        self.coordination = coordination
        client = account.client()
        client.create_stream(StreamName="s", ShardCount=1)
        client.split_shard(StreamName="s", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127))
        self.creation_epoch = describe_stream(client, "s").creation_epoch
        self.shards = list_shards(client, "s")
        self.keys = [self.key(shard.shard_id) for shard in self.shards]
        created = {
            key: ShardProgress.first("s", shard, checkpoint=shard.starting_sequence_number).to_mapping()
            for key, shard in zip(self.keys, self.shards, strict=True)
        }
        coordination.create_partitions(created)
        parent = coordination.view.get(self.keys[0])
        assert parent is not None
        coordination.store.transact(update=[parent.completed(datetime.now(UTC))])

    def key(self, shard_id: str) -> str:
        return partition_key("s", self.creation_epoch, shard_id)

    def progress(self, key: str) -> ShardProgress:
        partition = self.coordination.view.get(key)
        assert partition is not None
        return ShardProgress.from_mapping(partition.progress)
