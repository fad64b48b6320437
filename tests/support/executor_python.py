"""Interpreters for executors that differ from others: scripts around this one, which Spark starts for its tasks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

if TYPE_CHECKING:
    from pyspark import SparkContext

WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Without())
"""
OTHER_VERSION = """
import {module}

{module}.__version__ = {version!r}
"""
OLDER = """
import sys
from collections import namedtuple

names = ("major", "minor", "micro", "releaselevel", "serial")
sys.version_info = namedtuple("version_info", names)(3, 9, 0, "final", 0)
"""


ANOTHER = """
import os

os.environ["SPARK_LOCAL_DIRS"] = {folder!r}
"""
WITH_CLOCK = """
from datetime import timedelta

from airflow_provider_coordination.coordination import clock

now = clock.SystemClock.now
clock.SystemClock.now = lambda self: now(self) + timedelta(seconds={ahead})
"""


def python_without(module: str, folder: Path) -> str:
    """Return the path of an interpreter that cannot import a module."""
    return _started_with(WITHOUT.format(module=module), folder)


def python_with(module: str, version: str, folder: Path) -> str:
    """Return the path of an interpreter in which a module says it is this version."""
    return _started_with(OTHER_VERSION.format(module=module, version=version), folder)


def older_python(folder: Path) -> str:
    """Return the path of an interpreter that says it is Python 3.9."""
    return _started_with(OLDER, folder)


def another_executor(folder: Path, more: str = "") -> str:
    """Return the path of an interpreter that passes for one of an executor which joined later.

    :param more: a program that it runs at its start.
    """
    return _started_with(ANOTHER.format(folder=str(folder)) + more, folder)


def executor_ahead(seconds: float, folder: Path) -> str:
    """Return the path for an executor with a clock of its own, which is ahead of this machine's."""
    return another_executor(folder, WITH_CLOCK.format(ahead=seconds))


def executor_with_own_disk(place: Path, folder: Path, size: str = "1m") -> str:
    """Return the path for an executor which has an empty disk of its own where all others have a folder.

    :param place: the folder.
    :param size: of the disk.
    """
    mount = f'mount -t tmpfs -o size={size} none "{place}" && exec "$@"'
    probe = subprocess.run(["unshare", "-rm", "sh", "-c", mount, "sh", "true"], capture_output=True)
    if probe.returncode:
        pytest.skip(f"this user may not mount a disk: {probe.stderr.decode()}")
    return _started_with(ANOTHER.format(folder=str(folder)), folder, f"exec unshare -rm sh -c '{mount}' sh")


def pythons_of_other_minors() -> list[str]:
    """Return the interpreters of this machine whose minor version is not this one's, the oldest first."""
    names = [f"python3.{minor}" for minor in range(9, 16) if minor != sys.version_info.minor]
    pyenv = Path.home() / ".pyenv" / "versions"
    found = [next((str(path) for path in pyenv.glob(f"*/bin/{name}")), shutil.which(name)) for name in names]
    others = [python for python in found if python]
    if not others and os.environ.get("CI") != "true":
        pytest.skip("this machine has no Python 3 of another minor version")
    return others


@contextmanager
def executors_running(context: SparkContext, python: str) -> Iterator[None]:
    """Let Spark start another interpreter for its tasks."""
    with patch.object(context, "pythonExec", python):
        yield


def _started_with(program: str, folder: Path, by: str = "exec") -> str:
    (folder / "sitecustomize.py").write_text(program)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nexport PYTHONPATH="{folder}:$PYTHONPATH"\n{by} "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return str(script)
