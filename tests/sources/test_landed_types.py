"""Values are landed unchanged in the types of Spark and the tables, or refused with column, value and remedy."""

from __future__ import annotations

import re
from decimal import Decimal
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.landed_types import landed_type, with_landed_types

NOON_SECONDS = 1_714_996_800  # 2024-05-06T12:00:00Z
NOON_NANOSECONDS = NOON_SECONDS * 10**9
WIDENED = [
    (pa.uint8(), [0, 255], pa.int16(), [0, 255]),
    (pa.uint16(), [2**16 - 1], pa.int32(), [2**16 - 1]),
    (pa.uint32(), [2**32 - 1], pa.int64(), [2**32 - 1]),
    (pa.uint64(), [0, 2**64 - 1], pa.decimal128(20, 0), [Decimal(0), Decimal(2**64 - 1)]),
    (pa.float16(), [0.5, float("inf")], pa.float32(), [0.5, float("inf")]),
    (pa.timestamp("s"), [NOON_SECONDS, -1], pa.timestamp("us"), [NOON_SECONDS * 10**6, -(10**6)]),
    (pa.timestamp("ms"), [NOON_SECONDS * 1000, -1], pa.timestamp("us"), [NOON_SECONDS * 10**6, -1000]),
    (pa.timestamp("ns"), [NOON_NANOSECONDS + 1000, -1000], pa.timestamp("us"), [NOON_SECONDS * 10**6 + 1, -1]),
    (pa.timestamp("ms", "Europe/Berlin"), [NOON_SECONDS * 1000], pa.timestamp("us", "UTC"), [NOON_SECONDS * 10**6]),
    (pa.timestamp("us", "+02:00"), [-(2**63), 2**63 - 1], pa.timestamp("us", "UTC"), [-(2**63), 2**63 - 1]),
    (pa.time32("s"), [86_399], pa.time64("us"), [86_399_000_000]),
    (pa.time32("ms"), [1], pa.time64("us"), [1000]),
    (pa.time64("ns"), [1000], pa.time64("us"), [1]),
    (pa.date64(), [-86_400_000], pa.date32(), [-1]),
    (pa.duration("ns"), [-1000], pa.int64(), [-1]),
    (pa.duration("s"), [1], pa.int64(), [10**6]),
    (pa.decimal256(50, 2), [Decimal("-1.25")], pa.decimal128(38, 2), [Decimal("-1.25")]),
    (pa.decimal128(5, -2), [Decimal("1500")], pa.decimal128(7, 0), [Decimal("1500")]),
    (pa.large_string(), ["ü"], pa.string(), ["ü"]),
    (pa.string_view(), ["ü"], pa.string(), ["ü"]),
    (pa.large_binary(), [b"\xff"], pa.binary(), [b"\xff"]),
    (pa.binary_view(), [b"\xff"], pa.binary(), [b"\xff"]),
    (pa.dictionary(pa.int8(), pa.uint8()), [255], pa.int16(), [255]),
]
REFUSED = [
    (pa.timestamp("ns"), NOON_NANOSECONDS + 1, "2024-05-06 12:00:00.000000001"),
    (pa.timestamp("ns", "+02:00"), NOON_NANOSECONDS + 1, "2024-05-06 14:00:00.000000001+0200"),
    (pa.timestamp("s"), 2**62, str(2**62)),
    (pa.time64("ns"), 1, "00:00:00.000000001"),
    (pa.time64("us"), 86_400_000_000, "86400000000"),
    (pa.time32("s"), -1, "-1000000"),
    (pa.date64(), 86_400_001, "1970-01-02"),
    (pa.duration("ns"), 1, "1"),
    (pa.duration("s"), 2**62, str(2**62)),
    (pa.decimal256(50, 0), Decimal(10**38), "1" + 38 * "0"),
]  # fmt: skip


def numbers_of(column: pa.ChunkedArray) -> list[Any]:
    """Return values as they are stored: instants as numbers, since Python has no years beyond 1 to 9999."""
    is_time = pa.types.is_temporal(column.type)
    width = pa.int32() if pa.types.is_date32(column.type) else pa.int64()
    return (column.cast(width) if is_time else column).to_pylist()


