"""Whole jobs report through the store, end on request, and exclude late records."""

from __future__ import annotations

import json
import logging
import time
from datetime import UTC, datetime, timedelta

import pyarrow.dataset as ds
import pytest

from airflow_provider_coordination.coordination.job_reports import RecordCounts
from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.coordination.partition import PartitionStatus, format_instant
from airflow_provider_coordination.spark.outcome import Outcome
from tests.support.job_settings import parquet
from tests.support.spark_job import Job, MakePipeline, Pipeline
from tests.support.waiting import until

log = logging.getLogger(__name__)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
AT = "id STRING NOT NULL, at TIMESTAMP"


def has_ended(jobs: Jobs, job: Job) -> bool:
    known = jobs.get(job.settings.owner)
    return known is not None and known.state is JobState.ENDED


def put(pipeline: Pipeline, name: str, at: datetime) -> None:
    data = json.dumps({"id": name, "at": format_instant(at)}).encode()
    pipeline.client.put_record(StreamName=pipeline.stream, PartitionKey=name, Data=data)


def test_job_reports_while_running_and_ends_on_request(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(3)
    pipeline.send(10)
    pipeline.sync()
    job = pipeline.start(until_caught_up=False, is_followed=True)
    jobs = Jobs(pipeline.coordinator().view)

    def reported() -> bool:
        known = jobs.get(job.settings.owner)
        report = None if known is None else known.report
        return report is not None and (report.totals.processed, list(report.lag_ms.values())) == (100, [0, 0, 0])

    until(reported, lambda: job.output)
    asked = time.monotonic()
    assert jobs.request_stop(job.settings.owner, "it hands over")
    until(lambda: pipeline.statuses()[PartitionStatus.ASSIGNED] == 0, lambda: job.output)
    free = time.monotonic() - asked
    until(lambda: has_ended(jobs, job), lambda: job.output)
    ended = jobs.get(job.settings.owner)
    log.warning("leases free after %.1f s, outcome after %.1f s", free, time.monotonic() - asked)
    assert job.wait() == 0, job.output
    assert ended is not None and ended.report is not None and ended.outcome is not None
    assert ended.report.totals == RecordCounts(processed=100, processed_bytes=sum(map(_size, pipeline.sent)))
    summary = Outcome.from_mapping(ended.outcome).summary
    assert (summary["stopped_because"], summary["failed"], summary["lost"]) == ("it was stopped", {}, [])
    pipeline.assert_exactly_once()


def _size(event: str) -> int:
    return len(json.dumps({"id": event}))


@pytest.mark.only_deep
def test_late_and_early_records_are_excluded_counted_and_kept_apart(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(1)
    second = timedelta(seconds=1)
    for name, at in {"late": NOW - second, "first": NOW, "last": NOW + second, "early": NOW + 2 * second}.items():
        put(pipeline, name, at)
    pipeline.sync()
    dead = pipeline.folder / "dead"
    job = pipeline.run(
        schema=AT,
        writes=(parquet(pipeline.output),),
        event_time="at",
        earliest=NOW,
        latest=NOW + second,
        dead_letter_path=str(dead),
        keeps_rejected=True,
        max_parse_exceptions=0,
    )
    assert job.process.returncode == 0, job.output
    assert sorted(ds.dataset(pipeline.output).to_table(columns=["id"])["id"].to_pylist()) == ["first", "last"]
    letters = ds.dataset(dead).to_table(columns=["data", "stage"]).to_pylist()
    assert {(json.loads(row["data"])["id"], row["stage"]) for row in letters} == {("late", "time"), ("early", "time")}
    summary = job.summary
    assert (summary["thrown_away"], summary["dead_letters"], summary["parse_exceptions"]) == (2, 2, 0)
    assert summary["metrics"]["coordination.records_thrown_away"] == 2


@pytest.mark.only_deep
def test_job_without_event_time_in_its_schema_reads_nothing(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(1)
    put(pipeline, "first", NOW)
    pipeline.sync()
    job = pipeline.run(schema="id STRING", event_time="at", earliest=NOW)
    assert job.process.returncode == 78
    assert "'event_time' is 'at', which is not a column of 'schema'; its columns are 'id'" in job.output
    assert pipeline.statuses()[PartitionStatus.UNASSIGNED] == 1
