"""The leases that one owner holds in one item family, and the only way in which it writes to them.

Every write is conditional on the version this owner wrote last. A refused write is looked into before it counts as a
lost lease: the store may have done an earlier write of this owner whose answer was lost. Safe to use from several
threads: the renewal thread writes the same partitions as the thread that works.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
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
from airflow_provider_coordination.coordination.store import Acquisition, CoordinationStore, all_partitions

log = logging.getLogger(__name__)

LOST = (PartitionNotOwnedError, PartitionNotFoundError, ProgressChangedError)
"""What a write raises when the work in hand must be dropped: an expected event, and no reason to end a job."""

Change = Callable[[Partition], Partition]


@dataclass(frozen=True)
class _Lease:
    partition: Partition
    fencing_token: int
    trusted_until: float  # on the monotonic clock


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
        self.ownership_timeout = ownership_timeout
        self._store = store
        self._source_identifier = source_identifier
        self._owner = owner
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

    def owns(self, partition_key: str) -> bool:
        """Tell whether the owner may act for the partition right now, by its own monotonic clock alone."""
        with self._lock:
            lease = self._leases.get(partition_key)
            return lease is not None and self._clock.monotonic() < lease.trusted_until

    def leased(self, partition_key: str) -> Partition:
        """Return a partition that is held, as last written.

        :raises PartitionNotOwnedError: if it is not held.
        """
        with self._lock:
            return self._held_lease(partition_key).partition

    def fencing_token(self, partition_key: str) -> int:
        """Return the version that this owner's acquisition wrote.

        :raises PartitionNotOwnedError: if the partition is not held.
        """
        with self._lock:
            return self._held_lease(partition_key).fencing_token

    # Taking

    def acquire(self, limit: int) -> list[Partition]:
        """Lease up to `limit` available partitions, in the order of `acquisition_order`."""
        with self._lock:
            asked_at, now = self._clock.monotonic(), self._clock.now()
            acquired = self._store.acquire(
                Acquisition(
                    source_identifier=self._source_identifier,
                    owner=self._owner,
                    limit=limit,
                    ownership_timeout=now + self.ownership_timeout,
                    available_by=now,
                    expired_by=now - self._safety_margin,
                )
            )
            for partition in acquired:
                self._hold(partition, partition.version, asked_at)
            return acquired

    def acquire_key(self, partition_key: str) -> Partition | None:
        """Lease this partition if it is available; None if it is not, or somebody else was faster."""
        with self._lock:
            asked_at, now = self._clock.monotonic(), self._clock.now()
            found = self._store.get(self._source_identifier, partition_key)
            if found is None or not _is_available(found, now, expired_by=now - self._safety_margin):
                return None
            intended = found.acquired(self._owner, now + self.ownership_timeout)
            try:
                [written] = self._store.transact(update=[intended])
            except PartitionUpdateError:
                stored = self._store.get(self._source_identifier, partition_key)
                if stored != intended.written():
                    return None
                written = stored
            self._hold(written, written.version, asked_at)
            return written

    # Writing

    def change(
        self,
        partition_key: str,
        change: Change,
        *,
        needs_trust: bool = True,
        create: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> Partition:
        """Write a change of a held partition, with what belongs to the same transaction; return it as written.

        :param change: makes the new value from the one last written.
        :param needs_trust: whether a lease that ran out by the owner's own clock is refused without asking the store.
        :param create: written if absent.
        :param unchanged: must still be as they were read.
        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        :raises PartitionNotFoundError: if the partition is gone.
        :raises ProgressChangedError: if the new progress was made from one that is not the stored one.
        :raises PartitionUpdateError: if one of `unchanged` has changed; nothing was written.
        """
        with self._lock:
            lease = self._held_lease(partition_key)
            if needs_trust and not self.owns(partition_key):
                raise PartitionNotOwnedError(
                    f"partition {partition_key!r}: the lease of {self._owner} ran out before it was renewed"
                )
            asked_at = self._clock.monotonic()
            current = lease.partition
            for _ in range(2):
                intended = change(current)
                try:
                    written = self._store.transact(update=[intended], create=create, unchanged=unchanged)[0]
                    break
                except PartitionUpdateError:
                    stored = self._store.get(self._source_identifier, partition_key)
                    if stored == intended.written():  # the write happened, its answer was lost
                        written = stored
                        break
                    if stored is None or stored.owner != self._owner:
                        del self._leases[partition_key]
                        raise self._lost(partition_key, stored) from None
                    if stored.version == current.version:  # not this partition was refused, but another one
                        raise
                    # An earlier write of this owner happened, and its answer was lost.
                    self._leases[partition_key] = replace(lease, partition=stored)
                    if intended.progress != current.progress and stored.progress != current.progress:
                        raise ProgressChangedError(
                            f"partition {partition_key!r}: an earlier write of {self._owner} went through without an "
                            "answer; the work in hand is dropped, and goes on from the stored progress"
                        ) from None
                    current = stored
            else:
                raise StoreUnavailableError(
                    f"partition {partition_key!r} changes under its owner {self._owner}: "
                    "another process must be using the same owner name"
                )
            if written.owner == self._owner:
                self._hold(written, lease.fencing_token, asked_at)
            else:
                del self._leases[partition_key]
            return written

    def delete(self, partition_key: str) -> None:
        """Delete a held partition.

        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        """
        with self._lock:
            for _ in range(2):
                lease = self._held_lease(partition_key)
                if not self.owns(partition_key):
                    raise PartitionNotOwnedError(
                        f"partition {partition_key!r}: the lease of {self._owner} ran out before it was renewed"
                    )
                try:
                    self._store.delete(lease.partition)
                    break
                except PartitionUpdateError:
                    stored = self._store.get(self._source_identifier, partition_key)
                    if stored is None:  # the deletion happened, its answer was lost
                        break
                    if stored.owner != self._owner:
                        del self._leases[partition_key]
                        raise self._lost(partition_key, stored) from None
                    self._leases[partition_key] = replace(lease, partition=stored)
            else:
                raise PartitionUpdateError(f"partition {partition_key!r}: it changes while it is deleted")
            del self._leases[partition_key]

    def renew(self, partition_key: str) -> Partition:
        """Extend the lease to a whole ownership timeout from now; never shortens it.

        Also revives a lease that ran out while nobody took it: the version proves that nobody did.

        :raises PartitionNotOwnedError: if somebody else took the partition.
        """
        return self.change(partition_key, self.renewed, needs_trust=False)

    def renewed(self, partition: Partition) -> Partition:
        """Return a partition with its lease running for an ownership timeout from now, or longer where it did."""
        return partition.renewed(self._clock.now() + self.ownership_timeout)

    def renew_due(self) -> list[str]:
        """Renew every lease of which more than a third has passed; return their keys. Forget those that are lost."""
        threshold = self.ownership_timeout * 2 / 3
        renewed = []
        for key, partition in self.held.items():
            remaining = (partition.ownership_timeout or self._clock.now()) - self._clock.now()
            if remaining > threshold and self.owns(key):
                continue
            try:
                self.renew(key)
                renewed.append(key)
            except LOST as error:
                log.warning("%s", error)
        return renewed

    def recover(self) -> None:
        """Find out where the leases stand after the store was away, and renew those that are still this owner's.

        Writes may have gone through without an answer, acquisitions among them, and others may have taken what ran out.
        """
        with self._lock:
            assigned = all_partitions(self._store, self._source_identifier, PartitionStatus.ASSIGNED)
            mine = {partition.partition_key: partition for partition in assigned if partition.owner == self._owner}
            for key in self._leases.keys() - mine.keys():
                log.warning("partition %r: the lease of %s is lost", key, self._owner)
                del self._leases[key]
            for key, stored in mine.items():
                known = self._leases.get(key)
                token = known.fencing_token if known else stored.version
                self._leases[key] = _Lease(stored, token, known.trusted_until if known else self._clock.monotonic())
                try:
                    self.renew(key)
                except LOST as error:
                    log.warning("%s", error)

    # Inside

    def _hold(self, partition: Partition, fencing_token: int, asked_at: float) -> None:
        # The lease runs from when it was asked for, not from when the answer came; and how long it runs is measured
        # once, when its end was written, since the wall clock may be set at any time.
        known = self._leases.get(partition.partition_key)
        if known and known.partition.ownership_timeout == partition.ownership_timeout:
            trusted_until = known.trusted_until
        else:
            assert partition.ownership_timeout is not None
            since_asked = timedelta(seconds=self._clock.monotonic() - asked_at)
            runs = partition.ownership_timeout - self._clock.now() + since_asked
            trusted_until = asked_at + (runs - self._safety_margin).total_seconds()
        self._leases[partition.partition_key] = _Lease(partition, fencing_token, trusted_until)

    def _lost(self, partition_key: str, stored: Partition | None) -> Exception:
        if stored is None:
            return PartitionNotFoundError(f"partition {partition_key!r} of {self._source_identifier!r} is gone")
        return PartitionNotOwnedError(
            f"partition {partition_key!r}: the lease of {self._owner} is lost; it is {stored.status} now, "
            f"owner {stored.owner}, version {stored.version}"
        )

    def _held_lease(self, partition_key: str) -> _Lease:
        try:
            return self._leases[partition_key]
        except KeyError:
            raise PartitionNotOwnedError(
                f"partition {partition_key!r} of {self._source_identifier!r} is not leased to {self._owner}"
            ) from None


def _is_available(partition: Partition, now: datetime, *, expired_by: datetime) -> bool:
    """Tell whether a partition may be acquired, as `acquisition_order` says for a queue of them."""
    if partition.status is PartitionStatus.COMPLETED:
        return False
    return partition.priority <= (expired_by if partition.status is PartitionStatus.ASSIGNED else now)
