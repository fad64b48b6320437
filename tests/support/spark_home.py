"""The home folder of another Spark version: a stand-in, and the real one that a run installs."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from airflow_provider_coordination.versions import TESTED_SPARKS
from tests.support.seed import seeded
from tests.support.servers import unavailable
from tests.support.table_readers import servers
from tools.matrix import installation_of


def make_spark_home(folder: Path, version: str) -> Path:
    """Make the folder; return it."""
    (folder / "jars").mkdir(parents=True)
    (folder / "jars" / f"spark-core_2.13-{version}.jar").touch()
    return folder


def todays_spark() -> tuple[str, Path]:
    """Return a minor version that is not the tests' own, by the seed of the run, and the folder of its pyspark."""
    own = tuple(int(part) for part in version("pyspark").split(".")[:2])
    minor = ".".join(map(str, seeded("todays spark").choice([each for each in TESTED_SPARKS if each != own])))
    folder = servers() / f"pyspark-{minor}"
    if not (folder / "complete").exists():
        shutil.rmtree(folder, ignore_errors=True)
        done = subprocess.run(installation_of(minor, folder), capture_output=True, text=True, check=False)
        if done.returncode:
            unavailable(f"Spark {minor}", done.stderr)
        (folder / "complete").touch()
    return minor, folder
