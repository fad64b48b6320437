"""What the end of a batch means to a shard: its checkpoint moves, or the shard is finished and its children follow.

A child of a merge has two parents, and its partition must not exist before both are COMPLETED. Whoever finishes the
second parent creates it; the transaction holds only if the other parent is still as it was read, so two parents that
finish in the same moment cannot both leave the child to the other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.coordination.batches import Lookup, Progress, Settlement
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.leases import parse_partition_key, partition_key
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, ShardProgress

log = logging.getLogger(__name__)


class ShardBatches:
    """The batches of shards: the Kinesis form of `BatchLedger`."""

    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        """See `BatchLedger.set_of`.

        :raises ProgressFormatError: if the progress is not that of a shard.
        """
        batch = ShardProgress.from_mapping(progress).batch(batch_id)
        return None if batch is None else batch.acknowledgment_set

    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        """See `BatchLedger.in_delivery`."""
        return ShardProgress.from_mapping(progress).in_delivery(batch_id, set_id).to_mapping()

    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        """See `BatchLedger.delivered`; the children of a finished shard follow it once no parent is unfinished."""
        before = ShardProgress.from_mapping(partition.progress)
        after = before.acknowledged(batch_id)
        finished = after.is_finished
        parents = _other_parents(partition.partition_key, after, lookup) if finished else {}
        ready = [child for child in after.children if finished and _is_ready(child, after.shard_id, parents)]
        return Settlement(
            progress=after.to_mapping(),
            moved=len(after.landed) < len(before.landed),
            finished=finished,
            pending=_pending(after),
            create={
                _sibling_key(partition.partition_key, child.shard_id): _first(after.stream, child) for child in ready
            },
            unchanged=[parent for parent in parents.values() if parent is not None],
        )

    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        """See `BatchLedger.undelivered`."""
        after = ShardProgress.from_mapping(partition.progress).rejected(batch_id)
        return Settlement(progress=after.to_mapping(), pending=_pending(after))


def _pending(progress: ShardProgress) -> list[str]:
    return [batch.acknowledgment_set for batch in progress.landed if batch.acknowledgment_set is not None]


def _first(stream: str, child: ChildShard) -> Mapping[str, Any]:
    return ShardProgress.first(stream, child).to_mapping()


def _other_parents(key: str, progress: ShardProgress, lookup: Lookup) -> dict[str, Partition | None]:
    names = {parent for child in progress.children for parent in child.parent_shard_ids} - {progress.shard_id}
    return {name: lookup(_sibling_key(key, name)) for name in sorted(names)}


def _is_ready(child: ChildShard, finished: str, parents: Mapping[str, Partition | None]) -> bool:
    for name in child.parent_shard_ids:
        if name == finished:
            continue
        parent = parents[name]
        if parent is None:
            # Whether it is gone or was never seen, only a listing can tell: shard sync decides.
            log.warning("child shard %s waits for shard sync: its parent %s has no partition", child.shard_id, name)
            return False
        if parent.status is not PartitionStatus.COMPLETED:
            log.info("child shard %s waits for its other parent %s", child.shard_id, name)
            return False
    return True


def _sibling_key(key: str, shard_id: str) -> str:
    parsed = parse_partition_key(key)
    return partition_key(parsed.stream, parsed.creation_epoch, shard_id)
