"""The options that let the JVM of a job start sooner."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.airflow_names import AirflowFailException
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.operators.packaging import LATE_OPTIMIZATION, LAUNCHER_OPTIONS
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams
from airflow_provider_coordination.spark.writes import ParquetDataset
from tests.airflow.conftest import StubSpark
from tests.support.ingestions import with_ingestion

Make = Callable[..., CoordinatedSparkSubmitOperator]
ELSEWHERE = "/opt/spark/spark.jsa"


@pytest.fixture(autouse=True)
def stream(connect: Any, coordination: SourceCoordinator) -> None:
    connect("aws_default", "aws", extra={"region_name": "eu-west-1"})
    coordination.create_partitions({"p": {}})


@pytest.fixture
def operator(spark: StubSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)

    def make(**arguments: Any) -> CoordinatedSparkSubmitOperator:
        defaults = {
            "task_id": "ingest",
            "reads": KinesisStreams("clicks"),
            "writes": ParquetDataset(str(tmp_path / "out")),
            "env_vars": {"PATH": spark.path},
        }
        return CoordinatedSparkSubmitOperator(**with_ingestion(defaults | arguments))

    return make


def conf_of(call: dict[str, Any]) -> dict[str, str]:
    given = call["arguments"]
    pairs = [given[n + 1] for n, argument in enumerate(given) if argument == "--conf"]
    return dict(pair.split("=", 1) for pair in pairs)


def test_local_driver_options_are_merged_with_user_options(operator: Make, spark: StubSpark, context: Any) -> None:
    mine = {"SPARK_SUBMIT_OPTS": "-Dmine=1", "SPARK_LAUNCHER_OPTS": "-Dmine=2"}
    operator(env_vars={"PATH": spark.path, **mine}).execute(context)
    [call] = spark.calls
    assert call["environment"]["SPARK_SUBMIT_OPTS"] == f"{LATE_OPTIMIZATION} -Dmine=1"
    assert call["environment"]["SPARK_LAUNCHER_OPTS"] == f"{LAUNCHER_OPTIONS} -Dmine=2"
    assert "javaoptions" not in " ".join(conf_of(call)).lower()


def test_missing_archive_is_a_warning_and_the_job_starts(
    operator: Make, spark: StubSpark, context: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        operator(spark_archive=f"{tmp_path}/none.jsa").execute(context)
    [call] = spark.calls
    assert call["environment"]["SPARK_SUBMIT_OPTS"] == LATE_OPTIMIZATION
    assert f"field 'spark_archive': the job starts without the archive: there is no file {tmp_path}" in caplog.text


def test_remote_executors_receive_the_archive_and_user_options_win(
    operator: Make, spark: StubSpark, context: Any, connect: Any
) -> None:
    connect("spark_default", "spark", host="spark://master", port=7077)
    conf = {"spark.executor.defaultJavaOptions": "-Dmine=1", "spark.executor.extraJavaOptions": "-Dmore=2"}
    operator(spark_archive=ELSEWHERE, conf=conf).execute(context)
    [call] = spark.calls
    found = conf_of(call)
    assert found["spark.executor.defaultJavaOptions"] == f"-Xshare:auto -XX:SharedArchiveFile={ELSEWHERE} -Dmine=1"
    assert found["spark.executor.extraJavaOptions"] == "-Dmore=2"
    assert "spark.driver.defaultJavaOptions" not in found


def test_cluster_driver_receives_the_archive_by_spark_configuration(
    operator: Make, spark: StubSpark, context: Any, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect("spark_default", "spark", host="yarn", extra={"deploy-mode": "cluster"})
    monkeypatch.setenv("PATH", spark.path)
    operator(spark_archive=ELSEWHERE, env_vars=None).execute(context)
    [call] = spark.calls
    found = conf_of(call)
    option = f"-Xshare:auto -XX:SharedArchiveFile={ELSEWHERE}"
    assert found["spark.driver.defaultJavaOptions"] == found["spark.executor.defaultJavaOptions"] == option


def test_unsafe_path_fails_without_a_retry(operator: Make, spark: StubSpark, context: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"path '/opt/my spark\.jsa' of the class archive"):
        operator(spark_archive="/opt/my spark.jsa").execute(context)
    assert not spark.calls
