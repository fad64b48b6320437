"""Interpreters for executors that lack something: scripts around this one, which Spark starts for its tasks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest.mock import patch

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
OLDER = """
import sys
from collections import namedtuple

names = ("major", "minor", "micro", "releaselevel", "serial")
sys.version_info = namedtuple("version_info", names)(3, 9, 0, "final", 0)
"""


def python_without(module: str, folder: Path) -> str:
    """Return the path of an interpreter that cannot import a module."""
    return _started_with(WITHOUT.format(module=module), folder)


def older_python(folder: Path) -> str:
    """Return the path of an interpreter that says it is Python 3.9."""
    return _started_with(OLDER, folder)


@contextmanager
def executors_running(context: SparkContext, python: str) -> Iterator[None]:
    """Let Spark start another interpreter for its tasks."""
    with patch.object(context, "pythonExec", python):
        yield


def _started_with(program: str, folder: Path) -> str:
    (folder / "sitecustomize.py").write_text(program)
    script = folder / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    script.chmod(0o755)
    return str(script)
