"""The lag of a source: one point of many partitions, and a series that stays short."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.coordination.freshness import Ages
from airflow_provider_coordination.coordination.job_reports import JobReport, RecordCounts, SinkReport
from airflow_provider_coordination.supervisor.observation import (
    COARSE_INTERVAL,
    FULL_RESOLUTION,
    MAX_REPORT_AGE,
    RETENTION,
    LagReading,
    LagSeries,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_reading_is_one_point_of_known_lags() -> None:
    point = LagReading(at=NOON, partitions={"a": 100, "b": 50, "c": None, "d": -3}).point
    assert (point.oldest_ms, point.sum_ms, point.average_ms, point.count, point.unknown) == (100, 150, 50, 3, 1)


def test_freshness_belongs_to_the_slowest_sink_of_current_reports() -> None:
    sinks = [SinkReport(name=name, kind="delta") for name in ("fast", "slow")]
    ages = {"fast": Ages.between(1, 1, 10), "slow": Ages.between(30, 30, 10)}
    report = JobReport(at=NOON, sinks=sinks, ages=ages)
    late = NOON + MAX_REPORT_AGE + timedelta(seconds=1)
    slowest = round(1000 * (ages["slow"].quantile(0.95) or 0))
    assert LagReading.of([], {}, [report], at=NOON).point.freshness_ms == slowest
    assert LagReading.of([], {}, [report], at=late).point.freshness_ms is None


def test_unknown_partition_and_empty_source_differ_in_lag() -> None:
    unknown = LagReading(at=NOON, partitions={"a": None}).point
    assert (unknown.oldest_ms, unknown.average_ms, unknown.unknown) == (None, None, 1)
    assert LagReading(at=NOON).point.oldest_ms == 0


def test_series_of_a_day_stays_short_and_keeps_peaks() -> None:
    series, rng = LagSeries(), random.Random(1)
    seconds = int(2 * RETENTION.total_seconds())
    for second in range(0, seconds, 30):
        lag = 9_999_999 if second == seconds - 7200 else rng.randrange(100_000)
        series = series.with_reading(LagReading(at=NOON + timedelta(seconds=second), partitions={"a": lag}))
    last = series.points[-1].at
    assert (
        len(series.points)
        <= (RETENTION - FULL_RESOLUTION) // COARSE_INTERVAL + FULL_RESOLUTION // timedelta(seconds=30) + 2
    )
    assert last - series.points[0].at <= RETENTION
    assert [p.at for p in series.points] == sorted(p.at for p in series.points)
    assert max(p.oldest_ms or 0 for p in series.points) == 9_999_999
    full_resolution = [p for p in series.points if last - p.at < FULL_RESOLUTION]
    assert len(full_resolution) == FULL_RESOLUTION // timedelta(seconds=30)
    assert len(json.dumps(series.to_mapping())) < 10_000


def test_lag_of_a_thousand_partitions_fits_into_an_item() -> None:
    rng = random.Random(1)
    keys = [f"clicks:1767225600:shardId-{number:012d}" for number in range(1000)]
    series = LagSeries()
    for second in range(0, 86_400, 300):
        lags = {key: rng.randrange(10_000_000) for key in keys}
        counted = RecordCounts(processed=second * 1_000_003, processed_bytes=second * 700_000_001)
        series = series.with_reading(LagReading(at=NOON + timedelta(seconds=second), partitions=lags, counted=counted))
    text = json.dumps(series.to_mapping())
    assert len(text) < 40_000
    assert LagSeries.from_mapping(json.loads(text)) == series


def test_most_lagging_partitions_are_kept_above_the_item_limit() -> None:
    rng = random.Random(1)
    lags = {f"clicks:1767225600:shardId-{number:012d}": rng.randrange(10_000_000) for number in range(10_000)}
    series = LagSeries().with_reading(LagReading(at=NOON, partitions=lags))
    mapping = series.to_mapping()
    assert len(json.dumps(mapping)) < 64_000
    kept = LagSeries.from_mapping(mapping)
    assert kept.points == series.points
    assert kept.latest is not None and 1000 < len(kept.latest.partitions) < 10_000
    assert min(v or 0 for v in kept.latest.partitions.values()) >= sorted(lags.values())[-len(kept.latest.partitions)]


def test_unreadable_text_is_an_empty_series() -> None:
    assert LagSeries.from_mapping({}) == LagSeries()
    assert LagSeries.from_mapping({"packed": "?"}) == LagSeries()


def test_latter_of_two_simultaneous_points_counts() -> None:
    series = LagSeries().with_reading(LagReading(at=NOON, partitions={"a": 1}))
    assert [p.oldest_ms for p in series.with_reading(LagReading(at=NOON, partitions={"a": 2})).points] == [2]
