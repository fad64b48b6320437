"""Several transactions in few requests: those that have nothing in common go to the store as one.

Each is refused or written for itself, as its caller sees it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from airflow_provider_coordination.coordination.errors import ProgressError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, progress_text
from airflow_provider_coordination.coordination.store import CoordinationStore

MAX_BYTES = 2 * 1024 * 1024
"""How much one transaction writes at most; DynamoDB takes 4 MB, all that an item has beside its progress included."""

Place = tuple[str, str]
"""The family and the key of an item."""
Outcome = list[Partition] | Exception
"""The updated partitions as written; or why nothing was written, or nobody knows whether anything was."""


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """What is written together or not at all; see `CoordinationStore.transact`.

    :param update: written if the stored version is the one that each carries.
    :param create: written if absent.
    :param new: written, and must be absent.
    :param unchanged: only checked.
    """

    update: Sequence[Partition] = ()
    create: Sequence[Partition] = ()
    new: Sequence[Partition] = ()
    unchanged: Sequence[Partition] = ()

    @property
    def items(self) -> Iterator[Partition]:
        """All that it writes or checks."""
        return chain(self.update, self.create, self.new, self.unchanged)


def transact_each(store: CoordinationStore, transactions: Sequence[Transaction]) -> list[Outcome]:
    """Do several transactions in as few requests as the store takes.

    One that is refused holds no other: what was refused together is tried in halves. Once the store does not answer,
    nothing more is tried: the error is the outcome of all that is left.

    :returns: the outcome of each, in their order. What was tried when the store did not answer may be written.
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
            unchanged=list({_place(item): item for each in group for item in each.unchanged}.values()),
        )
    except StoreUnavailableError as error:
        return [error] * len(group)
    except Exception as error:  # whatever it is, each alone either meets it or is written
        if len(group) == 1:
            return [error]
    else:
        left = iter(written)
        return [[next(left) for _ in each.update] for each in group]
    middle = len(group) // 2
    first = _transact(store, group[:middle])
    if isinstance(away := first[-1], StoreUnavailableError):
        return [*first, *[away] * (len(group) - middle)]
    return [*first, *_transact(store, group[middle:])]


def _groups(transactions: Sequence[Transaction], max_items: int) -> Iterator[Sequence[Transaction]]:
    """Yield the transactions in groups that may go as one.

    In none is an item of two, unless both only check that it is of the same version: what one decision rests on,
    another one of the group might change.
    """
    group: list[Transaction] = []
    places: set[Place] = set()
    checked: dict[Place, int] = {}
    size = 0
    for each in transactions:
        its_checked = {_place(item): item.version for item in each.unchanged}
        its_places = {_place(item) for item in each.items}
        its_size = sum(map(_size, chain(each.update, each.create, each.new)))
        common = {place for place in places & its_places if checked.get(place) != its_checked.get(place, -1)}
        is_full = len(places | its_places) > max_items or size + its_size > MAX_BYTES
        if group and (is_full or common):
            yield group
            group, places, checked, size = [], set(), {}, 0
        group.append(each)
        places |= its_places
        checked |= its_checked
        size += its_size
    if group:
        yield group


def _place(item: Partition) -> Place:
    return item.source_identifier, item.partition_key


def _size(item: Partition) -> int:
    """Return about how many bytes an item has; of one that cannot be stored, as many as let it go alone."""
    try:
        return len(progress_text(item))
    except ProgressError:
        return MAX_BYTES
