"""The coordinator: what one owner may do with the partitions of one source.

It remembers the leases it holds and the version of each, so that every write is conditional on what this owner wrote
last. It is safe to use from several threads: the renewal thread writes the same partitions as the thread that works.

Differences from Data Prepper's coordinator, all deliberate: an owner is one process and not a host; nothing shortens
a lease; a refused write is never repeated with the value that was refused; a lost answer is told apart from a lost
lease.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.balance import fair_share
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    StoreUnavailableError,
    UninitializedCoordinatorError,
)
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import Acquisition, CoordinationStore

log = logging.getLogger(__name__)

DEFAULT_OWNERSHIP_TIMEOUT = timedelta(seconds=60)
DEFAULT_SAFETY_MARGIN = timedelta(seconds=5)

LOST = (PartitionNotOwnedError, PartitionNotFoundError)
"""What a write raises when the partition is no longer this owner's: an expected event."""

Change = Callable[[Partition], Partition]


@dataclass(frozen=True)
class _Lease:
    partition: Partition
    fencing_token: int
    trusted_until: float  # on the monotonic clock


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
        clock: Clock | None = None,
    ) -> None:
        for field, name in (("source", source), ("prefix", prefix)):
            if name is not None and (not name or "|" in name):
                raise ConfigurationError(
                    f"{field} {name!r} is not usable: give a name that is not empty and has no '|'"
                )
        if not owner:
            raise ConfigurationError(f"owner {owner!r} is not usable: give the name of one worker process")
        check_lease_times(ownership_timeout, safety_margin)
        self.store = store
        self.source = source
        self.owner = owner
        self.ownership_timeout = ownership_timeout
        self.source_identifier = "|".join(part for part in (prefix, source, "PARTITION") if part)
        self._safety_margin = safety_margin
        self._clock = clock or SystemClock()
        self._leases: dict[str, _Lease] = {}
        self._lock = threading.RLock()
        self._initialized = False

    def initialize(self) -> None:
        """Make the store ready; needed once before anything else."""
        self.store.initialize()
        self._initialized = True

    # What there is

    def create_partitions(self, partitions: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Create partitions that do not exist yet, in the given order.

        :param partitions: the first progress of each, by partition key.
        :returns: the keys that were created; the others existed and are untouched.
        """
        self._require_initialized()
        created = self.store.create([self._new(key, progress) for key, progress in partitions.items()])
        for key in created:
            log.info("partition created: source=%s partition=%s", self.source, key)
        return created

    def get(self, partition_key: str) -> Partition | None:
        """Return the partition as the store holds it now, whoever owns it, or None."""
        self._require_initialized()
        return self.store.get(self.source_identifier, partition_key)

    def partitions(self, *statuses: PartitionStatus) -> Iterator[Partition]:
        """Yield the partitions of these statuses, of all by default, reading page by page."""
        self._require_initialized()
        for status in statuses or PartitionStatus:
            last: Partition | None = None
            while True:
                page = self.store.query(self.source_identifier, status, after=last)
                if not page:
                    break
                yield from page
                last = page[-1]

    def count_by_status(self) -> dict[PartitionStatus, int]:
        """Return how many partitions each status has, zeros included."""
        self._require_initialized()
        return self.store.count_by_status(self.source_identifier)

    def fair_share(self, expected_workers: int = 1) -> int:
        """Return how many partitions this owner should hold at the most, given who holds live leases now.

        :param expected_workers: how many workers are expected at the least.
        """
        counts = self.count_by_status()
        unfinished = sum(counts.values()) - counts[PartitionStatus.COMPLETED]
        expired_by = self._clock.now() - self._safety_margin
        live = {
            p.owner
            for p in self.partitions(PartitionStatus.ASSIGNED)
            if p.ownership_timeout is not None and p.ownership_timeout >= expired_by
        }
        return fair_share(unfinished, len(live | {self.owner}), expected_workers)

    # Leases of this owner

    @property
    def held(self) -> dict[str, Partition]:
        """The partitions leased to this owner, by key, each as last written."""
        with self._lock:
            return {key: lease.partition for key, lease in self._leases.items()}

    def acquire(self, limit: int) -> list[Partition]:
        """Lease up to `limit` available partitions: expired ones first, then CLOSED that are due, then UNASSIGNED.

        :returns: what was acquired, perhaps nothing.
        """
        self._require_initialized()
        if limit <= 0:
            return []
        with self._lock:
            asked_at, now = self._clock.monotonic(), self._clock.now()
            acquired = self.store.acquire(
                Acquisition(
                    source_identifier=self.source_identifier,
                    owner=self.owner,
                    limit=limit,
                    ownership_timeout=now + self.ownership_timeout,
                    available_by=now,
                    expired_by=now - self._safety_margin,
                )
            )
            for partition in acquired:
                self._leases[partition.partition_key] = self._lease(partition, partition.version, asked_at)
                log.info(
                    "partition acquired: source=%s partition=%s owner=%s fencing_token=%d",
                    self.source, partition.partition_key, self.owner, partition.version,
                )  # fmt: skip
            return acquired

    def owns(self, partition_key: str) -> bool:
        """Tell whether this owner may act for the partition right now, by its own monotonic clock alone."""
        with self._lock:
            lease = self._leases.get(partition_key)
            return lease is not None and self._clock.monotonic() < lease.trusted_until

    def leased(self, partition_key: str) -> Partition:
        """Return a partition that is leased to this owner, as last written.

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

    def save_progress(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        """Write the partition's state; renews the lease as well.

        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        """
        return self._change(partition_key, lambda p: self._renewed(p.with_progress(progress)))

    def renew(self, partition_key: str) -> Partition:
        """Extend the lease to a whole ownership timeout from now; never shortens it.

        Also revives a lease that ran out while nobody took it: the version proves that nobody did.

        :raises PartitionNotOwnedError: if somebody else took the partition.
        """
        return self._change(partition_key, self._renewed, needs_trust=False)

    def renew_due(self) -> None:
        """Renew every lease of which more than a third has passed; forget those that are lost."""
        threshold = self.ownership_timeout * 2 / 3
        for key, partition in self.held.items():
            remaining = (partition.ownership_timeout or self._clock.now()) - self._clock.now()
            if remaining > threshold and self.owns(key):
                continue
            try:
                self.renew(key)
            except LOST as error:
                log.warning("%s", error)

    def complete(
        self,
        partition_key: str,
        progress: Mapping[str, Any],
        *,
        create: Mapping[str, Mapping[str, Any]] | None = None,
        unchanged: Sequence[Partition] = (),
    ) -> None:
        """Finish the partition and, in the same transaction, create those that follow it.

        :param progress: its last state.
        :param create: the first progress of each partition to create, by key; existing ones are untouched.
        :param unchanged: other partitions that this decision rests on, as they were read.
        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        :raises PartitionUpdateError: if one of `unchanged` has changed; nothing was written, decide again.
        """
        now = self._clock.now()
        self._change(
            partition_key,
            lambda p: p.with_progress(progress).completed(now),
            create=[self._new(key, first) for key, first in (create or {}).items()],
            unchanged=unchanged,
        )
        log.info("partition completed: source=%s partition=%s owner=%s", self.source, partition_key, self.owner)

    def close(self, partition_key: str, reopen_after: timedelta) -> None:
        """Put the partition aside; it can be acquired again after `reopen_after`. Its progress is kept.

        :raises PartitionNotOwnedError: if the lease is lost or no longer to be trusted.
        """
        reopen_at = self._clock.now() + reopen_after
        self._change(partition_key, lambda p: p.closed(reopen_at))
        log.info("partition closed: source=%s partition=%s reopen_at=%s", self.source, partition_key, reopen_at)

    def give_up(self, partition_key: str, *, after: timedelta = timedelta(0)) -> None:
        """Give the lease back; the progress is kept.

        :param after: how long the partition stays unavailable.
        :raises PartitionNotOwnedError: if somebody else has it already.
        """
        available_at = self._clock.now() + after
        self._change(partition_key, lambda p: p.given_up(available_at), needs_trust=False)
        log.info("partition given up: source=%s partition=%s owner=%s", self.source, partition_key, self.owner)

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
        """Give back every lease of another owner that is known to be dead; return the keys.

        If the owner lives after all, its writes are refused from here on.
        """
        given_up = []
        for partition in self.partitions(PartitionStatus.ASSIGNED):
            current: Partition | None = partition
            while current is not None and current.owner == owner:
                try:
                    self.store.transact(update=[current.given_up(self._clock.now())])
                    given_up.append(current.partition_key)
                    log.info(
                        "partition given up for its owner: source=%s partition=%s owner=%s",
                        self.source, current.partition_key, owner,
                    )  # fmt: skip
                    break
                except PartitionUpdateError:  # it was renewed, or taken, in between
                    current = self.get(current.partition_key)
        return given_up

    # How writes are made

    def _change(
        self,
        partition_key: str,
        change: Change,
        *,
        needs_trust: bool = True,
        create: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> Partition:
        self._require_initialized()
        with self._lock:
            lease = self._held_lease(partition_key)
            if needs_trust and not self.owns(partition_key):
                raise PartitionNotOwnedError(
                    f"partition {partition_key!r}: the lease of {self.owner} ran out before it was renewed"
                )
            asked_at = self._clock.monotonic()
            current = lease.partition
            for _ in range(2):
                intended = change(current)
                try:
                    written = self.store.transact(update=[intended], create=create, unchanged=unchanged)[0]
                    break
                except PartitionUpdateError:
                    stored = self.store.get(self.source_identifier, partition_key)
                    if stored == intended.written():  # the write happened, its answer was lost
                        written = stored
                        break
                    if stored is None or stored.owner != self.owner:
                        del self._leases[partition_key]
                        raise self._lost(partition_key, stored) from None
                    if stored.version == current.version:  # not this partition was refused, but another one
                        raise
                    current = stored  # an earlier write of this owner happened, and its answer was lost
            else:
                raise StoreUnavailableError(
                    f"partition {partition_key!r} changes under its owner {self.owner}: "
                    "another process must be using the same owner name"
                )
            if written.owner == self.owner:
                self._leases[partition_key] = self._lease(written, lease.fencing_token, asked_at)
            else:
                del self._leases[partition_key]
            return written

    def _lost(self, partition_key: str, stored: Partition | None) -> Exception:
        if stored is None:
            return PartitionNotFoundError(f"partition {partition_key!r} of source {self.source!r} is gone")
        return PartitionNotOwnedError(
            f"partition {partition_key!r}: the lease of {self.owner} is lost; it is {stored.status} now, "
            f"owner {stored.owner}, version {stored.version}"
        )

    def _lease(self, partition: Partition, fencing_token: int, asked_at: float) -> _Lease:
        # The lease runs from when it was asked for, not from when the answer came.
        assert partition.ownership_timeout is not None
        runs = partition.ownership_timeout - self._clock.now() + timedelta(seconds=self._clock.monotonic() - asked_at)
        return _Lease(partition, fencing_token, asked_at + (runs - self._safety_margin).total_seconds())

    def _renewed(self, partition: Partition) -> Partition:
        return partition.renewed(self._clock.now() + self.ownership_timeout)

    def _new(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        return Partition(
            source_identifier=self.source_identifier,
            partition_key=partition_key,
            status=PartitionStatus.UNASSIGNED,
            priority=self._clock.now(),
            progress=progress,
        )

    def _held_lease(self, partition_key: str) -> _Lease:
        try:
            return self._leases[partition_key]
        except KeyError:
            raise PartitionNotOwnedError(
                f"partition {partition_key!r} of source {self.source!r} is not leased to {self.owner}"
            ) from None

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
