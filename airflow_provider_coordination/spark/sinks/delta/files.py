"""Data files of a Delta table, and the columns that it can accept.

Files are written below the table, but belong to no version until a commit adds them. A table accepts new columns, and
values of a narrower type than its column has. Any other difference is an error that names the columns and both types.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import Field, Schema
from deltalake.schema import PrimitiveType
from deltalake.transaction import AddAction

from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.layout import BATCH_ID, similar_names
from airflow_provider_coordination.spark.parquet_files import batches_of, footer_of, read_table, write_table
from airflow_provider_coordination.spark.storage import delete_file, file_size, join
from airflow_provider_coordination.spark.table_sinks import PreparedFile

_AT = "_coordination_at"
LONGEST_TEXT = 64
"""The length of the longest text in a file's statistics, in characters."""


WIDER = (("byte", "short", "integer", "long"), ("float", "double"))
"""Types in order: each one holds all values of those before it."""


class DataFiles:
    """The data files of a table.

    :param root: the folder of the table.
    :param access: how to reach it.
    """

    def __init__(self, root: str, access: Access = DEFAULT_ACCESS) -> None:
        self._root = root
        self._access = access

    def fit_to_table(self, name: str, schema: pa.Schema, partition_by: Sequence[str]) -> list[PreparedFile]:
        """Make a file fit the table; return the file itself, or the files that replace it.

        :param name: the path of the file, relative to the table.
        :param schema: the columns of the table.
        :param partition_by: the partition columns of the table. They stay in the files.
        """
        uri = join(self._root, name)
        footer = footer_of(uri, self._access)
        if _same_columns(footer.schema.to_arrow_schema(), schema):
            values = _values(read_table(uri, list(partition_by), self._access), partition_by) if partition_by else [{}]
            if len(values) == 1:
                return [self._data_file(name, footer, values[0])]
        rows = read_table(uri, access=self._access)
        rows = pa.table([rows[column.name].cast(column.type) for column in schema], schema=schema)
        folder, _, _ = name.rpartition("/")
        made = [self.write(folder, part, partition_by) for part in _split(rows, partition_by)]
        delete_file(uri, self._access)
        return made

    def write(self, folder: str, rows: pa.Table, partition_by: Sequence[str]) -> PreparedFile:
        """Write rows of one partition of the table to a new file."""
        name = join(folder, f"part-{secrets.token_hex(8)}.parquet")
        uri = join(self._root, name)
        write_table(rows, uri, self._access)
        [values] = _values(rows, partition_by)
        return self._data_file(name, footer_of(uri, self._access), values)

    def rows_of(self, file: PreparedFile) -> pa.Table:
        """Return the rows of a file's batches."""
        rows = read_table(join(self._root, file.name), access=self._access)
        return rows.filter(pc.is_in(rows[BATCH_ID], pa.array(file.batches, pa.string())))

    def _data_file(self, name: str, footer: pq.FileMetaData, values: Mapping[str, Any]) -> PreparedFile:
        uri = join(self._root, name)
        return PreparedFile(
            name=name,
            bytes=file_size(uri, self._access) or 0,
            rows=footer.num_rows,
            partition=[partition_text(value) for value in values.values()],
            stats=json.dumps(statistics(footer)),
            batches=batches_of(uri, footer, self._access),
        )


def _same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    """Return whether two schemas have the same names and types; whether columns are nullable does not matter."""
    return {each.name: each.type for each in one} == {each.name: each.type for each in other}


