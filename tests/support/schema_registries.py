"""A server with the APIs of schema registries: Confluent's, and GetSchemaVersion of AWS Glue."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Any, Self


class SchemaRegistry:
    """A registry, as a context manager.

    :param answers: the answer to each path of Confluent's API, and to each version of AWS Glue.
    :param login: the login and password that requests must have; None for none.
    """

    def __init__(self, answers: Mapping[str, Any], login: tuple[str, str] | None = None) -> None:
        self.answers = answers
        self.requests: list[str] = []
        self.status: int | None = None
        """The status of all answers, for a registry that is down; None for a sound one."""
        registry, wanted = self, None if login is None else f"Basic {b64encode(':'.join(login).encode()).decode()}"

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if wanted is not None and self.headers["Authorization"] != wanted:
                    self.answer(401, {"error_code": 40101, "message": "Unauthorized"})
                    return
                found = registry.found(self.path)
                self.answer(200 if found else 404, found or {"error_code": 40403, "message": "Schema not found"})

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                found = registry.found(request["SchemaVersionId"])
                self.answer(200 if found else 400, found or {"__type": "EntityNotFoundException"})

            def answer(self, status: int, body: Any) -> None:
                status = registry.status or status
                content = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def found(self, name: str) -> Any:
        """Return the answer to a request."""
        self.requests.append(name)
        return self.answers.get(name)

    def __enter__(self) -> Self:
        Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
