"""A process imports the PySpark of its Spark installation, and of no other."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from airflow_provider_coordination.spark.worker_daemon import compiled_path, import_compiled_pyspark


def package(folder: Path) -> Path:
    """Make a folder in which a package `pyspark` is; return the package."""
    made = folder / "pyspark"
    made.mkdir(parents=True)
    (made / "__init__.py").touch()
    importlib.invalidate_caches()
    return made


def archive_of(spark_home: Path) -> str:
    return str(spark_home / "python" / "lib" / "pyspark.zip")


def test_installed_spark_imports_its_own_package(tmp_path: Path) -> None:
    home = package(tmp_path / "site-packages")
    path = ["/job.zip", archive_of(home), str(tmp_path / "site-packages")]
    assert compiled_path(path, home) == ["/job.zip", str(tmp_path / "site-packages")]


def test_unpacked_spark_replaces_its_archive_by_its_folder(tmp_path: Path) -> None:
    package(tmp_path / "spark" / "python")
    path = ["/job.zip", archive_of(tmp_path / "spark"), "/site-packages"]
    expected = ["/job.zip", str(tmp_path / "spark" / "python"), "/site-packages"]
    assert compiled_path(path, tmp_path / "spark") == expected


def test_other_pyspark_is_not_imported_instead_of_the_archive(tmp_path: Path) -> None:
    package(tmp_path / "site-packages")
    path = [archive_of(tmp_path / "spark"), str(tmp_path / "site-packages")]
    assert compiled_path(path, tmp_path / "spark") == path


def test_other_pyspark_is_not_imported_instead_of_the_installed_one(tmp_path: Path) -> None:
    home = package(tmp_path / "site-packages")
    package(tmp_path / "other")
    path = [archive_of(home), str(tmp_path / "other"), str(tmp_path / "site-packages")]
    assert compiled_path(path, home) == path


def test_irreplaceable_archive_stays(tmp_path: Path) -> None:
    assert compiled_path([archive_of(tmp_path)], tmp_path) == [archive_of(tmp_path)]


@pytest.mark.parametrize("is_imported", [True, False])
def test_path_is_restored_after_importing_pyspark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_imported: bool
) -> None:
    home = package(tmp_path / "site-packages")
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setattr(sys, "path", [archive_of(home), str(tmp_path / "site-packages"), *sys.path])
    if is_imported:
        monkeypatch.setitem(sys.modules, "pyspark", sys)
    else:
        monkeypatch.delitem(sys.modules, "pyspark", raising=False)
    import_compiled_pyspark()
    assert (archive_of(home) in sys.path) == is_imported
