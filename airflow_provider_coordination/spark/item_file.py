"""The landed file of a batch of items, which is written in row groups while records arrive."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.sources.progress import ItemPosition, new_batch_id
from airflow_provider_coordination.spark.job_settings import MIN_SLOT_MEMORY_BYTES as READING_BYTES
from airflow_provider_coordination.spark.landed_identity import as_landed, landed_file
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.parquet_files import TableWriter
from airflow_provider_coordination.spark.records import Records
from airflow_provider_coordination.spark.slot_memory import ROW_GROUP_BYTES, SlotMemory
from airflow_provider_coordination.spark.slots import LandingOptions


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
