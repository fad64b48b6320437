"""Items, into which every source other than Kinesis, and your own, is divided: how they are read, and how far.

Items are JSON objects that name what to read: an object, a range of a table, a segment, a slice. A supplier packs one
or several items into a partition, and names them there. After that, the partition's progress is the only record of what
is done. A reader reads them, on the executors of a Spark job or through Spark itself.
"""

from __future__ import annotations

import hashlib
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Self

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.partition import MAX_KEY_BYTES
from airflow_provider_coordination.sources.landed import START, LandedBatch, LandedProgress, ProgressFormatError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Item = Mapping[str, Any]
READS_AT_ONCE = 64
"""How many partitions a job reads at the same time, unless its reader sets another limit."""

ARRIVES_AS = "coordination.arrives_as"
REMEDY = "coordination.remedy"
"""The metadata keys of a frame's column that landing converts, usually from text; see `FrameReader.frame`."""


class ItemGoneError(SourceError):
    """The item's data no longer exists. There is nothing left to read, so the item is done."""


class ItemUnreadableError(SourceError):
    """An item cannot be read: it is damaged, or does not fit the settings. Its partition's other items are read."""


class SourceUnavailableError(SourceError):
    """The source is unavailable or throttles. Trying again later may help."""


@dataclass(frozen=True)
class ReadPage:
    """Some records of an item.

    :param records: their columns. Names that begin with `_` are the provider's.
    :param position: where reading can continue after this page, in the reader's own form and at most 8 KB. Empty if it
        cannot continue here: the next attempt then starts at the last position, or at the start of the item.
    """

    records: pa.Table
    position: str = ""


@dataclass(frozen=True)
class Wait:
    """Why a partition is not read yet: it is closed, and opened again later.

    :param reason: what it waits for.
    :param retry_after: after which time it is checked again.
    :param max_retries: how often it is checked again at most; then it is read as it is.
    """

    reason: str
    retry_after: timedelta
    max_retries: int


