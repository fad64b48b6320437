"""Checking a schema against a sample of payloads, before a job rejects every record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.ddl import columns_of, required_columns_of

TEXTS = frozenset({"STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY"})
WHOLE = frozenset({"BIGINT", "BYTE", "INT", "INTEGER", "LONG", "SHORT", "SMALLINT", "TINYINT"})
NUMBERS = frozenset({"DEC", "DECIMAL", "DOUBLE", "FLOAT", "NUMERIC", "REAL"})
TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
DATE = re.compile(r"\s*[-+]?\d{4,}(-\d{1,2}(-\d{1,2}([T ].*)?)?)?\s*")
MAX_SHOWN = 100


def check_fits(schema: str, payloads: Sequence[bytes]) -> None:
    """Check that at least one payload matches a schema. If only some do not match, jobs treat them as bad records.

    :param schema: the schema as DDL.
    :param payloads: a sample of the data; an empty sample matches.
    :raises ConfigurationError: if no payload matches; names the column, its value and the remedy.
    """
    mismatches = [_mismatch(schema, payload) for payload in payloads]
    if mismatches and None not in mismatches:
        raise ConfigurationError(
            f"spec: field 'schema' matches none of {len(mismatches)} records: {mismatches[0]}; correct 'schema', or "
            "omit it and parse the column 'data' in a transform"
        )


def _mismatch(schema: str, payload: bytes) -> str | None:
    """Return why a payload does not match; None if it matches, as far as can be checked without Spark."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return f"the payload is not JSON: {_shown(payload.decode(errors='replace'))}"
    if not isinstance(value, Mapping):
        return f"the payload is not a JSON object: {_shown(payload.decode(errors='replace'))}"
    columns = columns_of(schema)
    if not any(name in value for name in columns):
        return f"the payload has none of the columns; its fields are {_shown(', '.join(map(repr, value)))}"
    return next(_mismatches(columns, required_columns_of(schema), value), None)


def _mismatches(columns: Mapping[str, str], required: frozenset[str], value: Mapping[str, Any]) -> Iterator[str]:
    for name, kind in columns.items():
        found = value.get(name)
        if found is None and name in required:
            yield f"column {name!r} is NOT NULL, but the record has no value"
        elif found is not None and not _is_of(kind, found):
            yield f"column {name!r} has type {kind}, but the record has {_shown(json.dumps(found))}"


def _is_of(kind: str, found: Any) -> bool:
    is_number = isinstance(found, int | float) and not isinstance(found, bool)
    if kind in WHOLE:
        return is_number and isinstance(found, int)
    if kind in NUMBERS:
        return is_number or found in ("NaN", "Infinity", "-Infinity")
    if kind == "BOOLEAN":
        return isinstance(found, bool)
    if kind in TIMES:
        return is_number or (isinstance(found, str) and DATE.fullmatch(found) is not None)
    if kind == "ARRAY":
        return isinstance(found, list)
    if kind in ("STRUCT", "MAP"):
        return isinstance(found, Mapping)
    return True


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
