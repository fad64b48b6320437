"""The configured columns of a file, in Spark's DDL, and the conversion of parsed values to their types."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.ddl import arrow_fields
from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.landed_types import (
    REMEDY,
    WHOLE_NUMBER,
    becomes_infinite,
    cast_exactly,
    decimals_of,
    exceeds_whole,
    fails,
    first_changed,
    first_where,
    leaves,
    value_text,
)

SEVENTH_DIGIT = r"(\.\d{6})0+(Z|[+-].*)?$"
"""Zeros after the microseconds of an instant, as Go, Java and .NET write them; other digits are refused."""
ZONED = r"[T ]\d.*(Z|[+-]\d\d(:?\d\d)?)$"
"""An instant with a time zone; the end of a date alone would look like a zone."""


@dataclass(frozen=True)
class Columns:
    """The configured columns of a file.

    :param schema: their names and types.
    """

    schema: pa.Schema

    @property
    def names(self) -> list[str]:
        """Their names, in order."""
        return list(self.schema.names)

    @property
    def is_flat(self) -> bool:
        """Whether no column has arrays, structs or bytes, which CSV does not support."""
        return not any(pa.types.is_nested(kind) or pa.types.is_binary(kind) for kind in self.schema.types)

    @property
    def as_parsed(self) -> pa.Schema:
        """The types for Arrow's JSON parser: instants and dates stay text until `typed`, and decimals are wider."""
        return pa.schema([(f.name, _as_parsed(f.type)) for f in self.schema])

    @property
    def as_parsed_with_nanoseconds(self) -> pa.Schema | None:
        """The same for instants within arrays and structs that have more digits; None if there are none."""
        schema = pa.schema([(f.name, _as_parsed(f.type, unit="ns")) for f in self.schema])
        return None if schema == self.as_parsed else schema

    @property
    def as_parsed_from_csv(self) -> pa.Schema:
        """The types for Arrow's CSV parser: decimals stay text, as it has no wider ones, and so do floats, as it makes
        large ones infinite."""
        types = [pa.string() if stays_text(f.type) else f.type for f in self.as_parsed]
        return pa.schema(list(zip(self.names, types, strict=True)))

    def check_found(self, names: Sequence[str]) -> None:
        """Check that an object has these columns.

        :param names: the names of its columns.
        :raises ItemUnreadableError: if one is missing.
        """
        if missing := [name for name in self.names if name not in names]:
            raise ItemUnreadableError(
                f"its columns have changed: expected {', '.join(map(repr, self.names))}, found "
                f"{', '.join(map(repr, names))}: there is no {', '.join(map(repr, missing))}"
            )

    def cast(self, rows: pa.Table) -> pa.Table:
        """Return rows with the columns in order and with their types, each value exactly.

        :raises ItemUnreadableError: if a value does not fit its type.
        """
        return pa.table({f.name: cast_exactly(f.name, rows.column(f.name), f.type) for f in self.schema})

    def typed(self, parsed: pa.Table) -> pa.Table:
        """Return a parsed table with the columns in order and with their types.

        An instant without a zone is in UTC, as in Spark with the session time zone of the jobs.

        :raises pyarrow.ArrowInvalid: naming the column and the value, if a text is not an instant, a date or a decimal,
            or a number is infinite.
        """
        columns = [_checked(field.name, parsed.column(field.name), field.type) for field in self.schema]
        return pa.Table.from_arrays(columns, schema=self.schema)


def columns_of(ddl: str) -> Columns:
    """Parse columns such as `id BIGINT, name STRING, tags ARRAY<STRING>`.

    :raises ConfigurationError: naming what is wrong.
    """
    fields = arrow_fields(ddl)
    lowered = [field.name.lower() for field in fields]
    for field in fields:
        if lowered.count(field.name.lower()) > 1:
            raise ConfigurationError(f"columns {ddl!r}: column {field.name!r} appears twice; name each column once")
    return Columns(pa.schema(fields))


def _as_parsed(wanted: pa.DataType, *, is_within: bool = False, unit: str = "us") -> pa.DataType:
    """Return the type that a parser uses for a column: the JSON parser supports instants, but not dates."""
    if pa.types.is_date(wanted) or (pa.types.is_timestamp(wanted) and not is_within):
        return pa.string()
    if pa.types.is_decimal(wanted):  # with the same precision, it would not notice an overflow
        return pa.decimal256(76, wanted.scale)
    if pa.types.is_list(wanted):
        return pa.list_(_as_parsed(wanted.value_type, is_within=True, unit=unit))
    if pa.types.is_struct(wanted):
        return pa.struct([field.with_type(_as_parsed(field.type, is_within=True, unit=unit)) for field in wanted])
    return pa.timestamp(unit, wanted.tz) if pa.types.is_timestamp(wanted) else wanted


def stays_text(kind: pa.DataType) -> bool:
    """Return whether the values of a CSV column are parsed here, and not by Arrow's parser."""
    return bool(pa.types.is_decimal(kind) or pa.types.is_floating(kind))


def _checked(name: str, values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Return the values of a column with their type.

    :raises pyarrow.ArrowInvalid: naming the column and the value.
    """
    try:
        typed = _typed(values, wanted)
    except pa.ArrowInvalid as error:
        if (value := first_where(values, partial(fails, partial(_typed, wanted=wanted)))) is None:
            raise
        raise pa.ArrowInvalid(f"column {name!r}: {value_text(value)!r} is no {wanted}; {REMEDY} ({error})") from None
    if pa.types.is_string(values.type):
        return typed
    for path, leaf in leaves(name, typed) if _has_floats(wanted) else ():
        if pa.types.is_floating(leaf.type) and pc.any(pc.is_inf(leaf)).as_py():
            raise pa.ArrowInvalid(f"column {path!r}: a number is beyond the range of {leaf.type}; {REMEDY}")
    return typed


def _has_floats(kind: pa.DataType) -> bool:
    return any(word in str(kind) for word in ("float", "double"))


def _typed(values: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    if pa.types.is_decimal(wanted) and pa.types.is_string(values.type):
        return decimals_of(pc.ascii_trim_whitespace(values), wanted)
    if pa.types.is_floating(wanted) and pa.types.is_string(values.type):
        numbers = pc.ascii_trim_whitespace(values).cast(wanted)
        if becomes_infinite(values, numbers):
            raise pa.ArrowInvalid("it is beyond the range of the type")
        for text in values.filter(exceeds_whole(numbers)).to_pylist():
            if WHOLE_NUMBER.fullmatch(text.strip()) and first_changed([int(text)], wanted) is not None:
                raise pa.ArrowInvalid(f"it is a whole number that a {wanted} changes")
        return numbers
    if not pa.types.is_timestamp(wanted):
        return values.cast(wanted)
    values = pc.replace_substring_regex(values, SEVENTH_DIGIT, r"\1\2")
    if wanted.tz is None:
        return values.cast(wanted)
    zoned = pc.match_substring_regex(values, ZONED)
    in_utc = pc.if_else(zoned, None, values).cast(pa.timestamp(wanted.unit)).cast(wanted)
    return pc.coalesce(pc.if_else(zoned, values, None).cast(wanted), in_utc)
