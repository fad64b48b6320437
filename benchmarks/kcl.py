"""Amazon's Kinesis Client Library for Java, and its adapter for DynamoDB Streams, as peers of the benchmarks.

Each reads a stream and counts what it has.

Usage: python -m benchmarks.kcl, which fetches both with their dependencies, some 150 MB, into the folder of servers.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyspark

from demo.local_kinesis import SERVERS_VARIABLE
from tests.support.dynamodb_server import DynamoDbServer

REPOSITORY = Path(__file__).resolve().parents[1]
SERVERS = Path(os.environ.get(SERVERS_VARIABLE) or REPOSITORY / ".venv" / "servers")


@dataclass(frozen=True)
class Library:
    """A library of Maven Central, with a program that reads a stream with it.

    :param organisation: the library's group.
    :param name: its name there.
    :param version: its version.
    :param program: the file of the program, beside this one.
    """

    organisation: str
    name: str
    version: str
    program: str

    @property
    def folder(self) -> Path:
        """The folder of its files and those of its dependencies."""
        return SERVERS / f"{self.name}-{self.version}"

    @property
    def is_fetched(self) -> bool:
        """Whether it has been fetched."""
        return (self.folder / "complete").exists()

    def fetch(self) -> None:
        """Fetch it with Spark's Ivy."""
        [ivy] = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        settings = os.environ.get("IVY_SETTINGS")
        with tempfile.TemporaryDirectory() as cache:
            command = ["java", "-jar", str(ivy), *(("-settings", settings) if settings else ())]
            command += ["-dependency", self.organisation, self.name, self.version, "-confs", "default"]
            command += ["-types", "jar", "bundle", "-cache", cache]
            command += ["-retrieve", f"{self.folder}/[artifact]-[revision].[ext]"]
            subprocess.run(command, check=True)
        (self.folder / "complete").touch()


KCL = Library("software.amazon.kinesis", "amazon-kinesis-client", "3.5.1", "Count.java")
STREAMS_ADAPTER = Library("com.amazonaws", "dynamodb-streams-kinesis-adapter", "2.0.1", "CountChanges.java")


class Counting:
    """A JVM that reads a stream once for each call of `read`, with its leases in a DynamoDB engine of its own.

    :param library: what it reads with.
    """

    def __init__(self, library: Library) -> None:
        self._library = library

    def __enter__(self) -> Self:
        self._dynamodb = DynamoDbServer().start()
        program = Path(__file__).with_name(self._library.program)
        # The servers of pages support only JSON.
        command = ["java", "-Xmx2g", "-Daws.cborEnabled=false", "-cp", f"{self._library.folder}/*", str(program)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        return self

    def __exit__(self, *arguments: object) -> None:
        self._process.communicate()
        self._dynamodb.stop()

    def read(self, endpoint_url: str | None, *details: object) -> list[str]:
        """Read a stream; return the fields that the program prints.

        :param endpoint_url: of the service.
        :param details: what the program gets beside the endpoints.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(" ".join(map(str, (endpoint_url, self._dynamodb.endpoint_url, *details))) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().split()


if __name__ == "__main__":
    for library in (KCL, STREAMS_ADAPTER):
        library.fetch()
        print(f"{library.folder}: {len(list(library.folder.glob('*.jar')))} jars", file=sys.stderr)
