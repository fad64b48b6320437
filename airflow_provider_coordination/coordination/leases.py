"""The leases that one owner holds in one item family, and the only way in which it writes to them.

Every write is conditional on the version this owner wrote last. A refused write is looked into before it counts as a
lost lease: the store may have done an earlier write of this owner whose answer was lost. Safe to use from several
threads: the renewal thread writes the same partitions as the thread that works.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import (
    PartitionNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    ProgressChangedError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import (
    Acquisition,
    CoordinationStore,
    all_partitions,
    is_available,
)
from airflow_provider_coordination.coordination.transactions import Outcome, Transaction, transact_each

log = logging.getLogger(__name__)

LOST = (PartitionNotOwnedError, PartitionNotFoundError, ProgressChangedError)
"""What a write raises when the work in hand must be dropped: an expected event, and no reason to end a job."""

MAX_TRIES = 10
"""How often a change is made anew: whoever acknowledges batches of a held partition writes to it as well."""

AT_ONCE = 50
"""Of how many partitions changes are written before another thread has its turn: renewals wait no longer for it. With
an item beside each, they are what one transaction of DynamoDB takes."""

Change = Callable[[Partition], Partition]


@dataclass(frozen=True, kw_only=True)
class LeaseChange:
    """A change of a held partition, with what belongs to the same transaction.

    :param partition_key: the partition.
    :param change: makes the new value from the one last written.
    :param needs_trust: whether a lease that ran out by the owner's own clock is refused without asking the store.
    :param update: other items of the same decision, written if they are still the version that each carries.
    :param create: written if absent.
    :param new: written, and must be absent.
    :param unchanged: must still be as they were read.
    """

    partition_key: str
    change: Change
    needs_trust: bool = True
    update: Sequence[Partition] = ()
    create: Sequence[Partition] = ()
    new: Sequence[Partition] = ()
    unchanged: Sequence[Partition] = ()

    def transaction(self, intended: Partition) -> Transaction:
        """Return what is written.

        :param intended: the new value.
        """
        return Transaction(update=[intended, *self.update], create=self.create, new=self.new, unchanged=self.unchanged)


@dataclass(frozen=True)
class _Lease:
    partition: Partition
    fencing_token: int
    trusted_until: float  # on the monotonic clock
    measured_to: datetime | None  # the end of the lease, which this precedes by the margin; None if it was not measured
    in_doubt: bool = False  # it was given back or deleted, and no answer came


@dataclass(frozen=True)
class _Asked:
    """When the store was asked for something, by both clocks."""

    monotonic: float
    now: datetime


class Leases:
    """The leases of one owner in one item family.

    :param store: where the partitions are.
    :param source_identifier: the item family.
    :param owner: who holds them; unique to this process.
    :param ownership_timeout: how long a lease runs from its acquisition or last renewal.
    :param safety_margin: a lease is not trusted any more this long before its end.
    :param clock: where the time comes from.
    """

    def __init__(
        self,
        store: CoordinationStore,
        source_identifier: str,
        owner: str,
        *,
        ownership_timeout: timedelta,
        safety_margin: timedelta,
        clock: Clock,
    ) -> None:
        self.owner = owner
        self.ownership_timeout = ownership_timeout
        self._store = store
        self._source_identifier = source_identifier
        self._safety_margin = safety_margin
        self._clock = clock
        self._leases: dict[str, _Lease] = {}
        self._lock = threading.RLock()

    # What is held

    @property
    def held(self) -> dict[str, Partition]:
        """The partitions leased to this owner, by key, each as last written."""
        with self._lock:
            return {key: lease.partition for key, lease in self._leases.items()}

    def holds(self, partition_key: str) -> bool:
        """Return whether a partition is leased to this owner."""
        return self.find(partition_key) is not None

    def find(self, partition_key: str) -> Partition | None:
        """Return a partition that is leased to this owner, as last written; None if it is not."""
        with self._lock:
            lease = self._leases.get(partition_key)
            return None if lease is None else lease.partition

    def owns(self, partition_key: str) -> bool:
        """Return whether the owner may act for the partition right now, by its own monotonic clock alone."""
        with self._lock:
            lease = self._leases.get(partition_key)
            return lease is not None and not lease.in_doubt and self._runs(lease)

    def leased(self, partition_key: str) -> Partition:
        """Return a partition that is held, as last written.

        :raises PartitionNotOwnedError: if it is not held.
        """
        with self._lock:
            return self._held_lease(partition_key).partition

    def fencing_token(self, partition_key: str) -> int:
        """Return the version that this owner's acquisition wrote, or a later one: larger than any earlier owner had.

        :raises PartitionNotOwnedError: if the partition is not held.
        """
        with self._lock:
            return self._held_lease(partition_key).fencing_token

    # Taking

    def acquire(self, limit: int) -> list[Partition]:
        """Lease up to `limit` available partitions, in the order of `acquisition_order`."""
        with self._lock:
            asked = self._ask()
            acquired = self._store.acquire(
                Acquisition(
                    source_identifier=self._source_identifier,
                    owner=self.owner,
                    limit=limit,
                    ownership_timeout=asked.now + self.ownership_timeout,
                    available_by=asked.now,
                    expired_by=asked.now - self._safety_margin,
                )
            )
            for partition in acquired:
                self._hold(partition, partition.version, asked)
            return acquired

    def acquire_key(self, partition_key: str) -> Partition | None:
        """Lease this partition if it is available; None if it is not, or somebody else was faster."""
        with self._lock:
            asked = self._ask()
            found = self._store.get(self._source_identifier, partition_key)
            if found is None or not is_available(found, asked.now, expired_by=asked.now - self._safety_margin):
                return None
            intended = found.acquired(self.owner, asked.now + self.ownership_timeout, asked.now)
            try:
                [written] = self._store.transact(update=[intended])
            except PartitionUpdateError:
                stored = self._store.get(self._source_identifier, partition_key)
                if stored != intended.written():
                    return None
                written = stored
            self._hold(written, written.version, asked)
            return written

    def adopt(self, partition_key: str) -> Partition | None:
        """Begin to hold a partition that the store says is leased to this owner: its former owner handed it over.

        The version that is stored is the fencing token: it is larger than any that the former owner had.

        :returns: the partition; None if it is not this owner's.
        """
        return next(iter(self.adopt_each([partition_key])), None)

    def adopt_each(self, partition_keys: Sequence[str]) -> list[Partition]:
        """Begin to hold those of these partitions that are leased to this owner; see `adopt`."""
        adopted = []
        with self._lock:
            asked = self._ask()
            found = self._store.get_each(self._source_identifier, partition_keys)
            for key, stored in found.items():
                if stored.owner == self.owner:
                    if key not in self._leases:
                        self._hold(stored, stored.version, asked)
                    adopted.append(self._leases[key].partition)
        return adopted

    def take_over(self, partition_key: str, owner: str) -> Partition | None:
        """Lease a partition that another owner still holds; that one finds its next write refused.

        :param owner: who holds it.
        :returns: the partition; None if that owner holds it no more.
        """
        with self._lock:
            while True:
                asked = self._ask()
                found = self._store.get(self._source_identifier, partition_key)
                if found is None or found.owner != owner:
                    return None
                intended = found.acquired(self.owner, asked.now + self.ownership_timeout, asked.now)
                try:
                    [written] = self._store.transact(update=[intended])
                except PartitionUpdateError:  # it was renewed in between; or this was written, and the answer lost
                    stored = self._store.get(self._source_identifier, partition_key)
                    if stored != intended.written():
                        continue
                    written = stored
                self._hold(written, written.version, asked)
                return written

    # Writing

    def change(
        self,
        partition_key: str,
        change: Change,
        *,
        needs_trust: bool = True,
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> Partition:
        """Write a change of one held partition; return it as written. See `LeaseChange`.

        :raises Exception: what `change_each` returns for it.
        """
        wanted = LeaseChange(
            partition_key=partition_key,
            change=change,
            needs_trust=needs_trust,
            create=create,
            new=new,
            unchanged=unchanged,
        )
        [written] = self.change_each([wanted])
        if isinstance(written, Exception):
            raise written
        return written

    def change_each(self, changes: Sequence[LeaseChange], *, cheaply: bool = False) -> list[Partition | Exception]:
        """Write changes of held partitions, in few requests; return for each the partition as written, or its error.

        None holds another. The errors are

        - `PartitionNotOwnedError` if the lease is lost or no longer to be trusted;
        - `PartitionNotFoundError` if the partition is gone;
        - `ProgressChangedError` if the new progress was made from one that is not the stored one;
        - `PartitionUpdateError` if one of `update` or `unchanged` has changed, or one of `new` exists; nothing was
          written;
        - `StoreUnavailableError` if the store did not answer, for all that was not written before that.

        :param cheaply: each in a request of its own where the store charges more for writing them together.
        """
        results: list[Partition | Exception] = []
        at_once = self._at_once if cheaply else AT_ONCE
        for start in range(0, len(changes), at_once):
            some = changes[start : start + at_once]
            away = next((each for each in results if isinstance(each, StoreUnavailableError)), None)
            results += self._change_some(some) if away is None else [away] * len(some)
        return results

    def delete(self, partition_key: str) -> None:
        """Delete a held partition.

        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
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
                    if stored is None:  # the deletion happened, its answer was lost
                        break
                    if stored.owner != self.owner:
                        del self._leases[partition_key]
                        raise self._lost(partition_key, stored) from None
                    self._leases[partition_key] = replace(lease, partition=stored, in_doubt=False)
            else:
                raise PartitionUpdateError(f"partition {partition_key!r}: it changes while it is deleted")
            del self._leases[partition_key]

    def renew(self, partition_key: str) -> Partition:
        """Extend the lease to a whole ownership timeout from now; never shortens it.

        Also revives a lease that ran out while nobody took it: the version proves that nobody did.

        :raises PartitionNotOwnedError: if somebody else took the partition.
        """
        return self.change(partition_key, self.renewed, needs_trust=False)

    def refresh(self, partition_key: str) -> Partition:
        """Read one held partition anew.

        :raises Exception: what `refresh_each` returns for it.
        """
        found = self.refresh_each([partition_key])[partition_key]
        if isinstance(found, Exception):
            raise found
        return found

    def refresh_each(self, partition_keys: Sequence[str]) -> dict[str, Partition | Exception]:
        """Read held partitions anew, in few requests: others may have changed their progress, who acknowledge batches.

        :returns: by key the partition; `PartitionNotOwnedError` if it is not this owner's any more;
            `PartitionNotFoundError` if it is gone; `StoreUnavailableError` for all that the store did not answer for.
        """
        results: dict[str, Partition | Exception] = {}
        for start in range(0, len(partition_keys), AT_ONCE):
            results |= self._refresh_some(partition_keys[start : start + AT_ONCE])
        return results

    def _refresh_some(self, partition_keys: Sequence[str]) -> dict[str, Partition | Exception]:
        with self._lock:
            try:
                stored = self._store.get_each(self._source_identifier, partition_keys)
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
        """Return a partition with its lease running for an ownership timeout from now, or longer where it did."""
        return partition.renewed(self._clock.now() + self.ownership_timeout)

    def renew_due(self) -> tuple[list[str], list[str]]:
        """Renew every lease of which more than a third has passed; return their keys, and those found to be lost."""
        renewed: list[str] = []
        lost: list[str] = []
        keys = list(self.held)
        for start in range(0, len(keys), self._at_once):
            with self._lock:
                due = [key for key in keys[start : start + self._at_once] if self._is_due(key)]
                results = self.change_each(
                    [LeaseChange(partition_key=key, change=self.renewed, needs_trust=False) for key in due]
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
        if lease is None:  # given back by another thread: not lost
            return False
        now = self._clock.now()
        remaining = (lease.partition.ownership_timeout or now) - now
        return remaining <= self.ownership_timeout * 2 / 3 or not self.owns(partition_key)

    @property
    def _at_once(self) -> int:
        """How many partitions are renewed by one request."""
        return AT_ONCE if self._store.joins_cheaply else 1

    def recover(self) -> list[str]:
        """Find out where the leases stand after the store was away, and renew those that are still this owner's.

        Writes may have gone through without an answer, acquisitions among them, and others may have taken what ran
        out.

        :returns: the keys of the leases that are lost.
        """
        lost = []
        with self._lock:
            assigned = list(all_partitions(self._store, self._source_identifier, PartitionStatus.ASSIGNED))
            for stored in assigned:
                if stored.owner == self.owner and stored.partition_key not in self._leases:
                    self._leases[stored.partition_key] = _Lease(
                        stored, stored.version, trusted_until=self._clock.monotonic(), measured_to=None
                    )
            # What is known is not compared with the listing, which may be behind: renewing it finds out.
            for key in list(self._leases):
                try:
                    self.renew(key)
                except LOST as error:
                    log.warning("%s", error)
                    lost.append(key)
        return lost

    # Inside

    def _change_some(self, changes: Sequence[LeaseChange]) -> list[Partition | Exception]:
        with self._lock:
            asked = self._ask()
            tried: list[tuple[_Lease, Partition] | Exception] = [self._intended(wanted) for wanted in changes]
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
                each if isinstance(each, Exception) else self._changed(wanted, *each, next(outcomes), asked)
                for wanted, each in zip(changes, tried, strict=True)
            ]

    def _intended(self, wanted: LeaseChange) -> tuple[_Lease, Partition] | Exception:
        """Return a lease and the new value of its partition; or what is in the way."""
        try:
            lease = self._held_lease(wanted.partition_key)
            if wanted.needs_trust:
                self._require_trust(lease)
            return lease, wanted.change(lease.partition)
        except Exception as error:
            return error

    def _changed(
        self, wanted: LeaseChange, lease: _Lease, intended: Partition, outcome: Outcome, asked: _Asked
    ) -> Partition | Exception:
        """Look into the outcome of a write, and write again where that is what it takes; return what became of it."""
        try:
            lease, written = self._written(wanted, lease, intended, outcome)
        except Exception as error:
            return error
        if written.owner == self.owner:
            self._hold(written, lease.fencing_token, asked)
        else:
            del self._leases[wanted.partition_key]
        return written

    def _written(
        self, wanted: LeaseChange, lease: _Lease, intended: Partition, outcome: Outcome
    ) -> tuple[_Lease, Partition]:
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
                # An earlier write may have left the very same partition, and not what belongs to this one.
                if stored is not None and stored == intended.written() and self._were_written(wanted):
                    return lease, stored  # the write happened, its answer was lost
            if stored is None or stored.owner != self.owner:
                del self._leases[wanted.partition_key]
                raise self._lost(wanted.partition_key, stored)
            current = lease.partition
            if stored.version == current.version:  # not this partition was refused, but another one
                raise outcome
            # Somebody ended an acknowledgment set, or an earlier write of this owner happened, and its answer
            # was lost. It may have been an acquisition after somebody else's, so the fencing token grows.
            lease = replace(lease, partition=stored, fencing_token=stored.version, in_doubt=False)
            self._leases[wanted.partition_key] = lease
            if intended.progress != current.progress and stored.progress != current.progress:
                raise ProgressChangedError(
                    f"partition {wanted.partition_key!r}: an earlier write of {self.owner} went through without an "
                    "answer; the work in hand is dropped, and goes on from the stored progress"
                )
        raise StoreUnavailableError(
            f"partition {wanted.partition_key!r} changes under its owner {self.owner}: "
            "another process must be using the same owner name"
        )

    def _were_written(self, wanted: LeaseChange) -> bool:
        """Return whether the store holds what belongs to a change as a write of it leaves it."""

        def stored(item: Partition) -> Partition | None:
            return self._store.get(item.source_identifier, item.partition_key)

        return (
            all(stored(item) == item.written() for item in wanted.update)
            and all(stored(item) is not None for item in wanted.create)
            and all(stored(item) == item for item in wanted.new)
        )

    def _ask(self) -> _Asked:
        return _Asked(self._clock.monotonic(), self._clock.now())

    def _hold(self, partition: Partition, fencing_token: int, asked: _Asked) -> None:
        # The lease runs from when it was asked for, not from when the answer came; and how long it runs is measured
        # once, when its end is first known, since the wall clock may be set at any time.
        known = self._leases.get(partition.partition_key)
        end = partition.ownership_timeout
        assert end is not None
        if known and known.measured_to == end:
            trusted_until = known.trusted_until
        else:
            trusted_until = asked.monotonic + (end - asked.now - self._safety_margin).total_seconds()
        self._leases[partition.partition_key] = _Lease(partition, fencing_token, trusted_until, measured_to=end)

    def _runs(self, lease: _Lease) -> bool:
        return self._clock.monotonic() < lease.trusted_until

    def _require_trust(self, lease: _Lease) -> None:
        if not self._runs(lease):
            raise PartitionNotOwnedError(
                f"partition {lease.partition.partition_key!r}: the lease of {self.owner} ran out before it was renewed"
            )

    @contextmanager
    def _doubting(self, lease: _Lease, *, unless: bool = False) -> Iterator[None]:
        """Stop believing in a lease that may be given back: nobody answered. The next write or renewal finds out."""
        try:
            yield
        except StoreUnavailableError:
            if not unless:
                self._leases[lease.partition.partition_key] = replace(lease, in_doubt=True)
            raise

    def _lost(self, partition_key: str, stored: Partition | None) -> Exception:
        if stored is None:
            return PartitionNotFoundError(f"partition {partition_key!r} of {self._source_identifier!r} is gone")
        return PartitionNotOwnedError(
            f"partition {partition_key!r}: the lease of {self.owner} is lost; it is {stored.status} now, "
            f"owner {stored.owner}, version {stored.version}"
        )

    def _held_lease(self, partition_key: str) -> _Lease:
        try:
            return self._leases[partition_key]
        except KeyError:
            raise self._not_held(partition_key) from None

    def _not_held(self, partition_key: str) -> PartitionNotOwnedError:
        return PartitionNotOwnedError(
            f"partition {partition_key!r} of {self._source_identifier!r} is not leased to {self.owner}"
        )
