"""The benchmarks of deliveries run and end with their figures; times are not asserted, counts are."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.conftest import REPOSITORY


def figures_of(module: str) -> dict[str, Any]:
    """Run a benchmark in a process of its own: other tests want another Spark session than it makes."""
    command = [sys.executable, "-m", module, "--quick"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.integration
def test_it_ends_with_a_line_of_figures() -> None:
    figures = figures_of("benchmarks.delivery")
    [with_transform] = figures["transform"].values()
    assert with_transform.keys() >= {"to one", "to plain Spark", "commit"}
    assert set(figures["as landed"]) == {"parquet, 400", "delta, 400", "iceberg, 400"}
    assert all(found["to pyarrow"] > 0 for found in figures["as landed"].values())
    assert all(found["files"] > 0 for found in figures["files"].values())
    assert figures["postgresql"]["to psql"] > 0


@pytest.mark.integration
def test_rounds_are_measured_side_by_side_and_one_after_the_other() -> None:
    assert figures_of("benchmarks.side_by_side")["ratio"] > 0
