"""Landing items through Spark, if only the JVM can read them: JDBC drivers are Java.

One item of each partition is read, as one partition of a DataFrame. One Spark task writes it to one file while it
reads. It holds one row group in memory, whatever the size of the item. A reader selects a column as text if its type is
another one than the JVM reads. A text is a value of the type without a loss, or it is refused: Spark's own casts round
decimals and may return null.
"""

from __future__ import annotations

import contextvars
import json
import logging
import re
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import CoordinationError, SourceError
from airflow_provider_coordination.sources.items import (
    ARRIVES_AS,
    REMEDY,
    FrameReader,
    ItemPosition,
    SourceUnavailableError,
    new_batch_id,
    reads_at_once,
)
from airflow_provider_coordination.sources.landed_types import cast_exactly, fails, first_where, value_refused
from airflow_provider_coordination.spark.item_file import ItemPlan, check_names, with_origin
from airflow_provider_coordination.spark.item_landing import LandedItems
from airflow_provider_coordination.spark.landed_identity import as_landed
from airflow_provider_coordination.spark.layout import BATCH_ID, ORIGIN, ROW
from airflow_provider_coordination.spark.parquet_files import TableWriter
from airflow_provider_coordination.spark.parquet_frames import numbered, portions_of, spark_schema
from airflow_provider_coordination.spark.slots import MANIFEST, LandingOptions, collect_rows, manifest, name_job
from airflow_provider_coordination.spark.spark_errors import error_text
from airflow_provider_coordination.spark.spark_versions import is_cancellation, type_of_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType


log = logging.getLogger(__name__)

ITEMS_PER_CORE = 4
"""How many items each core reads in one Spark action, one after the other: each action has a cost, and its results are
recorded at its end."""
UNAVAILABLE = re.compile(
    r"java\.net\.|java\.sql\.SQLTransient|SQLRecoverableException|SQLNonTransientConnectionException|"
    r"CommunicationsException|connection (to \S+ )?refused|connection attempt failed|connection has been closed|"
    r"terminating connection|too many (clients|connections)|is (starting up|shutting down)|I/O error",
    re.IGNORECASE,
)
"""JDBC drivers' texts for an unavailable database. Spark passes their errors on as text."""


