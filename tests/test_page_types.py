"""The types of the HTTP API for the pages' JavaScript, and the downloaded linter."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tools import page_types

REPOSITORY = Path(__file__).resolve().parent.parent
PAGES = REPOSITORY / "airflow_provider_coordination" / "ui" / "static"


@pytest.fixture(scope="module")
def declarations() -> str:
    return page_types.declarations()


def test_api_model_becomes_an_interface(declarations: str) -> None:
    found = re.search(r"interface TransitionFacts \{(.*?)\}", declarations, re.DOTALL)
    assert found is not None
    fields = [line.strip() for line in found[1].strip().splitlines()]
    assert "kind: ChangeKind;" in fields
    assert "owner: Owner | null;" in fields
    assert "previous_status: PartitionStatus;" in fields
    assert '"failed"' in re.search(r"type ChangeKind = (.*);", declarations)[1]  # type: ignore[index]
    assert "alarms: (Alarm)[];" in declarations
    assert "counts: Record<string, number>;" in declarations


def test_api_types_named_by_pages_exist(declarations: str) -> None:
    named = {name for page in PAGES.glob("*.js") for name in re.findall(r"Api\.(\w+)", page.read_text())}
    assert "PartitionDetail" in named
    assert [name for name in sorted(named) if f"interface {name} " not in declarations] == []


@pytest.mark.parametrize(("ci", "code"), [("", 0), ("true", 1)])
def test_missing_npm_skips_the_check_and_fails_ci(ci: str, code: int, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "tools", tmp_path / "tools")
    tools = tmp_path / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("npm", "node"):
        (tools / name).write_text("#!/bin/sh\nexit 1\n")
        (tools / name).chmod(0o755)
    ended = subprocess.run(
        [tmp_path / "tools" / "lint_pages.sh"],
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == code
    assert "pages: npm could not download eslint@" in ended.stderr
    assert "the pages' JavaScript is not checked" in ended.stderr
