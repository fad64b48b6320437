"""A column is cut into ranges: each row is in exactly one, and none exceeds its share by much."""

from __future__ import annotations

import sqlite3
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.jdbc.ranges import Kind, Range, Value, cut, rest, text_of, value_of
from tests.support.depth import examples

DAY = datetime(2026, 1, 1)
FEW = st.integers(-3, 12)  # so that keys are met several times
KEYS: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.INTEGER: FEW | st.integers(-(2**70), 2**70),
    Kind.DECIMAL: FEW.map(lambda n: Decimal(n) / 4) | st.decimals(allow_nan=False, allow_infinity=False, places=3),
    Kind.FLOAT: FEW.map(lambda n: n / 4) | st.floats(allow_nan=False, allow_infinity=False),
    Kind.DATE: FEW.map(lambda n: date(2026, 1, 10) + timedelta(days=n)) | st.dates(),
    Kind.TIMESTAMP: FEW.map(lambda n: DAY + timedelta(microseconds=n)) | st.datetimes(),
    Kind.TIMESTAMP_TZ: FEW.map(lambda n: DAY.replace(tzinfo=UTC) + timedelta(hours=n)),
}


def holds(read: Range, value: Value) -> bool:
    """Return whether a row with this value is in the range."""
    lower = None if read.lower is None else value_of(Kind(read.kind), read.lower)
    upper = None if read.upper is None else value_of(Kind(read.kind), read.upper)
    return (lower is None or (value > lower if read.lower_open else value >= lower)) and (  # type: ignore[operator]
        upper is None or (value <= upper if read.upper_closed else value < upper)  # type: ignore[operator]
    )


def wholes(kind: Kind, keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Range]:
    bounds = st.none() | keys.map(lambda value: text_of(kind, value))
    flags = st.booleans()
    return st.builds(
        Range,
        column=st.just("k"),
        kind=st.just(kind.value),
        lower=bounds,
        lower_open=flags,
        upper=bounds,
        upper_closed=flags,
    )


@settings(max_examples=examples(60))
@given(kind=st.sampled_from(list(Kind)), data=st.data(), rows=st.integers(1, 5))
def test_cut_ranges_hold_each_row_once(kind: Kind, rows: int, data: st.DataObject) -> None:
    keys = KEYS[kind]
    whole = data.draw(wholes(kind, keys))
    there = sorted(value for value in data.draw(st.lists(keys, max_size=25)) if holds(whole, value))
    made = cut(whole, there[::rows])
    later = data.draw(st.lists(keys, max_size=4))
    for value in (*there, *later):
        assert sum(holds(each, value) for each in made.ranges) == holds(whole, value)
    for each in made.ranges:
        inside = [value for value in there if holds(each, value)]
        assert len(inside) < 2 * rows or len(set(inside)) == 1
    for key in set(there):
        if there.count(key) > 2 * rows:
            assert key in made.huge
    left: Range | None = whole
    for each in made.ranges:
        assert left is not None
        assert (left.lower, left.lower_open) == (each.lower, each.lower_open)
        left = rest(left, each)
    assert left is None


@settings(max_examples=examples(30))
@given(values=st.lists(st.integers(-5, 40) | st.none(), max_size=60), rows=st.integers(1, 7))
def test_database_finds_each_row_by_one_predicate(values: list[int | None], rows: int) -> None:
    whole = Range(column="k", kind=Kind.INTEGER.value)
    starts = sorted(value for value in values if value is not None)[::rows]
    ranges = (*cut(whole, starts).ranges, Range(column="k", is_null=True))
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE t (k INTEGER)")
    database.executemany("INSERT INTO t VALUES (?)", [(value,) for value in values])
    found = [
        row for each in ranges for row in database.execute(f"SELECT rowid FROM t WHERE {each.predicate('sqlite')}")
    ]
    database.close()
    assert sorted(found) == [(n + 1,) for n in range(len(values))]


def strings(starts: list[int], **whole: Any) -> list[str]:
    return [str(each) for each in cut(Range(column="k", kind=Kind.INTEGER.value, **whole), starts).ranges]


def test_range_without_bounds_stays_open_at_both_ends() -> None:
    assert strings([1, 10, 20]) == ["k (-inf, 10)", "k [10, 20)", "k [20, inf)"]
    assert strings([]) == ["k (-inf, inf)"]


def test_bounds_stay_unchanged() -> None:
    assert strings([5, 10], lower="1", lower_open=True, upper="10", upper_closed=True) == ["k (1, 10)", "k = 10"]
    assert strings([5, 10], lower="5", upper="11") == ["k [5, 10)", "k [10, 11)"]


def test_key_that_fills_a_portion_is_its_own_range() -> None:
    made = cut(Range(column="k", kind=Kind.INTEGER.value), [1, 7, 7, 7, 9])
    assert [str(each) for each in made.ranges] == ["k (-inf, 7)", "k = 7", "k (7, 9)", "k [9, inf)"]
    assert made.huge == (7,)
    assert strings([7, 7], upper="7", upper_closed=True) == ["k (-inf, 7]"]


def test_item_is_a_range_as_minimal_json() -> None:
    read = Range(column="k", kind=Kind.INTEGER.value, lower="5")
    assert read.to_item() == {"column": "k", "kind": "integer", "lower": "5"}
    assert Range.from_item(read.to_item()) == read


@pytest.mark.parametrize("item", [{}, {"column": "k", "where": "1=1"}, {"column": 5}])
def test_item_without_a_range_is_refused(item: dict[str, Any]) -> None:
    with pytest.raises(ItemUnreadableError, match="item"):
        Range.from_item(item)


def test_predicates_quote_columns_and_format_bounds_by_kind() -> None:
    read = Range(column="at", kind=Kind.TIMESTAMP.value, lower="2026-01-01T00:00:00", upper="2026-01-02T00:00:00")
    assert read.predicate("mysql") == (
        "`at` >= TIMESTAMP '2026-01-01 00:00:00' AND `at` < TIMESTAMP '2026-01-02 00:00:00'"
    )
    assert Range(column="at").predicate("postgresql") == '"at" IS NOT NULL'
    assert Range(column="at", is_null=True).predicate("postgresql") == '"at" IS NULL'
    assert Range(column="at").predicate("mysql") == "NOT (`at` <=> NULL)", "a zero date IS NULL"
    assert Range(column="at", is_null=True).predicate("mysql") == "`at` <=> NULL"
