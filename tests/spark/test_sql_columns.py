"""Nested values become JSON; values that JSON or a database cannot hold are refused."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_coordination.spark.delivery import DeliveryError
from airflow_provider_coordination.spark.sinks.sql.columns import as_json

TEXTS = pa.map_(pa.string(), pa.string())
NUMBERED = pa.map_(pa.int32(), pa.string())


def column(kind: pa.DataType, *values: Any) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array([*values, None], kind)])


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (TEXTS, [("a", "1"), ("a", "2")], "a map has a key twice"),
        (pa.list_(pa.binary()), [b"a"], "it holds bytes, which have no text"),
        (pa.list_(pa.float64()), [float("nan")], "Out of range float values"),
        (pa.list_(pa.string()), ["a\0b"], "it holds a zero character"),
    ],
)
def test_nested_values_invalid_in_json_are_refused(kind: pa.DataType, value: Any, says: str) -> None:
    with pytest.raises(DeliveryError, match=f"column 'x' of type .* as JSON: {says}.*; convert it in the transform"):
        as_json("x", column(kind, value), has_zero_characters=False)


def test_nested_values_become_json() -> None:
    at = datetime(2024, 5, 6, tzinfo=UTC)
    assert as_json("x", column(pa.list_(pa.timestamp("us", "UTC")), [at])).to_pylist() == [
        '["2024-05-06 00:00:00+00:00"]',
        None,
    ]
    assert as_json("x", column(NUMBERED, [(1, "\\u0000")]), has_zero_characters=False).to_pylist() == [
        '{"1": "\\\\u0000"}',
        None,
    ]
