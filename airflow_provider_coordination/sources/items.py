"""The seam to the sources beside Kinesis, and to your own: how items are read.

A source is cut into items, JSON objects that say what there is to read: an object's name, a table's range, a segment.
A supplier packs them into partitions; a reader reads them, on the executors of a Spark job or through Spark itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError

if TYPE_CHECKING:  # a DAG file that names a source imports this: it shall not wait for either of them
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Item = Mapping[str, Any]
READS_AT_ONCE = 64
"""How many partitions a job reads at the same time, where its reader does not say."""


class ItemGoneError(SourceError):
    """What an item names is not there any more. There is nothing left to read, so the item is done."""


class ItemUnreadableError(SourceError):
    """An item cannot be read as it is: damaged, or not what the settings say. The others of its partition can."""


class SourceUnavailableError(SourceError):
    """The source does not answer, or asks for patience. Trying again later may help."""


@dataclass(frozen=True)
class ReadPage:
    """Some records of an item.

    :param records: their columns. Names that begin with `_` are the provider's.
    :param position: where reading may go on after this page, as the reader understands it, in at most 8 KB; empty where
        it may not, so that whoever reads the item again begins it anew, or where the last position was.
    """

    records: pa.Table
    position: str = ""


@dataclass(frozen=True)
class Wait:
    """Why a partition is not read yet: it is closed, and opened again later.

    :param reason: what it waits for.
    :param retry_after: when it is looked at again.
    :param max_retries: how often at most; then it is read as it is.
    """

    reason: str
    retry_after: timedelta
    max_retries: int


class ItemReader(Protocol):
    """Reads items. It travels to the executors pickled, and is used there from several threads at once."""

    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        """Yield the records of an item, page by page.

        :param item: what to read, as the supplier wrote it.
        :param position: what the last page that is landed said; empty to begin.
        :raises ItemGoneError: if there is nothing left to read.
        :raises SourceUnavailableError: if trying again later may help; pages yielded so far are kept.
        :raises ItemUnreadableError: if the item cannot be read; anything else that is raised counts as this, but for
            what the operating system says of connections and devices, which counts as `SourceUnavailableError`.
        """
        ...

    def origin(self, item: Item) -> str:
        """Return what a record of this item came from, for its `_origin` column and for messages."""
        ...


@runtime_checkable
class ReadsAhead(Protocol):
    """A reader that is faster if it knows what is read next, such as one of many small objects."""

    def reading(self, items: Sequence[Item]) -> AbstractContextManager[ItemReader]:
        """Return what reads these items, in this order, while its context lasts."""
        ...


@runtime_checkable
class Bounded(Protocol):
    """A reader that says how much its source bears."""

    @property
    def reads_at_once(self) -> int | None:
        """How many partitions all slots of a job together read at the same time; None for as many as have room in their
        memory."""
        ...


def reads_at_once(reader: object) -> int | None:
    """Return how many partitions a job reads at the same time at most; see `Bounded`.

    :raises ConfigurationError: if the reader says what is no number of partitions.
    """
    most = reader.reads_at_once if isinstance(reader, Bounded) else READS_AT_ONCE
    if most is not None and (type(most) is not int or most < 1):
        raise ConfigurationError(
            f"reader {type(reader).__name__!r}: attribute 'reads_at_once' must be a positive number, or None for no "
            f"limit; got {most!r}"
        )
    return most


@runtime_checkable
class FrameReader(Protocol):
    """Reads items through Spark, where only the JVM can: JDBC drivers are Java."""

    def frame(self, spark: SparkSession, items: Sequence[Item]) -> DataFrame:
        """Return a DataFrame whose partition number n holds the records of item n."""
        ...

    def origin(self, item: Item) -> str:
        """See `ItemReader.origin`."""
        ...


@runtime_checkable
class Checking(Protocol):
    """A reader that needs something of Spark, such as a JDBC driver. Asked once, before any lease is taken."""

    def check(self, spark: SparkSession) -> None:
        """Check that it is there.

        :raises ConfigurationError: naming what is missing, and the remedy.
        """
        ...


@runtime_checkable
class Conditional(Protocol):
    """A reader that may want partitions to wait. Asked in the driver, before a partition is worked on."""

    def waits_for(self, items: Sequence[Item]) -> Wait | None:
        """Return what the partition of these items waits for; None if it may be read."""
        ...


@runtime_checkable
class Finishing(Protocol):
    """A reader that has something to do once a partition's data is delivered, such as deleting what was read.

    It may be asked several times for the same items, and by several processes at once.
    """

    def delivered(self, items: Sequence[Item]) -> None:
        """Do it.

        :raises SourceError: if it cannot be done now; it is tried again by the next supplier run.
        """
        ...
