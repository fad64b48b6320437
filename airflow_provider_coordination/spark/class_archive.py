"""The archive of the classes that a Spark job loads: a JVM that maps it begins in about half the time.

Java calls it a dynamic archive of class-data sharing (AppCDS). It belongs to one Java, to the jars of one Spark and to
the path that they have; a JVM that finds any of them changed starts without it. So it is made on the machine, or in the
image, where the jobs run.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.java import JAVA_REMEDY, find_java, runtime_version
from airflow_provider_coordination.spark.rehearsal import REHEARSED
from airflow_provider_coordination.versions import INSTALL_SPARK, find_installation

JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with options of the JVM that spark-submit is, which with a driver on this machine is the driver's."""
PLAIN_PATH = re.compile(r"/[^\s\"'\\,]+")
"""A path that is part of an option of a JVM, which many hands split at spaces and quotes."""
SHOWN_LINES = 5
LOAD_TIMEOUT_SECONDS = 120


class ArchiveError(CoordinationError):
    """The archive could not be made."""


@dataclass(frozen=True)
class Made:
    """An archive that was made, and that a JVM has loaded classes from.

    :param bytes: its size.
    :param classes: how many classes a JVM took from it that did next to nothing.
    """

    bytes: int
    classes: int


def archive_option(archive: str) -> str:
    """Return the option with which a JVM maps an archive, if it is its own, and starts without it otherwise.

    :raises ConfigurationError: if the path cannot be part of an option.
    """
    if PLAIN_PATH.fullmatch(archive) is None:
        raise ConfigurationError(
            f"path {archive!r} of the class archive becomes part of an option of the JVM: give an absolute one without "
            "spaces, quotes, commas and backslashes"
        )
    return f"-Xshare:auto -XX:SharedArchiveFile={archive}"


def misfit(archive: Path, environment: Mapping[str, str]) -> str | None:
    """Return why a JVM of this machine would start without the archive, and what to do; None if nothing speaks for it.

    The JVM itself is the judge, and says nothing. This looks at what can be seen without starting it.

    :param environment: the variables with which jobs are started.
    """
    again = f"run `airflow-coordination spark-archive {archive}` again"
    if not archive.is_file():
        return f"there is no file {archive} on this machine: run `airflow-coordination spark-archive {archive}`"
    spark_home = find_installation(environment).spark_home
    try:
        if spark_home is not None:
            if (configuration := _configuration_folder(environment, spark_home)) is not None:
                return _blocked_by(configuration)
            if reason := _other_spark(archive, Path(spark_home)):
                return f"{reason}; {again}"
        java = runtime_version(environment)
        with archive.open("rb") as file:
            head = file.read(4096)
    except OSError as error:
        return f"{archive} cannot be read: {error.strerror}; let the user read it who runs the jobs"
    if java is not None and f"({java})".encode() not in head:
        return f"{archive} was made by another Java than {java}; {again}"
    return None


def _other_spark(archive: Path, spark_home: Path) -> str | None:
    """Return what speaks for an archive of other jars than those of a Spark; None if nothing does.

    The archive names each jar by its path, and a JVM compares the jar's time and size.
    """
    jars = sorted(spark_home.glob("jars/spark-core_*.jar"))
    if not jars:
        return None
    with archive.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        if content.find(str(jars[0]).encode()) < 0:
            return f"{archive} was made for another Spark than that in {spark_home}"
    if jars[0].stat().st_mtime > archive.stat().st_mtime:
        return f"{archive} is older than the Spark in {spark_home}"
    return None


def _configuration_folder(environment: Mapping[str, str], spark_home: str) -> Path | None:
    """Return the folder of Spark's configuration if there are files in it: it is the first place of the class path."""
    folder = Path(environment.get("SPARK_CONF_DIR") or Path(spark_home, "conf"))
    return folder if folder.is_dir() and any(folder.iterdir()) else None


def _blocked_by(configuration: Path) -> str:
    return (
        f"there are files in Spark's configuration folder {configuration}, which is on the class path, and a JVM "
        "archives no classes beside a folder with files: give the settings by the operator's `conf` or its "
        "`properties_file`, and let SPARK_CONF_DIR name an empty folder"
    )


