"""An open DynamoDB engine on this machine, for tests and benchmarks: MiniStack, from the PyPI package `ministack`.

`make servers` installs it into `.venv/servers`, since it requires other versions of packages than ours. The server
keeps everything in memory, a set of tables for each account and region, and cannot outlive the process that started it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Self

import boto3
from botocore.config import Config

from airflow_provider_coordination.aws import AwsSettings
from demo.local_kinesis import SERVERS_VARIABLE
from demo.server_process import Server, answers_http, ending_with_its_input, free_ports, start_server, stop_server

REGION = "us-east-1"

_REPOSITORY = Path(__file__).resolve().parents[2]
_ENGINE = Path(__file__).with_name("dynamodb_engine.py")


class DynamoDbServerError(Exception):
    """The DynamoDB server is not installed or does not start; the message says what to do."""


class DynamoDbServer(Server):
    """A running DynamoDB server, as a context manager.

    It differs from AWS: nothing is throttled, expired items stay until a sweep, nobody is denied anything, and an
    index is never behind its table.

    :param servers: the directory that holds ``ministack``; default ``$COORDINATION_SERVERS``, else ``.venv/servers`` of
        this repository.
    """

    def __init__(self, servers: Path | None = None) -> None:
        servers = servers or Path(os.environ.get(SERVERS_VARIABLE) or _REPOSITORY / ".venv" / "servers")
        self._package = servers / "ministack"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._log: Path | None = None

    @property
    def endpoint_url(self) -> str:
        """Where clients reach the server, for example ``http://127.0.0.1:40123``."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def settings(self) -> AwsSettings:
        """How our own code reaches the server."""
        return AwsSettings(
            region=REGION, endpoint_url=self.endpoint_url, access_key_id="test", secret_access_key="test"
        )

    def client(self, **options: Any) -> Any:
        """A boto3 DynamoDB client of this server.

        :param options: further arguments of ``boto3.client``, which win over the defaults.
        """
        defaults: dict[str, Any] = {
            "endpoint_url": self.endpoint_url,
            "region_name": REGION,
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "config": Config(retries={"mode": "standard", "max_attempts": 3}, connect_timeout=5, read_timeout=60),
        }
        return boto3.client("dynamodb", **(defaults | options))

    def start(self) -> Self:
        """Start the server and wait until it answers.

        :raises DynamoDbServerError: if the server is not installed or does not come up.
        """
        if not (self._package / "ministack").is_dir():
            raise DynamoDbServerError(
                f"the DynamoDB server is not installed in '{self._package}': run `make servers`, "
                f"or set {SERVERS_VARIABLE} to the directory that holds ministack"
            )
        (self._port,) = free_ports(1)
        descriptor, log = tempfile.mkstemp(prefix="dynamodb-", suffix=".log")
        os.close(descriptor)
        self._log = Path(log)
        try:
            self._process = start_server(
                "the DynamoDB server",
                ending_with_its_input("dynamodb", [sys.executable, "-P", str(_ENGINE)]),
                answers=lambda: answers_http(f"{self.endpoint_url}/_ministack/health"),
                log=self._log,
                error=DynamoDbServerError,
                environment={
                    "PYTHONPATH": str(self._package),
                    "BIND_HOST": "127.0.0.1",
                    "GATEWAY_PORT": str(self._port),
                    "SERVICES": "dynamodb",
                    "IOT_MTLS_ENABLED": "0",
                    "SFTP_ENABLED": "0",
                    "LOG_LEVEL": "WARNING",
                },
            )
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the server and forget its data. Harmless if it does not run."""
        process, self._process = self._process, None
        stop_server(process)
        if self._log is not None:
            self._log.unlink(missing_ok=True)
            self._log = None