class Reader(ABC):
    """What every reader of items may do: the base of `ItemReader` and `FrameReader`.

    A job makes it in the driver. An attribute or a method that a reader does not need keeps its default.
    """

    reads_at_once: int | None = READS_AT_ONCE
    """How many partitions all slots of a job together read at the same time; None if only memory limits it."""

    @classmethod
    def from_mapping(cls, settings: Mapping[str, Any]) -> Self:
        """Make it from its settings; by default the constructor gets each setting by name.

        :param settings: a JSON object.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        try:
            return cls(**settings)
        except TypeError as error:
            raise ConfigurationError(
                f"reader '{cls.__module__}:{cls.__qualname__}' does not accept its settings: {error}; correct "
                "'reader_settings'"
            ) from None

    @abstractmethod
    def origin(self, item: Item) -> str:
        """Return where a record of this item came from, for its `_origin` column and for messages."""

    def check(self, spark: SparkSession) -> None:  # noqa: B027 - nothing by default
        """Check that what it needs of Spark is available, such as a JDBC driver; before any lease is acquired.

        :raises ConfigurationError: naming what is missing, and the remedy.
        """

    def columns(self, spark: SparkSession) -> pa.Schema | StructType | None:
        """Return the columns that all items have, without the provider's own; None if they differ or are not known.

        With the columns, a job checks its transform, predicates and sinks at the start. Otherwise its first delivery
        shows what is wrong. Spark's columns may have the metadata of `FrameReader.frame`.
        """
        return None

    def waits_for(self, items: Sequence[Item]) -> Wait | None:
        """Return what the partition of these items waits for; None if it may be read.

        Called in the driver, before a partition is read.
        """
        return None

    def delivered(self, items: Sequence[Item]) -> None:  # noqa: B027 - nothing by default
        """Act on the items of a delivered partition, for example by deleting them.

        It may be called several times for the same items, and by several processes at once.

        :raises SourceError: if that is not possible now; the next supplier run tries again.
        """


class ItemReader(Reader):
    """Reads items. It is pickled, sent to the executors, and used there by several threads at once."""

    @abstractmethod
    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        """Yield the records of an item, page by page.

        :param item: what to read, as the supplier wrote it.
        :param position: the position of the last landed page; empty to start at the beginning.
        :raises ItemGoneError: if there is nothing left to read.
        :raises SourceUnavailableError: if trying again later may help; pages yielded so far are kept.
        :raises ItemUnreadableError: if the item cannot be read. Any other exception counts as this one, except the
            operating system's errors of connections and devices, which count as `SourceUnavailableError`.
        """

    def identified(self, records: pa.Table, first_row: int) -> pa.Table | None:
        """Return the records of an item with columns of the reader's own that identify each within a batch.

        :param first_row: the number of the first record among those of its origin in the batch.
        :returns: None for the provider's columns `_origin` and `_row`.
        """
        return None

    def reading(self, items: Sequence[Item]) -> AbstractContextManager[ItemReader]:
        """Return a context manager whose value reads these items, in this order.

        A reader that is faster if it knows which items follow, such as one of many small objects, returns another.
        """
        return nullcontext(self)


class FrameReader(Reader):
    """Reads items through Spark, for sources that only the JVM can read: JDBC drivers are Java."""

    @abstractmethod
    def frame(self, spark: SparkSession, items: Sequence[Item]) -> DataFrame:
        """Return a DataFrame whose partition number n holds the records of item n.

        A column may have metadata. With `ARRIVES_AS`, landing converts it to this Spark type: `date`, `timestamp`,
        `timestamp_ntz` or `decimal(p,s)` from text, `float` from a double, or an `array` of simple values from JSON. It
        refuses a value that is not one of this type, and says what `REMEDY` has.
        """


def reads_at_once(reader: Reader) -> int | None:
    """Return the greatest number of partitions that a job reads at the same time.

    :raises ConfigurationError: if the reader's limit is neither a positive number nor None.
    """
    limit = reader.reads_at_once
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ConfigurationError(
            f"reader {type(reader).__name__!r}: attribute 'reads_at_once' must be a positive number, or None for no "
            f"limit; got {limit!r}"
        )
    return limit


MAX_WITHIN_BYTES = 8 * 1024
"""The longest position within an item that a reader may return, as JSON: a progress holds several of them in 64 KB."""


def new_batch_id(kind: str) -> str:
    """Return a new, unique name for a batch of items that is about to be landed.

    The name must be in the file from its first row on. So it cannot contain the end of the batch, which is known only
    after reading.

    :param kind: the kind of source, with which the name begins.
    """
    return f"{kind}-{secrets.token_hex(12)}"


@dataclass(frozen=True, kw_only=True)
class FailedItem:
    """An item that could not be read, while other items of its partition could: it becomes a separate partition.

    :param item: its index in the partition's items, from 0.
    :param reason: what went wrong.
    :param within: the position within the item, as its reader writes it, up to which everything is landed.
    """

    item: int
    reason: str
    within: str = START


@dataclass(frozen=True, kw_only=True)
class PartitionProgress(LandedProgress):
    """The progress of a partition of items.

    Its positions are those of `ItemPosition`.

    :param items: what there is to read, in order: JSON objects for the source's reader.
    :param failed: the items that could not be read.
    :param reread_seconds: how long after delivery everything is read again, in seconds; None for never.
    :param reads_left: how often it is read after this time; None for no limit. Only with `reread_seconds`.
    :param waited: how often it was closed to wait for its source's condition since it started.
    :param split_of: the partition that this item was split off from, because it could not be read there.
    :param begin: the position at which it starts. After a split, this is not always the start of the item.
    """

    TRANSIENT_FIELDS: ClassVar[frozenset[str]] = LandedProgress.TRANSIENT_FIELDS | {"waited"}

    items: tuple[dict[str, Any], ...]
    failed: tuple[FailedItem, ...] = ()
    reread_seconds: float | None = None
    reads_left: int | None = None
    waited: int = 0
    split_of: str | None = None
    begin: str = START

    @property
    def will_be_reread(self) -> bool:
        """Whether it starts again once it is finished."""
        return self.reread_seconds is not None and self.reads_left != 0

    @property
    def items_done(self) -> int:
        """The number of items that are done: delivered completely, gone, or split off."""
        return ItemPosition.parse(self.checkpoint).item

    @property
    def items_read(self) -> tuple[dict[str, Any], ...]:
        """The items that were read. The data of the other items must not be deleted."""
        failed = {failed.item for failed in self.failed}
        return tuple(item for n, item in enumerate(self.items) if n not in failed)

    @property
    def items_left(self) -> tuple[dict[str, Any], ...]:
        """The items that are not delivered, among them those that could not be read."""
        failed = (self.items[failed.item] for failed in self.failed if failed.item < self.items_done)
        return (*self.items[self.items_done :], *failed)

    def landing(self, batch: LandedBatch, failed: tuple[FailedItem, ...] = ()) -> Self:
        """Return the progress with one more landed batch, as `LandedProgress.landing` does.

        :param failed: the items in its range that could not be read.
        """
        return replace(super().landing(batch), failed=(*self.failed, *failed))

    def restarted(self, epoch: int = 0) -> PartitionProgress:
        """Return the progress with nothing read yet, in a new epoch, so that reading again makes other batches.

        :param epoch: the lowest epoch that it may get.
        """
        return replace(
            self,
            checkpoint=self.begin,
            landed=(),
            is_ended=False,
            failed=(),
            epoch=max(epoch, self.epoch + 1),
            waited=0,
        )

    def for_next_read(self) -> PartitionProgress:
        """Return the progress for the next read after everything is delivered; `reads_left` is one less."""
        return replace(self.restarted(), reads_left=None if self.reads_left is None else self.reads_left - 1)

    def split(self, partition_key: str) -> dict[str, PartitionProgress]:
        """Return the first progress of the partitions that the failed items become, by partition key.

        :param partition_key: the key of this partition.
        """
        return {
            split_key(partition_key, failed.item): PartitionProgress(
                kind=self.kind,
                items=(self.items[failed.item],),
                checkpoint=str(ItemPosition(0, failed.within)),
                begin=str(ItemPosition(0, failed.within)),
                epoch=self.epoch,
                split_of=partition_key,
            )
            for failed in self.failed
        }


def split_key(partition_key: str, item: int) -> str:
    """Return a unique key for the partition that a failed item becomes.

    A supplier may create partitions with any key. A key made only of the partition's key and the item could exist
    already. Creating an existing partition does nothing, so the item would be lost.
    """
    return _key_after(partition_key, f"#{item}.{secrets.token_hex(8)}")


REPAIR = "#repair."
"""What separates a partition's key from a random part, in the key of the partition that reads a range of it again."""


