"""The types in which values are landed: the only ones that a transform or a sink sees.

Each one is a type of Spark, Delta and Iceberg too, except that Spark and Delta have no time of day. Values of another
type are converted where that loses nothing. Otherwise their item is refused, with column, value and remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.items import ItemUnreadableError

MOST_DIGITS = 38
"""The maximum precision of a decimal."""
DAY_MICROSECONDS = 24 * 60 * 60 * 1_000_000
VALUE_CHARACTERS = 100
"""How many characters of a value an error shows."""
REMEDY = "read the column as STRING, or change it in the source"
SAME = frozenset({
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.time64("us"), pa.timestamp("us"), pa.timestamp("us", "UTC"),
})  # fmt: skip
"""Types that are landed as they are; so are binary values of a fixed size, and decimals of up to `MOST_DIGITS`."""
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
    return _retyped(kind, _landed_leaf)


def retyped(columns: pa.Schema, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.Schema:
    """Return columns with other types. They are all nullable, also within others, and have no metadata.

    The metadata would name the field ids of the source's file, which are not those of a table.

    :param leaf: converts a type that is not nested.
    """
    return pa.schema([pa.field(field.name, _retyped(field.type, leaf)) for field in columns])


def _retyped(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _retyped(kind.storage_type, leaf)
    if types.is_dictionary(kind):
        return _retyped(kind.value_type, leaf)
    if types.is_struct(kind):  # a field without a type has no value either
        typed = [field for field in kind if not types.is_null(field.type)]
        return pa.struct([(field.name, _retyped(field.type, leaf)) for field in typed]) if typed else leaf(kind)
    if types.is_map(kind):
        return pa.map_(_retyped(kind.key_type, leaf), _retyped(kind.item_type, leaf))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_retyped(kind.value_type, leaf))
    return leaf(kind)


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
    if types.is_decimal(kind) and kind.scale <= MOST_DIGITS:
        return pa.decimal128(min(kind.precision - min(kind.scale, 0), MOST_DIGITS), max(kind.scale, 0))
    raise pa.ArrowNotImplementedError(f"type {kind} is not supported")


# Values


def with_landed_types(records: pa.Table) -> pa.Table:
    """Return records with the types in which they are landed.

    A column without a landed type is left out if it has only nulls: readers see nulls for a missing column.

    :raises ItemUnreadableError: naming the column, the first value that its landed type cannot hold, and the remedy; or
        the column, if there is no landed type.
    """
    landed = {}
    for name, column in zip(records.column_names, records.columns, strict=True):
        try:
            kind = landed_type(column.type)
        except pa.ArrowNotImplementedError as error:
            if column.null_count == len(column):
                continue
            raise ItemUnreadableError(f"column {name!r}: {error}; {REMEDY}") from None
        is_landed = column.type.equals(kind, check_metadata=True)
        landed[name] = column if is_landed else _landed(name, column, kind)
        _check_times(name, landed[name])
    return pa.table(landed)


def _landed(name: str, column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    try:
        return _cast(column, kind)
    except pa.ArrowException as error:
        for path, leaf in leaves(name, column):
            wanted = landed_type(leaf.type)
            value = first_where(leaf, partial(_fails, wanted))
            if value is not None:
                raise value_refused(path, value, f"{wanted} cannot hold it without a loss") from None
        raise ItemUnreadableError(f"column {name!r}: {error}; {REMEDY}") from None


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert values; if one would change, pyarrow raises an error."""
    between = _retyped(column.type, lambda leaf: pa.duration("us") if pa.types.is_duration(leaf) else leaf)
    return column.cast(between).cast(kind)


def _fails(kind: pa.DataType, part: pa.ChunkedArray) -> bool:
    try:
        _cast(part, kind)
    except pa.ArrowException:
        return True
    return False


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


def value_refused(path: str, value: pa.Scalar, reason: str) -> ItemUnreadableError:
    """Return the error for a value of a column that cannot be delivered as it is.

    :param path: the column, with the names of its fields after dots.
    :param reason: why it cannot, as a sentence.
    """
    return ItemUnreadableError(f"column {path!r}: {value_text(value)} is {value.type}, and {reason}; {REMEDY}")


def value_text(value: pa.Scalar) -> str:
    """Return a value as text for errors; Python's own types have no years beyond 1 to 9999, and no nanoseconds."""
    text = str(pa.array([value], value.type).cast(pa.string())[0])
    if "out of range" in text:
        text = str(value.cast(pa.int64()))
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}..."


def leaves(name: str, column: pa.ChunkedArray) -> Iterator[tuple[str, pa.ChunkedArray]]:
    """Yield the values of a column that are not nested, by path; values within lists and maps one after the other."""
    types, kind = pa.types, column.type
    if types.is_struct(kind):
        for number, field in enumerate(kind):
            yield from leaves(f"{name}.{field.name}", pc.struct_field(column, [number]))
    elif types.is_map(kind):
        parts = [(chunk, chunk.offsets[0].as_py(), chunk.offsets[-1].as_py()) for chunk in column.chunks]
        keys = pa.chunked_array([chunk.keys[start:end] for chunk, start, end in parts], kind.key_type)
        items = pa.chunked_array([chunk.items[start:end] for chunk, start, end in parts], kind.item_type)
        yield from leaves(f"{name}.key", keys)
        yield from leaves(f"{name}.value", items)
    elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        yield from leaves(f"{name}.element", pc.list_flatten(column))
    else:
        yield name, column


def first_where(values: pa.ChunkedArray, is_found: Callable[[pa.ChunkedArray], bool]) -> pa.Scalar | None:
    """Return the first value for which a condition on values holds; None if it holds for none of them.

    :param is_found: whether the condition holds for any of some values.
    """
    if not len(values) or not is_found(values):
        return None
    while len(values) > 1:
        half = values[: len(values) // 2]
        values = half if is_found(half) else values[len(values) // 2 :]
    return values[0] if is_found(values) else None
