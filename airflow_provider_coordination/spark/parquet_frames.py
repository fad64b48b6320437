"""DataFrames of Parquet files, and Parquet files of DataFrames: pyarrow reads and writes them, in the workers.

Spark itself opens no file. So a bucket is reached as the job's sinks reach it, and needs no jars. What the access holds
travels within the tasks alone: Spark's configuration, plans, events and pages have none of it.
"""

from __future__ import annotations

import heapq
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.concurrency import raised, side_by_side
from airflow_provider_coordination.spark.filesystems import open_files
from airflow_provider_coordination.spark.outages import MARK, error_of_task
from airflow_provider_coordination.spark.slots import MANIFEST, collected, manifest
from airflow_provider_coordination.spark.storage import (
    SMALL_BYTES,
    TableWriter,
    calls_at_once,
    join,
    read_whole,
    write_table,
)

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""How much is held of what Spark hands over in small batches, until it is worth a row group."""
BATCH_BYTES = 4 * 1024 * 1024
"""How much Spark gets at a time."""
BATCH_ROWS = 10_000
"""How many rows it gets at most."""
OPENING_BYTES = 4 * 1024 * 1024
"""How much could be read in the time that it takes to open a file; as Spark reckons."""
TASK_BYTES = 128 * 1024 * 1024
"""How much one task reads at most, as far as row groups allow it; as Spark reckons."""
AHEAD_BYTES = 32 * 1024 * 1024
"""How much of the small files that come next a task holds at most."""
TASKS_PATIENCE_SECONDS = 30.0
"""How long the tasks of a write that failed are waited for."""
TASKS_POLL_SECONDS = 0.05
ZONE = "UTC"
MOST_DIGITS = 38
"""How many a decimal has at most."""
SPARK_TYPES = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.duration("us"): pa.int64(),
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
}
"""What Spark takes the types of files for that it does not have."""
FILE_TYPES = {pa.time64("ns"): pa.time64("us"), pa.duration("us"): pa.int64()}
"""How files have those of Spark's types that Parquet does not have."""


# Reading


@dataclass(frozen=True)
class _Piece:
    """Some row groups of a file: one of `of` parts, as even as they can be."""

    file: str
    part: int = 0
    of: int = 1
    small_bytes: int = 0
    """The size of a file that is read by one request; 0 for one that is not."""


def read_frame(spark: SparkSession, files: Mapping[str, int], schema: StructType, access: Access) -> DataFrame:
    """Return what files hold; they are read when Spark needs it.

    Where Spark fails because of a file, it says so by an `OSError`; `outages` finds those in it that are outages.

    :param files: at least one, with its size in bytes.
    :param schema: the columns that are wanted, as `spark_schema` has them; null where a file does not have them.
    :param access: how files are reached.
    """
    from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

    tasks = _dealt(files, spark.sparkContext.defaultParallelism)
    wanted = _nullable(to_arrow_schema(schema, timezone=ZONE))
    read = _named("read_parquet", partial(_read, tasks, wanted, access, MARK))
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, from_arrow_schema(wanted))


def spark_schema(columns: pa.Schema) -> StructType:
    """Return the columns of a file as Spark has them.

    :raises pa.ArrowNotImplementedError: if it has no such type.
    """
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_schema

    try:
        return from_arrow_schema(_retyped(columns, _in_spark))
    except PySparkTypeError as error:
        raise pa.ArrowNotImplementedError(str(error)) from None


def _dealt(files: Mapping[str, int], slots: int) -> list[list[_Piece]]:
    """Deal files to tasks of about the same work, in their order within each; large ones go to several."""
    total = sum(files.values()) + OPENING_BYTES * len(files)
    most = max(OPENING_BYTES, min(TASK_BYTES, total / slots))
    pieces: list[tuple[float, _Piece]] = []
    for file, size in files.items():
        of = max(1, ceil(size / most))
        piece = _Piece(file, of=of, small_bytes=size if size <= SMALL_BYTES else 0)
        pieces += [(size / of + OPENING_BYTES, replace(piece, part=part)) for part in range(of)]
    tasks: list[list[int]] = [[] for _ in range(max(1, int(total / most)))]
    loads = [(0.0, n) for n in range(len(tasks))]
    for number in sorted(range(len(pieces)), key=lambda number: -pieces[number][0]):
        load, task = loads[0]
        tasks[task].append(number)
        heapq.heapreplace(loads, (load + pieces[number][0], task))
    return [[pieces[number][1] for number in sorted(task)] for task in tasks if task]


