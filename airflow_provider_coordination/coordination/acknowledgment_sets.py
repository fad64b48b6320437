"""The acknowledgment sets of one source: made with a batch, released by whoever took the data, ended once.

The end of a set and what it means to its partition are one store transaction, which `SetTransactions` writes.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from airflow_provider_coordination.coordination.acknowledgment import (
    AcknowledgmentSet,
    AcknowledgmentState,
    ReleaseEffect,
)
from airflow_provider_coordination.coordination.acknowledgment_view import RETENTION, AcknowledgmentView
from airflow_provider_coordination.coordination.batches import BatchLedger, Progress, WholePartition
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    AcknowledgmentSetNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    ProgressError,
)
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.lockstep import Steps
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import PartitionStatus, check_partition_key
from airflow_provider_coordination.coordination.set_transactions import MAX_TRIES, SetTransactions
from airflow_provider_coordination.coordination.store import all_partitions

log = logging.getLogger(__name__)

MAX_TIMEOUT = timedelta(days=3650)
T = TypeVar("T")
SetChange = Callable[[AcknowledgmentSet, datetime], AcknowledgmentSet]


class AcknowledgmentSets:
    """Makes, releases and ends the acknowledgment sets of one source.

    Safe to use from several threads, as its coordinator is.

    :param coordinator: of the source, initialized. Only `begin`, and `release` with `owned`, need a lease of its owner.
    :param ledger: how the source's partitions keep their batches.
    """

    def __init__(self, coordinator: SourceCoordinator, ledger: BatchLedger | None = None) -> None:
        self.coordinator = coordinator
        self.view = AcknowledgmentView(coordinator.view)
        self._transactions = SetTransactions(coordinator, ledger or WholePartition())
        self._store = coordinator.store
        self._clock = coordinator.clock

    def begin(self, partition_key: str, batch_id: str, handles: Sequence[str], **details: Any) -> AcknowledgmentSet:
        """Make the set of a batch whose delivery begins, as `beginning` does; return it as written.

        :raises Exception: what that raises.
        """
        return self._done(self.beginning(partition_key, batch_id, handles, **details))

    def beginning(
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
    ) -> Steps[AcknowledgmentSet]:
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
        return (yield from self._transactions.beginning(made, progress))

    def in_step(self, processes: Sequence[Steps[T]]) -> list[T | Exception]:
        """Take several of `beginning` and `releasing` to their ends, of a partition each: what they write at the same
        step goes to the store in few requests.

        :returns: for each its result, or what it raises; none holds another.
        """
        return self.coordinator.settling.in_step(processes)

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
        """Let a pending set wait for this long from now, or longer where it did; return it.

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
                self.coordinator.leases.leased(found.partition_key)
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
        """Release the references of sinks that have taken the batch, as `releasing` does; return the set.

        :raises Exception: what that raises.
        """
        return self._done(self.releasing(waiting, sinks))

    def releasing(self, waiting: AcknowledgmentSet, sinks: Sequence[str]) -> Steps[AcknowledgmentSet]:
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
            self.coordinator.leases.leased(found.partition_key)
            late = False
            for sink in sinks:
                was_pending = found.is_pending and found.expires_at > now
                found, effect = found.release(sink, positive=True, release_id=sink, at=now)
                late |= effect is ReleaseEffect.LATE or (effect is ReleaseEffect.RELEASED and not was_pending)
            return found

        written = yield from self._changing(waiting.set_id, released, owned=True, known=waiting)
        if late:
            self._note_late(f"positive release of {', '.join(map(repr, sinks))}", written)
            raise PartitionNotOwnedError(f"{written} ended as {written.state} while its batch was delivered")
        return written

    def _note_late(self, what: str, ended: AcknowledgmentSet) -> None:
        self.coordinator.events.count(CoordinationMetric.LATE_ACKNOWLEDGMENTS)
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
            handle = self.view.get(set_id).outside_handle(handle)
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
            for waiting in self.view.pending(run=run if set_ids is None else None)
            if (set_ids is None or waiting.set_id in set_ids) and self._transactions.give_back(waiting)
        ]
        self.coordinator.events.count(CoordinationMetric.PARTITIONS_GIVEN_UP, len(given_up))
        return given_up

    # Time

    def expire_overdue(self) -> list[AcknowledgmentSet]:
        """End every pending set whose time is up; return those that ended here.

        What cannot be ended is logged and passed over.
        """
        ended = []
        for overdue in self.view.pending():
            now = self._clock.now()
            if overdue.expires_at > now:
                break
            try:
                ended += self._expire(overdue.set_id)
            except AcknowledgmentSetNotFoundError:
                continue  # purged or deleted since it was listed
            except (ProgressError, PartitionUpdateError) as error:
                log.error("%s cannot be ended: %s", overdue, error)
        return ended

    def purge(self, *, older_than: timedelta = RETENTION, limit: int = 5000) -> int:
        """Delete sets that ended long ago; return how many.

        :param older_than: how long ago.
        :param limit: how many at most.
        """
        deleted = 0
        latest = self._clock.now() - older_than
        for item in all_partitions(self._store, self.view.source_identifier, PartitionStatus.COMPLETED):
            if item.priority > latest or deleted >= limit:
                break
            try:
                self._store.delete(item)
                deleted += 1
            except PartitionUpdateError:  # somebody else purges too
                continue
        return deleted

    # Inside

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
            self.coordinator.events.count(CoordinationMetric.INVALID_ACKNOWLEDGMENTS)
            raise

    def _change_pending(self, set_id: str, change: SetChange) -> AcknowledgmentSet:
        """Write a change that only a pending set can take."""
        with self._counting_invalid():
            return _require_pending(self._change(set_id, lambda s, now: change(_require_pending(s), now)))

    def _done(self, process: Steps[AcknowledgmentSet]) -> AcknowledgmentSet:
        [result] = self.in_step([process])
        if isinstance(result, Exception):
            raise result
        return result

    def _change(self, set_id: str, change: SetChange, **details: Any) -> AcknowledgmentSet:
        return self._done(self._changing(set_id, change, **details))

    def _changing(
        self,
        set_id: str,
        change: SetChange,
        *,
        owned: bool = False,
        version: int | None = None,
        by: str | None = None,
        known: AcknowledgmentSet | None = None,
    ) -> Steps[AcknowledgmentSet]:
        """Write a change of a set, with what its end means; return the set as written, or as it is if unchanged.

        A pending set whose time is up ends as expired instead.

        :param owned: whether only the partition's owner may do this.
        :param version: the one that `change` asks for: what is refused now may have been written a moment ago.
        :param by: the person who orders it.
        :param known: the set as it was seen a moment ago; what is decided on it is refused if it has changed.
        """
        intended: AcknowledgmentSet | None = None
        for _ in range(MAX_TRIES):
            found, known, now = known or self.view.get(set_id), None, self._clock.now()
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
                yield from self._transactions.writing(found, changed, now, owned=owned, by=by)
                return intended
            except (PartitionUpdateError, *LOST) as error:
                log.debug("set %s: decided anew: %s", set_id, error)
        raise PartitionUpdateError(f"acknowledgment set {set_id!r}: it, or its partition, keeps changing")

    def _log_order(self, what: str, written: AcknowledgmentSet, by: str | None, reason: str | None) -> None:
        """Log what a person ordered, whatever it did."""
        if by is not None:
            log.info(
                "acknowledgment set, %s by hand: source=%s partition=%s set=%s state=%s by=%s reason=%r",
                what, self.coordinator.source, written.partition_key, written.set_id, written.state, by, reason,
            )  # fmt: skip


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
