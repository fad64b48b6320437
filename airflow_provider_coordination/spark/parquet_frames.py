"""DataFrames from Parquet files, and Parquet files from DataFrames: pyarrow reads and writes them, in the workers.

Spark itself opens no file. So a bucket is accessed with the sinks' credentials, and needs no jars. Credentials travel
only within the tasks: Spark's configuration, plans, events and pages do not contain them.
"""

from __future__ import annotations

import heapq
import json
import logging
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_coordination.coordination.errors import result_or_raise
from airflow_provider_coordination.sources.landed_types import landed_type, retyped, typed_columns, with_landed_types
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.decoding.decoder import Decoder, Place
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.layout import similar_names
from airflow_provider_coordination.spark.outages import OUTAGE_MARK, error_of_task
from airflow_provider_coordination.spark.parquet_files import SMALL_BYTES, TableWriter, read_whole, write_table
from airflow_provider_coordination.spark.slots import MANIFEST, collect_rows, manifest
from airflow_provider_coordination.spark.spark_versions import activate, arrow_schema, frame_schema
from airflow_provider_coordination.spark.storage import calls_at_once, join, open_files

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

ROW_GROUP_BYTES = 32 * 1024 * 1024
"""How many bytes of Spark's small batches are collected for a row group."""
BATCH_BYTES = 4 * 1024 * 1024
"""How many bytes Spark gets in one batch."""
BATCH_ROWS = 10_000
"""How many rows Spark gets in one batch, at most."""
OPENING_BYTES = 4 * 1024 * 1024
"""How many bytes could be read in the time that it takes to open a file; Spark's own estimate."""
TASK_BYTES = 128 * 1024 * 1024
"""How many bytes one task reads at most, as far as row groups allow it; Spark's own limit."""
AHEAD_BYTES = 32 * 1024 * 1024
"""How many bytes of the next small files a task holds at most."""
TASKS_WAIT_SECONDS = 30.0
"""How long to wait for the tasks of a failed write."""
TASKS_POLL_SECONDS = 0.05
NO_TYPE = re.compile(r"interval( (year|month).*)?|variant|(geometry|geography).*")
"""The types of Spark, as JSON names them, that cannot be written."""


# Reading


@dataclass(frozen=True)
class _FilePart:
    """Some row groups of a file: one of `of` parts, as even as they can be."""

    file: str
    part: int = 0
    of: int = 1
    small_bytes: int = 0
    """The size of a file that is read in one request; 0 for a larger file."""


@dataclass(frozen=True)
class Decoding:
    """How the payloads of records are decoded where their files are read.

    :param decoder: decodes them.
    :param without: the records that are left out.
    """

    decoder: Decoder
    without: frozenset[Place] = frozenset()


def read_frame(
    spark: SparkSession, files: Mapping[str, int], schema: StructType, access: Access, decoding: Decoding | None = None
) -> DataFrame:
    """Return the rows of files as a DataFrame; the files are read when Spark needs them.

    If Spark fails because of a file, the error is an `OSError`; `outages` recognizes the outages among them.

    :param files: at least one file, with their sizes in bytes.
    :param schema: the wanted columns, as `spark_schema` returns them; null if a file does not have a column.
    :param access: the credentials for the files.
    :param decoding: decodes the records' payloads, which adds columns; None to leave them as they are.
    """
    activate(spark)
    tasks = _dealt(files, spark.sparkContext.defaultParallelism)
    wanted = retyped(arrow_schema(schema), lambda kind: kind)
    read = _named("read_parquet", partial(_read, tasks, wanted, access, OUTAGE_MARK, decoding))
    made = wanted if decoding is None else decoding.decoder.schema(wanted)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(read, frame_schema(made))


def spark_schema(columns: pa.Schema) -> StructType:
    """Return the columns of a file with Spark's types.

    :raises pa.ArrowNotImplementedError: if Spark has no such type.
    """
    from pyspark.errors import PySparkTypeError

    try:
        return frame_schema(retyped(columns, _in_spark))
    except PySparkTypeError as error:
        raise pa.ArrowNotImplementedError(str(error)) from None


