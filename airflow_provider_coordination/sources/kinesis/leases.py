"""The leases of shards: which shards become partitions, and whether every hash key is covered. Pure, without I/O.

The rule for new leases: a shard's lease is created when every parent that is listed or leased is finished, and never
before. A shard is finished when its lease is COMPLETED, or when it has no lease but a descendant has one. A child's
lease is only created after its parents are finished, so such a parent was finished, or lies before the start. If a
sibling is leased and the parent's lease is gone, the Kinesis Client Library reads the parent once more. This rule does
not: those records were delivered.

The audit: at any time, every hash key belongs to an unfinished lease, or to a finished shard whose child waits for its
other parent. A range that belongs to neither is a hole: a missing lease. Reading the store is not a snapshot, so a hole
counts only once it is found three times in a row, as in the Kinesis Client Library. Unlike in that library, the covered
range ends at the largest end of all leases, and a merge that waits for its second parent is no hole.

Where shards have no hash keys, the audit follows the lineage: every finished lease has a child, and each child that is
known has a lease. A child without a lease, and a finished shard whose children are not known, are a hole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.bounds import Bounds
from airflow_provider_coordination.sources.kinesis.positions import (
    LATEST,
    TRIM_HORIZON,
    is_sequence_number,
    parse_position,
)
from airflow_provider_coordination.sources.kinesis.progress import (
    ShardKey,
    ShardProgress,
    ShardRange,
    parse_partition_key,
    start_of_child,
)
from airflow_provider_coordination.sources.kinesis.shards import MAX_HASH_KEY, Shard, StreamDescription


class StreamKey(NamedTuple):
    """A stream that exists or existed; another stream of the same name has another epoch."""

    stream: str
    creation_epoch: int

    def __str__(self) -> str:
        return f"{self.stream}:{self.creation_epoch}"


@dataclass(frozen=True)
class ShardLease:
    """The lease of a shard.

    :param key: the parsed key of its partition.
    :param partition: as it was read.
    :param progress: the progress of the partition; None if it cannot be read.
    """

    key: ShardKey
    partition: Partition
    progress: ShardProgress | None

    @property
    def is_finished(self) -> bool:
        """Whether it is COMPLETED."""
        return self.partition.status is PartitionStatus.COMPLETED

    @property
    def is_started(self) -> bool:
        """Whether some or all of the shard is delivered, so that its start no longer matters."""
        return self.is_finished or (self.progress is not None and is_sequence_number(self.progress.checkpoint))

    @property
    def is_put_aside(self) -> bool:
        """Whether shard sync parked it because of its stream, and it was not written since."""
        mark = None if self.progress is None else self.progress.put_aside
        return self.partition.is_parked and mark is not None and mark.version == self.partition.version


Leases = Mapping[str, ShardLease]
"""The leases of one stream, by shard."""


def leases_by_stream(partitions: Iterable[Partition]) -> dict[StreamKey, dict[str, ShardLease]]:
    """Return the leases of shards, by stream and shard; partitions of other kinds are left out."""
    by_stream: dict[StreamKey, dict[str, ShardLease]] = defaultdict(dict)
    for partition in partitions:
        try:
            key = parse_partition_key(partition.partition_key)
        except ValueError:
            continue  # not a shard: the source may hold partitions of other kinds
        by_stream[StreamKey(key.stream, key.creation_epoch)][key.shard_id] = ShardLease(
            key, partition, stored_progress(partition)
        )
    return dict(by_stream)


def stored_progress(partition: Partition) -> ShardProgress | None:
    """Return the progress that a shard's partition stores; None if it cannot be read."""
    try:
        return ShardProgress.from_mapping(partition.progress)
    except SourceError:
        return None


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
    worked_off = ancestors(existing, listed_parents(listed))
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


