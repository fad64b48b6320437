"""The leases of one owner on the partitions of a source: acquired, worked on, handed over and ended.

Every write is conditional: on the version that this owner wrote last if it holds the lease, see `Leases`, otherwise on
the version as it was read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.errors import (
    PartitionUpdateError,
    ProgressChangedError,
    result_or_raise,
)
from airflow_provider_coordination.coordination.leases import LOST, Change, LeaseChange, Leases
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, PartitionEvents
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import ChangeKind, Partition, PartitionStatus
from airflow_provider_coordination.coordination.retries import RetryPolicy, parked
from airflow_provider_coordination.coordination.source_view import SourceView

log = logging.getLogger(__name__)


class PartitionLeases(Leases):
    """The leases of one owner on the partitions of one source. Safe to use from several threads.

    What is written, acquired and lost is counted and logged.

    :param view: the view of the source.
    :param owner: the owner's name; unique to this process.
    :param ownership_timeout: how long a lease lasts from its acquisition or last renewal.
    :param retry_policy: decides what happens to partitions that fail.
    :param claims: the source's claims; deleting a partition releases its claims.
    :param events: where events are logged and counted.
    """

    def __init__(
        self,
        view: SourceView,
        owner: str,
        *,
        ownership_timeout: timedelta,
        retry_policy: RetryPolicy,
        claims: Claims,
        events: PartitionEvents,
    ) -> None:
        super().__init__(
            view.store,
            view.source_identifier,
            owner,
            ownership_timeout=ownership_timeout,
            safety_margin=view.safety_margin,
            clock=view.clock,
        )
        self._view = view
        self._retry_policy = retry_policy
        self._claims = claims
        self._events = events

    # Acquisition

    @override
    def acquire(self, limit: int, *, otherwise: Callable[[], object] | None = None) -> list[Partition]:
        """Lease up to `limit` available partitions: expired ones first, then CLOSED that are due, then UNASSIGNED.

        :param otherwise: called if no partition is available. If it returns something true, the acquisition is retried.
        :returns: the acquired partitions, possibly none; always none for a suspended source.
        """
        acquired = self._acquire(limit)
        if not acquired and otherwise is not None and otherwise():
            acquired = self._acquire(limit)
        if limit > 0 and not acquired:
            self._events.count(CoordinationMetric.NO_PARTITIONS_ACQUIRED)
        return acquired

    def _acquire(self, limit: int) -> list[Partition]:
        self._view.require_initialized()
        if limit <= 0 or self._view.suspension() is not None:
            return []
        acquired = super().acquire(limit)
        self._events.acquired(acquired)
        return acquired

    # Handover: `Balancer` decides which lease goes to which owner.

    def give_each(
        self, partition_keys: Sequence[str], to: str, *, unchanged: Sequence[Partition] = ()
    ) -> dict[str, Partition | Exception]:
        """Make another owner the holder of partitions, each in one write, so that no other owner can acquire it.

        :param to: the new owner, which adopts them with `adopt_each`. If it never does, the leases expire.
        :param unchanged: items that this decision depends on, as they were read.
        :returns: by key, the partition, which this owner no longer holds; `PartitionNotOwnedError` if another owner has
            it already; `PartitionUpdateError` if one of `unchanged` has changed, and nothing was written; or another
            error of `change_each`.
        """
        now = self._view.clock.now()

        def handed_over(partition: Partition) -> Partition:
            return partition.acquired(to, now + self.ownership_timeout, now).because(ChangeKind.HANDED_OVER)

        changes = [
            LeaseChange(partition_key=key, change=handed_over, requires_trust=False, unchanged=unchanged)
            for key in partition_keys
        ]
        results = dict(zip(partition_keys, self.change_each(changes), strict=True))
        for key in (key for key, result in results.items() if not isinstance(result, Exception)):
            self._events.count(CoordinationMetric.HANDOVERS_GIVEN)
            log.info(
                "partition handed over: source=%s partition=%s owner=%s new_owner=%s",
                self._view.source, key, self.owner, to,
            )  # fmt: skip
        return results

    @override
    def adopt_each(self, partition_keys: Sequence[str]) -> list[Partition]:
        """Start to hold partitions that their previous owners have handed over to this one.

        :returns: the partitions that are leased to this owner and were not held before.
        """
        new = [key for key in partition_keys if not self.holds(key)]
        adopted = super().adopt_each(new) if new else []
        self._events.acquired(adopted)
        return adopted

    @override
    def take_over(self, partition_key: str, owner: str) -> Partition | None:
        """Lease a partition that another owner should have handed over but did not; its next write is refused.

        :returns: the partition; None if that owner no longer holds it.
        """
        taken = super().take_over(partition_key, owner)
        if taken is not None:
            log.warning(
                "partition taken by force, because its owner did not hand it over: source=%s partition=%s owner=%s",
                self._view.source, partition_key, owner,
            )  # fmt: skip
            self._events.count(CoordinationMetric.HANDOVERS_FORCED)
            self._events.acquired([taken])
        return taken

    # Writes and renewal

    @override
    def change_each(self, changes: Sequence[LeaseChange], *, cheaply: bool = False) -> list[Partition | Exception]:
        self._view.require_initialized()
        results = super().change_each(changes, cheaply=cheaply)
        for change, result in zip(changes, results, strict=True):
            if isinstance(result, Exception):
                self._events.note_error(result, change.errors)
        return results

    @override
    def refresh_each(self, partition_keys: Sequence[str]) -> dict[str, Partition | Exception]:
        self._view.require_initialized()
        results = super().refresh_each(partition_keys)
        for result in results.values():
            if isinstance(result, Exception):
                self._events.note_error(result)
        return results

    @override
    def renew(self, partition_key: str) -> Partition:
        renewed = super().renew(partition_key)
        self._events.count(CoordinationMetric.LEASES_RENEWED)
        return renewed

    @override
    def renew_due(self) -> tuple[list[str], list[str]]:
        renewed, lost = super().renew_due()
        self._events.count(CoordinationMetric.LEASES_RENEWED, len(renewed))
        return renewed, lost

    # Partitions that another owner may hold

    def current(self, partition_key: str) -> Partition | None:
        """Return a partition: as this owner last wrote it if it holds the lease, else as it is stored now."""
        held = self.find(partition_key)
        return held if held is not None else self._view.get(partition_key)

    def remove(self, seen: Partition) -> bool:
        """Delete a completed partition; return whether it was deleted.

        :param seen: the COMPLETED partition as it was read. If it has changed since, it is not deleted.
        """
        self._view.require_initialized()
        try:
            self._store.delete(seen)
        except PartitionUpdateError:
            return False
        self._events.count(CoordinationMetric.PARTITIONS_DELETED)
        log.info("partition removed: source=%s partition=%s", self._view.source, seen.partition_key)
        return True

    # Progress

    def save_progress(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        """Write the partition's state and renew its lease.

        :raises PartitionNotOwnedError: if the lease is lost or no longer trusted.
        :raises ProgressChangedError: if an earlier write succeeded without a response; the lease is still held.
        :raises ProgressError: if the stored state is unreadable, or the new one is too large or not JSON.
        """
        return self._save(partition_key, lambda p: self.renewed(p.with_progress(progress)))

    def change_progress_each(
        self, changes: Mapping[str, Callable[[Partition], Mapping[str, Any]]]
    ) -> dict[str, Partition | Exception]:
        """Compute and write new states of partitions in few requests, and renew their leases, even expired ones.

        :param changes: by key, a function that returns the new state of the stored partition; it may raise to refuse.
        :returns: by key, the partition as written, or its error: see `Leases.change_each`.
        """
        return self._save_each(
            {key: partial(self._with_changed, change) for key, change in changes.items()}, trusted=False
        )

    def _with_changed(self, change: Callable[[Partition], Mapping[str, Any]], partition: Partition) -> Partition:
        return self.renewed(partition.with_progress(change(partition)))

    def checkpoint(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        """Write a state that records a delivery: as `save_progress`, and reset the failures of the partition.

        :raises PartitionNotOwnedError: as `save_progress`, which lists the other errors.
        """
        return self._save(partition_key, lambda p: self.renewed(p.with_progress(progress)).recovered())

    def checkpoint_each(self, progress: Mapping[str, Mapping[str, Any]]) -> dict[str, Partition | Exception]:
        """Write states as `checkpoint` does, at the cost of renewals.

        :param progress: the new states, by key.
        :returns: by key, the partition as written, or its error: see `Leases.change_each`.
        """

        def changed(state: Mapping[str, Any], partition: Partition) -> Partition:
            return self.renewed(partition.with_progress(state)).recovered()

        return self._save_each({key: partial(changed, state) for key, state in progress.items()}, cheaply=True)

    # End of a lease

    def await_acknowledgment(self, partition_key: str, timeout: timedelta) -> Partition:
        """Keep the partition leased while its acknowledgments are pending, without an owner that works on it.

        No other owner acquires it until then. The end of its last pending acknowledgment set releases it earlier.

        :param timeout: how long from now; a lease that lasts longer is not changed.
        :returns: the partition, which this owner no longer holds.
        :raises PartitionNotOwnedError: if the lease is lost or no longer trusted.
        :raises ProgressChangedError: if the stored progress differs from the progress that this owner knows: the
            batches may have been acknowledged; the lease is still held.
        """
        now = self._view.clock.now()
        known = self.held.get(partition_key)

        def awaiting(partition: Partition) -> Partition:
            if known is not None and partition.progress != known.progress:
                raise ProgressChangedError(
                    f"partition {partition_key!r}: its progress changed before {self.owner} left it to wait; check "
                    "again whether acknowledgments are pending"
                )
            return partition.awaiting(now + timeout, now)

        written = self.change(partition_key, awaiting)
        log.info(
            "partition waits for acknowledgments until %s: source=%s partition=%s owner=%s",
            written.ownership_timeout, self._view.source, partition_key, self.owner,
        )  # fmt: skip
        return written

    def complete(
        self,
        partition_key: str,
        progress: Mapping[str, Any] | None = None,
        *,
        create: Mapping[str, Mapping[str, Any]] | None = None,
        unchanged: Sequence[Partition] = (),
    ) -> None:
        """Complete the partition and, in the same transaction, create those that follow it.

        :param progress: its last state; None keeps the current one.
        :param create: the initial progress of each partition to create, by key; existing partitions are not changed.
        :param unchanged: other partitions that this decision depends on, as they were read.
        :raises PartitionNotOwnedError: if the lease is lost or no longer trusted.
        :raises PartitionUpdateError: if one of `unchanged` has changed; nothing is written then. Decide again.
        """
        now = self._view.clock.now()
        self.change(
            partition_key,
            lambda p: (p if progress is None else p.with_progress(progress)).recovered().completed(now),
            create=[self._view.new(key, first) for key, first in (create or {}).items()],
            unchanged=unchanged,
            errors=CoordinationMetric.COMPLETE_UPDATE_ERRORS,
        )
        self._events.completed(partition_key, list(create or ()))

    def close(
        self,
        partition_key: str,
        reopen_after: timedelta,
        *,
        max_closed_count: int | None = None,
        progress: Mapping[str, Any] | None = None,
    ) -> Partition:
        """Close the partition, whose data so far is delivered, until later; its progress is kept.

        :param reopen_after: how long until it can be acquired again.
        :param max_closed_count: the number of closings after which the partition is completed instead; None for no
            limit. For partitions that fail there is `fail`, which never completes one.
        :param progress: its state; None keeps the current one.
        :returns: the partition, CLOSED or COMPLETED.
        :raises PartitionNotOwnedError: if the lease is lost or no longer trusted.
        """
        now = self._view.clock.now()

        def finishes(partition: Partition) -> bool:
            return max_closed_count is not None and partition.closed_count + 1 >= max_closed_count

        def closed(partition: Partition) -> Partition:
            known = partition if progress is None else partition.with_progress(progress)
            reopening = known.closed(now + reopen_after)
            return reopening.completed(now).because(ChangeKind.COMPLETED) if finishes(partition) else reopening

        held = self.held.get(partition_key)
        completes = held is not None and finishes(held)
        errors = CoordinationMetric.COMPLETE_UPDATE_ERRORS if completes else CoordinationMetric.CLOSE_UPDATE_ERRORS
        written = self.change(partition_key, closed, errors=errors)
        if written.status is PartitionStatus.COMPLETED:
            self._events.count(CoordinationMetric.PARTITIONS_COMPLETED)
            log.info(
                "partition completed, because it was closed %d times: source=%s partition=%s",
                written.closed_count, self._view.source, partition_key,
            )  # fmt: skip
        else:
            self._events.closed(written)
        return written

    def give_up(
        self,
        partition_key: str,
        *,
        after: timedelta = timedelta(0),
        progress: Mapping[str, Any] | None = None,
    ) -> None:
        """Give the lease back.

        :param after: how long the partition stays unavailable.
        :param progress: a state that records a delivery, as for `checkpoint`; None keeps the current one.
        :raises PartitionNotOwnedError: if another owner has the lease already.
        """
        [written] = self.give_up_each({partition_key: progress}, after=after).values()
        if written is not None:
            raise written

    def give_up_each(
        self, progress: Mapping[str, Mapping[str, Any] | None], *, after: timedelta = timedelta(0)
    ) -> dict[str, Exception | None]:
        """Give leases back in few requests.

        :param progress: by key, a state as for `give_up`, or None.
        :param after: how long the partitions stay unavailable.
        :returns: by key, None, or the error: see `Leases.change_each`.
        """
        available_at = self._view.clock.now() + after

        def given_up(state: Mapping[str, Any] | None, partition: Partition) -> Partition:
            known = partition if state is None else partition.with_progress(state).recovered()
            return known.given_up(available_at)

        written = self._write_each({key: partial(given_up, state) for key, state in progress.items()}, trusted=False)
        ended = {key: found if isinstance(found, Exception) else None for key, found in written.items()}
        for key in (key for key, error in ended.items() if error is None):
            self._events.count(CoordinationMetric.PARTITIONS_GIVEN_UP)
            log.info("partition given up: source=%s partition=%s owner=%s", self._view.source, key, self.owner)
        return ended

    def fail(self, partition_key: str, error: str) -> Partition:
        """Give the partition back because work on it failed or its data was rejected; its progress is kept.

        The retry policy decides its status: available at once, CLOSED for a growing time, or parked.

        :param error: the reason, which is stored with the partition.
        :returns: the partition as written.
        :raises PartitionNotOwnedError: if another owner has the lease already.
        """
        written = self.change(partition_key, lambda p: self.failed(p, error), requires_trust=False)
        self._events.failed(written)
        return written

    def failed(self, partition: Partition, error: str) -> Partition:
        """Return a partition with one more failure; see `RetryPolicy.failed`."""
        return self._retry_policy.failed(partition, error, self._view.clock.now())

    def park(self, partition_key: str, error: str, progress: Mapping[str, Any]) -> Partition:
        """Park the partition until a user reopens it, because a retry cannot help.

        :param error: the reason, which is stored with the partition.
        :param progress: its state, with details.
        :returns: the partition as written.
        :raises PartitionNotOwnedError: if another owner has the lease already.
        """
        written = self.change(partition_key, lambda p: parked(p.with_progress(progress), error), requires_trust=False)
        self._events.failed(written)
        return written

    @override
    def delete(self, partition_key: str) -> bool:
        """Delete a held partition. It can be created again, and the names that it claims become free.

        :returns: whether this owner deleted it, and no other process did before; only then it is counted.
        :raises PartitionNotOwnedError: if the lease is lost or no longer trusted.
        """
        self._view.require_initialized()
        try:
            held = self.leased(partition_key)
            is_own = super().delete(partition_key)
        except Exception as error:
            self._events.note_error(error)
            raise
        self._claims.release_of(held)
        if not is_own:
            log.info(
                "partition was deleted by another process: source=%s partition=%s", self._view.source, partition_key
            )
            return False
        self._events.count(CoordinationMetric.PARTITIONS_DELETED)
        log.info("partition deleted: source=%s partition=%s owner=%s", self._view.source, partition_key, self.owner)
        return True

    def give_up_all(self) -> list[str]:
        """Give back every lease of this owner; return their keys. Leases that are already lost are skipped."""
        given_up: list[str] = []
        if not self.held:  # also before the coordinator was initialized
            return given_up
        for key, error in self.give_up_each(dict.fromkeys(self.held)).items():
            if error is None:
                given_up.append(key)
            elif isinstance(error, LOST):
                log.info("%s", error)
            else:
                raise error
        return given_up

    # Internal

    def _save(self, partition_key: str, change: Change) -> Partition:
        [written] = self._save_each({partition_key: change}).values()
        return result_or_raise(written)

    def _save_each(
        self, changes: Mapping[str, Change], *, trusted: bool = True, cheaply: bool = False
    ) -> dict[str, Partition | Exception]:
        written = self._write_each(
            changes, trusted=trusted, cheaply=cheaply, errors=CoordinationMetric.SAVE_STATE_UPDATE_ERRORS
        )
        saved = sum(not isinstance(found, Exception) for found in written.values())
        self._events.count(CoordinationMetric.PROGRESS_SAVED, saved)
        return written

    def _write_each(
        self,
        changes: Mapping[str, Change],
        *,
        trusted: bool,
        cheaply: bool = False,
        errors: CoordinationMetric | None = None,
    ) -> dict[str, Partition | Exception]:
        """Write changes of held partitions, by key, as `change_each` does."""
        wanted = [
            LeaseChange(partition_key=key, change=change, requires_trust=trusted, errors=errors)
            for key, change in changes.items()
        ]
        return dict(zip(changes, self.change_each(wanted, cheaply=cheaply), strict=True))
