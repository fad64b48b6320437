"""The audit of a stream's leases: is every hash key covered? Pure decisions, no I/O.

At any time, every hash key belongs to an unfinished lease, or to a finished shard whose child waits for its other
parent. A range that belongs to neither is a hole: a missing lease. Reading the store is not a snapshot, so a hole
counts only once it is found three times in a row, as in the Kinesis Client Library. Unlike in that library, the covered
range ends at the largest end of all leases, and a merge that waits for its second parent is no hole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from airflow_provider_coordination.sources.kinesis.leases import children_by_parent
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, ShardRange
from airflow_provider_coordination.sources.kinesis.shard_leases import Leases, ShardLease
from airflow_provider_coordination.sources.kinesis.shards import MAX_HASH_KEY, Shard

CONFIDENCE = 3
"""How many times in a row the same hole must be found before it is acted on."""


class HashRange(NamedTuple):
    """A range of hash keys, both ends included."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"


def first_hole(ranges: Iterable[HashRange]) -> HashRange | None:
    """Return the first range of hash keys that none of these covers; None if they cover all. Overlaps are allowed."""
    return next(_holes(ranges), None)


def _holes(ranges: Iterable[HashRange]) -> Iterator[HashRange]:
    expected = 0
    for start, end in sorted(ranges):
        if start > expected:
            yield HashRange(expected, start - 1)
        expected = max(expected, end + 1)
    if expected <= MAX_HASH_KEY:
        yield HashRange(expected, MAX_HASH_KEY)


def hole_between(leases: Leases, shards: Collection[Shard] = ()) -> HashRange | None:
    """Return the first range of hash keys that is read neither now nor later; None if there is none.

    :param leases: of one stream, including finished ones.
    :param shards: the listed shards, if there is a listing: it has the children of finished shards, and hash ranges.
    """
    return first_hole(found for found in _covered(leases, shards) if found is not None)


def holes_between(leases: Leases) -> list[HashRange]:
    """Return every range of hash keys that is read neither now nor later, as far as the leases alone show.

    Empty if the leases cannot show it: nothing is left to read, or an unfinished lease has no hash range.

    :param leases: of one stream, including finished ones.
    """
    covered = _covered(leases, ())
    if all(lease.is_finished for lease in leases.values()) or None in covered:
        return []
    return list(_holes(found for found in covered if found is not None))


def _covered(leases: Leases, shards: Collection[Shard]) -> list[HashRange | None]:
    """Return the ranges that are read now or later; None for an unknown range."""
    listed = {shard.shard_id: shard for shard in shards}
    children = children_by_parent(shards)
    covered = [lease for lease in leases.values() if not lease.is_finished or _waits(lease, leases, children)]
    return [hash_range_of(lease, listed.get(lease.key.shard_id)) for lease in covered]


def hash_range_of(lease: ShardLease, shard: Shard | None = None) -> HashRange | None:
    """Return the hash keys of a lease, from its progress or its listed shard; None if unknown."""
    for source in (lease.progress, shard):
        if source is not None and has_range(source):
            return HashRange(int(source.starting_hash_key), int(source.ending_hash_key))
    return None


def has_range(shard: ShardRange) -> bool:
    """Return whether the hash range of a shard is known."""
    ends = (shard.starting_hash_key, shard.ending_hash_key)
    return all(end.isascii() and end.isdigit() for end in ends) and int(ends[0]) <= int(ends[1])


def with_range_of(progress: ShardProgress, shard: Shard) -> ShardProgress:
    """Return a progress with the hash range of its shard."""
    return replace(progress, starting_hash_key=shard.starting_hash_key, ending_hash_key=shard.ending_hash_key)


@dataclass(frozen=True)
class HoleTracker:
    """How many times in a row the same hole was found.

    :param hole: the hole, as text; None if there is none.
    :param sights: the number of times.
    """

    hole: str | None = None
    sights: int = 0

    def after_check(self, hole: HashRange | None) -> HoleTracker:
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
