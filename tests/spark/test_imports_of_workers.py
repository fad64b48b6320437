"""The imports of a job's Python workers stay few, since every process pays for them before its first record."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.waiting import PATIENCE_SECONDS

NEEDLESS = (
    "airflow",
    "alembic",
    "boto3",  # where a client is made, and nowhere else
    "deltalake",
    "fastapi",
    "opentelemetry",
    "pandas",
    "pyarrow.dataset",
    "pyiceberg",
    "pyspark",
    "rich",
    "sqlalchemy",
    "typer",
)


def imported_by(module: str) -> set[str]:
    """Return the modules that a new Python has once it has imported one."""
    program = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "module",
    [
        "airflow_provider_coordination.spark.kinesis.landing",
        "airflow_provider_coordination.spark.item_landing",
        "airflow_provider_coordination.spark.slots",
    ],
)
def test_landing_imports_only_what_it_needs(module: str) -> None:
    assert not imported_by(module) & set(NEEDLESS)


def test_driver_imports_only_kinds_of_its_job() -> None:
    assert not imported_by("airflow_provider_coordination.spark.application") & set(NEEDLESS)
