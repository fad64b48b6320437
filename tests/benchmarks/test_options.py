"""Each benchmark can be started, and explains its options."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
PROGRAMS = sorted(file.stem for file in FOLDER.glob("*.py") if "\ndef main(" in file.read_text())


def test_every_program_is_found() -> None:
    assert len(PROGRAMS) == 38


@pytest.mark.parametrize("program", PROGRAMS)
def test_benchmark_starts_and_explains_quick(
    program: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", [program, "--help"])
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"benchmarks.{program}").main()
    assert ended.value.code == 0
    assert "--quick" in capsys.readouterr().out