def repair_key(partition_key: str) -> str:
    """Return a unique key for a partition that reads a range of another one again."""
    return _key_after(partition_key, f"{REPAIR}{secrets.token_hex(8)}")


def repaired_name(partition_key: str) -> str:
    """Return what stands for a partition before `REPAIR` in each of its `repair_key`: its key, shortened if long."""
    return repair_key(partition_key).rpartition(REPAIR)[0]


def _key_after(partition_key: str, suffix: str) -> str:
    if len(key := partition_key.encode()) + len(suffix) > MAX_KEY_BYTES:
        digest = hashlib.sha256(key).hexdigest()[:16]
        partition_key = f"{key[: MAX_KEY_BYTES - 64].decode(errors='ignore')}~{digest}"
    return partition_key + suffix


@dataclass(frozen=True, order=True)
class ItemPosition:
    """A position in a partition of items: everything before it is read.

    As text it is `<item>` or `<item>:<position within the item>`, and nothing at the start.

    :param item: the index of the item that is read next, from 0.
    :param within: the position within that item, as its reader writes it; empty for its start.
    """

    item: int = 0
    within: str = ""

    def __str__(self) -> str:
        """Return the position as text."""
        if not self.item and not self.within:
            return START
        return f"{self.item}:{self.within}" if self.within else str(self.item)

    @classmethod
    def parse(cls, position: str) -> ItemPosition:
        """Parse a position.

        :raises ProgressFormatError: if the text is not a position.
        """
        item, _, within = position.partition(":")
        if not item and not within:
            return cls()
        if not (item.isascii() and item.isdigit()):
            raise ProgressFormatError(f"position {position!r} is not '<item>' or '<item>:<position within it>'")
        return cls(int(item), within)
