"""The process that Spark forks Python workers from, with what landings import: `spark.python.daemon.module`.

Each worker would import it anew otherwise, after Spark's own process has compiled all of PySpark. What is imported here
opens no connection, and the threads that numpy and Arrow begin are begun anew after a fork.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
from contextlib import redirect_stdout, suppress

from airflow_provider_coordination.spark.pyspark_path import import_compiled_pyspark

IMPORTS = "COORDINATION_WORKER_IMPORTS"
"""The variable with the modules that a job's workers need, split by commas."""
ALWAYS = ("pyspark.worker", "pyarrow.parquet", "pandas")  # pyarrow imports pandas, if it is there, for its first array


def main() -> None:
    """Import, then do what Spark's own process does. What cannot be imported fails where it is used, and says why."""
    import_compiled_pyspark()
    with redirect_stdout(sys.stderr):  # what Spark reads there first is a number
        for module in (*ALWAYS, *os.environ.get(IMPORTS, "").split(",")):
            with suppress(Exception):
                importlib.import_module(module)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
