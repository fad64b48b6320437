"""The acknowledgment sets of one source: created with a batch, released by its recipients, ended once.

The end of a set and its effect on the partition are one store transaction, see `SetWrites`.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from airflow_provider_coordination.coordination.acknowledgment import (
    RETENTION,
    AcknowledgmentSet,
    AcknowledgmentState,
    AcknowledgmentView,
    BatchLedger,
    Progress,
    ReleaseEffect,
    WholePartition,
)
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    AcknowledgmentSetNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    ProgressError,
    result_or_raise,
)
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import PartitionStatus, check_partition_key
from airflow_provider_coordination.coordination.set_writes import SetDecision, SetWrite, SetWrites
from airflow_provider_coordination.coordination.store import all_partitions

log = logging.getLogger(__name__)

MAX_TIMEOUT = timedelta(days=3650)
SetChange = Callable[[AcknowledgmentSet, datetime], AcknowledgmentSet]
_CHANGED = (PartitionUpdateError, *LOST)
"""The errors of a decision whose basis has changed."""


class AcknowledgmentSets:
    """Creates, releases and ends the acknowledgment sets of one source.

    Safe to use from several threads, as its coordinator is.

    :param coordinator: the initialized coordinator of the source. Only `begin`, and `release` with `owned`, need a
        lease.
    :param ledger: how the source's partitions record their batches.
    """

    def __init__(self, coordinator: SourceCoordinator, ledger: BatchLedger | None = None) -> None:
        self.coordinator = coordinator
        self.view = AcknowledgmentView(coordinator.view)
        self._writes = SetWrites(coordinator, ledger or WholePartition())
        self._store = coordinator.store
        self._clock = coordinator.clock

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
        """Create the set of a batch at the start of its delivery, as `begin_each` does; return it as written.

        :param progress: the partition's progress including the batch; the current progress by default.
        :raises Exception: the error that `begin_each` returns; see also `new_set`.
        """
        new = self.new_set(
            partition_key, batch_id, handles, timeout=timeout, sinks=sinks, complete=complete, run=run, batch=batch
        )
        return result_or_raise(self.begin_each([(new, progress)])[0])

    def new_set(
        self,
        partition_key: str,
        batch_id: str,
        handles: Sequence[str],
        *,
        timeout: timedelta,
        sinks: Sequence[str] = (),
        complete: bool = True,
        run: str = "",
        batch: Mapping[str, Any] | None = None,
    ) -> AcknowledgmentSet:
        """Return the set of a batch, which `begin_each` writes. Complete and without handles, it is acknowledged.

        A handle that is given several times owes that number of references.

        :param partition_key: the batch's partition.
        :param batch_id: the batch.
        :param handles: the handles, each of which must release one reference.
        :param timeout: how long the set may be pending without a positive release.
        :param sinks: the handles that the owner releases itself.
        :param complete: whether no more handles will be added.
        :param run: the Airflow run that the set belongs to, as `run_name` names it.
        :param batch: facts about the batch for readers, as a small JSON object.
        :raises AcknowledgmentError: if the timeout or a handle is not valid.
        :raises ConfigurationError: also if the batch's id is too long to derive the set's id from it.
        """
        now = self._clock.now()
        created = AcknowledgmentSet(
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
        check_partition_key(created.set_id)
        for handle in handles:
            created = created.acquire(handle) if handle in created.references else created.add(handle)
        return created.completed(now) if complete else created

    def begin_each(
        self, new_sets: Sequence[tuple[AcknowledgmentSet, Progress | None]]
    ) -> list[AcknowledgmentSet | Exception]:
        """Write new sets, each with the batch in its partition's progress, and renew the leases, in few requests.

        :param new_sets: sets from `new_set`, each of another partition that this owner holds, with the progress of the
            partition including the batch; None for the current progress.
        :returns: each set as written, or its error: `PartitionNotOwnedError` if the lease is lost or no longer trusted;
            `ProgressChangedError` if the stored progress differs from the progress that this owner knows, or does not
            contain the batch, or the batch is already acknowledged; `ProgressError` if the stored progress is
            unreadable, or the new one cannot be stored.
        """
        return self._writes.decide_each(
            [
                SetDecision(
                    decide=partial(self._writes.beginning, new, progress),
                    retried=(PartitionUpdateError,),
                    subject=f"partition {new.partition_key!r}: the partitions that its end depends on keep",
                )
                for new, progress in new_sets
            ]
        )

    # Changes

    def add(self, set_id: str, handle: str, references: int = 1) -> AcknowledgmentSet:
        """Add a handle to a set that is not complete; return the set.

        :raises AcknowledgmentError: if it cannot be added, or the set has ended.
        """
        return self._change_pending(set_id, lambda s, now: s.add(handle, references))

    def acquire(self, set_id: str, handle: str, references: int = 1) -> AcknowledgmentSet:
        """Add references to a handle, for example when its data goes to one more destination; return the set.

        :raises AcknowledgmentError: if the set has no such handle, or has ended.
        """
        return self._change_pending(set_id, lambda s, now: s.acquire(handle, references))

    def complete(self, set_id: str) -> AcknowledgmentSet:
        """Mark a set as complete, which ends it if nothing is owed; return the set. Safe to repeat."""
        return self._change(set_id, lambda s, now: s.completed(now))

    def extend(self, set_id: str, timeout: timedelta) -> AcknowledgmentSet:
        """Extend a pending set to this timeout from now, never shortening it; return it.

        A lease that waits for it is extended as well.

        :raises AcknowledgmentError: if the timeout is not positive, or the set has ended.
        """
        _expiry(self._clock.now(), timeout, set_id)
        return self._change_pending(set_id, lambda s, now: s.extended(now + timeout))

    def cancel(
        self, set_id: str, reason: str, *, version: int | None = None, by: str | None = None
    ) -> AcknowledgmentSet:
        """Cancel a pending set: its batch is delivered again, and no failure is counted. Safe to repeat.

        :param reason: why; stored with the set.
        :param version: the version of the set that the user saw; None to accept any version.
        :param by: the user who requests it; logged and stored in the partition's history.
        :raises AcknowledgmentError: if the set has another version now; nothing is written then.
        """

        def cancelled(current: AcknowledgmentSet, now: datetime) -> AcknowledgmentSet:
            _check_version(current, version)
            return current.ended(AcknowledgmentState.CANCELLED, now, reason) if current.is_pending else current

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

        A release after the end changes nothing and is counted. A release after the timeout does the same, and ends the
        set as expired. Safe to repeat with the same `release_id`.

        :param handle: the handle that owes the reference.
        :param positive: whether the data arrived.
        :param release_id: the identity of the release. The default is the name of the handle, which fits handles that
            owe one reference.
        :param reason: why it is negative.
        :param owned: whether to refuse the release unless this coordinator's owner has leased the batch's partition,
            for a result that only the owner may report.
        :param version: the version of the set that the user saw; None to accept any version. Ignored for a repetition.
        :param by: the user who requests it; logged and stored in the partition's history.
        :returns: the set as it is now, and what the release did.
        :raises AcknowledgmentSetNotFoundError: if the source has no such set.
        :raises AcknowledgmentError: if the release does not apply to the set, see `AcknowledgmentSet.release`; or if
            the set has another version now. Nothing is written then.
        :raises PartitionNotOwnedError: with `owned`, if the lease is lost.
        """
        effect = ReleaseEffect.RELEASED

        def released(current: AcknowledgmentSet, now: datetime) -> AcknowledgmentSet:
            nonlocal effect
            if owned:
                self.coordinator.leases.leased(current.partition_key)
            try:
                changed, effect = current.release(
                    handle, positive=positive, release_id=release_id or handle, reason=reason, at=now
                )
            except AcknowledgmentError:
                _check_version(current, version)  # the release may have applied to the version that the user saw
                raise
            if effect is not ReleaseEffect.DUPLICATE:
                _check_version(current, version)
            if current.is_pending and current.expires_at <= now and effect is ReleaseEffect.RELEASED:
                effect = ReleaseEffect.LATE
            return changed

        with self._counting_invalid():
            written = self._change(set_id, released, owned=owned, version=version, by=by)
        self._log_order(f"{'positive' if positive else 'negative'} release of {handle!r}", written, by, reason)
        if effect is ReleaseEffect.LATE:
            self._note_late(f"{'positive' if positive else 'negative'} release of {handle!r}", written)
        return written, effect

    def delivered(self, waiting: AcknowledgmentSet, sinks: Sequence[str]) -> AcknowledgmentSet:
        """Release the references of sinks that have stored the batch, as `delivered_each` does; return the set.

        :raises Exception: the error that `delivered_each` returns.
        """
        return result_or_raise(self.delivered_each([(waiting, sinks)])[0])

    def delivered_each(
        self,
        waiting: Sequence[tuple[AcknowledgmentSet, Sequence[str]]],
        facts: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> list[AcknowledgmentSet | Exception]:
        """Release the references of sinks that have stored batches, under the partitions' leases, in few requests.

        Safe to repeat. Only the owner of a partition may call it: an owner that lost the lease may have published
        nothing, and the new owner may already replace what it did publish.

        :param waiting: sets of different partitions as this owner last read them, with the handles to release; only a
            set that has changed is read again.
        :param facts: what is known of the batches since, by the id of the set; it is added to what the set has.
        :returns: each set as it is now, or its error: `AcknowledgmentSetNotFoundError` if the source has no such set;
            `PartitionNotOwnedError` if the lease is lost, or the set had ended; the latter is counted as late.
        """
        late: dict[str, bool] = {}

        def released(sinks: Sequence[str], current: AcknowledgmentSet, now: datetime) -> AcknowledgmentSet:
            self.coordinator.leases.leased(current.partition_key)
            late[current.set_id] = False
            if facts and current.is_pending and (known := facts.get(current.set_id)):
                current = replace(current, batch={**current.batch, **known})
            for sink in sinks:
                was_pending = current.is_pending and current.expires_at > now
                current, effect = current.release(sink, positive=True, release_id=sink, at=now)
                late[current.set_id] |= effect is ReleaseEffect.LATE or (
                    effect is ReleaseEffect.RELEASED and not was_pending
                )
            return current

        results = self._writes.decide_each(
            [
                self._changing(known.set_id, partial(released, sinks), owned=True, known=known)
                for known, sinks in waiting
            ]
        )
        for n, (result, (_, sinks)) in enumerate(zip(results, waiting, strict=True)):
            if isinstance(result, AcknowledgmentSet) and late[result.set_id]:
                self._note_late(f"positive release of {', '.join(map(repr, sinks))}", result)
                results[n] = PartitionNotOwnedError(f"{result} ended as {result.state} while its batch was delivered")
        return results

    def _note_late(self, what: str, ended: AcknowledgmentSet) -> None:
        self.coordinator.events.count(CoordinationMetric.LATE_ACKNOWLEDGMENTS)
        log.warning(
            "late %s ignored, because the set had already ended: source=%s set=%s state=%s",
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

        :param handle: the handle that owes the reference. It may be omitted if only one handle is released from
            outside.
        :raises AcknowledgmentError: also if the job itself releases the handle, or if none is given and the set has
            several.
        """
        with self._counting_invalid():
            handle = self.view.get(set_id).outside_handle(handle)
        return self.release(
            set_id, handle, positive=positive, release_id=release_id, reason=reason, version=version, by=by
        )

    def give_back(self, set_ids: Sequence[str] | None, *, run: str | None = None) -> list[str]:
        """Give back the leases of partitions that wait for pending sets, because their monitoring task gave up.

        The sets stay pending and may still be acknowledged. The partition's next owner continues from its progress.

        :param set_ids: the sets; None for all pending sets.
        :param run: without `set_ids`, only the sets of this Airflow run.
        :returns: the partition keys.
        """
        given_up = [
            waiting.partition_key
            for waiting in self.view.pending(run=run if set_ids is None else None)
            if (set_ids is None or waiting.set_id in set_ids) and self._writes.give_back(waiting)
        ]
        self.coordinator.events.count(CoordinationMetric.PARTITIONS_GIVEN_UP, len(given_up))
        return given_up

    # Expiry

    def expire_overdue(self) -> list[AcknowledgmentSet]:
        """End every pending set that has timed out; return those that this call ended.

        Sets that cannot be ended are logged and skipped.
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
        """Delete sets that ended long ago; return the number of deleted sets.

        :param older_than: the minimum time since their end.
        :param limit: the maximum number of sets to delete.
        """
        deleted = 0
        latest = self._clock.now() - older_than
        for item in all_partitions(self._store, self.view.source_identifier, PartitionStatus.COMPLETED):
            if item.priority > latest or deleted >= limit:
                break
            try:
                self._store.delete(item)
                deleted += 1
            except PartitionUpdateError:  # another process purges as well
                continue
        return deleted

    # Internal

    def _expire(self, set_id: str) -> list[AcknowledgmentSet]:
        """End a set if it has timed out; return it if this call ended it, and not another process."""
        was_pending = False

        def unchanged(current: AcknowledgmentSet, now: datetime) -> AcknowledgmentSet:
            nonlocal was_pending
            was_pending = current.is_pending
            return current

        written = self._change(set_id, unchanged)
        return [written] if was_pending and not written.is_pending else []

    @contextmanager
    def _counting_invalid(self) -> Iterator[None]:
        try:
            yield
        except AcknowledgmentError:
            self.coordinator.events.count(CoordinationMetric.INVALID_ACKNOWLEDGMENTS)
            raise

    def _change_pending(self, set_id: str, change: SetChange) -> AcknowledgmentSet:
        """Write a change that is only possible for a pending set."""
        with self._counting_invalid():
            return _require_pending(self._change(set_id, lambda s, now: change(_require_pending(s), now)))

    def _change(self, set_id: str, change: SetChange, **details: Any) -> AcknowledgmentSet:
        return result_or_raise(self._writes.decide_each([self._changing(set_id, change, **details)])[0])

    def _changing(
        self,
        set_id: str,
        change: SetChange,
        *,
        owned: bool = False,
        version: int | None = None,
        by: str | None = None,
        known: AcknowledgmentSet | None = None,
    ) -> SetDecision:
        """Return the decision to change a set, with the effects of its end. Its result is the set as stored.

        A pending set that has timed out ends as expired instead.

        :param owned: whether only the partition's owner may do this.
        :param version: the version that `change` requires. It may be refused because the write succeeded a moment ago.
        :param by: the user who requests it.
        :param known: the set as read a moment ago; a decision based on it is refused if it has changed since.
        """
        intended: AcknowledgmentSet | None = None

        def decide() -> SetWrite | AcknowledgmentSet | None:
            nonlocal known, intended
            current, known, now = known or self.view.get(set_id), None, self._clock.now()
            if version is not None and current == intended:  # the write succeeded, its response was lost
                return current
            changed = change(current, now)
            if current.is_pending and current.expires_at <= now:
                changed = current.ended(
                    AcknowledgmentState.EXPIRED, now, f"not acknowledged by {current.expires_at:%Y-%m-%dT%H:%M:%SZ}"
                )
            if changed == current:
                return current
            intended = replace(changed, version=current.version + 1)
            try:
                return self._writes.changing(current, changed, now, owned=owned, by=by)
            except _CHANGED as error:
                log.debug("set %s: deciding again: %s", set_id, error)
                return None

        return SetDecision(decide, _CHANGED, f"acknowledgment set {set_id!r}: the set or its partition keeps")

    def _log_order(self, what: str, written: AcknowledgmentSet, by: str | None, reason: str | None) -> None:
        """Log what a user requested, whatever its effect."""
        if by is not None:
            log.info(
                "acknowledgment set, %s by hand: source=%s partition=%s set=%s state=%s by=%s reason=%r",
                what, self.coordinator.source, written.partition_key, written.set_id, written.state, by, reason,
            )  # fmt: skip


def _expiry(now: datetime, timeout: timedelta, of: str) -> datetime:
    if not timedelta(0) < timeout <= MAX_TIMEOUT:
        raise AcknowledgmentError(
            f"acknowledgment of {of!r}: timeout {timeout.total_seconds():g} s is not usable; give a positive one of at "
            f"most {MAX_TIMEOUT.days} days"
        )
    return now + timeout


def _check_version(current: AcknowledgmentSet, version: int | None) -> None:
    if version is not None and current.version != version:
        raise AcknowledgmentError(
            f"{current} has changed since it was read: version {version} was read, and it is now {current.state}, "
            f"version {current.version}; check it again"
        )


def _require_pending(acknowledgment_set: AcknowledgmentSet) -> AcknowledgmentSet:
    if not acknowledgment_set.is_pending:
        raise AcknowledgmentError(
            f"{acknowledgment_set} has ended as {acknowledgment_set.state}; only a pending set can be changed"
        )
    return acknowledgment_set
