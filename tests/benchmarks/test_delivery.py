"""The benchmark of deliveries runs and ends with its figures; times are not asserted, counts are."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY


@pytest.mark.integration
def test_it_ends_with_a_line_of_figures() -> None:
    """In a process of its own: other tests want another Spark session than it makes."""
    command = [sys.executable, "-m", "benchmarks.delivery", "--quick"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    figures = json.loads(done.stdout.splitlines()[-1])

    [with_transform] = figures["transform"].values()
    assert with_transform.keys() >= {"to one", "to plain Spark", "commit"}
    assert set(figures["as landed"]) == {"parquet, 400", "delta, 400", "iceberg, 400"}
    assert all(found["to pyarrow"] > 0 for found in figures["as landed"].values())
    assert all(found["files"] > 0 for found in figures["files"].values())
    assert figures["postgresql"]["to psql"] > 0
    assert figures["requests"]["all"] > 0
