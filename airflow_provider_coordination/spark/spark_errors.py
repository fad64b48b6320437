"""Errors of Spark itself: a missing Python or module, a full disk, no route to the driver, a killed JVM.

No batch and no sink causes them. Spark reports such an error as a traceback of the JVM or of a Python worker. A missing
module does not appear on its own, so it ends the job with a configuration error.

A job waits while the cluster is full, but fails if executors cannot reach the driver. Spark logs the same message for
both, without end. On a standalone cluster the causes can be distinguished: executors that it has started connect to the
driver within seconds, and a cluster that has started none is full. On other clusters both causes are logged.
"""

from __future__ import annotations

import contextvars
import json
import logging
import re
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination import __version__
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.spark.membership import cancel_jobs
from airflow_provider_coordination.spark.spark_versions import error_of_job, imported_spark, python_of_executors
from airflow_provider_coordination.versions import PYARROW

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

GATEWAY = ("py4j", "pyspark")
"""The packages that hold the connection."""
WITHOUT_RESPONSE = re.compile(r"An error occurred while calling \S+")
"""The whole text of py4j's error if a call gets no response. With a response, the error of Java follows."""
REMEDY = "or name another Python in 'spark.pyspark.python' of the task's conf, or in PYSPARK_PYTHON of its 'env_vars'"
CANNOT_RUN = re.compile(
    r'\((?P<host>\S+) executor [^)]*\): java\.io\.IOException: Cannot run program "(?P<python>[^"]*)"'
)
FULL_DISK = re.compile(
    r"Lost task \S+ in stage \S+ \(TID \d+\) \((?P<host>\S+) executor [^)]*\): "
    r"(?P<error>java\.io\.\w+: (?:\S+ )?\(?No space left on device)"
)
"""Spark's message for its own files on a full disk; errors that a task raises have other words before them."""
LATEST = "most recent failure: "
IMPORT_ERRORS = ("ImportError: ", "ModuleNotFoundError: ")
SlotTask = Callable[[int, Iterable[Any]], Iterable[Any]]
CONNECT_WAIT_SECONDS = 40.0
"""How long started executors may take to connect to the driver."""
POLL_SECONDS = 3.0
REPORT_SECONDS = 15.0
"""How often to log that there are no executors."""
RESPONSE_SECONDS = 5.0
MASTERS = re.compile(r"spark://(.+)")


def error_text(error: BaseException) -> str:
    """Return an error as one line, without the tracebacks of Python and the JVM."""
    if raised := raised_in_python(str(error)):
        return raised
    error = error_of_job(error)
    of_java = getattr(error, "java_exception", None)
    text = str(error) if of_java is None else str(of_java.toString())
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if of_java is not None else f"{type(error).__name__}: {line}"


def failure_text(error: Exception) -> str:
    """Return why a partition failed; for errors of other code, the debug log has the traceback."""
    if isinstance(error, CoordinationError | OSError):
        return str(error)
    log.debug("raised here:", exc_info=error)
    return error_text(error)


def root_cause(error: BaseException) -> str:
    """Return the innermost cause of an error of the JVM, as one line; empty for other errors, or if it is the error."""
    outer = cause = getattr(error, "java_exception", None)
    while cause is not None and (inner := cause.getCause()) is not None:
        cause = inner
    return "" if cause is None or cause is outer else str(cause.toString()).partition("\n")[0].strip()


