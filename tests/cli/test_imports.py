"""The import commands in the manual exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer.main

from airflow_provider_coordination.cli.app import application

MANUAL = Path(__file__).resolve().parents[2] / "docs" / "importing.md"
SHOWN = [
    shlex.split(command)
    for block in re.findall(r"^ *```sh\n(.*?)```", MANUAL.read_text(), re.MULTILINE | re.DOTALL)
    for command in block.replace("\\\n", " ").strip().splitlines()
]


@pytest.mark.parametrize("command", SHOWN, ids=lambda command: " ".join(command[:3]))
def test_every_command_of_the_manual_is_parsed(command: list[str]) -> None:
    name, group, which, *options = command
    commands: Any = typer.main.get_command(application())

    assert (name, group) == ("airflow-coordination", "import")
    commands.commands[group].commands[which].make_context(which, options)


def test_manual_shows_both_imports() -> None:
    assert {command[2] for command in SHOWN} == {"kcl", "data-prepper"}
