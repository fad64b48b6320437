"""A running job reports its deliveries, speed, lag and bad records."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.job_reports import MAX_PARSE_ERRORS, JobReport, RecordCounts
from airflow_provider_coordination.sources.kinesis.client import AccessDeniedError
from airflow_provider_coordination.sources.kinesis.progress import parse_partition_key, partition_key
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import Prepared
from airflow_provider_coordination.spark.job_reporting import QUIET_MARGIN, JobReporting
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.redaction import Redaction
from tests.support.clock import ManualClock
from tests.support.fleet import EPOCH, FakeStream, Fleet
from tests.support.history import STREAM, History
from tests.support.sinks import an_attempt

ROUNDS = RoundSettings(round_duration=timedelta(seconds=10), idle_duration=timedelta(seconds=2))
QUIET_SECONDS = (QUIET_MARGIN + ROUNDS.round_duration + ROUNDS.idle_duration).total_seconds()


class ReportingJob:
    """A job that counts."""

    def __init__(self) -> None:
        self.clock = ManualClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.found = BadRecords(saved=100)
        self.reporting = JobReporting(ROUNDS, self.found, Redaction({"password": "a secret"}), self.clock)

    def delivers(self, records: int, **left_out: int) -> None:
        batch = replace(an_attempt("a").batch, records=records, bytes=records * 10)
        self.reporting.note_delivered(batch, Prepared(left_out=left_out))

    @property
    def now(self) -> JobReport:
        return self.reporting.report()


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(FakeStream(2), tmp_path)


@pytest.fixture
def job() -> ReportingJob:
    return ReportingJob()


def test_each_delivered_record_is_counted_once(job: ReportingJob) -> None:
    job.delivers(100, schema=1, transform=2, time=3)
    job.delivers(50)
    assert job.now.totals == RecordCounts(
        processed=144, processed_bytes=1500, processed_with_error=2, unparseable=1, thrown_away=3
    )


def test_many_marked_rows_make_no_count_negative(job: ReportingJob) -> None:
    job.delivers(2, transform=5)
    assert (job.now.totals.processed, job.now.totals.processed_with_error) == (0, 5)


def test_averages_fall_without_deliveries(job: ReportingJob) -> None:
    job.clock.advance(10)
    job.delivers(600)
    assert job.now.rates["1m"]["processed"] == 60.0
    job.clock.advance(50)
    assert job.now.rates["1m"]["processed"] == 10.0
    job.clock.advance(60)
    assert job.now.rates["1m"]["processed"] == 0.0
    assert job.now.rates["5m"]["processed"] == 5.0


def test_partition_with_nothing_left_has_no_lag(job: ReportingJob) -> None:
    job.reporting.note_read({"a": 0, "b": None}, ["a", "b"])
    assert job.now.lag_ms == {"a": 0}


def test_unread_record_ages_until_its_partition_is_read(job: ReportingJob) -> None:
    job.reporting.note_read({"a": 500}, ["a"])
    job.clock.advance(3600)
    assert job.now.lag_ms == {"a": 3_600_500}
    job.reporting.note_read({"a": 200}, ["a"])
    assert job.now.lag_ms == {"a": 200}


def test_quiet_partition_becomes_unknown_without_reads(job: ReportingJob) -> None:
    job.reporting.note_read({"a": 0}, ["a"])
    job.clock.advance(QUIET_SECONDS)
    assert job.now.lag_ms == {"a": 0}
    job.clock.advance(1)
    assert job.now.lag_ms == {}


def test_released_partition_is_no_longer_reported(job: ReportingJob) -> None:
    job.reporting.note_read({"a": 1, "b": 2}, ["a", "b"])
    job.reporting.note_read({}, ["b"])
    assert job.now.lag_ms == {"b": 2}


def test_latest_bad_records_are_reported_without_secrets(job: ReportingJob) -> None:
    errors: list[dict[str, Any]] = [{"error": f"{n}: a secret"} for n in range(MAX_PARSE_ERRORS + 1)]
    job.found.note("a", len(errors), errors)
    reported = job.now.parse_errors
    assert len(reported) == MAX_PARSE_ERRORS
    assert str(reported[-1]["error"]).startswith(f"{MAX_PARSE_ERRORS}: ") and "a secret" not in str(reported)


# Over the answers of Kinesis


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A stream of two shards, to which everything goes to one."""
    history = History(tmp_path, idle_duration=0.0)
    history.sync()
    return history


def test_shard_lag_comes_from_read_responses(history: History) -> None:
    """A page has 10 MiB: of twelve records of a megabyte, some are left."""
    worker = history.start(max_batch_bytes=1)
    for _ in range(12):
        answer = history.client.put_record(StreamName=STREAM, Data=b"x" * 1_000_000, PartitionKey="k")
        history.clock.advance(10)
    history.work(worker)
    lags = {parse_partition_key(key).shard_id: lag for key, lag in worker.job.report().lag_ms.items()}
    assert 20_000 <= lags.pop(answer["ShardId"]) < 60_000, "the last record that was read arrived 30 seconds ago"
    assert list(lags.values()) == [0]
    history.work(worker)
    assert set(worker.job.report().lag_ms.values()) == {0}


def test_job_reports_its_deliveries(history: History) -> None:
    worker = history.start()
    history.send(10)
    history.work(worker)
    totals = worker.job.report().totals
    assert (totals.processed, totals.processed_bytes) == (10, sum(map(len, history.sent)))


@pytest.mark.parametrize(
    ("error", "is_of_source", "count"),
    [(AccessDeniedError("the key is disabled"), True, 3), (OSError("the disk is full"), False, 1)],
    ids=["access denied", "disk full"],
)
def test_failed_partition_is_reported_with_time_class_and_shard(
    fleet: Fleet, error: Exception, is_of_source: bool, count: int
) -> None:
    fleet.stream.shards["shard-0"].error = error
    fleet.run()
    assert fleet.report.error_count == len(fleet.report.errors) == count
    for failed in fleet.report.errors:
        assert failed.partition == partition_key("s", EPOCH, "shard-0")
        assert failed.error_class == type(error).__name__
        assert failed.is_stream_error is is_of_source
        assert str(error) in failed.message
