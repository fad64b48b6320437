"""A job's Spark: the context from the start, and a session once something needs one.

A session takes longer to start than the context, and landing does not need one: its tasks run on an RDD.

A job has a Spark application of its own, or it is a member of a shared one (`membership`). A member has the context of
the others, and a session, a job group for landing, a scheduling pool and a tag of its own.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import airflow_provider_coordination
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark import spark_versions, worker_daemon
from airflow_provider_coordination.spark.membership import cancel_jobs, current_membership, landing_group, mark_jobs
from airflow_provider_coordination.spark.slots import SlotCount
from airflow_provider_coordination.spark.worker_daemon import IMPORTS

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


log = logging.getLogger(__name__)

UNIX_SOCKETS = "spark.python.unix.domain.socket.enabled"
SPARK_CONF = {
    "spark.log.level": "WARN",  # from the start: Spark's own log lines would hide the job's
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "8",  # otherwise a task for each of many landed files
    "spark.speculation": "false",  # a second copy of a slot would read the same again and be discarded
    UNIX_SOCKETS: "true",  # saves about 40 ms a Python task
    # The default is INT96, which most readers read as nanoseconds: these cover only the years from 1677 to 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    **spark_versions.SETTINGS,
}
DAEMON = "spark.python.daemon.module"
NO_SETTINGS: Mapping[str, str] = {}
PACKAGE = Path(airflow_provider_coordination.__file__).parent
LOCAL = re.compile(r"local($|\[)")
YARN = re.compile(r"yarn\b")
ARCHIVES = (".zip", ".egg", ".jar")
"""Files of `--py-files` that Spark itself adds to the module search path."""


class JobSpark:
    """A job's Spark, with the settings that jobs need: this process's own, or the one that its member shares.

    :param name: the name of the Spark application, if there is none yet.
    :param worker_imports: the modules that the Python workers need, for `worker_daemon` to import once. Spark also
        starts that process without the job's modules on its path, to look up Python data sources. So this is only for
        jobs that use Spark only to land; empty for others. A member leaves this to the application.
    :param conf: further properties of the application; a member leaves them to the application as well.
    :raises ConfigurationError: if threads cannot have Spark jobs of their own, which members need.
    """

    def __init__(self, name: str, *, worker_imports: Sequence[str] = (), conf: Mapping[str, str] = NO_SETTINGS) -> None:
        self._name = name
        self._session: SparkSession | None = None
        self._landing_group = landing_group()
        self._member = current_membership()
        self.context = self._started(worker_imports, conf) if self._member is None else self._member.context
        self._settings = settings_on(str(self.context.master))
        if self._member is not None:
            _require_own_threads()
            mark_jobs(self.context)
        self.slots = SlotCount(self.context)

    def _started(self, worker_imports: Sequence[str], more: Mapping[str, str]) -> SparkContext:
        """Return this process's Spark; it is started if there is none yet."""
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        conf = SparkConf().setAppName(self._name)
        master, files = (str(conf.get(name, "")) for name in ("spark.master", "spark.submit.pyFiles"))
        for setting, value in {**settings_on(master), **more}.items():
            conf.set(setting, value)
        for setting, value in spark_versions.DEFAULTS.items():
            conf.setIfMissing(setting, value)
        archives = worker_archives(master, files, PACKAGE) if worker_imports else []
        if archives:
            conf.setIfMissing(DAEMON, worker_daemon.__name__)
        context: SparkContext = SparkContext.getOrCreate(conf)
        if archives and context.getConf().get(DAEMON) == worker_daemon.__name__:
            _give_path(context, archives)
            context.environment[IMPORTS] = ",".join(worker_imports)
        set_worker_environment(context)
        _delete_staged_program(context)
        return context

    @property
    def session(self) -> SparkSession:
        """The session, which is created at the first use."""
        from pyspark.sql import SparkSession

        if self._session is None:
            given = self.context.getConf()
            missing = {name: value for name, value in spark_versions.DEFAULTS.items() if not given.contains(name)}
            settings = {**missing, **self._settings}
            session = SparkSession.builder.appName(self._name).config(map={**settings}).getOrCreate()
            if self._member is not None:
                session = self._member.session = session.newSession()
                for name, value in settings.items():
                    if session.conf.isModifiable(name):
                        session.conf.set(name, value)
            self._session = session
        return self._session

    @property
    def is_shared(self) -> bool:
        """Whether other jobs have the same Spark application."""
        return self._member is not None

    def cancel_landing(self) -> None:
        """Cancel the landing of this job, from any thread."""
        self.context.cancelJobGroup(self._landing_group)
        if self._member is not None and self._member.landings is not None:
            self._member.landings.cancel(self._member.owner)

    def stop(self) -> None:
        """Stop Spark, or what a member left there; if the JVM is gone, because it was killed, that is logged."""
        try:
            if self._member is None:
                (self._session or self.context).stop()
            else:
                cancel_jobs(self.context)
        except Exception as error:
            log.warning("Spark could not be stopped: %s", error)


