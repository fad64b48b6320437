"""The coordinator: what one owner may do with the partitions of one source.

Differences from Data Prepper's coordinator, all deliberate: an owner is one process and not a host; nothing shortens
a lease; a refused write is never repeated with the value that was refused; a lost answer is told apart from a lost
lease; no partition is held while a supplier runs; failures are counted, and what was not delivered is never COMPLETED.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.claims import FAMILY as CLAIM_FAMILY
from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    NamesClaimedError,
    PartitionNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    ProgressChangedError,
    ProgressError,
    StoreUnavailableError,
    SupplierBusyError,
    UninitializedCoordinatorError,
)
from airflow_provider_coordination.coordination.history import FAMILY as HISTORY_FAMILY
from airflow_provider_coordination.coordination.history import History
from airflow_provider_coordination.coordination.leases import LOST, Change, Leases
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, Metrics, NoMetrics
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    UNFINISHED,
    ChangeKind,
    Partition,
    PartitionStatus,
    check_partition_key,
    new_partition,
    source_identifier,
)
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.coordination.storable import storable
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions, is_available
from airflow_provider_coordination.coordination.supplier import FAMILY as GLOBAL_STATE_FAMILY
from airflow_provider_coordination.coordination.supplier import (
    GLOBAL_STATE_KEY,
    GlobalState,
    Page,
    Supplier,
    Turn,
)
from airflow_provider_coordination.coordination.suspension import FAMILY as SUPERVISOR_FAMILY
from airflow_provider_coordination.coordination.suspension import Suspension, Suspensions
from airflow_provider_coordination.coordination.workers import FAMILY as WORKER_FAMILY
from airflow_provider_coordination.coordination.workers import Workers

log = logging.getLogger(__name__)

DEFAULT_OWNERSHIP_TIMEOUT = timedelta(seconds=60)
DEFAULT_SAFETY_MARGIN = timedelta(seconds=2)
MAX_LOOKS = 10
"""How often a supplier is run, where another source that shares its claims was faster, or its lease was lost."""


class SourceCoordinator:
    """Creates, leases and finishes the partitions of one source, on behalf of one owner.

    :param store: where the partitions are.
    :param source: the source's name; no `|`.
    :param owner: who acts, as made by `new_owner`; must be unique to this process.
    :param prefix: separates installations that share a store; None for none.
    :param ownership_timeout: how long a lease runs from its acquisition or last renewal.
    :param safety_margin: the owner stops trusting a lease this long before its end, and takes others' leases only
        this long after theirs; clocks of two machines may differ by up to this much. At most a quarter of
        `ownership_timeout`.
    :param retry_policy: what becomes of partitions that fail.
    :param metrics: where counts go.
    :param clock: where the time comes from.
    :raises ConfigurationError: if a name or a time is not usable.
    """

    def __init__(
        self,
        store: CoordinationStore,
        source: str,
        owner: str,
        *,
        prefix: str | None = None,
        ownership_timeout: timedelta = DEFAULT_OWNERSHIP_TIMEOUT,
        safety_margin: timedelta = DEFAULT_SAFETY_MARGIN,
        retry_policy: RetryPolicy | None = None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        if not owner:
            raise ConfigurationError(f"owner {owner!r} is not usable: give the name of one worker process")
        check_lease_times(ownership_timeout, safety_margin)
        self.store = store
        self.source = source
        self.owner = owner
        self.ownership_timeout = ownership_timeout
        self.source_identifier = source_identifier(source, prefix=prefix)
        self.safety_margin = safety_margin
        self._retry_policy = retry_policy or RetryPolicy()
        self._metrics = metrics or NoMetrics()
        self._tags = {"source": source, "store": store.kind}
        self.clock = clock or SystemClock()
        self._prefix = prefix
        self._leases = self._leases_of(self.source_identifier)
        self._global_state = self.family(GLOBAL_STATE_FAMILY)
        self.workers = Workers(
            store,
            self.family(WORKER_FAMILY),
            owner,
            self._leases_of(self.family(WORKER_FAMILY)),
            safety_margin=safety_margin,
            clock=self.clock,
        )
        self.claims = Claims(store, self.family(CLAIM_FAMILY), self.clock)
        self.history = History(store, self.family(HISTORY_FAMILY))
        self.suspensions = Suspensions(store, self.family(SUPERVISOR_FAMILY), self.clock)
        self._told_suspension: Suspension | None = None
        self._supplied_at = self.clock.monotonic()
        self._supplying = threading.Lock()
        self._initialized = False

    def initialize(self) -> None:
        """Make the store ready; needed once before anything else."""
        self.store.initialize()
        self._initialized = True

    def family(self, name: str) -> str:
        """Return the item family of this source that has this name, such as `ACKNOWLEDGMENT`."""
        return source_identifier(self.source, prefix=self._prefix, family=name)

    def supplier_state(self) -> Mapping[str, Any]:
        """Return what the source's supplier left the last time it ran; empty if it never did, or that is unreadable."""
        self._require_initialized()
        item = self.store.get(self._global_state, GLOBAL_STATE_KEY)
        return {} if item is None else item.progress

    def suspension(self) -> Suspension | None:
        """Return how the source is suspended, as of some seconds ago at most; None if it is not.

        While it is, nothing is acquired and no supplier runs; leases that are held can be finished as ever.
        """
        self._require_initialized()
        found = self.suspensions.recent()
        if found != self._told_suspension:
            self._told_suspension = found
            if found is None:
                log.warning("source goes on: source=%s owner=%s", self.source, self.owner)
            else:
                log.warning("source is %s: nothing is begun: source=%s owner=%s", found, self.source, self.owner)
        return found

    def share_claims(self, source: str) -> None:
        """Share the claims of another source, for good: no name that it has claimed belongs to a partition of this one.

        Nor does any that this one claims ever belong to a partition of the other. See `Claims.share`.

        :raises ConfigurationError: if this source has claims of its own, or shares those of a third one.
        """
        self._require_initialized()
        self.claims.share(source_identifier(source, prefix=self._prefix, family=CLAIM_FAMILY))

    # What there is

    def create_partitions(self, partitions: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Create partitions that do not exist yet, in the given order.

        :param partitions: the first progress of each, by partition key.
        :returns: the keys that were created; the others existed and are untouched.
        :raises ConfigurationError: if a key is not usable; nothing was created.
        """
        self._require_initialized()
        created = self.store.create([self.new(key, progress) for key, progress in partitions.items()])
        self._note_created(created)
        return created

    def get(self, partition_key: str) -> Partition | None:
        """Return the partition as the store holds it now, whoever owns it, or None."""
        self._require_initialized()
        return self.store.get(self.source_identifier, partition_key)

    def partitions(self, *statuses: PartitionStatus) -> Iterator[Partition]:
        """Yield the partitions of these statuses, of all by default, reading page by page."""
        self._require_initialized()
        return all_partitions(self.store, self.source_identifier, *statuses)

    def completed_since(self, instant: datetime) -> Iterator[Partition]:
        """Yield the partitions that were completed at an instant (aware) or later, in the order of their completion."""
        self._require_initialized()
        return all_partitions(self.store, self.source_identifier, PartitionStatus.COMPLETED, since=instant)

    def count_by_status(self) -> dict[PartitionStatus, int]:
        """Return how many partitions each status has, zeros included."""
        self._require_initialized()
        return self.store.count_by_status(self.source_identifier)

    # Leases of this owner

    @property
    def held(self) -> dict[str, Partition]:
        """The partitions leased to this owner, by key, each as last written."""
        return self._leases.held

    def owns(self, partition_key: str) -> bool:
        """Tell whether this owner may act for the partition right now, by its own monotonic clock alone."""
        return self._leases.owns(partition_key)

    def leased(self, partition_key: str) -> Partition:
        """Return a partition that is leased to this owner, as last written.

        :raises PartitionNotOwnedError: if it is not held.
        """
        return self._leases.leased(partition_key)

    def fencing_token(self, partition_key: str) -> int:
        """Return the version that this owner's acquisition wrote, or a later one: larger than any earlier owner had.

        :raises PartitionNotOwnedError: if the partition is not held.
        """
        return self._leases.fencing_token(partition_key)

    def acquire(self, limit: int) -> list[Partition]:
        """Lease up to `limit` available partitions: expired ones first, then CLOSED that are due, then UNASSIGNED.

        :returns: what was acquired, perhaps nothing; nothing of a suspended source.
        """
        acquired = self._acquire(limit)
        if limit > 0 and not acquired:
            self.count(CoordinationMetric.NO_PARTITIONS_ACQUIRED)
        return acquired

    def adopt(self, partition_key: str) -> Partition | None:
        """Begin to hold a partition that its former owner has handed over to this one.

        :returns: the partition; None if it is not this owner's.
        """
        if partition_key in self._leases.held or (adopted := self._leases.adopt(partition_key)) is None:
            return None
        self._note_acquired([adopted])
        return adopted

    def take_over(self, partition_key: str, owner: str) -> Partition | None:
        """Lease a partition that another owner should have handed over and did not; its next write is refused.

        :returns: the partition; None if that owner holds it no more.
        """
        taken = self._leases.take_over(partition_key, owner)
        if taken is not None:
            log.warning(
                "partition taken from its owner, which did not hand it over: source=%s partition=%s owner=%s",
                self.source, partition_key, owner,
            )  # fmt: skip
            self.count(CoordinationMetric.HANDOVERS_FORCED)
            self._note_acquired([taken])
        return taken

    def hand_over(self, partition_key: str, to: str, *, unchanged: Sequence[Partition] = ()) -> Partition:
        """Make another owner the holder of a partition, in one write: nobody else can acquire it in between.

        :param to: the new owner, which finds it by `adopt`; if it never does, the lease runs out.
        :param unchanged: what this rests on, as it was read.
        :returns: the partition, which this owner holds no more.
        :raises PartitionNotOwnedError: if somebody else has it already.
        :raises PartitionUpdateError: if one of `unchanged` has changed; nothing was written.
        """
        now = self.clock.now()
        with self._counting_errors():
            written = self._leases.change(
                partition_key,
                lambda p: p.acquired(to, now + self.ownership_timeout, now).because(ChangeKind.HANDED_OVER),
                needs_trust=False,
                unchanged=unchanged,
            )
        self.count(CoordinationMetric.HANDOVERS_GIVEN)
        log.info(
            "partition handed over: source=%s partition=%s owner=%s new_owner=%s",
            self.source, partition_key, self.owner, to,
        )  # fmt: skip
        return written

    def get_next_partition(
        self, supplier: Supplier | None = None, *, force_after: timedelta | None = None
    ) -> Partition | None:
        """Lease the next available partition; where there is none, let a supplier look for new ones first.

        The supplier runs only if no other worker is running it. No partition is held while it runs, so none is lost
        if it raises.

        :param supplier: finds new partitions; None to take only what there is.
        :param force_after: run the supplier although partitions may be available, if this worker has not asked for it
            for so long; None never does.
        :returns: the partition, or None if none is available.
        """
        due = force_after is not None and self.clock.monotonic() - self._supplied_at > force_after.total_seconds()
        if supplier and due:
            self.supply(supplier)
        acquired = self._acquire(1)
        if not acquired and supplier and not due and self.supply(supplier):
            acquired = self._acquire(1)
        if not acquired:
            self.count(CoordinationMetric.NO_PARTITIONS_ACQUIRED)
        return acquired[0] if acquired else None

    def save_progress(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        """Write the partition's state; renews the lease as well.

        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        :raises ProgressChangedError: if an earlier write went through without an answer; the lease is still held.
        :raises ProgressError: if the stored state is unreadable, or the new one too large or not JSON.
        """
        return self._save(partition_key, lambda p: self._leases.renewed(p.with_progress(progress)))

    def checkpoint(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        """Write a state that says that more is delivered: as `save_progress`, and its failures are forgotten.

        :raises PartitionNotOwnedError: as `save_progress`, and so the others.
        """
        return self._save(partition_key, lambda p: self._leases.renewed(p.with_progress(progress)).recovered())

    def renew(self, partition_key: str) -> Partition:
        """Extend the lease to a whole ownership timeout from now; never shortens it.

        Also revives a lease that ran out while nobody took it: the version proves that nobody did.

        :raises PartitionNotOwnedError: if somebody else took the partition.
        """
        with self._counting_errors():
            renewed = self._leases.renew(partition_key)
        self.count(CoordinationMetric.LEASES_RENEWED)
        return renewed

    def refresh(self, partition_key: str) -> Partition:
        """Read a partition that this owner holds anew: others may have acknowledged its batches.

        :raises PartitionNotOwnedError: if it is not this owner's any more.
        """
        with self._counting_errors():
            return self._leases.refresh(partition_key)

    def renew_due(self) -> None:
        """Renew every lease of which more than a third has passed; forget those that are lost."""
        renewed, lost = self._leases.renew_due()
        self.count(CoordinationMetric.LEASES_RENEWED, len(renewed))
        self.count(CoordinationMetric.PARTITION_NOT_OWNED_ERRORS, len(lost))

    def await_acknowledgment(self, partition_key: str, timeout: timedelta) -> Partition:
        """Leave the partition leased for as long as its acknowledgments may take, without an owner that works on it.

        Nobody else acquires it until then. The end of its last pending acknowledgment set gives it back earlier.

        :param timeout: from now; a lease that runs longer is left as it is.
        :returns: the partition, which this owner holds no more.
        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        :raises ProgressChangedError: if the stored progress is not the one that this owner knows: what it would wait
            for may have been acknowledged; the lease is still held.
        """
        now = self.clock.now()
        known = self.held.get(partition_key)

        def awaiting(partition: Partition) -> Partition:
            if known is not None and partition.progress != known.progress:
                raise ProgressChangedError(
                    f"partition {partition_key!r}: its progress changed before {self.owner} left it to wait; look "
                    "again whether there is anything to wait for"
                )
            return partition.awaiting(now + timeout, now)

        with self._counting_errors():
            written = self._leases.change(partition_key, awaiting)
        log.info(
            "partition waits for acknowledgments until %s: source=%s partition=%s owner=%s",
            written.ownership_timeout, self.source, partition_key, self.owner,
        )  # fmt: skip
        return written

    def recover(self) -> None:
        """Find out where this owner's leases stand after the store was away; what it lost is forgotten.

        Call it after a `StoreUnavailableError`, before new work: the write may have been made, and so may an
        acquisition. Work goes on from the progress that is stored then.
        """
        self.count(CoordinationMetric.PARTITION_NOT_OWNED_ERRORS, len(self._leases.recover()))

    def complete(
        self,
        partition_key: str,
        progress: Mapping[str, Any] | None = None,
        *,
        create: Mapping[str, Mapping[str, Any]] | None = None,
        unchanged: Sequence[Partition] = (),
    ) -> None:
        """Finish the partition and, in the same transaction, create those that follow it.

        :param progress: its last state; None leaves it as it is.
        :param create: the first progress of each partition to create, by key; existing ones are untouched.
        :param unchanged: other partitions that this decision rests on, as they were read.
        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        :raises PartitionUpdateError: if one of `unchanged` has changed; nothing was written, decide again.
        """
        now = self.clock.now()
        with self._counting_errors(CoordinationMetric.COMPLETE_UPDATE_ERRORS):
            self._leases.change(
                partition_key,
                lambda p: (p if progress is None else p.with_progress(progress)).recovered().completed(now),
                create=[self.new(key, first) for key, first in (create or {}).items()],
                unchanged=unchanged,
            )
        self.count(CoordinationMetric.PARTITIONS_COMPLETED)
        log.info("partition completed: source=%s partition=%s owner=%s", self.source, partition_key, self.owner)

    def close(
        self,
        partition_key: str,
        reopen_after: timedelta,
        *,
        max_closed_count: int | None = None,
        progress: Mapping[str, Any] | None = None,
    ) -> Partition:
        """Put the partition, whose data so far is delivered, aside; its progress is kept.

        :param reopen_after: when it can be acquired again.
        :param max_closed_count: the closing of this number finishes the partition instead; None for no end. For
            partitions that fail there is `fail`, which never finishes one.
        :param progress: its state; None leaves it as it is.
        :returns: the partition, CLOSED or COMPLETED.
        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        """
        now = self.clock.now()

        def finishes(partition: Partition) -> bool:
            return max_closed_count is not None and partition.closed_count + 1 >= max_closed_count

        def closed(partition: Partition) -> Partition:
            known = partition if progress is None else partition.with_progress(progress)
            put_aside = known.closed(now + reopen_after)
            return put_aside.completed(now).because(ChangeKind.COMPLETED) if finishes(partition) else put_aside

        held = self.held.get(partition_key)
        completes = held is not None and finishes(held)
        with self._counting_errors(
            CoordinationMetric.COMPLETE_UPDATE_ERRORS if completes else CoordinationMetric.CLOSE_UPDATE_ERRORS
        ):
            written = self._leases.change(partition_key, closed)
        if written.status is PartitionStatus.COMPLETED:
            self.count(CoordinationMetric.PARTITIONS_COMPLETED)
            log.info(
                "partition completed by its closing number %d: source=%s partition=%s",
                written.closed_count, self.source, partition_key,
            )  # fmt: skip
        else:
            self.note_closed(written)
        return written

    def give_up(self, partition_key: str, *, after: timedelta = timedelta(0)) -> None:
        """Give the lease back; the progress is kept.

        :param after: how long the partition stays unavailable.
        :raises PartitionNotOwnedError: if somebody else has it already.
        """
        available_at = self.clock.now() + after
        with self._counting_errors():
            self._leases.change(partition_key, lambda p: p.given_up(available_at), needs_trust=False)
        self.count(CoordinationMetric.PARTITIONS_GIVEN_UP)
        log.info("partition given up: source=%s partition=%s owner=%s", self.source, partition_key, self.owner)

    def fail(self, partition_key: str, error: str) -> Partition:
        """Give the partition back because working on it failed, or its data was rejected; its progress is kept.

        The retry policy says what becomes of it: available at once, CLOSED for a growing while, or parked.

        :param error: why; kept with the partition.
        :returns: the partition as it is now.
        :raises PartitionNotOwnedError: if somebody else has it already.
        """
        with self._counting_errors():
            written = self._leases.change(partition_key, lambda p: self.failed(p, error), needs_trust=False)
        self.note_failed(written)
        return written

    def park(self, partition_key: str, error: str, progress: Mapping[str, Any]) -> Partition:
        """Put the partition aside until a person reopens it: trying again cannot help.

        :param error: why; kept with the partition.
        :param progress: its state, which says more about it.
        :returns: the partition as it is now.
        :raises PartitionNotOwnedError: if somebody else has it already.
        """

        def parked(partition: Partition) -> Partition:
            return partition.with_progress(progress).failed(storable(error)).resting(PARKED_UNTIL)

        with self._counting_errors():
            written = self._leases.change(partition_key, parked, needs_trust=False)
        self.note_failed(written)
        return written

    def delete(self, partition_key: str) -> None:
        """Delete a partition that this owner holds: it can be created anew, and the names that it claims are new again.

        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        """
        with self._counting_errors():
            held = self._leases.leased(partition_key)
            self._leases.delete(partition_key)
        self.claims.release_of(held)
        self.count(CoordinationMetric.PARTITIONS_DELETED)
        log.info("partition deleted: source=%s partition=%s owner=%s", self.source, partition_key, self.owner)

    def give_up_all(self) -> list[str]:
        """Give back every lease of this owner; return the keys. Leases that are lost already are passed over."""
        given_up = []
        for key in self.held:
            try:
                self.give_up(key)
                given_up.append(key)
            except LOST as error:
                log.info("%s", error)
        return given_up

    def give_up_owner(self, owner: str) -> list[str]:
        """Give back every lease of another owner that is known to be dead; return the keys. It is a worker no more.

        So is its lease on the supplier, which is none of the keys. If the owner lives after all, its writes are refused
        from here on.
        """
        leased = self.partitions(PartitionStatus.ASSIGNED)
        given_up = [partition.partition_key for partition in leased if self._give_up_for(owner, partition)]
        supplying = self.store.get(self._global_state, GLOBAL_STATE_KEY)
        if supplying is not None:
            self._give_up_for(owner, supplying)
        self.count(CoordinationMetric.PARTITIONS_GIVEN_UP, len(given_up))
        self.workers.remove(owner)  # last: who notices that it is gone finds its partitions free
        return given_up

    # What time brings

    def reopen_due(self) -> list[str]:
        """Make every CLOSED partition available whose time has come; return the keys.

        A job that acquires would take them anyway; others see it only now. A partition keeps its place in the queue:
        it queues as of when it was to reopen.
        """
        reopened = []
        now = self.clock.now()
        for partition in self.partitions(PartitionStatus.CLOSED):
            if partition.priority > now:
                break
            try:
                self.store.transact(
                    update=[partition.given_up(partition.priority).because(ChangeKind.REOPENED, "reopened: due")]
                )
            except PartitionUpdateError:  # it was acquired, or reopened, by somebody else
                continue
            reopened.append(partition.partition_key)
            log.info("partition reopened: source=%s partition=%s", self.source, partition.partition_key)
        self.count(CoordinationMetric.PARTITIONS_REOPENED, len(reopened))
        return reopened

    def next_reopening(self) -> datetime | None:
        """Return when the next CLOSED partition reopens; None if none does, or only by a person's hand."""
        first = self.first(PartitionStatus.CLOSED)
        return first.priority if first is not None and not first.is_parked else None

    def is_available(self) -> bool:
        """Tell whether there is a partition that a worker could acquire now; none of a suspended source."""
        firsts = map(self.first, UNFINISHED)
        # Only where there is something is it worth a read whether it may be had.
        return any(first is not None and self.may_acquire(first) for first in firsts) and self.suspension() is None

    def first(self, status: PartitionStatus) -> Partition | None:
        """Return the partition that is first in the queue of a status; None if the queue is empty."""
        self._require_initialized()
        return next(iter(self.store.query(self.source_identifier, status, limit=1)), None)

    def may_acquire(self, partition: Partition) -> bool:
        """Tell whether a worker could acquire this partition now."""
        now = self.clock.now()
        return is_available(partition, now, expired_by=now - self.safety_margin)

    def available_at(self, partition: Partition) -> datetime:
        """Return from when on a worker could acquire this unfinished partition, if it stays as it is (aware)."""
        leased = partition.status is PartitionStatus.ASSIGNED
        return partition.priority + (self.safety_margin if leased else timedelta(0))

    # What ends with an acknowledgment set, whoever owns the partition

    def current(self, partition_key: str) -> Partition | None:
        """Return a partition as this owner last wrote it, if it holds it, or as the store holds it now."""
        held = self._leases.held.get(partition_key)
        return held if held is not None else self.get(partition_key)

    def settle(
        self,
        seen: Partition,
        change: Change,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
        needs_trust: bool = False,
    ) -> Partition:
        """Write a change of a partition, with other items of the same decision, in one transaction.

        Through the lease if this owner holds the partition; conditional on the version alone if not, since what is
        delivered is delivered, whoever says so.

        :param seen: the partition as `current` returned it.
        :param change: makes the new value; rests on nothing but the partition's progress and status.
        :param update: written if they are still the version that each carries.
        :param create: written if absent.
        :param unchanged: must still be as they were read.
        :param needs_trust: refuse where this owner does not hold the lease, or trusts it no more.
        :returns: the partition as written.
        :raises PartitionUpdateError: if one of them has changed; nothing was written, decide again.
        :raises PartitionNotOwnedError: if this owner held the lease, and has lost it.
        """
        key = seen.partition_key
        if needs_trust or key in self._leases.held:
            with self._counting_errors():
                return self._leases.change(
                    key, change, needs_trust=needs_trust, update=update, create=create, unchanged=unchanged
                )
        return self.store.transact(update=[change(seen), *update], create=create, unchanged=unchanged)[0]

    def failed(self, partition: Partition, error: str) -> Partition:
        """Return a partition with one more failure and what the retry policy makes of it: available, resting, parked.

        :param error: why it failed; kept with the partition.
        """
        now = self.clock.now()
        counted = partition.failed(storable(error))
        delay = self._retry_policy.delay_after(counted.attempts)
        if delay == timedelta(0):
            return counted.given_up(now)
        return counted.resting(PARKED_UNTIL if delay is None else now + delay)

    def parked(self, partition: Partition, reason: str) -> Partition:
        """Return a partition put aside until a person, or what put it aside, reopens it.

        :param reason: why; kept with the partition as its last error.
        """
        return partition.failed(storable(reason)).resting(PARKED_UNTIL)

    def remove(self, seen: Partition) -> bool:
        """Delete a partition that is finished for good, as it was read; tell whether that was done.

        :param seen: as it was read: COMPLETED. If it has changed since, it stays.
        """
        self._require_initialized()
        try:
            self.store.delete(seen)
        except PartitionUpdateError:
            return False
        self.count(CoordinationMetric.PARTITIONS_DELETED)
        log.info("partition removed: source=%s partition=%s", self.source, seen.partition_key)
        return True

    def renewed(self, partition: Partition) -> Partition:
        """Return a partition with its lease running for an ownership timeout from now, or longer where it did."""
        return self._leases.renewed(partition)

    def new(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        """Return a partition of this source as it is created.

        :raises ConfigurationError: if the key is not usable.
        :raises ProgressError: if the progress cannot be stored.
        """
        check_partition_key(partition_key)
        return new_partition(self.source_identifier, partition_key, self.clock.now()).with_progress(progress)

    def note_failed(self, partition: Partition) -> None:
        """Count and log a failure that was written."""
        self.count(CoordinationMetric.ATTEMPTS_FAILED)
        self.count(CoordinationMetric.PARTITIONS_GIVEN_UP)
        becomes = "is available again"
        if partition.is_parked:
            self.count(CoordinationMetric.PARTITIONS_PARKED)
            becomes = "is parked until a person reopens it"
        elif partition.status is PartitionStatus.CLOSED:
            self.count(CoordinationMetric.PARTITIONS_CLOSED)
            becomes = f"rests until {partition.reopen_at:%Y-%m-%dT%H:%M:%SZ}"
        log.error(
            "partition failed, attempt %d, and %s: source=%s partition=%s owner=%s: %s",
            partition.attempts, becomes, self.source, partition.partition_key, self.owner, partition.last_error,
        )  # fmt: skip

    def note_closed(self, partition: Partition) -> None:
        """Count and log a closing that was written."""
        self.count(CoordinationMetric.PARTITIONS_CLOSED)
        log.info(
            "partition closed: source=%s partition=%s reopen_at=%s",
            self.source, partition.partition_key, partition.reopen_at,
        )  # fmt: skip

    def note_completed(self, partition_key: str, created: Sequence[str]) -> None:
        """Count and log a completion that was written.

        :param created: the partitions that follow it.
        """
        self.count(CoordinationMetric.PARTITIONS_COMPLETED)
        log.info(
            "partition completed: source=%s partition=%s owner=%s followed by=%s",
            self.source, partition_key, self.owner, ", ".join(created) or "none",
        )  # fmt: skip

    def count(self, metric: StrEnum, by: int = 1) -> None:
        """Count that something happened to this source so many times."""
        if by:
            self._metrics.count(metric, self._tags, by)

    def gauge(self, metric: str, value: float) -> None:
        """Note how much of something this source has now."""
        self._metrics.gauge(metric, value, self._tags)

    # The supplier

    def supply(
        self,
        supplier: Supplier,
        *,
        patience: timedelta | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> list[str] | None:
        """Run a supplier, if no other worker is running it, and create what it finds, page by page.

        The lease on the global state is renewed while the supplier runs, whatever it does, and given back in all
        cases. What an earlier try of this worker's task holds of it is taken over. If the lease is lost, or the source
        is suspended during the run, the run ends before its next page; what was created remains.

        :param supplier: finds new partitions.
        :param patience: run it to its end, whoever else is running it: another worker is waited for as long as its
            lease may last, and for this long if it keeps its lease; a run whose lease is lost is repeated. None leaves
            the supplier to the other worker.
        :param sleep: waits that many seconds.
        :returns: the keys that were created; None if the source is suspended, or, without patience, another worker is
            running a supplier.
        :raises SupplierBusyError: with patience, if another worker keeps its lease for longer.
        :raises PartitionNotOwnedError: with patience, if the lease is lost in run after run.
        :raises ProgressError: if the stored global state is unreadable: the supplier does not run.
        :raises ConfigurationError: if the supplier yields names, again and again, that are claimed.
        :raises Exception: whatever the supplier raises.
        """
        self._require_initialized()
        if self.suspension() is not None:
            return None
        if not self._supplying.acquire(timeout=0 if patience is None else patience.total_seconds()):
            if patience is not None:
                raise SupplierBusyError(f"source {self.source!r}: another thread of {self.owner} runs the supplier")
            log.info("supplier left to another thread: source=%s owner=%s", self.source, self.owner)
            return None
        try:
            return self._supply(supplier, None if patience is None else self._turn(patience, sleep))
        finally:
            self._supplying.release()

    # Inside

    def _supply(self, supplier: Supplier, turn: Turn | None) -> list[str] | None:
        created: list[str] = []
        runs_lost = 0
        while self.suspension() is None:
            try:
                holder = self._run_supplier(supplier, created)
            except LOST as error:
                log.warning("supplier ends early: source=%s owner=%s: %s", self.source, self.owner, error)
                if turn is None:
                    return created
                runs_lost += 1
                if runs_lost == MAX_LOOKS:
                    raise
                continue
            if holder is None:
                return created
            if turn is None:
                log.info(
                    "supplier left to another worker: source=%s owner=%s holder=%s",
                    self.source, self.owner, holder.owner,
                )  # fmt: skip
                return None
            turn.wait(holder)
        return created or None

    def _run_supplier(self, supplier: Supplier, created: list[str]) -> Partition | None:
        """Run a supplier, adding the keys that were created; return the global state as another worker holds it."""
        self._supplied_at = self.clock.monotonic()
        leases = self._leases_of(self._global_state)
        state = GlobalState(self.store, leases, self._global_state, self.owner, self.clock)
        try:
            if (held := state.acquire()) is not None:
                return held
            log.info("supplier starts: source=%s owner=%s", self.source, self.owner)
            try:
                self._create_pages(supplier, state, created)
            except BaseException:
                self.count(CoordinationMetric.SUPPLIER_FAILURES)
                raise
        finally:
            state.release()
        self.count(CoordinationMetric.PARTITION_CREATION_SUPPLIER_INVOCATIONS)
        log.info("supplier ends: source=%s partitions created=%d", self.source, len(created))
        return None

    def _turn(self, patience: timedelta, sleep: Callable[[float], None]) -> Turn:
        return Turn(
            self.owner,
            self.source,
            patience=patience,
            safety_margin=self.safety_margin,
            clock=self.clock,
            sleep=sleep,
        )

    def _create_pages(self, supplier: Supplier, state: GlobalState, created: list[str]) -> None:
        """Create what a supplier finds, adding the keys to `created`; run it again where names were taken meanwhile."""
        for look in range(MAX_LOOKS):
            try:
                with closing(state.pages(supplier)) as pages:
                    for page in pages:
                        if self.suspension() is not None:
                            log.warning("supplier ends early: source=%s owner=%s", self.source, self.owner)
                            return
                        created.extend(self._create(page, state))  # what comes before an error remains, and counts
                return
            except NamesClaimedError as error:
                if look == MAX_LOOKS - 1:
                    raise ConfigurationError(f"{error}; it was run {MAX_LOOKS} times") from error
                log.info("supplier looks again: source=%s: %s", self.source, error)

    def _create(self, page: Page, state: GlobalState) -> Iterator[str]:
        """Create a page's partitions, those with claims together with these; yield what was created."""
        if strangers := page.claims.keys() - page.partitions.keys():
            raise ConfigurationError(f"page: names are claimed for {min(strangers)!r}, which is none of its partitions")
        plain = [self.new(key, progress) for key, progress in page.partitions.items() if not page.claims.get(key)]
        for created in state.create_absent(plain):
            self._note_created([created.partition_key])
            yield created.partition_key
        claimed = ((key, names) for key, names in page.claims.items() if names)
        for created in state.create_all((self.new(k, page.partitions[k]), self.claims.of(k, n)) for k, n in claimed):
            self._note_created([created.partition_key])
            yield created.partition_key

    def _give_up_for(self, owner: str, found: Partition) -> bool:
        """Give back a lease for its owner, which is dead; tell whether that owner still held it."""
        current: Partition | None = found
        while current is not None and current.owner == owner:
            try:
                given_up = current.given_up(self.clock.now()).because(ChangeKind.GIVEN_UP, "given up: its task ended")
                self.store.transact(update=[given_up])
            except PartitionUpdateError:  # it was renewed, or taken, in between
                current = self.store.get(found.source_identifier, found.partition_key)
                continue
            log.info(
                "%s given up for its owner: source=%s partition=%s owner=%s",
                "partition" if found.source_identifier == self.source_identifier else "supplier's lease",
                self.source, found.partition_key, owner,
            )  # fmt: skip
            return True
        return False

    def _acquire(self, limit: int) -> list[Partition]:
        self._require_initialized()
        if limit <= 0 or self.suspension() is not None:
            return []
        acquired = self._leases.acquire(limit)
        self._note_acquired(acquired)
        return acquired

    def _note_created(self, created: Sequence[str]) -> None:
        for key in created:
            log.info("partition created: source=%s partition=%s", self.source, key)
        self.count(CoordinationMetric.PARTITIONS_CREATED, len(created))

    def _note_acquired(self, acquired: Sequence[Partition]) -> None:
        for partition in acquired:
            log.info(
                "partition acquired: source=%s partition=%s owner=%s fencing_token=%d",
                self.source, partition.partition_key, self.owner, partition.version,
            )  # fmt: skip
        self.count(CoordinationMetric.PARTITIONS_ACQUIRED, len(acquired))

    def _save(self, partition_key: str, change: Change) -> Partition:
        with self._counting_errors(CoordinationMetric.SAVE_STATE_UPDATE_ERRORS):
            written = self._leases.change(partition_key, change)
        self.count(CoordinationMetric.PROGRESS_SAVED)
        return written

    @contextmanager
    def _counting_errors(self, other: CoordinationMetric | None = None) -> Iterator[None]:
        """Count what a write raises: a lost lease as such, anything else as `other`."""
        self._require_initialized()
        try:
            yield
        except PartitionNotFoundError:
            self.count(CoordinationMetric.PARTITION_NOT_FOUND_ERRORS)
            raise
        except PartitionNotOwnedError:
            self.count(CoordinationMetric.PARTITION_NOT_OWNED_ERRORS)
            raise
        except (PartitionUpdateError, ProgressChangedError, ProgressError, StoreUnavailableError):
            if other is not None:
                self.count(other)
            raise

    def _leases_of(self, family: str) -> Leases:
        return Leases(
            self.store,
            family,
            self.owner,
            ownership_timeout=self.ownership_timeout,
            safety_margin=self.safety_margin,
            clock=self.clock,
        )

    def _require_initialized(self) -> None:
        if not self._initialized:
            raise UninitializedCoordinatorError(f"source {self.source!r}: call initialize() first")


def check_lease_times(ownership_timeout: timedelta, safety_margin: timedelta) -> None:
    """Check that a lease of this length leaves room for the margin on both sides.

    :raises ConfigurationError: if it does not.
    """
    if safety_margin < timedelta(0) or ownership_timeout < 4 * safety_margin or ownership_timeout <= timedelta(0):
        raise ConfigurationError(
            f"ownership_timeout {ownership_timeout.total_seconds():g} s with safety_margin "
            f"{safety_margin.total_seconds():g} s is not usable: make the timeout positive and "
            "at least four times the margin"
        )
