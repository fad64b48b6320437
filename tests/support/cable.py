"""The network between a client and a server, which a test can cut and restore."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Cable:
    """Forwards a port of the loopback interface to a server, until it is cut.

    :param connect: makes a connection to the server.
    """

    def __init__(self, connect: Callable[[], socket.socket]) -> None:
        self._connect = connect
        self._whole = threading.Event()
        self._whole.set()
        self._refusing = False
        self._sockets: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.cut()
        self._whole.set()

    def cut(self) -> None:
        """End every connection, and refuse new ones."""
        self._refusing = True
        for end in list(self._sockets):
            self._close(end)

    def clog(self) -> None:
        """Keep every connection, accept new ones, and let nothing through."""
        self._whole.clear()

    def restore(self) -> None:
        """Let everything through again, what is waiting included."""
        self._refusing = False
        self._whole.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self._refusing:
                    client.close()
                    continue
                server = self._connect()
                self._sockets |= {client, server}
                for source, sink in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._whole.wait()
                sink.sendall(data)
        self._close(source)
        self._close(sink)

    def _close(self, end: socket.socket) -> None:
        self._sockets.discard(end)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
