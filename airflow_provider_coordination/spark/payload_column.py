"""One column of a payload: how the JSON of its field, or a text, becomes its value without a change, or null.

Spark's own casts and JSON parser accept more: they round decimals, cut a second's digits, take an hour from a date, add
today's date to a time, drop a zone, and wrap seconds around. Here a number may be text: `"12.5"` is a DOUBLE as `12.5`
is. What has no exact place in the column does not fit.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial, reduce
from operator import and_, or_

from pyspark.sql import Column, functions
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from airflow_provider_coordination.sources.landed_types import DOUBLE, SINGLE, Held
from airflow_provider_coordination.spark.payload_schema import (
    AUTO,
    DAY,
    FRACTION,
    HALF,
    HOUR,
    ISO,
    MINUTE,
    MONTH,
    MONTHS,
    NAME,
    SECOND,
    SHORT_NAME,
    TIME_FORMATS,
    TIMESTAMP,
    UNITS,
    YEAR,
    ZONE,
    TimePattern,
    time_pattern,
)
from airflow_provider_coordination.spark.spark_versions import try_cast

MARK = f"{secrets.token_hex(8)}:"
"""The beginning of a text that was a number in the payload, in texts of `payload_texts`; no producer can know it."""
WHOLE = frozenset({"tinyint", "smallint", "int", "bigint"})
FLOATING: Mapping[str, Held] = {"float": SINGLE, "double": DOUBLE}
"""The types that round, and the whole numbers that they hold."""
TEMPORAL = frozenset({"timestamp", "timestamp_ntz", "date"})
DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")
INTERVAL = "interval day to second"
WHOLE_NUMBER = r"^[+-]?\d+$"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
SECONDS = r"^-?(\d{1,3}|\d{7,})$"
"""A text that can only be a number of seconds: Spark reads four to six digits as a year."""
NANOSECONDS = r"[.]\d{6}\d*[1-9]"
"""A digit of a second that a TIMESTAMP cannot hold."""
DATED = r"^[+-]?\d{4,6}(-|$)"
"""The beginning of a time that has a date."""
ISO_8601 = r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}(:\d{2}([.]\d{1,6}0*)?)?( ?(Z|UTC|[+-]\d{2}(:?\d{2})?))?)?)?$"
"""Text of ISO 8601 with at most six digits of a second, which is what a TIMESTAMP holds."""
WITHOUT_ZONE = r"^\d{4,6}-\d{1,2}(-\d{1,2}([T ][\d:]+([.]\d{1,6}0*)?)?)?$"
MIDNIGHT = r"^\d{4,6}-\d{1,2}(-\d{1,2}([T ]00:00(:00([.]0+)?)?Z?)?)?$"
"""Text of a date, also with an hour that is zero."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_MICROSECOND = (datetime.min.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
LAST_MICROSECOND = (datetime.max.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)
TIME_DIGITS = 20
"""How many digits a number of a time may have before the point."""


def is_converted(kind: str) -> bool:
    """Return whether `value_of` converts texts to a type, as Spark writes it."""
    return kind in {*WHOLE, *FLOATING, *TEMPORAL, INTERVAL} or DECIMAL.match(kind) is not None


def value_of(kind: str, text: Column) -> Column:
    """Return the value of a text as a type; null if it has none.

    :param kind: a type that `is_converted`.
    :param text: the text, which may begin with `MARK`. It is mentioned often: give a column, or see `once`.
    """
    return _value_of(kind, text, without_mark(text))


def once(value: Column, function: Callable[[Column], Column]) -> Column:
    """Return a function of a value that is evaluated once, and stands in the plan once, however often it is used.

    Spark compiles no function of a lambda variable: where rows are written, a projection serves better.
    """
    return functions.get(functions.transform(functions.array(value), function), functions.lit(0))


