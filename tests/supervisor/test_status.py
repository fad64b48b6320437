"""A supervisor's status from the store: correct at any moment, also without a live supervisor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination import store as coordination_store
from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.job_reports import ErrorEvent, JobReport, RecordCounts
from airflow_provider_coordination.coordination.json_values import json_of
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, PartitionStatus
from airflow_provider_coordination.sources.kinesis.kind import KIND
from airflow_provider_coordination.sources.kinesis.progress import Gap
from airflow_provider_coordination.supervisor.reading import existing_status, read_parse_errors
from airflow_provider_coordination.supervisor.status import UNSUPERVISED_AFTER, read_status
from airflow_provider_coordination.supervisor.supervision import SpecVersion
from tests.supervisor.source_simulation import SourceSimulation, SparkJob
from tests.supervisor.specs import SPEC, spec_with
from tests.support.batches import a_shard

COUNTS = RecordCounts(processed=10, processed_bytes=1000, unparseable=2)

FUNCTION = {"foreach_batch": {"function": "publishing:to_kafka", "staging_path": "/data/staging", "name": "publish"}}


class SupervisedClicks(SourceSimulation):
    """A source with a spec as people write it, and two shards."""

    def submitted(self, spec: Mapping[str, Any] = SPEC) -> SpecVersion:
        return self.store.submit(spec, by="ann", reason="first")

    def runs(self) -> list[SparkJob]:
        """Let the supervisor start its jobs, and let them run."""
        self.submitted(spec_with("supervise.start_delay", 0))
        self.turn()
        jobs = self.begin()
        self.supervisor.poll()
        return jobs

    @property
    def status(self) -> dict[str, Any]:
        return json_of(existing_status(self.view))

    def report(self, job: SparkJob, *, errors: list[dict[str, Any]] | None = None, **lag_ms: int) -> None:
        rates = {"1m": {"processed": 1.5}, "5m": {"processed": 1.0}, "15m": {"processed": 0.5}}
        report = JobReport(
            at=self.clock.now(), totals=COUNTS, rates=rates, lag_ms=lag_ms, parse_errors=tuple(errors or ()), slots=8
        )
        assert job.record is not None
        job.record.note(report=report.to_text())


@pytest.fixture
def simulation() -> SupervisedClicks:
    return SupervisedClicks("S0", "S1")


def test_source_without_a_spec_has_no_status(simulation: SupervisedClicks) -> None:
    simulation.view.suspensions.suspend("ann", "before it begins")
    assert read_status(simulation.view) is None


def test_submitted_spec_is_pending_until_supervised(simulation: SupervisedClicks) -> None:
    simulation.submitted()
    simulation.clock.advance(3600)
    status = simulation.status
    assert (status["state"], status["is_supervised"], status["started_at"]) == ("PENDING", False, None)
    assert (status["spec_version"], status["spec_by"], status["kind"]) == (1, "ann", "kinesis")


def test_status_names_at_least_once_sinks(simulation: SupervisedClicks) -> None:
    simulation.submitted(spec_with("writes", [{"parquet": {"path": "/data/lake/clicks"}}, FUNCTION]))
    assert simulation.status["at_least_once"] == ["publish"]


def test_running_supervisor_shows_jobs_and_their_partitions(simulation: SupervisedClicks) -> None:
    simulation.runs()
    status = simulation.status
    assert (status["state"], status["healthy"], status["is_supervised"]) == ("RUNNING", True, True)
    assert [(job["state"], job["partitions"], job["remaining_seconds"]) for job in status["jobs"]] == [
        ("RUNNING", 1, 7200),
        ("RUNNING", 1, 7200),
    ]
    assert (status["task_count"]["wanted"], status["task_count"]["configured"]) == (2, 2)
    assert status["partitions"] == {"open": 2, "UNASSIGNED": 0, "ASSIGNED": 2, "CLOSED": 0, "COMPLETED": 0}
    assert status["needs_turn"] is False


def test_suspension_and_its_end_show_at_once(simulation: SupervisedClicks) -> None:
    simulation.runs()
    simulation.view.suspensions.suspend("ann", "the table is migrated")
    status = simulation.status
    assert (status["state"], status["healthy"]) == ("SUSPENDED", True)
    assert (status["suspended"]["by"], status["suspended"]["reason"]) == ("ann", "the table is migrated")
    assert (status["task_count"]["wanted"], status["needs_turn"]) == (0, True)
    simulation.turn()
    assert simulation.status["detailed_state"] == "SUSPENDED"
    simulation.view.suspensions.resume("ann")
    assert simulation.status["state"] == "RUNNING"


def test_terminated_supervisor_is_stopping_until_its_jobs_end(simulation: SupervisedClicks) -> None:
    simulation.runs()
    simulation.store.terminate(by="ann", reason="moved elsewhere")
    status = simulation.status
    assert (status["state"], status["task_count"]["wanted"]) == ("STOPPING", 0)
    assert status["terminated"]["reason"] == "moved elsewhere"
    simulation.turn()
    assert [job["state"] for job in simulation.status["jobs"]] == ["ENDING", "ENDING"]
    for job in simulation.running:
        job.end()
    status = simulation.status
    assert (status["state"], status["jobs"], status["kind"]) == ("TERMINATED", [], "kinesis")


def test_unattended_supervisor_becomes_unhealthy_after_minutes(simulation: SupervisedClicks) -> None:
    simulation.runs()
    until = simulation.status["supervised_until"]
    simulation.clock.advance(61)
    assert (simulation.status["is_supervised"], simulation.status["state"]) == (False, "RUNNING")
    simulation.clock.advance(UNSUPERVISED_AFTER.total_seconds())
    status = simulation.status
    assert (status["state"], status["detailed_state"], status["healthy"]) == (
        "UNHEALTHY_SUPERVISOR",
        "NOT_SUPERVISED",
        False,
    )
    assert status["supervised_until"] == until


@pytest.mark.parametrize(
    ("paused", "state", "detailed"),
    [
        (True, "SUSPENDED", "DAG_PAUSED"),
        (False, "UNHEALTHY_SUPERVISOR", "NOT_SUPERVISED"),
        (None, "UNHEALTHY_SUPERVISOR", "NOT_SUPERVISED"),
    ],
)
def test_paused_dag_is_a_suspended_supervisor(
    simulation: SupervisedClicks, paused: bool | None, state: str, detailed: str
) -> None:
    simulation.runs()
    asked = read_status(simulation.view, lambda dag_id: paused if dag_id == "supervise_clicks" else None)
    assert asked is not None and asked.dag_is_paused is paused
    assert asked.detailed_state == ("DAG_PAUSED" if paused else "RUNNING")
    simulation.clock.advance(3600)
    later = read_status(simulation.view, lambda dag_id: paused)
    assert later is not None and (later.state, later.detailed_state) == (state, detailed)


def test_parked_partition_is_unhealthy_until_reopened(simulation: SupervisedClicks) -> None:
    [first, _] = simulation.runs()
    lost = ErrorEvent(at=simulation.clock.now(), error_class="DataLostError", message="gone", partition="S0")
    first.report(errors=[lost])
    simulation.go_on(30)
    partition = simulation.view.get("S0")
    assert partition is not None
    parked = partition.failed("2 h were trimmed").closed(PARKED_UNTIL)
    simulation.backend.transact(update=[parked])

    status = simulation.status
    assert (status["state"], status["detailed_state"]) == ("UNHEALTHY_SUPERVISOR", "PARTITIONS_PARKED")
    assert status["healthy"] is False
    [error] = status["errors"]
    assert (error["partition"], error["error_class"]) == ("S0", "DataLostError")
    assert error["message"].startswith("partition 'S0' is parked, and no job reads it: 2 h were trimmed; fix")

    simulation.suspend()
    assert simulation.status["healthy"] is False
    simulation.resume()
    stored = simulation.view.get("S0")
    assert stored is not None
    simulation.backend.transact(update=[stored.reopened(simulation.clock.now())])
    assert (simulation.status["state"], simulation.status["healthy"]) == ("RUNNING", True)


def test_status_names_the_remedy_for_lost_data(simulation: SupervisedClicks) -> None:
    simulation.runs()
    lost = Gap(after="1", before="9", since=None, until=None, found_at=simulation.clock.now(), reason="trimmed")
    shard = replace(a_shard("S0"), checkpoint="1").with_gap(lost)
    first, second = sorted(simulation.view.partitions(), key=lambda each: each.partition_key)
    parked = first.with_progress(shard.to_mapping()).failed("trimmed").closed(PARKED_UNTIL)
    simulation.backend.transact(update=[parked, second.failed("no luck").closed(PARKED_UNTIL)])

    gone, failed = (error["message"] for error in simulation.status["errors"])
    assert gone == f"partition 'S0' is parked, data is gone: {lost}. {KIND.loss_remedy}"
    assert failed == "partition 'S1' is parked, and no job reads it: no luck; fix the cause, then reopen it"


def test_partition_found_twice_counts_once(simulation: SupervisedClicks) -> None:
    simulation.runs()
    query, renewed = simulation.backend.query, [False]

    def renewing(identifier: str, status: PartitionStatus, **options: Any) -> Any:
        """Read a lease, which its owner then renews: it moves to the end of the queue, and is read again."""
        page = query(identifier, status, **options)
        if page and page[0].partition_key == "S0" and not renewed[0]:
            renewed[0] = True
            simulation.backend.transact(update=[page[0].renewed(simulation.clock.now() + timedelta(hours=1))])
        return page

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(coordination_store, "PAGE_ITEMS", 1)
        patch.setattr(simulation.backend, "query", renewing)
        status = simulation.status
    assert renewed[0]
    assert [job["partitions"] for job in status["jobs"]] == [1, 1]
    assert status["task_count"]["wanted"] == 2


def test_job_shows_its_log_location(simulation: SupervisedClicks) -> None:
    [first, _] = simulation.runs()
    simulation.store.submit(spec_with("tuning.job_log_url", "https://logs/{application_id}"))
    assert [job["log"] for job in simulation.status["jobs"]] == [None, None]
    assert first.record is not None
    first.record.note(application_id="app/1")
    assert [job["log"] for job in simulation.status["jobs"]] == ["https://logs/app%2F1", None]


def test_terminated_supervisor_ignores_parked_partitions(simulation: SupervisedClicks) -> None:
    simulation.runs()
    partition = simulation.view.get("S0")
    assert partition is not None
    simulation.backend.transact(update=[partition.closed(PARKED_UNTIL)])
    assert "a user parked it" in simulation.status["errors"][0]["message"]
    simulation.store.terminate()
    assert (simulation.status["healthy"], simulation.status["errors"]) == (True, [])


def test_supervisor_stays_healthy_between_two_dag_runs(simulation: SupervisedClicks) -> None:
    simulation.runs()
    simulation.supervisor.release()
    simulation.clock.advance(UNSUPERVISED_AFTER.total_seconds() - 1)
    status = simulation.status
    assert (status["state"], status["is_supervised"], status["supervised_until"]) == ("RUNNING", False, None)


def test_suspended_unattended_supervisor_is_suspended(simulation: SupervisedClicks) -> None:
    simulation.runs()
    simulation.view.suspensions.suspend("ann", "over the holidays")
    simulation.clock.advance(24 * 3600)
    assert simulation.status["state"] == "SUSPENDED"


def test_job_with_an_expired_lease_has_vanished(simulation: SupervisedClicks) -> None:
    [first, second] = simulation.runs()
    first.is_dead = True
    for _ in range(20):
        simulation.clock.advance(60)
        second.round(0)
    states = {job["owner"]: job["state"] for job in simulation.status["jobs"]}
    assert states == {first.owner: "VANISHED", second.owner: "RUNNING"}
    assert simulation.status["needs_turn"] is True


def test_ended_job_is_gone_before_the_supervisor_notices(simulation: SupervisedClicks) -> None:
    [first, second] = simulation.runs()
    simulation.report(first, S0=5)
    first.end(exit_code=1, error="ValueError: no such column")
    status = simulation.status
    assert [job["owner"] for job in status["jobs"]] == [second.owner]
    assert status["stats"]["totals"] == COUNTS.to_mapping()
    assert (status["errors"][0]["error_class"], status["errors"][0]["owner"]) == ("ValueError", first.owner)
    simulation.turn()
    assert simulation.status["stats"]["totals"] == COUNTS.to_mapping()


def test_lag_is_reported_by_jobs_or_else_the_noted_one(simulation: SupervisedClicks) -> None:
    simulation.stream.lag_ms = {"S1": 900}
    [first, _] = simulation.runs()
    simulation.go_on(30)
    simulation.clock.advance(1)
    simulation.report(first, S0=120)
    lag = simulation.status["lag"]
    assert lag["partitions"]["S0"] == 120
    assert (lag["oldest_ms"], lag["sum_ms"], lag["unknown"]) == (120, 120, 1)
    assert [job["lag_ms"] for job in simulation.status["jobs"]] == [120, None]
    assert [job["slots"] for job in simulation.status["jobs"]] == [8, None]
    assert simulation.status["lag_series"][-1]["counted"]["processed"] == 0


def test_zero_lag_is_unknown_after_lost_contact(simulation: SupervisedClicks) -> None:
    [first, second] = simulation.runs()
    simulation.report(first, S0=0)
    simulation.report(second, S1=0)
    simulation.go_on(30)
    assert (simulation.status["lag"]["oldest_ms"], simulation.status["lag"]["sum_ms"]) == (0, 0)

    simulation.stream.error = SourceError("no response")
    simulation.go_on(30)
    simulation.report(first, S0=0)  # by its last page
    simulation.report(second, S1=0)
    lag = simulation.status["lag"]
    assert (lag["oldest_ms"], lag["sum_ms"], lag["average_ms"], lag["unknown"]) == (None, None, None, 2)
    assert [job["lag_ms"] for job in simulation.status["jobs"]] == [None, None]
    point = simulation.status["lag_series"][-1]
    assert (point["oldest_ms"], point["sum_ms"]) == (None, None)
    simulation.go_on(90)
    assert simulation.status["detailed_state"] == "LOST_CONTACT_WITH_STREAM"


def test_lag_noted_long_ago_is_unknown(simulation: SupervisedClicks) -> None:
    simulation.stream.lag_ms = {"S0": 0, "S1": 0}
    simulation.submit(period=20)
    simulation.turn()
    simulation.go_on(20, begin=False)
    simulation.clock.advance(60)
    assert simulation.status["lag"]["oldest_ms"] == 0
    simulation.clock.advance(1)
    assert (simulation.status["lag"]["oldest_ms"], simulation.status["lag"]["unknown"]) == (None, 2)
    simulation.complete("S0", "S1")
    assert simulation.status["lag"]["oldest_ms"] is None


def test_finished_partition_has_no_lag(simulation: SupervisedClicks) -> None:
    [first, _] = simulation.runs()
    simulation.report(first, S0=120)
    simulation.complete("S0")
    assert simulation.status["lag"]["partitions"] == {"S1": None}


def test_counts_cover_all_jobs_and_rates_running_ones(simulation: SupervisedClicks) -> None:
    [first, second] = simulation.runs()
    simulation.report(first)
    simulation.report(second)
    stats = simulation.status["stats"]
    assert (stats["totals"]["processed"], stats["rates"]["1m"]["processed"]) == (20, 3.0)
    assert stats["jobs"][first.owner]["rates"]["15m"]["processed"] == 0.5
    simulation.clock.advance(61)
    simulation.report(second)
    stats = simulation.status["stats"]
    assert (stats["totals"]["processed"], stats["rates"]["1m"]["processed"]) == (20, 1.5)


def test_functional_spec_changes_alone_outdate_jobs(simulation: SupervisedClicks) -> None:
    simulation.runs()
    spec = spec_with("supervise.start_delay", 0)
    simulation.submitted({**spec, "context": {"description": "each click"}})
    assert [job["is_outdated"] for job in simulation.status["jobs"]] == [False, False]
    assert simulation.status["needs_turn"] is False
    simulation.submitted({**spec, "schema": "id STRING"})
    assert [job["is_outdated"] for job in simulation.status["jobs"]] == [True, True]
    assert simulation.status["needs_turn"] is True


def test_spec_of_a_newer_version_is_only_an_error(simulation: SupervisedClicks) -> None:
    simulation.runs()
    simulation.submitted(spec_with("version", 2))
    status = simulation.status
    assert "version 2 of the spec cannot be read" in status["errors"][0]["message"]
    assert (status["task_count"]["wanted"], status["task_count"]["configured"]) == (None, None)
    assert [job["state"] for job in status["jobs"]] == ["RUNNING", "RUNNING"]


def test_handover_requests_a_turn_until_done(simulation: SupervisedClicks) -> None:
    simulation.runs()
    assert simulation.status["needs_turn"] is False
    simulation.clock.advance(1)
    simulation.store.request_handover()
    assert simulation.status["needs_turn"] is True


def test_bad_records_cover_all_jobs_latest_first(simulation: SupervisedClicks) -> None:
    [first, second] = simulation.runs()
    simulation.report(first, errors=[{"at": "2026-01-01T00:00:01.000000Z", "stage": "parse", "error": "not JSON"}])
    simulation.report(second, errors=[{"at": "2026-01-01T00:00:02.000000Z", "stage": "parse", "error": "no column"}])
    first.end()
    found = json_of(read_parse_errors(simulation.view))
    assert found["count"] == 2 * (COUNTS.unparseable + COUNTS.processed_with_error)
    assert found["dead_letter_path"] == "/data/lake/_bad"
    assert [(error["owner"], error["error"]) for error in found["errors"]] == [
        (second.owner, "no column"),
        (first.owner, "not JSON"),
    ]


def test_status_is_the_same_for_every_reader(simulation: SupervisedClicks) -> None:
    simulation.runs()
    before = simulation.store.get()
    assert json_of(existing_status(simulation.coordinator("another").view)) == simulation.status
    assert simulation.store.get() == before


def test_ending_job_shows_its_remaining_time(simulation: SupervisedClicks) -> None:
    simulation.runs()
    simulation.view.suspensions.suspend("ann", "x")
    simulation.turn()
    simulation.clock.advance(60)
    job = simulation.status["jobs"][0]
    assert (job["state"], job["remaining_seconds"]) == ("ENDING", 29 * 60)
    assert "suspended" in job["stop_reason"]
