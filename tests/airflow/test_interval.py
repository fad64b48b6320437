"""Intervals in Python and in templates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.interval import Interval, interval_value

START = datetime(2026, 1, 1, tzinfo=UTC)
END = datetime(2026, 1, 2, tzinfo=UTC)
DAY = Interval(START, END)


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-01T00:00:00Z/2026-01-02T00:00:00Z",
        " 2026-01-01T00:00:00+00:00 / 2026-01-02T00:00:00+00:00 ",
        "2026-01-01T01:00:00+01:00/P1D",
        "2026-01-01T00:00:00Z/PT24H",
        ("2026-01-01T00:00:00Z", END),
        [START, timedelta(days=1)],
        ("2026-01-01T00:00:00Z", "P1D"),
        (START.astimezone(timezone(timedelta(hours=5))), END),
        DAY,
    ],
    ids=str,
)
def test_interval_is_accepted_in_several_formats(value: Any) -> None:
    assert interval_value(value, {}) == DAY


@pytest.mark.parametrize("value", [None, "", "None", " "], ids=repr)
def test_empty_interval_means_no_bounds(value: Any) -> None:
    assert interval_value(value, {}) is None


def test_month_has_its_calendar_length() -> None:
    found = interval_value("2026-02-01T00:00:00Z/P1M", {})
    assert found == Interval(datetime(2026, 2, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC))


def test_interval_of_the_run_comes_from_its_context() -> None:
    assert interval_value("data_interval", {"data_interval_start": START, "data_interval_end": END}) == DAY


@pytest.mark.parametrize("context", [{}, {"data_interval_start": START, "data_interval_end": START}], ids=repr)
def test_run_without_an_interval_is_refused_with_a_remedy(context: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"or a user started the run; .* or give the ends"):
        interval_value("data_interval", context)


@pytest.mark.parametrize("value", ["yesterday", "2026-01-01T00:00:00Z", 3, ("a", "b", "c"), "2026-01-01T00:00:00Z/Px"])
def test_invalid_interval_is_refused_with_its_value(value: Any) -> None:
    with pytest.raises(ConfigurationError, match="field 'interval' must be"):
        interval_value(value, {})


def test_instant_without_a_time_zone_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="'2026-01-02T00:00:00' has no time zone"):
        interval_value("2026-01-01T00:00:00Z/2026-01-02T00:00:00", {})


@pytest.mark.parametrize("end", [START, START - timedelta(hours=1)], ids=str)
def test_interval_must_start_before_it_ends(end: datetime) -> None:
    with pytest.raises(ConfigurationError, match="must start before it ends; got 2026-01-01T00:00:00Z/"):
        interval_value((START, end), {})


def test_each_interval_of_a_source_has_its_own_leases() -> None:
    later = Interval(END, END + timedelta(milliseconds=1))
    assert DAY.source_name("clicks") == "clicks@2026-01-01T00:00:00Z--2026-01-02T00:00:00Z"
    assert DAY.source_name(DAY.source_name("clicks")) == DAY.source_name("clicks"), "as a task before has named it"
    assert later.source_name("clicks") == "clicks@2026-01-02T00:00:00Z--2026-01-02T00:00:00.001Z"
