"""A stand-in for the home folder of a Spark version."""

from __future__ import annotations

from pathlib import Path


def make_spark_home(folder: Path, version: str) -> Path:
    """Make the folder; return it."""
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return folder
