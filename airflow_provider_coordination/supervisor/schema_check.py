"""Whether a schema fits the data: a look at a few payloads, before a job finds that none of them fits."""

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
    """Check that some payload fits a schema; where only some do not, they are bad records, which jobs put aside.

    :param schema: the DDL.
    :param payloads: a sample of the data; an empty one fits.
    :raises ConfigurationError: if none fits, naming the column, what it has and what to do.
    """
    faults = [_fault(schema, payload) for payload in payloads]
    if faults and None not in faults:
        raise ConfigurationError(
            f"spec: field 'schema' fits none of {len(faults)} records: {faults[0]}; correct 'schema', or leave it out "
            "and parse the column 'data' in a transform"
        )


def _fault(schema: str, payload: bytes) -> str | None:
    """Return what is wrong with a payload; None if it fits, as far as can be seen without Spark."""
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return f"the payload is not JSON: {_shown(payload.decode(errors='replace'))}"
    if not isinstance(value, Mapping):
        return f"the payload is no JSON object: {_shown(payload.decode(errors='replace'))}"
    columns = columns_of(schema)
    if not any(name in value for name in columns):
        return f"it has none of the columns; its fields are {_shown(', '.join(map(repr, value)))}"
    return next(_faults(columns, required_columns_of(schema), value), None)


def _faults(columns: Mapping[str, str], required: frozenset[str], value: Mapping[str, Any]) -> Iterator[str]:
    for name, kind in columns.items():
        held = value.get(name)
        if held is None and name in required:
            yield f"column {name!r} is NOT NULL, and the record has none"
        elif held is not None and not _is_of(kind, held):
            yield f"column {name!r} is of type {kind}, and the record has {_shown(json.dumps(held))}"


def _is_of(kind: str, held: Any) -> bool:
    is_number = isinstance(held, int | float) and not isinstance(held, bool)
    if kind in WHOLE:
        return is_number and isinstance(held, int)
    if kind in NUMBERS:
        return is_number or held in ("NaN", "Infinity", "-Infinity")
    if kind == "BOOLEAN":
        return isinstance(held, bool)
    if kind in TIMES:
        return is_number or (isinstance(held, str) and DATE.fullmatch(held) is not None)
    if kind == "ARRAY":
        return isinstance(held, list)
    if kind in ("STRUCT", "MAP"):
        return isinstance(held, Mapping)
    return True


def _shown(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"
