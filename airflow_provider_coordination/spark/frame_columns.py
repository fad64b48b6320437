"""Columns of a frame that arrive as another type than the JVM reads: a reader selects them as text.

A text is a value of the type without a loss, or it is refused. Spark's own casts round decimals and may return null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.items import ARRIVES_AS, REMEDY, ItemUnreadableError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

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
SHOWN_CHARACTERS = 100
"""How much of a refused value an error shows."""


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


def converted(table: pa.Table, columns: Mapping[str, ArrivingColumn]) -> pa.Table:
    """Return a table whose columns have the types with which they arrive.

    :raises ItemUnreadableError: with the column, the first value that is not of its type, and the remedy.
    """
    for name, column in columns.items():
        index = table.schema.get_field_index(name)
        values = table.column(index)
        convert = _conversion(column.arrives_as)
        try:
            arrived = convert(values)
        except (pa.ArrowException, ValueError):
            refused = next(
                value for value in values.unique().to_pylist() if not _is_converted(convert, value, values.type)
            )
            raise ItemUnreadableError(
                f"column {name!r}: value {str(refused)[:SHOWN_CHARACTERS]!r} does not fit {column.arrives_as}; "
                f"{column.remedy}"
            ) from None
        table = table.set_column(index, name, arrived)
    return table


def _is_converted(convert: Callable[[pa.ChunkedArray], object], value: object, kind: pa.DataType) -> bool:
    try:
        convert(pa.chunked_array([[value]], kind))
    except (pa.ArrowException, ValueError):
        return False
    return True


def _conversion(arrives_as: str) -> Callable[[pa.ChunkedArray], pa.ChunkedArray | pa.Array]:
    """Return the function that converts values to a type; it raises `ValueError` if that loses anything."""
    if found := _DECIMAL.fullmatch(arrives_as):
        return partial(_decimals, int(found[1]), int(found[2]))
    if found := _ARRAY.fullmatch(arrives_as):
        return partial(_lists, _ELEMENTS[found[1]])
    wanted = _SIMPLE[arrives_as]
    return lambda values: values.cast(wanted)


def _decimals(precision: int, scale: int, values: pa.ChunkedArray) -> pa.ChunkedArray:
    # Arrow notices neither an overflow in the digits of a text nor one in their scaling.
    whole = rf"\d{{1,{precision - scale}}}" if precision > scale else "0"
    fraction = rf"\.\d{{1,{scale}}}" if scale else ""
    fits = rf"^-?{whole}(?:{fraction})?$"
    if not _all(pc.match_substring_regex(values, fits)):
        zeros = rf"(?:({fraction})0*|\.0*)?" if scale else r"()(?:\.0*)?"
        values = pc.replace_substring_regex(values, rf"^(-?)0*({whole}){zeros}$", r"\1\2\3")
        if not _all(pc.match_substring_regex(values, fits)):
            raise pa.ArrowInvalid("a value has too many digits")
    return values.cast(pa.decimal128(precision, scale))


def _lists(element: pa.DataType, values: pa.ChunkedArray) -> pa.Array:
    """Return the lists of JSON arrays, where PostgreSQL writes the numbers that JSON does not have as text."""
    is_float = pa.types.is_floating(element)
    parse = partial(json.loads, parse_int=float if is_float else int)
    lists = (None if text is None else parse(text) for text in values.to_pylist())
    if is_float:
        lists = (each and [float(item) if isinstance(item, str) else item for item in each] for each in lists)
    return pa.array(lists, pa.list_(element))


def _all(flags: pa.ChunkedArray) -> bool:
    return pc.all(flags).as_py() is not False  # None if there is no value
