"""Data files of a Delta table: written below it, and of no version of it until a commit names them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.batch_counts import batches_of
from airflow_provider_coordination.spark.layout import BATCH_ID
from airflow_provider_coordination.spark.storage import (
    delete_file,
    file_size,
    footer_of,
    join,
    read_table,
    write_table,
)

_AT = "_coordination_at"
LONGEST_TEXT = 64
"""The longest text that a file's statistics hold."""


@dataclass(frozen=True, kw_only=True)
class DataFile:
    """A data file.

    :param name: where it is below the table.
    :param bytes: its size.
    :param rows: how many rows it holds.
    :param partition: the values, as texts, of the columns that the table is partitioned by.
    :param stats: what the log says of its columns, as JSON.
    :param batches: how many rows it holds of each batch.
    """

    name: str
    bytes: int
    rows: int
    partition: Mapping[str, str | None]
    stats: str
    batches: Mapping[str, int] = field(default_factory=dict)


class DataFiles:
    """The data files of a table.

    :param root: the table's folder.
    :param access: how it is reached.
    """

    def __init__(self, root: str, access: Access = DEFAULT_ACCESS) -> None:
        self._root = root
        self._access = access

    def fitted(self, name: str, schema: pa.Schema, partition_by: Sequence[str]) -> list[DataFile]:
        """Make a file fit for the table, and return what becomes of it: itself, or files in its place.

        :param name: the file's name, below the table.
        :param schema: the columns as the table has them.
        :param partition_by: those that it is partitioned by. They stay in the files.
        """
        uri = join(self._root, name)
        footer = footer_of(uri, self._access)
        if _is_alike(footer.schema.to_arrow_schema(), schema):
            values = _values(read_table(uri, list(partition_by), self._access), partition_by) if partition_by else [{}]
            if len(values) == 1:
                return [self._described(name, footer, values[0])]
        rows = read_table(uri, access=self._access)
        rows = pa.table([rows[column.name].cast(column.type) for column in schema], schema=schema)
        folder, _, _ = name.rpartition("/")
        made = [self.written(folder, part, partition_by) for part in _split(rows, partition_by)]
        delete_file(uri, self._access)
        return made

    def written(self, folder: str, rows: pa.Table, partition_by: Sequence[str]) -> DataFile:
        """Write rows of one partition of the table to a new file."""
        name = join(folder, f"part-{secrets.token_hex(8)}.parquet")
        uri = join(self._root, name)
        write_table(rows, uri, self._access)
        [values] = _values(rows, partition_by)
        return self._described(name, footer_of(uri, self._access), values)

    def rows_of(self, file: DataFile, batch_ids: Collection[str]) -> pa.Table:
        """Return the rows that a file holds of some batches."""
        rows = read_table(join(self._root, file.name), access=self._access)
        return rows.filter(pc.is_in(rows[BATCH_ID], pa.array(batch_ids, pa.string())))

    def _described(self, name: str, footer: pq.FileMetaData, values: Mapping[str, Any]) -> DataFile:
        uri = join(self._root, name)
        return DataFile(
            name=name,
            bytes=file_size(uri, self._access) or 0,
            rows=footer.num_rows,
            partition={column: partition_text(value) for column, value in values.items()},
            stats=json.dumps(statistics(footer)),
            batches=batches_of(uri, footer, self._access),
        )


def _is_alike(one: pa.Schema, other: pa.Schema) -> bool:
    """Return whether columns have the same names and types, whether they may be null or not."""
    return {each.name: each.type for each in one} == {each.name: each.type for each in other}


def _values(rows: pa.Table, partition_by: Sequence[str]) -> list[dict[str, Any]]:
    """Return the different values of the columns that a table is partitioned by: one, empty, if there is none."""
    return rows.select(partition_by).group_by(list(partition_by)).aggregate([]).to_pylist() if partition_by else [{}]


def _split(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each partition of a table."""
    if not partition_by:
        yield rows
        return
    keys = rows.select(partition_by).append_column(_AT, pa.array(range(rows.num_rows), pa.int64()))
    for places in keys.group_by(list(partition_by)).aggregate([(_AT, "list")])[f"{_AT}_list"]:
        yield rows.take(places.values)


def partition_text(value: Any) -> str | None:
    """Return a value of a column that a table is partitioned by, as the log has it; an empty text is null there."""
    match value:
        case None | "":
            return None
        case bool():
            return str(value).lower()
        case datetime():
            at = value if value.tzinfo is None else value.astimezone(UTC)
            return f"{at.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}"
        case _:
            return str(value)


def statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """Return what a log says of a file's columns: enough for readers to pass over files.

    Columns are left out whose bounds could mislead: with NaN, or where JSON would round them.
    """
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for number in range(footer.num_columns):
        found = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
        column = found[0].path_in_schema if found else ""
        known = [each.statistics for each in found if each.statistics is not None]
        if not found or "." in column or len(known) < len(found):
            continue
        if all(each.has_null_count for each in known):
            nulls[column] = sum(each.null_count for each in known)
        bounded = [each for each in known if each.has_min_max]
        if not bounded or sum(each.num_values for each in known) != sum(each.num_values for each in bounded):
            continue
        low, high = _bound(min(each.min for each in bounded)), _bound(max(each.max for each in bounded), up=True)
        if low is not None and high is not None:
            least[column], greatest[column] = low, high
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls}


def _bound(value: Any, *, up: bool = False) -> int | str | None:
    """Return a bound of a column as the log has it; None if it has none.

    :param up: whether it is the upper one: instants are known to the millisecond there.
    """
    match value:
        case bool():
            return None
        case int():
            return value
        case str():
            return value if len(value) <= LONGEST_TEXT else None
        case datetime():
            return _instant(value, up=up)
        case date():
            return value.isoformat()
        case _:
            return None


def _instant(value: datetime, *, up: bool) -> str | None:
    at = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
    micros = at.microsecond % 1000
    if up and micros:
        try:
            at += timedelta(microseconds=1000 - micros)
        except OverflowError:
            return None
    zone = "" if value.tzinfo is None else "Z"
    return f"{at.isoformat(timespec='milliseconds')}{zone}"
