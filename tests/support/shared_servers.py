"""One set of servers for all processes of a test run.

The process that distributes the tests starts a server when the first of the others asks for it, and stops it at the
end. The others get a copy of the server's object, which knows the address and stops nothing.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import defaultdict
from collections.abc import Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import TypeVar, cast

import pytest

from demo.server_process import Server

ADDRESS_VARIABLE = "TEST_SERVERS"
"""Names the socket of the process that lends servers."""

Kind = TypeVar("Kind", bound=Server)


class Lender:
    """Starts servers for other processes, each at its first use."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="coordination-servers-")
        self.address = str(Path(self._folder.name) / "socket")
        self._listener = Listener(self.address, "AF_UNIX", backlog=64)
        self._locks: defaultdict[type[Server], threading.Lock] = defaultdict(threading.Lock)
        self._running: dict[type[Server], Server] = {}
        self._stack = contextlib.ExitStack()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Stop the servers."""
        self._listener.close()
        self._stack.close()
        self._folder.cleanup()

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._lend, args=(connection,), daemon=True).start()

    def _lend(self, connection: Connection) -> None:
        with connection:
            kind = connection.recv()
            try:
                with self._locks[kind]:
                    if kind not in self._running:
                        self._running[kind] = self._stack.enter_context(kind())
                connection.send(self._running[kind])
            except Exception as error:
                connection.send(error)


@contextlib.contextmanager
def running(kind: type[Kind]) -> Iterator[Kind]:
    """Give a running server: the one of the whole test run, or one of this process where it runs all tests.

    :param kind: makes the server; takes no arguments.
    :raises Exception: what the start of the server raised.
    """
    address = os.environ.get(ADDRESS_VARIABLE)
    if address is None:
        with kind() as server:
            yield server
        return
    with Client(address, "AF_UNIX") as connection:
        connection.send(kind)
        response = connection.recv()
    if isinstance(response, Exception):
        raise response
    yield cast("Kind", response)


def pytest_configure(config: pytest.Config) -> None:
    """Lend servers where this process distributes tests to others."""
    if config.getoption("dist", "no") != "no" and not hasattr(config, "workerinput"):
        lender = Lender()
        os.environ[ADDRESS_VARIABLE] = lender.address

        def end() -> None:
            del os.environ[ADDRESS_VARIABLE]
            lender.close()

        config.add_cleanup(end)
