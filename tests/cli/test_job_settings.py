"""`airflow-coordination job-settings` prepares the job of a spec for submission by a script."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.jobs import Jobs, JobState
from airflow_provider_coordination.spark.settings import IngestSettings, SettingsReference
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.cli.conftest import Shell

SPEC = """
version: 1
reads: {kinesis: {streams: clicks, aws_conn_id: null, region_name: eu-west-1}}
writes: [{parquet: {path: /data/lake/clicks}}]
tuning: {spark: {conf: {spark.executor.cores: 2}}}
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    file = tmp_path / "clicks.yaml"
    file.write_text(SPEC)
    return str(file)


@pytest.fixture
def coordinator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SourceCoordinator:
    url = f"sqlite:///{tmp_path}/coordination.db"
    connection = {"conn_type": "coordination", "extra": {"store": "sql", "url": url}}
    monkeypatch.setenv("AIRFLOW_CONN_COORDINATION_DEFAULT", json.dumps(connection))
    coordinator = SourceCoordinator(open_store(StoreSettings.from_url(url)), "clicks", "test")
    coordinator.initialize()
    return coordinator


def test_job_is_prepared_and_known_to_the_store(
    shell: Shell, spec: str, tmp_path: Path, coordinator: SourceCoordinator
) -> None:
    shown = shell("job-settings", spec, "--folder", str(tmp_path / "shared"), store=False)
    assert shown.exit_code == 0, shown.err
    job = json.loads(shown.out)
    reference, owner = job["arguments"]
    settings = IngestSettings.read(SettingsReference.parse(reference), owner, datetime.now(UTC))
    assert (settings.source, settings.owner, job["conf"]["spark.executor.cores"]) == ("clicks", job["owner"], "2")
    known = Jobs(coordinator.view).get(owner)
    assert known is not None and known.state is JobState.SUBMITTED and known.task == job["task"]


def test_output_has_the_format_of_the_submitter(
    shell: Shell, spec: str, tmp_path: Path, coordinator: SourceCoordinator
) -> None:
    given = ("job-settings", spec, "--folder", str(tmp_path / "shared"), "--for")
    step = json.loads(shell(*given, "emr", store=False).out)
    assert step["HadoopJarStep"]["Jar"] == "command-runner.jar"
    assert set(json.loads(shell(*given, "livy", store=False).out)) == {"file", "args", "pyFiles", "conf"}


def test_job_that_its_submitter_cannot_run_ends_at_once(
    shell: Shell, spec: str, tmp_path: Path, coordinator: SourceCoordinator
) -> None:
    refused = shell("job-settings", spec, "--folder", str(tmp_path / "shared"), "--for", "glue", store=False)
    assert refused.exit_code == 2 and "AWS Glue only reads s3:// URIs" in refused.err
    [job] = Jobs(coordinator.view).latest_ended(2)
    assert job.outcome is not None and "the job cannot be submitted: " in job.outcome["error"]
    assert list((tmp_path / "shared" / "settings").iterdir()) == []


def test_suspended_source_and_wrong_spec_are_refused(
    shell: Shell, spec: str, tmp_path: Path, coordinator: SourceCoordinator
) -> None:
    coordinator.view.suspensions.suspend("ann")
    refused = shell("job-settings", spec, "--folder", str(tmp_path / "shared"), store=False)
    assert refused.exit_code == 1 and "suspended by ann" in refused.err
    wrong = shell("job-settings", spec, "--folder", "", store=False)
    assert wrong.exit_code in (1, 2)
    Path(spec).write_text("version: 1")
    assert shell("job-settings", spec, "--folder", "/x", store=False).exit_code == 2
    assert not (tmp_path / "shared").exists()
