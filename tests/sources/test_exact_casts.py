"""A cast changes no value, also where pyarrow would; errors name column, value and remedy."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.landed_types import cast_exactly

MIDNIGHT = 1_714_953_600_000_000  # 2024-05-06T00:00:00Z
UUID = pa.array([b"0123456789abcdef"], pa.binary(16)).cast(pa.uuid())


def cast(values: pa.Array, kind: pa.DataType) -> list[Any]:
    return cast_exactly("x", pa.chunked_array([values]), kind).to_pylist()


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1.5, float("-inf"), None]), pa.float32(), [1.5, float("-inf"), None]),
        (pa.array([1.24, 123456.789]), pa.decimal128(18, 3), [Decimal("1.240"), Decimal("123456.789")]),
        (pa.array(["1.50", f"2.{'0' * 60}", "1e1"]), pa.decimal128(5, 1), ["1.5", "2.0", "10.0"]),
        (pa.array([MIDNIGHT], pa.timestamp("us")), pa.date32(), ["2024-05-06"]),
        (pa.array([0, 1], pa.int8()), pa.bool_(), [False, True]),
        (pa.array(["true"]), pa.bool_(), [True]),
        (pa.array([1000], pa.duration("ns")), pa.int64(), [1]),
        (pa.array([1_000_000_001], pa.timestamp("ns")), pa.string(), ["1970-01-01 00:00:01.000000001"]),
        (pa.array([{"a": 1, "b": 2}]), pa.struct([("b", pa.int64())]), [{"b": 2}]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_value_that_the_type_holds_is_converted(values: pa.Array, kind: pa.DataType, expected: list[Any]) -> None:
    assert [str(value) for value in cast(values, kind)] == [str(value) for value in expected]


@pytest.mark.parametrize(
    ("values", "kind", "named"),
    [
        (pa.array([1.5, 1e39]), pa.float32(), "column 'x': 1e+39 is double"),
        (pa.array(["1e39"]), pa.float32(), "column 'x': 1e39 is string"),
        (pa.array([[{"a": 1e39}]]), pa.list_(pa.struct([("a", pa.float32())])), "column 'x.element.a': 1e+39 is"),
        (
            pa.array(["1", "28761055404705483442485810226557240"]),
            pa.decimal128(38, 18),
            "column 'x': 287610554047054834",
        ),
        (pa.array([["1"]]), pa.list_(pa.decimal128(38, 18)), "column 'x.element': string cannot be read as decimal128"),
        (pa.array([1.239]), pa.decimal128(10, 2), "column 'x': 1.239 is double"),
        (pa.array([2**53 + 1]), pa.float64(), "column 'x': 9007199254740993 is int64"),
        (pa.array([0, 2]), pa.bool_(), "column 'x': 2 is int64"),
        (pa.array([MIDNIGHT + 1], pa.timestamp("us")), pa.date32(), "column 'x': 2024-05-06 00:00:00.000001 is"),
        (pa.array([1]), pa.timestamp("us"), "column 'x': int64 cannot be read as timestamp"),
        (pa.array([1], pa.date32()), pa.int32(), "column 'x': date32[day] cannot be read as int32"),
        (pa.array([86_400_000_000], pa.time64("us")), pa.string(), "column 'x': 86400000000 is time64[us]"),
        (pa.array([1001], pa.duration("ns")), pa.int64(), "column 'x': 1001 is duration[ns]"),
        (pa.array([b"\xff"]), pa.string(), "column 'x': b'\\xff' is binary"),
        (UUID, pa.string(), "column 'x': extension<arrow.uuid> cannot be read as string"),
        (pa.array([1]), pa.list_(pa.int64()), "column 'x': Unsupported cast"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_value_that_the_type_would_change_is_refused(values: pa.Array, kind: pa.DataType, named: str) -> None:
    with pytest.raises(ItemUnreadableError) as raised:
        cast(values, kind)
    assert str(raised.value).startswith(named)
    assert str(raised.value).endswith("; read the column as STRING, or change it in the source")
