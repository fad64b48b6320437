"""Which shards become partitions, and where they start. Pure decisions, no I/O.

The rule: a shard's lease is created when every parent that is listed or leased is finished, and never before. A shard
is finished when its lease is COMPLETED, or when it has no lease but a descendant has one. A child's lease is only
created after its parents are finished, so such a parent was finished, or lies before the start. If a sibling is leased
and the parent's lease is gone, the Kinesis Client Library reads the parent once more. This rule does not: those records
were delivered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.shards import Shard


class NewLease(NamedTuple):
    """A lease to be created.

    :param shard: its shard.
    :param checkpoint: where it starts: a position, or `LATEST`.
    """

    shard: Shard
    checkpoint: str


def leases_to_create(
    shards: Sequence[Shard], existing: Mapping[str, PartitionStatus], position: str = TRIM_HORIZON
) -> list[NewLease]:
    """Return the leases to be created now, ancestors first: an interruption must leave no child without its parents.

    Within a generation they are sorted by name, as in the Kinesis Client Library. Children of finished parents start at
    their earliest record, whatever the position. A missing lease is replaced from the oldest listed ancestors on. At
    `LATEST`, where older records are not read, only the hash keys without a lease are filled. For the first leases of a
    stream, give the shards that were open at the position, and no older ones.

    :param shards: what ListShards returned. The children of a shard that is listed as open wait for a consistent
        listing.
    :param existing: the shards that have a lease, with its status; they need not be listed any more.
    :param position: where the source started: a position, or `LATEST` if it starts now.
    """
    listed = {shard.shard_id: shard for shard in shards}
    worked_off = _ancestors(listed, existing)
    inconsistent = {child.shard_id for child in children_of_open_shards(shards)}

    def is_finished(shard_id: str) -> bool:
        if shard_id in existing:
            return existing[shard_id] is PartitionStatus.COMPLETED
        return shard_id in worked_off

    def is_open_to_lease(shard: Shard) -> bool:
        name = shard.shard_id
        return name not in existing and name not in worked_off and name not in inconsistent

    due = [
        shard
        for shard in listed.values()
        if is_open_to_lease(shard)
        and all(is_finished(parent) for parent in shard.parent_shard_ids if parent in listed or parent in existing)
    ]
    following = [shard for shard in due if any(parent in existing for parent in shard.parent_shard_ids)]
    if position == LATEST:
        due = [shard for shard in _gaps_beside_leases(listed, existing, worked_off) if is_open_to_lease(shard)]
    created = {shard.shard_id: NewLease(shard, position) for shard in due}
    created |= {shard.shard_id: NewLease(shard, TRIM_HORIZON) for shard in following}
    return sorted(created.values(), key=lambda lease: (int(lease.shard.starting_sequence_number), lease.shard.shard_id))


def children_of_open_shards(shards: Iterable[Shard]) -> list[Shard]:
    """Return the shards whose parent is listed as open: the stream changed during the listing.

    The Kinesis Client Library discards the whole listing; here only these shards wait for the next one.
    """
    shards = list(shards)
    still_open = {shard.shard_id for shard in shards if shard.is_open}
    return [shard for shard in shards if not still_open.isdisjoint(shard.parent_shard_ids)]


def children_by_parent(shards: Iterable[Shard]) -> dict[str, list[Shard]]:
    """Return the listed children of each shard; the shard itself need not be listed."""
    children: dict[str, list[Shard]] = defaultdict(list)
    for shard in shards:
        for parent in shard.parent_shard_ids:
            children[parent].append(shard)
    return dict(children)


def _ancestors(listed: Mapping[str, Shard], leased: Iterable[str]) -> set[str]:
    """Return the listed shards that a listed, leased shard descends from."""
    ancestors: set[str] = set()
    waiting = [shard_id for shard_id in leased if shard_id in listed]
    while waiting:
        for parent in listed[waiting.pop()].parent_shard_ids:
            if parent in listed and parent not in ancestors:
                ancestors.add(parent)
                waiting.append(parent)
    return ancestors


def _gaps_beside_leases(
    listed: Mapping[str, Shard], leased: Collection[str], worked_off: Collection[str]
) -> Iterator[Shard]:
    """Yield the shards that the Kinesis Client Library leases at LATEST in addition to existing leases.

    These are open shards that do not descend from a leased one. If a future shard descends from a leased one, they are
    also its parents that do not.
    """
    covered = _descendants(listed, leased, worked_off)
    seen: set[str] = set()
    waiting = [shard.shard_id for shard in listed.values() if shard.is_open]
    while waiting:
        shard = listed[waiting.pop()]
        if shard.shard_id in seen or shard.shard_id in leased or shard.shard_id in worked_off:
            continue
        seen.add(shard.shard_id)
        parents = [parent for parent in shard.parent_shard_ids if parent in listed]
        waiting += parents
        if shard.shard_id in covered:
            yield from (listed[parent] for parent in parents if parent not in covered)
        elif shard.is_open:
            yield shard


def _descendants(listed: Mapping[str, Shard], leased: Collection[str], worked_off: Collection[str]) -> set[str]:
    """Return the listed shards that are leased, or descend from a leased shard and are not finished."""
    children = children_by_parent(listed.values())
    descendants = {shard_id for shard_id in leased if shard_id in listed}
    waiting = list(leased)
    while waiting:
        for child in children.get(waiting.pop(), ()):
            name = child.shard_id
            if name not in descendants and name not in worked_off:
                descendants.add(name)
                waiting.append(name)
    return descendants
