"""The commands about specs check, print and translate files; no store is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airflow_provider_coordination.cli.app import application
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_file import read_spec_text, write_spec_text
from airflow_provider_coordination.supervisor.spec_schema import json_schema
from tests.supervisor.specs import SPEC, spec_with
from tests.supervisor.test_druid import DRUID


def run(*args: str) -> Any:
    return CliRunner().invoke(application(), ["spec", *args])


@pytest.fixture
def specs(tmp_path: Path) -> Path:
    (tmp_path / "clicks.yaml").write_text(write_spec_text(SPEC))
    (tmp_path / "orders.json").write_text(json.dumps(spec_with("source", "orders")))
    (tmp_path / "notes.txt").write_text("no spec")
    return tmp_path


def test_check_names_the_source_of_each_spec(specs: Path) -> None:
    result = run("check", str(specs))
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [f"ok     {specs}/clicks.yaml: source 'clicks'", f"ok     {specs}/orders.json: source 'orders'"],
    )


def test_check_fails_with_one_line_per_wrong_spec(specs: Path) -> None:
    (specs / "wrong.yaml").write_text(write_spec_text(spec_with("supervise.task_count", 0)))
    result = run("check", str(specs / "wrong.yaml"), str(specs / "gone.yaml"))
    wrong, gone = result.stdout.splitlines()
    assert result.exit_code == 1
    assert wrong.startswith(f"error  {specs}/wrong.yaml: spec: field 'supervise.task_count' must be from 1")
    assert gone == f"error  {specs}/gone.yaml: spec file '{specs}/gone.yaml' cannot be read: No such file or directory"


def test_check_writes_json_for_scripts(specs: Path) -> None:
    result = run("check", str(specs / "clicks.yaml"), "--json")
    assert json.loads(result.stdout) == {"file": f"{specs}/clicks.yaml", "source": "clicks", "error": None}


def test_check_of_a_folder_without_specs_is_wrong_usage(tmp_path: Path) -> None:
    assert run("check", str(tmp_path)).exit_code == 2


def test_print_shows_every_default_and_reads_back_the_same(specs: Path) -> None:
    printed = run("print", str(specs / "clicks.yaml")).stdout
    assert "completion_timeout: PT30M" in printed
    assert IngestionSpec.read(read_spec_text(printed, "x")) == IngestionSpec.read(SPEC)


def test_print_hides_secrets(specs: Path) -> None:
    secret = spec_with("tuning.spark.conf", {"spark.hadoop.fs.s3a.secret.key": "abcdefgh"})
    (specs / "secret.yaml").write_text(write_spec_text(secret))
    assert "abcdefgh" not in run("print", str(specs / "secret.yaml")).stdout


def test_schema_prints_the_json_schema() -> None:
    assert json.loads(run("schema").stdout) == json_schema()


def test_from_druid_writes_a_spec_and_reports_each_field(tmp_path: Path) -> None:
    (tmp_path / "druid.json").write_text(json.dumps(DRUID))
    result = run("from-druid", str(tmp_path / "druid.json"), "--lake", "/lake")
    assert IngestionSpec.read(read_spec_text(result.stdout, "x")).source == "metrics"
    assert "ioConfig.taskCount" in result.stderr and "supervise.task_count" in result.stderr


def test_from_druid_writes_one_object_for_scripts(tmp_path: Path) -> None:
    (tmp_path / "druid.json").write_text(json.dumps(DRUID))
    result = json.loads(run("from-druid", str(tmp_path / "druid.json"), "--lake", "/lake", "--json").stdout)
    assert result["spec"]["source"] == "metrics"
    assert {
        "field": "ioConfig.taskCount",
        "outcome": "copied",
        "target": "supervise.task_count",
        "note": "The same.",
    } in (result["rows"])


def test_from_druid_reports_an_unsupported_spec_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "druid.json").write_text(json.dumps({"type": "kafka"}))
    result = run("from-druid", str(tmp_path / "druid.json"), "--lake", "/lake")
    assert result.exit_code == 2
    assert (
        result.stderr.startswith("error: spec of Druid: field 'type': it is 'kafka'") and result.stderr.count("\n") == 1
    )
