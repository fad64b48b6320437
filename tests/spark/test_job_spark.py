"""What a job's Spark gets by its master: settings, and the archives that Python workers import from."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_coordination.spark.job_spark import UNIX_SOCKETS, settings_on, worker_archives

ZIPPED = Path("/job/coordination.zip/airflow_provider_coordination")


@pytest.mark.parametrize(
    ("master", "py_files", "expected"),
    [
        ("local", "/job/coordination.zip", ["coordination.zip"]),
        ("local[2]", "file:/job/coordination.zip", ["coordination.zip"]),
        ("local[*,4]", "/a/mine.py,/a/mine.EGG,/job/coordination.zip", ["mine.EGG", "coordination.zip"]),
        ("local-cluster[2,1,1024]", "/job/coordination.zip", []),
        ("spark://there:7077", "/job/coordination.zip", []),
        ("yarn", "/job/coordination.zip", []),
        ("k8s://there", "/job/coordination.zip", []),
        ("local[2]", "/job/other.zip", []),
        ("local[2]", "", []),
        ("", "", []),
    ],
)
def test_worker_archives_are_found_from_the_start(master: str, py_files: str, expected: list[str]) -> None:
    assert worker_archives(master, py_files, ZIPPED) == expected


def test_installed_package_is_in_no_archive() -> None:
    assert worker_archives("local[2]", "/job/x.zip", Path("/site-packages/airflow_provider_coordination")) == []


@pytest.mark.parametrize(("master", "enabled"), [("local[2]", "true"), ("k8s://there", "true"), ("yarn", "false")])
def test_sockets_of_containers_on_yarn_have_no_path(master: str, enabled: str) -> None:
    assert settings_on(master)[UNIX_SOCKETS] == enabled
