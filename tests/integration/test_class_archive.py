"""The archive of classes, made by a real Spark."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_provider_coordination.operators.packaging import local_environment, packaged_application
from airflow_provider_coordination.spark.class_archive import archive_problem, make_archive
from tests.support.servers import unavailable
from tests.support.table_readers import servers

OF_TESTS = ("JAVA_TOOL_OPTIONS", "SPARK_HOME")


def test_jvm_takes_classes_from_the_archive_of_make_servers(java: str) -> None:
    archive = servers() / "spark.jsa"
    if not archive.exists():
        unavailable("the archive of Spark's classes", f"'{archive}' does not exist: run `make servers`")
    given = {name: value for name, value in os.environ.items() if name not in OF_TESTS}
    assert archive_problem(archive, {**given, **local_environment(given)}) is None


@pytest.mark.only_deep
def test_jvm_takes_classes_from_the_archive_of_short_job(java: str, tmp_path: Path) -> None:
    given = {name: value for name, value in os.environ.items() if name not in OF_TESTS}
    environment = {**given, **local_environment(given)}
    said: list[str] = []
    made = make_archive(tmp_path / "spark.jsa", packaged_application("rehearse.py"), environment, report=said.append)
    assert made.classes > 1000
    assert [path.name for path in tmp_path.iterdir()] == ["spark.jsa"]
    assert said[-2:] == [
        "the job is done; archiving the classes that it loaded",
        "checking that a JVM loads classes from the archive",
    ]
    assert archive_problem(tmp_path / "spark.jsa", environment) is None
