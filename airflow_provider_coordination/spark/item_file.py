"""The landed file of a batch of items, written in row groups while records arrive, which get one set of columns."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.items import ItemPosition, ItemUnreadableError, new_batch_id
from airflow_provider_coordination.sources.landed_types import with_landed_types
from airflow_provider_coordination.spark.job_settings import MIN_SLOT_MEMORY_BYTES as READING_BYTES
from airflow_provider_coordination.spark.landed_identity import as_landed, landed_file
from airflow_provider_coordination.spark.layout import BATCH_ID, ORIGIN, ROW, similar_names
from airflow_provider_coordination.spark.parquet_files import TableWriter
from airflow_provider_coordination.spark.slot_memory import ROW_GROUP_BYTES, SlotMemory
from airflow_provider_coordination.spark.slots import LandingOptions

SMALL_TABLES = 64
"""How many tables are combined into one: a table of a few rows takes several times the memory of its columns."""
SMALL_BYTES = 16 * 2**20
"""The maximum size of tables that are combined into one."""


class Records:
    """Records for a file, in the order in which they were read; each has the columns of all records.

    Records that were added since the last `keep` can be dropped. Once some were taken, the columns no longer change.
    """

    def __init__(self) -> None:
        self.schema = pa.schema([])
        self.bytes = 0
        """The size of their columns in bytes."""
        self._kept: list[pa.Table] = []
        self._added: list[pa.Table] = []
        self._before = self.schema, self._kept  # the state that `drop` restores
        self._whole = 0  # the number of kept tables that are combined already
        self._is_begun = False

    @property
    def are_kept(self) -> bool:
        """Whether records are kept, including those that were taken."""
        return self._is_begun or bool(self._kept)

    def add(self, records: pa.Table) -> None:
        """Add records.

        :raises pa.ArrowException: if their columns cannot be combined with the present columns without a loss, or are
            more or wider than the columns of records that were taken.
        """
        if not records.schema.equals(self.schema):
            unified = pa.unify_schemas([self.schema, records.schema], promote_options="permissive")
            if similar := similar_names(unified):
                raise pa.ArrowInvalid(_as_one(*similar))
            for schema in (self.schema, records.schema):
                for field in schema:
                    if _loses(field.type, both := unified.field(field.name).type):
                        raise pa.ArrowInvalid(f"column {field.name!r} is {field.type}, which {both} cannot hold")
            records = _widened([records], unified)
            if not unified.equals(self.schema):
                self._widen(unified)
        self._added.append(records)
        self.bytes += records.nbytes

    def _widen(self, schema: pa.Schema) -> None:
        if self._is_begun:
            raise pa.ArrowInvalid("a part of the file is written, so its columns cannot change any more")
        kept, added = ([_widened(tables, schema)] if tables else [] for tables in (self._kept, self._added))
        self.schema, self._kept, self._added, self._whole = schema, kept, added, len(kept)
        self._count()

    def keep(self) -> None:
        """Keep the records that were added."""
        self._kept += self._added
        self._added = []
        if len(few := self._kept[self._whole :]) >= SMALL_TABLES:
            if sum(table.nbytes for table in few) <= SMALL_BYTES:
                self._kept[self._whole :] = [pa.concat_tables(few).combine_chunks()]
            self._whole = len(self._kept)
        self._before = self.schema, self._kept

    def drop(self) -> None:
        """Drop the records that were added since the last `keep`, with the columns that only they have."""
        self.schema, self._kept = self._before
        self._added = []
        self._count()

    def take(self) -> pa.Table | None:
        """Return the kept records and remove them here; None if there are none. All added records must be kept."""
        if not self._kept:
            return None
        taken = pa.concat_tables(self._kept)
        self._kept, self._whole, self._is_begun = [], 0, True
        self._before = self.schema, self._kept
        self._count()
        return taken

    def _count(self) -> None:
        self.bytes = sum(table.nbytes for table in (*self._kept, *self._added))


def _widened(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return tables as one table with the columns of a schema that is compatible with each of them."""
    return pa.concat_tables([schema.empty_table(), *tables], promote_options="permissive")


