"""Runs several transactions in few requests: unrelated ones go to the store together.

To its caller, each transaction is written or refused separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from airflow_provider_coordination.coordination.errors import ProgressError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, progress_text
from airflow_provider_coordination.coordination.store import CoordinationStore

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
