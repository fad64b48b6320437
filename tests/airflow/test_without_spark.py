"""The Airflow side imports, and DAGs parse, without pyspark and pyarrow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.airflow.test_examples import READ_BY_OTHERS
from tests.conftest import REPOSITORY

IMPORT = """
import importlib, pkgutil, sys

REFUSED = ("pyarrow", "pyspark")

class Refusing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())
"""
EVERY_MODULE = """
import airflow_provider_coordination as package

for folder in sys.argv[1:]:
    found = importlib.import_module(f"{package.__name__}.{folder}")
    print(found.__name__)
    for module in pkgutil.walk_packages(getattr(found, "__path__", ()), found.__name__ + "."):
        importlib.import_module(module.name)
        print(module.name)
"""
EVERY_DAG = """
from tests.support.airflow_dags import DagBag

bag = DagBag(sys.argv[1])
for file, error in bag.import_errors.items():
    sys.exit(f"{file}: {error}")
print("\\n".join(bag.dag_ids))
"""


def _run(tmp_path: Path, script: str, *arguments: str) -> list[str]:
    """Run a script where Spark and Arrow cannot be imported; return the lines that it printed."""
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(REPOSITORY / "dags"))),
    }
    command = [sys.executable, "-c", IMPORT + script, *arguments]
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_airflow_module_imports_without_spark(tmp_path: Path) -> None:
    folders = ("cli", "decorators", "hooks", "links", "operators", "sensors", "task_groups", "triggers", "ui")
    printed = _run(tmp_path, EVERY_MODULE, *folders)
    imported = [line for line in printed if line.startswith("airflow_provider_coordination.")]
    assert {name.split(".")[1] for name in imported} == set(folders)


def test_every_example_parses(tmp_path: Path) -> None:
    examples = [file.stem for file in (REPOSITORY / "dags").glob("*.py") if file.stem not in READ_BY_OTHERS]
    assert set(examples) <= {line.strip() for line in _run(tmp_path, EVERY_DAG, str(REPOSITORY / "dags"))}


def test_module_that_needs_spark_is_detected(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="No module named 'pyarrow'"):
        _run(tmp_path, "import airflow_provider_coordination.spark.application")
