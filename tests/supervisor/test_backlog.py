"""How long unread records take to be read, from the lag, the bytes and the slots of two points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.job_reports import JobReport, RecordCounts
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, new_partition
from airflow_provider_coordination.supervisor.backlog import STALLED, ReadingPace
from airflow_provider_coordination.supervisor.job_plan import scale
from airflow_provider_coordination.supervisor.observation import MAX_REPORT_AGE, LagPoint, LagReading, LagSeries
from airflow_provider_coordination.supervisor.settings import AutoScaleSettings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
MB = 1_000_000
HOUR_MS = 3_600_000


def points(
    *lags: int, mb_per_second: float = 1.0, slots: int | None = 4, partitions: int = 1, every: int = 30
) -> list[LagPoint]:
    """Return points of these lags in milliseconds, the last one now, between which jobs deliver this much."""
    first = NOW - timedelta(seconds=every * (len(lags) - 1))
    return [
        LagPoint(
            at=first + timedelta(seconds=every * number),
            oldest_ms=lag,
            sum_ms=lag * partitions,
            count=partitions,
            counted=RecordCounts(processed_bytes=round(mb_per_second * MB * every * number)),
            slots=slots,
        )
        for number, lag in enumerate(lags)
    ]


def falling(before: int, gain_ms: int, count: int = 21) -> list[int]:
    """Return lags that change by as much from point to point."""
    return [before + gain_ms * number for number in range(count)]


def pace_of(found: Sequence[LagPoint]) -> ReadingPace:
    pace = ReadingPace.of(found)
    assert pace is not None
    return pace


@pytest.mark.parametrize(
    ("gain_ms", "seconds"),
    [(0, 3600.0), (-30_000, 1800.0), (15_000, 7200.0)],
    ids=["as much as arrives", "twice as much", "half as much"],
)
def test_reading_time_is_the_lag_by_what_is_read(gain_ms: int, seconds: float) -> None:
    pace = pace_of(points(*falling(HOUR_MS, gain_ms)))
    assert pace.reading_time(timedelta(hours=1), 4).total_seconds() == pytest.approx(seconds)


def test_pace_is_the_bytes_of_a_slot() -> None:
    pace = pace_of(points(*falling(HOUR_MS, -30_000), mb_per_second=8, slots=4, partitions=3))
    assert pace.slot_bytes_per_second == pytest.approx(2 * MB)
    assert pace.bytes_of_second == pytest.approx(4 * MB)
    assert str(pace) == "2 MB/s a slot"


@pytest.mark.parametrize(("slots", "seconds"), [(4, 3600), (2, 7200), (8, 1800), (None, 3600)])
def test_fewer_slots_take_longer(slots: int | None, seconds: float) -> None:
    pace = pace_of(points(*[HOUR_MS] * 21))
    assert pace.reading_time(timedelta(hours=1), slots).total_seconds() == pytest.approx(seconds)


@pytest.mark.parametrize(
    "window",
    [
        [],
        points(HOUR_MS),
        points(*[HOUR_MS] * 21, mb_per_second=0),
        points(*[HOUR_MS] * 21, slots=None),
        points(*falling(0, 30_000)),
        points(*falling(0, 23_000)),
        [*points(*[HOUR_MS] * 20), replace(points(HOUR_MS)[0], count=2)],
        [*points(*[HOUR_MS] * 20), replace(points(HOUR_MS)[0], oldest_ms=None, sum_ms=None, count=0)],
    ],
    ids=[
        "no points", "one point", "nothing is delivered", "slots are unknown", "nothing is read",
        "nearly nothing is read", "other partitions", "lag is unknown",
    ],
)  # fmt: skip
def test_pace_is_unknown_without_two_comparable_points(window: list[LagPoint]) -> None:
    assert ReadingPace.of(window) is None


@given(
    before=st.integers(0, 10**8),
    gain_ms=st.integers(-60_000, round(30_000 * (1 - STALLED)) - 1),
    mb_per_second=st.floats(0.001, 1000),
    slots=st.integers(1, 500),
)
def test_reading_time_is_bounded_and_independent_of_bytes(
    before: int, gain_ms: int, mb_per_second: float, slots: int
) -> None:
    window = points(*[max(0, lag) for lag in falling(before, gain_ms)], mb_per_second=mb_per_second, slots=slots)
    twice = [
        replace(point, counted=RecordCounts(processed_bytes=2 * point.counted.processed_bytes)) for point in window
    ]
    time = pace_of(window).reading_time(timedelta(hours=1), slots)
    assert timedelta(0) < time <= timedelta(hours=1) / STALLED
    assert pace_of(twice).reading_time(timedelta(hours=1), slots).total_seconds() == pytest.approx(time.total_seconds())


# Scaling

OUT, IN = 6_000_000, 1_000_000
"""The default thresholds."""


def decided(window: list[LagPoint], count: int = 3) -> tuple[int, str]:
    found = scale(AutoScaleSettings(task_count_min=1, task_count_max=10), count, window, partitions=20, now=NOW)
    return found.count, found.reason


def test_backlog_that_is_soon_read_starts_no_jobs() -> None:
    assert decided(points(*falling(2 * OUT, -270_000)))[0] == 3  # ten times what arrives
    assert decided(points(*falling(2 * OUT, -270_000), slots=None))[0] == 5


def test_jobs_that_fall_behind_get_more_before_the_threshold() -> None:
    count, reason = decided(points(*falling(OUT // 2 + 10_000, 15_000), mb_per_second=6))
    assert (count, reason) == (5, "21 of 21 points have records for at least 6000 s, at 1.5 MB/s a slot")
    assert decided(points(*falling(OUT // 2 + 10_000, 15_000), slots=None)) == (3, "")


def test_unavailable_sink_starts_no_jobs_before_the_threshold() -> None:
    assert decided(points(*falling(2 * IN, 30_000), mb_per_second=0)) == (3, "")
    assert decided(points(*falling(2 * IN, 29_000), mb_per_second=0.01)) == (3, "")


def test_lag_above_the_threshold_ends_no_jobs() -> None:
    assert decided(points(*falling(6 * IN, -230_000))) == (3, "")
    assert decided(points(*[IN] * 21))[0] == 2


# From reports


def leased(key: str) -> Partition:
    item = new_partition("test|clicks|PARTITION", key, NOW).acquired("job", NOW + timedelta(hours=1))
    assert item.status is PartitionStatus.ASSIGNED
    return item


@pytest.mark.parametrize(
    ("reports", "slots"),
    [
        ([JobReport(at=NOW, slots=4), JobReport(at=NOW, slots=8)], 12),
        ([JobReport(at=NOW, slots=4), JobReport(at=NOW)], None),
        ([JobReport(at=NOW, slots=4), JobReport(at=NOW - 2 * MAX_REPORT_AGE, slots=8)], 4),
        ([], None),
    ],
    ids=["all known", "one unknown", "one old", "none"],
)
def test_point_has_the_slots_of_all_recent_reports(reports: list[JobReport], slots: int | None) -> None:
    point = LagReading.of([leased("S0")], {"S0": 5}, reports, at=NOW).point
    assert point.slots == slots
    series = LagSeries().with_reading(LagReading(at=NOW, partitions={"S0": 5}, slots=slots))
    assert LagSeries.from_mapping(series.to_mapping()).points[0].slots == slots
