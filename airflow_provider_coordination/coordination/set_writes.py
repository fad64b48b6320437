"""What is written when an acknowledgment set begins, changes or ends: the set, and its effect on the partition.

Both are one transaction. No lease is needed: it is conditional on the versions read, and the partition's progress
records the set of each pending batch. A set of an earlier delivery, or of a partition that was reset since, therefore
changes nothing. The partition's owner writes through its lease, so that it knows its own writes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from airflow_provider_coordination.coordination.acknowledgment import (
    FAMILY,
    MAX_REFERENCES,
    AcknowledgmentSet,
    AcknowledgmentState,
    BatchLedger,
    Progress,
    Settlement,
    item_of,
)
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, SourceError
from airflow_provider_coordination.coordination.intervals import tally_of
from airflow_provider_coordination.coordination.leases import Change, LeaseChange
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import Transaction, attempt_each

log = logging.getLogger(__name__)

MAX_TRIES = 2 * MAX_REFERENCES
"""How often a decision is retried because its basis has changed. All handles of a set may be released at once."""

ENDED = {
    AcknowledgmentState.ACKNOWLEDGED: CoordinationMetric.ACKNOWLEDGMENT_SETS_ACKNOWLEDGED,
    AcknowledgmentState.REJECTED: CoordinationMetric.ACKNOWLEDGMENT_SETS_REJECTED,
    AcknowledgmentState.EXPIRED: CoordinationMetric.ACKNOWLEDGMENT_SETS_EXPIRED,
    AcknowledgmentState.CANCELLED: CoordinationMetric.ACKNOWLEDGMENT_SETS_CANCELLED,
}


@dataclass(frozen=True, kw_only=True)
class SetWrite:
    """One transaction that writes a set, with its effect on the partition.

    :param after: the set as the transaction leaves it.
    :param change: the change of the partition and what is written with it; or what is written if no partition changes.
    :param seen: the partition as the decision saw it; None if it does not change.
    :param settlement: what the end of the set means for the partition; None if it has no end, or nothing waits for it.
    :param is_new: whether the set is new.
    """

    after: AcknowledgmentSet
    change: LeaseChange | Transaction
    seen: Partition | None = None
    settlement: Settlement | None = None
    is_new: bool = False


@dataclass(frozen=True)
class SetDecision:
    """What a set, a partition or a time leads to.

    :param decide: returns the write, or the set if nothing is to be written; None if its basis has changed since.
    :param retried: the errors of the write after which it is decided again.
    :param subject: what keeps changing, for the error if it does.
    """

    decide: Callable[[], SetWrite | AcknowledgmentSet | None]
    retried: tuple[type[Exception], ...]
    subject: str


class SetWrites:
    """Decides and writes what happens to the acknowledgment sets of one source.

    :param coordinator: the initialized coordinator of the source. Only `beginning`, and `changing` with `owned`, need a
        lease.
    :param ledger: how the source's partitions record their batches.
    """

    def __init__(self, coordinator: SourceCoordinator, ledger: BatchLedger) -> None:
        self._coordinator = coordinator
        self._leases = coordinator.leases
        self._ledger = ledger
        self._store = coordinator.store
        self._clock = coordinator.clock
        self._family = coordinator.view.family(FAMILY)

    # Decisions

    def beginning(self, new_set: AcknowledgmentSet, progress: Progress | None) -> SetWrite:
        """Return what begins a set: it is recorded in its partition's progress, and the lease is renewed.

        :param new_set: the new set.
        :param progress: the partition's progress including the batch; None for the current progress.
        :raises PartitionNotOwnedError: if this owner does not hold the partition.
        """
        known = self._leases.leased(new_set.partition_key)
        recorded = known.progress if progress is None else progress
        waiting = replace(known, progress=self._ledger.in_delivery(recorded, new_set.batch_id, new_set.set_id))
        settlement = None if new_set.is_pending else self._settlement(new_set, waiting)

        def begun(partition: Partition) -> Partition:
            if settlement is not None:
                return self._delivered(partition, settlement, new_set.created_at)
            return self._leases.renewed(partition.with_progress(waiting.progress))

        item = item_of(new_set, self._family)
        return SetWrite(
            after=replace(new_set, version=item.version),
            change=LeaseChange(
                partition_key=known.partition_key,
                change=begun,
                create=[item, *self._successors(settlement)],
                unchanged=() if settlement is None else settlement.unchanged,
            ),
            seen=known,
            settlement=settlement,
            is_new=True,
        )

    def changing(
        self, current: AcknowledgmentSet, changed: AcknowledgmentSet, now: datetime, *, owned: bool, by: str | None
    ) -> SetWrite:
        """Return what writes a changed set, and its effect on the partition that waits for it.

        :param current: the set as it was read.
        :param changed: its new value.
        :param now: the time of the decision (aware).
        :param owned: whether only the partition's owner may do this.
        :param by: the user who requested it; stored in the partition's history.
        :raises PartitionNotOwnedError: if this owner held the lease, and has lost it.
        """
        partition, waits = self._partition_of(current, owned=owned)
        item, after = item_of(changed, self._family), replace(changed, version=current.version + 1)
        if partition is None or not waits:
            # The partition does not change. A report that only its owner may make still requires the lease.
            held = [partition] if owned and partition is not None else []
            return SetWrite(after=after, change=Transaction(update=[item], unchanged=held))
        if not changed.is_pending:
            return self._ending(after, item, partition, now, by)
        if owned:  # only the store can confirm the lease
            return SetWrite(after=after, change=_change(partition, self._leases.renewed, item), seen=partition)
        extends = partition.is_awaiting and changed.expires_at > current.expires_at
        extended = [partition.renewed(changed.expires_at)] if extends else []
        return SetWrite(after=after, change=Transaction(update=[item, *extended]))

    def _ending(
        self, ended: AcknowledgmentSet, item: Partition, partition: Partition, now: datetime, by: str | None
    ) -> SetWrite:
        settlement = self._settlement(ended, partition)
        delivered = ended.state is AcknowledgmentState.ACKNOWLEDGED

        def settled(p: Partition) -> Partition:
            after = self._delivered(p, settlement, now) if delivered else self._undelivered(p, settlement, ended, now)
            if by is None or after.change is None:
                return after
            return after.because(after.change.kind, after.change.reason, by)

        tally = tally_of(ended, self._coordinator.view) if delivered else None
        change = replace(
            _change(partition, settled, item),
            create=[*self._successors(settlement), *([] if tally is None else [tally])],
            unchanged=settlement.unchanged,
        )
        return SetWrite(after=ended, change=change, seen=partition, settlement=settlement)

    # Writes

    def decide_each(self, decisions: Sequence[SetDecision]) -> list[AcknowledgmentSet | Exception]:
        """Decide and write, in few requests; what was decided on a basis that has changed is decided again.

        :returns: the set of each decision as it is now, or its error. An error of one does not affect the others.
        """
        results: dict[int, AcknowledgmentSet | Exception] = {}
        left = dict(enumerate(decisions))
        for _ in range(MAX_TRIES):
            decided = dict(zip(left, attempt_each(left.values(), lambda decision: decision.decide()), strict=True))
            writes = {n: write for n, write in decided.items() if isinstance(write, SetWrite)}
            results |= {n: r for n, r in decided.items() if r is not None and not isinstance(r, SetWrite)}
            written = dict(zip(writes, self._write_each(list(writes.values())), strict=True))
            results |= {n: result for n, result in written.items() if not isinstance(result, left[n].retried)}
            left = {n: decision for n, decision in left.items() if n not in results}
            if not left:
                break
        for n, decision in left.items():
            results[n] = PartitionUpdateError(f"{decision.subject} changing; try again")
        return [results[n] for n in range(len(decisions))]

    def _write_each(self, writes: Sequence[SetWrite]) -> list[AcknowledgmentSet | Exception]:
        """Write decisions in few requests, count and log them; return each set as written, or the error.

        The errors are those of `Leases.change_each`.
        """
        alone = [write.change for write in writes if isinstance(write.change, Transaction)]
        of_sets = iter(attempt_each(alone, self._write_set))
        changes = [write.change for write in writes if isinstance(write.change, LeaseChange)]
        of_partitions = iter(self._leases.change_each(changes))
        return [
            self._noted(write, next(of_sets if isinstance(write.change, Transaction) else of_partitions))
            for write in writes
        ]

    def _write_set(self, change: Transaction) -> None:
        """Write a set whose partition does not change."""
        self._store.transact(update=change.update, unchanged=change.unchanged)

    def _noted(self, write: SetWrite, outcome: Partition | Exception | None) -> AcknowledgmentSet | Exception:
        """Count and log a write; return the set as written, or the error."""
        if isinstance(outcome, Exception):
            return outcome
        if write.is_new:
            self._coordinator.events.count(CoordinationMetric.ACKNOWLEDGMENT_SETS_CREATED)
            log.info(
                "acknowledgment set created: source=%s partition=%s set=%s references=%d expires_at=%s",
                self._coordinator.source, write.after.partition_key, write.after.set_id, write.after.added,
                write.after.expires_at,
            )  # fmt: skip
        self._note_end(write.after, write.settlement, outcome)
        if outcome is not None and write.seen is not None and outcome.attempts > write.seen.attempts:
            self._coordinator.events.failed(outcome)
        return write.after

    def give_back(self, waiting: AcknowledgmentSet) -> bool:
        """Give back the lease of a partition that waits for a set, which remains; return whether this was done."""
        for _ in range(MAX_TRIES):
            partition = self._leases.current(waiting.partition_key)
            if partition is None or not partition.is_awaiting or not self._waits_for(partition, waiting):
                return False
            try:
                self._leases.change(
                    partition.partition_key,
                    lambda p: p.given_up(self._clock.now()),
                    requires_trust=False,
                    seen=partition,
                )
            except PartitionUpdateError:
                continue
            log.info(
                "partition given up, it no longer waits for acknowledgments: source=%s partition=%s set=%s",
                self._coordinator.source, waiting.partition_key, waiting.set_id,
            )  # fmt: skip
            return True
        return False

    # Effects on the partition

    def _partition_of(self, acknowledgment_set: AcknowledgmentSet, *, owned: bool) -> tuple[Partition | None, bool]:
        """Return the partition of a set, and whether it waits for the set; it may have been deleted or reset since."""
        key = acknowledgment_set.partition_key
        partition = self._leases.leased(key) if owned else self._leases.current(key)
        if partition is None or self._waits_for(partition, acknowledgment_set):
            return partition, partition is not None
        if self._leases.holds(key):
            # This owner's copy may be stale, because a response or the lease was lost. A renewal finds out.
            partition = self._leases.renew(key)
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
        return self._leases.renewed(after) if after.owner == self._coordinator.owner else after

    def _undelivered(
        self, partition: Partition, settlement: Settlement, ended: AcknowledgmentSet, now: datetime
    ) -> Partition:
        after = partition.with_progress(settlement.progress)
        if after.status is not PartitionStatus.ASSIGNED:
            return after  # another of its batches failed before, so it is retried anyway
        if ended.state is AcknowledgmentState.CANCELLED:
            return after.given_up(now) if after.is_awaiting and not settlement.pending else after
        what = "was rejected" if ended.state is AcknowledgmentState.REJECTED else "expired"
        return self._leases.failed(after, f"batch {ended.batch_id} {what}: {ended.reason}")

    def _successors(self, settlement: Settlement | None) -> list[Partition]:
        return [] if settlement is None else [self._coordinator.view.new(*each) for each in settlement.create.items()]

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


def _change(partition: Partition, change: Change, item: Partition) -> LeaseChange:
    """Return a change of a partition, whichever owner holds it, together with the item of a set."""
    return LeaseChange(
        partition_key=partition.partition_key, change=change, requires_trust=False, seen=partition, update=[item]
    )
