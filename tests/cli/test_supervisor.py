"""The commands of the group `supervisor`: output, confirmation and effect."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.job_reports import JobReport
from airflow_provider_coordination.coordination.jobs import JobRecord, Jobs
from airflow_provider_coordination.coordination.json_values import json_of
from airflow_provider_coordination.supervisor.observation import LagReading, LagSeries
from airflow_provider_coordination.supervisor.reading import existing_status
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import task_of
from tests.cli.conftest import Clicks, Shell
from tests.support.clock import ManualClock

SPEC: dict[str, Any] = {
    "version": 1,
    "source": "clicks",
    "reads": {"s3": {"paths": "s3://clicks/in", "format": "json", "aws_conn_id": None, "region_name": "eu-west-1"}},
    "writes": [{"parquet": {"path": "/data/lake/clicks"}}],
    "supervise": {"task_count": 2},
}
WHY = ("--reason", "the table is migrated")


@pytest.fixture
def spec_file(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.json"
    path.write_text(json.dumps(SPEC))
    return path


@pytest.fixture
def submitted_spec(shell: Shell, clicks: Clicks, spec_file: Path) -> Path:
    clicks.waiting("p", "q")
    assert shell("supervisor", "submit", str(spec_file), "--reason", "first").exit_code == 0
    return spec_file


def found(clicks: Clicks) -> dict[str, Any]:
    return json_of(existing_status(clicks.a.view))


def test_submit_stores_a_spec_and_reports_the_consequence(shell: Shell, clicks: Clicks, spec_file: Path) -> None:
    ended = shell("supervisor", "submit", str(spec_file), "--reason", "first")
    assert (ended.exit_code, ended.out) == (
        0,
        "clicks: version 1 is in effect: jobs start once a DAG of supervised_ingestion supervises the source\n",
    )
    again = shell("supervisor", "submit", str(spec_file), "--json")
    assert again.records == [{"source": "clicks", "version": 1, "change": "NONE", "consequence": "nothing changes"}]
    [version] = SupervisionStore(clicks.a.view).history()
    assert (version.by, version.reason) == ("ann", "first")


def test_wrong_spec_is_one_line_of_wrong_usage(shell: Shell, clicks: Clicks, spec_file: Path) -> None:
    spec_file.write_text(json.dumps({**SPEC, "supervise": {"task_count": 0}}))
    ended = shell("supervisor", "submit", str(spec_file))
    assert (ended.exit_code, ended.out) == (2, "")
    assert "to run no jobs, suspend the supervisor; got 0" in ended.err


def test_spec_based_on_a_previous_version_is_refused(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    submitted_spec.write_text(json.dumps({**SPEC, "schema": "id STRING"}))
    assert shell("supervisor", "submit", str(submitted_spec), "--replacing", "1").exit_code == 0
    submitted_spec.write_text(json.dumps(SPEC))
    ended = shell("supervisor", "submit", str(submitted_spec), "--replacing", "1")
    assert (ended.exit_code, ended.out) == (1, "")
    assert "was replaced by ann: version 2 is current; read it and submit again" in ended.err


def test_list_shows_supervisors_with_jobs_and_claimant(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    ended = shell("supervisor", "list")
    assert ended.out.splitlines()[0].split() == [
        *("source", "state", "jobs", "partitions", "lag", "spec", "supervised", "by", "last", "error"),
    ]
    assert ended.out.splitlines()[1].split() == ["clicks", "PENDING", "0/2", "2", "unknown", "1", "no", "DAG", "yet"]
    [record] = shell("supervisor", "list", "--json").records
    assert (record["source"], record["state"], record["lag"]["partitions"]) == ("clicks", "PENDING", {})


def test_store_without_supervisors_is_reported(shell: Shell, clicks: Clicks) -> None:
    clicks.waiting("p")
    ended = shell("supervisor", "list")
    assert (ended.exit_code, ended.out, ended.err) == (0, "", "The store has no supervisors.\n")


def test_status_shows_submitter_desired_and_actual_state(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    clicks.clock.advance(7200)
    out = shell("supervisor", "status", "clicks").out
    for line in (
        "source      clicks (s3)",
        "state       PENDING",
        "supervised  no DAG yet",
        "spec        version 1 by ann, 2 h ago",
        "jobs        0/2: as configured in the spec",
        "partitions  2 open: 2 UNASSIGNED, 0 ASSIGNED, 0 CLOSED, 0 COMPLETED",
        "lag         unknown, unknown for 2",
    ):
        assert line in out.splitlines()


def test_status_shows_the_latest_freshness(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    reading = LagReading(at=clicks.clock.now(), freshness_ms=1500)
    SupervisionStore(clicks.a.view).save_lag(LagSeries().with_reading(reading))
    out = shell("supervisor", "status", "clicks").out
    assert "freshness   95 % of the latest records within 1500 ms in every sink" in out.splitlines()


def test_status_shows_a_freshness_target_out_of_reach(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    now, owner = clicks.clock.now(), clicks.a.owner
    Jobs(clicks.a.view).submit(owner, task=task_of("clicks"), digest="", start_by=now + timedelta(hours=1))
    record = JobRecord(clicks.a)
    record.begin()
    record.note(report=JobReport(at=now, freshness_problem="the sinks are too slow; raise 'freshness'").to_text())
    assert "target      the sinks are too slow; raise 'freshness'" in shell("supervisor", "status", "clicks").out


def test_status_names_sinks_that_may_duplicate_a_batch(shell: Shell, clicks: Clicks, spec_file: Path) -> None:
    spec = json.loads(spec_file.read_text())
    function = {"function": "publishing:to_kafka", "staging_path": "/data/staging", "name": "publish"}
    spec_file.write_text(json.dumps({**spec, "writes": [*spec["writes"], {"foreach_batch": function}]}))
    assert shell("supervisor", "submit", str(spec_file)).exit_code == 0
    assert (
        "delivery    at least once to publish: a batch may be delivered more than once"
        in shell("supervisor", "status", "clicks").out.splitlines()
    )


def test_status_json_equals_the_http_response(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    assert shell("supervisor", "status", "clicks", "--json").records == [found(clicks)]


@pytest.mark.parametrize("command", ["status", "health", "stats", "parse-errors", "spec", "history", "handover"])
def test_source_without_a_supervisor_is_one_clear_error(shell: Shell, clicks: Clicks, command: str) -> None:
    clicks.waiting("p")
    ended = shell("supervisor", command, "clicks")
    assert (ended.exit_code, ended.out) == (1, "")
    assert ended.err == "error: source 'clicks' has no supervisor; check the name, or submit a spec to create one\n"


def test_health_is_the_exit_code(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    ended = shell("supervisor", "health", "clicks")
    assert (ended.exit_code, ended.out) == (0, "clicks: PENDING\n")
    store = SupervisionStore(clicks.a.view)
    stored = store.get()
    assert stored is not None
    mapping = stored.supervision.to_mapping()
    mapping["health"]["state"] = "UNHEALTHY_TASKS"
    clicks.store.transact(update=[stored.item.with_progress(mapping)])
    ended = shell("supervisor", "health", "--all", "--json")
    assert ended.exit_code == 1
    assert ended.records == [
        {"source": "clicks", "healthy": False, "state": "UNHEALTHY_TASKS", "detailed_state": "UNHEALTHY_TASKS"}
    ]


def test_stats_have_rows_for_all_jobs_and_each(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    out = shell("supervisor", "stats", "clicks").out
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["all", "total", "0"],
        ["per", "second,", "1m"],
        ["per", "second,", "5m"],
        ["per", "second,", "15m"],
    ]
    [record] = shell("supervisor", "stats", "clicks", "--json").records
    assert record["totals"] == found(clicks)["stats"]["totals"]


def test_absence_of_bad_records_is_reported(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    ended = shell("supervisor", "parse-errors", "clicks")
    assert (ended.out, ended.err) == ("", "No job found bad records.\n")


def test_unlisted_bad_records_are_counted(shell: Shell, clicks: Clicks, tmp_path: Path) -> None:
    file = tmp_path / "clicks.json"
    file.write_text(json.dumps({**SPEC, "bad_records": {"dead_letter_path": "s3://lake/dead"}}))
    assert shell("supervisor", "submit", str(file)).exit_code == 0
    store = SupervisionStore(clicks.a.view)
    claimant = Claimant(owner="run", dag_id="dag", run_at=clicks.clock.now())
    stored = store.acquire(claimant)
    store.save(stored, replace(stored.supervision, totals={"unparseable": 20, "processed_with_error": 2}))

    ended = shell("supervisor", "parse-errors", "clicks")
    assert " ".join(ended.err.split()) == "22 bad records, 0 of them listed. Dead letters: s3://lake/dead."
    [record] = shell("supervisor", "parse-errors", "clicks", "--json").records
    assert record == {"source": "clicks", "count": 22, "dead_letter_path": "s3://lake/dead", "errors": []}


def test_printed_spec_can_be_submitted(shell: Shell, clicks: Clicks, submitted_spec: Path, tmp_path: Path) -> None:
    printed = tmp_path / "printed.yaml"
    printed.write_text(shell("supervisor", "spec", "clicks").out)
    assert "nothing changes" in shell("supervisor", "submit", str(printed)).out
    assert "completion_timeout" in shell("supervisor", "spec", "clicks", "--effective").out
    [record] = shell("supervisor", "spec", "clicks", "--json").records
    assert record["spec"] == SPEC and record["by"] == "ann"


def test_history_lists_the_latest_version_first(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    shell("supervisor", "terminate", "clicks", *WHY, "--yes")
    lines = shell("supervisor", "history", "clicks").out.splitlines()
    assert [line.split()[0] for line in lines] == ["version", "2", "1"]
    assert "terminates" in lines[1] and lines[1].endswith("the table is migrated")
    ended = shell("supervisor", "spec", "clicks")
    assert ended.exit_code == 1 and "version 2 terminates the supervisor and has no spec; give --version 1" in ended.err


@pytest.mark.parametrize("command", ["suspend", "terminate"])
@pytest.mark.parametrize("answer", ["n\n", None], ids=["no", "nobody there"])
def test_declined_action_changes_nothing(
    shell: Shell, clicks: Clicks, submitted_spec: Path, command: str, answer: str | None
) -> None:
    before = found(clicks)
    ended = shell("supervisor", command, "clicks", *WHY, answer=answer)
    assert (ended.exit_code, ended.out) == (2 if answer is None else 1, "")
    assert found(clicks) == before


def test_source_is_suspended_once_and_resumed_once(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    ended = shell("supervisor", "suspend", "clicks", *WHY, answer="y\n")
    assert (ended.exit_code, ended.out) == (0, "clicks is suspended\n")
    assert "Jobs deliver what they have read" in ended.err
    again = shell("supervisor", "suspend", "clicks", *WHY, "--yes")
    assert again.exit_code == 1 and "is already suspended by ann since" in again.err
    assert shell("supervisor", "resume", "clicks").out == "clicks is resumed\n"
    again = shell("supervisor", "resume", "clicks")
    assert again.exit_code == 1 and "is not suspended" in again.err


def test_suspend_and_terminate_need_a_reason(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    for command in ("suspend", "terminate"):
        assert shell("supervisor", command, "clicks", "--yes").exit_code == 2
        assert shell("supervisor", command, "clicks", "--yes", "--reason", " ").exit_code == 2
    assert found(clicks)["suspended"] is None


def test_action_on_all_reports_each_outcome(shell: Shell, clicks: Clicks, submitted_spec: Path, tmp_path: Path) -> None:
    other = tmp_path / "orders.json"
    other.write_text(json.dumps({**SPEC, "source": "orders"}))
    shell("supervisor", "submit", str(other))
    shell("supervisor", "suspend", "clicks", *WHY, "--yes")
    ended = shell("supervisor", "suspend", "--all", *WHY, answer="y\n")
    assert (ended.exit_code, ended.out) == (0, "orders is suspended\n")
    assert "Suspend all 2 supervisors?" in ended.err and "clicks' is already suspended by ann" in ended.err
    records = shell("supervisor", "terminate", "--all", *WHY, "--yes", "--json").records
    assert [(record["source"], record["is_done"]) for record in records] == [("clicks", True), ("orders", True)]


@pytest.mark.parametrize("given", [(), ("clicks", "--all")])
def test_source_and_all_exclude_each_other(
    shell: Shell, clicks: Clicks, submitted_spec: Path, given: tuple[str, ...]
) -> None:
    ended = shell("supervisor", "resume", *given)
    assert ended.exit_code == 2 and "give a source or --all, but not both" in ended.err


def test_handover_is_requested(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    ended = shell("supervisor", "handover", "clicks")
    said = "clicks is handing over: each job ends once its successor runs\n"
    assert (ended.exit_code, ended.out) == (0, said)
    assert shell("supervisor", "handover", "--all").out == said


def test_reset_of_all_accepts_no_position(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    clicks.completed("r")
    ended = shell("supervisor", "reset", "--all", answer="y\n")
    assert (ended.exit_code, ended.out) == (0, "clicks is reset\n")
    assert "Reset all 1 supervisors?" in ended.err and clicks["r"].status == "UNASSIGNED"
    wrong = shell("supervisor", "reset", "--all", "--position", "p=earliest", "--yes")
    assert wrong.exit_code == 2 and "--position applies to a single source" in wrong.err
    failed = shell("supervisor", "reset", "--all", "--to", "42", "--yes")
    assert failed.exit_code == 1 and "1 of 1 supervisors failed" in failed.err


def test_status_is_watched_until_interrupted(
    shell: Shell, clicks: Clicks, clock: ManualClock, submitted_spec: Path
) -> None:
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    shell.sleep = sleep
    ended = shell("supervisor", "status", "clicks", "--watch", "--interval", "5")
    assert (ended.exit_code, pauses) == (0, [5.0, 5.0])
    lines = ended.out.splitlines()
    assert [line for line in lines if "Ctrl-C" in line] == [
        "00:00:00 UTC  clicks, every 5 s; Ctrl-C ends",
        "00:00:05 UTC  clicks, every 5 s; Ctrl-C ends",
    ]
    assert [line for line in lines if line.startswith("spec ")] == [
        "spec        version 1 by ann, 0 s ago",
        "spec        version 1 by ann, 5 s ago",
    ]
    assert shell("supervisor", "status", "clicks", "--watch", "--json").exit_code == 2
    assert shell("supervisor", "status", "klicks", "--watch").exit_code == 1


def test_positions_are_reset_and_invalid_ones_reset_nothing(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    clicks.completed("a=b")
    before = clicks["p"]
    wrong = shell("supervisor", "reset", "clicks", "--position", "p=earliest", "--position", "x=earliest", "--yes")
    assert wrong.exit_code == 2 and "has no partition 'x'" in wrong.err
    assert clicks["p"] == before
    ended = shell("supervisor", "reset", "clicks", "--position", "a=b=earliest", "--yes")
    assert (ended.exit_code, ended.out) == (0, "reset a=b\n")
    assert shell("supervisor", "reset", "clicks", "--position", "p", "--yes").exit_code == 2
    assert shell("supervisor", "reset", "clicks", answer="n\n").exit_code == 1


def test_terminated_supervisor_is_not_reset(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    shell("supervisor", "terminate", "clicks", *WHY, "--yes")
    ended = shell("supervisor", "reset", "clicks", "--yes")
    assert ended.exit_code == 1 and "cannot be reset: it was terminated at" in ended.err


def test_suspended_supervisor_forgets_and_reads_elsewhere(shell: Shell, clicks: Clicks, submitted_spec: Path) -> None:
    submitted_spec.write_text(json.dumps({**SPEC, "reads": {"s3": {"paths": "s3://orders/in", "aws_conn_id": None}}}))
    refused = shell("supervisor", "submit", str(submitted_spec), "--no-connect")
    assert refused.exit_code == 2 and "supervisor reset clicks --forget" in refused.err
    assert shell("supervisor", "reset", "clicks", "--forget", "--all", "--yes").exit_code == 2
    assert "suspend it, and wait" in shell("supervisor", "reset", "clicks", "--forget", "--yes").err
    shell("supervisor", "suspend", "clicks", *WHY, "--yes")
    assert shell("supervisor", "reset", "clicks", "--forget", answer="n\n").exit_code == 1
    ended = shell("supervisor", "reset", "clicks", "--forget", answer="y\n")
    assert (ended.exit_code, ended.out) == (0, "removed p\nremoved q\n")
    assert "Forget what was read by the supervisor of clicks?" in ended.err
    assert shell("supervisor", "submit", str(submitted_spec), "--no-connect").exit_code == 0