def _value_of(kind: str, text: Column, bare: Column) -> Column:
    if kind in WHOLE:
        return _whole(kind, bare)
    if kind in FLOATING:
        return _floating(kind, bare)
    if kind == "timestamp":
        return _timestamp(text, bare)
    return _cast(kind, bare)


def _cast(kind: str, bare: Column) -> Column:
    if found := DECIMAL.match(kind):
        fits = bare.rlike(NUMBER) & (_scale(bare) <= int(found[2]))
    elif kind == INTERVAL:
        fits = ~bare.rlike(NANOSECONDS)
    else:
        fits = bare.rlike(MIDNIGHT if kind == "date" else WITHOUT_ZONE)
    return functions.when(fits, try_cast(bare, kind))


def time_of(time_format: str, text: Column) -> Column:
    """Return a text as a TIMESTAMP by the format of its column; null if it has another format."""

    def time(bare: Column) -> Column:
        if time_format not in TIME_FORMATS:
            return _by_pattern(time_pattern(time_format), bare)
        iso = functions.when(bare.rlike(ISO_8601), try_cast(bare, "timestamp"))
        if time_format == ISO:
            return iso
        number = _instant(bare, UNITS[time_format])
        return functions.coalesce(number, iso) if time_format == AUTO else number

    return time(without_mark(text))


def _by_pattern(pattern: TimePattern, text: Column) -> Column:
    """Return a text as a TIMESTAMP by a pattern: as the time of ISO 8601 with the same fields."""

    def part(field: str, otherwise: str) -> Column:
        number = pattern.groups.get(field)
        return functions.lit(otherwise) if number is None else functions.regexp_extract(text, pattern.regex, number)

    month, hour = part(MONTH, "01"), part(HOUR, "00")
    is_in_range = try_cast(hour, "int").between(*pattern.hours)
    if NAME in pattern.groups:
        names = [functions.lit(name[:SHORT_NAME].lower()) for name in MONTHS]
        short = functions.lower(functions.substring(part(NAME, ""), 1, SHORT_NAME))
        month = functions.array_position(functions.array(*names), short).cast("string")
    if HALF in pattern.groups:
        afternoon = functions.when(functions.lower(part(HALF, "")) == "pm", 12).otherwise(0)
        hour = (try_cast(hour, "int") % 12 + afternoon).cast("string")
    iso = functions.concat(
        part(YEAR, ""), functions.lit("-"), month, functions.lit("-"), part(DAY, "01"),
        functions.lit("T"), hour, functions.lit(":"), part(MINUTE, "00"), functions.lit(":"), part(SECOND, "00"),
        functions.lit("."), part(FRACTION, "0"), functions.upper(part(ZONE, "Z")),
    )  # fmt: skip
    return functions.when(text.rlike(pattern.regex) & is_in_range, try_cast(iso, "timestamp"))


def without_mark(text: Column) -> Column:
    """Return a text without `MARK`."""
    return functions.when(text.startswith(MARK), functions.substring(text, len(MARK) + 1, 2**31 - 1)).otherwise(text)


def _whole(kind: str, text: Column) -> Column:
    given = functions.when(text.rlike(WHOLE_NUMBER), try_cast(text, kind))
    return functions.coalesce(given, try_cast(_cast("decimal(38,0)", text), kind))


def _floating(kind: str, text: Column) -> Column:
    """Return a float; null for a whole number that it does not hold. Fractions are the nearest float by nature."""
    number = functions.when(text.rlike(NUMBER), try_cast(text, kind))
    held = FLOATING[kind]
    is_same = functions.coalesce(try_cast(number, "bigint") == try_cast(text, "bigint"), functions.lit(False))
    is_short = text.rlike(rf"^[+-]?0*\d{{1,{held.digits}}}0*$")
    fits = (functions.abs(number) < float(held.whole)) | ~text.rlike(WHOLE_NUMBER) | is_short | is_same
    return functions.when(fits & (functions.abs(number) < functions.lit(float("inf"))), number)


