"""A followed job: registered before it starts, alive by its lease, stopped on request, with an outcome."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import SettingsTakenError, StoreUnavailableError
from airflow_provider_coordination.coordination.job_reports import JobReport, RecordCounts
from airflow_provider_coordination.coordination.jobs import RETENTION, Job, JobRecord, Jobs, JobState
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet
from tests.coordination.unreliable_store import NOT_ANSWERED, Fault

FAMILY = "test|clicks|JOB"
TASK = "dag/run/task/-1"
DONE = {"exit_code": 0}


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def jobs(fleet: Fleet) -> Jobs:
    return Jobs(fleet.owner("triggerer").view)


def submit(fleet: Fleet, jobs: Jobs, owner: str = "a", task: str = TASK) -> None:
    jobs.submit(owner, task=task, digest="d", start_by=fleet.clock.now() + timedelta(hours=1), log="/tmp/x/job.log")


def record(
    fleet: Fleet,
    owner: str = "a",
    stops: list[str] | None = None,
    report: Callable[[], JobReport | None] = lambda: None,
) -> JobRecord:
    return JobRecord(fleet.owner(owner), (stops if stops is not None else []).append, report)


def reporting(fleet: Fleet, jobs: Jobs) -> tuple[JobRecord, list[int]]:
    """A job that has begun, and the number of its reports, each with one record more."""
    made = [0]

    def report() -> JobReport:
        made[0] += 1
        totals = RecordCounts(processed=made[0])
        return JobReport(at=fleet.clock.now(), totals=totals, lag_ms={"x": 7})

    submit(fleet, jobs)
    running = record(fleet, report=report)
    running.begin()
    return running, made


def reported(jobs: Jobs) -> JobReport:
    report = known(jobs).report
    assert report is not None
    return report


def known(jobs: Jobs, owner: str = "a") -> Job:
    job = jobs.get(owner)
    assert job is not None
    return job


def items(fleet: Fleet) -> list[Partition]:
    return [p for status in PartitionStatus for p in fleet.store.store.query(FAMILY, status)]


def test_job_beginning_during_a_listing_is_listed_once(
    fleet: Fleet, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(fleet, jobs)
    begin, query = [record(fleet).begin], fleet.store.query

    def then_it_begins(*asked: Any, **more: Any) -> list[Partition]:
        page = query(*asked, **more)
        if page and begin:
            begin.pop()()
        return page

    monkeypatch.setattr(fleet.store, "query", then_it_begins)
    assert [job.state for job in jobs.of_task(TASK)] == [JobState.STARTING]
    assert begin == []


def test_submitted_job_is_known_with_its_settings(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    job = known(jobs)
    assert (job.owner, job.state, job.task, job.digest, job.log) == (
        "a",
        JobState.SUBMITTED,
        TASK,
        "d",
        "/tmp/x/job.log",
    )
    assert job.given_up_at(timedelta(seconds=MARGIN)) == fleet.clock.now() + timedelta(hours=1)
    assert [each.owner for each in jobs.unfinished()] == ["a"]


def test_job_is_running_only_once_it_reads(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    starting = record(fleet)
    starting.begin()
    starting.note(application_id="local-1")
    assert (known(jobs).state, known(jobs).has_begun) == (JobState.STARTING, True)
    starting.note_reading()
    assert (known(jobs).state, known(jobs).has_begun) == (JobState.RUNNING, True)


def test_job_dying_before_it_reads_is_given_up(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    record(fleet).begin()
    margin = timedelta(seconds=MARGIN)
    assert known(jobs).given_up_at(margin) == fleet.clock.now() + timedelta(seconds=TIMEOUT) + margin


def test_job_is_alive_while_its_heart_beats(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    running = record(fleet)
    running.begin()
    running.note_reading()
    for _ in range(5):
        fleet.clock.advance(TIMEOUT / 2)
        running.renew_due()
    job = known(jobs)
    assert job.state is JobState.RUNNING
    margin = timedelta(seconds=MARGIN)
    assert job.given_up_at(margin) == fleet.clock.now() + timedelta(seconds=TIMEOUT) + margin


def test_notes_of_a_job_are_visible_to_others(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    running = record(fleet)
    running.begin()
    running.note(application_id="local-1", ui_url="http://driver:4040")
    job = known(jobs)
    assert (job.application_id, job.ui_url, job.task) == ("local-1", "http://driver:4040", TASK)


def test_job_leaves_its_outcome_for_the_task_once(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    running = record(fleet)
    running.begin()
    assert running.end(DONE)
    job = known(jobs)
    assert (job.owner, job.state, job.outcome, job.is_reported) == ("a", JobState.ENDED, DONE, False)
    assert job.given_up_at(timedelta()) is None
    assert jobs.unfinished() == []
    jobs.note_reported("a")
    assert known(jobs).is_reported


def test_running_job_is_stopped_at_its_heartbeat(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    stops: list[str] = []
    running = record(fleet, stops=stops)
    running.begin()
    assert jobs.request_stop("a", "cleared")
    running.renew_due()
    running.renew_due()
    assert stops == ["cleared"]
    assert running.end(DONE)
    assert known(jobs).stop == "cleared"


def test_job_stopped_before_it_began_is_stopped_at_start(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    jobs.request_stop("a", "cleared")
    stops: list[str] = []
    record(fleet, stops=stops).begin()
    assert stops == ["cleared"]


def test_stop_requested_during_a_write_loses_neither(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    stops: list[str] = []
    running = record(fleet, stops=stops)
    running.begin()
    fleet.store.fault = Fault(before=lambda: jobs.request_stop("a", "cleared"))
    running.note(application_id="local-1")
    job = known(jobs)
    assert (job.stop, job.application_id) == ("cleared", "local-1")
    running.renew_due()
    assert stops == ["cleared"]


def test_outcome_is_stored_despite_a_concurrent_stop(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    running = record(fleet)
    running.begin()
    fleet.store.fault = Fault(before=lambda: jobs.request_stop("a", "cleared"))
    assert running.end(DONE)
    assert (known(jobs).stop, known(jobs).outcome) == ("cleared", DONE)


def test_stop_is_requested_despite_a_concurrent_heartbeat(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    running = record(fleet)
    running.begin()
    fleet.clock.advance(TIMEOUT / 2)
    fleet.store.fault = Fault(before=running.renew_due)
    assert jobs.request_stop("a", "cleared")
    assert known(jobs).stop == "cleared"


def test_job_given_up_stops_and_its_outcome_is_refused(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    stops: list[str] = []
    running = record(fleet, stops=stops)
    running.begin()
    assert jobs.end("a", {"exit_code": None})
    assert not jobs.end("a", DONE)
    running.renew_due()
    assert stops == ["it was considered dead"]
    assert not running.end(DONE)
    assert known(jobs).outcome == {"exit_code": None}


def test_job_given_up_before_it_began_does_not_begin(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    jobs.end("a", {"exit_code": None})
    stops: list[str] = []
    running = record(fleet, stops=stops)
    running.begin()
    assert stops == ["it was given up before it began"]
    assert not running.end(DONE)


def test_outcome_with_a_lost_response_is_stored_once(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    running = record(fleet)
    running.begin()
    fleet.store.fault = NOT_ANSWERED
    with pytest.raises(StoreUnavailableError):
        running.end(DONE)
    assert known(jobs).outcome == DONE


def test_restarted_driver_is_refused(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    first = record(fleet)
    first.begin()
    with pytest.raises(SettingsTakenError, match="another driver has already used the settings of job"):
        record(fleet).begin()
    first.renew_due()
    assert first.end(DONE)
    assert known(jobs).outcome == DONE
    with pytest.raises(SettingsTakenError):
        record(fleet).begin()


@pytest.mark.parametrize("is_submitted", [True, False])
def test_second_of_two_concurrent_drivers_is_refused(fleet: Fleet, jobs: Jobs, is_submitted: bool) -> None:
    if is_submitted:
        submit(fleet, jobs)
    first, second = record(fleet), record(fleet)
    fleet.store.fault = Fault(before=first.begin)  # the second has looked already
    with pytest.raises(SettingsTakenError):
        second.begin()
    assert first.end(DONE)


def test_driver_begins_after_a_lost_response(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    running = record(fleet)
    fleet.store.fault = NOT_ANSWERED
    with pytest.raises(StoreUnavailableError):
        running.begin()
    running.begin()
    assert running.end(DONE)


def test_unsubmitted_job_has_a_record(fleet: Fleet, jobs: Jobs) -> None:
    running = record(fleet)
    running.begin()
    assert known(jobs).has_begun
    assert running.end(DONE)


def test_report_is_written_every_ten_seconds_with_the_heartbeat(fleet: Fleet, jobs: Jobs) -> None:
    running, made = reporting(fleet, jobs)
    assert known(jobs).report is None
    for _ in range(7):  # after 0, 5, … 30 seconds
        running.renew_due()
        fleet.clock.advance(5)
    assert made == [4]
    assert reported(jobs) == JobReport(
        at=fleet.clock.now() - timedelta(seconds=5), totals=RecordCounts(processed=4), lag_ms={"x": 7}
    )


def test_report_renews_the_lease_of_the_job(fleet: Fleet, jobs: Jobs) -> None:
    running, _ = reporting(fleet, jobs)
    writes = fleet.store.calls.count("transact")
    for _ in range(6):
        fleet.clock.advance(10)
        running.renew_due()
    assert known(jobs).since == fleet.clock.now() + timedelta(seconds=TIMEOUT)
    assert fleet.store.calls.count("transact") == writes + 6, "a write each, and none for the lease alone"


def test_job_that_does_not_read_yet_reports_nothing(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    running = record(fleet)
    running.begin()
    running.renew_due()
    assert running.end(DONE)
    assert known(jobs).report is None


def test_failed_report_is_retried_at_the_next_heartbeat(fleet: Fleet, jobs: Jobs) -> None:
    running, made = reporting(fleet, jobs)
    fleet.store.away = True
    for _ in range(3):
        with pytest.raises(StoreUnavailableError):
            running.renew_due()
        fleet.clock.advance(5)
    fleet.store.away = False
    running.renew_due()
    assert reported(jobs).totals.processed == made[0]


def test_outcome_has_last_counts_and_no_lag(fleet: Fleet, jobs: Jobs) -> None:
    running, made = reporting(fleet, jobs)
    running.renew_due()
    assert running.end(DONE)
    assert known(jobs).outcome == DONE
    assert made == [2]
    assert (reported(jobs).totals.processed, reported(jobs).lag_ms) == (2, {})


def test_report_outlives_the_job(fleet: Fleet, jobs: Jobs) -> None:
    running, _ = reporting(fleet, jobs)
    running.renew_due()
    jobs.end("a", {"exit_code": None})
    fleet.clock.advance(10)
    running.renew_due()
    assert (reported(jobs).totals.processed, known(jobs).outcome) == (1, {"exit_code": None})


def test_stop_requested_during_a_report_is_not_lost(fleet: Fleet, jobs: Jobs) -> None:
    running, _ = reporting(fleet, jobs)
    fleet.store.fault = Fault(before=lambda: jobs.request_stop("a", "handed over"))
    running.renew_due()
    assert (known(jobs).stop, reported(jobs).totals.processed) == ("handed over", 1)


def test_jobs_of_a_task_are_ordered_by_submission(fleet: Fleet, jobs: Jobs) -> None:
    for owner in ("z", "b", "a"):
        submit(fleet, jobs, owner)
        fleet.clock.advance(1)
    submit(fleet, jobs, "other", task="dag/run/other/-1")
    ended = record(fleet, "z")
    ended.begin()
    ended.end(DONE)
    assert [job.owner for job in jobs.of_task(TASK)] == ["z", "b", "a"]


def test_unknown_or_ended_job_cannot_be_stopped(fleet: Fleet, jobs: Jobs) -> None:
    assert not jobs.request_stop("a", "why not")
    submit(fleet, jobs)
    jobs.end("a", DONE)
    assert not jobs.request_stop("a", "why not")
    assert known(jobs).stop is None


def test_old_records_are_purged_and_recent_ones_kept(fleet: Fleet, jobs: Jobs) -> None:
    for owner in ("ended", "never began", "died"):
        submit(fleet, jobs, owner)
    jobs.end("ended", DONE)
    record(fleet, "died").begin()
    fleet.clock.advance(RETENTION.total_seconds())
    submit(fleet, jobs, "new")
    jobs.purge()
    assert {item.progress["owner"] for item in items(fleet)} == {"died", "new"}, "the lease of the dead ran longer"
    fleet.clock.advance(TIMEOUT)
    jobs.purge()
    assert {item.progress["owner"] for item in items(fleet)} == {"new"}


def test_record_fields_of_wrong_type_are_ignored(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    [item] = items(fleet)
    odd = {"owner": 1, "task": 2, "start_by": "soon", "outcome": "good", "stop": 3, "reported": "yes"}
    fleet.store.store.transact(update=[item.with_progress(odd)])
    assert known(jobs) == Job(owner="a", state=JobState.SUBMITTED, since=item.priority)


def test_jobs_are_neither_partitions_nor_workers(fleet: Fleet, jobs: Jobs) -> None:
    submit(fleet, jobs)
    record(fleet).begin()
    looking = fleet.owner("b")
    assert not any(looking.view.count_by_status().values())
    assert looking.workers.live() == []
