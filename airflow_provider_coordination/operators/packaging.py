"""What a Spark application needs in addition to its settings: the program, the package and an environment."""

from __future__ import annotations

import io
import os
import py_compile
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import airflow_provider_coordination
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.versions import installed_spark

PACKAGE = Path(airflow_provider_coordination.__file__).parent
JOB_FOLDERS = ("coordination", "sources", "spark", "stores")
EARLIEST_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
END_TIMEOUT_SECONDS = 2.0


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
        f"application {name!r} is not installed beside {PACKAGE}; reinstall the package, or give 'application'"
    )


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


def job_processes(argument: str) -> list[Any]:
    """Return the processes on this machine that were started with an argument, and all their descendants.

    The Python process of a driver may outlive a killed `spark-submit`, and would continue to lease partitions.

    :param argument: an argument that only the processes of one job have, such as the path of their settings file.
    """
    import psutil  # type: ignore[import-untyped]

    processes: dict[int, Any] = {}
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and argument in process.cmdline():
                processes |= {related.pid: related for related in (process, *process.children(recursive=True))}
        except psutil.Error:  # the process has ended, or this user may not see it
            continue
    return list(processes.values())


def end_processes(processes: Iterable[Any]) -> None:
    """Kill processes, and wait briefly until they have ended.

    :param processes: processes as `job_processes` returns them; those that have ended are skipped.
    """
    import psutil

    processes = list(processes)
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    deadline = time.monotonic() + END_TIMEOUT_SECONDS
    while any(_runs(process) for process in processes) and time.monotonic() < deadline:
        time.sleep(0.02)


def _runs(process: Any) -> bool:
    # Not process.wait(): it would take the exit code away from the parent process.
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False