_SIMPLE = {
    "date": pa.date32(),
    "float": pa.float32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_ELEMENTS = {
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "string": pa.string(),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ARRAY = re.compile(r"array<(\w+)>")


def land_frames(
    spark: SparkSession, plans: Sequence[ItemPlan], reader: FrameReader, options: LandingOptions
) -> list[LandedItems]:
    """Read the next item of each partition; return one row for each partition.

    One Spark action reads `ITEMS_PER_CORE` items for each core, but no more than the source allows at the same time. No
    action starts once the time is over, so that landed items are recorded before there are too many.

    :raises Exception: what Spark raises if its job is cancelled; nothing is recorded then, so nothing is lost.
    """
    left = [plan for plan in plans if plan.left]
    rows = [_row(plan) for plan in plans if not plan.left]
    at_once = spark.sparkContext.defaultParallelism * ITEMS_PER_CORE
    if (limit := reads_at_once(reader)) is not None:
        at_once = min(at_once, limit)
    until = time.monotonic() + options.seconds
    for first in range(0, len(left), at_once):
        if first and time.monotonic() >= until:
            return rows + [LandedItems.without_records(p.partition_key, p.start) for p in left[first:]]
        rows += _land_some(spark, left[first : first + at_once], reader, options)
    return rows


def _land_some(
    spark: SparkSession, plans: Sequence[ItemPlan], reader: FrameReader, options: LandingOptions
) -> list[LandedItems]:
    """Land some partitions together; if that fails, land each one alone, so that one does not stop the others."""
    try:
        return _land(spark, plans, reader, options)
    except Exception as error:
        if is_cancellation(error):
            raise
        if len(plans) == 1:
            return [_failed(plans[0], error)]
        log.warning("reading %d partitions together failed; reading each one alone: %s", len(plans), _text_of(error))
    cancelled = threading.Event()

    def alone(plan: ItemPlan) -> LandedItems:
        if cancelled.is_set():  # another partition's error is raised
            return LandedItems.without_records(plan.partition_key)
        try:
            [row] = _land(spark, [plan], reader, options)
        except Exception as error:
            if is_cancellation(error):
                cancelled.set()
                raise
            return _failed(plan, error)
        return row

    with ThreadPoolExecutor(spark.sparkContext.defaultParallelism) as pool:
        landed = [pool.submit(contextvars.copy_context().run, alone, plan) for plan in plans]
    return [each.result() for each in landed]


def _land(
    spark: SparkSession, plans: Sequence[ItemPlan], reader: FrameReader, options: LandingOptions
) -> list[LandedItems]:
    name_job(spark.sparkContext, len(plans), pool=None)  # a table may take long: other landings do not wait for it
    items = [plan.left[0] for plan in plans]
    frame = reader.frame(spark, items)
    if (partitions := frame.rdd.getNumPartitions()) != len(items):
        raise SourceError(
            f"the reader returned a DataFrame of {partitions} partitions for {len(items)} items; it must have one "
            "partition for each item, in their order"
        )
    check_names(frame.columns)
    origins, arriving = [reader.origin(item) for item in items], arriving_columns(frame.schema)
    write = partial(_write, plans, origins, frame.columns, arriving, options)
    rows = collect_rows(numbered(frame).mapInArrow(write, MANIFEST), LandedItems)
    landed = {row.partition_key: row for row in rows}
    return [landed.get(plan.partition_key) or _row(plan) for plan in plans]


def _write(
    plans: Sequence[ItemPlan],
    origins: Sequence[str],
    names: Sequence[str],
    arriving: Mapping[str, ArrivingColumn],
    options: LandingOptions,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    plan, origin = plans[context.partitionId()], origins[context.partitionId()]
    landed = _row(plan)
    file, records, size = plan.new_file(options.root), 0, 0
    with TableWriter(file, options.access) as writer:
        for portion in portions_of(batches):
            table = with_origin(converted(portion.rename_columns(names), arriving), origin, records)
            with_batch = table.append_column(BATCH_ID, pa.repeat(landed.batch_id, table.num_rows))
            writer.write(as_landed(with_batch, landed.batch_id))
            records, size = records + table.num_rows, size + table.nbytes
    if records:
        landed = replace(landed, file=file, file_bytes=writer.size, records=records, bytes=size)
    yield manifest([landed])


def _row(plan: ItemPlan) -> LandedItems:
    """Return the row of a partition of which one item was read to its end without a record."""
    item = len(plan.items) - len(plan.left) + 1
    end = str(ItemPosition(item)) if plan.left else plan.start
    return LandedItems.without_records(
        plan.partition_key, plan.start, batch_id=new_batch_id(plan.kind), end=end, is_last=item >= len(plan.items)
    )


def _failed(plan: ItemPlan, error: Exception) -> LandedItems:
    texts = " ".join((str(error), *_causes(error)))
    is_unavailable = isinstance(error, SourceUnavailableError) or bool(UNAVAILABLE.search(texts))
    return LandedItems.without_records(plan.partition_key, error=_text_of(error), is_temporary=is_unavailable)


def _text_of(error: Exception) -> str:
    if isinstance(error, CoordinationError):
        return str(error)
    text = error_text(error)
    return ": ".join((text, *(cause for cause in _causes(error)[:1] if cause not in text)))


def _causes(error: Exception) -> list[str]:
    """Return the causes of Spark's error, such as a driver's message: one line for each cause."""
    thrown, causes = getattr(error, "_origin", None), []  # errors with a class of their own in Spark have an origin
    try:
        while thrown is not None and (thrown := thrown.getCause()) is not None:
            causes.append(str(thrown.toString()).partition("\n")[0])
    except Exception as failure:  # the JVM may be gone
        log.debug("the causes could not be read: %s", failure)
    return [cause for cause in causes if not cause.startswith("org.apache.spark.")]


@dataclass(frozen=True)
class ArrivingColumn:
    """A column to convert.

    :param arrives_as: the Spark type to convert to.
    :param remedy: what the user can do about a value that is refused.
    """

    arrives_as: str
    remedy: str


def arriving_columns(frame: StructType) -> dict[str, ArrivingColumn]:
    """Return the columns of a frame to convert, by name: those whose metadata has `ARRIVES_AS`."""
    return {
        field.name: ArrivingColumn(field.metadata[ARRIVES_AS], field.metadata.get(REMEDY, "correct the row"))
        for field in frame
        if ARRIVES_AS in field.metadata
    }


def landed_columns(known: pa.Schema | StructType) -> StructType:
    """Return the columns of landed items, with Spark's types.

    :param known: the columns of their records; see `Reader.columns`.
    """
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    given = spark_schema(known) if isinstance(known, pa.Schema) else known
    types = {field.name: field.dataType for field in given}
    types |= {name: _spark_type(column.arrives_as) for name, column in arriving_columns(given).items()}
    fields = [StructField(name, kind) for name, kind in types.items()]
    ours = [StructField(ORIGIN, StringType()), StructField(ROW, LongType()), StructField(BATCH_ID, StringType())]
    return StructType([*fields, *ours])


def _spark_type(ddl: str) -> DataType:
    from pyspark.sql.types import StructType

    of = type_of_ddl(f"_ {ddl}")
    assert isinstance(of, StructType)
    return of[0].dataType


def converted(table: pa.Table, columns: Mapping[str, ArrivingColumn]) -> pa.Table:
    """Return a table whose columns have the types with which they arrive.

    :raises ItemUnreadableError: with the column, the first value that is not of its type, and the remedy.
    """
    for name, column in columns.items():
        index = table.schema.get_field_index(name)
        values, kind = table.column(index), _type_of(column.arrives_as)
        arrived = (
            _parsed(name, values, kind, column.remedy)
            if pa.types.is_list(kind)
            else cast_exactly(name, values, kind, column.remedy)
        )
        table = table.set_column(index, name, arrived)
    return table


def _type_of(arrives_as: str) -> pa.DataType:
    if match := _DECIMAL.fullmatch(arrives_as):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _ARRAY.fullmatch(arrives_as):
        return pa.list_(_ELEMENTS[match[1]])
    return _SIMPLE[arrives_as]


def _parsed(name: str, texts: pa.ChunkedArray, kind: pa.DataType, remedy: str) -> pa.Array:
    try:
        return _lists(kind.value_type, texts)
    except (pa.ArrowException, ValueError):
        refused = first_where(texts, partial(fails, partial(_lists, kind.value_type)))
        assert refused is not None
        raise value_refused(name, refused, f"{kind} cannot hold it", remedy) from None


def _lists(element: pa.DataType, texts: pa.ChunkedArray) -> pa.Array:
    """Return the lists of JSON arrays, where PostgreSQL writes the numbers that JSON does not have as text."""
    is_float = pa.types.is_floating(element)
    parse = partial(json.loads, parse_int=float if is_float else int)
    lists = (None if text is None else parse(text) for text in texts.to_pylist())
    if is_float:
        lists = (each and [float(item) if isinstance(item, str) else item for item in each] for each in lists)
    return pa.array(lists, pa.list_(element))
