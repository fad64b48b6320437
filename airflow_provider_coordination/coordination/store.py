"""The interface between coordination and the stores that keep partitions.

A store is simple on purpose: it writes a partition if the stored version still matches, and returns partitions in
order. Acquisition is the one decision that a store takes part in, because each store makes it atomic in its own way.
All stores pass one contract suite (`tests/stores/test_store_contract.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Protocol, TypeVar

from airflow_provider_coordination.coordination.browsing import (
    BrowsePage,
    Filter,
    PageRequest,
    SortOrder,
)
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, ProgressError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, progress_text

T = TypeVar("T")
R = TypeVar("R")

PAGE_ITEMS = 500
"""The maximum number of partitions of a page, unless a caller asks for another number."""
MAX_BYTES = 2 * 1024 * 1024
"""The maximum size of one transaction. DynamoDB accepts 4 MB, including everything in an item besides its progress."""

ItemKey = tuple[str, str]
"""The family and the key of an item."""
Outcome = list[Partition] | Exception
"""The updated partitions as written, or the error: nothing was written unless the store is unavailable."""


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """Items that are written together or not at all; see `CoordinationStore.transact`.

    :param update: items to update, if the stored version of each one matches its `version`.
    :param create: items to create unless they exist.
    :param new: items to create, which must not exist.
    :param unchanged: items that are only checked.
    """

    update: Sequence[Partition] = ()
    create: Sequence[Partition] = ()
    new: Sequence[Partition] = ()
    unchanged: Sequence[Partition] = ()

    @property
    def items(self) -> Iterator[Partition]:
        """All items that it writes or checks."""
        return chain(self.update, self.create, self.new, self.unchanged)


def attempt_each(things: Iterable[T], act: Callable[[T], R]) -> list[R | Exception]:
    """Act on each of several things; return the result or the error of each. An error of one affects no other.

    Once the store is unavailable, nothing more is tried, and that error is the result of all that remain.
    """
    results: list[R | Exception] = []
    outage: StoreUnavailableError | None = None
    for thing in things:
        try:
            results.append(act(thing) if outage is None else outage)
        except StoreUnavailableError as error:
            outage = error
            results.append(error)
        except Exception as error:  # any error is the result of this thing
            results.append(error)
    return results


def transact_each(store: CoordinationStore, transactions: Sequence[Transaction]) -> list[Outcome]:
    """Run several transactions in as few requests as the store allows.

    A refused transaction does not affect the others: a refused group is split into halves and tried again. Once the
    store is unavailable, nothing more is tried, and the error is the outcome of all remaining transactions.

    :returns: the outcome of each transaction, in order. Transactions that were tried when the store became unavailable
        may have been written.
    """
    outcomes: list[Outcome] = []
    for group in _groups(transactions, store.transaction_items):
        last = outcomes[-1] if outcomes else None
        outcomes += [last] * len(group) if isinstance(last, StoreUnavailableError) else _transact(store, group)
    return outcomes


def _transact(store: CoordinationStore, group: Sequence[Transaction]) -> list[Outcome]:
    try:
        written = store.transact(
            update=[item for each in group for item in each.update],
            create=[item for each in group for item in each.create],
            new=[item for each in group for item in each.new],
            unchanged=list({_key(item): item for each in group for item in each.unchanged}.values()),
        )
    except StoreUnavailableError as error:
        return [error] * len(group)
    except Exception as error:  # any error: alone, each transaction either meets it again or is written
        if len(group) == 1:
            return [error]
    else:
        left = iter(written)
        return [[next(left) for _ in each.update] for each in group]
    middle = len(group) // 2
    first = _transact(store, group[:middle])
    if isinstance(unavailable := first[-1], StoreUnavailableError):
        return [*first, *[unavailable] * (len(group) - middle)]
    return [*first, *_transact(store, group[middle:])]


def _groups(transactions: Sequence[Transaction], max_items: int) -> Iterator[Sequence[Transaction]]:
    """Yield the transactions in groups that may be written together.

    No two transactions of a group share an item, unless both only check that it has the same version. Otherwise, one
    could change an item that another one's decision depends on.
    """
    group: list[Transaction] = []
    keys: set[ItemKey] = set()
    checked: dict[ItemKey, int] = {}
    size = 0
    for each in transactions:
        its_checked = {_key(item): item.version for item in each.unchanged}
        its_keys = {_key(item) for item in each.items}
        its_size = sum(map(_size, chain(each.update, each.create, each.new)))
        common = {key for key in keys & its_keys if checked.get(key) != its_checked.get(key, -1)}
        is_full = len(keys | its_keys) > max_items or size + its_size > MAX_BYTES
        if group and (is_full or common):
            yield group
            group, keys, checked, size = [], set(), {}, 0
        group.append(each)
        keys |= its_keys
        checked |= its_checked
        size += its_size
    if group:
        yield group


def _key(item: Partition) -> ItemKey:
    return item.source_identifier, item.partition_key


def _size(item: Partition) -> int:
    """Return the approximate size of an item in bytes. An item that cannot be stored counts as a full transaction."""
    try:
        return len(progress_text(item))
    except ProgressError:
        return MAX_BYTES


@dataclass(frozen=True, kw_only=True)
class Acquisition:
    """An owner's request for leases.

    :param source_identifier: the item family to acquire from.
    :param owner: the owner that requests the leases.
    :param limit: the maximum number of partitions.
    :param ownership_timeout: when the leases end (aware, UTC).
    :param available_by: acquire only partitions that are available at this instant: UNASSIGNED ones queued by then, and
        CLOSED ones due by then.
    :param expired_by: acquire only those ASSIGNED partitions whose lease ended at this instant or before.
    """

    source_identifier: str
    owner: str
    limit: int
    ownership_timeout: datetime
    available_by: datetime
    expired_by: datetime


class CoordinationStore(Protocol):
    """Keeps partitions.

    Every method may raise `StoreUnavailableError`. The caller then does not know whether the store did the work.
    """

    @property
    def kind(self) -> str:
        """The kind of store, for metrics and logs: `in_memory`, `sqlite`, `postgresql`, `mysql`, `mariadb` or
        `dynamodb`."""
        ...

    @property
    def transaction_items(self) -> int:
        """The maximum number of items of one transaction, including those that are only checked."""
        ...

    @property
    def combines_writes_cheaply(self) -> bool:
        """Whether unrelated writes cost no more in one transaction than in one transaction each."""
        ...

    def initialize(self) -> None:
        """Make the store ready to use. Safe to repeat, and safe when several processes do it at once."""
        ...

    def close(self) -> None:
        """Close the connections. The store must not be used afterwards."""
        ...

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        """Write each partition whose key does not exist yet; return the keys that were written."""
        ...

    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        """Return the partition as it is stored now; None if it does not exist."""
        ...

    def get_many(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        """Return the partitions that exist, by key, as they are stored now. Reads many keys in one request."""
        ...

    def existing_keys(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        """Return the keys of the partitions that exist now. Reads many keys in one request."""
        ...

    def acquire(self, request: Acquisition) -> list[Partition]:
        """Lease up to `limit` partitions to the owner, each one atomically, and return them as written.

        In order: ASSIGNED with an expired lease, then CLOSED that are due, then UNASSIGNED; the oldest first in each
        status. A worker that meets other workers in the queue may skip the partitions that they are acquiring. If a
        status had no due partitions a few seconds ago, a store may query it after the others. The `change` of each
        returned partition describes its previous state.
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
        """Write everything or nothing; return the updated partitions as written, with the version increased by one.

        :param update: partitions to update; the stored version of each one must match its `version`.
        :param create: partitions to create; those that exist are left as they are.
        :param new: partitions to create; none of them may exist.
        :param unchanged: partitions that are only checked: the stored version of each one must match its `version`.
        :raises PartitionUpdateError: if a version does not match, or one of `new` exists; nothing is written then.
        """
        ...

    def delete(self, partition: Partition) -> None:
        """Delete a partition if the stored version matches its `version`.

        :raises PartitionUpdateError: if the version does not match.
        """
        ...

    def query(
        self,
        source_identifier: str,
        status: PartitionStatus,
        *,
        since: datetime | None = None,
        after: Partition | None = None,
        limit: int = PAGE_ITEMS,
    ) -> list[Partition]:
        """Return a page of the partitions of a status, ordered by priority, then by key.

        :param since: return only partitions whose priority is this instant or later. The priority of a COMPLETED
            partition is its completion time.
        :param after: the last partition of the previous page; None for the first page.
        :param limit: the maximum number of partitions; a shorter page is the last one.
        """
        ...

    def browse(self, request: PageRequest) -> BrowsePage:
        """Return a page of partitions; it may miss the latest writes.

        :raises ConfigurationError: if the filter or the position does not fit the order.
        """
        ...

    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        """Return the number of partitions of each of these statuses, including zeros."""
        ...

    def source_identifiers(self) -> list[str]:
        """Return the item families in the store, sorted. Some stores must read every item for this."""
        ...


