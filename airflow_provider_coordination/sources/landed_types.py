"""The types in which values are landed: the only ones that a transform or a sink sees.

Each one is a type of Spark, Delta and Iceberg too, except that Spark and Delta have no time of day. Values of another
type are converted where that loses nothing. Otherwise their item is refused, with column, value and remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.exact_casts import (
    REMEDY,
    cast_exactly,
    first_where,
    leaves,
    value_refused,
    with_leaves,
)
from airflow_provider_coordination.sources.items import ItemUnreadableError

MAX_DIGITS = 38
"""The maximum precision of a decimal."""
DAY_MICROSECONDS = 24 * 60 * 60 * 1_000_000
SAME = frozenset({
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("us", "UTC"),
})  # fmt: skip
"""Types that are landed as they are; so are binary values of a fixed size, and decimals of up to `MAX_DIGITS`."""
WIDER: Mapping[pa.DataType, pa.DataType] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}
"""The landed types for types whose values they all hold."""


# Types


def landed_type(kind: pa.DataType) -> pa.DataType:
    """Return the type in which values of a type are landed.

    Times have microseconds, instants are in UTC, and durations are numbers of microseconds.

    :raises pa.ArrowNotImplementedError: if there is no such type.
    """
    return with_leaves(kind, _landed_leaf)


def retyped(columns: pa.Schema, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    """Return columns with other types. They are all nullable, also within others, and have no metadata.

    The metadata would name the field ids of the source's file, which are not those of a table.

    :param leaf: converts a type that is not nested.
    """
    return pa.schema([pa.field(field.name, with_leaves(field.type, leaf)) for field in columns])


def _landed_leaf(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if kind in SAME or types.is_fixed_size_binary(kind):
        return kind
    if kind in WIDER:
        return WIDER[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", None if kind.tz is None else "UTC")
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_duration(kind):
        return pa.int64()
    if types.is_decimal(kind) and kind.scale <= MAX_DIGITS:
        return pa.decimal128(min(kind.precision - min(kind.scale, 0), MAX_DIGITS), max(kind.scale, 0))
    raise pa.ArrowNotImplementedError(f"type {kind} is not supported")


# Values


def with_landed_types(records: pa.Table) -> pa.Table:
    """Return records with the types in which they are landed.

    A column of nulls without a type stays one, so that a transform can name it. Other columns without a landed type
    are left out if they have only nulls.

    :raises ItemUnreadableError: naming the column, the first value that its landed type cannot hold, and the remedy; or
        the column, if there is no landed type.
    """
    landed = {}
    for name, column in zip(records.column_names, records.columns, strict=True):
        if pa.types.is_null(column.type):
            landed[name] = column
            continue
        try:
            kind = landed_type(column.type)
        except pa.ArrowNotImplementedError as error:
            if column.null_count == len(column):
                continue
            raise ItemUnreadableError(f"column {name!r}: {error}; {REMEDY}") from None
        is_landed = column.type.equals(kind, check_metadata=True)
        landed[name] = column if is_landed else cast_exactly(name, column, kind)
        _check_times(name, landed[name])
        try:
            landed[name].validate(full=True)
        except pa.ArrowException as error:  # a file may hold texts that are not UTF-8, and decimals with more digits
            raise ItemUnreadableError(f"column {name!r}: {error}; {REMEDY}") from None
    return pa.table(landed)


def typed_columns(columns: pa.Schema) -> pa.Schema:
    """Return the columns that have a type. Tables have no others: readers see nulls for a missing column."""
    return pa.schema([field for field in columns if not pa.types.is_null(field.type)], columns.metadata)


def _check_times(name: str, column: pa.ChunkedArray) -> None:
    """Check that times are within a day; Parquet allows other numbers.

    :raises ItemUnreadableError: naming the first other one.
    """
    if "time64" not in str(column.type):
        return
    for path, leaf in leaves(name, column):
        if pa.types.is_time64(leaf.type) and (value := first_where(leaf, _has_no_time)) is not None:
            raise value_refused(path, value, "a day has no such time")


def _has_no_time(times: pa.ChunkedArray) -> bool:
    bounds = pc.min_max(times.cast(pa.int64())).as_py()
    return bounds["min"] is not None and (bounds["min"] < 0 or bounds["max"] >= DAY_MICROSECONDS)
