"""Errors of Spark itself: a missing Python or module, a full disk, no route to the driver, a killed JVM.

No batch and no sink causes them.

Spark reports such an error as a traceback of the JVM or of a Python worker. A missing module does not appear on its
own, so it ends the job with a configuration error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_coordination import __version__
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.error_texts import is_of_gateway, raised_in_python

REMEDY = "or name another Python in 'spark.pyspark.python' of the task's conf"
CANNOT_RUN = re.compile(
    r'\((?P<host>\S+) executor [^)]*\): java\.io\.IOException: Cannot run program "(?P<python>[^"]*)"'
)
OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\].*: (?P<theirs>[\d.]+) than that in driver: (?P<ours>[\d.]+),")
FULL_DISK = re.compile(
    r"Lost task \S+ in stage \S+ \(TID \d+\) \((?P<host>\S+) executor [^)]*\): "
    r"(?P<error>java\.io\.\w+: (?:\S+ )?\(?No space left on device)"
)
"""Spark's message for its own files on a full disk; errors that a task raises have other words before them."""
LATEST = "most recent failure: "
IMPORT_ERRORS = ("ImportError: ", "ModuleNotFoundError: ")

SlotTask = Callable[[int, Iterable[Any]], Iterable[Any]]


class ExecutorError(CoordinationError):
    """Spark cannot run tasks; no batch caused it."""


class ExecutorPythonError(ExecutorError, ConfigurationError):
    """The Python of an executor lacks what a job needs."""


class ExecutorDiskError(ExecutorError):
    """An executor's disk for Spark's own files is full."""


class ExecutorsUnavailableError(ExecutorError, ConfigurationError):
    """Executors are started, but none of them reaches the driver."""


class DriverGoneError(ExecutorError):
    """The JVM of the driver is gone, so the job cannot continue."""

    def __init__(self) -> None:
        super().__init__(
            "the JVM of the Spark driver does not respond: it was killed or crashed; read the driver's log, and raise "
            "'driver_memory' if it ran out of memory"
        )


def with_host_in_import_errors(task: SlotTask) -> SlotTask:
    """Return a task whose import errors name the host and the interpreter.

    The task can be unpickled even if this package, or a module that it imports, is missing.

    :param task: for `mapPartitionsWithIndex`.
    """
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    version = __version__

    # A nested function is pickled by value: nothing is imported before it runs.
    def run(slot: int, rows: Iterable[Any]) -> Iterator[Any]:
        import pickle
        import platform
        import socket
        import sys

        try:
            import airflow_provider_coordination as package

            if package.__version__ != version:
                raise ImportError(
                    f"airflow_provider_coordination is {package.__version__}, but {version} on the driver"
                )
            yield from pickle.loads(pickled)(slot, rows)
        except ImportError as error:
            where = f"{socket.gethostname()} ({sys.executable}, Python {platform.python_version()})"
            raise ImportError(f"executor {where}: {error}") from error

    return run


@contextmanager
def running_on_executors() -> Iterator[None]:
    """Raise an error that names the cause and the remedy if Spark fails because of an executor.

    :raises ExecutorPythonError: naming what is missing, the host if it is known, and the remedy.
    :raises ExecutorDiskError: naming the host.
    :raises DriverGoneError: if the driver's JVM does not respond.
    """
    try:
        yield
    except Exception as error:
        if is_of_gateway(error):
            raise DriverGoneError from error
        if (problem := _problem(error)) is not None:
            raise ExecutorPythonError(problem) from error
        if (found := FULL_DISK.match(str(error).partition(LATEST)[2])) is not None:
            raise ExecutorDiskError(
                f"executor {found['host']}: {found['error'].replace('(', '')}; free space there in the folders of "
                "'spark.local.dir' or SPARK_LOCAL_DIRS and in the worker's own, or configure folders on a larger disk"
            ) from error
        raise


def _problem(error: Exception) -> str | None:
    text = str(error)
    if match := CANNOT_RUN.search(text):
        return f"executor {match['host']}: there is no Python {match['python']!r}; install one there, {REMEDY}"
    if match := OTHER_PYTHON.search(text):
        return (
            f"executors run Python {match['theirs']} and the driver runs Python {match['ours']}; install Python "
            f"{match['ours']} on the executors, {REMEDY}"
        )
    raised = raised_in_python(text)
    for name in IMPORT_ERRORS:
        if raised.startswith(name):
            message = raised.removeprefix(name)
            where = "" if message.startswith("executor ") else "an executor: "
            return f"{where}{message}; install it there, {REMEDY}"
    return None
