"""Settles partitions, whichever owner holds them: when their batches are delivered or not, and when their data is gone.

If this process does not hold the lease, a write is conditional on the version only: a delivery is a fact, whichever
process reports it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.leases import Change, LeaseChange, Leases
from airflow_provider_coordination.coordination.lockstep import Steps, run_alone, run_in_lockstep
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition
from airflow_provider_coordination.coordination.partition_events import PartitionEvents
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.storable_text import storable

log = logging.getLogger(__name__)

T = TypeVar("T")


class PartitionSettlement:
    """Settles partitions of one source, for acknowledgment sets and for the creation and cleanup of partitions.

    :param view: the view of the source.
    :param leases: the acting owner's leases of its partitions; held partitions are written through them.
    :param events: where events are logged and counted.
    :param retry_policy: decides what happens to partitions that fail.
    """

    def __init__(self, view: SourceView, leases: Leases, events: PartitionEvents, retry_policy: RetryPolicy) -> None:
        self._view = view
        self._leases = leases
        self._events = events
        self._retry_policy = retry_policy

    def current(self, partition_key: str) -> Partition | None:
        """Return a partition: as this owner last wrote it if it holds the lease, else as it is stored now."""
        held = self._leases.find(partition_key)
        return held if held is not None else self._view.get(partition_key)

    def settle(
        self,
        seen: Partition,
        change: Change,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
        requires_trust: bool = False,
    ) -> Partition:
        """Write a change of a partition, as `settle_steps` does; return the partition as written.

        :raises Exception: see `settle_steps`.
        """
        process = self.settle_steps(
            seen, change, update=update, create=create, unchanged=unchanged, requires_trust=requires_trust
        )
        return run_alone(process, self._leases.change_each)

    def settle_steps(
        self,
        seen: Partition,
        change: Change,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
        requires_trust: bool = False,
    ) -> Steps[Partition]:
        """Write a change of a partition and other items of the same decision, in one transaction.

        If this owner holds the partition, its lease is used; otherwise the write is conditional on the version only.

        :param seen: the partition as `current` returned it.
        :param change: returns the new value; it depends only on the partition's progress and status.
        :param update: items to update, if the stored version of each one matches its `version`.
        :param create: items to create unless they exist.
        :param unchanged: items that must not have changed since they were read.
        :param requires_trust: whether to refuse if this owner does not hold the lease, or no longer trusts it.
        :returns: the partition as written.
        :raises PartitionUpdateError: if one of them has changed; nothing is written then. Decide again.
        :raises PartitionNotOwnedError: if this owner held the lease, and has lost it.
        """
        key = seen.partition_key
        if not requires_trust and not self._leases.holds(key):
            return self._view.store.transact(update=[change(seen), *update], create=create, unchanged=unchanged)[0]
        self._view.require_initialized()
        with self._events.counting_errors():
            written = yield LeaseChange(
                partition_key=key,
                change=change,
                requires_trust=requires_trust,
                update=update,
                create=create,
                unchanged=unchanged,
            )
        return written

    def run_in_lockstep(self, processes: Sequence[Steps[T]]) -> list[T | Exception]:
        """Run several processes that write to partitions in lockstep; see `lockstep.run_in_lockstep`."""
        return run_in_lockstep(processes, self._leases.change_each)

    def remove(self, seen: Partition) -> bool:
        """Delete a completed partition; return whether it was deleted.

        :param seen: the COMPLETED partition as it was read. If it has changed since, it is not deleted.
        """
        self._view.require_initialized()
        try:
            self._view.store.delete(seen)
        except PartitionUpdateError:
            return False
        self._events.count(CoordinationMetric.PARTITIONS_DELETED)
        log.info("partition removed: source=%s partition=%s", self._view.source, seen.partition_key)
        return True

    # New values of a partition

    def renewed(self, partition: Partition) -> Partition:
        """Return a partition whose lease lasts for one ownership timeout from now, or longer if it already does."""
        return self._leases.renewed(partition)

    def failed(self, partition: Partition, error: str) -> Partition:
        """Return a partition with one more failure, in the status that the retry policy decides.

        It is available at once, waits before the next retry, or is parked.

        :param error: the reason, which is stored with the partition.
        """
        now = self._view.clock.now()
        counted = partition.failed(storable(error))
        delay = self._retry_policy.delay_after(counted.attempts)
        if delay == timedelta(0):
            return counted.given_up(now)
        return counted.resting(PARKED_UNTIL if delay is None else now + delay)

    def parked(self, partition: Partition, reason: str) -> Partition:
        """Return a partition that is parked until a user, or the code that parked it, reopens it.

        :param reason: the reason, which is stored as its last error.
        """
        return partition.failed(storable(reason)).resting(PARKED_UNTIL)