def _require_own_threads() -> None:
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() == "false":
        raise ConfigurationError(
            "the variable PYSPARK_PIN_THREAD is 'false' where the Spark driver runs, so jobs that share it cannot be "
            "distinguished: unset it there"
        )


def settings_on(master: str) -> dict[str, str]:
    """Return Spark's settings for jobs.

    :param master: the Spark master of the job. On YARN, sockets would be in the folders of containers, whose paths are
        longer than the address of a Unix domain socket may be.
    """
    return {**SPARK_CONF, UNIX_SOCKETS: str(not YARN.match(master)).lower()}


def _delete_staged_program(context: SparkContext) -> None:
    """Delete the program from YARN's staging folder: it contains the settings, and only a driver's end would delete it.

    Its container has its own copy, and no other container needs one.
    """
    folder, name = os.environ.get("SPARK_YARN_STAGING_DIR"), os.environ.get("COORDINATION_STAGED_PROGRAM")
    if folder and name:
        jvm: Any = context._jvm
        path = jvm.org.apache.hadoop.fs.Path(folder, name)
        try:
            path.getFileSystem(context._jsc.hadoopConfiguration()).delete(path, False)
        except Exception as error:
            log.warning("the settings in %s/%s could not be deleted before the job ends: %s", folder, name, error)


def worker_archives(master: str, py_files: str, package: Path) -> list[str]:
    """Return the names of a job's module archives; none if its workers would not find them.

    They would not if they run on other machines, or if this package is not in one of the archives.

    :param master: the Spark master of the job.
    :param py_files: the job's files, separated by commas.
    :param package: this package's folder, which may be inside an archive.
    """
    if not LOCAL.match(master):
        return []
    names = [Path(file).name for file in py_files.split(",")]
    return [name for name in names if name.lower().endswith(ARCHIVES)] if package.parent.name in names else []


def _give_path(context: SparkContext, archives: list[str]) -> None:
    """Give the process that forks workers the same module search path as the workers, in the same order."""
    from pyspark import SparkFiles

    folder = SparkFiles.getRootDirectory()
    entries = [str(Path(folder, name)) for name in reversed(archives)]
    given = context.environment.get("PYTHONPATH")
    context.environment["PYTHONPATH"] = os.pathsep.join([*entries, folder, *([given] if given else [])])


WORKER_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # the C library's pool, to which the settings below apply
    "MALLOC_ARENA_MAX": "2",  # threads reuse each other's memory
    "MALLOC_MMAP_THRESHOLD_": str(32 * 2**20),  # bytes; larger blocks go back to the system at once
    "MALLOC_TOP_PAD_": str(16 * 2**20),  # bytes that are requested from the system at a time
    "MALLOC_TRIM_THRESHOLD_": str(256 * 2**20),  # bytes of free memory that a worker keeps
}
"""The variables by name; a C library other than glibc ignores those for it."""


def set_worker_environment(context: SparkContext) -> None:
    """Set these variables for the Python workers of a Spark context; variables in `spark.executorEnv` take precedence.

    Other processes of an executor do not get them.
    """
    for name, value in WORKER_ENVIRONMENT.items():
        context.environment.setdefault(name, value)
