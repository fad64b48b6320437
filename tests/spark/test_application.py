"""A job that cannot start reports the reason; tests/system runs whole jobs."""

from __future__ import annotations

import json
import re
import runpy
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.operators.job_results import JobOutput
from airflow_provider_coordination.spark.application import main, naming_missing_files
from airflow_provider_coordination.spark.outcome import EXIT_CONFIGURATION, EXIT_FAILED, EXIT_SUCCESS, SUMMARY_MARK
from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.spark_errors import root_cause
from airflow_provider_coordination.stores import StoreSettings, open_store
from demo.local_kinesis import LocalKinesis
from tests.conftest import REPOSITORY
from tests.spark.test_outages import call_dead_jvm
from tests.support.job_settings import ingest, parquet
from tests.support.spark_home import make_spark_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


pytestmark = pytest.mark.usefixtures("as_in_a_process_of_its_own")


def arguments(tmp_path: Path, **changes: object) -> list[str]:
    path = tmp_path / "settings.json"
    values = {
        "source": "clicks",
        "owner": "owner",
        "streams": ["clicks"],
        "output": str(tmp_path / "out"),
        "expires_at": datetime.now(UTC) + timedelta(hours=1),
        "store": StoreSettings.from_url(f"sqlite:///{tmp_path}/coordination.db"),
        **changes,
    }
    ingest(**values).write(path)  # type: ignore[arg-type]
    return [str(path), str(values["owner"])]


def test_invalid_arguments_are_a_configuration_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([]) == EXIT_CONFIGURATION
    assert "configuration error: expected two arguments" in capsys.readouterr().out


@pytest.mark.parametrize("code", [0, EXIT_CONFIGURATION])
def test_program_exits_by_itself_only_to_report_a_failure(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr("airflow_provider_coordination.spark.application.main", lambda: code)
    ended = 0
    try:
        runpy.run_path(str(REPOSITORY / "spark_apps" / "ingest.py"), run_name="__main__")
    except SystemExit as exit:
        ended = exit.code
        assert code != 0
    assert ended == code


def test_unsupported_spark_is_a_configuration_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_spark_home(tmp_path / "spark", "3.4.4")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert main(arguments(tmp_path)) == EXIT_CONFIGURATION
    assert "configuration error: Spark 3.4.4 in" in capsys.readouterr().out


def test_outdated_python_is_a_configuration_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(REPOSITORY / "spark_apps" / "ingest.py"), run_name="__main__")
    assert ended.value.code == EXIT_CONFIGURATION
    output = JobOutput()
    list(output.observe(capsys.readouterr().out.splitlines()))
    assert (output.last_error or "").startswith("configuration error: Python 3.9 is not supported; use Python 3.11")


def test_expired_settings_file_is_a_configuration_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(tmp_path, expires_at=datetime(2020, 1, 1, tzinfo=UTC))) == EXIT_CONFIGURATION
    assert "expired at 2020-01-01T00:00:00Z" in capsys.readouterr().out


def test_unopenable_store_is_a_configuration_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(arguments(tmp_path, store=StoreSettings.from_url(f"sqlite:///{tmp_path}/no-folder/c.db")))
        == EXIT_CONFIGURATION
    )
    assert "no-folder/c.db' does not exist on this machine; create it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output": "/proc/lake"}, "ParquetDataset 'main': field 'path' is '/proc/lake', which"),
        ({"landing_path": "/proc/landing"}, "field 'landing_path' is '/proc/landing', which"),
        ({"dead_letter_path": "/proc/dead"}, "BadRecordSettings: field 'dead_letter_path' is '/proc/dead', which"),
        (
            {"writes": (parquet("/proc/copy", "copy"),)},
            "ParquetDataset 'copy': field 'path' is '/proc/copy', which",
        ),
    ],
)
def test_unwritable_folder_is_a_configuration_error_naming_its_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, object], message: str
) -> None:
    assert main(arguments(tmp_path, **changes)) == EXIT_CONFIGURATION
    assert f"configuration error: {message} cannot be written" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        (replace(parquet("/lake"), kind="queue"), "kind of sink 'queue' is not known; the known names are '"),
        (
            replace(parquet("/lake"), kind="queue", implementation="no_such:QUEUE"),
            "kind of sink 'queue': implementation 'no_such:QUEUE' cannot be imported: ModuleNotFoundError",
        ),
    ],
)
def test_unavailable_sink_kind_is_a_configuration_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sink: SinkSettings, message: str
) -> None:
    assert main(arguments(tmp_path, writes=(sink,))) == EXIT_CONFIGURATION
    assert f"configuration error: {message}" in capsys.readouterr().out