def all_partitions(
    store: CoordinationStore, source_identifier: str, *statuses: PartitionStatus, since: datetime | None = None
) -> Iterator[Partition]:
    """Yield the partitions of these statuses, reading page by page.

    A lease that is renewed during that time moves to the end of its queue; it is yielded once all the same.

    :param statuses: the statuses to read; all by default.
    :param since: yield only partitions whose priority is this instant or later.
    """
    for status in statuses or PartitionStatus:
        last: Partition | None = None
        leased: set[str] = set()
        while page := store.query(source_identifier, status, since=since, after=last, limit=PAGE_ITEMS):
            yield from not_met_before(page, leased)
            if len(page) < PAGE_ITEMS:
                break
            last = page[-1]


def not_met_before(page: Sequence[Partition], leased: set[str]) -> list[Partition]:
    """Return the partitions of a page that a walk has not met; a lease renewed during the walk is met again.

    :param leased: the keys of the leases that the walk has met; those of the page are added.
    """
    new = [partition for partition in page if partition.partition_key not in leased]
    leased.update(partition.partition_key for partition in new if partition.owner is not None)
    return new


def latest_completed(store: CoordinationStore, source_identifier: str, page_size: int) -> Iterator[BrowsePage]:
    """Yield the COMPLETED partitions page by page, the latest completion first.

    :param page_size: the maximum number of partitions per page.
    """
    request = PageRequest(
        source_identifier=source_identifier,
        wanted=Filter(statuses=(PartitionStatus.COMPLETED,)),
        order=SortOrder.PRIORITY,
        descending=True,
        limit=page_size,
        examine=page_size,
    )
    while True:
        page = store.browse(request)
        yield page
        if page.next is None:
            return
        request = replace(request, after=page.next)


def acquisition_order(request: Acquisition) -> list[tuple[PartitionStatus, datetime]]:
    """Return the statuses to acquire from, in order, each with its latest permitted priority.

    This is Data Prepper's documented order. Its newer code queries UNASSIGNED before CLOSED, so a queue that never
    empties starves the partitions that were closed.
    """
    return [
        (PartitionStatus.ASSIGNED, request.expired_by),
        (PartitionStatus.CLOSED, request.available_by),
        (PartitionStatus.UNASSIGNED, request.available_by),
    ]


def is_available(partition: Partition, now: datetime, *, expired_by: datetime | None = None) -> bool:
    """Return whether one partition may be acquired, by the rules of `acquisition_order`.

    :param expired_by: when the lease of an ASSIGNED partition must have ended. The default is `now`, which assumes that
        all clocks agree.
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
    """Return the error for an item that must not exist, but does."""
    return PartitionUpdateError(f"partition {partition.partition_key!r}: it exists in the store already")
