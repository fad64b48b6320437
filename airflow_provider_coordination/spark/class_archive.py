"""The archive of the classes that a Spark job loads: a JVM that maps it starts in about half the time.

In Java it is called a dynamic archive of class-data sharing (AppCDS). It is valid for one Java, the jars of one Spark,
and their path; a JVM that finds any of them changed starts without it. So it is made on the machine, or in the image,
where the jobs run.
"""

from __future__ import annotations

import mmap
import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.versions import (
    INSTALL_SPARK,
    JAVA_REMEDY,
    find_installation,
    find_java,
    runtime_version,
)

JVM_OPTIONS = "SPARK_SUBMIT_OPTS"
"""The variable with options for the JVM of spark-submit, which is also the driver's JVM if it is on this machine."""
PLAIN_PATH = re.compile(r"/[^\s\"'\\,]+")
"""A path that can be part of a JVM option: several scripts split options at spaces and quotes."""
SHOWN_LINES = 5
LOAD_TIMEOUT_SECONDS = 120


class ArchiveError(CoordinationError):
    """The archive could not be made."""


@dataclass(frozen=True)
class ArchiveResult:
    """A new archive, from which a JVM has loaded classes.

    :param bytes: its size.
    :param classes: the number of classes that a nearly idle JVM loaded from it.
    """

    bytes: int
    classes: int


def archive_option(archive: str) -> str:
    """Return the option with which a JVM maps an archive if it is valid for it, and otherwise starts without it.

    :raises ConfigurationError: if the path cannot be part of an option.
    """
    if PLAIN_PATH.fullmatch(archive) is None:
        raise ConfigurationError(
            f"path {archive!r} of the class archive becomes part of a JVM option: give an absolute path without "
            "spaces, quotes, commas and backslashes"
        )
    return f"-Xshare:auto -XX:SharedArchiveFile={archive}"


def archive_problem(archive: Path, environment: Mapping[str, str]) -> str | None:
    """Return why a JVM of this machine would start without the archive, and what to do; None if no reason is found.

    Only the JVM itself decides, and it reports nothing. This function checks what is visible without starting one.

    :param environment: the environment variables with which jobs are started.
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
        return f"{archive} cannot be read: {error.strerror}; allow the user who runs the jobs to read it"
    if java is not None and f"({java})".encode() not in head:
        return f"{archive} was made by another Java than {java}; {again}"
    return None


def _other_spark(archive: Path, spark_home: Path) -> str | None:
    """Return the reason if an archive was made for other jars than those of a Spark; None if no reason is found.

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
    """Return the folder of Spark's configuration if there are files in it: it is the first entry of the class path."""
    folder = Path(environment.get("SPARK_CONF_DIR") or Path(spark_home, "conf"))
    return folder if folder.is_dir() and any(folder.iterdir()) else None


def _blocked_by(configuration: Path) -> str:
    return (
        f"there are files in Spark's configuration folder {configuration}, which is on the class path, and a JVM "
        "archives no classes if a folder with files is on it: give the settings with the operator's `conf` or "
        "`properties_file`, and let SPARK_CONF_DIR name an empty folder"
    )


def make_archive(
    archive: Path,
    application: str,
    environment: Mapping[str, str],
    *,
    spark_submit: str = "spark-submit",
    report: Callable[[str], None] = lambda text: None,
) -> ArchiveResult:
    """Run a short job like real ones, archive the classes that it loaded, and check that a JVM loads them.

    An existing archive is replaced at the end, in one step; until then it stays unchanged.

    :param archive: the path of the archive.
    :param application: the job; see `rehearse`.
    :param environment: the environment variables with which jobs are started.
    :param spark_submit: the program that submits jobs.
    :param report: called with the progress, as text for the user.
    :raises ConfigurationError: if no Java or Spark can make the archive, or it cannot be written to its path.
    :raises ArchiveError: if the job failed, or a JVM does not load classes from the archive.
    """
    archive = archive.absolute()
    archive_option(str(archive))
    _check_folder(archive)
    _check_installation(environment, report)
    partial = archive.with_name(f".{archive.name}.{secrets.token_hex(4)}.partial")
    try:
        _rehearse(partial, [spark_submit, "--master", "local[2]", application], environment, report)
        report("checking that a JVM loads classes from the archive")
        classes = _classes_taken(partial, [spark_submit, "--version"], environment)
        if not classes:
            raise ArchiveError(f"the JVM loaded no class from the archive that it just made; {JAVA_REMEDY}")
        partial.replace(archive)
    finally:
        with suppress(FileNotFoundError):
            partial.unlink()
    return ArchiveResult(archive.stat().st_size, classes)


