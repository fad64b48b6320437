"""A Spark standalone cluster on this machine: a master and workers, each a process with an address of its own.

Executors import the package from the archive that comes with a job, as on machines that have no checkout of it. A
cluster of machines differs from this one in that each has a disk and a clock of its own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from airflow_provider_coordination.operators.packaging import write_package_archive
from airflow_provider_coordination.versions import installed_spark
from demo.server_process import START_TIMEOUT_SECONDS, Server, ending_with_its_input, start_server
from tests.support.processes import kill_all

MASTER_ADDRESS = "127.0.0.1"
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
PYTHON_DAEMON = "pyspark.daemon"
WORKER_CORES = 1
"""Of each worker: a job with two cores has an executor on each of two."""
WORKER_MEMORY = "2g"
DAEMON_MEMORY = "256m"
SPARK_CLASS = str(Path(sys.executable).parent / "spark-class")
PORT = "Successfully started service '{}' on port ([0-9]+)"
"""What a master logs of each of its ports."""
WITHOUT_CHECKOUT = "import sys\n\nsys.path[:] = [path for path in sys.path if path != {checkout!r}]\n"
"""The `sitecustomize` of executors: this environment has the package from the checkout, which they have not."""


class SparkClusterError(Exception):
    """The cluster does not come up; the message says why."""


@dataclass(frozen=True, kw_only=True)
class ClusterWorker:
    """One worker of a cluster.

    :param address: its own, such as ``127.0.0.2``.
    :param folder: holds its work directory and its log.
    :param process: what it was started by.
    """

    address: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def output(self) -> str:
        """What it logged so far."""
        return (self.folder / "log").read_text(errors="replace")

    def processes(self) -> list[psutil.Process]:
        """Return the worker's processes: its own, the executors, and the Python processes of those."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def executors(self) -> list[psutil.Process]:
        """Return the executors that run on it."""
        return [process for process in self.processes() if EXECUTOR in _command(process)]

    def registered_executors(self) -> set[psutil.Process]:
        """Return the executors that the driver knows, since they have run one of its tasks in Python."""
        with suppress(psutil.NoSuchProcess):
            parents = {process.ppid() for process in self._python_processes()}
            return {executor for executor in self.executors() if executor.pid in parents}
        return set()

    def python_workers(self) -> list[psutil.Process]:
        """Return the Python processes that do the work of tasks on it."""
        processes = self._python_processes()
        pids = {process.pid for process in processes}
        with suppress(psutil.NoSuchProcess):
            return [process for process in processes if process.ppid() in pids]
        return []

    def _python_processes(self) -> list[psutil.Process]:
        """Return each executor's daemon, and the workers that it has started."""
        return [process for process in self.processes() if PYTHON_DAEMON in _command(process)]

    def decommission(self) -> None:
        """Let the worker take no more work, as a machine that is about to be taken away."""
        commands = ((process, _command(process)) for process in self.processes())
        [worker] = [process for process, command in commands if command[:1] != ["/bin/sh"] and WORKER in command]
        worker.send_signal(signal.SIGPWR)

    def kill(self) -> None:
        """Kill it with its executors, as if the machine had died. Harmless if it does not run."""
        kill_all(self.processes())
        if self.process.stdin is not None:
            self.process.stdin.close()
        self.process.wait()