@pytest.mark.parametrize(("kind", "values", "landed", "expected"), WIDENED, ids=lambda value: str(value)[:30])
def test_value_is_landed_in_a_type_that_holds_it(
    kind: pa.DataType, values: list[Any], landed: pa.DataType, expected: list[Any]
) -> None:
    column = with_landed_types(pa.table({"x": pa.array([*values, None], kind)}))["x"]
    assert (column.type, numbers_of(column)) == (landed, [*expected, None])
    within = pa.struct([pa.field("list", pa.list_(kind)), pa.field("map", pa.map_(pa.string(), kind))])
    nested = with_landed_types(pa.table({"x": pa.array([{"list": values, "map": [("k", values[0])]}, None], within)}))
    [struct] = nested["x"].chunks
    assert numbers_of(pa.chunked_array([struct.field("list").flatten()])) == expected
    assert numbers_of(pa.chunked_array([struct.field("map").items])) == expected[:1]


@pytest.mark.parametrize(("kind", "value", "text"), REFUSED, ids=lambda value: str(value)[:30])
def test_value_that_would_change_is_refused_by_name(kind: pa.DataType, value: Any, text: str) -> None:
    fitting = [None] * 5
    with pytest.raises(ItemUnreadableError) as raised:
        with_landed_types(pa.table({"a": [1] * 7, "at": pa.array([*fitting, value, None], kind)}))
    assert str(raised.value).startswith(f"column 'at': {text} is ")
    assert "read the column as STRING" in str(raised.value)
    within = pa.list_(pa.struct([("map", pa.map_(pa.string(), kind))]))
    rows = pa.array([[{"map": []}], None, [{"map": [("k", None), ("l", value)]}]], within)
    with pytest.raises(ItemUnreadableError) as raised:
        with_landed_types(pa.table({"at": rows})[1:])
    assert str(raised.value).startswith(f"column 'at.element.map.value': {text} is ")


@pytest.mark.parametrize(
    "kind",
    [pa.decimal256(50, 39), pa.list_(pa.null()), pa.struct([("a", pa.null())]), pa.month_day_nano_interval()],
    ids=str,
)
def test_nonempty_column_without_a_landed_type_is_refused(kind: pa.DataType) -> None:
    values = {pa.list_(pa.null()): [], pa.month_day_nano_interval(): (1, 2, 3)}.get(kind, {"a": None})
    value = Decimal(1) if pa.types.is_decimal(kind) else values
    with pytest.raises(ItemUnreadableError, match=r"column 'x': type .* is not supported; read the column as STRING"):
        with_landed_types(pa.table({"x": pa.array([value], kind)}))
    landed = with_landed_types(pa.table({"n": [1, 2], "x": pa.nulls(2, kind)}))
    assert landed.to_pylist() == [{"n": 1}, {"n": 2}]


def test_field_of_nulls_is_left_out_of_its_struct() -> None:
    landed = with_landed_types(pa.table({"x": [{"a": 1, "b": None}, None]}))
    assert landed["x"].to_pylist() == [{"a": 1}, None]


def test_field_ids_of_a_file_are_not_landed() -> None:
    def of(number: int, name: str, kind: pa.DataType) -> pa.Field:
        return pa.field(name, kind, nullable=False, metadata={"PARQUET:field_id": str(number)})

    schema = pa.schema([of(2, "a", pa.int64()), of(1, "s", pa.struct([of(3, "b", pa.string())]))])
    file, landed_file = BytesIO(), BytesIO()
    pq.write_table(pa.Table.from_pylist([{"a": 1, "s": {"b": "x"}}], schema), file)
    landed = with_landed_types(pq.read_table(file))
    pq.write_table(landed, landed_file)
    assert landed.to_pylist() == [{"a": 1, "s": {"b": "x"}}]
    ids = re.findall(r"field_id=(\S+)", str(pq.read_metadata(landed_file).schema))
    assert set(ids) == {"-1"}  # none
    assert all(field.nullable and field.metadata is None for field in landed.schema)


def test_landed_types_stay_unchanged() -> None:
    kinds = {landed_type(kind) for kind, *_ in WIDENED} | {pa.binary(3), pa.bool_(), pa.timestamp("us", "UTC")}
    table = pa.table({str(kind): pa.nulls(1, kind) for kind in kinds})
    assert with_landed_types(table).schema == table.schema
