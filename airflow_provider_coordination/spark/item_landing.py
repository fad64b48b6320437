"""Landing items on executors: slots read them and write Parquet files themselves.

A slot reads many partitions at the same time, and the items of each partition one after the other. Small items share a
file; a large item is cut into several batches at positions from which its reader can continue. An item that cannot be
read never stops the others.
"""

from __future__ import annotations

import gzip
import json
import logging
import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.sources.items import (
    MAX_WITHIN_BYTES,
    FailedItem,
    Item,
    ItemGoneError,
    ItemPosition,
    ItemReader,
    ItemUnreadableError,
    SourceUnavailableError,
    reads_at_once,
)
from airflow_provider_coordination.sources.landed import Failure, LandedRow, not_written
from airflow_provider_coordination.spark.item_file import ItemFile, ItemPlan, ItemRoom, NotWrittenError, with_origin
from airflow_provider_coordination.spark.shared_locations import SharedLocations
from airflow_provider_coordination.spark.slot_memory import ROW_GROUP_BYTES
from airflow_provider_coordination.spark.slots import LandingOptions, distribute, land_in_slots

if TYPE_CHECKING:
    from airflow_provider_coordination.spark.job_spark import JobSpark

log = logging.getLogger(__name__)

READS_AT_ONCE_OF_SLOT = 32
"""The maximum number of partitions that a slot reads at the same time: more threads in one process gain nothing."""
PARTITIONS_OF_SLOT = 4
"""How many partitions a slot should have: it decodes one at a time, and waits for its source in between."""
GONE_NAMED = 20
MAX_FAILED_ITEMS = 50
"""How many items of a partition may be set aside; with more, the whole partition counts as unreadable."""
REASON_BYTES = 200
"""How many bytes, as JSON, are kept of the reason why an item cannot be read."""


@dataclass(frozen=True, kw_only=True)
class LandedItems(LandedRow):
    """What was read of a partition of items, or why it could not be read.

    :param failed: the items that could not be read.
    :param gone: the first items that no longer existed.
    :param gone_count: the number of items that no longer existed.
    :param memory_bytes: the largest number of bytes that the slot held for all its partitions.
    """

    failed: tuple[FailedItem, ...] = ()
    gone: tuple[str, ...] = ()
    gone_count: int = 0
    memory_bytes: int = 0

    @property
    def items(self) -> int:
        """The number of items that were read to their end, or were gone or unreadable."""
        return ItemPosition.parse(self.end).item - ItemPosition.parse(self.start).item


