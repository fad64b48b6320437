"""Parquet, with its own columns or the configured ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from airflow_provider_coordination.sources.items import ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.s3.columns import Columns
from airflow_provider_coordination.sources.s3.object_streams import ReadableObject

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetFile

WHOLE_BYTES = 32 * 2**20
"""A row group up to this size is fetched with few requests before it is parsed; a larger one is fetched in parts."""
PARTS_BYTES = 16 * 2**20
"""The total size of the parts of all columns."""
LEAST_PART_BYTES = 64 * 2**10


@dataclass(frozen=True)
class ParquetFormat:
    """Parquet, read by row groups. A position counts rows; reading continues from the start of its row group.

    :param columns: the columns and their types; None uses those of each object.
    :param page_bytes: the approximate size of a page in bytes.
    """

    columns: Columns | None
    page_bytes: int

    def pages(self, source: ReadableObject, position: str) -> Iterator[ReadPage]:
        """See `Format.pages`."""
        read, skipped = int(position or 0), 0
        try:
            with _opened(source.file()) as file:
                self._check(file.schema_arrow)
                for number in range(file.num_row_groups):
                    group = file.metadata.row_group(number)
                    if skipped + group.num_rows <= read:
                        skipped += group.num_rows
                        continue
                    rows = max(1, self.page_bytes * group.num_rows // max(1, group.total_byte_size))
                    for batch in file.iter_batches(rows, [number], self._names, use_threads=False):
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

    def _check(self, found: pa.Schema) -> None:
        """Check that an object has the configured columns.

        :raises ItemUnreadableError: if one is missing.
        """
        if self.columns is not None and (missing := [n for n in self.columns.names if n not in found.names]):
            raise ItemUnreadableError(
                f"its columns have changed: expected {', '.join(map(repr, self.columns.names))}, found "
                f"{', '.join(map(repr, found.names))}: there is no {', '.join(map(repr, missing))}"
            )

    def _records(self, batch: pa.RecordBatch) -> pa.Table:
        table = pa.Table.from_batches([batch])
        if self.columns is not None:
            try:
                return table.select(self.columns.names).cast(self.columns.schema)
            except pa.ArrowException as error:
                raise ItemUnreadableError(f"its values do not fit the columns: {error}") from error
        return table


def _opened(source: Any) -> ParquetFile:
    """Open a file so that the memory for reading does not grow with its row groups."""
    from pyarrow.parquet import ParquetFile, read_metadata

    metadata = read_metadata(source)
    largest = max((metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)), default=0)
    if largest <= WHOLE_BYTES:
        return ParquetFile(source, metadata=metadata, pre_buffer=True)
    part = max(LEAST_PART_BYTES, PARTS_BYTES // max(1, metadata.num_columns))
    return ParquetFile(source, metadata=metadata, pre_buffer=False, buffer_size=part)
