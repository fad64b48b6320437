"""The command `spark-archive`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from airflow_provider_coordination.cli.app import application
from airflow_provider_coordination.cli.commands import CommandContext
from tests.support.java_home import ARCHIVING, make_java, program
from tests.support.spark_home import make_spark_home


@pytest.fixture
def context(tmp_path: Path) -> CommandContext:
    home = make_spark_home(tmp_path / "spark", "4.2.0")
    program(tmp_path / "spark-submit", ARCHIVING)
    given = {"SPARK_HOME": str(home), "JAVA_HOME": make_java(tmp_path / "java", "17.0.15"), "PATH": os.environ["PATH"]}
    return CommandContext(environment=given)


def test_output_shows_the_steps_and_the_usage(context: CommandContext, tmp_path: Path) -> None:
    arguments = ["spark-archive", f"{tmp_path}/spark.jsa", "--spark-submit", f"{tmp_path}/spark-submit"]
    result = CliRunner().invoke(application(), arguments, obj=context)
    assert result.exit_code == 0
    assert "running a short job: Java 17.0.15 in" in result.stderr
    assert "archiving the classes that it loaded" in result.stderr
    assert f"use it in jobs with spark_archive='{tmp_path}/spark.jsa'" in result.stdout


def test_script_gets_one_json_object(context: CommandContext, tmp_path: Path) -> None:
    arguments = ["spark-archive", f"{tmp_path}/spark.jsa", "--spark-submit", f"{tmp_path}/spark-submit", "--json"]
    [line] = CliRunner().invoke(application(), arguments, obj=context).stdout.splitlines()
    made = json.loads(line)
    assert (made["archive"], made["bytes"], made["classes"]) == (f"{tmp_path}/spark.jsa", 11, 1)


@pytest.mark.parametrize(
    ("submit", "exit_code", "error"),
    [("/nowhere/submit", 2, "cannot be run: No such file"), ("/bin/false", 1, "the job ended with exit code 1")],
)
def test_failure_is_one_line_with_the_documented_exit_code(
    context: CommandContext, tmp_path: Path, submit: str, exit_code: int, error: str
) -> None:
    arguments = ["spark-archive", f"{tmp_path}/spark.jsa", "--spark-submit", submit]
    result = CliRunner().invoke(application(), arguments, obj=context)
    assert result.exit_code == exit_code
    assert error in result.stderr.splitlines()[-1]