def _as_one(one: str, other: str) -> str:
    difference = "have the same name" if one == other else "differ only by case"
    return f"columns {one!r} and {other!r} {difference}, and Spark treats them as one"


def _loses(before: pa.DataType, after: pa.DataType) -> bool:
    """Return whether a type to which Arrow widens another one changes its values, or is not landed.

    Arrow permits decimals as floats, text as bytes, and decimals of more digits than others have.
    """
    types = pa.types
    if types.is_decimal(before):
        return not types.is_decimal128(after)
    if types.is_string(before):
        return bool(types.is_binary(after))
    if types.is_struct(before):
        return any(_loses(field.type, after.field(field.name).type) for field in before)
    if types.is_map(before):
        return _loses(before.key_type, after.key_type) or _loses(before.item_type, after.item_type)
    return bool(types.is_list(before)) and _loses(before.value_type, after.value_type)


def with_origin(records: pa.Table, origin: str, first_row: int) -> pa.Table:
    """Return records as they are landed: with landed types, and the columns of their origin and row number.

    :param first_row: the number of the first record among the records of its origin.
    :raises ItemUnreadableError: if the name or the type of a column, or one of its values, cannot be landed.
    """
    check_names(records.column_names)
    if similar := similar_names(records.schema):
        raise ItemUnreadableError(f"{_as_one(*similar)}; rename one in the source")
    counted = pc.indices_nonzero(pa.repeat(True, records.num_rows))  # a Python range takes a hundred times as long
    rows = pc.add(counted.cast(pa.int64()), first_row)
    origins = pa.repeat(pa.scalar(origin, pa.string()), records.num_rows)
    return with_landed_types(records.append_column(ORIGIN, origins).append_column(ROW, rows))


def check_names(columns: Sequence[str]) -> None:
    """Check that no column has the name of a column that landing adds.

    :raises ItemUnreadableError: if a column has such a name.
    """
    if taken := [name for name in columns if name.lower() in (ORIGIN, ROW, BATCH_ID)]:
        raise ItemUnreadableError(f"it has a column {taken[0]!r}, whose name is reserved; rename it")


@dataclass(frozen=True, kw_only=True)
class ItemPlan:
    """What to read of one partition.

    :param source_identifier: the partition's item family.
    :param partition_key: the partition.
    :param kind: the kind of source.
    :param fencing_token: the fencing token of its lease.
    :param items: all its items.
    :param start: the position to continue from.
    """

    source_identifier: str
    partition_key: str
    kind: str
    fencing_token: int
    items: tuple[dict[str, Any], ...]
    start: str

    @property
    def left(self) -> tuple[dict[str, Any], ...]:
        """The items that are not read to their end yet."""
        return self.items[ItemPosition.parse(self.start).item :]

    @property
    def size(self) -> int:
        """The size of the items that are left, for distributing partitions: in bytes, if the items have a `size`."""
        sizes = (item.get("size") for item in self.left)
        return sum(size for size in sizes if type(size) is int and size > 0) + len(self.left)

    def new_file(self, root: str) -> str:
        """Return a new URI for the landed file of the batch that starts at `start`."""
        first = str(ItemPosition.parse(self.start).item)
        return landed_file(root, self.source_identifier, self.partition_key, first, self.fencing_token)


class ItemRoom:
    """The memory that the partitions of a slot share.

    Each partition has a share for a row group and its reader's buffers. One partition at a time may exceed its share.

    :param limit: the number of bytes.
    """

    def __init__(self, limit: int) -> None:
        self.memory = SlotMemory(limit)
        self.beyond = threading.Lock()
        """Held by the partition that exceeds its share."""

    def enter(self, timeout: float | None) -> bool:
        """Take a share, once one is free.

        :param timeout: the maximum number of seconds to wait; None for no limit.
        :returns: whether a share was free in time.
        """
        return self.memory.hold(READING_BYTES, timeout)

    def leave(self) -> None:
        """Give a share back."""
        self.memory.let_go(READING_BYTES)