def test_file_in_place_of_a_folder_is_a_configuration_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a-file").write_text("in the way")
    assert main(arguments(tmp_path, output=str(tmp_path / "a-file" / "dataset"))) == EXIT_CONFIGURATION
    out = capsys.readouterr().out
    assert "a-file/dataset" in out and "cannot be written" in out


@pytest.mark.integration
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"transform": "no_such_module:clean"},
            "transform 'no_such_module:clean' cannot be imported: ModuleNotFoundError: No module named "
            "'no_such_module'; ship its module with 'py_files'",
        ),
        (
            {"schema": "id STRING", "where": "colour = 'red'"},
            "field 'writes', sink 'main': 'where' \"colour = 'red'\" cannot be used",
        ),
    ],
    ids=["a transform that cannot be imported", "a predicate that cannot be used"],
)
def test_spark_checks_raise_configuration_errors_before_reading(
    tmp_path: Path,
    spark: SparkSession,
    kinesis: LocalKinesis,
    kinesis_stream: Callable[[int], str],
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    message: str,
) -> None:
    settings = AwsSettings(
        region="us-east-1", endpoint_url=kinesis.endpoint_url, access_key_id="test", secret_access_key="test"
    )
    assert main(arguments(tmp_path, streams=(kinesis_stream(1),), aws=settings, **changes)) == EXIT_CONFIGURATION
    assert f"configuration error: {message}" in capsys.readouterr().out


@pytest.mark.integration
def test_missing_file_of_a_job_is_a_configuration_error(spark: SparkSession, tmp_path: Path) -> None:
    with (
        pytest.raises(
            ConfigurationError, match=rf"File file:{tmp_path}/a\.py does not exist; correct 'py_files', 'files'"
        ),
        naming_missing_files(),
    ):
        spark.sparkContext.addPyFile(str(tmp_path / "a.py"))


@pytest.mark.integration
def test_java_error_names_its_innermost_cause(spark: SparkSession) -> None:
    java = spark.sparkContext._jvm.java  # type: ignore[union-attr]
    with pytest.raises(Exception, match="An error occurred while calling") as raised:
        java.util.concurrent.CompletableFuture.failedFuture(java.io.IOException("no route")).get()
    assert root_cause(raised.value) == "java.io.IOException: no route"
    with pytest.raises(Exception, match="For input string") as raised:
        java.lang.Integer.parseInt("x")
    assert root_cause(raised.value) == root_cause(ValueError("x")) == ""


def test_broken_store_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.db").write_bytes(b"damaged" * 1000)
    assert main(arguments(tmp_path, store=StoreSettings.from_url(f"sqlite:///{tmp_path}/c.db"))) == EXIT_FAILED
    assert "the job failed: store sqlite" in capsys.readouterr().out


def test_job_without_its_jvm_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("airflow_provider_coordination.spark.application.ingest", lambda *given: call_dead_jvm())
    assert main(arguments(tmp_path)) == EXIT_FAILED
    assert "the job failed: the JVM of the Spark driver does not respond: it was killed" in capsys.readouterr().out


def test_missing_credentials_are_a_configuration_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinesis = AwsSettings(region="eu-west-1", endpoint_url="http://127.0.0.1:9")
    assert main(arguments(tmp_path, aws=kinesis)) == EXIT_CONFIGURATION
    assert "Unable to locate credentials" in capsys.readouterr().out


@pytest.mark.integration
def test_missing_stream_is_a_configuration_error(
    tmp_path: Path, kinesis: LocalKinesis, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = AwsSettings(
        region="us-east-1", endpoint_url=kinesis.endpoint_url, access_key_id="test", secret_access_key="test"
    )
    assert main(arguments(tmp_path, streams=("no-such-stream",), aws=settings)) == EXIT_CONFIGURATION
    assert "stream 'no-such-stream' does not exist in region us-east-1" in capsys.readouterr().out


def test_job_of_a_suspended_source_succeeds_without_starting_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    coordinator = SourceCoordinator(
        open_store(StoreSettings.from_url(f"sqlite:///{tmp_path}/coordination.db")), "clicks", "ann"
    )
    coordinator.initialize()
    coordinator.view.suspensions.suspend("ann", "the table is migrated")

    nowhere = AwsSettings(region="eu-west-1", endpoint_url="http://127.0.0.1:9")  # and nobody's credentials
    assert main(arguments(tmp_path, aws=nowhere)) == EXIT_SUCCESS

    out = capsys.readouterr().out
    [summary] = [line for line in out.splitlines() if line.startswith(SUMMARY_MARK)]
    stopped_because = json.loads(summary.removeprefix(SUMMARY_MARK))["stopped_because"]
    assert re.fullmatch(r"the source is suspended by ann since \S+Z: the table is migrated", stopped_because)
    assert "source is suspended by ann" in out and "Spark" not in out
