"""The changes of shard sync to existing leases: writes are conditional, and none changes a lease that a job holds."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, ProgressError
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.audit import has_range, with_range_of
from airflow_provider_coordination.sources.kinesis.cleanup import ended, gap_after, with_loss, without_loss
from airflow_provider_coordination.sources.kinesis.progress import PutAside, ShardProgress
from airflow_provider_coordination.sources.kinesis.shard_leases import Leases, ShardLease, stored_progress
from airflow_provider_coordination.sources.kinesis.shards import Shard
from airflow_provider_coordination.sources.kinesis.sync_state import StreamSync

log = logging.getLogger(__name__)

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
        known = without_loss(progress) if progress.put_aside.stream_gone else progress
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
        gap = gap_after(progress, reason, until=until, found_at=now)
        recorded = with_loss(progress, gap)
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
            after = self._write(lease, lambda p: p.reopened(now), ended(recorded, shards))
        else:
            after = self._write(lease, lambda p: p.recovered().completed(now), ended(recorded, shards))
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

    def put_aside(self, lease: ShardLease) -> bool:
        """Park the lease of a stream that is no longer named, until it is named again; return whether it was parked."""
        return self._park(lease, NOT_NAMED, lease.progress, stream_gone=False) is not lease

    def fill_range(self, lease: ShardLease, shard: Shard | None) -> ShardLease:
        """Store the hash range of a lease that has none, if the listing has it."""
        progress = lease.progress
        if progress is None or shard is None or has_range(progress) or self.is_held(lease):
            return lease
        return self._write(lease, lambda p: p, with_range_of(progress, shard))

    def remove(self, leases: Iterable[ShardLease], why: str) -> list[ShardLease]:
        """Delete leases of finished shards, ancestors first; return the deleted ones.

        A lease is kept if a parent's lease could not be deleted.
        """
        removed, kept = [], set[str]()
        for lease in leases:
            key = lease.partition.partition_key
            parents = lease.progress.parent_shard_ids if lease.progress is not None else ()
            if kept.isdisjoint(parents) and self._coordinator.settlement.remove(lease.partition):
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

        def parked(partition: Partition) -> Partition:
            kept = partition
            if progress is not None:
                aside = None if stream_gone is None else PutAside(partition.version + 1, stream_gone)
                kept = partition.with_progress(replace(progress, put_aside=aside).to_mapping())
            return self._coordinator.settlement.parked(kept, reason)

        return self._write(lease, parked, None)

    def _write(
        self, lease: ShardLease, change: Callable[[Partition], Partition], progress: ShardProgress | None
    ) -> ShardLease:
        """Write a change of a lease, with a new progress if given; return the lease itself if the write was refused."""

        def changed(partition: Partition) -> Partition:
            kept = partition if progress is None else partition.with_progress(progress.to_mapping())
            return change(kept)

        try:
            written = self._coordinator.settlement.settle(lease.partition, changed)
        except (PartitionUpdateError, ProgressError, *LOST) as error:
            log.info(
                "shard sync could not change partition %s and leaves it to the next sync: %s",
                lease.partition.partition_key,
                error,
            )
            self._result.held.append(lease.partition.partition_key)
            return lease
        return ShardLease(lease.key, written, stored_progress(written))


def statuses(leases: Leases) -> Mapping[str, PartitionStatus]:
    """Return the status of each shard that has a lease."""
    return {name: lease.partition.status for name, lease in leases.items()}
