"""A server that takes OpenLineage's events, as Marquez does."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self


class LineageReceiver:
    """The receiver, as a context manager.

    :param hangs: whether it answers no request until it is closed.
    """

    def __init__(self, *, hangs: bool = False) -> None:
        self.events: list[dict[str, Any]] = []
        """What it has received, in order."""
        self._may_answer = Event()
        if not hangs:
            self._may_answer.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                receiver._may_answer.wait()
                receiver.events.append(event)
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    @property
    def transport(self) -> str:
        """The configuration `[openlineage] transport` for it."""
        url = f"http://127.0.0.1:{self._server.server_port}"
        return json.dumps({"type": "http", "url": url, "endpoint": "api/v1/lineage", "compression": None})

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._may_answer.set()
        self._server.shutdown()
        self._server.server_close()
