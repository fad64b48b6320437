"""Columns of text become exact values, or are refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.spark.frame_landing import ArrivingColumn, converted


def arrived(arrives_as: str, *values: Any) -> pa.ChunkedArray:
    table = pa.table({"id": range(len(values)), "c": pa.array(values)})
    return converted(table, {"c": ArrivingColumn(arrives_as, "leave it out")})["c"]


@pytest.mark.parametrize(
    ("arrives_as", "good", "bad"),
    [
        ("decimal(5,2)", "-999.990", "1000"),
        ("decimal(38,18)", "0", "NaN"),
        ("date", "0001-01-01", "0000-00-00"),
        ("date", "9999-12-31", "0044-03-15 BC"),
        ("timestamp", "2024-03-31 02:30:00.000001+00:00", "2024-03-31 02:30:00SYSTEM"),
        ("timestamp_ntz", "2024-03-31 02:30:00", "2024-02-30 00:00:00"),
        ("array<int>", "[1,null]", "[[1],[2]]"),
        ("array<float>", '["NaN",1e10]', "[[1]]"),
        ("array<string>", '["[1]",null]', '[["a"]]'),
    ],
)
def test_refused_value_names_its_column_and_remedy(arrives_as: str, good: str, bad: str) -> None:
    assert arrived(arrives_as, good, None).null_count == 1
    with pytest.raises(ItemUnreadableError) as raised:
        arrived(arrives_as, good, None, bad, good)
    assert str(raised.value).startswith(f"column 'c': {bad} is string, and ")
    assert str(raised.value).endswith("; leave it out")


def test_empty_columns_and_tables_are_converted() -> None:
    for arrives_as in ("decimal(38,18)", "date", "timestamp", "array<string>"):
        assert arrived(arrives_as, *pa.nulls(2, pa.string())).null_count == 2
        empty = pa.table({"c": pa.array([], pa.string())})
        assert converted(empty, {"c": ArrivingColumn(arrives_as, "")}).num_rows == 0


def test_single_precision_double_becomes_a_float() -> None:
    assert arrived("float", 12345678.0, None).type == pa.float32()
