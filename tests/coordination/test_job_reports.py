"""The report of a job: counts, moving averages, lags and bad records, in a text of bounded size."""

from __future__ import annotations

import random
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.job_reports import (
    MAX_LAST_REPORT_CHARACTERS,
    MAX_PARSE_ERRORS,
    MAX_REPORT_CHARACTERS,
    ErrorEvent,
    JobReport,
    MovingAverages,
    RecordCounts,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS = RecordCounts(processed=90, processed_bytes=900, processed_with_error=1, unparseable=2, thrown_away=3)


def shard(number: int) -> str:
    return f"clicks|shardId-{number:012d}"


def an_error(number: int, characters: int = 10) -> dict[str, Any]:
    text = "".join(random.Random(number).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=characters))
    return {"at": "2026-01-01T00:00:00.000000Z", "stage": "schema", "error": text, "number": number}


def averages(*counted: tuple[float, int]) -> dict[str, float]:
    """What the averages of processed records are, after these counts at these seconds."""
    moving = MovingAverages(0.0)
    for at, processed in counted:
        rates = moving.rates(at, RecordCounts(processed=processed))
    return {name: rate["processed"] for name, rate in rates.items()}


def test_report_reads_back_from_its_text() -> None:
    rates = {"1m": COUNTS.per_second(60), "5m": COUNTS.per_second(300), "15m": COUNTS.per_second(900)}
    report = JobReport(
        at=NOW, totals=COUNTS, rates=rates, lag_ms={shard(0): 120, shard(1): 0}, parse_errors=(an_error(1),), slots=8
    )
    assert JobReport.from_text(report.to_text()) == report


@pytest.mark.parametrize("text", [None, 1, {}, "", "!", "AAAA"])
def test_invalid_report_is_none(text: object) -> None:
    assert JobReport.from_text(text) is None


def test_lags_of_a_thousand_shards_fit_with_bad_records() -> None:
    lags = {shard(number * 7): random.Random(number).randrange(10**8) for number in range(1000)}
    report = JobReport(at=NOW, totals=COUNTS, lag_ms=lags, parse_errors=tuple(map(an_error, range(MAX_PARSE_ERRORS))))
    text = report.to_text()
    assert len(text) <= MAX_REPORT_CHARACTERS
    assert JobReport.from_text(text) == report


def test_latest_bad_records_are_kept() -> None:
    report = JobReport(at=NOW, parse_errors=tuple(map(an_error, range(MAX_PARSE_ERRORS + 5))))
    read = JobReport.from_text(report.to_text())
    assert read is not None
    assert [error["number"] for error in read.parse_errors] == list(range(5, MAX_PARSE_ERRORS + 5))


def test_oversized_report_drops_bad_records_before_small_lags() -> None:
    lags = {f"{random.Random(number).getrandbits(256):x}": number for number in range(1000)}
    errors = tuple(an_error(number, 500) for number in range(MAX_PARSE_ERRORS))
    text = JobReport(at=NOW, totals=COUNTS, lag_ms=lags, parse_errors=errors).to_text()
    read = JobReport.from_text(text)
    assert read is not None
    assert len(text) <= MAX_REPORT_CHARACTERS
    assert read.totals == COUNTS and not read.parse_errors
    kept = set(read.lag_ms.values())
    assert kept == set(range(1000 - len(kept), 1000)) and len(kept) > 200


def test_last_report_is_short_and_omits_lag() -> None:
    errors = tuple(an_error(number, 500) for number in range(MAX_PARSE_ERRORS))
    text = JobReport(at=NOW, totals=COUNTS, lag_ms={shard(0): 1}, parse_errors=errors).to_last_text()
    read = JobReport.from_text(text)
    assert read is not None
    assert (read.totals, read.lag_ms) == (COUNTS, {})
    assert len(text) <= MAX_LAST_REPORT_CHARACTERS and read.parse_errors[-1]["number"] == MAX_PARSE_ERRORS - 1


def test_counts_add_subtract_and_read_back() -> None:
    assert COUNTS + COUNTS - COUNTS == COUNTS
    assert RecordCounts.from_mapping(COUNTS.to_mapping()) == COUNTS
    assert RecordCounts.from_mapping({"processed": "many"}) == RecordCounts()


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        ([(0, 0)], {"1m": 0.0, "5m": 0.0, "15m": 0.0}),
        ([(10, 100)], {"1m": 10.0, "5m": 10.0, "15m": 10.0}),
        # Steady: ten a second.
        ([(at, at * 10) for at in range(10, 1210, 10)], {"1m": 10.0, "5m": 10.0, "15m": 10.0}),
        # Nothing came for the last two minutes of ten.
        ([(at, min(at, 480) * 10) for at in range(10, 610, 10)], {"1m": 0.0, "5m": 6.0, "15m": 8.0}),
        # A report was late: the average is over the time since the one before the window.
        ([(10, 100), (20, 200), (100, 1000)], {"1m": 10.0, "5m": 10.0, "15m": 10.0}),
    ],
)
def test_averages_cover_the_last_minutes(counted: list[tuple[float, int]], expected: dict[str, float]) -> None:
    assert averages(*counted) == expected


def test_averages_keep_only_the_longest_window() -> None:
    moving = MovingAverages(0.0)
    for at in range(0, 36000, 10):
        moving.rates(float(at), RecordCounts(processed=at))
    assert len(moving._known) <= timedelta(minutes=15) / timedelta(seconds=10) + 1


def failure(number: int, message: str = "") -> ErrorEvent:
    return ErrorEvent(at=NOW, error_class="AccessDeniedError", message=message, partition=f"S{number}")


def test_errors_read_back_and_new_ones_are_found() -> None:
    report = JobReport(at=NOW, errors=tuple(map(failure, range(5, 15))), error_count=15)
    read = JobReport.from_text(report.to_text())
    assert read is not None and read == report
    assert [error.partition for error in read.errors_after(12)] == ["S12", "S13", "S14"]
    assert read.errors_after(15) == ()
    assert len(read.errors_after(0)) == 10, "older ones are not known any more"


def test_last_report_keeps_the_latest_errors_that_fit() -> None:
    errors = tuple(failure(number, secrets.token_hex(500)) for number in range(10))
    read = JobReport.from_text(JobReport(at=NOW, errors=errors, error_count=10).to_last_text())
    assert read is not None and read.error_count == 10
    assert 0 < len(read.errors) < 10 and read.errors[-1].partition == "S9"
