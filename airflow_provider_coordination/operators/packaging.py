"""What a Spark application needs in addition to its settings: program, package, environment, JVM options."""

from __future__ import annotations

import io
import logging
import os
import py_compile
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import airflow_provider_coordination
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.class_archive import JVM_OPTIONS, archive_option, archive_problem
from airflow_provider_coordination.versions import installed_spark

if TYPE_CHECKING:  # commands use this module without Airflow
    from airflow_provider_coordination.operators.spark_hook import SubmissionTarget

PACKAGE = Path(airflow_provider_coordination.__file__).parent
JOB_FOLDERS = ("coordination", "sources", "spark", "stores")
CONTAINER_PROGRAM = "run_in_container.py"
EARLIEST_ZIP_DATE = (1980, 1, 1, 0, 0, 0)


def packaged_application(name: str) -> str:
    """Return the path of one of the applications that this package includes.

    :param name: the file name in `spark_apps`, inside the installed package or beside it in the repository.
    :raises ConfigurationError: if the file is in neither folder.
    """
    for folder in (PACKAGE, PACKAGE.parent):
        path = folder / "spark_apps" / name
        if path.is_file():
            return str(path)
    raise ConfigurationError(
        f"application {name!r} is not installed next to {PACKAGE}; reinstall the package, or give 'application'"
    )