def land_items(
    spark: JobSpark,
    plans: Sequence[ItemPlan],
    reader: ItemReader,
    options: LandingOptions,
    locations: SharedLocations | None = None,
) -> list[LandedItems]:
    """Read the partitions of `plans` on the executors; return one row for each partition.

    :param locations: `options.root` and others, if executors should be checked for sharing them.
    :raises ConfigurationError: if an executor does not share the locations.
    :raises Exception: what Spark raises once a task has failed as often as it may; nothing is recorded then, so nothing
        is lost.
    """
    needed = math.ceil(len(plans) / PARTITIONS_OF_SLOT)
    slots, limit = spark.slots.of_round(needed, leave_slot=options.leave_slot), reads_at_once(reader)
    at_once = READS_AT_ONCE_OF_SLOT
    if limit is not None:
        slots = min(slots, limit)
        at_once = min(at_once, limit // slots)
    land = partial(_land_slot, reader, options, at_once)
    return land_in_slots(spark.context, distribute(plans, slots, lambda plan: plan.size), land, LandedItems, locations)


def _land_slot(
    reader: ItemReader, options: LandingOptions, at_once: int, plans: Sequence[ItemPlan]
) -> list[LandedItems]:
    until = time.monotonic() + options.seconds
    room = ItemRoom(options.slot_memory_bytes)
    with ThreadPoolExecutor(min(at_once, len(plans))) as pool:
        rows = list(pool.map(partial(land_partition, reader, options, until=until, room=room), plans))
    return [replace(row, memory_bytes=room.memory.largest) for row in rows]


def land_partition(
    reader: ItemReader,
    options: LandingOptions,
    plan: ItemPlan,
    *,
    until: float = float("inf"),
    room: ItemRoom | None = None,
    row_group_bytes: int = ROW_GROUP_BYTES,
    clock: Clock | None = None,
) -> LandedItems:
    """Read one partition for a limited time and write its records to one file.

    An error becomes part of the row: one partition never stops the others.

    :param until: when to stop starting and continuing, in the clock's monotonic time.
    :param room: the memory of the slot; by default the partition has memory of its own.
    :param row_group_bytes: how many bytes to hold before a row group is written.
    :param clock: measures the time.
    """
    timer = clock or SystemClock()
    room = room or ItemRoom(options.slot_memory_bytes)
    started = timer.monotonic()
    if started >= until or not room.enter(None if until == float("inf") else until - started):
        return LandedItems.without_records(plan.partition_key, plan.start)
    try:
        with ItemFile(plan, options, room, row_group_bytes) as file, reader.reading(plan.left) as opened:
            row = _Landing(opened, options, plan, file, lambda: timer.monotonic() >= until).land()
    except Exception as error:
        return _refused(plan, options, error.cause if isinstance(error, NotWrittenError) else error)
    finally:
        room.leave()
    return replace(row, seconds=timer.monotonic() - started)


def _refused(plan: ItemPlan, options: LandingOptions, error: Exception) -> LandedItems:
    """Return the row of a partition of which nothing is landed because of an error."""
    failure, is_temporary = Failure.of(error), isinstance(error, OSError | SourceUnavailableError)
    if isinstance(error, OSError):
        reason = not_written(options.root, error)
    elif isinstance(error, _UnreadableError | SourceUnavailableError):
        reason = str(error)
    else:  # for example records that cannot be stored, or an error of a reader's `origin`
        reason = f"it cannot be landed: {_text_of(error)}"
    return LandedItems.without_records(plan.partition_key, error=reason, is_temporary=is_temporary, failure=failure)


class _CutError(Exception):
    """The batch ends here."""


class _Landing:
    """The landing of one partition in a file.

    Records after the last position from which reading can continue do not belong to the batch, and are dropped.
    """

    def __init__(
        self,
        reader: ItemReader,
        options: LandingOptions,
        plan: ItemPlan,
        file: ItemFile,
        is_over: Callable[[], bool],
    ) -> None:
        self._reader = reader
        self._options = options
        self._plan = plan
        self._file = file
        self._is_over = is_over
        self._position = ItemPosition.parse(plan.start)
        self._bytes = 0
        self._rows: dict[str, int] = {}
        self._failed: list[FailedItem] = []
        self._first_reason = ""  # why the first of them failed, unshortened
        self._gone: list[str] = []

    def land(self) -> LandedItems:
        """Read until the partition ends or the batch is full, and write the records.

        :raises _UnreadableError: if the partition cannot be read.
        :raises SourceUnavailableError: if the source is unavailable, and nothing was read.
        :raises NotWrittenError: if the records cannot be written.
        """
        items = self._plan.items
        try:
            while self._position.item < len(items) and not (self._has_moved and self._is_full):
                self._read_item(items[self._position.item])
        except _CutError:
            pass
        except SourceUnavailableError as error:
            if not self._has_moved:
                raise
            # An executor's log is not redacted, and an error may contain secrets: only the driver logs its text.
            log.warning(
                "partition %s: the records read so far are landed, and the next round reads the rest: %s",
                self._plan.partition_key, type(error).__name__,
            )  # fmt: skip
        if self._failed and len(self._failed) == len(items):
            raise _UnreadableError(f"none of its {len(items)} items can be read; the first: {self._first_reason}")
        return self._landed()

    @property
    def _has_moved(self) -> bool:
        return str(self._position) != self._plan.start

    @property
    def _is_full(self) -> bool:
        return self._bytes >= self._options.max_bytes or self._is_over()

    def _read_item(self, item: Item) -> None:
        """Read an item from the present position to its end.

        :raises _CutError: if the batch ends within the item, or before it.
        """
        try:
            self._read_pages(item)
        except (_CutError, SourceUnavailableError, NotWrittenError):
            raise
        except ItemGoneError:
            log.warning("partition %s: item %s is gone", self._plan.partition_key, self._reader.origin(item))
            self._gone.append(self._reader.origin(item))
        except Exception as error:  # an error of a reader does not stop the other items
            if is_temporary(error):
                raise SourceUnavailableError(f"{self._reader.origin(item)}: {_text_of(error)}") from error
            self._set_aside(item, _text_of(error))
        self._file.drop()
        self._position = ItemPosition(self._position.item + 1)

    def _read_pages(self, item: Item) -> None:
        for page in self._reader.read(item, self._position.within):
            if page.records.num_rows:
                self._add(page.records, self._reader.origin(item))
            if page.position:
                self._position = ItemPosition(self._position.item, _checked(page.position))
                self._file.keep(write=self._has_moved)
                if self._is_full and self._has_moved:
                    raise _CutError
            elif self._bytes >= self._options.max_bytes and not self._file.is_empty and self._has_moved:
                raise _CutError  # before this item, with which the next batch starts
            else:
                self._file.wait_for_room()
        self._file.keep(write=self._has_moved)

    def _add(self, records: pa.Table, origin: str) -> None:
        """Add records of the present item.

        :raises _CutError: if their columns are not compatible with the kept records: a file has one schema.
        :raises ItemUnreadableError: if their columns are not compatible with earlier records of the item.
        """
        first = self._rows.get(origin, 0)
        try:
            identified = self._reader.identified(records, first)
            self._file.add(with_origin(records, origin, first) if identified is None else identified)
        except pa.ArrowException as error:
            if self._has_moved:
                raise _CutError from None
            raise ItemUnreadableError(
                f"the columns of its records change: {error}; let the reader return a position before each change, or "
                "the same columns in every page"
            ) from None
        self._rows[origin] = first + records.num_rows
        self._bytes += records.nbytes

    def _set_aside(self, item: Item, error: str) -> None:
        origin = self._reader.origin(item)
        reason = error if error.startswith(origin) else f"{origin}: {error}"
        self._first_reason = self._first_reason or reason
        if len(self._plan.items) == 1:
            if self._has_moved:  # the records read so far are landed; the next round gets the error again
                log.warning(
                    "partition %s: the records read so far are landed, the rest cannot be read: %s",
                    self._plan.partition_key, origin,
                )  # fmt: skip
                raise _CutError
            raise _UnreadableError(reason)
        log.error("partition %s: an item cannot be read: %s", self._plan.partition_key, origin)
        self._failed.append(
            FailedItem(item=self._position.item, within=self._position.within, reason=_shortened(reason))
        )
        if len(self._failed) > MAX_FAILED_ITEMS:
            raise _UnreadableError(
                f"more than {MAX_FAILED_ITEMS} of its items cannot be read; the first: {self._first_reason}"
            )

    def _landed(self) -> LandedItems:
        file, file_bytes = self._file.close()
        return LandedItems(
            partition_key=self._plan.partition_key,
            batch_id=self._file.batch_id,
            start=self._plan.start,
            end=str(self._position),
            file=file,
            file_bytes=file_bytes,
            records=self._file.records,
            bytes=self._file.bytes,
            is_last=self._position.item >= len(self._plan.items),
            failed=tuple(self._failed),
            gone=tuple(self._gone[:GONE_NAMED]),
            gone_count=len(self._gone),
        )


class _UnreadableError(Exception):
    """The partition cannot be read."""


def is_temporary(error: Exception) -> bool:
    """Return whether an error that a reader did not translate is caused by the source rather than by the item.

    Failing connections and devices raise an `OSError` with an errno of the system. Damaged data does not: pyarrow and
    gzip raise an `OSError` without one.
    """
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    of_item = (gzip.BadGzipFile, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
    return isinstance(error, OSError) and error.errno is not None and not isinstance(error, of_item)


def _text_of(error: Exception) -> str:
    return str(error) if isinstance(error, CoordinationError) else repr(error)


def _checked(position: str) -> str:
    """Return the position of a page.

    :raises ItemUnreadableError: if it is too long to be stored.
    """
    if (size := len(json.dumps(position))) > MAX_WITHIN_BYTES:
        raise ItemUnreadableError(
            f"its reader returned a position of {size} bytes, above the limit of {MAX_WITHIN_BYTES}: "
            f"{position[:40]!r}...; let it return a shorter one, or none"
        )
    return position


def _shortened(reason: str) -> str:
    """Return the start of a text that takes at most `REASON_BYTES` bytes as JSON."""
    while len(json.dumps(reason)) > REASON_BYTES:
        reason = reason[: min(len(reason) - 1, REASON_BYTES)]
    return reason
