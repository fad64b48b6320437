"""Parquet, with its own columns or the configured ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.landed_types import REMEDY, cast_exactly
from airflow_provider_coordination.sources.s3.columns import Columns
from airflow_provider_coordination.sources.s3.lines import Format
from airflow_provider_coordination.sources.s3.object_streams import ReadableObject

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
                self._check(file.schema_arrow)
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
                            yield ReadPage(self._records(left), str(read))
        except (
            OSError,
            pa.ArrowException,
            EOFError,
        ) as error:  # errors of Parquet; the object raises errors of this package
            raise ItemUnreadableError(f"it is not complete Parquet: {error}") from error

    @property
    def _names(self) -> list[str] | None:
        return None if self.columns is None else self.columns.names

    def _check(self, schema: pa.Schema) -> None:
        """Check that an object has the configured columns.

        :raises ItemUnreadableError: if one is missing.
        """
        if self.columns is not None and (missing := [n for n in self.columns.names if n not in schema.names]):
            raise ItemUnreadableError(
                f"its columns have changed: expected {', '.join(map(repr, self.columns.names))}, found "
                f"{', '.join(map(repr, schema.names))}: there is no {', '.join(map(repr, missing))}"
            )

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

    def _records(self, batch: pa.RecordBatch) -> pa.Table:
        table = pa.Table.from_batches([batch])
        if self.columns is not None:
            return pa.table({f.name: cast_exactly(f.name, table.column(f.name), f.type) for f in self.columns.schema})
        return table


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
