"""The acknowledgment sets of one source: made with a batch, released by whoever took the data, ended once.

The end of a set and what it means to its partition are one store transaction. It needs no lease: both writes are
conditional on the versions read, and the partition's progress says which set each of its batches waits for, so a set
that was made for an earlier delivery, or for a partition that was reset since, changes nothing. What the owner of the
partition itself writes goes through its lease, so that it knows its own writes.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment import (
    FAMILY,
    MAX_REFERENCES,
    AcknowledgmentSet,
    AcknowledgmentState,
    ReleaseEffect,
    item_of,
    set_of_item,
)
from airflow_provider_coordination.coordination.batches import BatchLedger, Progress, Settlement, WholePartition
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    AcknowledgmentSetNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    ProgressError,
    SourceError,
)
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, check_partition_key
from airflow_provider_coordination.coordination.store import all_partitions

log = logging.getLogger(__name__)

RETENTION = timedelta(days=1)
"""How long ended sets are kept, so that a late release is told apart from one of a set that never was."""
MAX_TIMEOUT = timedelta(days=3650)
MAX_TRIES = 2 * MAX_REFERENCES
"""How often a decision is made anew because what it rests on changed: all of a set's handles may release at once."""

ENDED = {
    AcknowledgmentState.ACKNOWLEDGED: CoordinationMetric.ACKNOWLEDGMENT_SETS_ACKNOWLEDGED,
    AcknowledgmentState.REJECTED: CoordinationMetric.ACKNOWLEDGMENT_SETS_REJECTED,
    AcknowledgmentState.EXPIRED: CoordinationMetric.ACKNOWLEDGMENT_SETS_EXPIRED,
    AcknowledgmentState.CANCELLED: CoordinationMetric.ACKNOWLEDGMENT_SETS_CANCELLED,
}

SetChange = Callable[[AcknowledgmentSet, datetime], AcknowledgmentSet]


