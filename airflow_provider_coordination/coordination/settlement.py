"""What becomes of partitions whoever owns them: their batches are delivered or not, their data is gone.

Conditional on the version alone where nobody's lease is at hand, since what is delivered is delivered, whoever says so.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TypeVar

from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.leases import Change, LeaseChange, Leases
from airflow_provider_coordination.coordination.lockstep import Steps, alone, in_step
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition
from airflow_provider_coordination.coordination.partition_events import PartitionEvents
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.storable_text import storable

log = logging.getLogger(__name__)

T = TypeVar("T")


class Settling:
    """Settles partitions of one source, for acknowledgment sets and for what creates and cleans up partitions.

    :param view: of the source.
    :param leases: of whoever acts, in the family of its partitions; what these hold is written through them.
    :param events: where to note what happened.
    :param retry_policy: what becomes of partitions that fail.
    """

    def __init__(self, view: SourceView, leases: Leases, events: PartitionEvents, retry_policy: RetryPolicy) -> None:
        self._view = view
        self._leases = leases
        self._events = events
        self._retry_policy = retry_policy

    def current(self, partition_key: str) -> Partition | None:
        """Return a partition as this owner last wrote it, if it holds it, or as the store holds it now."""
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
        needs_trust: bool = False,
    ) -> Partition:
        """Write a change of a partition, as `settling` does; return it as written.

        :raises Exception: what that raises.
        """
        process = self.settling(
            seen, change, update=update, create=create, unchanged=unchanged, needs_trust=needs_trust
        )
        return alone(process, self._leases.change_each)

    def settling(
        self,
        seen: Partition,
        change: Change,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
        needs_trust: bool = False,
    ) -> Steps[Partition]:
        """Write a change of a partition, with other items of the same decision, in one transaction.

        Through the lease if this owner holds the partition; conditional on the version alone if not.

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
        if not needs_trust and not self._leases.holds(key):
            return self._view.store.transact(update=[change(seen), *update], create=create, unchanged=unchanged)[0]
        self._view.require_initialized()
        with self._events.counting_errors():
            written = yield LeaseChange(
                partition_key=key,
                change=change,
                needs_trust=needs_trust,
                update=update,
                create=create,
                unchanged=unchanged,
            )
        return written

    def in_step(self, processes: Sequence[Steps[T]]) -> list[T | Exception]:
        """Take several processes that write to partitions to their ends; see `steps.in_step`."""
        return in_step(processes, self._leases.change_each)

    def remove(self, seen: Partition) -> bool:
        """Delete a partition that is finished for good, as it was read; return whether that was done.

        :param seen: as it was read: COMPLETED. If it has changed since, it stays.
        """
        self._view.require_initialized()
        try:
            self._view.store.delete(seen)
        except PartitionUpdateError:
            return False
        self._events.count(CoordinationMetric.PARTITIONS_DELETED)
        log.info("partition removed: source=%s partition=%s", self._view.source, seen.partition_key)
        return True

    # What a change makes of a partition

    def renewed(self, partition: Partition) -> Partition:
        """Return a partition with its lease running for an ownership timeout from now, or longer where it did."""
        return self._leases.renewed(partition)

    def failed(self, partition: Partition, error: str) -> Partition:
        """Return a partition with one more failure and what the retry policy makes of it: available, resting, parked.

        :param error: why it failed; kept with the partition.
        """
        now = self._view.clock.now()
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