def _check_folder(archive: Path) -> None:
    if archive.is_dir():
        raise ConfigurationError(f"path {archive} is a folder: give a file in it, such as {archive / 'spark.jsa'}")
    if not archive.parent.is_dir():
        raise ConfigurationError(
            f"path {archive}: there is no folder {archive.parent}; create it, or give another path"
        )
    if not os.access(archive.parent, os.W_OK | os.X_OK):
        raise ConfigurationError(f"path {archive}: you cannot write to {archive.parent}; give another path")


def _check_installation(environment: Mapping[str, str], report: Callable[[str], None]) -> None:
    installation = find_installation(environment)
    try:
        java = find_java(environment, installation.spark)
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}: {JAVA_REMEDY}") from None
    if "OpenJ9" in java.machine:
        raise ConfigurationError(
            f"{java.path} is {java.machine}: only HotSpot, the JVM of OpenJDK, makes such archives"
        )
    if installation.spark_home is None:
        raise ConfigurationError(f"there is no Spark on this machine: set SPARK_HOME, or {INSTALL_SPARK}")
    if (configuration := _configuration_folder(environment, installation.spark_home)) is not None:
        raise ConfigurationError(_blocked_by(configuration))
    report(f"running a short job: Java {java.version} in {java.path}, Spark in {installation.spark_home}")


def _rehearse(partial: Path, command: list[str], environment: Mapping[str, str], report: Callable[[str], None]) -> None:
    """Run the job with a JVM that writes the archive at its end."""
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
                elif line.strip() and "][warning][cds" not in line:  # hundreds, one for each class that is left out
                    last.append(line.strip())
    except OSError as error:
        raise ConfigurationError(f"{command[0]} cannot be run: {error.strerror}; set SPARK_HOME and PATH") from None
    if process.returncode != 0 or not partial.is_file():
        raise ArchiveError(
            f"the job ended with exit code {process.returncode} and left no archive; its last lines: {' | '.join(last)}"
        )


def _classes_taken(partial: Path, command: list[str], environment: Mapping[str, str]) -> int:
    """Return the number of classes that a nearly idle JVM loads from an archive."""
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
    """Return an environment with more options for the JVM; an option for another archive is removed."""
    present = environment.get(JVM_OPTIONS, "")
    return {**environment, JVM_OPTIONS: f"{re.sub(r'-XX:SharedArchiveFile=[^ ]+', '', present)} {options}".strip()}


REHEARSED = "coordination-rehearsed"
"""The line that the job prints once it has done everything."""


@dataclass(frozen=True)
class RehearsedRow:
    """The row that a slot returns.

    :param slot: its number.
    """

    slot: int


def rehearse() -> int:
    """Land, read, transform and write, as jobs do; return the exit code."""
    from airflow_provider_coordination.spark.job_spark import JobSpark
    from airflow_provider_coordination.spark.slots import land_in_slots
    from airflow_provider_coordination.spark.worker_daemon import import_compiled_pyspark

    import_compiled_pyspark()
    job_spark = JobSpark("rehearsal")
    try:
        rows = land_in_slots(job_spark.context, [[0], [1]], _land, RehearsedRow)
        assert [row.slot for row in rows] == [0, 1]
        spark = job_spark.session
        with tempfile.TemporaryDirectory(prefix="coordination-") as folder:
            written = str(Path(folder, "written"))
            spark.range(0, 1000, 1, 2).mapInArrow(_same, "id long").write.parquet(written)
            read = spark.read.parquet(written).selectExpr("id % 7 AS key", "cast(id AS string) AS text")
            read.groupBy("key").count().orderBy("key").collect()
            parsed = read.selectExpr("from_json(concat('{\"a\":', text, '}'), 'a long') AS row").where("row.a > 3")
            parsed.write.mode("append").parquet(str(Path(folder, "parsed")))
            parsed.createOrReplaceTempView("parsed")
            spark.sql("SELECT count(DISTINCT row.a) FROM parsed").collect()
    finally:
        job_spark.stop()
    sys.stdout.write(f"{REHEARSED}\n")
    sys.stdout.flush()
    return 0


def _land(slots: Iterable[int]) -> list[RehearsedRow]:
    return [RehearsedRow(slot) for slot in slots]


def _same(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches
