"""How the Python processes of a job start quickly: with compiled modules, and in workers with landing imported.

Spark puts `python/lib/pyspark.zip` first on the module search path. It contains only sources: each process compiles 200
of its modules at its start, which takes longer than all other imports of a job. The installed package beside it is the
same, and compiled.

This module is also `spark.python.daemon.module`, the process from which Spark forks Python workers. Otherwise each
worker would import landing again. The imports here open no connection, and the threads that numpy and Arrow start are
started again after a fork.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import redirect_stdout, suppress
from importlib.machinery import PathFinder
from pathlib import Path

ARCHIVE = Path("python", "lib", "pyspark.zip")
IMPORTS = "COORDINATION_WORKER_IMPORTS"
"""The variable with the modules that a job's workers need, separated by commas."""
ALWAYS = ("pyspark.worker", "pyarrow.parquet", "pandas")  # pyarrow imports pandas, if it is there, for its first array


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


def import_for_threads() -> None:
    """Import what every job needs, before threads do so at the same time; a failing import raises where it is used."""
    for module in ALWAYS:
        with suppress(Exception):
            importlib.import_module(module)


def main() -> None:
    """Import the modules, then run Spark's own daemon. A failing import is ignored here and raises where it is used."""
    import_compiled_pyspark()
    with redirect_stdout(sys.stderr):  # the first thing that Spark reads from stdout must be a number
        for module in (*ALWAYS, *os.environ.get(IMPORTS, "").split(",")):
            with suppress(Exception):
                importlib.import_module(module)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
