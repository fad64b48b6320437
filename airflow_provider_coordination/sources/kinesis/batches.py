"""The end of a shard's batch: its checkpoint moves, or the shard is finished and its children follow.

A child of a merge has two parents, and its partition must not exist before both are COMPLETED. The worker that
finishes the second parent creates it. The transaction fails if the other parent has changed since it was read. So two
parents that finish at the same moment cannot both leave the child to the other.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from airflow_provider_coordination.coordination.batches import Lookup, Settlement
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.keys import sibling_key
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, ShardProgress, start_of_child
from airflow_provider_coordination.sources.landed import LandedBatches, ProgressFormatError

log = logging.getLogger(__name__)


class ShardBatches(LandedBatches):
    """The batches of shards."""

    def __init__(self) -> None:
        super().__init__(ShardProgress)

    def with_followers(
        self, settlement: Settlement, partition: Partition, before: ShardProgress, after: ShardProgress, lookup: Lookup
    ) -> Settlement:
        """See `LandedBatches.with_followers`: children follow once all their parents are finished."""
        if not after.is_followed:
            return settlement
        parents = _other_parents(partition.partition_key, after, lookup)
        ready = [child for child in after.children if _is_ready(child, after.shard_id, parents)]
        return replace(
            settlement,
            create={
                sibling_key(partition.partition_key, child.shard_id): _first(before, after, child, parents)
                for child in ready
            },
            unchanged=[parent for parent in parents.values() if parent is not None],
        )


def _first(
    before: ShardProgress, parent: ShardProgress, child: ChildShard, others: Mapping[str, Partition | None]
) -> Mapping[str, Any]:
    # The child is younger than the last known record of its parent, so none of its records is older.
    known = [before.delivered_until, *(batch.last_arrival for batch in before.landed)]
    checkpoint, epoch = start_of_child([parent, *_readable(others.get(name) for name in child.parent_shard_ids)])
    return ShardProgress.first(
        parent.stream,
        child,
        checkpoint=checkpoint,
        delivered_until=max((instant for instant in known if instant), default=None),
        epoch=epoch,
        start=parent.start,
        end=parent.end,
    ).to_mapping()


def _readable(partitions: Iterable[Partition | None]) -> Iterator[ShardProgress]:
    for partition in partitions:
        if partition is not None:
            with suppress(ProgressFormatError):
                yield ShardProgress.from_mapping(partition.progress)


def _other_parents(key: str, progress: ShardProgress, lookup: Lookup) -> dict[str, Partition | None]:
    names = {parent for child in progress.children for parent in child.parent_shard_ids} - {progress.shard_id}
    return {name: lookup(sibling_key(key, name)) for name in sorted(names)}


def _is_ready(child: ChildShard, finished: str, parents: Mapping[str, Partition | None]) -> bool:
    for name in child.parent_shard_ids:
        if name == finished:
            continue
        parent = parents[name]
        if parent is None:
            # Only a listing shows whether it is gone or was never known, so shard sync decides.
            log.warning("child shard %s waits for shard sync: its parent %s has no partition", child.shard_id, name)
            return False
        if parent.status is not PartitionStatus.COMPLETED:
            log.info("child shard %s waits for its other parent %s", child.shard_id, name)
            return False
    return True