class NotWrittenError(Exception):
    """Records cannot be written.

    :param cause: the error of the write.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ItemFile:
    """The file of a batch, as a context manager: after an error, the file is deleted.

    A row group that is written cannot be removed. So records after the last position at which reading can continue are
    kept in memory, separately.

    :param plan: the plan of the partition.
    :param options: the options of the round.
    :param room: the memory of the slot; this partition has taken its share.
    :param row_group_bytes: how many bytes to hold before a row group is written.
    """

    def __init__(
        self, plan: ItemPlan, options: LandingOptions, room: ItemRoom, row_group_bytes: int = ROW_GROUP_BYTES
    ) -> None:
        self.batch_id = new_batch_id(plan.kind)
        self.records = 0
        """The number of records that are written."""
        self.bytes = 0
        """The size of their columns in memory, in bytes."""
        self._room = room
        self._row_group_bytes = row_group_bytes
        self._uri = plan.new_file(options.root)
        self._access = options.access
        self._held = Records()
        self._beyond = 0
        self._is_alone = False
        self._stack = ExitStack()
        self._writer: TableWriter | None = None

    def __enter__(self) -> ItemFile:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the memory; a file that is not closed is deleted."""
        self._hold(0)
        self._stack.__exit__(kind, error, trace)

    @property
    def is_empty(self) -> bool:
        """Whether no records are kept."""
        return not self._held.are_kept

    def add(self, records: pa.Table) -> None:
        """Add records of the present item.

        :raises pa.ArrowException: see `Records.add`.
        """
        self._held.add(records)
        self._hold(self._held.bytes)

    def wait_for_room(self) -> None:
        """If this partition already exceeds its share, wait until no other partition exceeds its own."""
        if self._beyond and not self._is_alone:
            self._room.beyond.acquire()
            self._is_alone = True

    def keep(self, *, write: bool) -> None:
        """Keep the records that were added.

        :param write: whether a full row group may be written.
        :raises NotWrittenError: if it cannot be written.
        """
        self._held.keep()
        if write and self._held.bytes >= self._row_group_bytes:
            self._write_out()

    def drop(self) -> None:
        """Drop the records that were added since the last `keep`."""
        self._held.drop()
        self._hold(self._held.bytes)

    def close(self) -> tuple[str, int]:
        """Write the kept records durably; return the file's URI and size. Without records there is no file.

        :raises NotWrittenError: if they cannot be written.
        """
        self.drop()
        self._write_out()
        try:
            self._stack.close()
        except Exception as error:
            raise NotWrittenError(error) from error
        return ("", 0) if self._writer is None else (self._uri, self._writer.size)

    def _write_out(self) -> None:
        table = self._held.take()
        if table is None:
            return
        self.records += table.num_rows
        self.bytes += table.nbytes
        try:
            if self._writer is None:
                self._writer = self._stack.enter_context(TableWriter(self._uri, self._access))
            landed = table.append_column(BATCH_ID, pa.repeat(self.batch_id, table.num_rows))
            self._writer.write(as_landed(landed, self.batch_id))
        except Exception as error:
            raise NotWrittenError(error) from error
        self._hold(self._held.bytes)

    def _hold(self, size: int) -> None:
        """Hold the memory for the bytes beyond the share; release what is no longer needed."""
        beyond = max(0, size - self._row_group_bytes)
        self._room.memory.let_go(self._beyond, for_those=beyond)
        self._beyond = beyond
        if self._is_alone and not beyond:
            self._is_alone = False
            self._room.beyond.release()
