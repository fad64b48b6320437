"""Messages of a queue that are kept until what they announce is delivered, by every sink.

A message that was received is kept as an item of the source: what deletes it, and the partitions that hold what it
announces. `tend` looks at all of them: it deletes the messages whose partitions are COMPLETED, and hides the others
for longer. Any process may do it, and several may do it at once. Where nobody does, a message is received again; that
only renews the item.

A message is let go if its data cannot be delivered without a user: its partition is parked, or does not exist any more.
It becomes visible again, is received again, and the queue's redrive policy moves it to its dead-letter queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum, auto

from airflow_provider_coordination.coordination.browsing import Filter, PageRequest
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, SourceError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, new_partition
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import Transaction, all_partitions, transact_each
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.kinds import kind_of
from airflow_provider_coordination.sources.queues import LONGEST_SECONDS, Message, Queue, QueueAddress

log = logging.getLogger(__name__)

FAMILY = "QUEUE_MESSAGE"
HIDDEN = timedelta(hours=1)
"""How long a message is hidden at a time: longer than most deliveries, so that most are never hidden again."""
LONGEST = timedelta(seconds=LONGEST_SECONDS) - timedelta(minutes=1)
READ_TOGETHER = 500


@dataclass(frozen=True, kw_only=True)
class Announced:
    """Something that a message announces, and the partition that it belongs to.

    :param name: the name that the partition claims for it.
    :param family: the item family of the partition: of this source, or of one with the same claims.
    :param partition: the key of the partition.
    """

    name: str
    family: str
    partition: str


@dataclass(frozen=True, kw_only=True)
class KeptMessage:
    """A message that is kept, as the store has it.

    :param queue: where its queue is.
    :param handle: what deletes it.
    :param received_at: when it was received last (aware).
    :param hidden_until: until when nobody else receives it (aware).
    :param announced: what it announces.
    """

    queue: QueueAddress
    handle: str
    received_at: datetime
    hidden_until: datetime
    announced: tuple[Announced, ...]


class _Fate(IntEnum):
    """What becomes of something that is announced; the greatest one decides about its message."""

    DELIVERED = auto()
    OPEN = auto()
    LOST = auto()


class KeptMessages:
    """The messages that a source keeps.

    :param view: of the source, initialized.
    """

    def __init__(self, view: SourceView) -> None:
        self._store = view.store
        self._family = view.family(FAMILY)
        self._source = view.source
        self._clock = view.clock

    def keep(self, queue: QueueAddress, found: Mapping[Message, Sequence[Announced]], received_at: datetime) -> None:
        """Keep messages that were received, again or for the first time.

        :param queue: where they were received.
        :param found: what each one announces; all of it belongs to a partition.
        :param received_at: when they were received (aware); they are hidden for `HIDDEN` since then.
        """
        known = self._store.get_many(self._family, [message.id for message in found])
        transactions = []
        for message, announced in found.items():
            kept = KeptMessage(
                queue=queue,
                handle=message.handle,
                received_at=received_at,
                hidden_until=received_at + HIDDEN,
                announced=tuple(announced),
            )
            item = known.get(message.id) or new_partition(self._family, message.id, self._clock.now())
            item = item.with_progress(write_settings(kept))
            transactions.append(Transaction(update=[item]) if message.id in known else Transaction(new=[item]))
        self._write(transactions)

    def queues(self) -> set[QueueAddress]:
        """Return the queue of the oldest kept message; empty if none is kept."""
        oldest = self._store.query(self._family, PartitionStatus.UNASSIGNED, limit=1)
        return {_kept(item).queue for item in oldest}

    def tend(self, opened: Callable[[QueueAddress], Queue]) -> int:
        """Delete the messages whose data is delivered, and hide the others for longer; return how many are kept.

        :param opened: returns a queue by its address.
        :raises ConfigurationError: if a queue does not exist, or access is denied.
        :raises SourceUnavailableError: if a queue does not respond.
        """
        left = 0
        items: list[Partition] = []
        for item in all_partitions(self._store, self._family, PartitionStatus.UNASSIGNED):
            items.append(item)
            if len(items) == READ_TOGETHER:
                left += self._tend(items, opened)
                items = []
        return left + (self._tend(items, opened) if items else 0)

    def forget(self) -> None:
        """Let all messages go: they are received again."""
        self._remove(all_partitions(self._store, self._family, PartitionStatus.UNASSIGNED))

    def _tend(self, items: Sequence[Partition], opened: Callable[[QueueAddress], Queue]) -> int:
        kept = {item.partition_key: _kept(item) for item in items}
        fates = self._fates([each for message in kept.values() for each in message.announced])
        by_queue: dict[QueueAddress, list[Partition]] = {}
        for item in items:
            by_queue.setdefault(kept[item.partition_key].queue, []).append(item)
        left = 0
        for address, of_queue in by_queue.items():
            by_fate: dict[_Fate, list[Partition]] = {fate: [] for fate in _Fate}
            for item in of_queue:
                by_fate[max(fates[each] for each in kept[item.partition_key].announced)].append(item)
            left += len(by_fate[_Fate.OPEN]) + self._delete(opened(address), by_fate[_Fate.DELIVERED])
            left -= self._hide(opened(address), by_fate[_Fate.OPEN])
            if lost := by_fate[_Fate.LOST]:
                log.warning(
                    "%d messages are let go, because their partitions are parked or gone; the queue's redrive policy "
                    "decides about them: source=%s partition=%s",
                    len(lost), self._source, kept[lost[0].partition_key].announced[0].partition,
                )  # fmt: skip
                self._remove(lost)
        return left

    def _delete(self, queue: Queue, items: Sequence[Partition]) -> int:
        """Delete messages, then their items; return how many are left for the next time."""
        handles = {_kept(item).handle: item for item in items}
        left = set(queue.delete(list(handles))) if handles else set()
        self._remove(item for handle, item in handles.items() if handle not in left)
        if handles:
            log.info("%d messages deleted, their data is delivered: source=%s", len(handles) - len(left), self._source)
        return len(left)

    def _hide(self, queue: Queue, items: Iterable[Partition]) -> int:
        """Hide messages for longer that are due; return how many are let go, since they are hidden no more."""
        now = self._clock.now()
        due: dict[timedelta, list[tuple[Partition, KeptMessage]]] = {}
        for item in items:
            kept = _kept(item)
            if kept.hidden_until - now <= HIDDEN / 2:
                for_seconds = timedelta(seconds=(min(HIDDEN, kept.received_at + LONGEST - now)).total_seconds() // 1)
                due.setdefault(for_seconds, []).append((item, kept))
        let_go, writes = [], []
        for length, messages in due.items():
            handles = [kept.handle for _, kept in messages]
            visible = set(queue.hide(handles, int(length.total_seconds())) if length > timedelta(0) else handles)
            for item, kept in messages:
                if kept.handle in visible:
                    let_go.append(item)
                else:
                    later = write_settings(replace(kept, hidden_until=now + length))
                    writes.append(Transaction(update=[item.with_progress(later)]))
        self._write(writes)
        self._remove(let_go)
        return len(let_go)

    def _fates(self, announced: Sequence[Announced]) -> dict[Announced, _Fate]:
        keys: dict[str, dict[str, None]] = {}
        for each in announced:
            keys.setdefault(each.family, {})[each.partition] = None
        found = {family: self._store.get_many(family, list(of_family)) for family, of_family in keys.items()}
        failed = {
            (family, key): _failed_names(partition)
            for family, partitions in found.items()
            for key, partition in partitions.items()
            if partition.status is PartitionStatus.COMPLETED
        }
        fates = {}
        for each in announced:
            partition = found[each.family].get(each.partition)
            index = failed.get((each.family, each.partition), {}).get(each.name)
            fates[each] = _fate(partition if index is None else self._split(each, index))
        return fates

    def _split(self, announced: Announced, index: int) -> Partition | None:
        """Return the partition that an item became because it could not be read; None if it is not found."""
        wanted = Filter(prefix=f"{announced.partition}#{index}.")
        page = self._store.browse(PageRequest(source_identifier=announced.family, wanted=wanted, limit=1))
        return next(iter(page.partitions), None)

    def _remove(self, items: Iterable[Partition]) -> None:
        for item in items:
            with suppress(PartitionUpdateError):  # received again, or another process removed it
                self._store.delete(item)

    def _write(self, transactions: Sequence[Transaction]) -> None:
        for outcome in transact_each(self._store, transactions):
            if isinstance(outcome, Exception) and not isinstance(outcome, PartitionUpdateError):
                raise outcome


def _kept(item: Partition) -> KeptMessage:
    return read_settings(KeptMessage, "kept message", item.progress)


def _fate(partition: Partition | None) -> _Fate:
    if partition is None or partition.is_parked:
        return _Fate.LOST
    return _Fate.DELIVERED if partition.status is PartitionStatus.COMPLETED else _Fate.OPEN


def _failed_names(partition: Partition) -> dict[str, int]:
    """Return the names of the items that could not be read, each with its index."""
    try:
        kind = kind_of(partition.progress)
        progress = None if kind is None else kind.progress(partition.progress)
    except SourceError:
        return {}
    if kind is None or not isinstance(progress, PartitionProgress):
        return {}
    names = kind.claims_of(progress) if progress.failed else ()
    return dict(_named(names, [failed.item for failed in progress.failed]))


def _named(names: Sequence[str], indices: Iterable[int]) -> Iterator[tuple[str, int]]:
    return ((names[index], index) for index in indices if index < len(names))
