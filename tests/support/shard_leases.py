"""Leases of shards as shard sync reads them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from airflow_provider_coordination.coordination.partition import new_partition
from airflow_provider_coordination.sources.kinesis.leases import ShardLease
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardKey, ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.shards import Shard
from tests.support.batches import NOON


def a_lease(
    shard: Shard, *, checkpoint: str = TRIM_HORIZON, completed_at: datetime | None = None, epoch: int = 1
) -> ShardLease:
    """Return the lease of a shard, waiting for an owner unless it is completed."""
    key = ShardKey("s", epoch, shard.shard_id)
    progress = ShardProgress.first("s", shard, checkpoint=checkpoint)
    if completed_at is not None:
        progress = replace(progress, is_ended=True)
    waiting = new_partition("source|PARTITION", partition_key(*key), NOON).with_progress(progress.to_mapping())
    return ShardLease(key, waiting if completed_at is None else waiting.completed(completed_at), progress)