def make_archive(
    archive: Path,
    application: str,
    environment: Mapping[str, str],
    *,
    spark_submit: str = "spark-submit",
    report: Callable[[str], None] = lambda text: None,
) -> Made:
    """Run a short job that does what jobs do, archive the classes that it loaded, and check that a JVM takes them.

    An archive that is there already is replaced at the end, in one step; until then it stays as it is.

    :param archive: where it goes.
    :param application: the job; see `spark.rehearsal`.
    :param environment: the variables with which jobs are started.
    :param spark_submit: the program that jobs are submitted with.
    :param report: called with what goes on, for a person who waits.
    :raises ConfigurationError: if there is no Java or Spark that could make it, or it cannot be written there.
    :raises ArchiveError: if the job failed, or a JVM does not take the archive.
    """
    archive = archive.absolute()
    archive_option(str(archive))
    _check_folder(archive)
    _check_installation(environment, report)
    partial = archive.with_name(f".{archive.name}.{secrets.token_hex(4)}.partial")
    try:
        _rehearse(partial, [spark_submit, "--master", "local[2]", application], environment, report)
        report("checking that a JVM takes the archive")
        classes = _classes_taken(partial, [spark_submit, "--version"], environment)
        if not classes:
            raise ArchiveError(f"the JVM took no class from the archive it made just now; {JAVA_REMEDY}")
        partial.replace(archive)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
    return Made(archive.stat().st_size, classes)


def _check_folder(archive: Path) -> None:
    if archive.is_dir():
        raise ConfigurationError(f"path {archive} is a folder: name a file in it, such as {archive / 'spark.jsa'}")
    if not archive.parent.is_dir():
        raise ConfigurationError(f"path {archive}: there is no folder {archive.parent}; make it, or give another path")
    if not os.access(archive.parent, os.W_OK | os.X_OK):
        raise ConfigurationError(f"path {archive}: you cannot write to {archive.parent}; give another path")


def _check_installation(environment: Mapping[str, str], report: Callable[[str], None]) -> None:
    try:
        java = find_java(environment)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}: {JAVA_REMEDY}") from None
    if "OpenJ9" in java.machine:
        raise ConfigurationError(
            f"{java.path} is {java.machine}: only HotSpot, the JVM of OpenJDK, makes such archives"
        )
    installation = find_installation(environment)
    if installation.spark_home is None:
        raise ConfigurationError(f"there is no Spark on this machine: set SPARK_HOME, or {INSTALL_SPARK}")
    if (configuration := _configuration_folder(environment, installation.spark_home)) is not None:
        raise ConfigurationError(_blocked_by(configuration))
    report(f"running a short job: Java {java.version} in {java.path}, Spark in {installation.spark_home}")


def _rehearse(partial: Path, command: list[str], environment: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Run the job with a JVM that leaves the archive at its end."""
    last: deque[str] = deque(maxlen=SHOWN_LINES)
    try:
        with subprocess.Popen(
            command,
            env=_with_jvm_options(environment, f"-XX:ArchiveClassesAtExit={partial}"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.strip() == REHEARSED:
                    report("the job is done; archiving the classes that it loaded")
                elif line.strip() and "][warning][cds" not in line:  # hundreds, one for each class that it leaves out
                    last.append(line.strip())
    except OSError as error:
        raise ConfigurationError(f"{command[0]} cannot be run: {error.strerror}; set SPARK_HOME and PATH") from None
    if process.returncode != 0 or not partial.is_file():
        raise ArchiveError(
            f"the job ended with exit code {process.returncode} and left no archive; its last lines: {' | '.join(last)}"
        )


def _classes_taken(partial: Path, command: list[str], environment: Mapping[str, str]) -> int:
    """Return how many classes a JVM takes from an archive while it does next to nothing."""
    with tempfile.NamedTemporaryFile(prefix="coordination-classes-") as loaded:
        options = f"{archive_option(str(partial))} -Xlog:class+load:file={loaded.name}"
        try:
            subprocess.run(
                command,
                env=_with_jvm_options(environment, options),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LOAD_TIMEOUT_SECONDS,
                check=True,
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise ArchiveError(f"the archive could not be checked: {error}") from None
        return Path(loaded.name).read_text(errors="replace").count("shared objects file (top)")


def _with_jvm_options(environment: Mapping[str, str], options: str) -> dict[str, str]:
    """Return an environment with more options for the JVM; another archive in it is left out."""
    given = environment.get(JVM_OPTIONS, "")
    return {**environment, JVM_OPTIONS: f"{re.sub(r'-XX:SharedArchiveFile=[^ ]+', '', given)} {options}".strip()}
