"""YARN on this machine: a resource manager and a node manager of Hadoop, with `file:///` as their default filesystem.

`make try-deep-servers` fetches the jars into `.venv/servers`; what they need besides is among the jars of the Spark of
this checkout. Containers have the Python of the checkout, which need not be Airflow's. They import the package from the
archive that comes with a job, as on machines without a checkout. The node has one user: a container can read what
another one of this user left.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from xml.sax.saxutils import escape

import psutil

from demo.local_kinesis import SERVERS_VARIABLE
from demo.server_process import Server, ending_with_its_input, free_ports, start_server, stop_server
from tests.support.processes import kill_all
from tests.support.spark_cluster import WITHOUT_CHECKOUT
from tests.support.waiting import PATIENCE_SECONDS

ADDRESS = "127.0.0.1"
MANAGERS = {
    "resource": "org.apache.hadoop.yarn.server.resourcemanager.ResourceManager",
    "node": "org.apache.hadoop.yarn.server.nodemanager.NodeManager",
}
APPLICATION_CLI = "org.apache.hadoop.yarn.client.cli.ApplicationCLI"
MANAGER_MEMORY = "256m"
NODE_MEMORY_MB = 5120
ALLOCATION_MB = 128
"""What requests are rounded up to: Spark asks for a heap of 512 MB and 384 MB beside it."""
PASSED_TO_CONTAINERS = ("JAVA_HOME", "SPARK_LOCAL_IP", "TZ", "JAVA_TOOL_OPTIONS")
TIMEOUT_SECONDS = PATIENCE_SECONDS
ENDED = {"FINISHED", "FAILED", "KILLED"}
REPOSITORY = Path(__file__).resolve().parents[2]
ENVIRONMENT = REPOSITORY / ".venv"
"""The environment of the containers' Python, whatever Python the tests and Airflow run on."""


class YarnClusterError(Exception):
    """The cluster is not installed or does not come up; the message says why."""


