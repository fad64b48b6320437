"""The columns of a schema, as far as a spec must know them. Spark itself parses the schema in the job."""

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
