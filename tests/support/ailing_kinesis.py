"""A Kinesis endpoint with a few records in each shard, one of whose responses is malformed."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any

from airflow_provider_coordination.aws import AwsSettings

FIRST = 10**55
ARRIVED = 1767268800.0


def record(number: int, data: bytes = b"x") -> dict[str, object]:
    return {
        "SequenceNumber": str(FIRST + number),
        "ApproximateArrivalTimestamp": ARRIVED + number,
        "Data": base64.b64encode(data).decode(),
        "PartitionKey": "key",
    }


class AilingKinesis(ThreadingHTTPServer):
    """Each shard has one page of records, which `page` may change, and is idle after it."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ended = threading.Event()
        self.page: list[dict[str, object]] = [record(1), record(2)]
        self.ill: Callable[[_Handler, bytes], None] | None = None
        """How the answer to GetRecords for `ill_shard` is sent."""
        self.ill_shard = "shardId-000000000000"
        self.connections = 0
        """How many were opened."""
        self.ill_after = 0
        """How many pages of it come as they should."""

    def process_request(self, *connection: Any) -> None:
        self.connections += 1
        super().process_request(*connection)

    @property
    def settings(self) -> AwsSettings:
        return AwsSettings(
            region="eu-west-1",
            endpoint_url=f"http://127.0.0.1:{self.server_address[1]}",
            access_key_id="AKIA",
            secret_access_key="hush",
        )


class _Handler(BaseHTTPRequestHandler):
    server: AilingKinesis
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["X-Amz-Target"].endswith("GetShardIterator"):
            number = request.get("StartingSequenceNumber")
            self.answer(json.dumps({"ShardIterator": f"{request['ShardId']}/{1 if number else 0}"}).encode())
            return
        shard, _, page = request["ShardIterator"].partition("/")
        records = self.server.page if page == "0" else []
        body = {"Records": records, "NextShardIterator": f"{shard}/1", "MillisBehindLatest": 0}
        is_ill = shard == self.server.ill_shard and int(page) >= self.server.ill_after
        send = self.server.ill if is_ill and self.server.ill else _Handler.answer
        send(self, json.dumps(body).encode())

    def answer(self, body: bytes, status: int = 200, length: int | None = None) -> None:
        """Answer; with another length than the body has, the connection ends behind it."""
        self.head(status, len(body) if length is None else length)
        self.wfile.write(body)
        self.close_connection = length is not None

    def head(self, status: int, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/x-amz-json-1.1")
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def trickles(handler: _Handler, body: bytes) -> None:
    """Send a byte now and then, for hours."""
    handler.head(200, 10**6)
    for _ in count():
        handler.wfile.write(b" ")
        if handler.server.ended.wait(0.05):
            return


def hangs(handler: _Handler, body: bytes) -> None:
    """Send nothing."""
    handler.server.ended.wait()


def is_cut_off(handler: _Handler, body: bytes) -> None:
    handler.answer(body[: len(body) // 2], length=len(body))


def is_no_json(handler: _Handler, body: bytes) -> None:
    handler.answer(b"<html>welcome</html>")


def is_refused_without_a_code(handler: _Handler, body: bytes) -> None:
    handler.answer(b"<html>too many requests</html>", status=429)


@contextmanager
def ailing_kinesis() -> Iterator[AilingKinesis]:
    with AilingKinesis() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.ended.set()
            server.shutdown()
            thread.join()
