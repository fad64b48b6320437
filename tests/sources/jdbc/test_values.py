"""Values are stored as text and quoted as SQL without loss, and nothing else becomes part of a statement."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.jdbc.ranges import (
    Kind,
    given_value,
    kind_of_type,
    kind_of_value,
    literal,
    quoted,
    text_of,
    value_of,
)
from tests.support.depth import examples

NOON = datetime(2026, 1, 31, 12, 0, 0, 123456)
VALUES = {
    Kind.INTEGER: st.integers(),
    Kind.DECIMAL: st.decimals(allow_nan=False, allow_infinity=False),
    Kind.FLOAT: st.floats(allow_nan=False, allow_infinity=False),
    Kind.DATE: st.dates(),
    Kind.TIMESTAMP: st.datetimes(),
    Kind.TIMESTAMP_TZ: st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=st.just(UTC)),
}


@settings(max_examples=examples(60))
@given(kind=st.sampled_from(list(Kind)), data=st.data())
def test_value_survives_its_text(kind: Kind, data: st.DataObject) -> None:
    value = data.draw(VALUES[kind])
    assert value_of(kind, text_of(kind, value)) == value


@pytest.mark.parametrize(
    ("kind", "text", "sql"),
    [
        (Kind.INTEGER, "-5", "-5"),
        (Kind.DECIMAL, "1.50", "1.50"),
        (Kind.FLOAT, "1e+16", "1e+16"),
        (Kind.DATE, "2026-01-31", "DATE '2026-01-31'"),
        (Kind.TIMESTAMP, NOON.isoformat(), "TIMESTAMP '2026-01-31 12:00:00.123456'"),
        (
            Kind.TIMESTAMP_TZ,
            "2026-01-31T12:00:00+02:00",
            "TIMESTAMP WITH TIME ZONE '2026-01-31 10:00:00+00:00'",
        ),
    ],
)
def test_each_kind_has_its_own_literals(kind: Kind, text: str, sql: str) -> None:
    assert literal("postgresql", kind, text) == sql


def test_times_use_the_format_of_each_database() -> None:
    noon = "2026-01-31T12:00:00"
    for dialect, kind, text, sql in (
        ("oracle", Kind.TIMESTAMP, noon, "TIMESTAMP '2026-01-31 12:00:00'"),
        ("oracle", Kind.TIMESTAMP_TZ, f"{noon}+02:00", "TIMESTAMP '2026-01-31 10:00:00+00:00'"),
        ("sqlserver", Kind.DATE, "2026-01-31", "CAST('2026-01-31' AS DATE)"),
        ("sqlserver", Kind.TIMESTAMP, noon, "CAST('2026-01-31 12:00:00' AS DATETIME2)"),
        ("sqlserver", Kind.TIMESTAMP_TZ, f"{noon}Z", "CAST('2026-01-31 12:00:00+00:00' AS DATETIMEOFFSET)"),
    ):
        assert literal(dialect, kind, text) == sql


@settings(max_examples=examples(60))
@given(text=st.text("0123456789-+.:eTZ '\";OR", max_size=30), kind=st.sampled_from(list(Kind)))
def test_literal_holds_only_a_value(text: str, kind: Kind) -> None:
    try:
        sql = literal("postgresql", kind, text)
    except ValueError:
        return
    bare = sql.removeprefix("DATE ").removeprefix("TIMESTAMP ").removeprefix("WITH TIME ZONE ").strip("'")
    assert set(bare) <= set("0123456789-+.:e ")


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("text", ["1 OR 1=1", "1; DROP TABLE t", "'", "", "NaN", "2026-01-31'--", "٣"])
def test_invalid_value_has_no_literal(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        literal("postgresql", kind, text)


def test_names_are_quoted_for_the_database() -> None:
    assert quoted("postgresql", 'a"b') == '"a""b"'
    assert quoted("mysql", "a`b") == "`a``b`"


@pytest.mark.parametrize("value", [math.nan, math.inf, Decimal("NaN"), Decimal("Infinity")])
def test_unordered_value_is_no_bound(value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be a bound"):
        text_of(kind_of_value(value) or Kind.FLOAT, value)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (1, Kind.INTEGER),
        (Decimal(1), Kind.DECIMAL),
        (1.5, Kind.FLOAT),
        (date(2026, 1, 1), Kind.DATE),
        (NOON, Kind.TIMESTAMP),
        (NOON.replace(tzinfo=UTC), Kind.TIMESTAMP_TZ),
        (True, None),
        ("2026-01-01", None),
        (timedelta(1), None),
    ],
)
def test_value_kind_follows_the_returned_type(value: object, kind: Kind | None) -> None:
    assert kind_of_value(value) is kind


def test_empty_column_takes_its_kind_from_its_type() -> None:
    assert [kind_of_type("postgresql", code) for code in (20, 1700, 1184, 25)] == [
        Kind.INTEGER, Kind.DECIMAL, Kind.TIMESTAMP_TZ, None,
    ]  # fmt: skip
    assert kind_of_type("mysql", 12) is Kind.TIMESTAMP
    assert kind_of_type("sqlite", None) is None


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.INTEGER, " 5 ", 5),
        (Kind.DECIMAL, "1.5", Decimal("1.5")),
        (Kind.TIMESTAMP_TZ, "2026-01-31T02:00:00+02:00", datetime(2026, 1, 31, tzinfo=UTC)),
        (Kind.TIMESTAMP, "2026-01-31T02:00:00+02:00", datetime(2026, 1, 31)),
        (Kind.TIMESTAMP, "2026-01-31 02:00:00", datetime(2026, 1, 31, 2)),
        (Kind.DATE, "2026-01-31T00:00:00Z", date(2026, 1, 31)),
        (Kind.DATE, "2026-01-31", date(2026, 1, 31)),
    ],
)
def test_users_may_give_instants_for_any_time_kind(kind: Kind, text: str, value: object) -> None:
    assert given_value(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        (Kind.INTEGER, "2026-01-31", "give a number"),
        (Kind.TIMESTAMP, "yesterday", "give a time such as"),
        (Kind.TIMESTAMP, "0001-01-01T00:00:00+01:00", "give a time such as"),
        (Kind.TIMESTAMP_TZ, "2026-01-31T00:00:00", "instants with a time zone"),
        (Kind.DATE, "2026-01-31T06:00:00Z", "has dates"),
    ],
)
def test_bound_unfit_for_its_column_is_refused(kind: Kind, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        given_value(kind, text)


def test_instant_is_written_in_utc() -> None:
    there = datetime(2026, 1, 31, 2, tzinfo=timezone(timedelta(hours=2)))
    assert text_of(Kind.TIMESTAMP_TZ, there) == "2026-01-31T00:00:00+00:00"
