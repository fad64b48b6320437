"""The benchmark of starting ends with its figures; what they are is not asserted, since they are timed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import start_up


@pytest.mark.integration
def test_it_measures_jobs_beside_bare_programs(java: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start_up.main(["--quick", "--archive", str(tmp_path / "none.jsa")])  # a job starts without it as well

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["benchmark"] == "start_up"
    assert figures["job, archive / bare"] > 0
