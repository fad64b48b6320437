"""The types in which values are landed: the only ones that a transform or a sink sees.

Each one is a type of Spark, Delta and Iceberg too, except that Spark and Delta have no time of day. Values of another
type are converted where that loses nothing. Otherwise their item is refused, with column, value and remedy.

pyarrow refuses most values that the wanted type cannot hold, without the column. It changes others silently: an hour of
a date, a double that is infinite as a float, a number that counts another unit of time. `cast_exactly` changes none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.sources.items import ItemUnreadableError

VALUE_CHARACTERS = 100
"""How many characters of a value an error shows."""
REMEDY = "read the column as STRING, or change it in the source"
CLOSE = 1e-15
"""The relative difference between a double and its decimal that is an error of pyarrow's arithmetic."""


def cast_exactly(name: str, column: pa.ChunkedArray, kind: pa.DataType, remedy: str = REMEDY) -> pa.ChunkedArray:
    """Return a column with another type. Durations become numbers of microseconds.

    :param name: the column, for errors.
    :param remedy: what a user can do about a refused value, for errors.
    :raises ItemUnreadableError: naming the column, the first value that the type cannot hold, and the remedy; or the
        column, if its values cannot be converted.
    """
    wanted = {path: leaf.type for path, leaf in leaves(name, pa.chunked_array([], kind))}
    casts = [(path, leaf, wanted[path]) for path, leaf in leaves(name, column) if path in wanted]
    for path, leaf, to in casts:
        if _is_other_meaning(leaf.type, to) or (path != name and _is_decimal_text(leaf.type, to)):
            raise ItemUnreadableError(f"column {path!r}: {leaf.type} cannot be read as {to}; {remedy}")
    try:
        result = _cast(column, kind)
    except pa.ArrowException as error:
        _refuse_first(casts, lambda to, leaf: fails(partial(_cast, kind=to), leaf), remedy)
        raise ItemUnreadableError(f"column {name!r}: {error}; {remedy}") from None
    _refuse_first(casts, _changes, remedy)
    return result


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    if "duration" in str(column.type):
        column = column.cast(with_leaves(column.type, lambda leaf: pa.duration("us") if _is_duration(leaf) else leaf))
    return decimals_of(column, kind) if _is_decimal_text(column.type, kind) else column.cast(kind)


def _is_duration(kind: pa.DataType) -> bool:
    return bool(pa.types.is_duration(kind))


def _is_decimal_text(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether a text becomes a decimal, which pyarrow does not do exactly, and would do itself in a list."""
    return bool(pa.types.is_string(one) and pa.types.is_decimal(other))


def _is_other_meaning(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether pyarrow would convert without meaning: times to their number of microseconds, UUIDs to letters."""
    types = pa.types

    def is_time(kind: pa.DataType) -> bool:
        return bool(types.is_temporal(kind)) and not _is_duration(kind)

    def is_number(kind: pa.DataType) -> bool:
        return bool(
            types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind) or types.is_boolean(kind)
        )

    is_uuid = isinstance(one, pa.BaseExtensionType) and types.is_fixed_size_binary(one.storage_type)
    return (
        (is_time(one) and is_number(other))
        or (is_number(one) and is_time(other))
        or (is_uuid and bool(types.is_string(other)))
    )


# Searching for a value


def _refuse_first(
    casts: list[tuple[str, pa.ChunkedArray, pa.DataType]],
    test: Callable[[pa.DataType, pa.ChunkedArray], bool],
    remedy: str,
) -> None:
    for path, leaf, kind in casts:
        if leaf.type != kind and (value := first_where(leaf, partial(test, kind))) is not None:
            raise value_refused(path, value, f"{kind} cannot hold it without a loss", remedy)


def fails(convert: Callable[[pa.ChunkedArray], object], values: pa.ChunkedArray) -> bool:
    """Return whether values cannot be converted."""
    try:
        convert(values)
    except (pa.ArrowException, ValueError):
        return True
    return False


def _changes(kind: pa.DataType, values: pa.ChunkedArray) -> bool:
    """Return whether a cast that pyarrow permits changes a value."""
    types, before = pa.types, values.type
    if types.is_floating(kind) and (types.is_floating(before) or types.is_string(before)):
        return becomes_infinite(values, values.cast(kind))
    if types.is_floating(before) and types.is_decimal(kind):
        difference = pc.abs(pc.subtract(values.cast(kind).cast(pa.float64()), values.cast(pa.float64())))
        return _any(pc.greater(difference, pc.multiply(pc.abs(values), CLOSE)))
    if types.is_string(kind) and types.is_temporal(before) and not _is_duration(before):
        return _any(pc.match_substring(values.cast(kind), "out of range"))
    if (types.is_timestamp(before) and types.is_date(kind)) or (types.is_boolean(kind) and not types.is_string(before)):
        return not values.cast(kind).cast(before, safe=False).equals(values)
    return False


def becomes_infinite(values: pa.ChunkedArray, cast: pa.ChunkedArray) -> bool:
    """Return whether a finite value, a float or its text, was made infinite."""
    is_text = pa.types.is_string(values.type)
    is_infinite = pc.match_substring_regex(values, "(?i)inf") if is_text else pc.is_inf(values)
    return _any(pc.and_not(pc.is_inf(cast), is_infinite))