def _scale(number: Column) -> Column:
    """Return how many digits after the point a number needs, also one with an exponent."""
    exponent = functions.regexp_extract(number, "[eE]([+-]?[0-9]+)$", 1)
    shift = functions.when(exponent == "", 0).otherwise(try_cast(exponent, "int"))
    digits = functions.regexp_replace(number, r"[eE].*|[^0-9]", "")
    fraction = functions.length(functions.regexp_extract(number, "[.]([0-9]*)", 1))
    kept = functions.call_function("rtrim", functions.lit("0"), digits)
    zeros = functions.length(digits) - functions.length(kept)
    return functions.when(kept == "", 0).otherwise(fraction - zeros - shift)


def _timestamp(text: Column, bare: Column) -> Column:
    is_number = text.startswith(MARK) | bare.rlike(SECONDS)
    written = functions.when(bare.rlike(DATED) & ~bare.rlike(NANOSECONDS), try_cast(bare, "timestamp"))
    is_in_years = functions.unix_micros(written).between(FIRST_MICROSECOND, LAST_MICROSECOND)
    seconds = functions.when(bare.rlike(WHOLE_NUMBER), _instant(bare, UNITS["seconds"]))
    return functions.when(is_number, seconds).otherwise(functions.when(is_in_years, written))


def _instant(text: Column, unit: int) -> Column:
    """Return a number of `unit` microseconds as a TIMESTAMP, if it is one."""
    scale = len(str(unit)) - 1
    micros = try_cast(_cast(f"decimal({TIME_DIGITS + scale},{scale})", text) * functions.lit(unit), "bigint")
    return functions.when(micros.between(FIRST_MICROSECOND, LAST_MICROSECOND), functions.timestamp_micros(micros))


STRICT = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "_coordination_corrupt",
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
}
"""Options that make Spark's parser strict: by default it accepts more than JSON."""
FRACTION_MARK = r"[.]"
"""What the text of a double has; a number that was sent as a double's text has it too."""
YEAR_OR_SECONDS = r"^-?\d{4,6}$"
"""A text that is a year, or was a number of seconds."""


