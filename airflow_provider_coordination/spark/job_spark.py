"""Spark as a job uses it: its context from the start, and a session from the moment in which something needs one.

A session takes longer than the context, and landing does without: its tasks are those of an RDD.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import airflow_provider_coordination
from airflow_provider_coordination.spark import worker_daemon
from airflow_provider_coordination.spark.slot_count import SlotCount
from airflow_provider_coordination.spark.worker_daemon import IMPORTS
from airflow_provider_coordination.spark.worker_environment import set_worker_environment

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

SPARK_CONF = {
    "spark.log.level": "WARN",  # from the start: Spark's own lines would bury the job's
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",  # otherwise a task for each of many landed files
    "spark.speculation": "false",  # a second copy of a slot would read the same twice and be thrown away
    "spark.python.unix.domain.socket.enabled": "true",  # saves about 40 ms a Python task
    # By default they are INT96, which most readers take for nanoseconds: those know the years from 1677 to 2262 alone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Spark 4.2.0 hangs for ever on a Python UDF over Parquet otherwise (SPARK-58241, fixed in 4.2.1).
    "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
}
DAEMON = "spark.python.daemon.module"
PACKAGE = Path(airflow_provider_coordination.__file__).parent
LOCAL = re.compile(r"local($|\[)")
ARCHIVES = (".zip", ".egg", ".jar")
"""Of `--py-files`, what Spark puts on the path of modules itself."""


class JobSpark:
    """This process' Spark, with the settings that jobs need.

    :param name: what Spark calls the application, if there is none yet.
    :param worker_imports: the modules that its Python workers need, for `worker_daemon` to import once. Spark also
        starts that process where nothing of a job is on its path: to look up data sources in Python. So this is for
        jobs that ask nothing of Spark but to land; empty for others.
    """

    def __init__(self, name: str, *, worker_imports: Sequence[str] = ()) -> None:
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        conf = SparkConf().setAppName(name)
        for setting, value in SPARK_CONF.items():
            conf.set(setting, value)
        master, files = (str(conf.get(name, "")) for name in ("spark.master", "spark.submit.pyFiles"))
        archives = worker_archives(master, files, PACKAGE) if worker_imports else []
        if archives:
            conf.setIfMissing(DAEMON, worker_daemon.__name__)
        self.context: SparkContext = SparkContext.getOrCreate(conf)
        if archives and self.context.getConf().get(DAEMON) == worker_daemon.__name__:
            _give_path(self.context, archives)
            self.context.environment[IMPORTS] = ",".join(worker_imports)
        set_worker_environment(self.context)
        self.slots = SlotCount(self.context)
        self._name = name
        self._session: SparkSession | None = None

    @property
    def session(self) -> SparkSession:
        """The session, which is made at the first use."""
        from pyspark.sql import SparkSession

        if self._session is None:
            builder = SparkSession.builder.appName(self._name)
            for setting, value in SPARK_CONF.items():
                builder = builder.config(setting, value)
            self._session = builder.getOrCreate()
        return self._session

    def stop(self) -> None:
        """End it; a JVM that is gone already, killed from outside, is logged."""
        try:
            (self._session or self.context).stop()
        except Exception as error:
            log.warning("Spark could not be stopped: %s", error)


def worker_archives(master: str, py_files: str, package: Path) -> list[str]:
    """Return the names of the archives of modules that a job came with; none where its workers would not find them.

    That is where they run on other machines, or where this package is not in one of the archives.

    :param master: where the job runs.
    :param py_files: the files that it came with, split by commas.
    :param package: this package's folder, which may be inside an archive.
    """
    if not LOCAL.match(master):
        return []
    names = [Path(file).name for file in py_files.split(",")]
    return [name for name in names if name.lower().endswith(ARCHIVES)] if package.parent.name in names else []


def _give_path(context: SparkContext, archives: list[str]) -> None:
    """Let the process that workers are forked from find modules where each of them does, in the same order."""
    from pyspark import SparkFiles

    folder = SparkFiles.getRootDirectory()
    entries = [str(Path(folder, name)) for name in reversed(archives)]
    given = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = os.pathsep.join([*entries, folder, *([given] if given else [])])
