"""Landing items, on executors: slots read them and write Parquet files themselves.

A slot reads several partitions, and each partition's items one after the other; small items share a file, a large one
is cut into several batches where its reader says that it may go on. An item that cannot be read never stops the others.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.items import (
    FrameReader,
    Item,
    ItemGoneError,
    ItemReader,
    ItemUnreadableError,
    SourceUnavailableError,
)
from airflow_provider_coordination.sources.progress import FailedItem, ItemPosition, item_batch_id
from airflow_provider_coordination.spark.bad_records import error_text
from airflow_provider_coordination.spark.landing import JOB_GROUP, file_name, partition_folder
from airflow_provider_coordination.spark.storage import TableWriter, join, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

ORIGIN = "_origin"
"""The column that says what item a record came from."""
ROW = "_row"
"""The column that counts an item's records within a batch."""
BATCH_ID = "_batch_id"
GONE_NAMED = 20
MAX_FAILED_ITEMS = 50
"""How many items of a batch may be put aside; more, and the partition is taken to be unreadable as a whole."""
REASON_CHARACTERS = 200


@dataclass(frozen=True, kw_only=True)
class ItemPlan:
    """What to read of one partition.

    :param source_identifier: the partition's item family.
    :param partition_key: the partition.
    :param kind: the kind of source.
    :param fencing_token: of its lease.
    :param items: all its items.
    :param start: the position to go on at.
    :param epoch: of its progress.
    """

    source_identifier: str
    partition_key: str
    kind: str
    fencing_token: int
    items: tuple[dict[str, Any], ...]
    start: str
    epoch: int

    @property
    def size(self) -> int:
        """How large what is left of it is, for sharing it out: bytes, where its items tell their `size`."""
        left = self.items[ItemPosition.parse(self.start).item :]
        return sum(int(item.get("size", 0)) for item in left) + len(left)


@dataclass(frozen=True, kw_only=True)
class ItemLandingOptions:
    """What holds for every partition of a round.

    :param root: where landed files go.
    :param seconds: begin no partition, and go on with none that may be cut here, later than this.
    :param max_bytes: cut a batch once it has so many bytes, where that may be done.
    :param partitions_per_slot: how many partitions a slot reads at the same time.
    """

    root: str
    seconds: float
    max_bytes: int
    partitions_per_slot: int


@dataclass(frozen=True, kw_only=True)
class LandedItems:
    """One manifest row: what was read of a partition, or why not.

    :param start: the position before the batch.
    :param end: the position at its end; the same where nothing was read.
    :param file: the landed file; empty if there was no record.
    :param records: how many are in it.
    :param bytes: how many bytes they take in memory.
    :param is_last: whether everything is read.
    :param failed: the items that could not be read.
    :param gone: the first items that were not there any more.
    :param gone_count: how many these were.
    :param seconds: how long it was read.
    :param error: why the partition could not be read at all; nothing else but `passing` holds then.
    :param passing: whether trying again may help.
    """

    partition_key: str
    batch_id: str = ""
    start: str = ""
    end: str = ""
    file: str = ""
    records: int = 0
    bytes: int = 0
    is_last: bool = False
    failed: tuple[FailedItem, ...] = ()
    gone: tuple[str, ...] = ()
    gone_count: int = 0
    seconds: float = 0.0
    error: str | None = None
    passing: bool = False

    @property
    def is_batch(self) -> bool:
        """Whether there is anything to record."""
        return self.error is None and (self.end != self.start or self.is_last)


def land_items(
    spark: SparkSession, plans: Sequence[ItemPlan], reader: ItemReader | FrameReader, options: ItemLandingOptions
) -> list[LandedItems]:
    """Read the partitions of `plans` on the executors; return one row for each.

    :raises Exception: what Spark raises if a task fails as often as it may; nothing is recorded then, so nothing is
        lost.
    """
    spark.sparkContext.setJobGroup(JOB_GROUP, f"land {len(plans)} partitions")
    if isinstance(reader, FrameReader):
        return _land_frames(spark, plans, reader, options)
    slots = deal(plans, spark.sparkContext.defaultParallelism)
    rows = spark.range(0, len(slots), 1, len(slots)).mapInArrow(
        partial(_land_slot, slots, reader, options), "manifest string"
    )
    return [_row(row.manifest) for row in rows.collect()]


def deal(plans: Sequence[ItemPlan], slots: int) -> list[list[ItemPlan]]:
    """Deal partitions to at most so many slots, so that each gets about as much to read: the largest first, each to
    the slot that has the least."""
    dealt: list[list[ItemPlan]] = [[] for _ in range(min(slots, len(plans)))]
    sizes = [0] * len(dealt)
    for plan in sorted(plans, key=lambda plan: plan.size, reverse=True):
        least = sizes.index(min(sizes))
        dealt[least].append(plan)
        sizes[least] += plan.size
    return dealt


def _row(manifest: str) -> LandedItems:
    return read_settings(LandedItems, "manifest row", json.loads(manifest))


