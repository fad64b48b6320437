"""What Airflow is told about the provider is valid, and true."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from datetime import timedelta
from importlib.resources import files
from pathlib import Path

import jsonschema
import pytest

from airflow_provider_coordination.coordination.coordinator import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.get_provider_info import get_provider_info
from airflow_provider_coordination.hooks.coordination import FIELDS, CoordinationHook
from tests.airflow.conftest import REPOSITORY


def test_it_is_valid_by_airflows_schema() -> None:
    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_every_module_it_names_exists() -> None:
    info = get_provider_info()
    for kind in ("operators", "sensors", "triggers", "hooks"):
        for group in info[kind]:
            for module in group["python-modules"]:
                importlib.import_module(module)


def test_the_form_has_the_fields_that_the_hook_reads() -> None:
    (connection,) = get_provider_info()["connection-types"]
    assert tuple(connection["conn-fields"]) == FIELDS
    assert connection["connection-type"] == CoordinationHook.conn_type
    assert connection["hook-name"] == CoordinationHook.hook_name
    assert connection["conn-fields"]["store"]["schema"]["enum"] == ["sql", "dynamodb"]


@pytest.mark.parametrize(
    ("field", "default"),
    [("ownership_timeout", DEFAULT_OWNERSHIP_TIMEOUT), ("safety_margin", DEFAULT_SAFETY_MARGIN)],
)
def test_the_form_tells_the_defaults_of_times_as_they_are(field: str, default: timedelta) -> None:
    (connection,) = get_provider_info()["connection-types"]
    assert connection["conn-fields"][field]["description"].endswith(f" Default: {default.total_seconds():g}.")


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_airflow_discovers_it_and_shows_the_connection_form(tmp_path: Path) -> None:
    metadata = tmp_path / "airflow_provider_coordination-0.1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: airflow-provider-coordination\nVersion: 0.1.0\n")
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    (points,) = project["entry-points"]["apache_airflow_provider"].items()
    (metadata / "entry_points.txt").write_text(f"[apache_airflow_provider]\n{' = '.join(points)}\n")
    look = """if True:
        import json
        from airflow.providers_manager import ProvidersManager
        manager = ProvidersManager()
        print(json.dumps({
            "hook": manager.hooks["coordination"].hook_name,
            "class": manager.hooks["coordination"].hook_class_name,
            "fields": [name for name in manager.connection_form_widgets if "__coordination__" in name],
            "behaviour": manager.field_behaviours["coordination"]["hidden_fields"],
        }))"""
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    done = subprocess.run(
        [sys.executable, "-c", look],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "hook": "Coordination",
        "class": "airflow_provider_coordination.hooks.coordination.CoordinationHook",
        "fields": [f"extra__coordination__{field}" for field in FIELDS],
        "behaviour": ["host", "port", "schema"],
    }
