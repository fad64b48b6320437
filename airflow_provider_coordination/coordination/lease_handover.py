"""Moves a lease from one owner to another: given, adopted, or taken by force. `Balancer` decides which."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

from airflow_provider_coordination.coordination.leases import LeaseChange, Leases
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import ChangeKind, Partition
from airflow_provider_coordination.coordination.partition_events import PartitionEvents
from airflow_provider_coordination.coordination.source_view import SourceView

log = logging.getLogger(__name__)


class LeaseHandover:
    """The operations of one owner to give a lease to another owner, or to get one.

    :param view: the view of the source.
    :param leases: the owner's leases in the family of the source's partitions.
    :param events: where events are logged and counted.
    """

    def __init__(self, view: SourceView, leases: Leases, events: PartitionEvents) -> None:
        self._view = view
        self._leases = leases
        self._events = events

    def give(self, partition_key: str, to: str, *, unchanged: Sequence[Partition] = ()) -> Partition:
        """Make another owner the holder of a partition; see `give_each`.

        :raises Exception: the error that `give_each` returns for it.
        """
        [result] = self.give_each([partition_key], to, unchanged=unchanged).values()
        if isinstance(result, Exception):
            raise result
        return result

    def give_each(
        self, partition_keys: Sequence[str], to: str, *, unchanged: Sequence[Partition] = ()
    ) -> dict[str, Partition | Exception]:
        """Make another owner the holder of partitions, each in one write, so that no other owner can acquire it.

        :param to: the new owner, which adopts them with `adopt_each`. If it never does, the leases expire.
        :param unchanged: items that this decision depends on, as they were read.
        :returns: by key, the partition, which this owner no longer holds; `PartitionNotOwnedError` if another owner has
            it already; `PartitionUpdateError` if one of `unchanged` has changed, and nothing was written; or another
            error of `Leases.change_each`.
        """
        self._view.require_initialized()
        now = self._view.clock.now()

        def handed_over(partition: Partition) -> Partition:
            acquired = partition.acquired(to, now + self._leases.ownership_timeout, now)
            return acquired.because(ChangeKind.HANDED_OVER)

        changes = [
            LeaseChange(partition_key=key, change=handed_over, requires_trust=False, unchanged=unchanged)
            for key in partition_keys
        ]
        results = dict(zip(partition_keys, self._leases.change_each(changes), strict=True))
        for key, result in results.items():
            if isinstance(result, Exception):
                with suppress(type(result)), self._events.counting_errors():
                    raise result
                continue
            self._events.count(CoordinationMetric.HANDOVERS_GIVEN)
            log.info(
                "partition handed over: source=%s partition=%s owner=%s new_owner=%s",
                self._view.source, key, self._leases.owner, to,
            )  # fmt: skip
        return results

    def adopt(self, partition_key: str) -> Partition | None:
        """Start to hold a partition that its previous owner has handed over to this one; see `adopt_each`.

        :returns: the partition; None if it is not leased to this owner.
        """
        return next(iter(self.adopt_each([partition_key])), None)

    def adopt_each(self, partition_keys: Sequence[str]) -> list[Partition]:
        """Start to hold partitions that their previous owners have handed over to this one.

        :returns: the partitions that are leased to this owner and were not held before.
        """
        new = [key for key in partition_keys if not self._leases.holds(key)]
        adopted = self._leases.adopt_each(new) if new else []
        if adopted:
            self._events.acquired(adopted)
        return adopted

    def take_over(self, partition_key: str, owner: str) -> Partition | None:
        """Lease a partition that another owner should have handed over but did not; its next write is refused.

        :returns: the partition; None if that owner no longer holds it.
        """
        taken = self._leases.take_over(partition_key, owner)
        if taken is not None:
            log.warning(
                "partition taken by force, because its owner did not hand it over: source=%s partition=%s owner=%s",
                self._view.source, partition_key, owner,
            )  # fmt: skip
            self._events.count(CoordinationMetric.HANDOVERS_FORCED)
            self._events.acquired([taken])
        return taken
