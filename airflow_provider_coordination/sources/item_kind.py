"""Kinds of sources that are divided into items: the package's own, and those that bring only a reader."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from airflow_provider_coordination.aws import AwsSettings, Permission
from airflow_provider_coordination.coordination.acknowledgment import BatchLedger, Lookup, Settlement
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, new_partition
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.coordination.source_claim import shown_value
from airflow_provider_coordination.coordination.supplier import Page, Supplier
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemPosition,
    ItemReader,
    ItemUnreadableError,
    PartitionProgress,
    repair_key,
)
from airflow_provider_coordination.sources.landed import (
    START,
    LandedBatches,
    LandedProgress,
    ProgressFormatError,
    integer_of,
    objects_in,
    text_of,
)
from airflow_provider_coordination.sources.peek import Peek, add_rows
from airflow_provider_coordination.sources.questions import Question
from airflow_provider_coordination.sources.reset_targets import (
    EARLIEST,
    Reread,
    ResetAction,
    ResetPlan,
    ResetStep,
    Target,
)
from airflow_provider_coordination.sources.source_kind import (
    READER,
    Access,
    DatasetName,
    Finder,
    Inspection,
    RangeRepair,
    Settings,
    SourceKind,
)

Datasets = Callable[[Settings], Iterable[DatasetName]]
Left = Callable[[Settings, Settings], Iterable[str]]

ORIGIN = "_origin"
"""The column that names the item of a record; see `RecordLayout`."""
HOW = (READER, "conn_id")
"""The names in a location that decide how items are read, and not which ones."""


class ItemKind(SourceKind):
    """A kind of source that is divided into items.

    :param name: its name.
    :param reader: `module:class` of the reader of its items; None if the settings name the reader.
    :param datasets: returns the datasets that a reader with these settings reads.
    :param reads: see `SourceKind.reads`.
    :param claims: returns the name that the supplier claims for an item; None if it claims none.
    :param size: returns the size of an item in bytes; None if it is not known before reading.
    :param left: returns what a change of the location leaves; see `SourceKind.left`. None for every value that changes,
        except the reader and its connection.
    :param permissions: `module:attribute` of the function that `SourceKind.permissions` calls; None if there is none.
    :param supplier: `module:attribute` of what makes the supplier that finds a source's partitions, with the arguments
        of `SourceKind.supplier`; None if there is none.
    :param is_peeked: whether a preview may run the supplier and the reader: they change nothing, and need no Spark.
    :param questions: see `SourceKind.questions`.
    """

    progress_class = PartitionProgress
    reading = "airflow_provider_coordination.spark.item_reading:ItemSource"

    def __init__(
        self,
        name: str,
        reader: str | None = None,
        datasets: Datasets | None = None,
        *,
        reads: str | None = None,
        claims: Callable[[Mapping[str, Any]], str] | None = None,
        size: Callable[[Mapping[str, Any]], int] | None = None,
        left: Left | None = None,
        supplier: str | None = None,
        permissions: str | None = None,
        is_peeked: bool = False,
        questions: Sequence[Question] = (),
    ) -> None:
        super().__init__(name)
        self.reader = reader
        self.reads = reads
        self._datasets = datasets
        self._claims = claims
        self._size = size
        self._left = left
        self._supplier = supplier
        self._permissions = permissions
        self._is_peeked = is_peeked
        self.questions = questions

    @override
    def supplier(self, described: Any, coordinator: SourceCoordinator, connections: ConnectionResolver) -> Supplier:
        if self._supplier is None:
            return super().supplier(described, coordinator, connections)
        make = import_attribute(self._supplier, f"supplier {self._supplier!r}")
        made: Supplier = make(described, coordinator, connections)
        return made

    @override
    def permissions(
        self, what: str, access: Callable[[str], AwsSettings]
    ) -> tuple[AwsSettings, Sequence[Permission]] | None:
        if self._permissions is None:
            return super().permissions(what, access)
        needed: tuple[AwsSettings, Sequence[Permission]] | None
        needed = import_attribute(self._permissions, "permissions")(what, access)
        return needed

    @property
    @override
    def batches(self) -> BatchLedger:
        return ItemBatches()

    @override
    def rebuilt(
        self, partition_key: str, progress: PartitionProgress, others: Mapping[str, LandedProgress]
    ) -> Mapping[str, LandedProgress]:
        if not progress.is_finished:
            return {partition_key: progress}
        if progress.will_be_reread:
            return {partition_key: progress.for_next_read()}
        known = [
            other.items
            for other in others.values()
            if isinstance(other, PartitionProgress) and other.split_of == partition_key
        ]
        split = progress.split(partition_key)
        return {partition_key: progress, **{key: each for key, each in split.items() if each.items not in known}}

    @override
    def claims_of(self, progress: PartitionProgress) -> Sequence[str]:
        return () if self._claims is None or progress.split_of else [self._claims(item) for item in progress.items]

    @override
    def is_before(self, position: str, other: str) -> bool | None:
        try:
            one, two = ItemPosition.parse(position), ItemPosition.parse(other)
        except ProgressFormatError:
            return None
        if one.item != two.item:
            return one.item < two.item
        return one.within != two.within if not one.within else (None if two.within not in ("", one.within) else False)

    @override
    def inspect(self, partition: Partition, now: datetime) -> Inspection:
        glance = super().inspect(partition, now)
        items = partition.progress.get("items")
        done: int | None = None
        with suppress(ProgressFormatError):
            done = ItemPosition.parse(glance.position or "").item
        has_items = isinstance(items, list)
        return replace(
            glance,
            items_done=done if has_items else None,
            items=len(items) if isinstance(items, list) else None,
            is_readable=has_items and done is not None,
        )

    @override
    def unreadable_items(self, progress: Mapping[str, Any]) -> list[tuple[int | None, str]]:
        return [
            (integer_of(failed.get("item")), text_of(failed.get("reason")) or "")
            for failed in objects_in(progress, "failed")
        ]

    @override
    def facts(self, progress: Mapping[str, Any]) -> Iterator[tuple[str, str | datetime | None]]:
        with suppress(ProgressFormatError):
            known = PartitionProgress.from_mapping(progress)
            yield "epoch", str(known.epoch)
            if known.reread_seconds is not None:
                left = "" if known.reads_left is None else f", {known.reads_left} more times"
                yield "read again", f"{known.reread_seconds:g} s after it is delivered{left}"
            if known.split_of is not None:
                yield "split off", known.split_of

    @override
    def restarted(self, partition: Partition, target: Target, *, epoch: int = 0) -> Mapping[str, Any]:
        if not target.is_earliest:
            raise ProgressError(
                f"partition {partition.partition_key!r} consists of items and has no position {target.name!r}; "
                f"reset it to {EARLIEST!r}, or give the progress to start from"
            )
        return _progress_of(partition).restarted(max(epoch, target.epoch)).to_mapping()

    @override
    def plan_repair(self, partition: Partition, after: str | None, until: str, target: Target) -> RangeRepair:
        known = _progress_of(partition)
        first, last = ItemPosition.parse(after or known.begin), ItemPosition.parse(until)
        items = known.items[: last.item + bool(last.within)]
        if not items[first.item :]:
            raise ProgressError(f"partition {partition.partition_key!r}: the range up to {until!r} has no item")
        key = repair_key(partition.partition_key)
        progress = PartitionProgress(
            kind=known.kind,
            items=items,
            checkpoint=str(first),
            begin=str(first),
            epoch=known.epoch,
            split_of=partition.partition_key,
        )
        new = new_partition(partition.source_identifier, key, target.requested_at)
        step = ResetStep(action=ResetAction.CREATE, partition=new.with_progress(progress.to_mapping()))
        beyond = "; the last one is read to its end, beyond the range" if last.within else ""
        return RangeRepair(step, f"creates partition {key}, which reads {len(items) - first.item} items{beyond}")

    @override
    def reread(self, partition: Partition, target: Target) -> Reread:
        """Everything that was read counts, also an item that was read in part."""
        plain = super().reread(partition, target)
        if self._size is None:
            return plain
        try:
            progress = PartitionProgress.from_mapping(partition.progress)
            position = ItemPosition.parse(progress.checkpoint)
            done = progress.items[: position.item + bool(position.within)]
            return replace(plain, bytes=sum(map(self._size, done)))
        except (ProgressFormatError, KeyError, TypeError, ValueError):  # it is stored, so it may be anything
            return plain

    @property
    @override
    def has_preview(self) -> bool:
        return self._is_peeked or type(self).peek is not ItemKind.peek

    @override
    def peek(self, service: Any, settings: Settings, peek: Peek, finder: Finder) -> None:
        """Its supplier finds items for a store in memory, which nothing else sees."""
        if not self._is_peeked:
            return super().peek(service, settings, peek, finder)
        from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore

        name, own = self.reader_named(settings)
        reader: ItemReader = import_attribute(name, f"reader {name!r}").from_mapping(own)
        coordinator = SourceCoordinator(InMemoryStore(), "preview", "preview")
        coordinator.initialize()
        tried = 0
        for item in _items_found(finder(coordinator)):
            tried += 1
            try:
                peek_item(reader, item, peek)
            except (ItemGoneError, ItemUnreadableError) as error:
                peek.problems.append(f"{reader.origin(item)}: {error}")
            if peek.is_full or len(peek.problems) == MAX_PROBLEMS:
                break
        if not peek.records:
            peek.nothing = (
                f"the first {tried} items have no record; check what is read" if tried else "nothing was found"
            )
        return None

    @override
    def plan_partitions(self, partitions: Sequence[Partition], target: Target, access: Access | None) -> ResetPlan:
        # If an item was split off a partition that is reset too, its own partition is removed: the item is read again
        # in the partition that it came from.
        plan = super().plan_partitions(partitions, target, access)
        keys = {partition.partition_key for partition in partitions}
        split = {each.partition_key for each in partitions if _progress_of(each).split_of in keys}
        steps = [step for step in plan.steps if step.partition.partition_key not in split]
        steps += [ResetStep(action=ResetAction.REMOVE, partition=p) for p in partitions if p.partition_key in split]
        return replace(plan, steps=tuple(steps))

    @override
    def check(self, settings: Settings) -> None:
        _ = self.reader_named(settings)

    @override
    def ends(self, settings: Settings) -> bool:
        return True

    def reader_named(self, settings: Settings) -> tuple[str, Settings]:
        """Return `module:class` of the reader of its items, and the reader's settings.

        :raises ConfigurationError: if no reader is named.
        """
        if self.reader is not None:
            return self.reader, settings
        named = settings.get(READER)
        if not isinstance(named, str) or len([part for part in named.split(":") if part]) != 2:
            raise ConfigurationError(
                f"kind of source {self.name!r}: field 'reader' must be of the form 'module:class', for example "
                f"'my_project.readers:Weather'; got {named!r}"
            )
        return named, settings.get("reader_settings", {})

    @override
    def left(self, before: Settings, now: Settings) -> Sequence[str]:
        if self._left is not None:
            return list(self._left(before, now))
        return list(changed_values(before, now, [name for name in before if name not in HOW]))

    @override
    def datasets(self, settings: Settings) -> Iterable[DatasetName]:
        return () if self._datasets is None else self._datasets(settings)


MAX_PROBLEMS = 3
"""After this many items that cannot be read, a preview ends."""


def peek_item(reader: ItemReader, item: Item, peek: Peek) -> None:
    """Read the first records of an item.

    :raises ItemGoneError: if there is nothing to read.
    :raises ItemUnreadableError: if it cannot be read.
    """
    pages = reader.read(item, START)
    try:
        for page in pages:
            add_rows(peek, page.records, **{ORIGIN: reader.origin(item)})
            if peek.is_full:
                return
    finally:
        if isinstance(pages, Generator):
            pages.close()


def _items_found(supplier: Supplier) -> Iterator[dict[str, Any]]:
    for page in supplier({}):
        for progress in page.partitions.values():
            yield from PartitionProgress.from_mapping(progress).items


def changed_values(before: Settings, now: Settings, names: Iterable[str]) -> Iterator[str]:
    """Yield the previous values of a location that were given and differ now, such as `table 'orders'`.

    :param names: the names of the values to compare.
    """
    for name in names:
        if before.get(name) is not None and before[name] != now.get(name):
            yield f"{name} {shown_value(before[name])}"


def _progress_of(partition: Partition) -> PartitionProgress:
    try:
        return PartitionProgress.from_mapping(partition.progress)
    except ProgressFormatError as error:
        raise ProgressError(
            f"partition {partition.partition_key!r}: its items cannot be read from its stored progress; "
            f"give the progress to start from: {error}"
        ) from None


R = TypeVar("R")


class ItemSupplier(ABC, Generic[R]):
    """Finds the items of a source; a `Supplier`.

    :param settings: what is read, with its connections resolved.
    :param coordinator: of the source, initialized.
    :param connections: resolves what the supplier opens itself.
    """

    def __init__(
        self, settings: R, coordinator: SourceCoordinator, connections: ConnectionResolver | None = None
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator

    @abstractmethod
    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        """Yield partitions that do not exist yet, page by page.

        :param state: the state of the last page that had one, in this run or an earlier one; empty at first.
        :raises ConfigurationError: if the user must fix something.
        :raises SourceError: if trying again later may help.
        """

    def items_of(self, partition_key: str) -> tuple[dict[str, Any], ...]:
        """Return the items of an existing partition; empty if there is no such partition."""
        partition = self._coordinator.view.get(partition_key)
        return () if partition is None else PartitionProgress.from_mapping(partition.progress).items

    def first_progress(self, *items: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Return the first progress of a partition of these items.

        :param fields: further fields of the progress.
        """
        settings: Any = self._settings
        return PartitionProgress(kind=settings.kind, items=items, **fields).to_mapping()


class ItemBatches(LandedBatches):
    """The batches of partitions of items."""

    def __init__(self) -> None:
        super().__init__(PartitionProgress)

    @override
    def with_followers(
        self,
        settlement: Settlement,
        partition: Partition,
        before: PartitionProgress,
        after: PartitionProgress,
        lookup: Lookup,
    ) -> Settlement:
        # Each item that could not be read becomes a partition of its own.
        split = {key: first.to_mapping() for key, first in after.split(partition.partition_key).items()}
        if not after.will_be_reread:
            return replace(settlement, create=split)
        wait = timedelta(seconds=after.reread_seconds or 0.0)
        return replace(settlement, progress=after.for_next_read().to_mapping(), reopen_after=wait, create=split)
