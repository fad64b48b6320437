"""The configured columns of a file, in Spark's DDL, and the conversion of parsed values to their types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.errors import ConfigurationError
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

SIMPLE: Mapping[str, pa.DataType] = {
    "BIGINT": pa.int64(),
    "BINARY": pa.binary(),
    "BOOLEAN": pa.bool_(),
    "BYTE": pa.int8(),
    "DATE": pa.date32(),
    "DECIMAL": pa.decimal128(10, 0),
    "DOUBLE": pa.float64(),
    "FLOAT": pa.float32(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "REAL": pa.float32(),
    "SHORT": pa.int16(),
    "SMALLINT": pa.int16(),
    "STRING": pa.string(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "TINYINT": pa.int8(),
}
"""Spark's type names, and the Arrow types."""
EXAMPLE = "'id BIGINT, name STRING, price DECIMAL(10,2)'"
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
    parser = _Parser(ddl)
    fields = list(parser.fields(end=""))
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
        problem = f"{value_text(value)!r} is not a valid {wanted}"
        raise pa.ArrowInvalid(f"column {name!r}: {problem}; {REMEDY} ({error})") from None
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


class _Parser:
    """Reads DDL from left to right."""

    def __init__(self, ddl: str) -> None:
        self._ddl = ddl
        self._words = re.findall(r"`[^`]+`|\w+|[^\w\s]", ddl)
        self._next = 0

    def fields(self, end: str, colon: bool = False) -> Iterator[pa.Field]:
        """Yield the columns up to an end."""
        while True:
            name = self._word("the name of a column").strip("`")
            if colon and self._peek() == ":":
                self._take(":")
            yield pa.field(name, self._type())
            if self._peek() != ",":
                break
            self._take(",")
        if self._peek() != end:
            raise self._wrong(f"{self._peek()!r} cannot follow a column's type")

    def _type(self) -> pa.DataType:
        name = self._word("a type").upper()
        if name == "ARRAY":
            self._take("<")
            kind = pa.list_(self._type())
            self._take(">")
            return kind
        if name == "STRUCT":
            self._take("<")
            kind = pa.struct(list(self.fields(end=">", colon=True)))
            self._take(">")
            return kind
        if name == "DECIMAL" and self._peek() == "(":
            return self._decimal()
        if name not in SIMPLE:
            raise self._wrong(f"{name!r} is not a type; types are {', '.join(SIMPLE)}, ARRAY<...> and STRUCT<...>")
        return SIMPLE[name]

    def _decimal(self) -> pa.DataType:
        self._take("(")
        precision, scale = self._word("the precision"), "0"
        if self._peek() == ",":
            self._take(",")
            scale = self._word("the scale")
        self._take(")")
        if not (precision.isdigit() and scale.isdigit() and 0 < int(precision) <= 38 and int(scale) <= int(precision)):
            raise self._wrong(f"DECIMAL({precision},{scale}) is invalid; give at most 38 digits")
        return pa.decimal128(int(precision), int(scale))

    def _peek(self) -> str:
        return self._words[self._next] if self._next < len(self._words) else ""

    def _word(self, what: str) -> str:
        word = self._peek()
        if not re.match(r"[\w`]", word):
            raise self._wrong(f"{what} is missing" if not word else f"{word!r} is not {what}")
        self._next += 1
        return word

    def _take(self, sign: str) -> None:
        if self._peek() != sign:
            raise self._wrong(f"{sign!r} is missing")
        self._next += 1

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(f"columns {self._ddl!r} cannot be parsed: {what}; give names and types, as {EXAMPLE}")
