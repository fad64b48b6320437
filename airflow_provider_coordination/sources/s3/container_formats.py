"""Objects in formats that hold a schema: Parquet, ORC and Avro."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.avro import (
    AvroContainerError,
    AvroDataError,
    AvroHeader,
    AvroReader,
    AvroSchemaError,
    columns_of_schema,
    plain_block,
    read_blocks,
    read_header,
)
from airflow_provider_coordination.sources.items import ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.landed_types import REMEDY
from airflow_provider_coordination.sources.s3.columns import Columns
from airflow_provider_coordination.sources.s3.object_streams import ReadableObject
from airflow_provider_coordination.sources.s3.text_formats import Format
from airflow_provider_coordination.spark.decoding.columns import PayloadField, columns_of_rows

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData, ParquetFile

WHOLE_BYTES = 32 * 2**20
"""A row group up to this size is fetched with few requests before it is parsed; a larger one is fetched in parts."""
PARTS_BYTES = 16 * 2**20
"""The total size of the parts of all columns."""
MIN_PART_BYTES = 64 * 2**10


@dataclass(frozen=True)
class ParquetFormat(Format):
    """Parquet, read by row groups. A position counts rows; reading continues from the start of its row group.

    :param columns: the columns and their types; None uses those of each object.
    :param page_bytes: the approximate size of a page in bytes.
    """

    columns: Columns | None
    page_bytes: int

    @override
    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        from pyarrow.parquet import read_metadata

        read, skipped = int(position or 0), 0
        try:
            opened = source.file()
            footer = read_metadata(opened)
            with _opened(opened, footer, MICROSECONDS) as file:
                if self.columns is not None:
                    self.columns.check_found(file.schema_arrow.names)
                self._check_intervals(footer)
                int96 = int96_columns(footer, file.schema_arrow.names if self._names is None else self._names)
                exact = _opened(opened, footer, NANOSECONDS) if int96 else None
                for number in range(file.num_row_groups):
                    group = file.metadata.row_group(number)
                    if skipped + group.num_rows <= read:
                        skipped += group.num_rows
                        continue
                    rows = max(1, self.page_bytes * group.num_rows // max(1, group.total_byte_size))
                    batches = file.iter_batches(rows, [number], self._names, use_threads=False)
                    if exact is not None:
                        same = exact.iter_batches(rows, [number], int96, use_threads=False)
                        batches = with_nanoseconds(batches, same)
                    for batch in batches:
                        left = batch.slice(max(0, read - skipped))
                        skipped += batch.num_rows
                        if left.num_rows:
                            read = skipped
                            yield ReadPage(_cast(left, self.columns), str(read))
        except (OSError, pa.ArrowException, EOFError) as error:  # of Parquet; the object raises errors of this package
            raise ItemUnreadableError(f"it is not complete Parquet: {error}") from error

    @property
    def _names(self) -> list[str] | None:
        return None if self.columns is None else self.columns.names

    def _check_intervals(self, footer: FileMetaData) -> None:
        """Check that no column holds an INTERVAL of parquet-java, which pyarrow reads as nulls.

        :raises ItemUnreadableError: naming the column.
        """
        for number in range(footer.num_columns):
            column = footer.schema.column(number)
            is_read = self._names is None or column.path.partition(".")[0] in self._names
            if is_read and column.physical_type == "FIXED_LEN_BYTE_ARRAY" and column.logical_type.type == "UNKNOWN":
                parts = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
                if not all(each.statistics and each.statistics.null_count == each.num_values for each in parts):
                    raise ItemUnreadableError(f"column {column.path!r}: type INTERVAL is not supported; {REMEDY}")


def _cast(batch: pa.RecordBatch, columns: Columns | None) -> pa.Table:
    """Return rows of an object with the configured columns; with its own if none are configured."""
    table = pa.Table.from_batches([batch])
    return table if columns is None else columns.cast(table)


def _opened(source: Any, footer: FileMetaData, int96_unit: str) -> ParquetFile:
    """Open a file so that the memory for reading does not grow with its row groups."""
    from pyarrow.parquet import ParquetFile

    largest = max((footer.row_group(n).total_byte_size for n in range(footer.num_row_groups)), default=0)
    opened = partial(ParquetFile, source, metadata=footer, coerce_int96_timestamp_unit=int96_unit)
    if largest <= WHOLE_BYTES:
        return opened(pre_buffer=True)
    return opened(pre_buffer=False, buffer_size=max(MIN_PART_BYTES, PARTS_BYTES // max(1, footer.num_columns)))


MICROSECONDS = "us"
NANOSECONDS = "ns"
"""The units in which pyarrow reads INT96 timestamps."""


def int96_columns(footer: FileMetaData, wanted: Sequence[str]) -> list[str]:
    """Return the columns of a file with INT96 timestamps, also within others.

    :param wanted: the columns to choose from.
    """
    columns = [footer.schema.column(number) for number in range(footer.num_columns)]
    found = {column.path.split(".")[0] for column in columns if column.physical_type == "INT96"}
    return [name for name in wanted if name.split(".")[0] in found]


def with_nanoseconds(
    microseconds: Iterator[pa.RecordBatch], nanoseconds: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield batches whose INT96 columns have microseconds, or nanoseconds where microseconds lose digits.

    :param microseconds: all columns, in batches of any size.
    :param nanoseconds: the INT96 columns of the same rows, in batches of any size.
    :raises ItemUnreadableError: if neither unit can hold the values of a batch.
    """
    read: pa.Table | None = None
    for batch in microseconds:
        while read is None or read.num_rows < batch.num_rows:
            more = pa.Table.from_batches([next(nanoseconds)])
            read = more if read is None else pa.concat_tables([read, more])
        yield _exact(batch, read[: batch.num_rows].combine_chunks())
        read = read[batch.num_rows :]


