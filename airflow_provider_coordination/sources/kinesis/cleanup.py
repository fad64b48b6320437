"""Which leases of a stream are of no use any more, and what was lost with those that are. Pure decisions, no I/O.

A finished shard's lease is kept until its children are under way: until then it is what says that they may be read,
and that the shard must not be read again. Afterwards the children's leases say the same. The rules are those of the
Kinesis Client Library, but for three of its surprises: a shard without known children is not deleted before it has
expired; a child at LATEST does not exist here; and a lease that expired unread is not deleted in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.sources.kinesis.leases import children_by_parent
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, Gap, ShardProgress
from airflow_provider_coordination.sources.kinesis.shard_leases import Leases, ShardLease
from airflow_provider_coordination.sources.kinesis.shards import Shard

CHILDREN_STARTED = "finished, and all its children are under way"
EXPIRED = "finished, and the stream no longer has the shard"


def removable(leases: Leases, shards: Sequence[Shard], *, completed_by: datetime) -> list[ShardLease]:
    """Return the leases of finished shards whose children are all under way, ancestors first.

    A lease is only listed after its parents', and must only be deleted once theirs are: a lease that is left without
    one below it and with one above it would be taken for missing.

    :param leases: of one stream.
    :param shards: every listed shard of it.
    :param completed_by: only those that were completed by this instant (aware).
    """
    listed = {shard.shard_id: shard for shard in shards}
    children = children_by_parent(shards)
    left = set(leases)
    found: list[ShardLease] = []
    while True:
        generation = [
            leases[name]
            for name in left
            if _is_worked_off(leases[name], completed_by)
            and left.isdisjoint(_parents(leases[name], listed))
            and _all_started(_children(leases[name], children), leases)
        ]
        if not generation:
            return found
        found += sorted(generation, key=lambda lease: lease.key.shard_id)
        left.difference_update(lease.key.shard_id for lease in generation)


def expired_finished(
    leases: Leases, shards: Sequence[Shard], *, now: datetime, retention: timedelta
) -> list[ShardLease]:
    """Return the leases of finished shards that the stream cannot hold any more.

    A closed shard is listed for as long as its last record is kept, so one that was completed longer ago has expired.
    One whose child waits for another parent is kept: it says that the child need not wait for it.

    :param now: by the service's clock (aware).
    :param retention: how long the stream keeps records.
    """
    listed = {shard.shard_id for shard in shards}
    children = children_by_parent(shards)
    return [
        lease
        for name, lease in sorted(leases.items())
        if name not in listed
        and _is_worked_off(lease, now - retention)
        and all(child.shard_id in leases for child in children.get(name, ()))
    ]


def vanished(leases: Leases, shards: Iterable[Shard], *, now: datetime, retention: timedelta) -> list[ShardLease]:
    """Return the unfinished leases whose shard the stream may not have any more.

    A shard cannot expire while it takes records, nor within the retention afterwards: neither in a stream that is
    younger than its retention, nor after it was read within that time. What is left may still be the fault of the
    listing: ask for the shard itself.

    :param now: by the service's clock (aware).
    :param retention: how long the stream keeps records.
    """
    listed = {shard.shard_id for shard in shards}
    expired_by = now - retention
    return [
        lease
        for name, lease in sorted(leases.items())
        if name not in listed
        and not lease.is_finished
        and lease.progress is not None
        and not lease.progress.is_ended  # everything was read: what is landed can still be delivered
        and datetime.fromtimestamp(lease.key.creation_epoch, UTC) <= expired_by
        and not (lease.is_started and (lease.progress.delivered_until or expired_by) > expired_by)
    ]


def gap_after(progress: ShardProgress, reason: str, *, until: datetime | None, found_at: datetime) -> Gap:
    """Return the gap that a shard leaves which is gone before its end was read.

    :param until: the shard held nothing that arrived later (aware).
    """
    return Gap(
        after=progress.landed_position,
        before=None,
        since=progress.owed_from,
        until=until,
        found_at=found_at,
        reason=reason,
    )


def with_loss(progress: ShardProgress, gap: Gap) -> ShardProgress:
    """Return a progress with this gap, once, however often and by whomever it is noticed."""
    if any(_is_same(known, gap) for known in progress.gaps):
        return progress
    return progress.with_gap(gap)


def without_loss(progress: ShardProgress) -> ShardProgress:
    """Return a progress without the gap that says that the rest of the shard is gone, which turned out to be wrong."""
    rest = (progress.landed_position, None)
    return replace(progress, gaps=tuple(gap for gap in progress.gaps if (gap.after, gap.before) != rest))


def ended(progress: ShardProgress, shards: Iterable[Shard] = ()) -> ShardProgress:
    """Return a progress that says that nothing more will be read of the shard; what is landed stays to be delivered.

    :param shards: the listed ones: its children follow as if its end had been read.
    """
    children = tuple(
        ChildShard(
            shard_id=shard.shard_id,
            parent_shard_ids=shard.parent_shard_ids,
            starting_hash_key=shard.starting_hash_key,
            ending_hash_key=shard.ending_hash_key,
        )
        for shard in shards
        if progress.shard_id in shard.parent_shard_ids
    )
    return replace(progress, is_ended=True, children=children)


def _is_worked_off(lease: ShardLease, completed_by: datetime) -> bool:
    return lease.is_finished and lease.progress is not None and lease.partition.priority <= completed_by


def _parents(lease: ShardLease, listed: Mapping[str, Shard]) -> set[str]:
    shard = listed.get(lease.key.shard_id)
    known = () if shard is None else shard.parent_shard_ids
    return {*known, *(lease.progress.parent_shard_ids if lease.progress is not None else ())}


def _children(lease: ShardLease, listed: Mapping[str, Sequence[Shard]]) -> set[str]:
    stored = lease.progress.children if lease.progress is not None else ()
    return {*(child.shard_id for child in stored), *(s.shard_id for s in listed.get(lease.key.shard_id, ()))}


def _all_started(children: set[str], leases: Leases) -> bool:
    return bool(children) and all(child in leases and leases[child].is_started for child in children)


def _is_same(known: Gap, gap: Gap) -> bool:
    return (known.after, known.before) == (gap.after, gap.before)
