"""From where a partition starts again when a person resets it: its source knows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.coordination.errors import ProgressError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinesis.leases import ShardKey, parse_partition_key
from airflow_provider_coordination.sources.kinesis.progress import ProgressFormatError, ShardProgress


def beginning(partition: Partition) -> Mapping[str, Any]:
    """Return the progress with which everything of this partition is read again.

    For a shard, its identity without checkpoint, landed batches and children; for anything else, nothing.

    :raises ProgressError: if the stored progress does not tell.
    """
    key = repr(partition.partition_key)
    if partition.unreadable_progress is not None:
        raise ProgressError(
            f"partition {key}: its stored progress is not a JSON object and does not tell where it began; "
            "give the progress to start from"
        )
    if _shard_of(partition) is None:
        return {}
    try:
        return ShardProgress.from_mapping(partition.progress).from_the_beginning().to_mapping()
    except ProgressFormatError as error:
        raise ProgressError(
            f"partition {key}: its stored progress does not tell which shard it is; "
            f"give the progress to start from: {error}"
        ) from None


def check_progress(partition: Partition, progress: Mapping[str, Any]) -> None:
    """Check that a partition can start from this progress.

    :raises ProgressError: if it is a shard's partition and this is not the progress of that shard.
    """
    shard = _shard_of(partition)
    if shard is None:
        return
    key = repr(partition.partition_key)
    try:
        given = ShardProgress.from_mapping(progress)
    except ProgressFormatError as error:
        raise ProgressError(f"partition {key}: the given progress is not that of a shard: {error.__cause__}") from None
    if (given.stream, given.shard_id) != (shard.stream, shard.shard_id):
        raise ProgressError(
            f"partition {key}: the given progress is that of shard {given.shard_id!r} of stream {given.stream!r}; "
            "give this one's own"
        )


def _shard_of(partition: Partition) -> ShardKey | None:
    try:
        shard = parse_partition_key(partition.partition_key)
    except ValueError:
        return None
    # Keys of other sources may have colons and numbers too.
    return shard if shard.shard_id.startswith("shardId-") else None
