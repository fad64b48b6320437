"""The columns that a schema names, as far as a spec has to know them: Spark itself parses the schema in the job."""

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
"""Spark's names of types."""
OPENING, CLOSING = "(<", ")>"


def columns_of(ddl: str) -> Mapping[str, str]:
    """Return the names of a schema's columns at the top, each with the first word of its type, in capitals.

    :raises ConfigurationError: naming what is wrong.
    """
    return {name: kind for name, kind, _ in _columns(ddl)}


def required_columns_of(ddl: str) -> frozenset[str]:
    """Return the names of a schema's columns at the top that are `NOT NULL`."""
    return frozenset(name for name, _, rest in _columns(ddl) if re.search(r"\bNOT\s+NULL\b", rest, re.IGNORECASE))


def _columns(ddl: str) -> Iterator[tuple[str, str, str]]:
    """Yield the name of each column, the first word of its type, and what follows that."""
    found: set[str] = set()
    for part in _parts(ddl):
        match = re.fullmatch(r"\s*(`(?:[^`]|``)+`|\w+)\s*:?\s*(\w+)?(.*)", part, re.DOTALL)
        if match is None or match[2] is None:
            raise _wrong(ddl, f"{part.strip()!r} is not a name and a type")
        name, kind = match[1].strip("`").replace("``", "`"), match[2].upper()
        if kind not in TYPES:
            raise _wrong(ddl, f"column {name!r}: {match[2]!r} is no type of Spark")
        if name.lower() in found:
            raise _wrong(ddl, f"column {name!r} is there twice")
        found.add(name.lower())
        yield name, kind, match[3]


def _parts(ddl: str) -> Iterator[str]:
    """Yield the columns of a schema, cut at the commas that are within no type, name or comment."""
    depth, begin, quote = 0, 0, ""
    for place, sign in enumerate(ddl):
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "`'\"":
            quote = sign
        elif sign in OPENING:
            depth += 1
        elif sign in CLOSING:
            depth -= 1
        elif sign == "," and depth == 0:
            yield ddl[begin:place]
            begin = place + 1
    if depth != 0 or quote:
        raise _wrong(ddl, "a bracket or a quote is not closed")
    yield ddl[begin:]


def _wrong(ddl: str, what: str) -> ConfigurationError:
    shown = ddl if len(ddl) <= 200 else f"{ddl[:200]}…"
    return ConfigurationError(f"spec: field 'schema': {what}; give names and types, such as {EXAMPLE!r}; got {shown!r}")
