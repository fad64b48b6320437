"""Amazon's Kinesis Client Library for Java, as a peer of the benchmarks: it reads a stream and counts its bytes.

Usage: python -m benchmarks.kcl, which fetches the library and its dependencies, some 75 MB, into the folder of servers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

import pyspark

from airflow_provider_coordination.aws import AwsSettings
from demo.local_kinesis import SERVERS_VARIABLE
from tests.support.dynamodb_server import DynamoDbServer

VERSION = "3.5.1"
REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = Path(os.environ.get(SERVERS_VARIABLE) or REPOSITORY / ".venv" / "servers") / f"kcl-{VERSION}"
COUNT = Path(__file__).with_name("Count.java")


def is_fetched() -> bool:
    """Return whether the library has been fetched."""
    return (FOLDER / "complete").exists()


def fetch() -> None:
    """Fetch the library with Spark's Ivy."""
    [ivy] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
    settings = os.environ.get("IVY_SETTINGS")
    with tempfile.TemporaryDirectory() as cache:
        command = ["java", "-jar", str(ivy), *(("-settings", settings) if settings else ())]
        command += ["-dependency", "software.amazon.kinesis", "amazon-kinesis-client", VERSION, "-confs", "default"]
        command += ["-types", "jar", "bundle", "-cache", cache, "-retrieve", f"{FOLDER}/[artifact]-[revision].[ext]"]
        subprocess.run(command, check=True)
    (FOLDER / "complete").touch()


class Kcl:
    """A JVM that reads a stream once for each call of `read`, with its leases in a DynamoDB engine of its own."""

    def __enter__(self) -> Self:
        self._dynamodb = DynamoDbServer().start()
        # The server of pages supports only JSON.
        command = ["java", "-Xmx2g", "-Daws.cborEnabled=false", "-cp", f"{FOLDER}/*", str(COUNT)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return self

    def __exit__(self, *arguments: object) -> None:
        self._process.communicate()
        self._dynamodb.stop()

    def read(self, aws: AwsSettings, records: int) -> tuple[int, int, float]:
        """Read a stream; return its records, their bytes, and the processor seconds since the first shard began."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{aws.endpoint_url} {self._dynamodb.endpoint_url} {records}\n")
        self._process.stdin.flush()
        read, size, seconds = self._process.stdout.readline().split()
        return int(read), int(size), float(seconds)


if __name__ == "__main__":
    fetch()
    print(f"{FOLDER}: {len(list(FOLDER.glob('*.jar')))} jars", file=sys.stderr)