def write_container_program(settings_file: Path, application: str) -> Path:
    """Replace a settings file by a program that brings the settings to the container of a driver, and to no other.

    :param settings_file: the job's settings; deleted.
    :param application: the path or URI of the job's program, which travels to the container as well.
    :returns: the path of the program that is submitted, which only its owner can read.
    """
    program = settings_file.with_suffix(".py")
    source = Path(packaged_application(CONTAINER_PROGRAM)).read_text(encoding="utf-8")
    call = f"run({Path(application).name!r}, {settings_file.read_text(encoding='utf-8')!r})"
    descriptor = os.open(program, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(f"{source}\n\n{call}\n")
    settings_file.unlink()
    return program


def write_package_archive(folder: Path, package: Path = PACKAGE) -> Path:
    """Zip this package's Python modules for `--py-files`; the same sources produce the same bytes.

    Every Python process of a job imports from the archive, and none stores bytecode there. So the archive also contains
    the modules that jobs import in compiled form. Another Python version, which cannot use the bytecode, finds the
    sources beside it.

    The archive contains all sources. A transform may be in the module of its DAG; a driver on Airflow's machine then
    imports operators, provider info and plugin from the archive.

    :param folder: the folder for the archive.
    :param package: the folder of the package.
    :returns: the path of the archive.
    """
    sources = tuple((module.relative_to(package), module.read_bytes()) for module in sorted(package.rglob("*.py")))
    archive = folder / f"{package.name}.zip"
    archive.write_bytes(_zipped(package.name, sources))
    return archive


@lru_cache(maxsize=1)  # one process may submit many jobs
def _zipped(package: str, sources: tuple[tuple[Path, bytes], ...]) -> bytes:
    """Return an archive of modules.

    :param package: the name of the package's folder.
    :param sources: the path of each module below that folder, and its content.
    """
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for module, source in sources:
            name = package / module
            _add(file, name, source)
            if _is_for_jobs(module):
                _add(file, name.with_suffix(".pyc"), _compiled(name, source))
    return written.getvalue()


def _add(file: zipfile.ZipFile, name: Path, content: bytes) -> None:
    entry = zipfile.ZipInfo(str(name), EARLIEST_ZIP_DATE)
    entry.external_attr = 0o644 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    file.writestr(entry, content)


def _is_for_jobs(module: Path) -> bool:
    return len(module.parts) == 1 or module.parts[0] in JOB_FOLDERS


def _compiled(name: Path, source: bytes) -> bytes:
    """Return the bytecode of a module for an archive, which has no modification times to compare.

    :param name: the file name that tracebacks show.
    """
    with tempfile.TemporaryDirectory(prefix="coordination-") as folder:
        module = Path(folder, name.name)
        module.write_bytes(source)
        py_compile.compile(
            str(module),
            cfile=f"{module}c",
            dfile=str(name),
            doraise=True,
            optimize=0,  # keeps asserts, even if this process runs without them
            invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
        )
        return Path(f"{module}c").read_bytes()


def local_environment(environment: Mapping[str, str], *, has_executors: bool = False) -> dict[str, str]:
    """Return the variables that a driver on this machine needs and that are not set yet.

    Without them the `spark-submit` of a virtual environment is not found, or it does not find Spark's files or
    the Python that has pyarrow.

    :param environment: the variables that are set already.
    :param has_executors: whether the job has executors in addition to the driver, on machines that may lack this
        Python.
    """
    scripts = str(Path(sys.executable).parent)
    wanted = {"PYSPARK_DRIVER_PYTHON": sys.executable}
    if not has_executors:
        wanted["PYSPARK_PYTHON"] = sys.executable
    spark_home = installed_spark()
    if spark_home:
        wanted["SPARK_HOME"] = spark_home
    path = environment.get("PATH", os.defpath)
    return {name: value for name, value in wanted.items() if not environment.get(name)} | {
        "PATH": os.pathsep.join((scripts, path))
    }


log = logging.getLogger(__name__)

# A driver loads ten thousand classes, and the JVM's optimizing compiler compiles each method that was called five
# thousand times: that takes a quarter of the processor time until the first record. With ten times as many calls it
# still compiles the methods that a heavy query keeps calling. -XX:TieredStopAtLevel=1, which disables that compiler,
# starts no sooner and slows transforms down; -XX:+UseSerialGC saves next to nothing at the start, and pauses large
# heaps.
LATE_OPTIMIZATION = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
LAUNCHER_VARIABLE = "SPARK_LAUNCHER_OPTS"
"""The variable with options for the JVM that builds the driver's command, then ends."""
LAUNCHER_OPTIONS = "-XX:TieredStopAtLevel=1"
"""That JVM runs for a third of a second, most of which the optimizing compiler takes."""
DEFAULT_OPTIONS = "spark.{}.defaultJavaOptions"
"""Spark puts these options before those of `extraJavaOptions`, which belong to the user."""


def driver_options(environment: Mapping[str, str], archive: str | None) -> dict[str, str]:
    """Return the variables with JVM options for a driver on this machine; options that are set already go last and win.

    :param environment: the environment variables of the job.
    :param archive: the archive of classes; it is left out, with a warning, if this machine's JVM would not use it.
    :raises ConfigurationError: if the archive's path cannot be part of an option.
    """
    options = [LATE_OPTIMIZATION]
    if archive is not None:
        option = archive_option(archive)
        if (reason := archive_problem(Path(archive), environment)) is None:
            options.append(option)
        else:
            log.warning("field 'spark_archive': the job starts without the archive: %s", reason)
    return {
        variable: f"{options_text} {environment.get(variable, '')}".strip()
        for variable, options_text in ((JVM_OPTIONS, " ".join(options)), (LAUNCHER_VARIABLE, LAUNCHER_OPTIONS))
    }


def conf_with_archive(conf: Mapping[Any, Any] | None, archive: str | None, target: SubmissionTarget) -> dict[Any, Any]:
    """Return Spark's configuration with an archive of classes for the JVMs on other machines.

    A JVM on a machine without the file, or that cannot use it, starts without it.

    :param conf: the configuration of the task; its options go last and win.
    :raises ConfigurationError: if the archive's path cannot be part of an option.
    """
    conf = dict(conf or {})
    if archive is None:
        return conf
    for process in (() if target.is_on_this_machine else ("driver",)) + (() if target.is_local else ("executor",)):
        name = DEFAULT_OPTIONS.format(process)
        conf[name] = f"{archive_option(archive)} {conf.get(name, '')}".strip()
    return conf