def _dealt(files: Mapping[str, int], slots: int) -> list[list[_FilePart]]:
    """Distribute files over tasks with about the same work, in order within each task; large files go to several."""
    total = sum(files.values()) + OPENING_BYTES * len(files)
    task_bytes = max(OPENING_BYTES, min(TASK_BYTES, total / slots))
    pieces: list[tuple[float, _FilePart]] = []
    for file, size in files.items():
        of = max(1, ceil(size / task_bytes))
        piece = _FilePart(file, of=of, small_bytes=size if size <= SMALL_BYTES else 0)
        pieces += [(size / of + OPENING_BYTES, replace(piece, part=part)) for part in range(of)]
    tasks: list[list[int]] = [[] for _ in range(max(1, int(total / task_bytes)))]
    loads = [(0.0, n) for n in range(len(tasks))]
    for number in sorted(range(len(pieces)), key=lambda number: -pieces[number][0]):
        load, task = loads[0]
        tasks[task].append(number)
        heapq.heapreplace(loads, (load + pieces[number][0], task))
    return [[pieces[number][1] for number in sorted(task)] for task in tasks if task]


def _read(
    tasks: Sequence[Sequence[_FilePart]],
    schema: pa.Schema,
    access: Access,
    mark: str,
    decoding: Decoding | None,
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            for piece, fetched in side_by_side(tasks[number], partial(_small, access), _at_once(tasks[number], access)):
                with _as_os_error(f"file {piece.file} cannot be read", mark):
                    for rows in _rows(piece, result_or_raise(fetched), schema, access):
                        yield from (rows,) if decoding is None else decoding.decoder.decoded(rows, decoding.without)


def _at_once(pieces: Sequence[_FilePart], access: Access) -> int:
    """Return the number of small files to fetch at the same time: in a bucket, fetching mostly waits."""
    largest = max(piece.small_bytes for piece in pieces)
    return min(calls_at_once(pieces[0].file, access), AHEAD_BYTES // max(1, largest))


def _small(access: Access, piece: _FilePart) -> bytes | None:
    """Return the content of a small file; None for a larger file, which is read one row group at a time."""
    return read_whole(piece.file, access)[0] if piece.small_bytes else None


def _rows(piece: _FilePart, fetched: bytes | None, schema: pa.Schema, access: Access) -> Iterator[pa.RecordBatch]:
    if fetched is None:
        files, path = open_files(piece.file, access)
        opened = pq.ParquetFile(path, filesystem=files.filesystem, pre_buffer=True)
    else:
        opened = pq.ParquetFile(pa.BufferReader(fetched))
    with opened as file:
        existing = set(file.schema_arrow.names)
        wanted = [name for name in schema.names if name in existing]
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
        batch.column(field.name).cast(field.type) if field.name in names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]  # fmt: skip
    return pa.RecordBatch.from_arrays(columns, schema=schema)


# Writing


@dataclass(frozen=True, kw_only=True)
class WrittenFile:
    """A file that a task wrote.

    :param file: its location.
    :param bytes: its size.
    :param of: the text by which its rows are separated from others; empty if rows are not separated.
    """

    file: str
    bytes: int
    of: str = ""


def write_frame(rows: DataFrame, folder: str, access: Access, by: str | None = None) -> list[WrittenFile]:
    """Write rows to new files in a folder, one file for each Spark partition; return the files.

    Files of tasks that failed or were lost are not returned: if Spark's rows end with an error, a task takes that for
    their end.

    :param by: a column of texts that is not written; rows with different texts go to different files.
    :returns: at least one file; without rows, an empty file that has the columns.
    :raises DeliveryError: if two columns have the same name, or names that differ only in case.
    :raises Exception: what Spark raises if the rows cannot be made or written; write errors are an `OSError`, as for
        reading.
    """
    if similar := similar_names(arrow_schema(rows.schema)):
        raise DeliveryError(f"the transform returns the columns {similar[0]!r} and {similar[1]!r}; rename one of them")
    if by is not None:
        rows = rows.sortWithinPartitions(by)  # so that one file is open at a time
    write = _named("write_parquet", partial(_write, folder, rows.columns, by, access, OUTAGE_MARK))
    context, group = rows.sparkSession.sparkContext, f"writing {secrets.token_hex(8)}"
    context.setJobGroup(group, "write Parquet files")
    try:
        written = collect_rows(numbered(rows).mapInArrow(write, MANIFEST), WrittenFile)
    except Exception:
        _wait_for_tasks(context, group)
        raise
    if written:
        return written
    schema = rows.schema if by is None else rows.drop(by).schema
    file, empty = _new_file(folder), _as_written(arrow_schema(schema).empty_table())
    return [WrittenFile(file=file, bytes=write_table(empty, file, access))]


def numbered(rows: DataFrame) -> DataFrame:
    """Return rows with numbers as names of their columns: `mapInArrow` takes dots and backticks in names for syntax."""
    return rows.toDF(*(f"c{number}" for number, _ in enumerate(rows.columns)))


def columns_without_type(rows: DataFrame) -> Iterator[tuple[str, str]]:
    """Yield the path and Spark's type of each column that `write_frame` cannot write, also within others."""

    def found(path: str, kind: Any) -> Iterator[tuple[str, str]]:
        if isinstance(kind, str):
            if NO_TYPE.fullmatch(kind):
                yield path, kind.upper()
            return
        for field in kind.get("fields", ()):
            yield from found(f"{path}.{field['name']}" if path else field["name"], field["type"])
        for part in ("elementType", "keyType", "valueType"):
            if part in kind:
                yield from found(path, kind[part])

    # By the JVM: in Python, such a schema raises an error without the column's name.
    return found("", json.loads(rows._jdf.schema().json()))


def _wait_for_tasks(context: SparkContext, group: str) -> None:
    """Wait until no task of a failed job writes any more, so that no file appears after the folder is deleted."""
    tracker, deadline = context.statusTracker(), time.monotonic() + TASKS_WAIT_SECONDS
    context.cancelJobGroup(group)
    while time.monotonic() < deadline:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        if not any(stage.numActiveTasks for stage in stages if stage is not None):
            return
        time.sleep(TASKS_POLL_SECONDS)
    log.warning("tasks of a failed write are still running; their files are swept later")


def _as_written(rows: pa.Table) -> pa.Table:
    """Return Spark's rows with the types that files have; Spark's own files have no columns without a type either."""
    landed = with_landed_types(rows)
    return landed.select(typed_columns(landed.schema).names)


def _new_file(folder: str) -> str:
    """Return a name that no other task, and no other attempt of the same task, uses."""
    return join(folder, f"part-{secrets.token_hex(8)}.parquet")


def _write(
    folder: str, names: Sequence[str], by: str | None, access: Access, mark: str, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    written: list[tuple[str, TableWriter]] = []
    unwritten = f"folder {folder} cannot be written"
    with ExitStack() as stack:
        for of, rows in _runs((portion.rename_columns(list(names)) for portion in portions_of(batches)), by):
            landed = _as_written(rows)
            with _as_os_error(unwritten, mark):
                if not written or written[-1][0] != of:
                    stack.close()  # the open file is complete
                    written.append((of, stack.enter_context(TableWriter(_new_file(folder), access))))
                written[-1][1].write(landed)
        with _as_os_error(unwritten, mark):
            stack.close()
    yield manifest(WrittenFile(file=writer.uri, bytes=writer.size, of=of) for of, writer in written)


def portions_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Collect Spark's small batches, and yield tables of one row group each."""
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
    """Yield runs of rows that have the same text in a column, each with the text; the column is dropped."""
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
    """Return Spark's type for the type of a column that is not nested."""
    landed = kind if pa.types.is_null(kind) else landed_type(kind)
    if pa.types.is_time(landed):
        return pa.time64("ns")
    return pa.binary() if pa.types.is_fixed_size_binary(landed) else landed


# In the workers


@contextmanager
def _as_os_error(what: str, mark: str) -> Iterator[None]:
    """Raise errors of files as an `OSError`, which is no record's fault; see `bad_records.NOT_CAUSED_BY_RECORD`."""
    try:
        yield
    except Exception as error:
        raise error_of_task(error, what, mark) from error


def _named(name: str, function: partial[Iterator[pa.RecordBatch]]) -> partial[Iterator[pa.RecordBatch]]:
    """Return a function with the name that it has in Spark's plans."""
    function.__name__ = name  # type: ignore[attr-defined]
    return function
