"""The interface of every source other than Kinesis, and of your own: how items are read.

A source is divided into items, JSON objects that name what to read: an object, a range of a table, a segment. A
supplier packs items into partitions. A reader reads them, on the executors of a Spark job or through Spark itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError

if TYPE_CHECKING:  # DAG files import this module, which must not load either of them
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
