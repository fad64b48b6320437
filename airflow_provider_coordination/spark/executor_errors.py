"""What executors lack: Python, room on a disk, the way to the driver. No batch is to blame, and the job ends.

Spark reports such an error as a trace of the JVM or of a Python worker. What Python lacks does not appear by itself, so
that a job which meets that ends with a configuration error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_coordination import __version__
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.error_texts import raised_in_python

REMEDY = "or name another Python in 'spark.pyspark.python' of the task's conf"
CANNOT_RUN = re.compile(
    r'\((?P<host>\S+) executor [^)]*\): java\.io\.IOException: Cannot run program "(?P<python>[^"]*)"'
)
OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\].*: (?P<theirs>[\d.]+) than that in driver: (?P<ours>[\d.]+),")
FULL_DISK = re.compile(
    r"Lost task \S+ in stage \S+ \(TID \d+\) \((?P<host>\S+) executor [^)]*\): "
    r"(?P<error>java\.io\.\w+: (?:\S+ )?\(?No space left on device)"
)
"""How Spark says it of the files that it keeps itself; what a task raises comes behind other words."""
LATEST = "most recent failure: "
IMPORT_ERRORS = ("ImportError: ", "ModuleNotFoundError: ")

SlotTask = Callable[[int, Iterable[Any]], Iterable[Any]]


class ExecutorError(CoordinationError):
    """Nothing runs on an executor; no batch is to blame."""


class ExecutorPythonError(ExecutorError, ConfigurationError):
    """The Python of an executor lacks what a job needs."""


class ExecutorDiskError(ExecutorError):
    """A disk of an executor is full, on which Spark keeps files of its own."""


class ExecutorsAwayError(ExecutorError, ConfigurationError):
    """Executors are started, and none of them reaches the driver."""


def naming_its_host(task: SlotTask) -> SlotTask:
    """Return a task whose import errors name the host and the interpreter.

    It can be unpickled where this package or what it imports is missing.

    :param task: for `mapPartitionsWithIndex`.
    """
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    version = __version__

    # A function within a function travels by value: nothing is imported before it runs.
    def run(slot: int, rows: Iterable[Any]) -> Iterator[Any]:
        import pickle
        import platform
        import socket
        import sys

        try:
            import airflow_provider_coordination as package

            if package.__version__ != version:
                raise ImportError(
                    f"airflow_provider_coordination is {package.__version__}, and {version} in the driver"
                )
            yield from pickle.loads(pickled)(slot, rows)
        except ImportError as error:
            where = f"{socket.gethostname()} ({sys.executable}, Python {platform.python_version()})"
            raise ImportError(f"executor {where}: {error}") from error

    return run


@contextmanager
def running_on_executors() -> Iterator[None]:
    """Say what an executor lacks where Spark failed for that reason.

    :raises ExecutorPythonError: naming what is missing, where it is known on which host, and the remedy.
    :raises ExecutorDiskError: naming the host.
    """
    try:
        yield
    except Exception as error:
        if (problem := _problem(error)) is not None:
            raise ExecutorPythonError(problem) from error
        if (found := FULL_DISK.match(str(error).partition(LATEST)[2])) is not None:
            raise ExecutorDiskError(
                f"executor {found['host']}: {found['error'].replace('(', '')}; make room there in the folders that "
                "'spark.local.dir' or SPARK_LOCAL_DIRS names and in the worker's own, or name folders on a larger disk"
            ) from error
        raise


def _problem(error: Exception) -> str | None:
    text = str(error)
    if found := CANNOT_RUN.search(text):
        return f"executor {found['host']}: there is no Python {found['python']!r}; install one there, {REMEDY}"
    if found := OTHER_PYTHON.search(text):
        return (
            f"executors run Python {found['theirs']} and the driver runs Python {found['ours']}; install Python "
            f"{found['ours']} on the executors, {REMEDY}"
        )
    raised = raised_in_python(text)
    for name in IMPORT_ERRORS:
        if raised.startswith(name):
            said = raised.removeprefix(name)
            where = "" if said.startswith("executor ") else "an executor: "
            return f"{where}{said}; install it there, {REMEDY}"
    return None
