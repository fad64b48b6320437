"""Jobs report on their sinks, and the reports give the state of a source's sinks."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_coordination.coordination.freshness import FRESHNESS_WINDOW, Ages
from airflow_provider_coordination.coordination.job_reports import (
    MAX_ERROR_CHARACTERS,
    MAX_SINKS,
    ErrorEvent,
    JobReport,
    SinkReport,
    freshness_problem_of,
    sinks_of,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SINK = SinkReport(name="warehouse", kind="sql")


def after(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


def reported(minutes: int, *sinks: SinkReport, ages: Ages | None = None) -> JobReport:
    return JobReport(at=after(minutes), sinks=sinks, ages={} if ages is None else {sink.name: ages for sink in sinks})


def test_sink_is_unavailable_until_its_next_success() -> None:
    away = SINK.unavailable(after(1), "no answer", 2).unavailable(after(5), "still no answer", 3)

    assert (away.at, away.unavailable_since, away.error, away.waiting_batches) == (
        after(5),
        after(1),
        "still no answer",
        3,
    )
    assert away.available(after(6)) == SINK.available(after(6))


def test_long_error_is_truncated() -> None:
    assert len(SINK.unavailable(NOON, "x" * 10_000, 1).error) == MAX_ERROR_CHARACTERS


@pytest.mark.parametrize(
    "sink",
    [SINK, SinkReport(name="calls", kind="foreach_batch", is_exactly_once=False), SINK.unavailable(NOON, "down", 4)],
    ids=["new", "at least once", "away"],
)
def test_report_keeps_its_sinks(sink: SinkReport) -> None:
    stored = JobReport.from_text(reported(1, sink).to_text())
    assert stored is not None and list(stored.sinks) == [sink]


def test_report_of_many_sinks_includes_the_unavailable_ones() -> None:
    many = [SinkReport(name=f"{number}", kind="sql") for number in range(90)]
    stored = JobReport.from_text(reported(1, *many, SINK.unavailable(NOON, "down", 1)).to_text())
    assert stored is not None and len(stored.sinks) == MAX_SINKS and stored.sinks[0].name == SINK.name


def test_invalid_sink_report_is_ignored() -> None:
    assert SinkReport.from_mapping({"name": 7, "kind": "sql"}) is None
    assert SinkReport.from_mapping(
        {"name": "a", "kind": "sql", "waiting_batches": "many", "at": 3, "error": None}
    ) == SinkReport(name="a", kind="sql")


def test_latest_sink_report_wins() -> None:
    away, available = SINK.unavailable(after(1), "down", 1), SINK.available(after(2))
    assert sinks_of([reported(9, away), reported(8, available)]) == [available]
    assert sinks_of([reported(9, available), reported(8, SINK.unavailable(after(3), "down", 1))])[
        0
    ].unavailable_since == after(3)


def test_sink_is_unavailable_since_the_first_consecutive_report() -> None:
    reports = [
        reported(1, SINK.unavailable(after(1), "an outage before", 1)),
        reported(2, SINK.available(after(2))),
        reported(3, SINK.unavailable(after(3), "down", 5)),
        reported(4, SINK.unavailable(after(4), "still down", 2)),
        reported(5, SINK),
    ]
    [sink] = sinks_of(reports)
    assert (sink.at, sink.unavailable_since, sink.error, sink.waiting_batches) == (after(4), after(3), "still down", 7)


def test_sink_missing_in_the_latest_job_is_dropped() -> None:
    other = SinkReport(name="lake", kind="delta")
    assert sinks_of([reported(1, SINK.unavailable(NOON, "down", 1)), reported(2, other)]) == [other]
    assert sinks_of([]) == []


def test_freshness_of_a_sink_covers_all_jobs() -> None:
    fast, slow = Ages.between(1, 1, 900), Ages.between(60, 60, 100)
    [sink] = sinks_of([reported(1, SINK, ages=fast), reported(2, SINK, ages=slow)])
    assert (sink.freshness_p50, sink.freshness_p95) == (fast.quantile(0.5), slow.quantile(0.5))


def test_freshness_of_a_job_that_ended_before_is_forgotten() -> None:
    minutes = int(FRESHNESS_WINDOW.total_seconds() // 60)
    ended, latest = reported(1, SINK, ages=Ages.between(60, 60, 9)), reported(1 + minutes, SINK)
    [sink] = sinks_of([ended, latest])
    assert (sink.freshness_p50, sink.freshness_p95) == (None, None)


def test_report_keeps_its_ages() -> None:
    ages = Ages.between(1, 90, 1000)
    stored = JobReport.from_text(reported(1, SINK, ages=ages).to_text())
    assert stored is not None and stored.ages == {SINK.name: ages}


def test_long_report_drops_ages_before_errors() -> None:
    error = ErrorEvent(at=NOON, error_class="E", message="no")
    report = replace(reported(1, SINK, ages=Ages.between(1, 90, 1000)), errors=(error,), error_count=1)
    stored = JobReport.from_text(report.to_text(len(replace(report, ages={}).to_text())))
    assert stored is not None and (stored.ages, stored.errors) == ({}, (error,))


def test_problem_of_freshness_is_the_latest_of_recent_reports() -> None:
    window = int(FRESHNESS_WINDOW.total_seconds() // 60)
    old, earlier, later, silent = (
        replace(reported(minutes), freshness_problem=problem)
        for minutes, problem in ((0, "old"), (window, "earlier"), (window + 1, "later"), (window + 2, ""))
    )
    assert freshness_problem_of([later, old, silent, earlier]) == "later"
    assert freshness_problem_of([old, silent]) == freshness_problem_of([]) == ""


def test_report_keeps_its_problem_of_freshness_until_the_job_ends() -> None:
    report = replace(reported(1), freshness_problem="too slow")
    assert JobReport.from_text(report.to_text()) == report
    assert JobReport.from_text(report.to_last_text()) == reported(1)
