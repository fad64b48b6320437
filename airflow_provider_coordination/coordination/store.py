"""The seam between coordination and the places where partitions are kept.

A store is dumb on purpose: it writes what it is told if the version still matches, and finds partitions in order.
Acquisition is the one decision it takes part in, because each store has its own best way to make it atomic.
One contract suite (`tests/stores/test_store_contract.py`) holds for all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from airflow_provider_coordination.coordination.browsing import EXAMINED_AT_ONCE, Browsed, Filter, Order, Place
from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus


@dataclass(frozen=True, kw_only=True)
class Acquisition:
    """What an owner asks a store for.

    :param source_identifier: the item family to take from.
    :param owner: who asks.
    :param limit: at most so many partitions.
    :param ownership_timeout: until when the leases run (aware, UTC).
    :param available_by: take only what is available at this instant: UNASSIGNED queued, or CLOSED due, by then.
    :param expired_by: take only ASSIGNED partitions whose lease had ended by this instant.
    """

    source_identifier: str
    owner: str
    limit: int
    ownership_timeout: datetime
    available_by: datetime
    expired_by: datetime


class CoordinationStore(Protocol):
    """Where partitions are kept. Every method may raise `StoreUnavailableError`: what it did is not known then."""

    @property
    def kind(self) -> str:
        """What it is, for metrics and logs: `in_memory`, `sqlite`, `postgresql`, `mysql`, `mariadb` or `dynamodb`."""
        ...

    @property
    def transaction_items(self) -> int:
        """How many items one transaction takes, those that are only checked included."""
        ...

    @property
    def joins_cheaply(self) -> bool:
        """Whether writes that have nothing to do with each other cost no more in one transaction than each alone."""
        ...

    def initialize(self) -> None:
        """Make the store ready to use; harmless when it already is, and when several processes do it at once."""
        ...

    def close(self) -> None:
        """Release connections; the store is not used afterwards."""
        ...

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        """Write each partition whose key is absent; return the keys that were written."""
        ...

    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        """Return the partition as it is now, or None if there is none."""
        ...

    def get_each(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        """Return those of these partitions that exist, by key, as each is now; many are asked for at once."""
        ...

    def known(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        """Return which of these partitions exist, as of now; many are asked for at once."""
        ...

    def acquire(self, request: Acquisition) -> list[Partition]:
        """Lease up to `limit` partitions to the owner, each atomically, and return them as written.

        In order: ASSIGNED whose lease expired, then CLOSED that are due, then UNASSIGNED; oldest first in each. A
        worker that meets others in the queue may pass over what they are taking. A store may ask statuses in which
        nothing was due some seconds ago after the others. Each still tells, by its `change`, what it was before.
        """
        ...

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        """Do all of it or nothing; return the updated partitions as written, one version on.

        :param update: written if the stored version is the one that each carries.
        :param create: written if absent, left as it is if present.
        :param new: written, and must be absent.
        :param unchanged: only checked: the stored version must be the one that each carries.
        :raises PartitionUpdateError: if a version did not match, or one of `new` exists; nothing was written.
        """
        ...

    def delete(self, partition: Partition) -> None:
        """Delete it if the stored version is the one it carries.

        :raises PartitionUpdateError: if it is not.
        """
        ...

    def query(
        self,
        source_identifier: str,
        status: PartitionStatus,
        *,
        since: datetime | None = None,
        after: Partition | None = None,
        limit: int = 500,
    ) -> list[Partition]:
        """Return a page of partitions of a status in order of priority, then key.

        :param since: only those whose priority is at this instant or later; for COMPLETED, when they were completed.
        :param after: the last partition of the page before; None for the first page.
        :param limit: at most so many; fewer means that the page is the last.
        """
        ...

    def browse(
        self,
        source_identifier: str,
        wanted: Filter,
        *,
        order: Order = Order.KEY,
        descending: bool = False,
        after: Place | None = None,
        limit: int = 100,
        examine: int = EXAMINED_AT_ONCE,
    ) -> Browsed:
        """Return a page of the partitions that are wanted, for a person to look at.

        It may be a little behind what was written last.

        :param order: what they are put in order by.
        :param descending: the last first.
        :param after: the `next` of the page before; None for the first page.
        :param limit: at most so many partitions.
        :param examine: so many partitions are looked at, about: then the page is what was found so far.
        :raises ConfigurationError: if the filter or the place does not fit the order.
        """
        ...

    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        """Return how many partitions each of these statuses has, zeros included."""
        ...

    def source_identifiers(self) -> list[str]:
        """Return the item families that the store holds, sorted; some stores must read everything for it."""
        ...


def all_partitions(
    store: CoordinationStore, source_identifier: str, *statuses: PartitionStatus, since: datetime | None = None
) -> Iterator[Partition]:
    """Yield the partitions of these statuses, of all by default, reading page by page.

    :param since: only those whose priority is at this instant or later.
    """
    for status in statuses or PartitionStatus:
        last: Partition | None = None
        while page := store.query(source_identifier, status, since=since, after=last):
            yield from page
            last = page[-1]


def completed_last(store: CoordinationStore, source_identifier: str, at_a_time: int) -> Iterator[Browsed]:
    """Yield the COMPLETED partitions, those that were completed last first, page by page.

    :param at_a_time: so many a page, at most.
    """
    place: Place | None = None
    while True:
        browsed = store.browse(
            source_identifier,
            Filter(statuses=(PartitionStatus.COMPLETED,)),
            order=Order.PRIORITY,
            descending=True,
            after=place,
            limit=at_a_time,
            examine=at_a_time,
        )
        yield browsed
        if browsed.next is None:
            return
        place = browsed.next


def acquisition_order(request: Acquisition) -> list[tuple[PartitionStatus, datetime]]:
    """Return the statuses to take from, in order, each with the latest priority it may have.

    The order is Data Prepper's documented one; its newer code asks UNASSIGNED before CLOSED, so that a queue
    that never empties starves whatever was put aside.
    """
    return [
        (PartitionStatus.ASSIGNED, request.expired_by),
        (PartitionStatus.CLOSED, request.available_by),
        (PartitionStatus.UNASSIGNED, request.available_by),
    ]


def is_available(partition: Partition, now: datetime, *, expired_by: datetime | None = None) -> bool:
    """Tell whether one partition may be acquired, as `acquisition_order` says for a queue of them.

    :param expired_by: for one that is ASSIGNED, by when its lease must have ended; `now`, as if all clocks were one, if
        not given.
    """
    if partition.status is PartitionStatus.COMPLETED:
        return False
    leased = partition.status is PartitionStatus.ASSIGNED
    return partition.priority <= (expired_by if leased and expired_by is not None else now)


def version_refused(partition: Partition) -> PartitionUpdateError:
    """Return the error for a write whose version did not match."""
    return PartitionUpdateError(
        f"partition {partition.partition_key!r}: the store no longer holds version {partition.version}"
    )


def creation_refused(partition: Partition) -> PartitionUpdateError:
    """Return the error for an item that had to be absent, and is not."""
    return PartitionUpdateError(f"partition {partition.partition_key!r}: the store holds one already")