@dataclass(frozen=True, kw_only=True)
class PayloadColumn:
    """A column of a payload.

    :param name: its name.
    :param kind: its type.
    :param time_format: the format of its times; None for those that Spark accepts.
    """

    name: str
    kind: DataType
    time_format: str | None = None

    @cached_property
    def type(self) -> str:
        """Its type, as Spark writes it."""
        return self.kind.simpleString()

    @property
    def parsed_type(self) -> DataType:
        """The type as which Spark parses the field."""
        return StringType() if self.is_converted else self.kind

    @property
    def is_converted(self) -> bool:
        """Whether its value is made of a text."""
        return is_converted(self.type)

    @property
    def _is_text(self) -> bool:
        return isinstance(self.kind, StringType)

    @property
    def text_type(self) -> DataType | None:
        """The type as which its texts are parsed; None if its values do not depend on them."""
        return None if self._changed_text is None else text_type(self.kind)

    @property
    def _changed_text(self) -> str | None:
        """What a parsed text looks like that may differ from the payload's; None if there is none."""
        if self._is_text:
            return CHANGED_TEXT
        if self.time_format is not None:
            return None if self.time_format == ISO else FRACTION_MARK
        if self.type in WHOLE or DECIMAL.match(self.type):
            return FRACTION_MARK
        if self.is_converted:
            return YEAR_OR_SECONDS if self.type == TIMESTAMP else None
        return "" if text_type(self.kind) is not None else None

    def needs_texts(self, parsed: Column, payload: Column) -> Column:
        """Return whether the column's value depends on `texts_of` the payload.

        :param parsed: the field, parsed as `parsed_type`.
        """
        if self._is_text or self.is_converted:
            return parsed.cast("string").rlike(self._changed_text or "")
        return parsed.isNotNull() if loses(self.kind) else parsed.isNotNull() & payload.rlike(CHANGEABLE)

    def given(self, parsed: Column, texts: Column | None) -> Column:
        """Return the field as it was sent: its text if it is converted, otherwise its value.

        :param parsed: the field, parsed as `parsed_type`.
        :param texts: as `texts_of` returns them.
        """
        if texts is None or self.text_type is None:
            return parsed
        text = texts.getField(self.name)
        exact = text if self.is_converted else with_texts(self.kind, parsed, text)
        return parsed if exact is parsed else functions.when(texts.isNull(), parsed).otherwise(exact)

    def value(self, given: Column) -> Column:
        """Return the column's value; null if the field is null, or does not fit.

        :param given: as `given` returns it. It is mentioned often: give a column, or see `once`.
        """
        if not self.is_converted:
            return given
        return value_of(self.type, given) if self.time_format is None else time_of(self.time_format, given)

    def fits(self, parsed: Column, texts: Column | None) -> Column:
        """Return whether a field that Spark could parse fits; see `given` for the parameters."""
        if self.is_converted:
            return parsed.isNull() | once(self.given(parsed, texts), self.value).isNotNull()
        if texts is None or self.text_type is None:
            return functions.lit(True)
        return parsed.isNull() | texts.isNull() | is_kept(self.kind, parsed, texts.getField(self.name))

    def misfit(self, text: Column) -> Column:
        """Return why a field does not fit, for errors.

        :param text: the field's text.
        """
        named, kind = f"field '{self.name}'", self.type.upper()
        is_other = functions.lit(f"{named} is not a valid {kind}")
        cannot = f"{named} has a value that {kind} cannot hold"
        if self.is_converted and self.type not in FLOATING and not DECIMAL.match(self.type):
            return is_other
        if self.is_converted:
            number = text.rlike(WHOLE_NUMBER if self.type in FLOATING else NUMBER)
            return functions.when(number, f"{cannot}; declare it as DECIMAL or STRING").otherwise(is_other)
        return functions.lit(cannot if loses(self.kind) else f"{named} is not a valid {kind}")


def texts_of(columns: Sequence[PayloadColumn], payload: Column, parsed: Column) -> Column | None:
    """Return the texts of a payload as they were sent, by column; null where no column needs them.

    :param parsed: the fields, parsed as `parsed_schema` of the columns.
    :returns: None if no column ever needs them.
    """
    typed = [(column, column.text_type) for column in columns]
    fields = [StructField(column.name, kind) for column, kind in typed if kind is not None]
    if not fields:
        return None
    needed = [
        functions.coalesce(column.needs_texts(parsed.getField(column.name), payload), functions.lit(False))
        for column, kind in typed
        if kind is not None
    ]
    return functions.when(reduce(or_, needed), functions.from_json(marked(payload), StructType(fields), STRICT))


def parsed_schema(columns: Sequence[PayloadColumn]) -> StructType:
    """Return the schema as which payloads are parsed."""
    return StructType([StructField(column.name, column.parsed_type) for column in columns])


NUMBER_OUTSIDE_TEXTS = (
    r'\G([^"\d-]*+(?:"[^"\\]*+(?:\\[\s\S][^"\\]*+)*+"[^"\d-]*+)*+)(-?\d[\d.eE+-]*+)'  # possessive: without recursion
)
MARKED = rf'"?{MARK}([-+.0-9eE]+)"?'
"""A marked number, also within the JSON of an object that is a text."""
CHANGEABLE = r"\d[.eE]|-0"
"""What a payload has in which the parser may change the text of a number."""
CHANGED_TEXT = r'^-?\d+[.]\d+(E-?\d+)?$|^0$|^"-?Infinity"$|^[\[{][\s\S]*(\d[.]\d|0|Infinity)'
"""A STRING that may be a number, or have one, with another text than it was sent with."""