def raised_in_python(text: str) -> str:
    """Return the last line of a Python traceback, `<exception>: <message>`; empty if there is no traceback."""
    lines = text.splitlines()
    frames = [n for n, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[frames[-1] + 1 :] if frames else []
    return next((line.strip() for line in after if line.strip() and not line.startswith(" ")), "")


def is_of_gateway(error: BaseException) -> bool:
    """Return whether an error means that Spark's JVM does not respond: a sink's connections are not py4j's."""
    if isinstance(error, ConnectionError | EOFError):
        frames = traceback.walk_tb(error.__traceback__)
        return any(frame.f_globals.get("__name__", "").partition(".")[0] in GATEWAY for frame, _ in frames)
    if type(error).__module__ != "py4j.protocol":
        return False
    return type(error).__name__ == "Py4JNetworkError" or WITHOUT_RESPONSE.fullmatch(str(error)) is not None


class ExecutorError(CoordinationError):
    """Spark cannot run tasks; no batch caused it."""


class ExecutorPythonError(ExecutorError, ConfigurationError):
    """The Python of an executor lacks what a job needs."""


class ExecutorDiskError(ExecutorError):
    """An executor's disk for Spark's own files is full."""


class ExecutorsUnavailableError(ExecutorError, ConfigurationError):
    """Executors are started, but none of them reaches the driver."""


class DriverGoneError(ExecutorError):
    """The JVM of the driver is gone, so the job cannot continue."""

    def __init__(self) -> None:
        super().__init__(
            "the JVM of the Spark driver does not respond: it was killed or crashed; read the driver's log, and raise "
            "'driver_memory' if it ran out of memory"
        )


def with_host_in_import_errors(task: SlotTask) -> SlotTask:
    """Return a task whose import errors name the host and the interpreter.

    The task can be unpickled even if this package, or a module that it imports, is missing.

    :param task: for `mapPartitionsWithIndex`.
    """
    import pyarrow
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    version, pyarrow_version, spark = __version__, pyarrow.__version__, imported_spark()
    oldest = max(PYARROW[0], int(pyarrow_version.partition(".")[0]) - 1)

    # A nested function is pickled by value: nothing is imported before it runs.
    def run(slot: int, rows: Iterable[Any]) -> Iterator[Any]:
        import pickle
        import platform
        import socket
        import sys
        from contextlib import suppress
        from importlib import import_module

        try:
            import airflow_provider_coordination as package

            if package.__version__ != version:
                raise ImportError(
                    f"airflow_provider_coordination is {package.__version__}, but {version} on the driver"
                )
            import pyarrow

            if int(pyarrow.__version__.partition(".")[0]) < oldest:
                raise ImportError(
                    f"pyarrow {pyarrow.__version__} is too old for {pyarrow_version} on the driver; "
                    f"pyarrow {oldest} or newer is supported"
                )
            from airflow_provider_coordination.versions import unfit_pandas

            with suppress(ModuleNotFoundError):
                pandas = import_module("pandas")  # as pyarrow does for its first array
                if misfit := unfit_pandas(pandas.__version__, spark):
                    raise ImportError(str(misfit))
            yield from pickle.loads(pickled)(slot, rows)
        except ImportError as error:
            where = f"{socket.gethostname()} ({sys.executable}, Python {platform.python_version()})"
            raise ImportError(f"executor {where}: {error}") from error

    return run


@contextmanager
def running_on_executors() -> Iterator[None]:
    """Raise an error that names the cause and the remedy if Spark fails because of an executor.

    :raises ExecutorPythonError: naming what is missing, the host if it is known, and the remedy.
    :raises ExecutorDiskError: naming the host.
    :raises DriverGoneError: if the driver's JVM does not respond.
    """
    try:
        yield
    except Exception as error:
        if is_of_gateway(error):
            raise DriverGoneError from error
        if (problem := _problem(error)) is not None:
            raise ExecutorPythonError(problem) from error
        if (found := FULL_DISK.match(str(error).partition(LATEST)[2])) is not None:
            raise ExecutorDiskError(
                f"executor {found['host']}: {found['error'].replace('(', '')}; free space there in the folders of "
                "'spark.local.dir' or SPARK_LOCAL_DIRS and in the worker's own, or configure folders on a larger disk"
            ) from error
        raise


def _problem(error: Exception) -> str | None:
    text = str(error)
    if match := CANNOT_RUN.search(text):
        return f"executor {match['host']}: there is no Python {match['python']!r}; install one there, {REMEDY}"
    ours = "{}.{}".format(*sys.version_info)
    theirs = python_of_executors(text)
    if theirs not in (None, ours):
        return (
            f"executors run Python {theirs} and the driver runs Python {ours}; install Python {ours} on the "
            f"executors, {REMEDY}"
        )
    raised = raised_in_python(text)
    for name in IMPORT_ERRORS:
        if raised.startswith(name):
            message = raised.removeprefix(name)
            where = "" if message.startswith("executor ") else "an executor: "
            return f"{where}{message}; install it there, {REMEDY}"
    return None


class _ExecutorWatch:
    """Monitors, while Spark jobs run, whether there is an executor; cancels this job's if none will ever come.

    :param context: the context that runs the jobs.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._over = threading.Event()
        self.problem: str | None = None
        watch = contextvars.copy_context().run
        threading.Thread(target=watch, args=(self._watch,), name="executors", daemon=True).start()

    def end(self) -> None:
        """Stop monitoring."""
        self._over.set()

    def _watch(self) -> None:
        started = time.monotonic()
        granted_at, reported_at = None, started
        while not self._over.wait(POLL_SECONDS):
            now = time.monotonic()
            try:
                if executors(self._context):
                    started, granted_at = now, None
                    continue
                cores = cores_granted(self._context)
            except Exception as error:  # of the JVM, which ends
                log.debug("the executors could not be read: %s", error)
                continue
            if cores is not None:
                granted_at = (granted_at or now) if cores else None
            if granted_at is not None and now - granted_at > CONNECT_WAIT_SECONDS:
                self.problem = (
                    f"the cluster started executors {now - granted_at:.0f} s ago, but none has reached the driver. "
                    f"They connect to {_driver(self._context)}. In the task's conf, set 'spark.driver.host' to an "
                    "address that workers reach, and 'spark.driver.bindAddress' if the driver listens on another one. "
                    "Open the driver's ports, or run the driver in the cluster. Otherwise, read the logs of the "
                    "executors, on the workers"
                )
                cancel_jobs(self._context)
                return
            if now - reported_at >= REPORT_SECONDS:
                reported_at = now
                log.warning("no executor for %.0f s: %s", now - started, self._why(cores))

    def _why(self, cores: int | None) -> str:
        if cores == 0:
            return "the cluster has no free cores or memory for this job, which waits for them"
        if cores is not None:
            return f"the cluster has started executors, which must connect to {_driver(self._context)}"
        return (
            "the cluster is full and the job waits, or the started executors do not reach the driver at "
            f"{_driver(self._context)}"
        )


@contextmanager
def waiting_for_executors() -> Iterator[None]:
    """Monitor the executors while this process's Spark runs jobs.

    :raises ExecutorsUnavailableError: if executors are started, but none of them reaches the driver.
    """
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is None or context._jsc is None or context._jsc.sc().isLocal():
        yield
        return
    watch = _ExecutorWatch(context)
    try:
        yield
    except Exception as error:
        if watch.problem is not None:
            raise ExecutorsUnavailableError(watch.problem) from error
        raise
    finally:
        watch.end()


def executors(context: SparkContext) -> int:
    """Return the number of executors that are connected to the driver."""
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1  # one entry is the driver's


def cores_granted(context: SparkContext) -> int | None:
    """Return the number of cores that a standalone cluster has granted to the job; None if it is not known."""
    found = MASTERS.fullmatch(str(context.master))
    for address in found[1].split(",") if found else ():
        host, _, port = address.rpartition(":")
        try:
            state = _state(f"http://{host}:{_page_port(context, host, int(port))}/json/")
        except Exception as error:  # it only makes a message less exact
            log.debug("the cores granted by master %s are not known: %s", address, error)
            continue
        for application in state.get("activeapps", ()):
            if application.get("id") == context.applicationId:
                return int(application.get("cores", 0))
    return None


def _page_port(context: SparkContext, host: str, port: int) -> int:
    """Return the port of a master's web page, from a request to the master."""
    jvm: Any = context._jvm

    def module(name: str) -> Any:
        return jvm.java.lang.Class.forName(name).getField("MODULE$").get(None)

    master = (
        jvm.org.apache.spark.SparkEnv.get()
        .rpcEnv()
        .setupEndpointRef(jvm.org.apache.spark.rpc.RpcAddress(host, port), "Master")
    )
    response_class = jvm.java.lang.Class.forName("org.apache.spark.deploy.master.MasterMessages$BoundPortsResponse")
    ports = master.askSync(
        module("org.apache.spark.deploy.master.MasterMessages$BoundPortsRequest$"),
        module("scala.reflect.ClassTag$").apply(response_class),
    )
    return int(ports.webUIPort())


def _state(url: str) -> Any:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=RESPONSE_SECONDS) as response:
        return json.load(response)


def _driver(context: SparkContext) -> str:
    conf = context.getConf()
    return f"'spark.driver.host' {conf.get('spark.driver.host')!r}, port {conf.get('spark.driver.port')}"
