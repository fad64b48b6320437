"""A server in a process of its own, started and controlled by a test."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.kinesis_server.http import http_client

_REPOSITORY = Path(__file__).resolve().parents[3]


class KinesisServerProcess:
    """A running server, as a context manager. Its time is the machine's.

    :param access_key_id: the account that it and its clients use.
    """

    def __init__(self, access_key_id: str = "test") -> None:
        self.access_key_id = access_key_id
        self.endpoint_url = ""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.kinesis_server", "--port", "0"]
        self._process = subprocess.Popen(command, cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.endpoint_url = self._process.stdout.readline().strip()
        if not self.endpoint_url:
            raise RuntimeError(f"the Kinesis server did not start: it ended with {self._process.wait()}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        process = self._process
        if process is not None:
            process.terminate()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def client(self, **options: Any) -> Any:
        """Return a client of boto3 that repeats nothing; see `http_client`."""
        return http_client(self.endpoint_url, self.access_key_id, **options)

    def control(self, what: str, **arguments: Any) -> dict[str, Any]:
        """Do what `control.py` describes, such as `control("trim", stream="clicks")`."""
        content = json.dumps({"access_key_id": self.access_key_id, **arguments}).encode()
        request = urllib.request.Request(f"{self.endpoint_url}/test/{what}", data=content, method="POST")
        with urllib.request.urlopen(request, timeout=60) as response:
            answer: dict[str, Any] = json.load(response)
        return answer
