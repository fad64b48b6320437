"""The operations of one owner on its leases of a source's partitions: acquire them, work on them, end them.

Every write is conditional on the version that this owner wrote last; see `Leases`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.errors import ProgressChangedError
from airflow_provider_coordination.coordination.leases import LOST, Change, LeaseChange, Leases
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import ChangeKind, Partition, PartitionStatus
from airflow_provider_coordination.coordination.partition_events import PartitionEvents
from airflow_provider_coordination.coordination.settlement import PartitionSettlement
from airflow_provider_coordination.coordination.source_view import SourceView

log = logging.getLogger(__name__)


class PartitionLeases:
    """The leases of one owner on the partitions of one source. Safe to use from several threads.

    :param view: the view of the source.
    :param leases: the owner's leases in the family of the source's partitions.
    :param settlement: decides what happens to a partition that fails.
    :param claims: the source's claims; deleting a partition releases its claims.
    :param events: where events are logged and counted.
    """

    def __init__(
        self, view: SourceView, leases: Leases, settlement: PartitionSettlement, claims: Claims, events: PartitionEvents
    ) -> None:
        self.owner = leases.owner
        self.ownership_timeout = leases.ownership_timeout
        self._view = view
        self._leases = leases
        self._settlement = settlement
        self._claims = claims
        self._events = events

    # Held leases

    @property
    def held(self) -> dict[str, Partition]:
        """The partitions leased to this owner, by key, each as last written."""
        return self._leases.held

    def holds(self, partition_key: str) -> bool:
        """Return whether a partition is leased to this owner."""
        return self._leases.holds(partition_key)

    def find(self, partition_key: str) -> Partition | None:
        """Return a partition that is leased to this owner, as last written; None if it is not."""
        return self._leases.find(partition_key)

    def owns(self, partition_key: str) -> bool:
        """Return whether this owner may act for the partition now, judged by its own monotonic clock only."""
        return self._leases.owns(partition_key)

    def leased(self, partition_key: str) -> Partition:
        """Return a partition that is leased to this owner, as last written.

        :raises PartitionNotOwnedError: if it is not held.
        """
        return self._leases.leased(partition_key)

    def fencing_token(self, partition_key: str) -> int:
        """Return the version that this owner's acquisition wrote, or a later one; larger than any previous owner's.

        :raises PartitionNotOwnedError: if the partition is not held.
        """
        return self._leases.fencing_token(partition_key)

    # Acquisition

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

    # Renewal

    def renew(self, partition_key: str) -> Partition:
        """Extend the lease to one ownership timeout from now; never shorten it.

        This also revives an expired lease that no other owner has taken; the version proves that.

        :raises PartitionNotOwnedError: if another owner took the partition.
        """
        with self._counting_errors():
            renewed = self._leases.renew(partition_key)
        self._events.count(CoordinationMetric.LEASES_RENEWED)
        return renewed

    def refresh_each(self, partition_keys: Sequence[str]) -> dict[str, Partition | Exception]:
        """Read held partitions again: acknowledgments may have changed their progress.

        :returns: see `Leases.refresh_each`.
        """
        self._view.require_initialized()
        refreshed = self._leases.refresh_each(partition_keys)
        for result in refreshed.values():
            if isinstance(result, Exception):
                with suppress(type(result)), self._counting_errors():
                    raise result
        return refreshed

    def renew_due(self) -> None:
        """Renew every lease of which more than a third has passed; forget those that are lost."""
        renewed, lost = self._leases.renew_due()
        self._events.count(CoordinationMetric.LEASES_RENEWED, len(renewed))
        self._events.count(CoordinationMetric.PARTITION_NOT_OWNED_ERRORS, len(lost))

    def recover(self) -> None:
        """Check this owner's leases after the store was unavailable, and forget those that it lost.

        Call it after a `StoreUnavailableError`, before new work: the write, or an acquisition, may have succeeded.
        Work then continues from the stored progress.
        """
        self._events.count(CoordinationMetric.PARTITION_NOT_OWNED_ERRORS, len(self._leases.recover()))

    # Progress

    def save_progress(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        """Write the partition's state and renew its lease.

        :raises PartitionNotOwnedError: if the lease is lost or no longer trusted.
        :raises ProgressChangedError: if an earlier write succeeded without a response; the lease is still held.
        :raises ProgressError: if the stored state is unreadable, or the new one is too large or not JSON.
        """
        return self._save(partition_key, lambda p: self._leases.renewed(p.with_progress(progress)))

    def change_progress_each(
        self, changes: Mapping[str, Callable[[Partition], Mapping[str, Any]]]
    ) -> dict[str, Partition | Exception]:
        """Compute and write new states of partitions in few requests, and renew their leases, even expired ones.

        :param changes: by key, a function that returns the new state of the stored partition; it may raise to refuse.
        :returns: by key, the partition as written, or its error: see `Leases.change_each`.
        """
        return self._save_each(
            {key: partial(self._with_changed, change) for key, change in changes.items()}, requires_trust=False
        )

    def _with_changed(self, change: Callable[[Partition], Mapping[str, Any]], partition: Partition) -> Partition:
        return self._leases.renewed(partition.with_progress(change(partition)))

    def checkpoint(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        """Write a state that records a delivery: as `save_progress`, and reset the failures of the partition.

        :raises PartitionNotOwnedError: as `save_progress`, which lists the other errors.
        """
        return self._save(partition_key, lambda p: self._leases.renewed(p.with_progress(progress)).recovered())

    def checkpoint_each(self, progress: Mapping[str, Mapping[str, Any]]) -> dict[str, Partition | Exception]:
        """Write states as `checkpoint` does, at the cost of renewals.

        :param progress: the new states, by key.
        :returns: by key, the partition as written, or its error: see `Leases.change_each`.
        """

        def changed(state: Mapping[str, Any], partition: Partition) -> Partition:
            return self._leases.renewed(partition.with_progress(state)).recovered()

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

        with self._counting_errors():
            written = self._leases.change(partition_key, awaiting)
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
        with self._counting_errors(CoordinationMetric.COMPLETE_UPDATE_ERRORS):
            self._leases.change(
                partition_key,
                lambda p: (p if progress is None else p.with_progress(progress)).recovered().completed(now),
                create=[self._view.new(key, first) for key, first in (create or {}).items()],
                unchanged=unchanged,
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
        with self._counting_errors(
            CoordinationMetric.COMPLETE_UPDATE_ERRORS if completes else CoordinationMetric.CLOSE_UPDATE_ERRORS
        ):
            written = self._leases.change(partition_key, closed)
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

        changes = {key: partial(given_up, state) for key, state in progress.items()}
        written = self._change_each(changes, requires_trust=False)
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
        with self._counting_errors():
            written = self._leases.change(
                partition_key, lambda p: self._settlement.failed(p, error), requires_trust=False
            )
        self._events.failed(written)
        return written

    def park(self, partition_key: str, error: str, progress: Mapping[str, Any]) -> Partition:
        """Park the partition until a user reopens it, because a retry cannot help.

        :param error: the reason, which is stored with the partition.
        :param progress: its state, with details.
        :returns: the partition as written.
        :raises PartitionNotOwnedError: if another owner has the lease already.
        """

        def parked(partition: Partition) -> Partition:
            return self._settlement.parked(partition.with_progress(progress), error)

        with self._counting_errors():
            written = self._leases.change(partition_key, parked, requires_trust=False)
        self._events.failed(written)
        return written

    def delete(self, partition_key: str) -> None:
        """Delete a held partition. It can be created again, and the names that it claims become free.

        It counts as deleted only if this owner deleted it, and no other process did before.

        :raises PartitionNotOwnedError: if the lease is lost or no longer trusted.
        """
        with self._counting_errors():
            held = self._leases.leased(partition_key)
            is_own = self._leases.delete(partition_key)
        self._claims.release_of(held)
        if not is_own:
            log.info(
                "partition was deleted by another process: source=%s partition=%s", self._view.source, partition_key
            )
            return
        self._events.count(CoordinationMetric.PARTITIONS_DELETED)
        log.info("partition deleted: source=%s partition=%s owner=%s", self._view.source, partition_key, self.owner)

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

    def _acquire(self, limit: int) -> list[Partition]:
        self._view.require_initialized()
        if limit <= 0 or self._view.suspension() is not None:
            return []
        acquired = self._leases.acquire(limit)
        self._events.acquired(acquired)
        return acquired

    def _save(self, partition_key: str, change: Change) -> Partition:
        with self._counting_errors(CoordinationMetric.SAVE_STATE_UPDATE_ERRORS):
            written = self._leases.change(partition_key, change)
        self._events.count(CoordinationMetric.PROGRESS_SAVED)
        return written

    def _save_each(
        self, changes: Mapping[str, Change], *, requires_trust: bool = True, cheaply: bool = False
    ) -> dict[str, Partition | Exception]:
        written = self._change_each(
            changes, CoordinationMetric.SAVE_STATE_UPDATE_ERRORS, requires_trust=requires_trust, cheaply=cheaply
        )
        saved = sum(not isinstance(found, Exception) for found in written.values())
        self._events.count(CoordinationMetric.PROGRESS_SAVED, saved)
        return written

    def _change_each(
        self,
        changes: Mapping[str, Change],
        other: CoordinationMetric | None = None,
        *,
        requires_trust: bool,
        cheaply: bool = False,
    ) -> dict[str, Partition | Exception]:
        """Write changes of held partitions; count and return their errors."""
        self._view.require_initialized()
        wanted = [
            LeaseChange(partition_key=key, change=change, requires_trust=requires_trust)
            for key, change in changes.items()
        ]
        written = dict(zip(changes, self._leases.change_each(wanted, cheaply=cheaply), strict=True))
        for result in written.values():
            if isinstance(result, Exception):
                with suppress(type(result)), self._counting_errors(other):
                    raise result
        return written

    @contextmanager
    def _counting_errors(self, other: CoordinationMetric | None = None) -> Iterator[None]:
        self._view.require_initialized()
        with self._events.counting_errors(other):
            yield