def marked(payload: Column) -> Column:
    """Return a payload whose numbers are texts that begin with `MARK`."""
    return functions.regexp_replace(payload, NUMBER_OUTSIDE_TEXTS, f'$1"{MARK}$2"')


def unmarked(text: Column) -> Column:
    """Return a text, or the JSON of an object, as it was before `marked`."""
    return functions.regexp_replace(text, MARKED, "$1")


def text_type(kind: DataType) -> DataType | None:
    """Return a type with STRING in place of each value whose text counts; None if there is none."""
    if isinstance(kind, StructType):
        inner = [(field.name, text_type(field.dataType)) for field in kind.fields]
        fields = [StructField(name, each) for name, each in inner if each is not None]
        return StructType(fields) if fields else None
    if isinstance(kind, ArrayType):
        element = text_type(kind.elementType)
        return None if element is None else ArrayType(element)
    if isinstance(kind, MapType):
        value = text_type(kind.valueType)
        return None if value is None else MapType(kind.keyType, value)
    return StringType() if isinstance(kind, StringType) or is_converted(kind.simpleString()) else None


def loses(kind: DataType) -> bool:
    """Return whether Spark's parser may change a value of a type, other than the text of a number."""
    return any(is_converted(each.simpleString()) for each in _types_of_values(kind))


def _types_of_values(kind: DataType) -> Iterator[DataType]:
    """Yield the types of the values that a type contains at any depth, without the keys of maps."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _types_of_values(field.dataType)
    elif isinstance(kind, ArrayType | MapType):
        yield from _types_of_values(kind.elementType if isinstance(kind, ArrayType) else kind.valueType)
    else:
        yield kind


def is_kept(kind: DataType, value: Column, text: Column) -> Column:
    """Return whether a parsed value is what the payload has.

    :param kind: its type, which has a `text_type`.
    :param value: the value, parsed as that type.
    :param text: the same, parsed as `text_type` of it from the `marked` payload.
    """
    if isinstance(kind, StructType):
        parts = [
            is_kept(field.dataType, value.getField(field.name), text.getField(field.name))
            for field in kind.fields
            if text_type(field.dataType) is not None
        ]
        return value.isNull() | reduce(and_, parts)
    if isinstance(kind, ArrayType):
        flags = functions.zip_with(value, text, lambda each, given: is_kept(kind.elementType, each, given))
        return functions.coalesce(functions.forall(flags, lambda flag: flag), value.isNull())
    if isinstance(kind, MapType):
        keys = functions.map_keys(value)
        values = is_kept(ArrayType(kind.valueType), functions.map_values(value), functions.map_values(text))
        return value.isNull() | ((functions.size(functions.array_distinct(keys)) == functions.size(keys)) & values)
    given = text if isinstance(kind, StringType) else once(text, partial(value_of, kind.simpleString()))
    return value.isNull() | given.isNotNull()


def with_texts(kind: DataType, value: Column, text: Column) -> Column:
    """Return a parsed value with its texts as they were sent; see `is_kept` for the parameters."""
    if not _has_strings(kind):
        return value
    if isinstance(kind, StructType):
        fields = [
            with_texts(field.dataType, value.getField(field.name), text.getField(field.name)).alias(field.name)
            if _has_strings(field.dataType)
            else value.getField(field.name).alias(field.name)
            for field in kind.fields
        ]
        return functions.when(value.isNotNull(), functions.struct(*fields))
    if isinstance(kind, ArrayType):
        return functions.zip_with(value, text, lambda each, given: with_texts(kind.elementType, each, given))
    if isinstance(kind, MapType):
        values = with_texts(ArrayType(kind.valueType), functions.map_values(value), functions.map_values(text))
        return functions.map_from_arrays(functions.map_keys(value), values)
    assert isinstance(kind, StringType)
    return unmarked(text).cast(kind)


def _has_strings(kind: DataType) -> bool:
    return any(isinstance(each, StringType) for each in _types_of_values(kind))
