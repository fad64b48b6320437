"""The values of texts in payloads: a text becomes a value of a type without a change, or null.

Spark's own casts and JSON parser accept more: they round decimals, cut a second's digits, take an hour from a date, add
today's date to a time, drop a zone, and wrap seconds around.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, functions

from airflow_provider_coordination.sources.landed_types import DOUBLE, SINGLE, Held
from airflow_provider_coordination.spark.payload_schema import AUTO, ISO, UNITS
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
        iso = functions.when(bare.rlike(ISO_8601), try_cast(bare, "timestamp"))
        if time_format == ISO:
            return iso
        number = _instant(bare, UNITS[time_format])
        return functions.coalesce(number, iso) if time_format == AUTO else number

    return time(without_mark(text))


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
