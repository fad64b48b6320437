"""Prometheus itself accepts the alert rules, and they fire when they should."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from demo.local_kinesis import SERVERS_VARIABLE
from tests.conftest import REPOSITORY
from tests.support.servers import unavailable


@pytest.fixture
def promtool() -> str:
    """The program that comes with Prometheus: on `PATH`, or as `make servers` fetches it."""
    servers = Path(os.environ.get(SERVERS_VARIABLE) or REPOSITORY / ".venv" / "servers")
    found = shutil.which("promtool") or shutil.which(servers / "promtool" / "usr" / "bin" / "promtool")
    return found or unavailable("promtool", "it is neither on PATH nor fetched; run `make servers`")


def test_alerts_fire_as_their_cases_say(promtool: str) -> None:
    cases = Path(__file__).with_name("alerts.yaml")
    done = subprocess.run(
        [promtool, "test", "rules", cases], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
