"""The leases that one owner holds in one item family, and the only code that writes to them for the owner.

Every write is conditional on the version that this owner wrote last. A refused write does not always mean a lost
lease: the store may have done an earlier write of this owner whose response was lost, so that is checked first. Safe
to use from several threads: the renewal thread writes the same partitions as the thread that works.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from airflow_provider_coordination.coordination.errors import (
    PartitionNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    ProgressChangedError,
    StoreUnavailableError,
    result_or_raise,
)
from airflow_provider_coordination.coordination.held_leases import HeldLease, HeldLeases, RequestTime
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import (
    Acquisition,
    Outcome,
    Transaction,
    all_partitions,
    is_available,
    transact_each,
)

log = logging.getLogger(__name__)

LOST = (PartitionNotOwnedError, PartitionNotFoundError, ProgressChangedError)
"""The errors of a write after which the current work must be dropped. They are expected and do not end a job."""

MAX_TRIES = 10
"""How often a change is retried. Acknowledgments write to a held partition as well."""

BATCH_SIZE = 50
"""The number of partitions whose changes are written before another thread may run, so that renewals do not wait
longer. With one more item for each partition, they fill one DynamoDB transaction."""

Change = Callable[[Partition], Partition]


@dataclass(frozen=True, kw_only=True)
class LeaseChange:
    """A change of a partition, with the other items of the same transaction.

    :param partition_key: the partition.
    :param change: returns the new value, given the value that was written last. It depends only on the partition's
        progress and status.
    :param requires_trust: whether to refuse the change, without a request to the store, if the lease has ended by the
        owner's own clock.
    :param seen: the partition as it was read, for a change that needs no lease: if this owner does not hold one, it is
        written on condition that the version is still the same. None if the change needs a lease.
    :param update: other items to update, if the stored version of each one matches its `version`.
    :param create: items to create unless they exist.
    :param new: items to create, which must not exist.
    :param unchanged: items that must not have changed since they were read.
    :param errors: the metric that counts an error of the change, unless the lease is lost.
    """

    partition_key: str
    change: Change
    requires_trust: bool = True
    seen: Partition | None = None
    update: Sequence[Partition] = ()
    create: Sequence[Partition] = ()
    new: Sequence[Partition] = ()
    unchanged: Sequence[Partition] = ()
    errors: CoordinationMetric | None = None

    def transaction(self, intended: Partition) -> Transaction:
        """Return the transaction that writes the change.

        :param intended: the new value of the partition.
        """
        return Transaction(update=[intended, *self.update], create=self.create, new=self.new, unchanged=self.unchanged)


class Leases(HeldLeases):
    """The leases of one owner in one item family, with every write to them."""

    # Acquisition

    def acquire(self, limit: int) -> list[Partition]:
        """Lease up to `limit` available partitions, in the order of `acquisition_order`."""
        with self._lock:
            requested = self._request_time()
            acquired = self._store.acquire(
                Acquisition(
                    source_identifier=self._source_identifier,
                    owner=self.owner,
                    limit=limit,
                    ownership_timeout=requested.now + self.ownership_timeout,
                    available_by=requested.now,
                    expired_by=requested.now - self._safety_margin,
                )
            )
            for partition in acquired:
                self._hold(partition, partition.version, requested)
            return acquired

    def acquire_key(self, partition_key: str) -> Partition | None:
        """Lease this partition; return None if it is not available or another owner was faster."""
        with self._lock:
            requested = self._request_time()
            current = self._store.get(self._source_identifier, partition_key)
            if current is None or not is_available(
                current, requested.now, expired_by=requested.now - self._safety_margin
            ):
                return None
            return self._take(current, requested)

    def adopt(self, partition_key: str) -> Partition | None:
        """Start to hold a partition that is stored as leased to this owner, because its previous owner handed it over.

        The stored version becomes the fencing token. It is larger than any token of the previous owner.

        :returns: the partition; None if it is not leased to this owner.
        """
        return next(iter(self.adopt_each([partition_key])), None)

    def adopt_each(self, partition_keys: Sequence[str]) -> list[Partition]:
        """Start to hold those of these partitions that are leased to this owner; see `adopt`."""
        adopted = []
        with self._lock:
            requested = self._request_time()
            found = self._store.get_many(self._source_identifier, partition_keys)
            for key, stored in found.items():
                if stored.owner == self.owner:
                    if key not in self._leases:
                        self._hold(stored, stored.version, requested)
                    adopted.append(self._leases[key].partition)
        return adopted

    def take_over(self, partition_key: str, owner: str) -> Partition | None:
        """Lease a partition that another owner still holds. The store refuses the other owner's next write.

        :param owner: the owner that holds it.
        :returns: the partition; None if that owner no longer holds it.
        """
        with self._lock:
            while True:
                requested = self._request_time()
                current = self._store.get(self._source_identifier, partition_key)
                if current is None or current.owner != owner:
                    return None
                if (taken := self._take(current, requested)) is not None:  # otherwise it was renewed
                    return taken

    def _take(self, current: Partition, requested: RequestTime) -> Partition | None:
        """Lease a partition as it was read; return None if it has changed since."""
        intended = current.acquired(self.owner, requested.now + self.ownership_timeout, requested.now)
        try:
            [written] = self._store.transact(update=[intended])
        except PartitionUpdateError:
            stored = self._store.get(self._source_identifier, current.partition_key)
            if stored != intended.written():
                return None
            written = stored  # the write succeeded, and its response was lost
        self._hold(written, written.version, requested)
        return written

    # Writes

    def change(
        self,
        partition_key: str,
        change: Change,
        *,
        requires_trust: bool = True,
        seen: Partition | None = None,
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
        errors: CoordinationMetric | None = None,
    ) -> Partition:
        """Write a change of one partition; return the partition as written. See `LeaseChange`.

        :raises Exception: the error that `change_each` returns for it.
        """
        wanted = LeaseChange(
            partition_key=partition_key,
            change=change,
            requires_trust=requires_trust,
            seen=seen,
            create=create,
            new=new,
            unchanged=unchanged,
            errors=errors,
        )
        [written] = self.change_each([wanted])
        return result_or_raise(written)

    def change_each(self, changes: Sequence[LeaseChange], *, cheaply: bool = False) -> list[Partition | Exception]:
        """Write changes of partitions in few requests; return each partition as written, or its error.

        A failed change does not affect the others. The errors are

        - `PartitionNotOwnedError` if the lease is lost or no longer trusted;
        - `PartitionNotFoundError` if the partition no longer exists;
        - `ProgressChangedError` if the new progress is not based on the stored progress;
        - `PartitionUpdateError` if one of `update` or `unchanged` has changed, or `seen` without a lease, or one of
          `new` exists; nothing is written then;
        - `StoreUnavailableError` if the store is unavailable, for every change that was not written before.

        :param cheaply: whether to use one request per change if the store charges more for combined writes.
        """
        results: list[Partition | Exception] = []
        size = self._batch_size if cheaply else BATCH_SIZE
        for start in range(0, len(changes), size):
            some = changes[start : start + size]
            unavailable = next((each for each in results if isinstance(each, StoreUnavailableError)), None)
            results += self._change_some(some) if unavailable is None else [unavailable] * len(some)
        return results

    def delete(self, partition_key: str) -> bool:
        """Delete a held partition; return whether this owner deleted it, not another process before.

        :raises PartitionNotOwnedError: if the lease is lost or no longer trusted.
        """
        with self._lock:
            for _ in range(2):
                lease = self._held_lease(partition_key)
                self._require_trust(lease)
                try:
                    with self._doubting(lease):
                        self._store.delete(lease.partition)
                    break
                except PartitionUpdateError:
                    with self._doubting(lease):
                        stored = self._store.get(self._source_identifier, partition_key)
                    if stored is None:  # by a try whose response was lost, or by another process
                        del self._leases[partition_key]
                        return lease.in_doubt
                    if stored.owner != self.owner:
                        del self._leases[partition_key]
                        raise self._lost(partition_key, stored) from None
                    self._leases[partition_key] = replace(lease, partition=stored, in_doubt=False)
            else:
                raise PartitionUpdateError(f"partition {partition_key!r}: it changed during its deletion; try again")
            del self._leases[partition_key]
            return True

    def renew(self, partition_key: str) -> Partition:
        """Extend the lease to one ownership timeout from now; never shorten it.

        This also revives an expired lease that no other owner has taken; the version proves that.

        :raises PartitionNotOwnedError: if another owner took the partition.
        """
        return self.change(partition_key, self.renewed, requires_trust=False)

    def refresh(self, partition_key: str) -> Partition:
        """Read one held partition again.

        :raises Exception: the error that `refresh_each` returns for it.
        """
        return result_or_raise(self.refresh_each([partition_key])[partition_key])

    def refresh_each(self, partition_keys: Sequence[str]) -> dict[str, Partition | Exception]:
        """Read held partitions again, in few requests: acknowledgments may have changed their progress.

        :returns: by key, the partition; `PartitionNotOwnedError` if this owner no longer holds it;
            `PartitionNotFoundError` if it no longer exists; `StoreUnavailableError` if the store is unavailable.
        """
        results: dict[str, Partition | Exception] = {}
        for start in range(0, len(partition_keys), BATCH_SIZE):
            results |= self._refresh_some(partition_keys[start : start + BATCH_SIZE])
        return results

    def _refresh_some(self, partition_keys: Sequence[str]) -> dict[str, Partition | Exception]:
        with self._lock:
            try:
                stored = self._store.get_many(self._source_identifier, partition_keys)
            except StoreUnavailableError as error:
                return dict.fromkeys(partition_keys, error)
            return {key: self._refreshed(key, stored.get(key)) for key in partition_keys}

    def _refreshed(self, partition_key: str, stored: Partition | None) -> Partition | Exception:
        lease = self._leases.get(partition_key)
        if lease is None:
            return self._not_held(partition_key)
        if stored is None or stored.owner != self.owner:
            del self._leases[partition_key]
            return self._lost(partition_key, stored)
        if stored.version != lease.partition.version:
            self._leases[partition_key] = replace(lease, partition=stored)
        return stored

    def renewed(self, partition: Partition) -> Partition:
        """Return a partition whose lease lasts for one ownership timeout from now, or longer if it already does."""
        return partition.renewed(self._clock.now() + self.ownership_timeout)

    def renew_due(self) -> tuple[list[str], list[str]]:
        """Renew every lease of which more than a third has passed; return the renewed keys and the lost keys."""
        renewed: list[str] = []
        lost: list[str] = []
        keys = list(self.held)
        for start in range(0, len(keys), self._batch_size):
            with self._lock:
                due = [key for key in keys[start : start + self._batch_size] if self._is_due(key)]
                results = self.change_each(
                    [LeaseChange(partition_key=key, change=self.renewed, requires_trust=False) for key in due]
                )
            for key, result in zip(due, results, strict=True):
                if isinstance(result, LOST):
                    log.warning("%s", result)
                    lost.append(key)
                elif isinstance(result, Exception):
                    raise result
                else:
                    renewed.append(key)
        return renewed, lost

    def _is_due(self, partition_key: str) -> bool:
        lease = self._leases.get(partition_key)
        if lease is None:  # another thread gave it back: not lost
            return False
        now = self._clock.now()
        remaining = (lease.partition.ownership_timeout or now) - now
        return remaining <= self.ownership_timeout * 2 / 3 or not self.owns(partition_key)

    @property
    def _batch_size(self) -> int:
        """How many partitions one request renews."""
        return BATCH_SIZE if self._store.combines_writes_cheaply else 1

    def recover(self) -> list[str]:
        """Check the leases after the store was unavailable, and renew those that are still this owner's.

        Writes may have succeeded without a response, acquisitions among them. Other owners may have acquired expired
        leases.

        :returns: the keys of the lost leases.
        """
        lost = []
        with self._lock:
            assigned = list(all_partitions(self._store, self._source_identifier, PartitionStatus.ASSIGNED))
            for stored in assigned:
                if stored.owner == self.owner and stored.partition_key not in self._leases:
                    self._leases[stored.partition_key] = HeldLease(
                        stored, stored.version, trusted_until=self._clock.monotonic(), measured_to=None
                    )
            # The held leases are not compared with the listing, which may be stale: their renewal detects a loss.
            for key in list(self._leases):
                try:
                    self.renew(key)
                except LOST as error:
                    log.warning("%s", error)
                    lost.append(key)
        return lost

    # Internal

    def _change_some(self, changes: Sequence[LeaseChange]) -> list[Partition | Exception]:
        with self._lock:
            requested = self._request_time()
            tried: list[tuple[HeldLease | None, Partition] | Exception] = [self._intended(wanted) for wanted in changes]
            outcomes = iter(
                transact_each(
                    self._store,
                    [
                        wanted.transaction(each[1])
                        for wanted, each in zip(changes, tried, strict=True)
                        if not isinstance(each, Exception)
                    ],
                )
            )
            return [
                each if isinstance(each, Exception) else self._changed(wanted, *each, next(outcomes), requested)
                for wanted, each in zip(changes, tried, strict=True)
            ]

    def _intended(self, wanted: LeaseChange) -> tuple[HeldLease | None, Partition] | Exception:
        """Return the lease, if any, and the new value of its partition; or the error that prevents the change."""
        try:
            if wanted.seen is not None and wanted.partition_key not in self._leases:
                return None, wanted.change(wanted.seen)
            lease = self._held_lease(wanted.partition_key)
            if wanted.requires_trust:
                self._require_trust(lease)
            return lease, wanted.change(lease.partition)
        except Exception as error:
            return error

    def _changed(
        self,
        wanted: LeaseChange,
        lease: HeldLease | None,
        intended: Partition,
        outcome: Outcome,
        requested: RequestTime,
    ) -> Partition | Exception:
        """Handle the outcome of a write, and retry it if necessary; return the partition as written, or the error."""
        if lease is None:
            return outcome if isinstance(outcome, Exception) else outcome[0]
        try:
            lease, written = self._written(wanted, lease, intended, outcome)
        except Exception as error:
            return error
        if written.owner == self.owner:
            self._hold(written, lease.fencing_token, requested)
        else:
            del self._leases[wanted.partition_key]
        return written

    def _written(
        self, wanted: LeaseChange, lease: HeldLease, intended: Partition, outcome: Outcome
    ) -> tuple[HeldLease, Partition]:
        """Return a lease, and its partition as written.

        :raises Exception: see `change_each`.
        """
        for tries in range(MAX_TRIES):
            if tries:
                intended = wanted.change(lease.partition)
                [outcome] = transact_each(self._store, [wanted.transaction(intended)])
            if not isinstance(outcome, Exception):
                return lease, outcome[0]
            with self._doubting(lease, unless=intended.owner == self.owner):
                if not isinstance(outcome, PartitionUpdateError):
                    raise outcome
                stored = self._store.get(self._source_identifier, wanted.partition_key)
                # An earlier write may have written this very partition, but not the other items of this change.
                if stored is not None and stored == intended.written() and self._were_written(wanted):
                    return lease, stored  # the write succeeded, and its response was lost
            if stored is None or stored.owner != self.owner:
                del self._leases[wanted.partition_key]
                raise self._lost(wanted.partition_key, stored)
            current = lease.partition
            if stored.version == current.version:  # the store refused another item, not this partition
                raise outcome
            # An acknowledgment set ended, or an earlier write of this owner succeeded and its response was lost. That
            # write may have been an acquisition after another owner's, so the fencing token grows.
            lease = replace(lease, partition=stored, fencing_token=stored.version, in_doubt=False)
            self._leases[wanted.partition_key] = lease
            if intended.progress != current.progress and stored.progress != current.progress:
                raise ProgressChangedError(
                    f"partition {wanted.partition_key!r}: an earlier write of {self.owner} succeeded without a "
                    "response; the current work is dropped and continues from the stored progress"
                )
        raise StoreUnavailableError(
            f"partition {wanted.partition_key!r} keeps changing while {self.owner} holds it: "
            "check whether another process uses the same owner name"
        )

    def _were_written(self, wanted: LeaseChange) -> bool:
        """Return whether the store holds the other items of a change as its write leaves them."""

        def stored(item: Partition) -> Partition | None:
            return self._store.get(item.source_identifier, item.partition_key)

        return (
            all(stored(item) == item.written() for item in wanted.update)
            and all(stored(item) is not None for item in wanted.create)
            and all(stored(item) == item for item in wanted.new)
        )

    @contextmanager
    def _doubting(self, lease: HeldLease, *, unless: bool = False) -> Iterator[None]:
        """Stop trusting a lease if the store does not respond to its release. The next write or renewal finds out."""
        try:
            yield
        except StoreUnavailableError:
            if not unless:
                self._leases[lease.partition.partition_key] = replace(lease, in_doubt=True)
            raise
