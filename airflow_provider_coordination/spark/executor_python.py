"""The Python that executors run: tasks that name the host and the interpreter where something is missing.

Spark reports such an error as a trace of the JVM or of a Python worker, without the host. None of these errors passes
by itself, so that a job which meets one ends with a configuration error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from airflow_provider_coordination import __version__
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.error_texts import raised_in_python

REMEDY = "or name another Python in 'spark.pyspark.python' of the task's conf"
CANNOT_RUN = re.compile(
    r'\((?P<host>\S+) executor [^)]*\): java\.io\.IOException: Cannot run program "(?P<python>[^"]*)"'
)
OTHER_PYTHON = re.compile(r"\[PYTHON_VERSION_MISMATCH\].*: (?P<theirs>[\d.]+) than that in driver: (?P<ours>[\d.]+),")
IMPORT_ERRORS = ("ImportError: ", "ModuleNotFoundError: ")

SlotTask = Callable[[int, Iterable[Any]], Iterable[Any]]


class ExecutorPythonError(ConfigurationError):
    """The Python of an executor lacks what a job needs."""


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
    """Say what the Python of an executor lacks where Spark failed for that reason.

    :raises ExecutorPythonError: naming what is missing, where it is known on which host, and the remedy.
    """
    try:
        yield
    except Exception as error:
        if (problem := _problem(error)) is not None:
            raise ExecutorPythonError(problem) from error
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
