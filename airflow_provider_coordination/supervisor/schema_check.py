"""Checking a schema against a sample of payloads, before a job rejects every record."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.ddl import columns_of, required_columns_of
from airflow_provider_coordination.spark.time_formats import AUTO, ISO, MILLIS, SECONDS, TIME_FORMATS, UNITS

TEXTS = frozenset({"STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY"})
WHOLE = frozenset({"BIGINT", "BYTE", "INT", "INTEGER", "LONG", "SHORT", "SMALLINT", "TINYINT"})
NUMBERS = frozenset({"DEC", "DECIMAL", "DOUBLE", "FLOAT", "NUMERIC", "REAL"})
TIMES = frozenset({"DATE", "TIMESTAMP", "TIMESTAMP_LTZ", "TIMESTAMP_NTZ"})
DATE = re.compile(r"\s*[-+]?\d{4,}(-\d{1,2}(-\d{1,2}([T ].*)?)?)?\s*")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
MAX_SHOWN = 100
MICROSECONDS_PER_YEAR = 31_556_952 * 10**6
PLAUSIBLE_MICROSECONDS = (2201 - 1970) * MICROSECONDS_PER_YEAR


def check_fits(schema: str, payloads: Sequence[bytes], time_formats: Mapping[str, str] | None = None) -> None:
    """Check that at least one payload matches a schema. If only some do not match, jobs treat them as bad records.

    :param schema: the schema as DDL.
    :param payloads: a sample of the data; an empty sample matches.
    :param time_formats: the formats of TIMESTAMP columns, by name.
    :raises ConfigurationError: if no payload matches; names the column, its value and the remedy.
    """
    mismatches = [_mismatch(schema, payload, time_formats or {}) for payload in payloads]
    if mismatches and None not in mismatches:
        raise ConfigurationError(
            f"spec: field 'schema' matches none of {len(mismatches)} records: {mismatches[0]}; correct 'schema', or "
            "omit it and parse the column 'data' in a transform"
        )


def implausible_times(
    schema: str,
    payloads: Sequence[bytes],
    time_formats: Mapping[str, str] | None = None,
    event_time: str | None = None,
) -> list[str]:
    """Return a warning for each column whose numbers are times outside the years 1970 to 2200.

    :param schema: the schema as DDL.
    :param payloads: a sample of the data.
    :param time_formats: the formats of TIMESTAMP columns, by name.
    :param event_time: the column of the event time; an integer is in milliseconds.
    """
    problems: dict[str, str] = {}
    objects = list(filter(None, map(_object_in, payloads)))
    for name, kind in columns_of(schema).items():
        unit = _unit_of_times(kind, (time_formats or {}).get(name), is_event_time=name == event_time)
        for value in [] if unit is None else [each.get(name) for each in objects]:
            number = _as_number(value)
            if number is not None and unit is not None and not 0 <= number * unit < PLAUSIBLE_MICROSECONDS:
                year = 1970 + int(number * unit // MICROSECONDS_PER_YEAR)
                problems.setdefault(
                    name,
                    f"column {name!r} has the time {_shown(json.dumps(value))}, which is in about the year {year}: "
                    f"check its unit; a TIMESTAMP may be in {', '.join(map(repr, TIME_FORMATS))} by 'time_formats'",
                )
    return list(problems.values())


def _unit_of_times(kind: str, time_format: str | None, *, is_event_time: bool) -> int | None:
    """Return the unit of the numbers of a column in microseconds; None if they are no times."""
    if kind in WHOLE:
        return UNITS[MILLIS] if is_event_time else None
    return UNITS.get(time_format or SECONDS) if kind in TIMES else None


def _object_in(payload: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object that a payload is; None if it is none."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, Mapping) else None


def _as_number(value: Any) -> float | None:
    """Return the finite number that a value is, also as text; None if it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, int):
        return value
    number = float(value) if isinstance(value, float) or NUMBER.fullmatch(value) else math.nan
    return number if math.isfinite(number) else None


def _mismatch(schema: str, payload: bytes, time_formats: Mapping[str, str]) -> str | None:
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
    return next(_mismatches(columns, required_columns_of(schema), value, time_formats), None)


def _mismatches(
    columns: Mapping[str, str], required: frozenset[str], value: Mapping[str, Any], time_formats: Mapping[str, str]
) -> Iterator[str]:
    for name, kind in columns.items():
        field_value = value.get(name)
        if field_value is None and name in required:
            yield f"column {name!r} is NOT NULL, but the record has no value"
        elif field_value is not None and not _is_of(kind, field_value, time_formats.get(name)):
            yield f"column {name!r} has type {kind}, but the record has {_shown(json.dumps(field_value))}"


def _is_of(kind: str, value: Any, time_format: str | None) -> bool:
    number = _as_number(value)
    is_number = number is not None
    if kind in WHOLE:
        return number is not None and number == int(number)
    if kind in NUMBERS:
        return is_number
    if time_format is not None:
        is_text = isinstance(value, str) and DATE.fullmatch(value) is not None
        return (is_number and time_format != ISO) or (is_text and time_format in (ISO, AUTO))
    if kind == "BOOLEAN":
        return isinstance(value, bool)
    if kind in TIMES:
        return DATE.fullmatch(value) is not None if isinstance(value, str) else is_number
    if kind == "ARRAY":
        return isinstance(value, list)
    if kind in ("STRUCT", "MAP"):
        return isinstance(value, Mapping)
    return True


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
