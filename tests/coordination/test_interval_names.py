"""The names of the sources that hold the leases of intervals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_coordination.coordination.interval_names import IntervalName, intervals_of, read_interval_name

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("source", ["clicks", "a@b", "clicks@2026-01-01T00:00:00Z--2026-01-02T00:00:00Z", "a\nb"])
@pytest.mark.parametrize("length", [timedelta(hours=1), timedelta(microseconds=120)])
def test_name_of_an_interval_is_read_again(source: str, length: timedelta) -> None:
    name = IntervalName(source=source, start=NOON, end=NOON + length)
    assert read_interval_name(str(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "clicks",
        "clicks@2026-01-01T00:00:00Z",
        "@2026-01-01T00:00:00Z--2026-01-02T00:00:00Z",
        "clicks@2026-01-02T00:00:00Z--2026-01-01T00:00:00Z",
        "clicks@2026-13-01T00:00:00Z--2026-14-01T00:00:00Z",
        "clicks@2026-01-01T00:00:00--2026-01-02T00:00:00",
    ],
)
def test_other_names_are_no_intervals(name: str) -> None:
    assert read_interval_name(name) is None


def test_intervals_of_a_source_are_those_under_its_own_name() -> None:
    hours = [NOON + number * timedelta(hours=1) for number in range(3)]
    own = [str(IntervalName(source="clicks", start=start, end=start + timedelta(hours=1))) for start in hours]
    others = ["click@home", "clicks", "clicks@home", "clicksA", f"{own[0]}@{own[0].partition('@')[2]}"]
    others += [own[0].replace("clicks", name) for name in ("click", "clicks2", "clicks@home", "clicks-late")]
    assert [str(each) for each in intervals_of("clicks", sorted(own + others))] == own
