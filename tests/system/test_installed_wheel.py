"""The wheel installs into a fresh environment, as the README describes, and runs a job there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import REPOSITORY

ROOT = REPOSITORY / ".tools"
"""Beside uv's cache, as a rule, so that what it holds is linked and not copied."""
RUN = """
import sys
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.models.dagbundle import DagBundleModel
from airflow.utils.db import initdb
from airflow.utils.session import create_session

initdb()
with create_session() as session:
    session.merge(DagBundleModel(name="examples"))
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
sync_bag_to_db(bag, bundle_name="examples", bundle_version=None)
run = bag.dags["s3_ingestion"].test(run_conf={"path": sys.argv[2], "output_path": sys.argv[3]})
print("the run ended:", run.state)
"""


def _run(*command: str | Path, environment: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a command to its end; return its output, which an error shows whole."""
    done = subprocess.run(
        command, env=environment, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def _uv(*arguments: str | Path) -> None:
    """Run uv with the machine's certificates, as the bootstrap does."""
    uv = Path(sys.executable).with_name("uv")
    _run("sh", "-c", '. tools/certificates.sh && exec "$@"', "sh", uv, *arguments, cwd=REPOSITORY)


@pytest.fixture(scope="module")
def environment_bin(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An environment that holds the wheel with the extra `spark`, and the pinned versions of what it needs."""
    wheels = tmp_path_factory.mktemp("wheels")
    _run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", wheels, cwd=REPOSITORY)
    [wheel] = wheels.glob("*.whl")
    assert "airflow_provider_coordination/manual/operations.md" in zipfile.ZipFile(wheel).namelist()
    ROOT.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT, prefix="wheel-") as folder:
        environment = Path(folder, "env")
        _uv("venv", "--quiet", "--python", sys.executable, environment)
        pins = REPOSITORY / "requirements" / "base.txt"
        python = environment / "bin" / "python"
        install = ("pip", "install", "--quiet", "--python", python, "--constraint", pins, f"{wheel}[spark]")
        # As a rule uv's cache has it all since this environment was made. Behind an index that names no lifetime, an
        # install that asks the index unpacks and builds the sources of pyspark again, and uv keeps them all.
        try:
            _uv(*install, "--offline")
        except AssertionError:
            _uv(*install)
            _uv("cache", "prune", "--quiet")
        yield environment / "bin"


@pytest.fixture
def variables(environment_bin: Path, tmp_path: Path) -> dict[str, str]:
    """The variables of a shell in which somebody has entered the environment, and defined the connections."""
    spark = {"conn_type": "spark", "host": "local[1]", "extra": {"deploy-mode": "client"}}
    store = {"store": "sql", "url": f"sqlite:///{tmp_path}/coordination.db"}
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("AIRFLOW", "PYTEST", "PYSPARK", "SPARK_HOME", "PYTHONPATH", "VIRTUAL_ENV"))
    }
    return {
        **kept,
        "PATH": os.pathsep.join((str(environment_bin), os.environ["PATH"])),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(spark),
        "AIRFLOW_CONN_COORDINATION_DEFAULT": json.dumps({"conn_type": "coordination", "extra": store}),
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps({"conn_type": "aws", "extra": {"region_name": "eu-west-1"}}),
    }


def test_fresh_environment_passes_the_doctor_and_ingests_a_folder(
    environment_bin: Path, variables: dict[str, str], tmp_path: Path
) -> None:
    lake, events = tmp_path / "lake", tmp_path / "events"
    events.mkdir()
    for number in range(3):
        lines = (json.dumps({"id": 10 * number + each}) for each in range(10))
        (events / f"{number}.json").write_text("\n".join(lines))

    command = environment_bin / "airflow-coordination"
    _run(command, "init-store", environment=variables, cwd=tmp_path)
    found = _run(command, "doctor", "--output", lake, "--json", environment=variables, cwd=tmp_path)
    findings = [json.loads(line) for line in found.splitlines() if line.startswith("{")]
    assert [each for each in findings if each["status"] in ("error", "warning")] == []

    script = tmp_path / "run.py"
    script.write_text(RUN)
    dag = REPOSITORY / "dags" / "s3_ingestion.py"
    said = _run(environment_bin / "python", script, dag, events, lake, environment=variables, cwd=tmp_path)
    assert "the run ended: success" in said
    assert str(REPOSITORY / "airflow_provider_coordination") not in said
    delivered = Counter(
        json.loads(payload)["id"]
        for file in lake.glob("*.parquet")
        for payload in pq.read_table(file).column("data").to_pylist()
    )
    assert delivered == Counter(range(30))
