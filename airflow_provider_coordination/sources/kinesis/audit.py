"""The audit of a stream's leases: does somebody read every hash key? Pure decisions, no I/O.

Every hash key belongs to an unfinished lease at any time, or to a finished shard whose child waits for its other
parent. What belongs to none is a hole: a lease that is missing. A look at the store is no snapshot, so a hole counts
once it was seen three times in a row, as in the Kinesis Client Library. Unlike there, the range ends where the largest
end is, whichever lease was sorted last, and a merge that waits for its second parent is no hole.
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
"""So many times in a row the same hole is seen before anything is done about it."""


class HashRange(NamedTuple):
    """A range of hash keys, both ends included."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.start}-{self.end}"


def first_hole(ranges: Iterable[HashRange]) -> HashRange | None:
    """Return the first range of hash keys that none of these holds; None if they hold all. Overlaps do not matter."""
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

    :param leases: of one stream, finished ones included.
    :param shards: the listed shards, where there is a listing: it knows the children of finished ones, and ranges.
    """
    return first_hole(found for found in _covered(leases, shards) if found is not None)


def holes_between(leases: Leases) -> list[HashRange]:
    """Return every range of hash keys that is read neither now nor later, as far as the leases alone tell.

    None where they cannot tell: where nothing is left to read, or an unfinished lease does not say its range.

    :param leases: of one stream, finished ones included.
    """
    covered = _covered(leases, ())
    if all(lease.is_finished for lease in leases.values()) or None in covered:
        return []
    return list(_holes(found for found in covered if found is not None))


def _covered(leases: Leases, shards: Collection[Shard]) -> list[HashRange | None]:
    """Return the ranges that are read now or later; None for one that nobody knows."""
    listed = {shard.shard_id: shard for shard in shards}
    children = children_by_parent(shards)
    covered = [lease for lease in leases.values() if not lease.is_finished or _waits(lease, leases, children)]
    return [hash_range_of(lease, listed.get(lease.key.shard_id)) for lease in covered]


def hash_range_of(lease: ShardLease, shard: Shard | None = None) -> HashRange | None:
    """Return the hash keys of a lease, as it stores them or as its listed shard has them; None if nobody knows."""
    for source in (lease.progress, shard):
        if source is not None and has_range(source):
            return HashRange(int(source.starting_hash_key), int(source.ending_hash_key))
    return None


def has_range(shard: ShardRange) -> bool:
    """Return whether it is known which hash keys a shard takes."""
    ends = (shard.starting_hash_key, shard.ending_hash_key)
    return all(end.isascii() and end.isdigit() for end in ends) and int(ends[0]) <= int(ends[1])


def with_range_of(progress: ShardProgress, shard: Shard) -> ShardProgress:
    """Return a progress with the hash range of its shard."""
    return replace(progress, starting_hash_key=shard.starting_hash_key, ending_hash_key=shard.ending_hash_key)


@dataclass(frozen=True)
class HoleTracker:
    """How often in a row the same hole was seen.

    :param hole: the hole, as text; None for none.
    :param sights: how often.
    """

    hole: str | None = None
    sights: int = 0

    def seeing(self, hole: HashRange | None) -> HoleTracker:
        """Return it after one more look. Another hole counts from one again."""
        if hole is None:
            return HoleTracker()
        return HoleTracker(str(hole), self.sights + 1 if self.hole == str(hole) else 1)

    @property
    def is_certain(self) -> bool:
        """Whether the hole is there, and no look at a store that was just changing."""
        return self.sights >= CONFIDENCE


def _waits(finished: ShardLease, leases: Leases, listed: Mapping[str, Sequence[Shard]]) -> bool:
    """Return whether a child of a finished shard waits for its other parent.

    That one is not finished yet, or has no lease yet: its hash keys are then those of a shard before it, or a hole of
    their own. It is not cleaned up, which it would be after its child began.
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
