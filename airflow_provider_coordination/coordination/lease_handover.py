"""One lease from one owner to another: given, taken up, or taken by force. `Balancer` decides which."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from airflow_provider_coordination.coordination.leases import Leases
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import ChangeKind, Partition
from airflow_provider_coordination.coordination.partition_events import PartitionEvents
from airflow_provider_coordination.coordination.source_view import SourceView

log = logging.getLogger(__name__)


class LeaseHandover:
    """What one owner does to give a lease to another owner, or to get one.

    :param view: of the source.
    :param leases: of the owner, in the family of the source's partitions.
    :param events: where to note what happened.
    """

    def __init__(self, view: SourceView, leases: Leases, events: PartitionEvents) -> None:
        self._view = view
        self._leases = leases
        self._events = events

    def give(self, partition_key: str, to: str, *, unchanged: Sequence[Partition] = ()) -> Partition:
        """Make another owner the holder of a partition, in one write: nobody else can acquire it in between.

        :param to: the new owner, which finds it by `adopt`; if it never does, the lease runs out.
        :param unchanged: what this rests on, as it was read.
        :returns: the partition, which this owner holds no more.
        :raises PartitionNotOwnedError: if somebody else has it already.
        :raises PartitionUpdateError: if one of `unchanged` has changed; nothing was written.
        """
        self._view.require_initialized()
        now = self._view.clock.now()
        with self._events.counting_errors():
            written = self._leases.change(
                partition_key,
                lambda p: p.acquired(to, now + self._leases.ownership_timeout, now).because(ChangeKind.HANDED_OVER),
                needs_trust=False,
                unchanged=unchanged,
            )
        self._events.count(CoordinationMetric.HANDOVERS_GIVEN)
        log.info(
            "partition handed over: source=%s partition=%s owner=%s new_owner=%s",
            self._view.source, partition_key, self._leases.owner, to,
        )  # fmt: skip
        return written

    def adopt(self, partition_key: str) -> Partition | None:
        """Begin to hold a partition that its former owner has handed over to this one.

        :returns: the partition; None if it is not this owner's.
        """
        if self._leases.holds(partition_key) or (adopted := self._leases.adopt(partition_key)) is None:
            return None
        self._events.acquired([adopted])
        return adopted

    def take_over(self, partition_key: str, owner: str) -> Partition | None:
        """Lease a partition that another owner should have handed over and did not; its next write is refused.

        :returns: the partition; None if that owner holds it no more.
        """
        taken = self._leases.take_over(partition_key, owner)
        if taken is not None:
            log.warning(
                "partition taken from its owner, which did not hand it over: source=%s partition=%s owner=%s",
                self._view.source, partition_key, owner,
            )  # fmt: skip
            self._events.count(CoordinationMetric.HANDOVERS_FORCED)
            self._events.acquired([taken])
        return taken