def _land_slot(
    slots: Sequence[Sequence[ItemPlan]],
    reader: ItemReader,
    options: ItemLandingOptions,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for slot in batch.column(0).to_pylist():
            until = time.monotonic() + options.seconds
            with ThreadPoolExecutor(options.partitions_per_slot) as pool:
                rows = list(pool.map(partial(land_partition, reader, options, until=until), slots[slot]))
            manifest = [json.dumps(write_settings(row)) for row in rows]
            yield pa.RecordBatch.from_pydict({"manifest": pa.array(manifest, pa.string())})


def land_partition(
    reader: ItemReader, options: ItemLandingOptions, plan: ItemPlan, *, until: float = float("inf")
) -> LandedItems:
    """Read one partition for a while and write what it gave to one file.

    :param until: when to begin or go on no more, by `time.monotonic`.
    """
    if time.monotonic() >= until:
        return LandedItems(partition_key=plan.partition_key, start=plan.start, end=plan.start)
    begun = time.monotonic()
    try:
        row = _Landing(reader, options, plan, until).land()
    except OSError as error:
        return LandedItems(
            partition_key=plan.partition_key, error=f"landing in {options.root} failed: {error}", passing=True
        )
    return replace(row, seconds=time.monotonic() - begun)


class _CutError(Exception):
    """The batch ends here."""


class _Landing:
    """One partition on its way into a file.

    What was read is kept in memory until the batch is cut, so that what does not belong to it can be dropped: the part
    of an item after the last position at which reading may go on.
    """

    def __init__(self, reader: ItemReader, options: ItemLandingOptions, plan: ItemPlan, until: float) -> None:
        self._reader = reader
        self._options = options
        self._plan = plan
        self._until = until
        self._position = ItemPosition.parse(plan.start)
        self._kept: list[pa.Table] = []  # before the position
        self._read: list[pa.Table] = []  # after it
        self._schema = pa.schema([])
        self._bytes = 0
        self._failed: list[FailedItem] = []
        self._gone: list[str] = []

    def land(self) -> LandedItems:
        """Read until the partition ends or the batch is full, and write what was read."""
        items = self._plan.items
        try:
            while self._position.item < len(items) and not (self._has_moved and self._is_full):
                self._read_item(items[self._position.item])
        except _CutError:
            pass
        except _UnreadableError as error:
            return self._refused(str(error))
        except SourceUnavailableError as error:
            if not self._has_moved:
                return self._refused(str(error), passing=True)
            log.warning("what was read is landed, and the rest left to the next round: %s", error)
        if len(self._failed) == len(items):
            return self._refused(f"none of its {len(items)} items can be read; the first: {self._failed[0].reason}")
        return self._landed()

    @property
    def _has_moved(self) -> bool:
        return str(self._position) != self._plan.start

    @property
    def _is_full(self) -> bool:
        return self._bytes >= self._options.max_bytes or time.monotonic() >= self._until

    def _read_item(self, item: Item) -> None:
        """Read an item from the present position to its end.

        :raises _CutError: if the batch ends within the item, or before it.
        """
        try:
            self._read_pages(item)
        except (_CutError, SourceUnavailableError):
            raise
        except OSError as error:
            raise SourceUnavailableError(f"{self._reader.origin(item)}: {error}") from error
        except ItemGoneError as error:
            log.warning("partition %s: %s", self._plan.partition_key, error)
            self._gone.append(self._reader.origin(item))
        except Exception as error:  # whatever a reader raises, the other items can be read
            self._set_aside(item, str(error) if isinstance(error, CoordinationError) else repr(error))
        self._read.clear()
        self._position = ItemPosition(self._position.item + 1)

    def _read_pages(self, item: Item) -> None:
        rows = 0
        for page in self._reader.read(item, self._position.within):
            if page.records.num_rows:
                self._add(_with_origin(page.records, self._reader.origin(item), rows))
                rows += page.records.num_rows
            if page.position:
                self._position = ItemPosition(self._position.item, page.position)
                self._keep()
                if self._is_full:
                    raise _CutError
            elif self._bytes >= self._options.max_bytes and self._has_moved:
                raise _CutError
        self._keep()

    def _add(self, records: pa.Table) -> None:
        """Add records of the item in hand.

        :raises _CutError: if they have other columns than what is kept: a file has one schema.
        :raises ItemUnreadableError: if they have other columns than those before them in the item.
        """
        try:
            self._schema = pa.unify_schemas([self._schema, records.schema], promote_options="permissive")
        except pa.ArrowInvalid as error:  # a type that cannot be widened to the other
            if self._kept:
                raise _CutError from None
            raise ItemUnreadableError(f"its records have columns that do not go together: {error}") from None
        self._read.append(records)
        self._bytes += records.nbytes

    def _keep(self) -> None:
        self._kept += self._read
        self._read.clear()

    def _set_aside(self, item: Item, error: str) -> None:
        reason = f"{self._reader.origin(item)}: {error}"
        if len(self._plan.items) == 1:
            if self._has_moved:  # what was read is landed; the next round meets the error again
                log.warning("what was read is landed: %s", reason)
                raise _CutError
            raise _UnreadableError(reason)
        log.error("partition %s: an item cannot be read: %s", self._plan.partition_key, reason)
        self._failed.append(
            FailedItem(item=self._position.item, within=self._position.within, reason=reason[:REASON_CHARACTERS])
        )
        if len(self._failed) > MAX_FAILED_ITEMS:
            raise _UnreadableError(
                f"more than {MAX_FAILED_ITEMS} items cannot be read; the first: {self._failed[0].reason}"
            )

    def _landed(self) -> LandedItems:
        plan, end = self._plan, str(self._position)
        batch = item_batch_id(plan.kind, plan.source_identifier, plan.partition_key, plan.start, end, plan.epoch)
        file = ""
        if self._kept:
            table = pa.concat_tables(self._kept, promote_options="permissive")
            file = landed_file(self._options.root, plan)
            write_table(table.append_column(BATCH_ID, pa.repeat(batch, table.num_rows)), file)
        return LandedItems(
            partition_key=plan.partition_key,
            batch_id=batch,
            start=plan.start,
            end=end,
            file=file,
            records=sum(table.num_rows for table in self._kept),
            bytes=sum(table.nbytes for table in self._kept),
            is_last=self._position.item >= len(plan.items),
            failed=tuple(self._failed),
            gone=tuple(self._gone[:GONE_NAMED]),
            gone_count=len(self._gone),
        )

    def _refused(self, error: str, *, passing: bool = False) -> LandedItems:
        return LandedItems(partition_key=self._plan.partition_key, error=error, passing=passing)


class _UnreadableError(Exception):
    """The partition cannot be read."""


def _with_origin(records: pa.Table, origin: str, first_row: int) -> pa.Table:
    """Return records with the columns that say where each comes from."""
    if taken := [name for name in (ORIGIN, ROW, BATCH_ID) if name in records.column_names]:
        raise ItemUnreadableError(f"it has a column {taken[0]!r}, which is the provider's; rename it")
    rows = pa.array(range(first_row, first_row + records.num_rows), pa.int64())
    return records.append_column(ORIGIN, pa.repeat(origin, records.num_rows)).append_column(ROW, rows)


def landed_file(root: str, plan: ItemPlan) -> str:
    """Return a new name for the file of a batch."""
    folder = partition_folder(plan.source_identifier, plan.partition_key)
    return join(root, folder, file_name(plan.start or "0", plan.fencing_token))


# Through Spark, where only the JVM can read


def _land_frames(
    spark: SparkSession, plans: Sequence[ItemPlan], reader: FrameReader, options: ItemLandingOptions
) -> list[LandedItems]:
    """Land partitions of one item each; those that fail together are tried one by one."""
    try:
        return _land_frame(spark, plans, reader, options)
    except Exception as error:
        if len(plans) == 1:
            return [LandedItems(partition_key=plans[0].partition_key, error=error_text(error))]
        log.warning("the partitions of this round are read one by one: %s", error_text(error))
        return [row for plan in plans for row in _land_frames(spark, [plan], reader, options)]


def _land_frame(
    spark: SparkSession, plans: Sequence[ItemPlan], reader: FrameReader, options: ItemLandingOptions
) -> list[LandedItems]:
    frame = reader.frame(spark, [plan.items[0] for plan in plans])
    origins = [reader.origin(plan.items[0]) for plan in plans]
    rows = frame.mapInArrow(partial(_write_frame, plans, origins, options), "manifest string").collect()
    landed = {row.partition_key: row for row in (_row(row.manifest) for row in rows)}
    return [landed.get(plan.partition_key) or _frame_row(plan, records=0, size=0, file="") for plan in plans]


def _write_frame(
    plans: Sequence[ItemPlan], origins: Sequence[str], options: ItemLandingOptions, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    plan, origin = plans[context.partitionId()], origins[context.partitionId()]
    batch_id = _frame_row(plan, records=0, size=0, file="").batch_id
    file, records, size = landed_file(options.root, plan), 0, 0
    with TableWriter(file) as writer:
        for batch in batches:
            table = _with_origin(pa.Table.from_batches([batch]), origin, records)
            writer.write(table.append_column(BATCH_ID, pa.repeat(batch_id, table.num_rows)))
            records, size = records + table.num_rows, size + table.nbytes
    row = _frame_row(plan, records=records, size=size, file=file if records else "")
    yield pa.RecordBatch.from_pydict({"manifest": pa.array([json.dumps(write_settings(row))], pa.string())})


def _frame_row(plan: ItemPlan, *, records: int, size: int, file: str) -> LandedItems:
    end = str(ItemPosition(1))
    return LandedItems(
        partition_key=plan.partition_key,
        batch_id=item_batch_id(plan.kind, plan.source_identifier, plan.partition_key, plan.start, end, plan.epoch),
        start=plan.start,
        end=end,
        file=file,
        records=records,
        bytes=size,
        is_last=True,
    )
