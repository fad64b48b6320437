"""Delivery: a landed batch goes into the sinks once, whatever the number of attempts and workers.

What may become visible carries the fencing token of a lease, and is removed with the lease. An attempt prepares the
rows of a sink, checks in the store that it still may commit them, and commits. The next owner first writes its lease to
the store, then removes what the previous owner prepared, then prepares its own. However the two interleave, the
previous owner reads in the store that it lost the lease, or finds that its prepared rows are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from inspect import signature
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.column_lineage import ColumnLineage
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.spark_errors import ExecutorError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

Transform = Callable[["DataFrame"], "DataFrame"]
Batch = TypeVar("Batch")
Result = TypeVar("Result")


class DeliveryError(CoordinationError):
    """A batch could not be delivered; it stays landed, and its delivery is retried."""


class RefusedRowError(DeliveryError):
    """A sink refuses a row because of its values; it takes other rows of the same columns."""


class TransformError(ConfigurationError):
    """The transform fails on any records; no batch is at fault, and a retry cannot help."""


class MissingColumnError(DeliveryError, ConfigurationError):
    """The transform, a predicate or a sink names a column that the records do not have.

    If the records of some batches have it, these batches are delivered, and only the others fail. Otherwise the job
    ends: its configuration is wrong.
    """


class SinkUnavailableError(DeliveryError):
    """A sink is unavailable. Its batches wait; none of them caused the error.

    :param reason: the error that shows that the sink is unavailable.
    :param sink: the sink's name; empty if only the caller knows it.
    """

    def __init__(self, reason: str, sink: str = "") -> None:
        super().__init__(self._text(reason, sink) if sink else reason)
        self.reason = reason
        self.sink = sink

    @staticmethod
    def _text(reason: str, sink: str) -> str:
        return f"sink {sink!r} is unavailable: {reason}"


class SinkLockedError(SinkUnavailableError):
    """Another transaction holds a lock that a sink needs. Its batches wait, and this counts as no failure."""

    @staticmethod
    def _text(reason: str, sink: str) -> str:
        return f"sink {sink!r} waits for a lock: {reason}"


class Stage(StrEnum):
    """The stage at which a record was left out."""

    SCHEMA = "schema"
    """Its payload does not fit the schema."""
    TRANSFORM = "transform"
    """The transform raised on it, or marked it."""
    SINK = "sink"
    """A sink refused a row that was made of it."""
    TIME = "time"
    """It is late or early; it does not count as bad."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """What was prepared of a batch.

    :param records: the number of records that each sink takes; without sinks that had the batch already.
    :param unrouted: the number of records that no sink takes.
    :param left_out: the number of records that only the dead-letter sink may get, by the `Stage` that found them;
        records that the transform marked or raised on are included.
    :param refused: the number of rows that each sink refused, and that went to the dead letters; by sink name.
    :param columns: the types of the columns that the sinks take, by name; empty if they were not read.
    :param lineage: what these columns are made of; empty if unknown.
    :param shared_file: the file that holds the batch's rows with those of other batches, see `Attempt`; None if there
        is none.
    """

    records: Mapping[str, int] = field(default_factory=dict)
    unrouted: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    refused: Mapping[str, int] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    lineage: ColumnLineage = field(default_factory=dict)
    shared_file: str | None = None


@dataclass(frozen=True, kw_only=True)
class LeasedBatch:
    """A batch, with the lease and the acknowledgment set under which it is delivered.

    :param batch: the batch.
    :param folder: the folder of the batch's partition, below any root.
    :param set_id: the acknowledgment set that waits for the batch.
    :param fencing_token: the fencing token of the lease.
    :param source: the identifier of the source.
    :param partition_key: the partition.
    :param owner: the owner that delivers the batch.
    :param progress: the part of the partition's progress that rebuilds it if the store is lost; see
        `LandedProgress.durable_fields`.
    :param rows: the number of rows that the sink takes; None before a commit, or if it is not known.
    :param left_out: the number of records that no sink but the dead letters gets, by `Stage`; known from a commit on.
    """

    batch: LandedBatch
    folder: str
    set_id: str
    fencing_token: int
    source: str
    partition_key: str
    owner: str
    progress: dict[str, Any] = field(default_factory=dict)
    rows: int | None = None
    left_out: dict[str, int] = field(default_factory=dict)

    @property
    def batch_id(self) -> str:
        """The batch's id."""
        return self.batch.batch_id

    @property
    def ordinal(self) -> int:
        """The batch's number among those of its partition."""
        return self.batch.ordinal


@dataclass(frozen=True, kw_only=True)
class Attempt(LeasedBatch):
    """The delivery of one batch, which has a landed file.

    :param file: the location of its landed file now, or before it was published.
    :param shared_file: the file that holds the batch's rows with those of other batches of this delivery, in sinks that
        let batches share a file; None if the batch has files of its own. Each delivery makes a new name.
    """

    file: str
    shared_file: str | None = None

    @property
    def has_previous_owners(self) -> bool:
        """Whether previous owners may have started to deliver the batch: it was landed under an earlier lease."""
        return self.fencing_token != self.batch.fencing_token