def _read(
    tasks: Sequence[Sequence[_Piece]], schema: pa.Schema, access: Access, mark: str, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for piece, fetched in side_by_side(tasks[number], partial(_small, access), _at_once(tasks[number], access)):
                with _as_os_error(f"file {piece.file} cannot be read", mark):
                    yield from _rows(piece, raised(fetched), schema, access)


def _at_once(pieces: Sequence[_Piece], access: Access) -> int:
    """Return how many small files are fetched at the same time: in a bucket, nearly all of that is waiting."""
    largest = max(piece.small_bytes for piece in pieces)
    return min(calls_at_once(pieces[0].file, access), AHEAD_BYTES // max(1, largest))


def _small(access: Access, piece: _Piece) -> bytes | None:
    """Return what a small file holds; None for another one, which is read a row group at a time."""
    return read_whole(piece.file, access)[0] if piece.small_bytes else None


def _rows(piece: _Piece, fetched: bytes | None, schema: pa.Schema, access: Access) -> Iterator[pa.RecordBatch]:
    if fetched is None:
        files, path = open_files(piece.file, access)
        opened = pq.ParquetFile(path, filesystem=files.filesystem, pre_buffer=True)
    else:
        opened = pq.ParquetFile(pa.BufferReader(fetched))
    with opened as file:
        there = set(file.schema_arrow.names)
        wanted = [name for name in schema.names if name in there]
        for number in range(file.num_row_groups):
            if number * piece.of // file.num_row_groups == piece.part:
                group = file.metadata.row_group(number)
                rows = group.num_rows * BATCH_BYTES // max(1, group.total_byte_size)
                size = min(BATCH_ROWS, max(1, rows))
                for batch in file.iter_batches(size, row_groups=[number], columns=wanted, use_threads=False):
                    yield _as_wanted(batch, schema)


def _as_wanted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    names = set(batch.schema.names)
    columns = [
        batch.column(field.name).cast(field.type, safe=False) if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# Writing


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A file that a task wrote.

    :param file: where it is.
    :param bytes: its size.
    :param of: the text by which its rows are kept apart from others; empty if there is none.
    """

    file: str
    bytes: int
    of: str = ""


def write_frame(rows: DataFrame, folder: str, access: Access, by: str | None = None) -> list[WrittenFile]:
    """Write rows to new files of a folder, those of each of Spark's partitions to one; return the files.

    What tasks leave that fail, or are not heard of, is not among them: a task whose rows end with an error of Spark's
    takes that for their end.

    :param by: a column of texts that is not written; rows with different ones go to different files.
    :returns: at least one; without rows, one that has the columns.
    :raises Exception: what Spark raises if the rows cannot be made, or written there, by an `OSError` as of reading.
    """
    if by is not None:
        rows = rows.sortWithinPartitions(by)  # so that one file is open at a time
    write = _named("write_parquet", partial(_write, folder, by, access, MARK))
    context, group = rows.sparkSession.sparkContext, f"writing {secrets.token_hex(8)}"
    context.setJobGroup(group, "write Parquet files")
    try:
        written = collected(rows.mapInArrow(write, MANIFEST), WrittenFile)
    except Exception:
        _outlive_tasks(context, group)
        raise
    if written:
        return written
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = rows.schema if by is None else rows.drop(by).schema
    file, columns = _new_file(folder), _in_files(to_arrow_schema(schema, timezone=ZONE))
    return [WrittenFile(file=file, bytes=write_table(columns.empty_table(), file, access))]


def _outlive_tasks(context: SparkContext, group: str) -> None:
    """Wait until no task of a job that failed writes on: its files go with the folder, and none comes afterwards."""
    tracker, deadline = context.statusTracker(), time.monotonic() + TASKS_PATIENCE_SECONDS
    context.cancelJobGroup(group)
    while time.monotonic() < deadline:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        if not any(stage.numActiveTasks for stage in stages if stage is not None):
            return
        time.sleep(TASKS_POLL_SECONDS)
    log.warning("tasks of a write that failed do not end; what they write is swept later")


def _new_file(folder: str) -> str:
    """Return a name that no other task has, and no other attempt at the same."""
    return join(folder, f"part-{secrets.token_hex(8)}.parquet")


def _write(
    folder: str, by: str | None, access: Access, mark: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    written: list[tuple[str, TableWriter]] = []
    unwritten = f"folder {folder} cannot be written"
    with ExitStack() as stack:
        for of, rows in _runs(portions_of(batches), by):
            with _as_os_error(unwritten, mark):
                if not written or written[-1][0] != of:
                    stack.close()  # what was open is whole
                    written.append((of, stack.enter_context(TableWriter(_new_file(folder), access))))
                written[-1][1].write(rows.cast(_in_files(rows.schema)))
        with _as_os_error(unwritten, mark):
            stack.close()
    yield manifest(WrittenFile(file=writer.uri, bytes=writer.size, of=of) for of, writer in written)


def portions_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Yield what Spark hands over in small batches as tables that are worth a row group each."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.nbytes
        if size >= ROW_GROUP_BYTES:
            yield pa.Table.from_batches(held).combine_chunks()
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held).combine_chunks()


def _runs(portions: Iterable[pa.Table], by: str | None) -> Iterator[tuple[str, pa.Table]]:
    """Yield rows with their text in a column, which is dropped; those that follow each other with the same at once."""
    for portion in portions:
        if by is None:
            yield "", portion
            continue
        runs = pc.run_end_encode(portion.column(by).combine_chunks())
        start = 0
        for end, value in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
            yield value or "", portion.slice(start, end - start).drop_columns(by)
            start = end


# Types


def _in_spark(kind: pa.DataType) -> pa.DataType:
    """Return the type as which Spark has a column that is not nested, where it has another one."""
    types = pa.types
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else ZONE)
    if types.is_decimal(kind) and kind.precision <= MOST_DIGITS:
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_time(kind):
        return pa.time64("ns")
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    return SPARK_TYPES.get(kind, kind)


def _in_files(columns: pa.Schema) -> pa.Schema:
    """Return the columns as files have them that Spark's rows are written to."""
    return _retyped(columns, lambda kind: FILE_TYPES.get(kind, kind)).remove_metadata()


def _nullable(columns: pa.Schema) -> pa.Schema:
    return _retyped(columns, lambda kind: kind)


def _retyped(columns: pa.Schema, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    """Return columns of which all may be null, and what they are made of too; as Spark reads and writes files.

    :param leaf: what becomes of a type that is not nested.
    """

    def field_of(field: pa.Field) -> pa.Field:
        return field.with_type(type_of(field.type)).with_nullable(True)

    def type_of(kind: pa.DataType) -> pa.DataType:
        types = pa.types
        if types.is_dictionary(kind):
            return type_of(kind.value_type)
        if types.is_struct(kind):
            return pa.struct([field_of(field) for field in kind])
        if types.is_map(kind):
            return pa.map_(type_of(kind.key_type), field_of(kind.item_field))
        if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            return pa.list_(field_of(kind.value_field))
        return leaf(kind)

    return pa.schema([field_of(field) for field in columns])


# In the workers


@contextmanager
def _as_os_error(what: str, mark: str) -> Iterator[None]:
    """Raise what goes wrong with files as what no record is to blame for; see `bad_records.NOT_OF_A_RECORD`."""
    try:
        yield
    except Exception as error:
        raise error_of_task(error, what, mark) from error


def _named(name: str, function: partial[Iterator[pa.RecordBatch]]) -> partial[Iterator[pa.RecordBatch]]:
    """Return a function as plans name it."""
    function.__name__ = name  # type: ignore[attr-defined]
    return function
