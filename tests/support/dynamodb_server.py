"""An open DynamoDB engine on this machine, for tests and benchmarks: MiniStack, from the PyPI package `ministack`.

The same process has an engine for SQS.

`make servers` installs it into `.venv/servers`, since it requires other versions of packages than ours. The server
keeps everything in memory, a set of tables for each account and region, and cannot outlive the process that started it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from demo.local_kinesis import REGION, SERVERS_VARIABLE, local_client
from demo.server_process import ServerProcess, answers_http, ending_with_its_input, free_ports, start_server

_REPOSITORY = Path(__file__).resolve().parents[2]
_ENGINE = Path(__file__).with_name("dynamodb_engine.py")


class DynamoDbServerError(Exception):
    """The DynamoDB server is not installed or does not start; the message says what to do."""


class DynamoDbServer(ServerProcess):
    """A running DynamoDB server, as a context manager.

    It differs from AWS: nothing is throttled, expired items stay until a sweep, nobody is denied anything, and an
    index is never behind its table. A message of SQS is hidden to the second, is never received twice at once, and the
    handle of an earlier receipt is refused. `test_s3_queue.py` compares it with AWS's documentation.

    :param servers: the directory that holds ``ministack``; default ``$COORDINATION_SERVERS``, else ``.venv/servers`` of
        this repository.
    """

    def __init__(self, servers: Path | None = None) -> None:
        super().__init__("dynamodb")
        servers = servers or Path(os.environ.get(SERVERS_VARIABLE) or _REPOSITORY / ".venv" / "servers")
        self._package = servers / "ministack"

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
        return local_client("dynamodb", self.endpoint_url, options)

    def scans(self, table: str) -> int:
        """Return how many pages of scans of a table were requested."""
        assert self._folder is not None, "the server does not run"
        lines = (self._folder / "log").read_text(errors="replace").splitlines()
        return lines.count(f"scan of {table}")

    def sqs_client(self) -> Any:
        """A boto3 SQS client of this server."""
        return local_client("sqs", self.endpoint_url, {})

    def _launch(self, folder: Path) -> None:
        """Start the server and wait until it answers.

        :raises DynamoDbServerError: if the server is not installed or does not come up.
        """
        if not (self._package / "ministack").is_dir():
            raise DynamoDbServerError(
                f"the DynamoDB server is not installed in '{self._package}': run `make servers`, "
                f"or set {SERVERS_VARIABLE} to the directory that holds ministack"
            )
        (self._port,) = free_ports(1)
        self._process = start_server(
            "the DynamoDB server",
            ending_with_its_input("dynamodb", [sys.executable, "-P", str(_ENGINE)]),
            answers=lambda: answers_http(f"{self.endpoint_url}/_ministack/health"),
            log=folder / "log",
            error=DynamoDbServerError,
            environment={
                "PYTHONPATH": str(self._package),
                "BIND_HOST": "127.0.0.1",
                "GATEWAY_PORT": str(self._port),
                "SERVICES": "dynamodb,dynamodbstreams,sqs",
                "IOT_MTLS_ENABLED": "0",
                "SFTP_ENABLED": "0",
                "LOG_LEVEL": "WARNING",
            },
        )


def create_streamed_table(
    client: Any, name: str, view_type: str = "NEW_IMAGE", keys: Sequence[str] = ("id",), key_type: str = "S"
) -> None:
    """Create a table whose stream is on.

    :param client: a boto3 DynamoDB client.
    :param name: the table.
    :param view_type: what its stream holds.
    :param keys: the partition key, and the sort key if there is one.
    :param key_type: the type of both, as DynamoDB names it.
    """
    client.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": key, "KeyType": of} for key, of in zip(keys, ("HASH", "RANGE"), strict=False)],
        AttributeDefinitions=[{"AttributeName": key, "AttributeType": key_type} for key in keys],
        BillingMode="PAY_PER_REQUEST",
        StreamSpecification={"StreamEnabled": True, "StreamViewType": view_type},
    )
