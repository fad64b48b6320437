"""Waiting for executors: the job waits while the cluster is full, but fails if executors cannot reach the driver.

Spark logs the same message for both, without end. On a standalone cluster the causes can be distinguished: executors
that it has started connect to the driver within seconds, and a cluster that has started none is full. On other clusters
both causes are logged.
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.spark.executor_errors import ExecutorsUnavailableError

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

CONNECT_WAIT_SECONDS = 40.0
"""How long started executors may take to connect to the driver."""
POLL_SECONDS = 3.0
REPORT_SECONDS = 15.0
"""How often to log that there are no executors."""
RESPONSE_SECONDS = 5.0
MASTERS = re.compile(r"spark://(.+)")


class _ExecutorWatch:
    """Monitors, while Spark jobs run, whether there is an executor; cancels the jobs if none will ever come.

    :param context: the context that runs the jobs.
    """

    def __init__(self, context: SparkContext) -> None:
        self._context = context
        self._over = threading.Event()
        self.problem: str | None = None
        threading.Thread(target=self._watch, name="executors", daemon=True).start()

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
                self._context.cancelAllJobs()
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
