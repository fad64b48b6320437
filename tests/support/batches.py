"""Landed batches, and shards whose deliveries are acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, ShardRange, partition_key
from airflow_provider_coordination.sources.landed import LandedBatch

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_batch(start: str, end: str, **changes: Any) -> LandedBatch:
    """A batch of a shard, named after its end."""
    landed = LandedBatch(
        batch_id=f"batch-to-{end}",
        start=start,
        end=end,
        file=f"{end}.parquet",
        file_bytes=1000,
        records=10,
        bytes=100,
        is_last=False,
        read_until=NOON,
        fencing_token=3,
    )
    return replace(landed, **changes)


def shard_key(shard: str) -> str:
    return partition_key("s", 1, shard)


def a_child(name: str, *parents: str) -> ShardRange:
    return ShardRange(shard_id=name, parent_shard_ids=parents, starting_hash_key="0", ending_hash_key="9")


def a_shard(name: str) -> ShardProgress:
    """A shard of which nothing was read yet."""
    return ShardProgress(stream="s", shard_id=name, parent_shard_ids=(), starting_hash_key="0", ending_hash_key="9")


def an_end(progress: ShardProgress, batch_id: str = "end") -> LandedBatch:
    """The batch that says that a shard has no record after what was read of it."""
    at = progress.landed_position
    return a_batch(at, at, batch_id=batch_id, file="", file_bytes=0, records=0, bytes=0, is_last=True)


def begin_delivery(
    coordinator: SourceCoordinator,
    key: str,
    landed: LandedBatch,
    handles: Sequence[str] = (),
    *,
    children: tuple[ShardRange, ...] = (),
    timeout: timedelta = HOUR,
    **options: Any,
) -> AcknowledgmentSet:
    """Land a batch of a shard that a coordinator holds, and begin its delivery; without handles it is delivered."""
    progress = ShardProgress.from_mapping(coordinator.leases.leased(key).progress).landing(landed, children)
    sets = AcknowledgmentSets(coordinator, SourceBatches())
    return sets.begin(key, landed.batch_id, handles, timeout=timeout, progress=progress.to_mapping(), **options)


def end_shard(coordinator: SourceCoordinator, key: str, *children: ShardRange) -> AcknowledgmentSet:
    """Deliver the end of a shard of which everything before is delivered."""
    progress = ShardProgress.from_mapping(coordinator.leases.leased(key).progress)
    return begin_delivery(coordinator, key, an_end(progress), children=children)
