"""Spark's errors name what an executor lacks; tests/integration/test_slots.py covers Python's."""

from __future__ import annotations

import platform

import pytest

from airflow_provider_coordination.spark.delivery import by_halves
from airflow_provider_coordination.spark.spark_errors import (
    ExecutorDiskError,
    ExecutorPythonError,
    running_on_executors,
)

FAILED = (
    "An error occurred while calling o39.collectToPython.\n: org.apache.spark.SparkException: Job aborted due to stage "
    "failure: Task 0 in stage 0.0 failed 2 times, most recent failure: Lost task 0.1 in stage 0.0 (TID 2) "
    "(10.0.0.7 executor 3): {}\n\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)\n"
)
FULL = FAILED.format("java.io.IOException: No space left on device")


def fail(text: str) -> None:
    with running_on_executors():
        raise RuntimeError(text)


def test_full_disk_is_named_with_its_host() -> None:
    with pytest.raises(ExecutorDiskError, match=r"^executor 10.0.0.7: java.io.IOException: No space left on device;"):
        fail(FULL)


def test_record_text_about_disks_is_ignored() -> None:
    with pytest.raises(RuntimeError):
        fail(FAILED.format(f"org.apache.spark.api.python.PythonException: ValueError: {FULL}"))


def test_full_disk_is_no_batch_error() -> None:
    tried: list[int] = []

    def act(batches: object) -> None:
        tried.append(1)
        fail(FULL)

    with pytest.raises(ExecutorDiskError):
        list(by_halves(["a", "b"], act, "preparation"))
    assert tried == [1]


def test_python_that_cannot_import_spark_is_named_with_its_version() -> None:
    text = (
        "org.apache.spark.SparkException: \nError from python worker:\n  Traceback (most recent call last):\n"
        '    File "/usr/lib/python3.9/runpy.py", line 188, in _run_module_as_main\n'
        "  TypeError: unsupported operand type(s) for |: 'type' and 'type'\n"
    )
    ours = ".".join(platform.python_version_tuple()[:2])
    message = f"executors run Python 3.9 and the driver runs Python {ours}; install Python {ours} on the"
    with pytest.raises(ExecutorPythonError, match=message):
        fail(text)