def _values(rows: pa.Table, partition_by: Sequence[str]) -> list[dict[str, Any]]:
    """Return the distinct values of the partition columns; one empty set of values if there are no such columns.

    :raises DeliveryError: naming the column, if the log cannot hold a value.
    """
    if not partition_by:
        return [{}]
    distinct = rows.select(partition_by).group_by(list(partition_by)).aggregate([])
    columns = {name: _partition_values(name, distinct.column(name)) for name in partition_by}
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def _partition_values(name: str, column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_binary(column.type):
        raise _no_partition(name, "bytes, which are no text")
    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        raise _no_partition(name, "a date or an instant outside the years 1 to 9999") from None
    if "" in values:
        raise _no_partition(name, "an empty text, which readers of the table see as null")
    return values


def _no_partition(name: str, what: str) -> DeliveryError:
    return DeliveryError(
        f"column {name!r} partitions the table, and has {what}; convert it in the transform, or partition by another "
        "column; the batches wait until then"
    )


def _split(rows: pa.Table, partition_by: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of each partition of a table."""
    if not partition_by:
        yield rows
        return
    keys = rows.select(partition_by).append_column(_AT, pa.array(range(rows.num_rows), pa.int64()))
    for positions in keys.group_by(list(partition_by)).aggregate([(_AT, "list")])[f"{_AT}_list"]:
        yield rows.take(positions.values)


def partition_text(value: Any) -> str | None:
    """Return the value of a partition column in the log's format."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case datetime():
            at = value if value.tzinfo is None else value.astimezone(UTC)
            return f"{at.replace(tzinfo=None).isoformat(sep=' ', timespec='microseconds')}"
        case _:
            return str(value)


def conformed(rows: pa.Table, schema: pa.Schema, values: Mapping[str, Any] | None = None) -> pa.Table:
    """Return rows with the columns of a schema.

    :param values: the values of columns that the rows lack; others are null.
    """

    def column(field: pa.Field) -> pa.ChunkedArray | pa.Array:
        if field.name in rows.column_names:
            return rows.column(field.name).cast(field.type)
        if values is None or values.get(field.name) is None:
            return pa.nulls(rows.num_rows, field.type)
        return pa.repeat(pa.scalar(values[field.name], field.type), rows.num_rows)

    return pa.table([column(field) for field in schema], schema=schema)


def add_action(file: PreparedFile, partition_by: Sequence[str]) -> AddAction:
    """Return the action of the log that adds a file."""
    return AddAction(
        path=file.name,
        size=file.bytes,
        partition_values=dict(zip(partition_by, file.partition, strict=True)),
        modification_time=int(time.time() * 1000),
        data_change=True,
        stats=file.stats,
    )


def statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """Return the column statistics of a file for the log, so that readers can skip files.

    Columns whose bounds could mislead are left out: those with NaN, those that JSON would round, and those with dates
    and instants outside the years 1 to 9999.
    """
    minima: dict[str, Any] = {}
    maxima: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for number in range(footer.num_columns):
        chunks = [footer.row_group(group).column(number) for group in range(footer.num_row_groups)]
        column = chunks[0].path_in_schema if chunks else ""
        known = [each.statistics for each in chunks if each.statistics is not None]
        if not chunks or "." in column or len(known) < len(chunks):
            continue
        if all(each.has_null_count for each in known):
            nulls[column] = sum(each.null_count for each in known)
        bounded = [each for each in known if each.has_min_max]
        if not bounded or sum(each.num_values for each in known) != sum(each.num_values for each in bounded):
            continue
        try:
            low, high = _bound(min(each.min for each in bounded)), _bound(max(each.max for each in bounded), up=True)
        except (OverflowError, ValueError):
            continue
        if low is not None and high is not None:
            minima[column], maxima[column] = low, high
    return {"numRecords": footer.num_rows, "minValues": minima, "maxValues": maxima, "nullCount": nulls}


def _bound(value: Any, *, up: bool = False) -> int | str | None:
    """Return a column's bound in the log's format; None if the type has none.

    :param up: whether it is the upper bound. The log keeps milliseconds, so upper bounds of instants are rounded up.
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


@dataclass(frozen=True, kw_only=True)
class SchemaFit:
    """How columns fit into a table.

    :param added: the columns that the table does not have.
    :param taken: all the columns, as the table has them or will have them.
    """

    added: list[Field]
    taken: Schema


def schema_from(columns: pa.Schema, declared: Mapping[str, str], location: str) -> Schema:
    """Return the Delta columns for data; none of them is required.

    :param columns: the columns of the data.
    :param declared: the declared types of columns, by name; these columns are included even if the data lacks them.
    :param location: the table, for errors.
    :raises DeliveryError: naming the columns for which Delta has no type.
    """
    types = {name: PrimitiveType(kind) for name, kind in declared.items()}
    fields, wrong = [], []
    if similar := similar_names(columns):
        raise DeliveryError(
            f"table {location}: columns {similar[0]!r} and {similar[1]!r} differ only in case; rename one in the "
            "transform"
        )
    for column in columns:
        try:
            [field] = Schema.from_arrow(pa.schema([pa.field(column.name, _in_microseconds(column.type))])).fields
        except Exception as error:  # its class depends on the type
            wrong.append(f"{column.name!r} is {str(column.type)!r} ({error})")
            continue
        fields.append(Field(column.name, types.pop(column.name, field.type), nullable=True))
    if wrong:
        raise DeliveryError(
            f"table {location}: Delta has no type for column {', '.join(wrong)}; convert it in the transform"
        )
    return Schema([*fields, *(Field(name, type, nullable=True) for name, type in types.items())])


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp("us", kind.tz) if pa.types.is_timestamp(kind) else kind


def fit(columns: Schema, table: Schema, location: str) -> SchemaFit:
    """Return how columns fit into a table.

    :param columns: the columns.
    :param table: the columns of the table.
    :param location: the table, for errors.
    :raises DeliveryError: naming the columns that do not fit, with both types.
    """
    has = {field.name: field for field in table.fields}
    spelled = {name.lower(): name for name in has}
    added, taken, wrong = [], [], []
    for field in columns.fields:
        known = has.get(field.name)
        if known is not None:
            taken.append(known)
            if not _holds(known, field):
                wrong.append(f"{field.name!r} is {_text(field)!r}, but {_text(known)!r} in the table")
        elif (other := spelled.get(field.name.lower())) is not None:
            wrong.append(f"{field.name!r} is {other!r} in the table")
        else:
            added.append(field)
            taken.append(field)
    names = {field.name for field in columns.fields}
    wrong += [
        f"{name!r} is missing, but the table requires it"
        for name, f in has.items()
        if not f.nullable and name not in names
    ]
    if wrong:
        raise DeliveryError(
            f"table {location} cannot accept the records: column {'; column '.join(wrong)}. Convert it in the "
            "transform, or change the table; the batches wait until then"
        )
    return SchemaFit(added=added, taken=Schema(taken))


def union(schemas: Iterable[Schema], location: str) -> Schema:
    """Return the columns of several schemas together.

    :raises DeliveryError: if a column has two types.
    """
    fields: dict[str, Field] = {}
    for schema in schemas:
        for field in schema.fields:
            known = fields.setdefault(field.name, field)
            if _text(known) != _text(field):
                raise DeliveryError(
                    f"table {location}: column {field.name!r} is {_text(known)!r} in some batches and {_text(field)!r} "
                    "in others; convert it in the transform"
                )
    return Schema(list(fields.values()))


def arrow_of(schema: Schema) -> pa.Schema:
    """Return the pyarrow schema of columns."""
    return pa.schema(schema.to_arrow())


def same_columns(one: Schema, other: Schema) -> bool:
    """Return whether two schemas have the same names and types, in any order."""
    return _texts(one) == _texts(other)


def _texts(schema: Schema) -> Mapping[str, str]:
    return {field.name: _text(field) for field in schema.fields}


def _text(field: Field) -> str:
    kind = field.type
    return str(kind.type) if isinstance(kind, PrimitiveType) else json.dumps(json.loads(kind.to_json()), sort_keys=True)


def _holds(table: Field, columns: Field) -> bool:
    """Return whether a column of a table holds all values of another column."""
    ours, theirs = _text(table), _text(columns)
    if ours == theirs:
        return True
    for types in WIDER:
        if ours in types and theirs in types:
            return types.index(theirs) <= types.index(ours)
    mine, its = _decimal(ours), _decimal(theirs)
    return mine is not None and its is not None and mine[0] - mine[1] >= its[0] - its[1] and mine[1] >= its[1]


def _decimal(kind: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind)
    return None if found is None else (int(found[1]), int(found[2]))