class YarnCluster(Server):
    """A running cluster, as a context manager.

    :param servers: the directory that holds `yarn`; default `$COORDINATION_SERVERS`, else `.venv/servers` of this
        repository.
    """

    def __init__(self, servers: Path | None = None) -> None:
        self._servers = servers or Path(os.environ.get(SERVERS_VARIABLE) or REPOSITORY / ".venv" / "servers")
        self._managers: list[subprocess.Popen[bytes]] = []
        self.folder = Path()
        """Everything that the cluster keeps: configuration, staged files, folders and logs of containers."""
        self.url = ""
        """The resource manager's pages and REST API, for example ``http://127.0.0.1:10088``."""

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process uses the cluster, and cannot stop it."""
        return self.__dict__ | {"_managers": []}

    @property
    def configuration(self) -> Path:
        """What HADOOP_CONF_DIR is set to."""
        return self.folder / "conf"

    @property
    def staged(self) -> Path:
        """Where spark-submit puts the files of applications."""
        return self.folder / "staging"

    @property
    def local(self) -> Path:
        """Where the node keeps what it fetched for containers, and their folders."""
        return self.folder / "local"

    def conf(self, spark_home: str) -> dict[str, str]:
        """Return Spark's configuration of a job here: two small executors, and jars that nobody has to copy."""
        return {
            "spark.yarn.jars": f"local:{spark_home}/jars/*",
            "spark.yarn.stagingDir": f"file:{self.staged}",
            "spark.yarn.am.waitTime": "60s",
            "spark.pyspark.python": str(self.folder / "bin" / "python3"),
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "2",
            "spark.executor.cores": "1",
        }

    def start(self) -> Self:
        """Start both managers, and wait until the node may run containers.

        :raises YarnClusterError: if the jars are missing, or one of the managers does not come up.
        """
        jars = self._servers / "yarn"
        if not list(jars.glob("hadoop-client-minicluster-*.jar")):
            raise YarnClusterError(f"Hadoop is not installed in '{jars}': run `make try-deep-servers`")
        self.folder = Path(tempfile.mkdtemp(prefix="coordination-yarn-"))
        try:
            self._configure()
            for name in MANAGERS:
                self._managers.append(self._start_manager(name, jars))
            self._wait_for_node()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything, the node before its containers; harmless if it does not run."""
        managers, self._managers = self._managers, []
        containers = self.containers()
        for manager in reversed(managers):
            stop_server(manager)
        kill_all(containers)
        shutil.rmtree(self.folder, ignore_errors=True)

    # What it runs

    def get(self, path: str) -> Any:
        """Return the answer of the resource manager's REST API, such as to `apps`."""
        with urllib.request.urlopen(f"{self.url}/ws/v1/cluster/{path}", timeout=30) as answer:
            return json.load(answer)

    def applications(self) -> list[dict[str, Any]]:
        """Return what the resource manager knows of applications, the oldest first."""
        found = self.get("apps")["apps"] or {"app": []}
        return sorted(found["app"], key=lambda each: each["id"])

    def latest(self) -> dict[str, Any]:
        """Return what the resource manager knows of the latest application."""
        return self.applications()[-1]

    def wait_for_end(self, application_id: str) -> dict[str, Any]:
        """Return what the resource manager knows of an application, once it has ended."""
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while (found := self.get(f"apps/{application_id}")["app"])["state"] not in ENDED:
            assert time.monotonic() < deadline, found
            time.sleep(0.2)
        return dict(found)

    def containers(self, application_id: str = "") -> list[psutil.Process]:
        """Return the processes of containers: of an application, or of all."""
        local = str(self.local / "usercache")
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.cwd().startswith(local) and application_id in process.cwd():
                    found.append(process)
        return found

    def environments(self, application_id: str) -> list[str]:
        """Return the environment of each process of an application's containers."""
        found = []
        for process in self.containers(application_id):
            with suppress(psutil.Error):
                found.append(str(process.environ()))
        return found

    def driver(self, application_id: str) -> psutil.Process | None:
        """Return the Python process of an application's driver; None if it does not run."""
        for process in self.containers(application_id):
            with suppress(psutil.Error):
                if "container_" in process.cwd() and process.parent() and "PYSPARK_GATEWAY_PORT" in process.environ():
                    return process
        return None

    def output(self, application_id: str) -> str:
        """Return what the containers of an application wrote."""
        logs = sorted(self.folder.glob(f"logs/{application_id}/*/std*"))
        return "\n".join(log.read_text(errors="replace") for log in logs)

    def files(self) -> list[str]:
        """Return the contents of all files of applications: what is staged, fetched, written or logged."""
        folders = (self.staged, self.local, self.folder / "logs")
        found = []
        for path in (path for folder in folders for path in folder.rglob("*")):
            with suppress(OSError):  # a running container removes its own
                found.append(path.read_bytes().decode(errors="replace") if path.is_file() else "")
        return found

    def run(self, *arguments: str) -> str:
        """Return the output of `yarn`, with these arguments."""
        command = [str(self.folder / "bin" / "yarn"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS).stdout

    # Its start

    def _configure(self) -> None:
        """Write the configuration of both managers and their clients, and the programs of the containers' PATH."""
        names = ("address", "scheduler.address", "resource-tracker.address", "admin.address", "webapp.address")
        ports = free_ports(len(names))
        self.url = f"http://{ADDRESS}:{ports[-1]}"
        addresses = zip(names, ports, strict=True)
        node = dict.fromkeys(("address", "localizer.address", "webapp.address"), f"{ADDRESS}:0")
        self._write("core-site", {"fs.defaultFS": "file:///", "hadoop.tmp.dir": self.folder / "tmp"})
        self._write(
            "yarn-site",
            {f"yarn.resourcemanager.{name}": f"{ADDRESS}:{port}" for name, port in addresses}
            | {f"yarn.nodemanager.{name}": address for name, address in node.items()}
            | {
                "yarn.nodemanager.bind-host": ADDRESS,
                "yarn.nodemanager.local-dirs": self.local,
                "yarn.nodemanager.log-dirs": self.folder / "logs",
                "yarn.nodemanager.log.retain-seconds": 3600,
                "yarn.nodemanager.resource.memory-mb": NODE_MEMORY_MB,
                "yarn.nodemanager.vmem-check-enabled": "false",
                "yarn.nodemanager.disk-health-checker.max-disk-utilization-per-disk-percentage": 100,
                "yarn.nodemanager.env-whitelist": ",".join(PASSED_TO_CONTAINERS),
                "yarn.scheduler.minimum-allocation-mb": ALLOCATION_MB,
            },
        )
        queue = "yarn.scheduler.capacity"
        self._write(
            "capacity-scheduler",
            {f"{queue}.root.queues": "default", f"{queue}.root.default.capacity": 100}
            | {f"{queue}.maximum-am-resource-percent": 1},
        )
        (self.folder / "python").mkdir()
        checkout = WITHOUT_CHECKOUT.format(checkout=str(REPOSITORY))
        (self.folder / "python" / "sitecustomize.py").write_text(checkout)
        python = shlex.quote(str(ENVIRONMENT / "bin" / "python"))
        self._write_program("python3", f'PYTHONPATH="{self.folder}/python:$PYTHONPATH" exec {python}')
        self._write_program("yarn", f"exec java -cp {shlex.quote(self._class_path())} {APPLICATION_CLI}")

    def _write(self, name: str, settings: Mapping[str, object]) -> None:
        self.configuration.mkdir(exist_ok=True)
        properties = "".join(
            f"<property><name>{name}</name><value>{escape(str(value))}</value></property>\n"
            for name, value in settings.items()
        )
        (self.configuration / f"{name}.xml").write_text(f"<configuration>\n{properties}</configuration>\n")

    def _write_program(self, name: str, command: str) -> None:
        program = self.folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\n{command} "$@"\n')
        program.chmod(0o755)

    def _class_path(self) -> str:
        sparks = sorted(ENVIRONMENT.glob("lib/python*/site-packages/pyspark/jars"))
        if not sparks:
            raise YarnClusterError(f"Spark is not installed in '{ENVIRONMENT}': run `make venv`")
        return os.pathsep.join(map(str, (self.configuration, self._servers / "yarn" / "*", sparks[0] / "*")))

    def _start_manager(self, name: str, jars: Path) -> subprocess.Popen[bytes]:
        options = (f"-Xmx{MANAGER_MEMORY}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        command = ["java", *options, "-cp", self._class_path(), MANAGERS[name]]
        return start_server(
            f"YARN's {name} manager",
            ending_with_its_input(f"yarn-{name}", command),
            answers=self._answers if name == "resource" else lambda: True,
            log=self.folder / f"{name}.log",
            error=YarnClusterError,
            environment={"SPARK_LOCAL_IP": ADDRESS},
        )

    def _answers(self) -> bool:
        try:
            return bool(self.get("info"))
        except (OSError, ValueError):
            return False

    def _wait_for_node(self) -> None:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not any(node["state"] == "RUNNING" for node in (self.get("nodes")["nodes"] or {"node": []})["node"]):
            if self._managers[-1].poll() is not None or time.monotonic() > deadline:
                log = (self.folder / "node.log").read_text(errors="replace")
                raise YarnClusterError(f"YARN's node manager does not come up:\n{log[-2000:]}")
            time.sleep(0.1)
