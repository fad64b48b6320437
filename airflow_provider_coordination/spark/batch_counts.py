"""The number of rows of each batch in a Parquet file, by the column `_batch_id`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.storage import read_table


def count_by_batch(rows: pa.Table) -> dict[str, int]:
    """Return the number of rows of each batch."""
    counted = pc.value_counts(rows.column(BATCH_ID).combine_chunks()).to_pylist()
    return {each["values"]: each["counts"] for each in counted}


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
