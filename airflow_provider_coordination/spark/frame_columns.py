"""Columns of a frame that arrive as another type than the JVM reads: a reader selects them as text.

A text is a value of the type without a loss, or it is refused. Spark's own casts round decimals and may return null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from airflow_provider_coordination.sources.exact_casts import cast_exactly, fails, first_where, value_refused
from airflow_provider_coordination.sources.items import ARRIVES_AS, REMEDY
from airflow_provider_coordination.spark.layout import BATCH_ID, ORIGIN, ROW
from airflow_provider_coordination.spark.parquet_frames import spark_schema

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_SIMPLE = {
    "date": pa.date32(),
    "float": pa.float32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_ELEMENTS = {
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "double": pa.float64(),
    "float": pa.float32(),
    "int": pa.int32(),
    "smallint": pa.int16(),
    "string": pa.string(),
}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
_ARRAY = re.compile(r"array<(\w+)>")


@dataclass(frozen=True)
class ArrivingColumn:
    """A column to convert.

    :param arrives_as: the Spark type to convert to.
    :param remedy: what the user can do about a value that is refused.
    """

    arrives_as: str
    remedy: str


def arriving_columns(frame: StructType) -> dict[str, ArrivingColumn]:
    """Return the columns of a frame to convert, by name: those whose metadata has `ARRIVES_AS`."""
    return {
        field.name: ArrivingColumn(field.metadata[ARRIVES_AS], field.metadata.get(REMEDY, "correct the row"))
        for field in frame
        if ARRIVES_AS in field.metadata
    }


def landed_columns(known: pa.Schema | StructType) -> StructType:
    """Return the columns of landed items, with Spark's types.

    :param known: the columns of their records; see `KnowsColumns.columns`.
    """
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    given = spark_schema(known) if isinstance(known, pa.Schema) else known
    types = {field.name: field.dataType for field in given}
    types |= {name: _spark_type(column.arrives_as) for name, column in arriving_columns(given).items()}
    fields = [StructField(name, kind) for name, kind in types.items()]
    ours = [StructField(ORIGIN, StringType()), StructField(ROW, LongType()), StructField(BATCH_ID, StringType())]
    return StructType([*fields, *ours])


def _spark_type(ddl: str) -> DataType:
    from pyspark.sql.types import StructType

    of = StructType.fromDDL(f"_ {ddl}")
    assert isinstance(of, StructType)
    return of[0].dataType


def converted(table: pa.Table, columns: Mapping[str, ArrivingColumn]) -> pa.Table:
    """Return a table whose columns have the types with which they arrive.

    :raises ItemUnreadableError: with the column, the first value that is not of its type, and the remedy.
    """
    for name, column in columns.items():
        index = table.schema.get_field_index(name)
        values, kind = table.column(index), _type_of(column.arrives_as)
        arrived = (
            _parsed(name, values, kind, column.remedy)
            if pa.types.is_list(kind)
            else cast_exactly(name, values, kind, column.remedy)
        )
        table = table.set_column(index, name, arrived)
    return table


def _type_of(arrives_as: str) -> pa.DataType:
    if match := _DECIMAL.fullmatch(arrives_as):
        return pa.decimal128(int(match[1]), int(match[2]))
    if match := _ARRAY.fullmatch(arrives_as):
        return pa.list_(_ELEMENTS[match[1]])
    return _SIMPLE[arrives_as]


def _parsed(name: str, texts: pa.ChunkedArray, kind: pa.DataType, remedy: str) -> pa.Array:
    try:
        return _lists(kind.value_type, texts)
    except (pa.ArrowException, ValueError):
        refused = first_where(texts, partial(fails, partial(_lists, kind.value_type)))
        assert refused is not None
        raise value_refused(name, refused, f"{kind} cannot hold it", remedy) from None


def _lists(element: pa.DataType, texts: pa.ChunkedArray) -> pa.Array:
    """Return the lists of JSON arrays, where PostgreSQL writes the numbers that JSON does not have as text."""
    is_float = pa.types.is_floating(element)
    parse = partial(json.loads, parse_int=float if is_float else int)
    lists = (None if text is None else parse(text) for text in texts.to_pylist())
    if is_float:
        lists = (each and [float(item) if isinstance(item, str) else item for item in each] for each in lists)
    return pa.array(lists, pa.list_(element))
