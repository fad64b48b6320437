"""The process from which Spark forks Python workers, with landing imported: `spark.python.daemon.module`.

Otherwise each worker would import them again, after Spark's own process has compiled all of PySpark. The imports here
open no connection, and the threads that numpy and Arrow start are started again after a fork.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from contextlib import redirect_stdout, suppress

from airflow_provider_coordination.spark.pyspark_path import import_compiled_pyspark

IMPORTS = "COORDINATION_WORKER_IMPORTS"
"""The variable with the modules that a job's workers need, separated by commas."""
ALWAYS = ("pyspark.worker", "pyarrow.parquet", "pandas")  # pyarrow imports pandas, if it is there, for its first array


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
