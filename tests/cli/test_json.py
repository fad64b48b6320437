"""Commands about specs and supervisors print only JSON for scripts, whatever Airflow prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from airflow_provider_coordination.cli.app import application
from tests.cli.conftest import Clicks, Shell
from tests.cli.test_access import run
from tests.cli.test_supervisor import SPEC, WHY

COMMANDS: dict[str, tuple[str, ...]] = {
    "plan": ("SPEC", "--partitions", "2", "--retention-hours", "24", "--mb-per-second", "1"),
    "spec check": ("SPEC", "--connect"),
    "spec print": ("SPEC",),
    "spec schema": (),
    "spec from-druid": ("DRUID", "--lake", "/lake"),
    "supervisor submit": ("SPEC",),
    "supervisor list": (),
    "supervisor status": ("clicks",),
    "supervisor health": ("clicks",),
    "supervisor stats": ("clicks",),
    "supervisor parse-errors": ("clicks",),
    "supervisor spec": ("clicks",),
    "supervisor history": ("clicks",),
    "supervisor suspend": ("clicks", *WHY, "--yes"),
    "supervisor resume": ("--all",),
    "supervisor reset": ("clicks", "--yes"),
    "supervisor handover": ("clicks",),
    "supervisor terminate": ("clicks", *WHY, "--yes"),
}
TALKATIVE = """
    import sys

    class Talkative:
        def find_spec(self, name, path=None, target=None):
            if name == "airflow.sdk":
                print("Airflow is imported for the first time")

    sys.meta_path.insert(0, Talkative())
"""
OF_DRUID: dict[str, Any] = {
    "type": "kinesis",
    "spec": {
        "dataSchema": {"dataSource": "clicks", "timestampSpec": {"column": "at"}, "dimensionsSpec": {"dimensions": []}},
        "ioConfig": {"stream": "clicks", "inputFormat": {"type": "json"}},
    },
}


def test_every_command_is_listed_here() -> None:
    app: Any = typer.main.get_command(application())
    groups = {name: app.commands[name] for name in ("spec", "supervisor")}
    of_groups = {f"{name} {each}" for name, group in groups.items() for each in group.commands}
    assert {"plan", *of_groups} == set(COMMANDS)


@pytest.mark.integration  # needs no server, but whole processes, and so seconds
@pytest.mark.share(0.25)
@pytest.mark.parametrize("command", COMMANDS)
def test_standard_output_is_json(command: str, shell: Shell, clicks: Clicks, store_url: str, tmp_path: Path) -> None:
    clicks.waiting("p")
    files = {"SPEC": tmp_path / "clicks.json", "DRUID": tmp_path / "druid.json"}
    files["SPEC"].write_text(json.dumps(SPEC))
    files["DRUID"].write_text(json.dumps(OF_DRUID))
    assert shell("supervisor", "submit", str(files["SPEC"])).exit_code == 0
    arguments = [str(files.get(each, each)) for each in COMMANDS[command]]
    options = {"spec schema": []}.get(command, ["--json"])
    store = ["--store", store_url] if command.startswith("supervisor") else []
    home = {"AIRFLOW_HOME": str(tmp_path / "airflow")}
    ended = run(*command.split(), *arguments, *options, *store, environment=home, before=TALKATIVE)
    assert ended.returncode == 0, ended.stderr
    if command == "spec schema":
        assert json.loads(ended.stdout)["type"] == "object"
    for line in [] if command == "spec schema" else ended.stdout.splitlines():
        assert isinstance(json.loads(line), dict)