class Delivery(Protocol):
    """Delivers batches to sinks, each batch once: any number at a time, of any partitions, that owe the same sinks.

    `commit` is called after `prepare`, and after the store has confirmed that the leases and the acknowledgment sets
    are still those of the attempts. `commit` publishes from a location that a later owner of the partition empties with
    `sweep` before it delivers. So a previous owner that continues commits before the later owner, or commits nothing.

    A commit that raises for several batches at once may have worked for some of them. Calling it again for some of
    them, or for each one alone, does no harm.

    Batches may be prepared for one file; see `Prepared.shared_file`. Before the file's commit, the store records its
    name with each of them. If one of them drops out, the file is not committed: the others are prepared again.
    """

    @property
    def sinks(self) -> Sequence[str]:
        """The names of the sinks, in the order of their commits; each sink owes a reference for every batch."""
        ...

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        """Do everything that readers cannot see yet. A batch that cannot be delivered does not delay the others.

        :param sinks: the sinks that have not taken the batches yet.
        :returns: by batch id, what will become visible, or why the batch cannot be delivered.
        :raises SinkUnavailableError: if no batch can be read or written at present.
        """
        ...

    def rehearse(self, columns: StructType | None, root: str) -> None:
        """Do what makes the first delivery slower than the others; nothing if that is little.

        :param columns: the columns of landed records; None if they are not known.
        :param root: a folder that every executor reaches.
        """
        return

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        """Make batches visible in one sink, each one whole, unless they are visible already; see `Sink.commit`."""
        ...

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """Remove what attempts prepared and did not commit."""
        ...

    def sweep(self, tokens: Mapping[str, int]) -> None:
        """Remove what previous owners of partitions prepared, so that they cannot commit it any more.

        :param tokens: the fencing token of the present lease, by the partition's folder below any root; only what was
            prepared under older tokens is removed.
        """
        ...


def each_separately(
    batches: Sequence[Batch], act: Callable[[Batch], Result], at_once: int = 1
) -> Iterator[tuple[Batch, Result | Exception]]:
    """Act on each batch separately.

    Once a sink is unavailable, the remaining batches would only wait for it again: they all get that error.

    :param at_once: the number of batches to act on at the same time.
    :returns: each batch with its result, or with the error that it raises.
    """
    outages: list[SinkUnavailableError] = []

    def act_unless_unavailable(batch: Batch) -> Result:
        if outages:
            raise outages[0]
        try:
            return act(batch)
        except SinkUnavailableError as error:
            outages.append(error)
            raise

    yield from side_by_side(batches, act_unless_unavailable, at_once)


def by_halves(
    batches: Sequence[Batch], act: Callable[[Sequence[Batch]], Result], what: str
) -> Iterator[tuple[Sequence[Batch], Result | Exception]]:
    """Act on batches together; if that raises, act on each half of them, down to each batch alone.

    If a sink is unavailable, halves would only wait for it again: all batches get that error.

    :param what: the action, for the log.
    :raises ExecutorError: unchanged, because no batch caused it; so is a `TransformError`.
    :returns: batches that were acted on together, with the result; or one batch with the error that it raises.
    """
    if not batches:
        return
    try:
        result = act(batches)
    except SinkUnavailableError as error:
        yield from (([batch], error) for batch in batches)
        return
    except (ExecutorError, TransformError):  # no batch caused it
        raise
    except Exception as error:  # each batch alone either raises it or continues
        if len(batches) == 1:
            yield batches, error
            return
        reason, _, _ = str(error).partition("\n")
        log.warning("%s of %d batches at once failed; trying each half: %s", what, len(batches), reason)
    else:
        yield batches, result
        return
    middle = len(batches) // 2
    yield from by_halves(batches[:middle], act, what)
    yield from by_halves(batches[middle:], act, what)


def load_transform(name: str) -> Transform:
    """Return the function that `module:function` names.

    :raises ConfigurationError: if the module cannot be imported or has no such function.
    """
    function = import_attribute(name, f"transform {name!r}")
    if not callable(function):
        raise ConfigurationError(
            f"transform {name!r} is not a function, but of type {type(function).__name__!r}; name a function"
        )
    return function  # type: ignore[no-any-return]


def transformed_by(transform: Transform, records: DataFrame) -> DataFrame:
    """Return what a transform makes of records.

    :raises TransformError: if it cannot be called with them, or returns something else.
    """
    from pyspark.sql import DataFrame

    name = transform_name(transform)
    with suppress(ValueError):  # a function of C has no signature
        try:
            signature(transform).bind(records)
        except TypeError as error:
            raise TransformError(
                f"transform {name!r} cannot be called with one argument, the records: {error}; correct it"
            ) from None
    result: Any = transform(records)
    if not isinstance(result, DataFrame) or result.isStreaming:
        found = f"{type(result).__module__}.{type(result).__qualname__}"
        raise TransformError(
            f"transform {name!r} must return a Spark DataFrame that is not streaming; it returned {found}"
        )
    return result


def transform_name(transform: Transform | None) -> str:
    """Return the name of a transform in errors."""
    return getattr(transform, "__qualname__", None) or type(transform).__name__