class AcknowledgmentSets:
    """Makes, releases and ends the acknowledgment sets of one source.

    Safe to use from several threads, as its coordinator is.

    :param coordinator: of the source, initialized. Only `begin`, and `release` with `owned`, need a lease of its owner.
    :param ledger: how the source's partitions keep their batches.
    """

    def __init__(self, coordinator: SourceCoordinator, ledger: BatchLedger | None = None) -> None:
        self.coordinator = coordinator
        self._ledger = ledger or WholePartition()
        self._store = coordinator.store
        self._clock = coordinator.clock
        self.source_identifier = coordinator.family(FAMILY)
        self._told_unreadable: set[str] = set()

    # Making

    def begin(
        self,
        partition_key: str,
        batch_id: str,
        handles: Sequence[str],
        *,
        timeout: timedelta,
        sinks: Sequence[str] = (),
        complete: bool = True,
        progress: Progress | None = None,
        run: str = "",
        batch: Mapping[str, Any] | None = None,
    ) -> AcknowledgmentSet:
        """Make the set of a batch whose delivery begins, and note in the partition's progress that the batch waits.

        Both are one transaction, which also renews the lease. A set without handles that is complete is acknowledged in
        it. A handle may be given several times: it owes as many references.

        :param partition_key: the batch's partition, leased to this coordinator's owner.
        :param batch_id: the batch.
        :param handles: who has to release a reference each.
        :param timeout: how long the set may be pending without a positive release.
        :param sinks: those handles that the owner releases itself.
        :param complete: whether no more handles will be added.
        :param progress: the partition's progress with the batch in it; as it is by default.
        :param run: the Airflow run that the set belongs to, as `run_name` names it.
        :param batch: what readers may want to know of the batch: a small JSON object.
        :returns: the set as written.
        :raises AcknowledgmentError: if the timeout or a handle is not usable.
        :raises ConfigurationError: also if the batch's name is too long to name a set after it.
        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        :raises ProgressChangedError: if the stored progress is not the one that this owner knows, or the progress holds
            no such batch, or it is acknowledged.
        :raises ProgressError: if the stored progress is unreadable, or the new one cannot be stored.
        """
        now = self._clock.now()
        made = AcknowledgmentSet(
            set_id=f"{batch_id}.{secrets.token_hex(4)}",
            partition_key=partition_key,
            batch_id=batch_id,
            created_at=now,
            timeout=timeout,
            expires_at=_expiry(now, timeout, batch_id),
            sinks=tuple(sinks),
            run=run,
            batch=batch or {},
        )
        check_partition_key(made.set_id)
        for handle in handles:
            made = made.acquire(handle) if handle in made.references else made.add(handle)
        made = made.completed(now) if complete else made
        for _ in range(MAX_TRIES):
            known = self.coordinator.leased(partition_key)
            recorded = known.progress if progress is None else progress
            waiting = replace(known, progress=self._ledger.in_delivery(recorded, batch_id, made.set_id))
            settlement = None if made.is_pending else self._settlement(made, waiting)

            def begun(
                p: Partition, then: Settlement | None = settlement, noted: Progress = waiting.progress
            ) -> Partition:
                if then is not None:
                    return self._delivered(p, then, now)
                return self.coordinator.renewed(p.with_progress(noted))

            try:
                written = self.coordinator.settle(
                    known,
                    begun,
                    needs_trust=True,
                    create=[self._item(made), *self._successors(settlement)],
                    unchanged=() if settlement is None else settlement.unchanged,
                )
                break
            except PartitionUpdateError:  # another partition that the end rests on has changed
                continue
        else:
            raise PartitionUpdateError(f"partition {partition_key!r}: what its end rests on keeps changing")
        self.coordinator.count(CoordinationMetric.ACKNOWLEDGMENT_SETS_CREATED)
        log.info(
            "acknowledgment set created: source=%s partition=%s set=%s references=%d expires_at=%s",
            self.coordinator.source, partition_key, made.set_id, made.added, made.expires_at,
        )  # fmt: skip
        if settlement is not None:
            self._note_end(made, settlement, written)
        return replace(made, version=self._item(made).version)

    # Finding

    def get(self, set_id: str) -> AcknowledgmentSet:
        """Return a set as it is now.

        :raises AcknowledgmentSetNotFoundError: if the source has none of that name, or none any more.
        """
        item = self._store.get(self.source_identifier, set_id)
        if item is None:
            raise AcknowledgmentSetNotFoundError(
                f"source {self.coordinator.source!r} has no acknowledgment set {set_id!r}; give the name of one of "
                f"this source; ended ones are kept for {RETENTION.total_seconds() / 3600:g} hours"
            )
        return set_of_item(item)

    def pending(self, *, run: str | None = None) -> Iterator[AcknowledgmentSet]:
        """Yield the pending sets, those that expire first at first; unreadable ones are logged and passed over.

        :param run: only those of this Airflow run.
        """
        return (s for s in self._read(PartitionStatus.UNASSIGNED) if run is None or s.run == run)

    def ended_since(self, instant: datetime, *, run: str | None = None) -> Iterator[AcknowledgmentSet]:
        """Yield the sets that ended at an instant (aware) or later, in the order of their end.

        :param run: only those of this Airflow run.
        """
        return (s for s in self._read(PartitionStatus.COMPLETED, since=instant) if run is None or s.run == run)

    def next_expiry(self) -> datetime | None:
        """Return when the next pending set expires; None if none is pending. What cannot be read never expires."""
        first = self._store.query(self.source_identifier, PartitionStatus.UNASSIGNED, limit=1)
        if not first:
            return None
        try:
            return set_of_item(first[0]).expires_at
        except ProgressError:
            return next((s.expires_at for s in self.pending()), None)

    # Changing

    def add(self, set_id: str, handle: str, references: int = 1) -> AcknowledgmentSet:
        """Add a handle to a set that is not complete; return the set.

        :raises AcknowledgmentError: if it cannot be added, or the set has ended.
        """
        return self._change_pending(set_id, lambda s, now: s.add(handle, references))

    def acquire(self, set_id: str, handle: str, references: int = 1) -> AcknowledgmentSet:
        """Let a handle owe more references, as when its data is routed to one place more; return the set.

        :raises AcknowledgmentError: if the set has no such handle, or has ended.
        """
        return self._change_pending(set_id, lambda s, now: s.acquire(handle, references))

    def complete(self, set_id: str) -> AcknowledgmentSet:
        """Say that no more handles are added, which ends a set that owes nothing; return the set. Safe to repeat."""
        return self._change(set_id, lambda s, now: s.completed(now))

    def extend(self, set_id: str, timeout: timedelta) -> AcknowledgmentSet:
        """Let a pending set wait for so long from now, or longer where it did; return it.

        A lease that waits for it runs as long.

        :raises AcknowledgmentError: if the timeout is not positive, or the set has ended.
        """
        _expiry(self._clock.now(), timeout, set_id)
        return self._change_pending(set_id, lambda s, now: s.extended(now + timeout))

    def cancel(
        self, set_id: str, reason: str, *, version: int | None = None, by: str | None = None
    ) -> AcknowledgmentSet:
        """Take a pending set back: its batch is delivered again, and no failure is counted. Again changes nothing.

        :param reason: why; kept with the set.
        :param version: of the set as the person saw it; None for whatever it is.
        :param by: the person who orders it; logged and kept in the partition's history.
        :raises AcknowledgmentError: if it is another version by now; nothing was written.
        """

        def cancelled(found: AcknowledgmentSet, now: datetime) -> AcknowledgmentSet:
            _check_version(found, version)
            return found.ended(AcknowledgmentState.CANCELLED, now, reason) if found.is_pending else found

        with self._counting_invalid():
            written = self._change(set_id, cancelled, version=version, by=by)
        self._log_order("cancel", written, by, reason)
        return written

    def release(
        self,
        set_id: str,
        handle: str,
        *,
        positive: bool,
        release_id: str | None = None,
        reason: str | None = None,
        owned: bool = False,
        version: int | None = None,
        by: str | None = None,
    ) -> tuple[AcknowledgmentSet, ReleaseEffect]:
        """Release a reference; the last one, or a negative one, ends the set.

        A release after the end changes nothing and is counted; so does one after the set's time was up, which ends it
        as expired. Safe to repeat with the same `release_id`.

        :param handle: whose reference.
        :param positive: whether the data arrived.
        :param release_id: the release's identity; the handle's name by default, which fits handles that owe one
            reference.
        :param reason: why it is negative.
        :param owned: refuse if the batch's partition is not leased to this coordinator's owner: for a verdict that
            only the owner may give.
        :param version: of the set as the person saw it; None for whatever it is. Does not matter to a repetition.
        :param by: the person who orders it; logged and kept in the partition's history.
        :returns: the set as it is now, and what the release did.
        :raises AcknowledgmentSetNotFoundError: if the source has no such set.
        :raises AcknowledgmentError: if the release makes no sense for the set, see `AcknowledgmentSet.release`; or if
            it is another version by now, and nothing was written.
        :raises PartitionNotOwnedError: with `owned`, if the lease is lost.
        """
        effect = ReleaseEffect.RELEASED

        def released(found: AcknowledgmentSet, now: datetime) -> AcknowledgmentSet:
            nonlocal effect
            if owned:
                self.coordinator.leased(found.partition_key)
            try:
                changed, effect = found.release(
                    handle, positive=positive, release_id=release_id or handle, reason=reason, at=now
                )
            except AcknowledgmentError:
                _check_version(found, version)  # what makes no sense now may have done so for what the person saw
                raise
            if effect is not ReleaseEffect.DUPLICATE:
                _check_version(found, version)
            if found.is_pending and found.expires_at <= now and effect is ReleaseEffect.RELEASED:
                effect = ReleaseEffect.LATE
            return changed

        with self._counting_invalid():
            written = self._change(set_id, released, owned=owned, version=version, by=by)
        self._log_order(f"{'positive' if positive else 'negative'} release of {handle!r}", written, by, reason)
        if effect is ReleaseEffect.LATE:
            self._note_late(f"{'positive' if positive else 'negative'} release of {handle!r}", written)
        return written, effect

    def delivered(self, waiting: AcknowledgmentSet, sinks: Sequence[str]) -> AcknowledgmentSet:
        """Release the references of sinks that have taken the batch, all in one write under the partition's lease.

        Safe to repeat. Only the owner of the partition says this: who lost the lease may have published nothing, and
        the next owner may have begun to replace what it did.

        :param waiting: the set as this owner last saw it, which saves reading it; read if it has changed.
        :param sinks: those of its handles.
        :returns: the set as it is now.
        :raises AcknowledgmentSetNotFoundError: if the source has no such set.
        :raises PartitionNotOwnedError: if the lease is lost, or the set ended before; the latter is counted as late.
        """
        late = False

        def released(found: AcknowledgmentSet, now: datetime) -> AcknowledgmentSet:
            nonlocal late
            self.coordinator.leased(found.partition_key)
            late = False
            for sink in sinks:
                was_pending = found.is_pending and found.expires_at > now
                found, effect = found.release(sink, positive=True, release_id=sink, at=now)
                late |= effect is ReleaseEffect.LATE or (effect is ReleaseEffect.RELEASED and not was_pending)
            return found

        written = self._change(waiting.set_id, released, owned=True, known=waiting)
        if late:
            self._note_late(f"positive release of {', '.join(map(repr, sinks))}", written)
            raise PartitionNotOwnedError(f"{written} ended as {written.state} while its batch was delivered")
        return written

    def _note_late(self, what: str, ended: AcknowledgmentSet) -> None:
        self.coordinator.count(CoordinationMetric.LATE_ACKNOWLEDGMENTS)
        log.warning(
            "late %s changes nothing, the set had ended: source=%s set=%s state=%s",
            what, self.coordinator.source, ended.set_id, ended.state,
        )  # fmt: skip

    def acknowledge(
        self,
        set_id: str,
        *,
        positive: bool,
        handle: str | None = None,
        release_id: str | None = None,
        reason: str | None = None,
        version: int | None = None,
        by: str | None = None,
    ) -> tuple[AcknowledgmentSet, ReleaseEffect]:
        """Release a reference from outside the job that delivers the batch, as `release` does.

        :param handle: whose reference; may be left out where the set has one handle that is released from outside.
        :raises AcknowledgmentError: also if the handle is one that the job itself releases, or none is named where
            the set has several.
        """
        with self._counting_invalid():
            handle = self.get(set_id).outside_handle(handle)
        return self.release(
            set_id, handle, positive=positive, release_id=release_id, reason=reason, version=version, by=by
        )

    def give_back(self, set_ids: Sequence[str] | None, *, run: str | None = None) -> list[str]:
        """Give back the leases of partitions that wait for pending sets, because whoever saw to these gave up.

        The sets stay pending and may still be acknowledged; the partition's next owner goes on from its progress.

        :param set_ids: the sets; None for all that are pending.
        :param run: without `set_ids`, only the sets of this Airflow run.
        :returns: the partition keys.
        """
        given_up = [
            waiting.partition_key
            for waiting in self.pending(run=run if set_ids is None else None)
            if (set_ids is None or waiting.set_id in set_ids) and self._give_back(waiting)
        ]
        self.coordinator.count(CoordinationMetric.PARTITIONS_GIVEN_UP, len(given_up))
        return given_up

    # Time

    def expire_overdue(self) -> list[AcknowledgmentSet]:
        """End every pending set whose time is up; return those that ended here.

        What cannot be ended is logged and passed over.
        """
        ended = []
        for overdue in self.pending():
            now = self._clock.now()
            if overdue.expires_at > now:
                break
            try:
                ended += self._expire(overdue.set_id)
            except AcknowledgmentSetNotFoundError:
                continue  # purged or deleted meanwhile
            except (ProgressError, PartitionUpdateError) as error:
                log.error("%s cannot be ended: %s", overdue, error)
        return ended

    def purge(self, *, older_than: timedelta = RETENTION, limit: int = 5000) -> int:
        """Delete sets that ended long ago; return how many.

        :param older_than: how long ago.
        :param limit: at most so many at a time.
        """
        deleted = 0
        latest = self._clock.now() - older_than
        for item in all_partitions(self._store, self.source_identifier, PartitionStatus.COMPLETED):
            if item.priority > latest or deleted >= limit:
                break
            try:
                self._store.delete(item)
                deleted += 1
            except PartitionUpdateError:  # somebody else purges too
                continue
        return deleted

    # Inside

    def _read(self, status: PartitionStatus, since: datetime | None = None) -> Iterator[AcknowledgmentSet]:
        for item in all_partitions(self._store, self.source_identifier, status, since=since):
            try:
                yield set_of_item(item)
            except ProgressError as error:
                if item.partition_key not in self._told_unreadable:  # a watcher comes by every few seconds
                    self._told_unreadable.add(item.partition_key)
                    log.error("%s", error)

    def _expire(self, set_id: str) -> list[AcknowledgmentSet]:
        """End a set if its time is up; return it if that was done here, and not by somebody who was faster."""
        was_pending = False

        def looked_at(found: AcknowledgmentSet, now: datetime) -> AcknowledgmentSet:
            nonlocal was_pending
            was_pending = found.is_pending
            return found

        written = self._change(set_id, looked_at)
        return [written] if was_pending and not written.is_pending else []

    @contextmanager
    def _counting_invalid(self) -> Iterator[None]:
        try:
            yield
        except AcknowledgmentError:
            self.coordinator.count(CoordinationMetric.INVALID_ACKNOWLEDGMENTS)
            raise

    def _item(self, acknowledgment_set: AcknowledgmentSet) -> Partition:
        return item_of(acknowledgment_set, self.source_identifier)

    def _change_pending(self, set_id: str, change: SetChange) -> AcknowledgmentSet:
        """Write a change that only a pending set can take."""
        with self._counting_invalid():
            return _require_pending(self._change(set_id, lambda s, now: change(_require_pending(s), now)))

    def _change(
        self,
        set_id: str,
        change: SetChange,
        *,
        owned: bool = False,
        version: int | None = None,
        by: str | None = None,
        known: AcknowledgmentSet | None = None,
    ) -> AcknowledgmentSet:
        """Write a change of a set, with what its end means; return the set as written, or as it is if unchanged.

        A pending set whose time is up ends as expired instead.

        :param owned: whether only the partition's owner may do this.
        :param version: the one that `change` asks for: what is refused now may have been written a moment ago.
        :param by: the person who orders it.
        :param known: the set as it was seen a moment ago; what is decided on it is refused if it has changed.
        """
        intended: AcknowledgmentSet | None = None
        for _ in range(MAX_TRIES):
            found, known, now = known or self.get(set_id), None, self._clock.now()
            if version is not None and found == intended:  # the write happened, its answer was lost
                return found
            changed = change(found, now)
            if found.is_pending and found.expires_at <= now:
                changed = found.ended(
                    AcknowledgmentState.EXPIRED, now, f"not acknowledged by {found.expires_at:%Y-%m-%dT%H:%M:%SZ}"
                )
            if changed == found:
                return found
            intended = replace(changed, version=found.version + 1)
            try:
                self._write(found, changed, now, owned=owned, by=by)
                return intended
            except (PartitionUpdateError, *LOST) as error:
                log.debug("set %s: decided anew: %s", set_id, error)
        raise PartitionUpdateError(f"acknowledgment set {set_id!r}: it, or its partition, keeps changing")

    def _write(
        self, found: AcknowledgmentSet, changed: AcknowledgmentSet, now: datetime, *, owned: bool, by: str | None
    ) -> None:
        partition = self._waiting(found, owned=owned)
        if partition is None:
            self._store.transact(update=[self._item(changed)])
            self._note_end(changed, None)
        elif changed.is_pending:
            self._write_pending(found, changed, partition, owned=owned)
        else:
            self._write_end(changed, partition, now, by)

    def _write_end(self, ended: AcknowledgmentSet, partition: Partition, now: datetime, by: str | None) -> None:
        settlement = self._settlement(ended, partition)
        delivered = ended.state is AcknowledgmentState.ACKNOWLEDGED

        def settled(p: Partition) -> Partition:
            after = self._delivered(p, settlement, now) if delivered else self._undelivered(p, settlement, ended, now)
            if by is None or after.change is None:
                return after
            return after.because(after.change.kind, after.change.reason, by)

        written = self.coordinator.settle(
            partition,
            settled,
            update=[self._item(ended)],
            create=self._successors(settlement),
            unchanged=settlement.unchanged,
        )
        self._note_end(ended, settlement, written)
        if written.attempts > partition.attempts:
            self.coordinator.note_failed(written)

    def _write_pending(
        self, found: AcknowledgmentSet, changed: AcknowledgmentSet, partition: Partition, *, owned: bool
    ) -> None:
        update = [self._item(changed)]
        if owned:  # only the store can tell that the lease is not lost
            self.coordinator.settle(partition, self.coordinator.renewed, update=update)
            return
        if partition.is_awaiting and changed.expires_at > found.expires_at:
            update.append(partition.renewed(changed.expires_at))
        self._store.transact(update=update)

    def _waiting(self, acknowledgment_set: AcknowledgmentSet, *, owned: bool) -> Partition | None:
        """Return the partition that waits for a set; None if none does: it was deleted, or reset, since."""
        key = acknowledgment_set.partition_key
        partition = self.coordinator.leased(key) if owned else self.coordinator.current(key)
        if partition is None or self._waits_for(partition, acknowledgment_set):
            return partition
        if key in self.coordinator.held:
            # What this owner knows may be behind: an answer may be missing, or the lease lost. A renewal finds out.
            partition = self.coordinator.renew(key)
        return partition if self._waits_for(partition, acknowledgment_set) else None

    def _give_back(self, waiting: AcknowledgmentSet) -> bool:
        for _ in range(MAX_TRIES):
            partition = self.coordinator.current(waiting.partition_key)
            if partition is None or not partition.is_awaiting or not self._waits_for(partition, waiting):
                return False
            try:
                self.coordinator.settle(partition, lambda p: p.given_up(self._clock.now()))
            except PartitionUpdateError:
                continue
            log.info(
                "partition given up, it waits for acknowledgments no longer: source=%s partition=%s set=%s",
                self.coordinator.source, waiting.partition_key, waiting.set_id,
            )  # fmt: skip
            return True
        return False

    def _waits_for(self, partition: Partition, acknowledgment_set: AcknowledgmentSet) -> bool:
        try:
            waiting = self._ledger.set_of(partition.progress, acknowledgment_set.batch_id)
        except SourceError as error:
            log.error("partition %s: %s", partition.partition_key, error)
            return False
        return waiting == acknowledgment_set.set_id

    def _settlement(self, ended: AcknowledgmentSet, partition: Partition) -> Settlement:
        if ended.state is AcknowledgmentState.ACKNOWLEDGED:
            return self._ledger.delivered(partition, ended.batch_id, self.coordinator.get)
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
        return self.coordinator.renewed(after) if after.owner == self.coordinator.owner else after

    def _undelivered(
        self, partition: Partition, settlement: Settlement, ended: AcknowledgmentSet, now: datetime
    ) -> Partition:
        after = partition.with_progress(settlement.progress)
        if after.status is not PartitionStatus.ASSIGNED:
            return after  # another batch of it failed before: it is tried again anyway
        if ended.state is AcknowledgmentState.CANCELLED:
            return after.given_up(now) if after.is_awaiting and not settlement.pending else after
        what = "was rejected" if ended.state is AcknowledgmentState.REJECTED else "expired"
        return self.coordinator.failed(after, f"batch {ended.batch_id} {what}: {ended.reason}")

    def _log_order(self, what: str, written: AcknowledgmentSet, by: str | None, reason: str | None) -> None:
        """Log what a person ordered, whatever it did."""
        if by is not None:
            log.info(
                "acknowledgment set, %s by hand: source=%s partition=%s set=%s state=%s by=%s reason=%r",
                what, self.coordinator.source, written.partition_key, written.set_id, written.state, by, reason,
            )  # fmt: skip

    def _successors(self, settlement: Settlement | None) -> list[Partition]:
        return [] if settlement is None else [self.coordinator.new(k, p) for k, p in settlement.create.items()]

    def _note_end(
        self, ended: AcknowledgmentSet, settlement: Settlement | None, written: Partition | None = None
    ) -> None:
        """Count and log an end that was written.

        :param written: the partition that it changed.
        """
        if ended.is_pending:
            return
        self.coordinator.count(ENDED[ended.state])
        what = "" if settlement is not None else "; the partition no longer waits for it"
        failed = ended.state in (AcknowledgmentState.REJECTED, AcknowledgmentState.EXPIRED)
        (log.error if failed else log.info)(
            "acknowledgment set %s: source=%s partition=%s set=%s%s%s",
            str(ended.state).lower(), self.coordinator.source, ended.partition_key, ended.set_id,
            f": {ended.reason}" if ended.reason else "", what,
        )  # fmt: skip
        if settlement is None or not settlement.finished or written is None:
            return
        if written.status is PartitionStatus.CLOSED:
            self.coordinator.note_closed(written)
        else:
            self.coordinator.note_completed(ended.partition_key, list(settlement.create))


def _expiry(now: datetime, timeout: timedelta, of: str) -> datetime:
    if not timedelta(0) < timeout <= MAX_TIMEOUT:
        raise AcknowledgmentError(
            f"acknowledgment of {of!r}: a timeout of {timeout.total_seconds():g} s is not usable; give a positive one "
            f"of at most {MAX_TIMEOUT.days} days"
        )
    return now + timeout


def _check_version(found: AcknowledgmentSet, version: int | None) -> None:
    if version is not None and found.version != version:
        raise AcknowledgmentError(
            f"{found} has changed since it was looked at: that was version {version}, and it is {found.state}, version "
            f"{found.version} now; look at it again"
        )


def _require_pending(found: AcknowledgmentSet) -> AcknowledgmentSet:
    if not found.is_pending:
        raise AcknowledgmentError(f"{found}: it has ended, {found.state}; only a pending set can be changed")
    return found
