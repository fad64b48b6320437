"""The number of jobs that the lag requires, over windows of its points."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.supervisor.job_plan import (
    ScalingDecision,
    configured_count,
    first_decision_at,
    scale,
    window_of,
)
from airflow_provider_coordination.supervisor.observation import LagPoint
from airflow_provider_coordination.supervisor.settings import AVERAGE, SUM, AutoScaleSettings

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
OUT, IN, BETWEEN = 6_000_000, 1_000_000, 3_000_000
"""Lags in milliseconds that ask for more jobs, for fewer, and for neither, by the default thresholds."""


def settings(**changes: Any) -> AutoScaleSettings:
    return AutoScaleSettings(**{"task_count_min": 1, "task_count_max": 10, **changes})


def points(*lags: int | None, every: int = 30, partitions: int = 1) -> list[LagPoint]:
    """Points of these greatest lags, the last one now; each of several partitions lags as much."""
    first = NOW - timedelta(seconds=every * (len(lags) - 1))
    return [
        LagPoint(
            at=first + timedelta(seconds=every * number),
            oldest_ms=lag,
            sum_ms=(lag or 0) * partitions,
            count=0 if lag is None else partitions,
        )
        for number, lag in enumerate(lags)
    ]


def scaled(count: int, *lags: int | None, partitions: int = 100, **changes: Any) -> int:
    return scale(settings(**changes), count, points(*lags), partitions=partitions, now=NOW).count


def test_default_window_has_21_points_and_decides_after_900_seconds() -> None:
    assert len(window_of(settings(), points(*[0] * 40), NOW)) == 21
    assert first_decision_at(settings(), NOW) == NOW + timedelta(seconds=900)


def test_points_older_than_the_window_are_ignored() -> None:
    old = [LagPoint(at=NOW - timedelta(hours=1), oldest_ms=OUT, sum_ms=OUT, count=1)]
    assert window_of(settings(), [*old, *points(0, 0)], NOW) == points(0, 0)


@pytest.mark.parametrize(("beyond", "count"), [(6, 3), (7, 5), (21, 5)], ids=["6 of 21 < 0.3", "7 of 21 >= 0.3", "all"])
def test_count_grows_by_two_at_three_tenths_beyond_threshold(beyond: int, count: int) -> None:
    assert scaled(3, *[OUT] * beyond, *[BETWEEN] * (21 - beyond)) == count


@pytest.mark.parametrize(
    ("within", "count"), [(18, 3), (19, 2), (21, 2)], ids=["18 of 21 < 0.9", "19 of 21 >= 0.9", "all"]
)
def test_count_shrinks_by_one_at_nine_tenths_within_threshold(within: int, count: int) -> None:
    assert scaled(3, *[IN] * within, *[BETWEEN] * (21 - within)) == count


def test_lag_between_thresholds_changes_nothing() -> None:
    assert scale(settings(), 3, points(*[BETWEEN] * 21), partitions=9, now=NOW) == ScalingDecision(count=3)


def test_scaling_out_precedes_scaling_in() -> None:
    assert scaled(3, *[OUT, IN] * 11, trigger_scale_out_fraction=0.5, trigger_scale_in_fraction=0.5) == 5


@pytest.mark.parametrize(("known", "count"), [(1, 3), (13, 3), (14, 5), (21, 5)])
def test_window_under_two_thirds_full_is_a_refusal(known: int, count: int) -> None:
    found = scale(settings(), 3, points(*[OUT] * known), partitions=100, now=NOW)
    assert found.count == count
    assert (f"not changed: the window is incomplete: {known} of 21 points" in found.reason) is (count == 3)


def test_unfilled_window_without_a_change_is_no_refusal() -> None:
    assert scale(settings(), 3, points(BETWEEN), partitions=100, now=NOW) == ScalingDecision(count=3)


def test_empty_window_changes_nothing() -> None:
    assert scale(settings(trigger_scale_out_fraction=0.0), 3, [], partitions=9, now=NOW) == ScalingDecision(count=3)


def test_unknown_lags_count_without_requesting_a_change() -> None:
    assert scaled(3, OUT, None, None, None) == 3
    assert scaled(3, IN, IN, None) == 3


@pytest.mark.parametrize(("aggregate", "count"), [("max", 1), (SUM, 3), (AVERAGE, 1)])
def test_lags_are_aggregated_as_configured(aggregate: str, count: int) -> None:
    window = points(*[600_000] * 21, partitions=10)  # ten shards, ten minutes behind each
    assert scale(settings(lag_aggregate=aggregate), 1, window, partitions=10, now=NOW).count == count


@pytest.mark.parametrize(
    ("count", "partitions", "lag", "after", "why"),
    [
        (9, 100, OUT, 10, ""),
        (10, 100, OUT, 10, "10 jobs are the maximum that 'auto_scale' allows"),
        (3, 4, OUT, 4, ""),
        (4, 4, OUT, 4, "only 4 partitions can be read"),
        (2, 100, IN, 1, ""),
        (1, 100, IN, 1, "1 jobs are the minimum that 'auto_scale' allows"),
    ],
    ids=["up to the most", "at the most", "up to the shards", "at the shards", "down to the fewest", "at the fewest"],
)
def test_count_stays_within_bounds_with_a_reason(count: int, partitions: int, lag: int, after: int, why: str) -> None:
    found = scale(settings(), count, points(*[lag] * 21), partitions=partitions, now=NOW)
    assert found.count == after
    assert found.reason.endswith(f"not changed: {why}" if why else "s")
    assert found.reason.startswith("21 of 21 points have a lag of at ")


def test_delivering_jobs_block_scaling() -> None:
    found = scale(settings(), 3, points(*[OUT] * 21), partitions=9, now=NOW, ending=2)
    assert found.count == 3
    assert found.reason.endswith("not changed: 2 jobs still deliver what they have read")


@pytest.mark.parametrize(("seconds", "count"), [(599, 3), (600, 5)])
def test_change_blocks_scaling_for_ten_minutes(seconds: int, count: int) -> None:
    changed_at = NOW - timedelta(seconds=seconds)
    found = scale(settings(), 3, points(*[OUT] * 21), partitions=9, now=NOW, changed_at=changed_at)
    assert found.count == count
    assert ("not changed: the last change was recent, wait 1 s more" in found.reason) is (count == 3)


@pytest.mark.parametrize(("start", "task_count", "count"), [(None, 4, 4), (None, 99, 10), (None, 1, 2), (3, 4, 3)])
def test_count_starts_at_its_start_or_spec_count(start: int | None, task_count: int, count: int) -> None:
    assert configured_count(settings(task_count_min=2, task_count_start=start), task_count) == count