def first_progress(
    described: StreamDescription,
    new: NewLease,
    leases: Leases,
    began: str,
    bounds: Bounds | None,
    now: datetime,
) -> ShardProgress:
    """Return the first progress of a new lease.

    :param described: the stream.
    :param new: the lease.
    :param leases: the stream's leases; those of the shard's parents are finished.
    :param began: the position at which the stream started.
    :param bounds: the part of the stream that is read; None for everything from there on.
    :param now: the present instant (aware).
    """
    start, end = (None, None) if bounds is None else (bounds.start_position, bounds.end_position)
    if leased := [leases[name].progress for name in new.shard.parent_shard_ids if name in leases]:
        parents = [parent for parent in leased if parent is not None]
        checkpoint, epoch = start_of_child(parents)
        ends = [parent.delivered_until for parent in parents if parent.delivered_until is not None]
        owed = [parent.owed_since for parent in parents if parent.owed_since is not None]
        return ShardProgress.first(
            described.name,
            new.shard,
            kind=described.kind,
            checkpoint=checkpoint,
            epoch=epoch,
            delivered_until=max(ends, default=None),
            owed_since=None if ends else max(owed, default=now),
            start=start,
            end=end,
        )
    began_at = parse_position(began).timestamp
    # Records that are gone by now were read under an earlier lease.
    is_kept = began_at is not None and began_at >= described.kept_since(now)
    return ShardProgress.first(
        described.name,
        new.shard,
        kind=described.kind,
        checkpoint=began,
        delivered_until=began_at if is_kept else None,
        owed_since=None if is_kept else now,
        start=start,
        end=end,
    )


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


