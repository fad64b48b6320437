"""Instants, clocks and owners are written and read in one form."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.clock import SystemClock
from airflow_provider_coordination.coordination.partition import format_instant, parse_instant
from airflow_provider_coordination.coordination.workers import TaskTry, new_owner, task_of

instants = st.datetimes(min_value=datetime(1970, 1, 2), max_value=datetime(9999, 1, 1), timezones=st.just(UTC))


@given(instants, instants)
def test_instants_sort_as_their_texts(one: datetime, other: datetime) -> None:
    assert (one < other) == (format_instant(one) < format_instant(other))
    assert parse_instant(format_instant(one)) == one


def test_instant_of_another_zone_is_stored_in_utc() -> None:
    assert format_instant(datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))) == "2026-01-01T00:00:00.000000Z"


@pytest.mark.parametrize("text", ["2026-01-31T08:30:00.5Z", "2026-01-31T08:30:00.500000Z"])
def test_instant_of_any_width_is_read(text: str) -> None:
    assert parse_instant(text) == datetime(2026, 1, 31, 8, 30, 0, 500_000, UTC)


@pytest.mark.parametrize(
    "text",
    ["", "2026-01-31", "2026-01-31T08:30:00Z", "2026-01-31T08:30:00.500000", "2026-01-31T08:30:00.500000+00:00",
     "2026-01-31 08:30:00.500000Z", "2026-W05-6T08:30:00.500000Z", "20260131T083000.500000Z"],
)  # fmt: skip
def test_invalid_stored_instant_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="does not match format"):
        parse_instant(text)


def test_instant_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="has no time zone"):
        format_instant(datetime(2026, 1, 1))


def test_system_clock_reads_utc() -> None:
    before, now, after = datetime.now(UTC), SystemClock().now(), datetime.now(UTC)
    assert now.tzinfo is UTC
    assert before <= now <= after


def test_monotonic_clock_counts_suspended_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 7, raising=False)
    monkeypatch.setattr(time, "clock_gettime", {7: 12.5}.__getitem__)
    assert SystemClock().monotonic() == 12.5


def test_monotonic_clock_needs_no_boot_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    before, now, after = time.monotonic(), SystemClock().monotonic(), time.monotonic()
    assert before <= now <= after


def test_two_owners_of_the_same_task_try_differ() -> None:
    one, other = (new_owner("dag", "run", "task", 3, 1) for _ in range(2))
    assert one != other
    assert ":dag:run:task:3:1:" in one


def test_owner_contains_its_task_try_despite_colons() -> None:
    run = "manual__2026-01-31T00:00:00+00:00"
    assert task_of(new_owner("dag", run, "task", -1, 2)) == TaskTry("dag", run, "task", -1, 2)


@pytest.mark.parametrize("owner", ["", "host:a", "host:dag:run:task:x:1:abcd"])
def test_owner_of_another_form_has_no_task(owner: str) -> None:
    assert task_of(owner) is None
