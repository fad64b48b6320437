"""Transactions that write a change of an acknowledgment set together with its effect on the partition.

No lease is needed. Both writes are conditional on the versions read, and the partition's progress records the set of
each pending batch. A set of an earlier delivery, or of a partition that was reset since, therefore changes nothing. The
partition's owner writes through its lease, so that it knows its own writes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime

from airflow_provider_coordination.coordination.acknowledgment import (
    FAMILY,
    MAX_REFERENCES,
    AcknowledgmentSet,
    AcknowledgmentState,
    item_of,
)
from airflow_provider_coordination.coordination.batches import BatchLedger, Progress, Settlement
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, SourceError
from airflow_provider_coordination.coordination.lockstep import Steps
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus

log = logging.getLogger(__name__)

MAX_TRIES = 2 * MAX_REFERENCES
"""How often a decision is retried because its basis has changed. All handles of a set may be released at once."""

ENDED = {
    AcknowledgmentState.ACKNOWLEDGED: CoordinationMetric.ACKNOWLEDGMENT_SETS_ACKNOWLEDGED,
    AcknowledgmentState.REJECTED: CoordinationMetric.ACKNOWLEDGMENT_SETS_REJECTED,
    AcknowledgmentState.EXPIRED: CoordinationMetric.ACKNOWLEDGMENT_SETS_EXPIRED,
    AcknowledgmentState.CANCELLED: CoordinationMetric.ACKNOWLEDGMENT_SETS_CANCELLED,
}


class SetTransactions:
    """Writes changes of the acknowledgment sets of one source.

    :param coordinator: the initialized coordinator of the source. Only `begin_steps`, and `write_steps` with `owned`,
        need a lease.
    :param ledger: how the source's partitions record their batches.
    """

    def __init__(self, coordinator: SourceCoordinator, ledger: BatchLedger) -> None:
        self._coordinator = coordinator
        self._ledger = ledger
        self._store = coordinator.store
        self._clock = coordinator.clock
        self._family = coordinator.view.family(FAMILY)

    def begin_steps(self, new_set: AcknowledgmentSet, progress: Progress | None) -> Steps[AcknowledgmentSet]:
        """Write a new set, record it in its partition's progress, and renew the lease.

        :param new_set: the new set.
        :param progress: the partition's progress including the batch; None for the current progress.
        :returns: the set as written.
        :raises PartitionUpdateError: if other partitions that the end of the set depends on keep changing.
        """
        now, partition_key = new_set.created_at, new_set.partition_key
        for _ in range(MAX_TRIES):
            known = self._coordinator.leases.leased(partition_key)
            recorded = known.progress if progress is None else progress
            waiting = replace(known, progress=self._ledger.in_delivery(recorded, new_set.batch_id, new_set.set_id))
            settlement = None if new_set.is_pending else self._settlement(new_set, waiting)

            def begun(
                p: Partition, then: Settlement | None = settlement, noted: Progress = waiting.progress
            ) -> Partition:
                if then is not None:
                    return self._delivered(p, then, now)
                return self._coordinator.settlement.renewed(p.with_progress(noted))

            try:
                written = yield from self._coordinator.settlement.settle_steps(
                    known,
                    begun,
                    requires_trust=True,
                    create=[self._item(new_set), *self._successors(settlement)],
                    unchanged=() if settlement is None else settlement.unchanged,
                )
                break
            except PartitionUpdateError:  # another partition that the end depends on has changed
                continue
        else:
            raise PartitionUpdateError(
                f"partition {partition_key!r}: the partitions that its end depends on keep changing; try again"
            )
        self._coordinator.events.count(CoordinationMetric.ACKNOWLEDGMENT_SETS_CREATED)
        log.info(
            "acknowledgment set created: source=%s partition=%s set=%s references=%d expires_at=%s",
            self._coordinator.source, partition_key, new_set.set_id, new_set.added, new_set.expires_at,
        )  # fmt: skip
        if settlement is not None:
            self._note_end(new_set, settlement, written)
        return replace(new_set, version=self._item(new_set).version)

    def write_steps(
        self, current: AcknowledgmentSet, changed: AcknowledgmentSet, now: datetime, *, owned: bool, by: str | None
    ) -> Steps[None]:
        """Write a changed set and its effect on the partition that waits for it.

        :param current: the set as it was read.
        :param changed: its new value.
        :param now: the time of the decision (aware).
        :param owned: whether only the partition's owner may do this.
        :param by: the user who requested it; stored in the partition's history.
        :raises PartitionUpdateError: if the set, the partition or another basis of the decision has changed; nothing is
            written then. Decide again.
        :raises PartitionNotOwnedError: if this owner held the lease, and has lost it.
        """
        partition, waits = self._partition_of(current, owned=owned)
        if partition is None or not waits:
            # The partition does not change. A report that only its owner may make still requires the lease.
            held = [partition] if owned and partition is not None else []
            self._store.transact(update=[self._item(changed)], unchanged=held)
            self._note_end(changed, None)
        elif changed.is_pending:
            yield from self._write_pending_steps(current, changed, partition, owned=owned)
        else:
            yield from self._write_end_steps(changed, partition, now, by)

    def give_back(self, waiting: AcknowledgmentSet) -> bool:
        """Give back the lease of a partition that waits for a set, which remains; return whether this was done."""
        for _ in range(MAX_TRIES):
            partition = self._coordinator.settlement.current(waiting.partition_key)
            if partition is None or not partition.is_awaiting or not self._waits_for(partition, waiting):
                return False
            try:
                self._coordinator.settlement.settle(partition, lambda p: p.given_up(self._clock.now()))
            except PartitionUpdateError:
                continue
            log.info(
                "partition given up, it no longer waits for acknowledgments: source=%s partition=%s set=%s",
                self._coordinator.source, waiting.partition_key, waiting.set_id,
            )  # fmt: skip
            return True
        return False

    def _item(self, acknowledgment_set: AcknowledgmentSet) -> Partition:
        return item_of(acknowledgment_set, self._family)

    def _write_end_steps(
        self, ended: AcknowledgmentSet, partition: Partition, now: datetime, by: str | None
    ) -> Steps[None]:
        settlement = self._settlement(ended, partition)
        delivered = ended.state is AcknowledgmentState.ACKNOWLEDGED

        def settled(p: Partition) -> Partition:
            after = self._delivered(p, settlement, now) if delivered else self._undelivered(p, settlement, ended, now)
            if by is None or after.change is None:
                return after
            return after.because(after.change.kind, after.change.reason, by)

        written = yield from self._coordinator.settlement.settle_steps(
            partition,
            settled,
            update=[self._item(ended)],
            create=self._successors(settlement),
            unchanged=settlement.unchanged,
        )
        self._note_end(ended, settlement, written)
        if written.attempts > partition.attempts:
            self._coordinator.events.failed(written)

    def _write_pending_steps(
        self, current: AcknowledgmentSet, changed: AcknowledgmentSet, partition: Partition, *, owned: bool
    ) -> Steps[None]:
        update = [self._item(changed)]
        if owned:  # only the store can confirm the lease
            settlement = self._coordinator.settlement
            yield from settlement.settle_steps(partition, settlement.renewed, update=update)
            return
        if partition.is_awaiting and changed.expires_at > current.expires_at:
            update.append(partition.renewed(changed.expires_at))
        self._store.transact(update=update)

    def _partition_of(self, acknowledgment_set: AcknowledgmentSet, *, owned: bool) -> tuple[Partition | None, bool]:
        """Return the partition of a set, and whether it waits for the set; it may have been deleted or reset since."""
        key = acknowledgment_set.partition_key
        partition = self._coordinator.leases.leased(key) if owned else self._coordinator.settlement.current(key)
        if partition is None or self._waits_for(partition, acknowledgment_set):
            return partition, partition is not None
        if self._coordinator.leases.holds(key):
            # This owner's copy may be stale, because a response or the lease was lost. A renewal finds out.
            partition = self._coordinator.leases.renew(key)
        return partition, self._waits_for(partition, acknowledgment_set)

    def _waits_for(self, partition: Partition, acknowledgment_set: AcknowledgmentSet) -> bool:
        try:
            waiting = self._ledger.set_of(partition.progress, acknowledgment_set.batch_id)
        except SourceError as error:
            log.error("partition %s: %s", partition.partition_key, error)
            return False
        return waiting == acknowledgment_set.set_id

    def _settlement(self, ended: AcknowledgmentSet, partition: Partition) -> Settlement:
        if ended.state is AcknowledgmentState.ACKNOWLEDGED:
            return self._ledger.delivered(partition, ended.batch_id, self._coordinator.view.get)
        return self._ledger.undelivered(partition, ended.batch_id)

    def _delivered(self, partition: Partition, settlement: Settlement, now: datetime) -> Partition:
        after = partition.with_progress(settlement.progress)
        if settlement.finished and settlement.reopen_after is not None:
            return after.recovered().closed(now + settlement.reopen_after)
        if settlement.finished:
            return after.recovered().completed(now)
        if settlement.moved and after.status is PartitionStatus.ASSIGNED:
            after = after.recovered()
        if after.is_awaiting:
            return after if settlement.pending else after.given_up(now)
        return self._coordinator.settlement.renewed(after) if after.owner == self._coordinator.owner else after

    def _undelivered(
        self, partition: Partition, settlement: Settlement, ended: AcknowledgmentSet, now: datetime
    ) -> Partition:
        after = partition.with_progress(settlement.progress)
        if after.status is not PartitionStatus.ASSIGNED:
            return after  # another of its batches failed before, so it is retried anyway
        if ended.state is AcknowledgmentState.CANCELLED:
            return after.given_up(now) if after.is_awaiting and not settlement.pending else after
        what = "was rejected" if ended.state is AcknowledgmentState.REJECTED else "expired"
        return self._coordinator.settlement.failed(after, f"batch {ended.batch_id} {what}: {ended.reason}")

    def _successors(self, settlement: Settlement | None) -> list[Partition]:
        return [] if settlement is None else [self._coordinator.view.new(k, p) for k, p in settlement.create.items()]

    def _note_end(
        self, ended: AcknowledgmentSet, settlement: Settlement | None, written: Partition | None = None
    ) -> None:
        """Count and log the end of a set.

        :param written: the partition that it changed.
        """
        if ended.is_pending:
            return
        self._coordinator.events.count(ENDED[ended.state])
        what = "" if settlement is not None else "; the partition no longer waits for it"
        failed = ended.state in (AcknowledgmentState.REJECTED, AcknowledgmentState.EXPIRED)
        (log.error if failed else log.info)(
            "acknowledgment set %s: source=%s partition=%s set=%s%s%s",
            str(ended.state).lower(), self._coordinator.source, ended.partition_key, ended.set_id,
            f": {ended.reason}" if ended.reason else "", what,
        )  # fmt: skip
        if settlement is None or not settlement.finished or written is None:
            return
        if written.status is PartitionStatus.CLOSED:
            self._coordinator.events.closed(written)
        else:
            self._coordinator.events.completed(ended.partition_key, list(settlement.create))
