"""The provider's description for Airflow is valid and correct."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from datetime import timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from airflow.sdk import BaseHook, BaseOperator, task
from airflow.triggers.base import BaseTrigger

from airflow_provider_coordination import task_groups
from airflow_provider_coordination.get_provider_info import get_provider_info
from airflow_provider_coordination.hooks.configuration import SECTION, Configuration
from airflow_provider_coordination.hooks.coordination import COMMON_FIELDS, CoordinationHook
from airflow_provider_coordination.operators.spark_submit import CoordinatedSparkSubmitOperator
from airflow_provider_coordination.stores.kind import STORE_KINDS
from airflow_provider_coordination.supervisor.spec_keys import reads_classes, writes_classes
from tests.airflow.conftest import REPOSITORY
from tests.support.waiting import PATIENCE_SECONDS


def test_provider_info_is_valid_by_the_airflow_schema() -> None:
    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_every_named_module_exists() -> None:
    info = get_provider_info()
    for kind in ("operators", "sensors", "triggers", "hooks"):
        for group in info[kind]:
            for module in group["python-modules"]:
                importlib.import_module(module)


def test_every_task_link_is_named_and_its_operator_has_it() -> None:
    links = {
        f"{type(link).__module__}.{type(link).__name__}" for link in CoordinatedSparkSubmitOperator.operator_extra_links
    }
    assert links == set(get_provider_info()["extra-links"])


@pytest.mark.parametrize(
    ("kind", "base"),
    [("operators", BaseOperator), ("sensors", BaseOperator), ("triggers", BaseTrigger), ("hooks", BaseHook)],
)
def test_every_public_class_is_in_a_named_module(kind: str, base: type[Any]) -> None:
    named = {module for group in get_provider_info()[kind] for module in group["python-modules"]}
    assert named == {cls.__module__ for cls in classes(kind, base)}


def test_every_task_decorator_is_named() -> None:
    named = {each["name"]: each["class-name"].rpartition(".") for each in get_provider_info()["task-decorators"]}
    assert {module for module, _, _ in named.values()} == {
        cls.__module__ for cls in classes("decorators", BaseOperator)
    }
    for name, (module, _, function) in named.items():
        assert callable(getattr(importlib.import_module(module), function)), name
        assert callable(getattr(task, name))


def classes(kind: str, base: type[Any]) -> list[type[Any]]:
    """Return the public classes of a kind; what is abstract is for our own."""
    package = importlib.import_module(f"airflow_provider_coordination.{kind}")
    below = pkgutil.walk_packages(getattr(package, "__path__", ()), f"{package.__name__}.")
    modules = [package, *(importlib.import_module(found.name) for found in below)]
    return [
        value
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, base) and value.__module__ == module.__name__
        if not name.startswith("_") and not inspect.isabstract(value)
    ]


@pytest.mark.integration  # needs no server, but a whole process, and so seconds
def test_modules_import_without_warnings_or_heavy_dependencies() -> None:
    info = get_provider_info()
    names = [
        *(
            name
            for kind in ("operators", "sensors", "triggers", "hooks")
            for g in info[kind]
            for name in g["python-modules"]
        ),
        *(each["class-name"].rpartition(".")[0] for each in info["task-decorators"]),
        *(found.__module__ for found in (*reads_classes().values(), *writes_classes().values())),
        *(found.name for found in pkgutil.iter_modules(task_groups.__path__, f"{task_groups.__name__}.")),
    ]
    look = """if True:
        import importlib, sys, warnings
        from airflow.providers.apache.spark.operators import spark_submit
        from airflow.providers.standard.decorators import python
        from airflow.sdk import BaseHook, BaseOperator
        heavy = {"boto3", "pandas", "pyarrow", "pyspark"} - set(sys.modules)
        warnings.simplefilter("error")
        for name in sys.argv[1:]:
            importlib.import_module(name)
        print("heavy:", sorted(heavy & set(sys.modules)))
        import pkgutil, airflow_provider_coordination as whole
        for found in pkgutil.walk_packages(whole.__path__, f"{whole.__name__}."):
            importlib.import_module(found.name)"""
    done = subprocess.run(
        [sys.executable, "-c", look, *names],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []"


def test_form_has_the_fields_of_the_hook() -> None:
    (connection,) = get_provider_info()["connection-types"]
    kinds = [kind for kind in map(STORE_KINDS.load, STORE_KINDS.names()) if kind.is_shared]
    assert set(connection["conn-fields"]) == set(COMMON_FIELDS).union(*(kind.connection_fields for kind in kinds))
    assert connection["connection-type"] == CoordinationHook.conn_type
    assert connection["hook-name"] == CoordinationHook.hook_name
    assert connection["conn-fields"]["store"]["schema"]["examples"] == ["sql", "dynamodb"], (
        "and whatever else is registered"
    )


@pytest.mark.parametrize("field", ["ownership_timeout", "safety_margin", "max_attempts", "max_closed_count"])
def test_form_shows_the_actual_defaults(field: str) -> None:
    (connection,) = get_provider_info()["connection-types"]
    default = getattr(Configuration(), field)
    spelled = f"{default.total_seconds() if isinstance(default, timedelta) else default:g}"
    description = connection["conn-fields"][field]["description"]
    assert description.endswith(f" Default: [coordination] {field}, which is {spelled}.")


def test_every_form_field_has_a_description() -> None:
    (connection,) = get_provider_info()["connection-types"]
    fields = connection["conn-fields"]
    assert "store" in fields
    for name, field in fields.items():
        assert field["label"] and field["description"].endswith("."), name
        assert "type" in field["schema"] and "default" in field["schema"], name
        # Secrets belong into the password, which Airflow encrypts, or into an AWS connection.
        assert field["schema"].get("format") == "password" or not re.search("passw|secret|token|_key", name), name


def test_form_covers_every_setting(connect: Any) -> None:
    """A setting that is added to a store, or to the connection, and not to the form, is found here."""
    connect("keys", "aws", login="AKIA", password="s", extra={"aws_session_token": "t"})
    filled = {
        "dynamodb": {
            "table": "t", "region": "r", "prefix": "p", "ownership_timeout": 99, "safety_margin": 9, "max_attempts": 9,
            "max_closed_count": 9, "history_days": 9, "aws_conn_id": "keys", "endpoint_url": "http://h",
            "sts_role_arn": "arn:aws:iam::1:role/r", "sts_external_id": "e", "skip_table_creation": True, "ttl": 9,
            "provisioned_read_capacity_units": 9, "provisioned_write_capacity_units": 9,
            "point_in_time_recovery": True, "deletion_protection": True, "tags": {"a": "b"},
        },
        "sql": {"url": "sqlite:////x.db"},
    }  # fmt: skip
    (form,) = get_provider_info()["connection-types"]
    assert {"store"}.union(*filled.values()) == set(form["conn-fields"]), "every field of the form is filled in"
    unset = None
    for store, given in filled.items():
        connect("c", "coordination", extra={"store": store, **given})
        settings = CoordinationHook("c").settings
        names = (names_of_defaults(settings) | names_of_defaults(settings.store.own, "store.")) - NOT_OF_THE_FORM
        unset = names if unset is None else unset & names
    assert unset == {"retry_policy.first_delay", "retry_policy.max_delay"}, "which docs/limits.md names"


NOT_OF_THE_FORM = {"store.kind", "store.implementation", "store.aws.max_attempts"}


def names_of_defaults(settings: Any, prefix: str = "") -> set[str]:
    """Return the fields of a settings dataclass, and of those in it, that have their default."""
    found: set[str] = set()
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            found |= names_of_defaults(value, f"{prefix}{field.name}.")
        elif value == (field.default_factory() if callable(field.default_factory) else field.default):
            found.add(prefix + field.name)
    return found


def test_configuration_has_the_options_with_their_defaults() -> None:
    section = get_provider_info()["config"][SECTION]
    described = {name: option["default"] for name, option in section["options"].items()}
    actual = {field.name: getattr(Configuration(), field.name) for field in dataclasses.fields(Configuration)}
    assert described == {
        name: f"{value.total_seconds():g}"
        if isinstance(value, timedelta)
        else str(value)
        if isinstance(value, bool)
        else f"{value:g}"
        for name, value in actual.items()
    }


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
def test_airflow_discovers_the_provider_and_its_form(tmp_path: Path) -> None:
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
            "options": list(dict(manager.provider_configs)[manager.hooks["coordination"].package_name]
                ["coordination"]["options"]),
        }))"""
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    done = subprocess.run(
        [sys.executable, "-c", look],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    (form,) = get_provider_info()["connection-types"]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "hook": "Coordination",
        "class": "airflow_provider_coordination.hooks.coordination.CoordinationHook",
        "fields": [f"extra__coordination__{field}" for field in form["conn-fields"]],
        "behaviour": ["host", "port", "schema"],
        "options": [field.name for field in dataclasses.fields(Configuration)],
    }
