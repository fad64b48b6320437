"""The benchmarks of deliveries run and print their results; counts are asserted, times are not."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REPOSITORY


def results_of(module: str) -> dict[str, Any]:
    """Run a benchmark in its own process, because other tests need another Spark session."""
    command = [sys.executable, "-m", module, "--quick"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.only_deep
@pytest.mark.integration
def test_last_line_is_json() -> None:
    figures = results_of("benchmarks.delivery")
    [with_transform] = figures["transform"].values()
    assert with_transform.keys() >= {"to one", "to plain Spark", "commit"}
    assert set(figures["as landed"]) == {"parquet, 400", "delta, 400", "iceberg, 400"}
    assert all(found["to pyarrow"] > 0 for found in figures["as landed"].values())
    assert all(found["files"] > 0 for found in figures["files"].values())
    assert figures["postgresql"]["to psql"] > 0


@pytest.mark.only_deep
@pytest.mark.integration
def test_rounds_run_concurrently_and_sequentially() -> None:
    assert results_of("benchmarks.side_by_side")["ratio"] > 0
