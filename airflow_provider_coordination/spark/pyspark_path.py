"""Which of the copies of PySpark that a process finds it imports: one that Python compiled, as soon as there is one.

Spark puts `python/lib/pyspark.zip` before everything else, which holds sources alone: each process compiles 200 modules
of it before it does anything, which takes longer than all other imports of a job. The installed package beside it is
the same, and compiled.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path

ARCHIVE = Path("python", "lib", "pyspark.zip")


def import_compiled_pyspark() -> None:
    """Let this process import the PySpark of `SPARK_HOME` as an installed package, if it is one there.

    Nothing changes where PySpark was imported already, or where another one would be found.
    """
    spark_home = os.environ.get("SPARK_HOME")
    if spark_home and "pyspark" not in sys.modules:
        sys.path[:] = compiled_path(sys.path, Path(spark_home))


def compiled_path(path: Sequence[str], spark_home: Path) -> list[str]:
    """Return a module search path on which the archive of a Spark is replaced by the same modules as files.

    :param path: where modules are searched.
    :param spark_home: a Spark installed by pip, which is the package itself, or one that was unpacked, which has it in
        its folder `python`.
    """
    archive, unpacked = str(spark_home / ARCHIVE), spark_home / "python"
    if (unpacked / "pyspark" / "__init__.py").is_file():
        return [str(unpacked) if entry == archive else entry for entry in path]
    rest = [entry for entry in path if entry != archive]
    found = PathFinder.find_spec("pyspark", rest)
    is_same = found is not None and found.origin is not None and Path(found.origin).parent == spark_home
    return rest if is_same else list(path)