class SparkCluster(Server):
    """A running cluster, as a context manager.

    :param workers: how many workers it starts with.
    """

    def __init__(self, workers: int = 2) -> None:
        self._first_workers = workers
        self._started = 0
        self._master: subprocess.Popen[bytes] | None = None
        self._folder = self._archive = Path()
        self._ui_port = 0
        self.master_url = ""
        """Where jobs are submitted, such as ``spark://127.0.0.1:40123``."""
        self.workers: list[ClusterWorker] = []
        """The workers that nobody has killed."""

    @property
    def conf(self) -> dict[str, str]:
        """Spark's configuration of a job here: a core on each of two workers, and the package comes along."""
        return {
            "spark.submit.pyFiles": str(self._archive),
            "spark.cores.max": "2",
            "spark.executor.memory": "512m",
            "spark.decommission.enabled": "true",
        }

    def start(self) -> Self:
        """Start the master and the first workers, and wait until jobs can be submitted.

        :raises SparkClusterError: if one of them does not come up.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="coordination-spark-"))
        python = self._folder / "python"
        python.mkdir()
        checkout = str(Path(__file__).resolve().parents[2])
        (python / "sitecustomize.py").write_text(WITHOUT_CHECKOUT.format(checkout=checkout))
        self._archive = write_package_archive(self._folder)
        try:
            self._start_master()
            for worker in [self._start_worker() for _ in range(self._first_workers)]:
                self._wait_for(worker)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything and forget what it left. Harmless if it does not run."""
        for worker in list(self.workers):
            self.kill(worker)
        master, self._master = self._master, None
        if master is not None:
            assert master.stdin is not None
            kill_all(psutil.Process(master.pid).children(recursive=True))
            master.stdin.close()
            master.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def add_worker(self, cores: int = WORKER_CORES, environment: Mapping[str, str] | None = None) -> ClusterWorker:
        """Start another worker, and wait until the master knows it.

        :param environment: variables that its executors have, in place of those of the others.
        :raises SparkClusterError: if it does not come up.
        """
        worker = self._start_worker(cores, environment)
        self._wait_for(worker)
        return worker

    def kill(self, worker: ClusterWorker) -> None:
        """Kill a worker with its executors, as if its machine had died."""
        worker.kill()
        self.workers.remove(worker)

    def make_whole(self) -> None:
        """Let there be as many workers as at the start, whatever became of those, and no others."""
        for worker in self.workers[:]:
            if worker.address not in self.alive():
                self.kill(worker)
        while len(self.workers) > self._first_workers:
            self.kill(self.workers[-1])
        while len(self.workers) < self._first_workers:
            self.add_worker()

    def alive(self) -> set[str]:
        """Return the addresses of the workers to which the master gives work."""
        return {worker["host"] for worker in self._state()["workers"] if worker["state"] == "ALIVE"}

    def _start_master(self) -> None:
        log = self._folder / "master.log"

        def is_up() -> bool:
            text = log.read_text(errors="replace")
            ports = [re.search(PORT.format(name), text) for name in ("sparkMaster", "MasterUI")]
            if ports[0] is None or ports[1] is None:
                return False
            self.master_url, self._ui_port = f"spark://{MASTER_ADDRESS}:{ports[0][1]}", int(ports[1][1])
            return True

        self._master = start_server(
            "Spark's master",
            ending_with_its_input(
                "spark-master",
                [SPARK_CLASS, MASTER, "--host", MASTER_ADDRESS, "--port", "0", "--webui-port", "0"],
            ),
            answers=is_up,
            log=log,
            error=SparkClusterError,
            environment=self._environment(MASTER_ADDRESS),
        )

    def _start_worker(self, cores: int = WORKER_CORES, environment: Mapping[str, str] | None = None) -> ClusterWorker:
        self._started += 1
        address = _address(self._started)
        folder = self._folder / f"worker-{self._started}"
        folder.mkdir()
        command = [
            *(SPARK_CLASS, WORKER, "--host", address, "--port", "0", "--webui-port", "0"),
            *("--cores", str(cores), "--memory", WORKER_MEMORY, "--work-dir", str(folder / "work"), self.master_url),
        ]
        process = start_server(
            "a Spark worker",
            ending_with_its_input("spark-worker", command),
            answers=lambda: True,  # several start at the same time
            log=folder / "log",
            error=SparkClusterError,
            environment=self._environment(address)
            | {
                "PYTHONPATH": str(self._folder / "python"),
                "SPARK_LOCAL_DIRS": str(folder / "local"),
                "SPARK_WORKER_OPTS": "-Dspark.decommission.enabled=true",
            }
            | dict(environment or {}),
        )
        self.workers.append(ClusterWorker(address=address, folder=folder, process=process))
        return self.workers[-1]

    def _wait_for(self, worker: ClusterWorker) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while "Successfully registered with master" not in worker.output:
            if worker.process.poll() is not None or time.monotonic() > deadline:
                raise SparkClusterError(f"a Spark worker does not come up:\n{worker.output}")
            time.sleep(0.05)

    def _environment(self, address: str) -> dict[str, str]:
        home = installed_spark()
        return {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # the `python3` of executors
            "SPARK_LOCAL_IP": address,
            "SPARK_DAEMON_MEMORY": DAEMON_MEMORY,
            **({} if home is None else {"SPARK_HOME": home}),
        }

    def _state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://{MASTER_ADDRESS}:{self._ui_port}/json/", timeout=30) as answer:
            state: dict[str, Any] = json.load(answer)
        return state


def _address(number: int) -> str:
    """Return a loopback address of a worker's own, or the one that there is where an interface has one alone."""
    address = f"127.0.0.{1 + number}"
    try:
        with socket.socket() as own:
            own.bind((address, 0))
    except OSError:
        return MASTER_ADDRESS
    return address


def _command(process: psutil.Process) -> list[str]:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return list(process.cmdline())
    return []
