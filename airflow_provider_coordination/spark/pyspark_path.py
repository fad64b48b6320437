"""Selects the copy of PySpark that a process imports: a compiled one, if there is one.

Spark puts `python/lib/pyspark.zip` first on the module search path. It contains only sources: each process compiles 200
of its modules at its start, which takes longer than all other imports of a job. The installed package beside it is the
same, and compiled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

ARCHIVE = Path("python", "lib", "pyspark.zip")


def import_compiled_pyspark() -> None:
    """Let this process import the PySpark of `SPARK_HOME` as an installed package, if it is installed there.

    Nothing changes if PySpark was imported already, or if another PySpark would be found.
    """
    spark_home = os.environ.get("SPARK_HOME")
    if spark_home and "pyspark" not in sys.modules:
        sys.path[:] = compiled_path(sys.path, Path(spark_home))


def compiled_path(path: Sequence[str], spark_home: Path) -> list[str]:
    """Return a module search path on which Spark's archive of PySpark is replaced by the same modules as files.

    :param path: the module search path.
    :param spark_home: a Spark that pip installed, which is the package itself, or an unpacked Spark, which has the
        package in its folder `python`.
    """
    archive, unpacked = str(spark_home / ARCHIVE), spark_home / "python"
    if (unpacked / "pyspark" / "__init__.py").is_file():
        return [str(unpacked) if entry == archive else entry for entry in path]
    rest = [entry for entry in path if entry != archive]
    found = PathFinder.find_spec("pyspark", rest)
    is_same = found is not None and found.origin is not None and Path(found.origin).parent == spark_home
    return rest if is_same else list(path)
