"""Read access to a source in its store: its partitions, what can be acquired and when, and whether it is suspended.

Reading needs no owner and changes no partition.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.browsing import Filter, PageRequest
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import UninitializedCoordinatorError
from airflow_provider_coordination.coordination.held_leases import DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.history import FAMILY as HISTORY_FAMILY
from airflow_provider_coordination.coordination.history import History
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    UNFINISHED,
    Partition,
    PartitionStatus,
    check_partition_key,
    new_partition,
    source_identifier,
)
from airflow_provider_coordination.coordination.store import PAGE_ITEMS, CoordinationStore, all_partitions, is_available
from airflow_provider_coordination.coordination.suspension import FAMILY as SUPERVISOR_FAMILY
from airflow_provider_coordination.coordination.suspension import Suspension, Suspensions

log = logging.getLogger(__name__)

GLOBAL_STATE_FAMILY = "GLOBAL_STATE"
GLOBAL_STATE_KEY = "GLOBAL_STATE_SOURCE_PARTITION_KEY_FOR_CREATING_PARTITIONS"
"""The item of the state of a source's supplier; its names are Data Prepper's."""


class SourceView:
    """Reads one source from its store. Safe to use from several threads.

    :param store: the store of the partitions.
    :param source: the name of the source, without `|`.
    :param prefix: separates installations that share a store; None for no prefix.
    :param safety_margin: how long after its end a lease can be acquired, because the clocks of two machines may differ.
    :param clock: the source of time.
    :raises ConfigurationError: if a name is not valid.
    """

    def __init__(
        self,
        store: CoordinationStore,
        source: str,
        *,
        prefix: str | None = None,
        safety_margin: timedelta = DEFAULT_SAFETY_MARGIN,
        clock: Clock | None = None,
    ) -> None:
        self.store = store
        self.source = source
        self.safety_margin = safety_margin
        self.clock = clock or SystemClock()
        self.prefix = prefix
        self.source_identifier = self.family("PARTITION")
        self.history = History(store, self.family(HISTORY_FAMILY))
        self.suspensions = Suspensions(store, self.family(SUPERVISOR_FAMILY), self.clock)
        self._logged_suspension: Suspension | None = None
        self._is_initialized = False

    def initialize(self) -> None:
        """Make the store ready to use. Call it before any other method."""
        self.store.initialize()
        self._is_initialized = True

    def require_initialized(self) -> None:
        """Check that `initialize` was called.

        :raises UninitializedCoordinatorError: if it was not.
        """
        if not self._is_initialized:
            raise UninitializedCoordinatorError(f"source {self.source!r}: call initialize() first")

    def family(self, name: str) -> str:
        """Return the identifier of an item family of this source, such as `ACKNOWLEDGMENT`."""
        return source_identifier(self.source, prefix=self.prefix, family=name)

    def new(self, partition_key: str, progress: Mapping[str, Any]) -> Partition:
        """Return a new partition of this source.

        :raises ConfigurationError: if the key is not valid.
        :raises ProgressError: if the progress cannot be stored.
        """
        check_partition_key(partition_key)
        return new_partition(self.source_identifier, partition_key, self.clock.now()).with_progress(progress)

    # Partitions

    def get(self, partition_key: str) -> Partition | None:
        """Return the partition as it is stored now, whichever owner holds it; None if it does not exist."""
        self.require_initialized()
        return self.store.get(self.source_identifier, partition_key)

    def get_many(self, partition_keys: Sequence[str]) -> dict[str, Partition]:
        """Return the partitions that exist, by key, as they are stored now."""
        self.require_initialized()
        return self.store.get_many(self.source_identifier, partition_keys) if partition_keys else {}

    def partitions(self, *statuses: PartitionStatus) -> Iterator[Partition]:
        """Yield the partitions with these statuses, all by default, reading page by page."""
        self.require_initialized()
        return all_partitions(self.store, self.source_identifier, *statuses)

    def partitions_by_key(self, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)) -> Iterator[Partition]:
        """Yield partitions in the order of their keys: a change from one of the statuses to another hides none.

        One that is created during that time may be missed.

        :param statuses: those of the partitions to yield; all by default.
        """
        self.require_initialized()
        wanted = Filter(statuses=tuple(statuses))
        request = PageRequest(source_identifier=self.source_identifier, wanted=wanted, limit=PAGE_ITEMS)
        while True:
            page = self.store.browse(request)
            yield from page.partitions
            if page.next is None:
                return
            request = replace(request, after=page.next)

    def completed_since(self, instant: datetime) -> Iterator[Partition]:
        """Yield the partitions completed at an instant (aware) or later, in the order of their completion."""
        self.require_initialized()
        return all_partitions(self.store, self.source_identifier, PartitionStatus.COMPLETED, since=instant)

    def parked(self) -> Iterator[Partition]:
        """Yield the partitions that only a user reopens."""
        self.require_initialized()
        return all_partitions(self.store, self.source_identifier, PartitionStatus.CLOSED, since=PARKED_UNTIL)

    def count_by_status(self) -> dict[PartitionStatus, int]:
        """Return the number of partitions of each status, including zeros."""
        self.require_initialized()
        return self.store.count_by_status(self.source_identifier)

    def first(self, status: PartitionStatus) -> Partition | None:
        """Return the first partition in the queue of a status; None if the queue is empty."""
        self.require_initialized()
        return next(iter(self.store.query(self.source_identifier, status, limit=1)), None)

    def is_empty(self) -> bool:
        """Return whether it has neither partitions nor a state of its supplier: it may begin as any source."""
        if any(self.first(status) is not None for status in PartitionStatus):
            return False
        item = self.supplier_item()
        return item is None or (item.unreadable_progress is None and not item.progress)

    # Availability

    def is_available(self) -> bool:
        """Return whether a worker could acquire a partition now; always False for a suspended source."""
        firsts = map(self.first, UNFINISHED)
        # The suspension is read only if there is a partition to acquire.
        return any(first is not None and self.may_acquire(first) for first in firsts) and self.suspension() is None

    def may_acquire(self, partition: Partition) -> bool:
        """Return whether a worker could acquire this partition now."""
        now = self.clock.now()
        return is_available(partition, now, expired_by=now - self.safety_margin)

    def available_at(self, partition: Partition) -> datetime:
        """Return when a worker could acquire this unfinished partition, if it does not change (aware)."""
        leased = partition.status is PartitionStatus.ASSIGNED
        return partition.priority + (self.safety_margin if leased else timedelta(0))

    def next_reopening(self) -> datetime | None:
        """Return when the next CLOSED partition reopens; None if none does, or only by a user's action."""
        first = self.first(PartitionStatus.CLOSED)
        return first.priority if first is not None and not first.is_parked else None

    # The source as a whole

    def suspension(self) -> Suspension | None:
        """Return the suspension of the source, at most a few seconds old; None if it is not suspended.

        While it is suspended, nothing is acquired and no supplier runs. Held leases can be finished as usual.
        """
        self.require_initialized()
        suspension = self.suspensions.recent()
        if suspension != self._logged_suspension:
            self._logged_suspension = suspension
            if suspension is None:
                log.warning("source resumed: source=%s", self.source)
            else:
                log.warning("source is %s: no new work starts: source=%s", suspension, self.source)
        return suspension

    def supplier_state(self) -> Mapping[str, Any]:
        """Return the state that the source's supplier stored last; empty if there is none or it is unreadable."""
        item = self.supplier_item()
        return {} if item is None else item.progress

    def supplier_item(self) -> Partition | None:
        """Return the item with the lease and the state of the source's supplier; None if none ever ran."""
        self.require_initialized()
        return self.store.get(self.family(GLOBAL_STATE_FAMILY), GLOBAL_STATE_KEY)
