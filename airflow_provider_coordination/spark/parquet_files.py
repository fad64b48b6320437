"""Parquet files, by URI: writes them durably, and reads them as far as it is needed.

A file that `write_table` has written survives a crash of the machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_coordination.coordination.errors import result_or_raise
from airflow_provider_coordination.spark.access import (
    DEFAULT_ACCESS,
    Access,
)
from airflow_provider_coordination.spark.concurrency import side_by_side
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.storage import calls_at_once, open_files

SMALL_BYTES = 4 * 1024 * 1024
"""The size up to which a file is read whole, in one request: separate requests for its parts take longer."""
END_BYTES = 64 * 1024
"""How many bytes are read from the end of a file, where its schema is."""
PIECE_BYTES = 16 * 1024 * 1024
"""About how many bytes of a file are in memory at a time where it is read in pieces."""
PIECE_ROWS = 64 * 1024
"""The maximum number of rows of a piece: values that repeat take fewer bytes in the file."""
BUFFER_BYTES = 4 * 1024 * 1024
"""How much of a column is read at a time where a file is read in pieces."""


@dataclass(frozen=True, kw_only=True)
class Compression:
    """How the pages of a Parquet file are compressed.

    :param codec: the codec, as pyarrow names it.
    :param level: its level; None for the codec's default.
    """

    codec: str = "zstd"
    level: int | None = None


DEFAULT_COMPRESSION = Compression()


def write_table(
    table: pa.Table, uri: str, access: Access = DEFAULT_ACCESS, compression: Compression = DEFAULT_COMPRESSION
) -> int:
    """Write a Parquet file durably; return its size in bytes."""
    files, path = open_files(uri, access)
    with files.new_file(path) as stream:
        indexed = _indexed(table.schema)
        pq.write_table(
            table,
            stream,
            compression=compression.codec,
            compression_level=compression.level,
            use_dictionary=indexed,
            write_statistics=indexed,
        )
        size = int(stream.tell())
    files.make_durable(path)
    return size


def _indexed(columns: pa.Schema) -> list[str]:
    """Return the columns whose dictionaries and statistics lead no reader astray.

    Bounds do not include NaN, and -0.0 is not in the dictionary of a reader that looks for 0.0. Spark, to which NaN is
    the greatest number and -0.0 equals 0.0, then skips rows that its filter selects.
    """
    return [field.name for field in columns if not pa.types.is_floating(field.type)]


class TableWriter:
    """Writes a Parquet file in pieces. It is durable once closed, and deleted after an error or if it is empty.

    :param uri: the file.
    :param access: the credentials for the file.
    :param unique: columns whose values hardly repeat: a dictionary of them, and their minimum and maximum, would cost
        more than they save.
    :param compression: the compression of the file.
    """

    def __init__(
        self,
        uri: str,
        access: Access = DEFAULT_ACCESS,
        unique: Iterable[str] = (),
        compression: Compression = DEFAULT_COMPRESSION,
    ) -> None:
        self.uri = uri
        self._compression = compression
        self._unique = frozenset(unique)
        self._files, self._path = open_files(uri, access)
        self._writer: pq.ParquetWriter | None = None
        self._stream: pa.NativeFile | None = None
        self.size = 0
        """The size of the file in bytes, once it is closed."""

    def __enter__(self) -> TableWriter:
        """Return itself."""
        return self

    def write(self, table: pa.Table) -> None:
        """Write some rows; the first rows determine the columns.

        :raises ValueError: if the columns differ from those of the first rows.
        """
        if self._writer is None:
            self._stream = self._files.new_file(self._path)
            repeating = [name for name in _indexed(table.schema) if name not in self._unique]
            self._writer = pq.ParquetWriter(
                self._stream,
                table.schema,
                compression=self._compression.codec,
                compression_level=self._compression.level,
                use_dictionary=repeating,
                write_statistics=repeating,
            )
        self._writer.write_table(table)

    def __exit__(self, kind: object, *error: object) -> None:
        """Close the file."""
        if self._stream is None:
            return
        if kind is not None or self._writer is None:
            self._discard(self._stream)
            return
        self._writer.close()
        self.size = int(self._stream.tell())
        self._stream.close()
        self._files.make_durable(self._path)

    def _discard(self, stream: pa.NativeFile) -> None:
        """Delete the file, even if it cannot be closed properly: the disk may be full."""
        for part in (self._writer, stream):
            with suppress(OSError, pa.ArrowException):
                if part is not None:
                    part.close()
        self._files.delete(self._path)


def read_table(uri: str, columns: Sequence[str] | None = None, access: Access = DEFAULT_ACCESS) -> pa.Table:
    """Return the rows of a Parquet file.

    :param columns: only these columns; by default all.
    """
    files, path = open_files(uri, access)
    return pq.read_table(path, columns=columns, filesystem=files.filesystem, partitioning=None)


def pieces_of(uri: str, access: Access = DEFAULT_ACCESS, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield the rows of a Parquet file in their order, some at a time: less than a row group is in memory.

    :param columns: only these columns, as far as the file has them; by default all.
    """
    files, path = open_files(uri, access)
    with pq.ParquetFile(
        path, filesystem=files.filesystem, buffer_size=BUFFER_BYTES, pre_buffer=False, coerce_int96_timestamp_unit="us"
    ) as file:
        names = file.schema_arrow.names
        wanted = names if columns is None else [name for name in columns if name in names]
        size = max((_row_bytes(file.metadata.row_group(n), wanted) for n in range(file.num_row_groups)), default=1)
        for batch in file.iter_batches(max(1, min(PIECE_ROWS, PIECE_BYTES // size)), columns=wanted):
            yield pa.Table.from_batches([batch])


def _row_bytes(group: pq.RowGroupMetaData, columns: Sequence[str]) -> int:
    """Return about how many bytes a row of a row group has in some columns, at least 1."""
    chunks = (group.column(number) for number in range(group.num_columns))
    size = sum(each.total_uncompressed_size for each in chunks if each.path_in_schema.partition(".")[0] in columns)
    return max(1, int(size) // max(1, int(group.num_rows)))


def read_tables(
    files: Mapping[str, int], columns: Sequence[str] | None = None, access: Access = DEFAULT_ACCESS
) -> pa.Table:
    """Return the rows of Parquet files that have the same columns, in their order; several are read at the same time.

    :param files: at least one file, with their sizes in bytes: a small file is read in one request.
    :param columns: only these columns; by default all.
    :raises Exception: the error of the first file that cannot be read.
    """

    def read(file: tuple[str, int]) -> pa.Table:
        uri, size = file
        return read_table(uri, columns, access) if size > SMALL_BYTES else table_in(read_whole(uri, access)[0], columns)

    tables = side_by_side(files.items(), read, calls_at_once(next(iter(files)), access))
    return pa.concat_tables([result_or_raise(table) for _, table in tables])


def read_small(uri: str, access: Access = DEFAULT_ACCESS) -> pa.Table:
    """Return the rows of a small Parquet file: in one request, and without the threads that help with large files."""
    return table_in(read_whole(uri, access)[0])


def table_in(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the rows of a small Parquet file.

    :param content: the content of the file.
    :param columns: only these columns; by default all.
    """
    with pq.ParquetFile(pa.BufferReader(content)) as file:
        table = file.read(columns, use_threads=False)
    return table if columns is None else table.select(columns)


def values_of(uri: str, column: str, access: Access = DEFAULT_ACCESS) -> set[str]:
    """Return the distinct texts in a column of a Parquet file; only one row group at a time is in memory."""
    files, path = open_files(uri, access)
    values: set[str] = set()
    with pq.ParquetFile(path, filesystem=files.filesystem, read_dictionary=[column]) as file:
        for group in range(file.num_row_groups):
            values.update(file.read_row_group(group, columns=[column]).column(0).unique().to_pylist())
    return values


def row_count(uri: str, access: Access = DEFAULT_ACCESS) -> int:
    """Return the number of rows of a Parquet file."""
    files, path = open_files(uri, access)
    return int(pq.read_metadata(path, filesystem=files.filesystem).num_rows)


def schema_of(uri: str, access: Access = DEFAULT_ACCESS, *, end: bytes | None = None) -> pa.Schema:
    """Return the schema of a Parquet file, with its metadata; in a bucket, mostly in one request.

    :param end: the end of the file, if `read_end` has read it already.
    :raises FileNotFoundError: if there is no such file.
    :raises pa.ArrowInvalid: if the file is damaged.
    """
    found = _schema_in(read_end(uri, access)[0] if end is None else end)
    if found is not None:
        return found
    files, path = open_files(uri, access)
    return pq.read_schema(path, filesystem=files.filesystem)


def footer_of(uri: str, access: Access = DEFAULT_ACCESS) -> pq.FileMetaData:
    """Return the footer of a Parquet file: its columns, and the metadata of its row groups."""
    files, path = open_files(uri, access)
    return pq.read_metadata(path, filesystem=files.filesystem)


def read_end(uri: str, access: Access = DEFAULT_ACCESS) -> tuple[bytes, int]:
    """Return the end of a file, for `schema_of`, and its size in bytes; in a bucket, in one request.

    :raises FileNotFoundError: if there is no such file.
    """
    files, path = open_files(uri, access)
    return files.tail(path, END_BYTES)


def _schema_in(end: bytes) -> pa.Schema | None:
    """Return the schema of a Parquet file, with its metadata, from the end of the file; None if that is too short.

    :raises pa.ArrowInvalid: if the file is damaged.
    """
    if len(end) == END_BYTES and int.from_bytes(end[-8:-4], "little") + 8 > END_BYTES:
        return None
    return pq.read_schema(pa.BufferReader(end))


def read_whole(uri: str, access: Access = DEFAULT_ACCESS) -> tuple[bytes, int]:
    """Return the content of a small file, for `table_in`, and its size in bytes; in a bucket, in one request.

    :raises FileNotFoundError: if there is no such file.
    """
    files, path = open_files(uri, access)
    content = files.read(path)
    return content, len(content)


def count_by_batch(rows: pa.Table) -> dict[str, int]:
    """Return the number of rows of each batch."""
    counted = pc.value_counts(rows.column(BATCH_ID).combine_chunks()).to_pylist()
    return {each["values"]: each["counts"] for each in counted}


def rows_by_batch(uri: str, access: Access = DEFAULT_ACCESS) -> Counter[str]:
    """Return the number of rows of each batch in a file, of which less than a row group is in memory."""
    counted: Counter[str] = Counter()
    for piece in pieces_of(uri, access, [BATCH_ID]):
        if BATCH_ID in piece.column_names:
            counted.update(count_by_batch(piece))
    return counted


def batches_of(uri: str, footer: pq.FileMetaData, access: Access = DEFAULT_ACCESS) -> dict[str, int]:
    """Return the number of rows of each batch in a file, from its footer alone if that shows a single batch.

    :param footer: the file's footer.
    """
    only = _only_batch(footer)
    return count_by_batch(read_table(uri, [BATCH_ID], access)) if only is None else {only: footer.num_rows}


def _only_batch(footer: pq.FileMetaData) -> str | None:
    """Return the batch of all rows; None if there are several, or the footer does not show it."""
    batch_ids: set[str | None] = set()
    for group in range(footer.num_row_groups):
        column = _column(footer, group)
        known = None if column is None else column.statistics
        if known is None or not known.has_min_max or not known.has_null_count or known.null_count:
            return None
        batch_ids |= {known.min, known.max}
    return batch_ids.pop() if len(batch_ids) == 1 else None


def _column(footer: pq.FileMetaData, group: int) -> pq.ColumnChunkMetaData | None:
    columns = (footer.row_group(group).column(number) for number in reversed(range(footer.num_columns)))
    return next((column for column in columns if column.path_in_schema == BATCH_ID), None)


ROW_GROUP_BYTES = 32 * 1024 * 1024
"""How much of a merged file is in memory at a time."""


class MergedFile:
    """A file that contains the rows of small landed files, in their order; see `TableWriter`.

    :param uri: the file.
    :param schema: its columns.
    :param access: the credentials for the file.
    :param compression: the compression of the file.
    :param keeps_empty: whether a file without rows is written if no row is added.
    """

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        access: Access = DEFAULT_ACCESS,
        compression: Compression = DEFAULT_COMPRESSION,
        *,
        keeps_empty: bool = False,
    ) -> None:
        self.uri = uri
        self._schema = schema
        self._keeps_empty = keeps_empty
        self._writer = TableWriter(uri, access, compression=compression)
        self._waiting: list[pa.Table] = []
        self._bytes = 0

    @property
    def size(self) -> int:
        """The size of the file in bytes, once it is closed."""
        return self._writer.size

    def __enter__(self) -> MergedFile:
        """Return itself."""
        return self

    def add(self, rows: pa.Table) -> None:
        """Add the rows of a landed file."""
        self._waiting.append(rows.select(self._schema.names).cast(self._schema))
        self._bytes += rows.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        self._writer.write(pa.concat_tables(self._waiting))
        self._waiting, self._bytes = [], 0

    def __exit__(self, kind: object, *error: object) -> None:
        """Close the file; after an error, delete it."""
        if kind is None and self._keeps_empty and not self._waiting:
            self._waiting = [self._schema.empty_table()]
        if kind is not None or not self._waiting:
            self._writer.__exit__(kind, *error)
            return
        with self._writer:
            self._write()


def column_types(schema: pa.Schema) -> dict[str, str]:
    """Return the types of columns as text, by column."""
    return {field.name: str(field.type) for field in schema}
