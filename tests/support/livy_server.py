"""A real Apache Livy on this machine, for the tests: it runs batches by spark-submit in deploy mode `client`.

`make servers` with `deep` fetches it from Maven Central. It listens on the loopback interface alone, and cannot outlive
the process that started it.
"""

from __future__ import annotations

import json
import os
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from airflow_provider_coordination.versions import find_installation, java_path
from demo.local_kinesis import SERVERS_VARIABLE
from demo.server_process import ServerProcess, answers_http, ending_with_its_input, free_ports, start_server

REPOSITORY = Path(__file__).resolve().parents[2]
OPENED = ("java.lang", "java.lang.invoke", "java.io", "java.net", "java.nio", "sun.nio.ch")
"""The packages of Java 17 that its libraries reach into."""


class LivyServerError(Exception):
    """Livy is not installed or does not start; the message says what to do."""


class LivyServer(ServerProcess):
    """A running Livy with the Spark of `SPARK_HOME`, or of this Python, as a context manager.

    :param environment: further variables of the server and its batches.
    """

    def __init__(self, **environment: str) -> None:
        super().__init__("coordination-livy")
        self._servers = Path(os.environ.get(SERVERS_VARIABLE) or REPOSITORY / ".venv" / "servers")
        self._environment = environment

    @property
    def port(self) -> int:
        """The port of the loopback interface."""
        return self._port

    def _launch(self, folder: Path) -> None:
        """Start the server and wait until it answers.

        :raises LivyServerError: if it is not installed, or does not come up.
        """
        installed = sorted(self._servers.glob("livy-*/complete"))
        spark = find_installation(self._environment or os.environ).spark_home
        if not installed or spark is None:
            raise LivyServerError(f"there is no Livy in '{self._servers}', or no Spark: run `make test-deep`")
        [self._port] = free_ports(1)
        (folder / "logs").mkdir()
        settings = {
            "livy.server.host": "127.0.0.1",
            "livy.server.port": self._port,
            "livy.spark.master": "local[1]",
            "livy.file.local-dir-whitelist": "/",
        }
        (folder / "livy.conf").write_text("".join(f"{name} = {value}\n" for name, value in settings.items()))
        command = [
            str(java_path(os.environ)),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            *("-Xmx256m", "-cp", f"{installed[-1].parent}/*", "org.apache.livy.server.LivyServer"),
        ]
        self._process = start_server(
            "Livy",
            ending_with_its_input("livy", command),
            answers=lambda: answers_http(f"{self.endpoint_url}/version"),
            log=folder / "log",
            error=LivyServerError,
            environment={
                "LIVY_HOME": str(folder),
                "LIVY_CONF_DIR": str(folder),
                "SPARK_HOME": spark,
                "SPARK_LOCAL_IP": "127.0.0.1",
                **self._environment,
            },
        )

    def drivers(self) -> list[psutil.Process]:
        """Return the processes of its batches: each one's JVM, and the Python of its driver."""
        assert self._process is not None
        found = []
        for each in psutil.Process(self._process.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if any("SparkSubmit" in part or part.endswith("ingest.py") for part in each.cmdline()):
                    found.append(each)
        return found

    def ask(self, path: str, *, method: str = "GET", body: object = None) -> Any:
        """Return the answer to a request, such as of `/batches/0/log`."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "X-Requested-By": "tests"}
        request = urllib.request.Request(self.endpoint_url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)
