"""The wheel under one Airflow: its modules, the example DAGs, the provider and the plugin.

`make test-matrix` runs this in the environment of each Airflow, where the package is the wheel's.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import airflow_provider_coordination
from tests.conftest import REPOSITORY
from tests.support.airflow_dags import DagBag

PACKAGE = "airflow-provider-coordination"


def airflow(*arguments: str) -> Any:
    """Run a command of Airflow; return its output as JSON, which has no warning beside it."""
    command = [str(Path(sys.executable).with_name("airflow")), *arguments, "--output", "json"]
    # Airflow 3.3.0 itself uses what Python 3.14 deprecates.
    environment = {**os.environ, "PYTHONWARNINGS": "ignore::PendingDeprecationWarning"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "warning" not in done.stderr.lower() + done.stdout.lower(), done.stderr + done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def test_every_module_of_the_wheel_imports() -> None:
    assert not Path(airflow_provider_coordination.__file__).is_relative_to(REPOSITORY / "airflow_provider_coordination")
    found = pkgutil.walk_packages(airflow_provider_coordination.__path__, "airflow_provider_coordination.")
    names = [each.name for each in found]
    failed = {}
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            failed[name] = repr(error)
    assert len(names) > 300
    assert failed == {}


def test_every_example_dag_parses() -> None:
    bag = DagBag(str(REPOSITORY / "dags"))
    assert bag.import_errors == {}
    assert len(bag.dags) >= len(list((REPOSITORY / "dags").glob("*_ingestion.py")))


def test_provider_is_listed_without_warnings() -> None:
    [version] = [each["version"] for each in airflow("providers", "list") if each["package_name"] == PACKAGE]
    assert version == airflow_provider_coordination.__version__
    [plugin] = [each for each in airflow("plugins") if each["name"] == "coordination"]
    assert plugin["source"].startswith(PACKAGE)
