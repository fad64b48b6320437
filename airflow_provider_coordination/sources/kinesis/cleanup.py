"""Which leases of a stream are no longer needed, and what was lost with expired ones. Pure decisions, no I/O.

A finished shard's lease is kept until its children are started. Until then it shows that they may be read, and that the
shard must not be read again. Afterwards the children's leases show the same. The rules are those of the Kinesis Client
Library, with three exceptions: a lease without known children is not deleted before its shard has expired; there is no
child at LATEST; and the loss of a lease that expired unread is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.sources.kinesis.leases import children_by_parent
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, Gap, ShardProgress
from airflow_provider_coordination.sources.kinesis.shard_leases import Leases, ShardLease
from airflow_provider_coordination.sources.kinesis.shards import Shard

CHILDREN_STARTED = "finished, and all its children are started"
EXPIRED = "finished, and the stream no longer has the shard"


def removable(leases: Leases, shards: Sequence[Shard], *, completed_by: datetime) -> list[ShardLease]:
    """Return the leases of finished shards whose children are all started, ancestors first.

    A lease must only be deleted after its parents' leases. If a parent's lease stayed without it, the lease would
    count as missing.

    :param leases: of one stream.
    :param shards: every listed shard of the stream.
    :param completed_by: only leases that were completed by this instant (aware).
    """
    listed = {shard.shard_id: shard for shard in shards}
    children = children_by_parent(shards)
    left = set(leases)
    unneeded: list[ShardLease] = []
    while True:
        generation = [
            leases[name]
            for name in left
            if _is_old_finished(leases[name], completed_by)
            and left.isdisjoint(_parents(leases[name], listed))
            and _all_started(_children(leases[name], children), leases)
        ]
        if not generation:
            return unneeded
        unneeded += sorted(generation, key=lambda lease: lease.key.shard_id)
        left.difference_update(lease.key.shard_id for lease in generation)


def expired_finished(
    leases: Leases, shards: Sequence[Shard], *, now: datetime, retention: timedelta
) -> list[ShardLease]:
    """Return the leases of finished shards that must have expired.

    A closed shard is listed as long as its last record is kept, so a shard that was completed longer ago has expired.
    A lease is kept if a child waits for another parent: it shows that the child need not wait for this one.

    :param now: by the service's clock (aware).
    :param retention: how long the stream keeps records.
    """
    listed = {shard.shard_id for shard in shards}
    children = children_by_parent(shards)
    return [
        lease
        for name, lease in sorted(leases.items())
        if name not in listed
        and _is_old_finished(lease, now - retention)
        and all(child.shard_id in leases for child in children.get(name, ()))
    ]


def vanished(leases: Leases, shards: Iterable[Shard], *, now: datetime, retention: timedelta) -> list[ShardLease]:
    """Return the unfinished leases whose shard the stream may no longer have.

    A shard cannot expire while it receives records, nor within the retention after that. So it has not expired if the
    stream is younger than its retention, or if the shard was read within that time. The listing may still be wrong
    about the others: query each shard.

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
        and not lease.progress.is_ended  # everything was read, and landed batches can still be delivered
        and datetime.fromtimestamp(lease.key.creation_epoch, UTC) <= expired_by
        and not (lease.is_started and (lease.progress.delivered_until or expired_by) > expired_by)
    ]


def gap_after(progress: ShardProgress, reason: str, *, until: datetime | None, found_at: datetime) -> Gap:
    """Return the gap of a shard that is gone before its end was read.

    :param until: the shard has no record that arrived after this instant (aware).
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
    """Return a progress with this gap; a gap that is already recorded is not added again."""
    if any(_is_same(known, gap) for known in progress.gaps):
        return progress
    return progress.with_gap(gap)


def without_loss(progress: ShardProgress) -> ShardProgress:
    """Return a progress without the gap for the lost rest of the shard, which turned out to be wrong."""
    rest = (progress.landed_position, None)
    return replace(progress, gaps=tuple(gap for gap in progress.gaps if (gap.after, gap.before) != rest))


def ended(progress: ShardProgress, shards: Iterable[Shard] = ()) -> ShardProgress:
    """Return a progress whose shard is not read any further; landed batches are still delivered.

    :param shards: the listed shards: its children follow as if its end had been read.
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


def _is_old_finished(lease: ShardLease, completed_by: datetime) -> bool:
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