def _exact(batch: pa.RecordBatch, nanoseconds: pa.Table) -> pa.RecordBatch:
    for name in nanoseconds.column_names:
        micro = batch.column(name)
        nano = pa.concat_arrays(nanoseconds.column(name).chunks)
        if micro.cast(nano.type, safe=False).equals(nano):
            continue
        if not nano.cast(micro.type, safe=False).equals(micro):
            raise ItemUnreadableError(
                f"column {name!r}: some of its INT96 timestamps have nanoseconds, and others are outside the years "
                f"1677 to 2262; {REMEDY}"
            )
        batch = batch.set_column(batch.schema.get_field_index(name), name, nano)
    return batch


@dataclass(frozen=True)
class OrcFormat(Format):
    """ORC, read by stripes. A position counts stripes.

    :param columns: the columns and their types; None uses those of each object.
    :param page_bytes: the approximate size of a page in bytes.
    """

    columns: Columns | None
    page_bytes: int

    @override
    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        from pyarrow.orc import ORCFile

        names = None if self.columns is None else self.columns.names
        try:
            file = ORCFile(source.file())
            if self.columns is not None:
                self.columns.check_found(file.schema.names)
            for stripe in range(int(position or 0), file.nstripes):
                batch = file.read_stripe(stripe, names)
                rows = max(1, self.page_bytes * batch.num_rows // max(1, batch.nbytes))
                for first in range(0, batch.num_rows, rows):
                    is_end = first + rows >= batch.num_rows
                    yield ReadPage(_cast(batch.slice(first, rows), self.columns), str(stripe + 1) if is_end else "")
        except (OSError, pa.ArrowException) as error:  # errors of ORC; the object raises errors of this package
            raise ItemUnreadableError(f"it is not complete ORC, or has a value that cannot be read: {error}") from error


MAX_BLOCK_BYTES = 256 * 2**20
"""The maximum size of a block once it is decompressed."""


@dataclass(frozen=True)
class AvroFormat(Format):
    """Avro, read by blocks. A position is the offset of a block.

    :param columns: the columns and their types; None uses those of each object.
    :param page_bytes: the approximate size of a page in uncompressed bytes.
    """

    columns: Columns | None
    page_bytes: int

    @override
    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        try:
            header = read_header(source.stream(0))
            fields, reader = self._fields(header), AvroReader.of([header.schema])
            start = int(position or header.size)
            rows: list[Mapping[str, Any]] = []
            size = 0
            for block in read_blocks(source.stream(start), header, start):
                plain = plain_block(block, header.codec, MAX_BLOCK_BYTES)
                rows += (value for _, value in reader.several(plain, block.count))
                start, size = block.end, size + len(plain)
                if size >= self.page_bytes:
                    yield ReadPage(_records(fields, rows), str(start))
                    rows, size = [], 0
            if rows:
                yield ReadPage(_records(fields, rows), str(start))
        except (AvroContainerError, AvroDataError) as error:
            raise ItemUnreadableError(f"it is not complete Avro: {error}") from error
        except AvroSchemaError as error:
            raise ItemUnreadableError(f"its schema of Avro has no columns: {error}") from error

    def _fields(self, header: AvroHeader) -> list[PayloadField]:
        """Return the columns of an object.

        :raises ItemUnreadableError: if it lacks a configured one.
        """
        if self.columns is None:
            schema = columns_of_schema(header.schema)
        else:
            self.columns.check_found(AvroReader.of([header.schema]).field_names)
            schema = self.columns.schema
        return [PayloadField(name=each.name, kind=each.type, type_name=str(each.type)) for each in schema]


def _records(fields: list[PayloadField], rows: list[Mapping[str, Any]]) -> pa.Table:
    wrong: dict[int, str] = {}
    columns = columns_of_rows(fields, rows, wrong)
    if wrong:
        row, reason = min(wrong.items())
        raise ItemUnreadableError(f"row {row} of a block: {reason.partition(': ')[2]}; {REMEDY}")
    return pa.Table.from_arrays(columns, schema=pa.schema([(field.name, field.kind) for field in fields]))
