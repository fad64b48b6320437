"""Finishing a shard: its partition is COMPLETED and its children's partitions are created, in one
transaction.

A child of a merge has two parents, and its partition must not exist before both are COMPLETED. Whoever
finishes the second parent creates it; the transaction holds only if the other parent is still as it was
read, so two parents that finish in the same moment cannot both leave the child to the other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.leases import parse_partition_key, partition_key
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, ShardProgress

log = logging.getLogger(__name__)

ATTEMPTS = 20


def complete_shard(coordinator: SourceCoordinator, key: str, progress: ShardProgress) -> list[str]:
    """Complete a finished shard and create the partitions of those children that have no unfinished parent.

    Safe to repeat.

    :param key: the shard's partition, leased to this owner.
    :param progress: its last progress.
    :returns: the keys of the children whose partitions exist from now on.
    :raises PartitionNotOwnedError: if the lease is lost.
    :raises PartitionUpdateError: if the other parents of a child keep changing.
    """
    for attempt in range(1, ATTEMPTS + 1):
        parents = _other_parents(coordinator, key, progress)
        ready = [child for child in progress.children if _is_ready(child, progress.shard_id, parents)]
        children = {_sibling_key(key, child.shard_id): ShardProgress.first(progress.stream, child) for child in ready}
        try:
            coordinator.complete(
                key,
                progress.to_mapping(),
                create={child: first.to_mapping() for child, first in children.items()},
                unchanged=[parent for parent in parents.values() if parent is not None],
            )
            return list(children)
        except PartitionUpdateError:  # another parent was renewed or finished in between: look again
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")


def _other_parents(coordinator: SourceCoordinator, key: str, progress: ShardProgress) -> dict[str, Partition | None]:
    names = {parent for child in progress.children for parent in child.parent_shard_ids} - {progress.shard_id}
    return {name: coordinator.get(_sibling_key(key, name)) for name in sorted(names)}


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