def ancestors(names: Iterable[str], parents: Mapping[str, Iterable[str]]) -> set[str]:
    """Return the shards that some shards descend from, as far as the parents of each shard are known."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        unseen = set(parents.get(waiting.pop(), ())) - found
        found |= unseen
        waiting += unseen
    return found


def listed_parents(listed: Mapping[str, Shard]) -> dict[str, list[str]]:
    """Return the parents of each listed shard that are listed too."""
    return {name: [p for p in shard.parent_shard_ids if p in listed] for name, shard in listed.items()}


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


CONFIDENCE = 3
"""How many times in a row the same hole must be found before it is acted on."""


def first_hole(ranges: Iterable[HashKeyRange]) -> HashKeyRange | None:
    """Return the first range of hash keys that none of these covers; None if they cover all. Overlaps are allowed."""
    return next(_holes(ranges), None)


def _holes(ranges: Iterable[HashKeyRange]) -> Iterator[HashKeyRange]:
    expected = 0
    for found in sorted(ranges):
        if found.first > expected:
            yield HashKeyRange(expected, found.first - 1)
        expected = max(expected, found.last + 1)
    if expected <= MAX_HASH_KEY:
        yield HashKeyRange(expected, MAX_HASH_KEY)


@dataclass(frozen=True)
class LineageHole:
    """The children of a finished shard, if one of them has no lease, or none is known.

    :param parent: the finished shard.
    """

    parent: str

    def __str__(self) -> str:
        return f"children of {self.parent}"


Hole = HashKeyRange | LineageHole
"""What is read neither now nor later."""


def hole_between(leases: Leases, shards: Collection[Shard] = ()) -> Hole | None:
    """Return the first range of hash keys, or the first children, read neither now nor later; None if there are none.

    :param leases: of one stream, including finished ones.
    :param shards: the listed shards, if there is a listing: it has the children of finished shards, and hash ranges.
    """
    if leases and not _have_hash_keys(leases):
        return _unfollowed(leases, shards)
    return first_hole(found for found in _covered(leases, shards) if found is not None)


def covers_every_hash_key(leases: Leases) -> bool:
    """Return whether these leases of one stream show that all of it is read; never where shards have no hash keys."""
    return _have_hash_keys(leases) and hole_between(leases) is None


def _have_hash_keys(leases: Leases) -> bool:
    return not any(lease.progress is not None and not lease.progress.has_hash_keys for lease in leases.values())


def _unfollowed(leases: Leases, shards: Collection[Shard]) -> LineageHole | None:
    """Return the first finished shard without a child, or with a child that has no lease."""
    listed = children_by_parent(shards)
    for name, lease in sorted(leases.items()):
        if lease.is_finished and lease.progress is not None and lease.progress.is_followed:
            children = {child.shard_id for child in (*lease.progress.children, *listed.get(name, ()))}
            if not children or not children <= leases.keys():
                return LineageHole(name)
    return None


def unfollowed(partitions: Iterable[Partition]) -> Iterator[ShardLease]:
    """Yield the finished leases whose children may hold records, and have no lease.

    Streams that are read within bounds are left out, and shards whose rest was recorded as lost: nothing follows them.

    :param partitions: all partitions of a source.
    """
    for leases in leases_by_stream(partitions).values():
        known = [lease.progress for lease in leases.values() if lease.progress is not None]
        if any(progress.end is not None for progress in known) or hole_between(leases) is None:
            continue
        parents = {parent for progress in known for parent in progress.parent_shard_ids}
        for name, lease in leases.items():
            progress = lease.progress
            if not lease.is_finished or progress is None or any(gap.before is None for gap in progress.gaps):
                continue
            if name not in parents if not progress.children else _lacks_child(progress, leases):
                yield lease


def _lacks_child(finished: ShardProgress, leases: Leases) -> bool:
    """Return whether a child of a finished shard has no lease, and waits for no other parent."""
    return any(
        child.shard_id not in leases
        and all(parent not in leases or leases[parent].is_finished for parent in child.parent_shard_ids)
        for child in finished.children
    )


def holes_between(leases: Leases) -> list[HashKeyRange]:
    """Return every range of hash keys that is read neither now nor later, as far as the leases alone show.

    Empty if the leases cannot show it: nothing is left to read, or an unfinished lease has no hash range.
    Shards without hash keys never show it.

    :param leases: of one stream, including finished ones.
    """
    covered = _covered(leases, ())
    if all(lease.is_finished for lease in leases.values()) or None in covered:
        return []
    return list(_holes(found for found in covered if found is not None))


def _covered(leases: Leases, shards: Collection[Shard]) -> list[HashKeyRange | None]:
    """Return the ranges that are read now or later; None for an unknown range."""
    listed = {shard.shard_id: shard for shard in shards}
    children = children_by_parent(shards)
    covered = [lease for lease in leases.values() if not lease.is_finished or _waits(lease, leases, children)]
    return [hash_range_of(lease, listed.get(lease.key.shard_id)) for lease in covered]


def hash_range_of(lease: ShardLease, shard: Shard | None = None) -> HashKeyRange | None:
    """Return the hash keys of a lease, from its progress or its listed shard; None if unknown."""
    known = None if lease.progress is None else lease.progress.hash_keys
    return shard.hash_keys if known is None and shard is not None else known


@dataclass(frozen=True)
class HoleTracker:
    """How many times in a row the same hole was found.

    :param hole: the hole, as text; None if there is none.
    :param sights: the number of times.
    """

    hole: str | None = None
    sights: int = 0

    def after_check(self, hole: Hole | None) -> HoleTracker:
        """Return the tracker after one more check. Another hole starts at one again."""
        if hole is None:
            return HoleTracker()
        return HoleTracker(str(hole), self.sights + 1 if self.hole == str(hole) else 1)

    @property
    def is_certain(self) -> bool:
        """Whether the hole is confirmed, and not an effect of reading a changing store."""
        return self.sights >= CONFIDENCE


def _waits(finished: ShardLease, leases: Leases, listed: Mapping[str, Sequence[Shard]]) -> bool:
    """Return whether a child of a finished shard waits for its other parent.

    The other parent is not finished, or has no lease yet. In the latter case its hash keys belong to an ancestor, or
    are a hole of their own. It was not cleaned up, since that happens only after the child is started.
    """
    children: Sequence[ShardRange] = [
        *(finished.progress.children if finished.progress is not None else ()),
        *listed.get(finished.key.shard_id, ()),
    ]
    return any(
        child.shard_id not in leases
        and not all(parent in leases and leases[parent].is_finished for parent in child.parent_shard_ids)
        for child in children
    )
