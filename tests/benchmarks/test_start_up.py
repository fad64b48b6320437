"""The benchmark of job starts runs and prints its results; the times are not asserted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import start_up


@pytest.mark.only_deep
@pytest.mark.integration
def test_benchmark_compares_jobs_with_bare_programs(
    java: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start_up.main(["--quick", "--archive", str(tmp_path / "none.jsa")])  # a job also starts without it

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["benchmark"] == "start_up"
    assert figures["job, archive / bare"] > 0
