"""Servers that the demo and the tests start: child processes that cannot outlive the process that started them."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_TIMEOUT_SECONDS = 240.0
STOP_TIMEOUT_SECONDS = 30.0
FIRST_PORT = 10_000
LAST_PORT = 32_768
"""The first of Linux's ports for outgoing connections; other systems begin higher."""
PORTS_PER_PROCESS = 128

_tried = itertools.count()
_LAUNCH = 'exec 3<&0; "$@" 3<&- & child=$!; { cat <&3 >/dev/null; kill $child; } & wait $child'


class Server(ABC):
    """A server that runs while its context lasts, or from `start` to `stop`."""

    def __enter__(self) -> Self:
        """Start it."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it."""
        self.stop()

    @abstractmethod
    def start(self) -> Self:
        """Start it, and wait until it responds."""

    @abstractmethod
    def stop(self) -> None:
        """Stop it. Harmless if it does not run."""


class ServerProcess(Server):
    """A server that is one child process, with a port of the loopback interface and a folder that goes with it.

    :param name: begins the name of its folder.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._folder: Path | None = None

    def __getstate__(self) -> dict[str, Any]:
        """A copy in another process knows the address of the server, and cannot stop it."""
        return self.__dict__ | {"_process": None, "_folder": None}

    @property
    def endpoint_url(self) -> str:
        """The URL of the server, for example ``http://127.0.0.1:40123``."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> Self:
        """Start it, and wait until it responds; what has begun is stopped if it does not."""
        self._folder = Path(tempfile.mkdtemp(prefix=f"{self._name}-"))
        try:
            self._launch(self._folder)
        except BaseException:
            self.stop()
            raise
        return self

    @abstractmethod
    def _launch(self, folder: Path) -> None:
        """Set the port and the process, which keeps its log and data in a folder."""

    def stop(self) -> None:
        """Stop it, and discard its data. Harmless if it does not run."""
        process, self._process = self._process, None
        stop_server(process)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def start_server(
    name: str,
    command: Sequence[str],
    *,
    answers: Callable[[], bool],
    log: Path,
    error: type[Exception],
    environment: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a server that ends when its standard input closes, and wait until it responds.

    :param name: the name of the server in errors.
    :param command: the program and its arguments; see `ending_with_its_input` for one that does not end with its input.
    :param answers: returns whether the server is up.
    :param log: the file to which its output is appended.
    :param error: the exception to raise if it ends or does not respond within a minute.
    :param environment: variables in addition to this process's own.
    """
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            env=os.environ | dict(environment or {}),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    try:
        while not answers():
            if process.poll() is not None:
                raise error(f"{name} ended during its start: {_tail(log)}")
            if time.monotonic() > deadline:
                raise error(f"{name} did not respond within {START_TIMEOUT_SECONDS:.0f} s: {_tail(log)}")
            time.sleep(0.05)
    except BaseException:
        stop_server(process)
        raise
    return process


def stop_server(process: subprocess.Popen[bytes] | None) -> None:
    """Stop a server by closing its input; kill it if that does not help. Harmless if there is none."""
    if process is None:
        return
    assert process.stdin is not None
    process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ending_with_its_input(name: str, command: Sequence[str]) -> list[str]:
    """Return a command that runs another one until standard input closes, and so ends with its parent process."""
    return ["/bin/sh", "-c", _LAUNCH, name, *command]


def answers_http(url: str) -> bool:
    """Return whether a server responds at a URL, with any status."""
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def free_ports(count: int) -> list[int]:
    """Return free ports of the loopback interface that no other process takes before a server listens there.

    They are below the ports that systems use for outgoing connections, and processes with different ids begin their
    search at different ports.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = FIRST_PORT + (os.getpid() * PORTS_PER_PROCESS + next(_tried)) % (LAST_PORT - FIRST_PORT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            ports.append(port)
    return ports


def _tail(log: Path, lines: int = 20) -> str:
    text = log.read_text(errors="replace").strip()
    return "\n".join(text.splitlines()[-lines:]) or "it printed nothing"
