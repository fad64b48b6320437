"""The archive of Spark's classes is validated before it is made and before a JVM uses it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.class_archive import (
    ArchiveError,
    ArchiveResult,
    archive_option,
    archive_problem,
    make_archive,
)
from tests.support.java_home import ARCHIVING, make_java, program
from tests.support.spark_home import make_spark_home

OLD, NEW = 1_700_000_000, 1_800_000_000


@dataclass
class Machine:
    """A machine with a Java, a Spark and a place for an archive."""

    folder: Path
    environment: dict[str, str]

    @property
    def archive(self) -> Path:
        return self.folder / "spark.jsa"

    @property
    def jar(self) -> Path:
        [jar] = Path(self.environment["SPARK_HOME"], "jars").iterdir()
        return jar

    def make(self, submit: str = ARCHIVING) -> ArchiveResult:
        """Make the archive with a spark-submit that is a script."""
        return make_archive(
            self.archive, "app.py", self.environment, spark_submit=program(self.folder / "submit", submit)
        )

    def has_archive(self, content: str) -> None:
        """Put an archive there that is newer than Spark."""
        self.archive.write_text(content)
        os.utime(self.jar, (OLD, OLD))
        os.utime(self.archive, (NEW, NEW))

    def left(self) -> list[str]:
        """Return what is left of archives that were not finished."""
        return [path.name for path in self.folder.iterdir() if path.name.endswith(".partial")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    home = make_spark_home(tmp_path / "spark", "4.2.0")
    java = make_java(tmp_path / "java", "17.0.15")
    return Machine(tmp_path, {"SPARK_HOME": str(home), "JAVA_HOME": java, "PATH": os.environ["PATH"]})


@pytest.fixture
def archived_machine(machine: Machine) -> Machine:
    """A machine with an archive that its JVM takes, as far as can be seen."""
    machine.has_archive(f"Server VM (17.0.15+6) for linux\n{machine.jar}\n")
    return machine


# Its path


@pytest.mark.parametrize("path", ["/opt/my spark.jsa", "spark.jsa", '/opt/"a".jsa', "/opt/a,b.jsa", "/opt/a\\b", ""])
def test_path_unfit_for_an_option_is_refused(path: str) -> None:
    with pytest.raises(ConfigurationError, match="give an absolute path without spaces"):
        archive_option(path)


# Making it


def test_archive_is_built_from_loaded_classes_and_checked(machine: Machine) -> None:
    assert machine.make() == ArchiveResult(bytes=11, classes=1)
    assert machine.archive.read_text() == "an archive\n"
    assert not machine.left()


@pytest.mark.parametrize(
    ("submit", "error"),
    [
        ("#!/bin/sh\necho no more heap\nexit 3\n", r"exit code 3 and left no archive; its last lines: no more heap"),
        ("#!/bin/sh\nexit 0\n", "exit code 0 and left no archive"),
        (ARCHIVING.replace("(top)", ""), "the JVM loaded no class from the archive"),
    ],
)
def test_failed_build_keeps_the_previous_archive(machine: Machine, submit: str, error: str) -> None:
    machine.archive.write_text("former")
    with pytest.raises(ArchiveError, match=error):
        machine.make(submit)
    assert machine.archive.read_text() == "former"
    assert not machine.left()


def a_folder(machine: Machine) -> None:
    machine.archive.mkdir()


def no_java(machine: Machine) -> None:
    machine.environment |= {"JAVA_HOME": "/nowhere"}


def old_java(machine: Machine) -> None:
    machine.environment |= {"JAVA_HOME": make_java(machine.folder / "old", "11.0.2")}


def open_j9(machine: Machine) -> None:
    machine.environment |= {"JAVA_HOME": make_java(machine.folder / "j9", "17.0.2", "Eclipse OpenJ9 VM")}


def files_in_configuration(machine: Machine) -> None:
    folder = Path(machine.environment["SPARK_HOME"], "conf")
    folder.mkdir()
    (folder / "spark-defaults.conf").touch()


@pytest.mark.parametrize(
    ("spoil", "error"),
    [
        (a_folder, r"spark\.jsa is a folder: give a file in it"),
        (no_java, r"JAVA_HOME is '/nowhere', where there is no bin/java: install Java 17"),
        (old_java, r"Java 11\.0\.2 in .* is too old for Spark 4: install Java 17"),
        (open_j9, r"is Eclipse OpenJ9 VM \(build\): only HotSpot"),
        (files_in_configuration, r"there are files in Spark's configuration folder .*: give the settings with"),
    ],
)
def test_invalid_setup_is_named_before_anything_runs(
    machine: Machine, spoil: Callable[[Machine], None], error: str
) -> None:
    spoil(machine)
    with pytest.raises(ConfigurationError, match=error):
        machine.make(f"#!/bin/sh\ntouch {machine.folder}/run\n")
    assert not (machine.folder / "run").exists()


def test_missing_folder_is_named(machine: Machine) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no folder /nowhere; create it, or give another path"):
        make_archive(Path("/nowhere/spark.jsa"), "app.py", machine.environment)


def test_missing_program_is_named(machine: Machine) -> None:
    with pytest.raises(ConfigurationError, match="/nowhere/submit cannot be run: No such file"):
        make_archive(machine.archive, "app.py", machine.environment, spark_submit="/nowhere/submit")


# Whether it fits


def test_archive_of_this_java_and_spark_is_accepted(archived_machine: Machine) -> None:
    assert archive_problem(archived_machine.archive, archived_machine.environment) is None


def newer_jars(machine: Machine) -> None:
    os.utime(machine.jar, (NEW + 1, NEW + 1))


def another_spark(machine: Machine) -> None:
    machine.environment["SPARK_HOME"] = str(make_spark_home(machine.folder / "other", "4.2.0"))


def another_java(machine: Machine) -> None:
    machine.environment["JAVA_HOME"] = make_java(machine.folder / "newer", "21.0.1")


def no_archive(machine: Machine) -> None:
    machine.archive.unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (no_archive, "there is no file"),
        (another_java, "was made by another Java than 21.0.1+6; run `airflow-coordination spark-archive"),
        (another_spark, "was made for another Spark than that in"),
        (newer_jars, "is older than the Spark in"),
        (files_in_configuration, "there are files in Spark's configuration folder"),
    ],
)
def test_reasons_to_ignore_the_archive_are_named(
    archived_machine: Machine, spoil: Callable[[Machine], None], reason: str
) -> None:
    spoil(archived_machine)
    found = archive_problem(archived_machine.archive, archived_machine.environment)
    assert found is not None
    assert reason in found
