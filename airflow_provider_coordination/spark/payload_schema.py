"""A schema of payloads as a user writes it: its columns and the formats of their times, checked without Spark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from airflow_provider_coordination.coordination.errors import ConfigurationError

EXAMPLE = "id STRING NOT NULL, at TIMESTAMP, amount DOUBLE"
# fmt: off
TYPES = frozenset({
    "ARRAY", "BIGINT", "BINARY", "BOOLEAN", "BYTE", "CHAR", "CHARACTER", "DATE", "DEC", "DECIMAL", "DOUBLE",
    "FLOAT", "INT", "INTEGER", "INTERVAL", "LONG", "MAP", "NUMERIC", "REAL", "SHORT", "SMALLINT", "STRING",
    "STRUCT", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ", "TINYINT", "VARCHAR", "VARIANT",
})
# fmt: on
"""The names of Spark's types."""
OPENING, CLOSING = "(<", ")>"
ISO = "iso"
"""Text of ISO 8601; without a time zone it is in UTC."""
AUTO = "auto"
"""A number of milliseconds since 1970, or text of ISO 8601."""
SECONDS = "seconds"
MILLIS = "millis"
MICROS = "micros"
UNITS = {AUTO: 1000, SECONDS: 1_000_000, MILLIS: 1000, MICROS: 1}
"""The unit of the numbers of a format, in microseconds."""
TIME_FORMATS = (ISO, AUTO, SECONDS, MILLIS, MICROS)
TIMESTAMP = "timestamp"
"""The type of the columns that may have a format, as Spark writes it."""


def columns_of(ddl: str) -> Mapping[str, str]:
    """Return the top-level columns of a schema: their names, and the first word of their types in upper case.

    :raises ConfigurationError: if the schema is invalid.
    """
    return {name: kind for name, kind, _ in _columns(ddl)}


def required_columns_of(ddl: str) -> frozenset[str]:
    """Return the names of the top-level columns that are `NOT NULL`."""
    return frozenset(name for name, _, rest in _columns(ddl) if re.search(r"\bNOT\s+NULL\b", rest, re.IGNORECASE))


def _columns(ddl: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each column, the first word of its type, and the rest of its definition."""
    names: set[str] = set()
    for part in _parts(ddl):
        match = re.fullmatch(r"\s*(`(?:[^`]|``)+`|\w+)\s*:?\s*(\w+)?(.*)", part, re.DOTALL)
        if match is None or match[2] is None:
            raise _wrong(ddl, f"{part.strip()!r} is not a name and a type")
        name, kind = match[1].strip("`").replace("``", "`"), match[2].upper()
        if kind not in TYPES:
            raise _wrong(ddl, f"column {name!r}: {match[2]!r} is not a Spark type")
        if name.lower() in names:
            raise _wrong(ddl, f"column {name!r} is defined twice")
        names.add(name.lower())
        yield name, kind, match[3]


def _parts(ddl: str) -> Iterator[str]:
    """Yield the column definitions of a schema, split at commas outside of types, names and comments."""
    depth, start, quote = 0, 0, ""
    for position, character in enumerate(ddl):
        if quote:
            quote = "" if character == quote else quote
        elif character in "`'\"":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
        elif character == "," and depth == 0:
            yield ddl[start:position]
            start = position + 1
    if depth != 0 or quote:
        raise _wrong(ddl, "a bracket or a quote is not closed")
    yield ddl[start:]


def _wrong(ddl: str, what: str) -> ConfigurationError:
    shown = ddl if len(ddl) <= 200 else f"{ddl[:200]}…"
    return ConfigurationError(f"field 'schema': {what}; give names and types, such as {EXAMPLE!r}; got {shown!r}")


def check_time_formats(formats: Mapping[str, str] | None, types: Mapping[str, str]) -> None:
    """Check the formats of columns.

    :param formats: the format of each column, by name; None for none.
    :param types: the type of each column of the schema, by name, as Spark writes it.
    :raises ConfigurationError: naming the column, the value and the remedy.
    """
    if formats is None:
        return
    if not isinstance(formats, Mapping):
        raise ConfigurationError(
            f"field 'time_formats' must be an object of columns and formats, such as {{at: millis}}; got {formats!r}"
        )
    for name, time_format in formats.items():
        if time_format not in TIME_FORMATS:
            raise ConfigurationError(
                f"field 'time_formats': column {name!r} must have one of the formats "
                f"{', '.join(map(repr, TIME_FORMATS))}; got {time_format!r}"
            )
        if name not in types:
            known = ", ".join(map(repr, types)) or "none, as 'schema' is missing"
            raise ConfigurationError(
                f"field 'time_formats': {name!r} must be a column of 'schema'; its columns are {known}"
            )
        if types[name].lower() != TIMESTAMP:
            raise ConfigurationError(
                f"field 'time_formats': column {name!r} is of type {types[name].upper()} in 'schema'; declare it there "
                "as TIMESTAMP"
            )