def _any(flags: pa.ChunkedArray) -> bool:
    return bool(pc.any(flags).as_py())


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


# Errors


def value_refused(path: str, value: pa.Scalar, reason: str, remedy: str = REMEDY) -> ItemUnreadableError:
    """Return the error for a value of a column that cannot be delivered as it is.

    :param path: the column, with the names of its fields after dots.
    :param reason: why it cannot, as a sentence.
    :param remedy: what a user can do about it.
    """
    return ItemUnreadableError(f"column {path!r}: {value_text(value)} is {value.type}, and {reason}; {remedy}")


def value_text(value: pa.Scalar) -> str:
    """Return a value as text for errors; Python's own types have no years beyond 1 to 9999, and no nanoseconds."""
    types, kind = pa.types, value.type
    text = (
        repr(value.as_py())
        if types.is_binary(kind) or types.is_fixed_size_binary(kind) or types.is_nested(kind)
        else str(value.cast(pa.string()))
    )
    if "out of range" in text:
        text = str(value.cast(pa.int32() if types.is_date32(kind) else pa.int64()))
    return text if len(text) <= VALUE_CHARACTERS else f"{text[:VALUE_CHARACTERS]}..."


# Nested types


def with_leaves(kind: pa.DataType, leaf: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Return a type with other types in its leaves; its lists, maps and structs become those that Spark has.

    :param leaf: converts a type that is not nested.
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return with_leaves(kind.storage_type, leaf)
    if types.is_dictionary(kind):
        return with_leaves(kind.value_type, leaf)
    if types.is_struct(kind):  # a field without a type has no value either
        typed = [field for field in kind if not types.is_null(field.type)]
        return pa.struct([(field.name, with_leaves(field.type, leaf)) for field in typed]) if typed else leaf(kind)
    if types.is_map(kind):
        return pa.map_(with_leaves(kind.key_type, leaf), with_leaves(kind.item_type, leaf))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(with_leaves(kind.value_type, leaf))
    return leaf(kind)


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


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,9})?", re.ASCII)


def decimals_of(texts: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Return the decimals that texts are.

    :param kind: a decimal type of up to 38 digits.
    :raises pa.ArrowInvalid: with the first text that is not such a number.
    """
    whole = rf"\d{{1,{kind.precision - kind.scale}}}" if kind.precision > kind.scale else "0"
    fraction = rf"(?:\.\d{{1,{kind.scale}}})?" if kind.scale else ""
    if pc.all(pc.match_substring_regex(texts, f"^-?{whole}{fraction}$")).as_py() is False:
        return pa.chunked_array([[_decimal(text, kind) for text in texts.to_pylist()]], kind)
    return texts.cast(kind)


def _decimal(text: str | None, kind: pa.DataType) -> Decimal | None:
    """Return the decimal of a text that may have an exponent, or zeros at its ends."""
    if text is None:
        return None
    if _NUMBER.fullmatch(text):
        sign, digits, exponent = Decimal(text).as_tuple()
        kept = "".join(map(str, digits)).rstrip("0")
        scale = int(exponent) + len(digits) - len(kept)
        if not kept:
            return Decimal(0)
        if -scale <= kind.scale and len(kept.lstrip("0")) + scale <= kind.precision - kind.scale:
            return Decimal((sign, tuple(map(int, kept)), scale))
    raise pa.ArrowInvalid(f"{text[:100]!r} is not a number of {kind}")


WHOLE_NUMBER = re.compile(r"[+-]?\d+", re.ASCII)


@dataclass(frozen=True)
class Held:
    """The whole numbers that a type of floats holds.

    :param whole: up to this, all of them.
    :param digits: beyond it, those with so few significant digits, which are read back with the same digits; others
        only if a float is exactly that number.
    """

    whole: int
    digits: int


SINGLE = Held(whole=2**24, digits=6)
DOUBLE = Held(whole=2**53, digits=15)


def held_by(kind: pa.DataType) -> Held:
    """Return what a type of floats holds."""
    return SINGLE if pa.types.is_float32(kind) else DOUBLE


def exceeds_whole(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which floats may have been a whole number that their type changes; never nulls."""
    return pc.fill_null(pc.greater_equal(pc.abs(values), float(held_by(values.type).whole)), False)


def first_changed(numbers: Sequence[int | None], kind: pa.DataType) -> int | None:
    """Return the first of some whole numbers that a type of floats does not hold; None if it holds all of them."""
    held = held_by(kind)
    large = [each for each in numbers if each is not None and abs(each) > held.whole]
    return next((each for each in large if not _is_held(each, kind, held)), None)


def _is_held(number: int, kind: pa.DataType, held: Held) -> bool:
    if len(str(abs(number)).rstrip("0")) <= held.digits:
        return True
    try:
        return int(pa.scalar(float(number), pa.float64()).cast(kind, safe=False).as_py()) == number
    except OverflowError:  # it is beyond the range of the type
        return False


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
