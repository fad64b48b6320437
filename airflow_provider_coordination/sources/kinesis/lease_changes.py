"""The changes of shard sync to existing leases: which ones it removes or parks, and the writes.

A finished shard's lease is kept until its children are started. Until then it shows that they may be read, and that the
shard must not be read again. Afterwards the children's leases show the same. The rules are those of the Kinesis Client
Library, with three exceptions: a lease without known children is not deleted before its shard has expired; there is no
child at LATEST; and the loss of a lease that expired unread is reported. Writes are conditional, and none changes a
lease that a job holds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, ProgressError
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.retries import parked
from airflow_provider_coordination.sources.kinesis.leases import (
    Leases,
    ShardLease,
    children_by_parent,
    stored_progress,
)
from airflow_provider_coordination.sources.kinesis.progress import PutAside, ShardProgress
from airflow_provider_coordination.sources.kinesis.shards import Shard
from airflow_provider_coordination.sources.kinesis.sync_state import StreamSync

log = logging.getLogger(__name__)

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


NOT_NAMED = "shard sync: its stream is no longer named in the source"


class LeaseChanges:
    """Changes the leases of one stream, and records the changes.

    :param coordinator: of the source.
    :param result: where the changes are recorded.
    :param on_data_loss: see `ShardSync`.
    """

    def __init__(self, coordinator: SourceCoordinator, result: StreamSync, *, on_data_loss: str) -> None:
        self._coordinator = coordinator
        self._result = result
        self._on_data_loss = on_data_loss

    def reopen(self, lease: ShardLease) -> ShardLease:
        """Make a lease available again that a sync parked because of its stream, now that the stream exists."""
        progress = lease.progress
        if progress is None or progress.put_aside is None or not lease.is_put_aside:
            return lease
        now = self._coordinator.clock.now()
        known = progress.without_loss() if progress.put_aside.stream_gone else progress
        after = self._write(lease, lambda p: p.reopened(now), replace(known, put_aside=None))
        if after is not lease:
            self._result.reopened.append(lease.partition.partition_key)
        return after

    def record_loss(
        self,
        lease: ShardLease,
        reason: str,
        *,
        until: datetime,
        shards: Iterable[Shard] = (),
        stream_gone: bool = False,
    ) -> ShardLease:
        """Record that the unread rest of a shard is lost; park the lease, or complete it, as configured.

        :param reason: what happened, in a sentence; stored with the partition and the gap.
        :param until: the shard has no record that arrived after this instant (aware).
        :param shards: the listed shards, including its children.
        :param stream_gone: whether its stream was not found; a later sync then reopens the parked lease.
        :returns: the lease as it is now.
        """
        key, progress = lease.partition.partition_key, lease.progress
        if progress is None:
            log.error("partition %s: %s, and its progress cannot be read; reset or delete it", key, reason)
            return lease
        now = self._coordinator.clock.now()
        gap = progress.gap_to_end(reason, until=until, found_at=now)
        recorded = progress.with_gap(gap)
        is_new = recorded is not progress
        parks = self._on_data_loss == "fail"
        if parks and not is_new and lease.partition.is_parked:
            return lease
        if self.is_held(lease):
            self._result.held.append(key)
            return lease
        if parks:
            after = self._park(lease, reason, recorded, stream_gone=True if stream_gone else None)
        elif progress.landed:  # a job delivers that first
            after = self._write(lease, lambda p: p.reopened(now), recorded.ended(shards))
        else:
            after = self._write(lease, lambda p: p.recovered().completed(now), recorded.ended(shards))
        if after is lease:
            return lease
        if is_new:
            self._result.lost[key] = str(gap)
            self._coordinator.events.count(CoordinationMetric.DATA_LOSS)
            log.error("data loss: source=%s partition=%s range=%s", self._coordinator.source, key, gap)
        if parks:
            self._result.parked.append(key)
            self._coordinator.events.count(CoordinationMetric.PARTITIONS_PARKED)
        else:
            self._result.ended.append(key)
            if after.is_finished:
                self._coordinator.events.completed(key, ())
        return after

    def put_aside(self, leases: Iterable[ShardLease]) -> list[str]:
        """Park the leases of a stream that is no longer named, until it is named again; return the parked partitions.

        Leases that are finished, parked or held stay as they are.
        """
        return [
            lease.partition.partition_key
            for lease in leases
            if not (lease.is_finished or lease.partition.is_parked or self.is_held(lease))
            and self._park(lease, NOT_NAMED, lease.progress, stream_gone=False) is not lease
        ]

    def fill_range(self, lease: ShardLease, shard: Shard | None) -> ShardLease:
        """Store the hash range of a lease that has none, if the listing has it."""
        progress = lease.progress
        if progress is None or shard is None or shard.hash_keys is None:
            return lease
        if progress.hash_keys is not None or self.is_held(lease):
            return lease
        return self._write(lease, lambda p: p, progress.with_range_of(shard))

    def remove(self, leases: Iterable[ShardLease], why: str) -> list[ShardLease]:
        """Delete leases of finished shards, ancestors first; return the deleted ones.

        A lease is kept if a parent's lease could not be deleted.
        """
        removed, kept = [], set[str]()
        for lease in leases:
            key = lease.partition.partition_key
            parents = lease.progress.parent_shard_ids if lease.progress is not None else ()
            if kept.isdisjoint(parents) and self._coordinator.leases.remove(lease.partition):
                removed.append(lease)
                self._result.removed[key] = why
            else:
                kept.add(lease.key.shard_id)
                self._result.held.append(key)
        return removed

    def is_held(self, lease: ShardLease) -> bool:
        """Return whether a job holds the lease, or the lease waits for acknowledgments."""
        partition = lease.partition
        return partition.status is PartitionStatus.ASSIGNED and not self._coordinator.view.may_acquire(partition)

    def _park(
        self, lease: ShardLease, reason: str, progress: ShardProgress | None, *, stream_gone: bool | None
    ) -> ShardLease:
        """Park a lease; return it as it is now, or itself if the write was refused.

        :param reason: the reason; stored with the partition as its last error.
        :param progress: the new progress; None keeps a progress that cannot be read.
        :param stream_gone: see `PutAside`; None if only a user may reopen it.
        """

        def put_aside(partition: Partition) -> Partition:
            kept = partition
            if progress is not None:
                aside = None if stream_gone is None else PutAside(partition.version + 1, stream_gone)
                kept = partition.with_progress(replace(progress, put_aside=aside).to_mapping())
            return parked(kept, reason)

        return self._write(lease, put_aside, None)

    def _write(
        self, lease: ShardLease, change: Callable[[Partition], Partition], progress: ShardProgress | None
    ) -> ShardLease:
        """Write a change of a lease, with a new progress if given; return the lease itself if the write was refused."""

        def changed(partition: Partition) -> Partition:
            kept = partition if progress is None else partition.with_progress(progress.to_mapping())
            return change(kept)

        try:
            written = self._coordinator.leases.change(
                lease.partition.partition_key, changed, requires_trust=False, seen=lease.partition
            )
        except (PartitionUpdateError, ProgressError, *LOST) as error:
            log.info(
                "shard sync could not change partition %s and leaves it to the next sync: %s",
                lease.partition.partition_key,
                error,
            )
            self._result.held.append(lease.partition.partition_key)
            return lease
        return ShardLease(lease.key, written, stored_progress(written))
