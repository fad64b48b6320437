"""The outcome that a job stores: unchanged if it fits, of bounded size, and nothing if the job is not followed."""

from __future__ import annotations

import json
import secrets
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.job_reports import JobReport
from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark import submission
from airflow_provider_coordination.spark.application import main
from airflow_provider_coordination.spark.outcome import (
    EXIT_CONFIGURATION,
    Outcome,
    Summary,
    coordinator_of,
    followed_job,
)
from airflow_provider_coordination.spark.settings import IngestSettings, SettingsReference
from airflow_provider_coordination.stores import StoreSettings
from tests.support.job_settings import changed, ingest


@pytest.fixture
def settings(tmp_path: Path) -> IngestSettings:
    return ingest(
        source="clicks",
        owner="a job",
        reads=ReadsSettings(kind="kinesis", settings={"streams": ["clicks"]}),
        output=tmp_path / "out",
        expires_at=datetime.now(UTC) + timedelta(hours=1),
        store=StoreSettings.from_url(f"sqlite:///{tmp_path}/coordination.db"),
        is_followed=True,
    )


@pytest.fixture
def jobs(settings: IngestSettings) -> Jobs:
    jobs = Jobs(coordinator_of(settings, "test").view)
    jobs.submit(settings.owner, task="t", digest="", start_by=settings.expires_at)
    return jobs


def outcome_of(jobs: Jobs) -> Outcome:
    job = jobs.get("a job")
    assert job is not None and job.outcome is not None
    return Outcome.from_mapping(job.outcome)


def test_outcome_reads_back_unchanged() -> None:
    left = Outcome(exit_code=75, error="lost", tail="bye", summary=Summary(rounds=3, lost=["a"]).to_mapping())
    assert Outcome.from_mapping(json.loads(json.dumps(left.to_mapping()))) == left


def test_summary_of_a_thousand_sets_is_stored_whole() -> None:
    summary = Summary(
        acknowledgment_sets=[f"clicks/shard-{n}/{secrets.token_hex(16)}" for n in range(1000)]
    ).to_mapping()
    left = Outcome(exit_code=0, summary=summary).to_mapping()
    assert len(json.dumps(left)) < 48 * 1024
    assert Outcome.from_mapping(left).summary == summary


def test_oversized_summary_is_cut_at_its_longest_list() -> None:
    summary = Summary(rounds=7, acknowledgment_sets=[secrets.token_hex(64) for _ in range(1000)]).to_mapping()
    left = Outcome(exit_code=0, error="\0" * 9000, tail="x" * 9000, summary=summary).to_mapping()
    assert len(json.dumps(left)) < 60 * 1024
    read = Outcome.from_mapping(left).summary
    assert read["rounds"] == 7
    assert 0 < len(read["acknowledgment_sets"]) < 1000
    assert read["acknowledgment_sets"] == summary["acknowledgment_sets"][: len(read["acknowledgment_sets"])]


def test_largest_outcome_fits_beside_the_last_report(settings: IngestSettings, jobs: Jobs) -> None:
    errors = [{"error": secrets.token_hex(250), "data": secrets.token_hex(100)} for _ in range(20)]
    with followed_job(settings, SettingsReference(uri="nowhere")) as followed:
        followed.note_reading(lambda: JobReport(at=datetime.now(UTC), parse_errors=errors))
        summary = {"acknowledgment_sets": [secrets.token_hex(64) for _ in range(1000)]}
        followed.record_outcome(Outcome(exit_code=0, error="\0" * 9000, tail="\0" * 9000, summary=summary))
    job = jobs.get("a job")
    assert job is not None and job.report is not None
    assert outcome_of(jobs).exit_code == 0 and job.report.parse_errors


def test_malformed_outcome_is_ignored() -> None:
    odd = {"exit_code": "0", "error": 1, "tail": None, "summary": "?"}
    assert Outcome.from_mapping(odd) == Outcome(exit_code=None)


@pytest.mark.usefixtures("as_in_a_process_of_its_own")
def test_followed_job_stores_its_error_and_deletes_its_settings(
    settings: IngestSettings, jobs: Jobs, tmp_path: Path
) -> None:
    path = tmp_path / "settings.json"
    changed(settings, transform="no_such_module:clean", output=f"{tmp_path}/a").write(path)
    assert main([str(path), settings.owner]) == EXIT_CONFIGURATION
    assert not path.exists()
    outcome = outcome_of(jobs)
    assert outcome.exit_code == EXIT_CONFIGURATION
    assert str(outcome.error).startswith("configuration error: ")


def test_unfollowed_job_stores_nothing_and_keeps_its_settings(
    settings: IngestSettings, jobs: Jobs, tmp_path: Path
) -> None:
    from dataclasses import replace

    path = tmp_path / "settings.json"
    path.touch()
    with followed_job(replace(settings, is_followed=False), SettingsReference(uri=str(path))) as followed:
        followed.note_application("local-1", None)
        followed.record_outcome(Outcome(exit_code=0))
    job = jobs.get("a job")
    assert job is not None and job.state is JobState.SUBMITTED
    assert path.exists()


def test_job_stopped_before_it_listens_is_notified(settings: IngestSettings, jobs: Jobs, tmp_path: Path) -> None:
    jobs.request_stop("a job", "cleared")
    heard: list[str] = []
    with followed_job(settings, SettingsReference(uri=str(tmp_path / "settings.json"))) as followed:
        assert followed.is_stopped
        followed.on_stop(lambda: heard.append("stop"))
    assert heard == ["stop"]


# Beside the task


def run(settings: IngestSettings, tmp_path: Path, script: str) -> tuple[int, Path]:
    """Run a stand-in for spark-submit as it is run beside the task; return its exit code and the log."""
    folder = tmp_path / "job"
    folder.mkdir()
    path = folder / "job.json"
    settings.write(path)
    (folder / "package.zip").touch()
    return submission.main([str(path), "/bin/sh", "-c", script]), folder / submission.LOG_NAME


def test_dead_driver_is_reported_and_its_leases_are_freed(settings: IngestSettings, jobs: Jobs, tmp_path: Path) -> None:
    job = coordinator_of(settings, settings.owner)
    job.create_partitions({"a": {}})
    job.leases.acquire(1)
    code, log = run(settings, tmp_path, "echo working; kill -9 $$")
    assert code == -9
    assert outcome_of(jobs) == Outcome(exit_code=-9, tail="working")
    [partition] = job.view.partitions()
    assert partition.owner is None
    assert [each.name for each in log.parent.iterdir()] == [log.name], "nothing is left that travelled to the job"


def test_stored_outcome_is_not_overwritten(settings: IngestSettings, jobs: Jobs, tmp_path: Path) -> None:
    jobs.end(settings.owner, Outcome(exit_code=0).to_mapping())
    code, _ = run(settings, tmp_path, "exit 3")
    assert code == 3
    assert outcome_of(jobs) == Outcome(exit_code=0)


def test_missing_spark_submit_is_reported(settings: IngestSettings, jobs: Jobs, tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    settings.write(folder / "job.json")
    assert submission.main([str(folder / "job.json"), str(tmp_path / "spark-submit")]) == 127
    assert outcome_of(jobs).tail.endswith("spark-submit: No such file or directory")


def test_unavailable_store_is_logged(settings: IngestSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    away: Any = replace(settings, store=StoreSettings.from_url(f"sqlite:///{tmp_path}/no/such/folder/x.db"))
    code, log = run(away, tmp_path, "exit 0")
    assert code == 0
    assert "the job's outcome could not be stored" in log.read_text()
