"""`DynamoDbStreams` as a server on this machine, by the wall clock: tables for jobs of any process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from botocore import xform_name

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.override import override
from tests.support.dynamodb_streams import REGION, ApiRefusedError, DynamoDbStreams
from tests.support.kinesis_server.clock import VirtualClock


class WallClock(VirtualClock):
    """The time of this machine, which nobody moves."""

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)

    @override
    def monotonic(self) -> float:
        return time.monotonic()


class TableServer:
    """A server; what a test changes, it changes by `service` while it holds `lock`."""

    def __init__(self) -> None:
        self.service = DynamoDbStreams(WallClock())
        self.lock = Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())

    @property
    def settings(self) -> AwsSettings:
        """How clients reach it."""
        endpoint = f"http://127.0.0.1:{self._server.server_port}"
        return AwsSettings(region=REGION, endpoint_url=endpoint, access_key_id="test", secret_access_key="test")

    @contextmanager
    def serving(self) -> Iterator[TableServer]:
        """Answer calls while the context lasts."""
        Thread(target=self._server.serve_forever, daemon=True).start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                operation = xform_name(self.headers["X-Amz-Target"].rpartition(".")[2])
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = server.answer(operation, request)
                body = json.dumps(answer, default=datetime.timestamp).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/x-amz-json-1.0")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """The service counts its calls."""

        return Handler

    def answer(self, operation: str, request: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the body of the answer to a call."""
        with self.lock:
            try:
                return 200, self.service.call(operation, request)
            except ApiRefusedError as refusal:
                code, message = refusal.args
                return 400, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message}
