"""INT96 timestamps of Parquet files, which Spark, Hive and Impala write: a day, and a nanosecond of it.

Read as nanoseconds, they have the years 1677 to 2262 only: pyarrow wraps others around. Read as microseconds, all years
are right, but the last three digits are dropped. So both are read and compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_coordination.sources.exact_casts import REMEDY
from airflow_provider_coordination.sources.items import ItemUnreadableError

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

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
