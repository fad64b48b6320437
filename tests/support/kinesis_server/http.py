"""The service over HTTP, for boto3: a thread for each connection, on the loopback interface.

The access key id alone identifies the caller; signatures are not checked. Every access key id is an account of its own,
so that tests that share the server share nothing else.
"""

from __future__ import annotations

import json
import re
import select
import socket
import struct
import threading
import uuid
from dataclasses import dataclass
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import boto3
from botocore.config import Config
from botocore.model import OperationNotFoundError

from airflow_provider_coordination.aws import AwsSettings
from demo.server_process import Server
from tests.support.kinesis_server import control, event_stream, json_wire
from tests.support.kinesis_server.clock import RealClock, ServerClock, VirtualClock
from tests.support.kinesis_server.consumers import NoEvent, Subscription
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.errors import ApiError, ConnectionCutError, validation
from tests.support.kinesis_server.model import complaints

LOOPBACK = "127.0.0.1"
CONTENT_TYPE = "application/x-amz-json-1.1"
_ACCESS_KEY = re.compile(r"Credential=([^/,\s]+)/")
_LOOK_SECONDS = 0.02


class KinesisServer(Server):
    """A running server, as a context manager.

    :param port: where it listens; 0 is any free port.
    :param clock: the clock of accounts that nobody set up; by default the machine's.
    """

    def __init__(self, port: int = 0, clock: ServerClock | None = None) -> None:
        self._clock = clock or RealClock()
        self._lock = threading.Lock()
        self._engines: dict[str, Engine] = {}
        self._http = _Http((LOOPBACK, port), self)
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.05}, name="kinesis-server", daemon=True
        )
        self.stopping = threading.Event()

    @property
    def endpoint_url(self) -> str:
        return f"http://{LOOPBACK}:{self._http.server_port}"

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop it; whoever is still connected is cut off."""
        self.stopping.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def wait(self) -> None:
        """Return when it is stopped."""
        self._thread.join()

    def account(self, clock: ServerClock | None = None, access_key_id: str | None = None) -> KinesisAccount:
        """Set up an account that has nothing.

        :param clock: its clock; by default a `VirtualClock`.
        :param access_key_id: by default one that nobody else has.
        """
        key = access_key_id or f"{uuid.uuid4().int % 10**12:012d}"
        engine = Engine(clock or VirtualClock(), account=_account_of(key))
        engine.neighbours = self._engine_of
        with self._lock:
            self._engines[key] = engine
        return KinesisAccount(self, key, engine)

    def engine(self, access_key_id: str) -> Engine:
        """Return the account that is behind a key; it is made at its first use."""
        with self._lock:
            if access_key_id not in self._engines:
                engine = self._engines[access_key_id] = Engine(self._clock, account=_account_of(access_key_id))
                engine.neighbours = self._engine_of
            return self._engines[access_key_id]

    def _engine_of(self, account: str) -> Engine | None:
        with self._lock:
            return next((engine for engine in self._engines.values() if engine.account == account), None)


@dataclass(frozen=True)
class KinesisAccount:
    """An account on a server: what there is in it is its own, time included.

    :param access_key_id: leads to it; any secret will do.
    :param engine: what is behind it.
    """

    server: KinesisServer
    access_key_id: str
    engine: Engine

    @property
    def clock(self) -> Any:
        """The account's clock: a `VirtualClock`, unless it was set up with another."""
        return self.engine.clock

    @property
    def endpoint_url(self) -> str:
        return self.server.endpoint_url

    def settings(self, **options: Any) -> AwsSettings:
        """Return how the package reaches it."""
        defaults: dict[str, Any] = {
            "region": self.engine.region,
            "endpoint_url": self.endpoint_url,
            "access_key_id": self.access_key_id,
            "secret_access_key": "test",
        }
        return AwsSettings(**(defaults | options))

    def client(self, **options: Any) -> Any:
        """Return a client of boto3 that repeats nothing.

        :param options: further arguments of `boto3.client`, which win over the defaults.
        """
        return http_client(self.endpoint_url, self.access_key_id, self.engine.region, **options)


def http_client(endpoint_url: str, access_key_id: str, region: str = "us-east-1", **options: Any) -> Any:
    """Return a client of boto3 that repeats nothing, for a server of this kind.

    :param options: further arguments of `boto3.client`, which win over the defaults.
    """
    defaults: dict[str, Any] = {
        "endpoint_url": endpoint_url,
        "region_name": region,
        "aws_access_key_id": access_key_id,
        "aws_secret_access_key": "test",
        "config": Config(retries={"mode": "standard", "total_max_attempts": 1}, connect_timeout=5, read_timeout=60),
    }
    return boto3.client("kinesis", **(defaults | options))


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], kinesis: KinesisServer) -> None:
        self.kinesis = kinesis
        super().__init__(address, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of clients that go away."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: _Http
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    timeout = 120

    def do_GET(self) -> None:
        self._answer_control({})

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        target = self.headers.get("X-Amz-Target")
        if target is None:
            self._answer_control(json.loads(content or b"{}"))
            return
        key = _ACCESS_KEY.search(self.headers.get("Authorization", ""))
        if key is None:
            self._send(RealClock(), 400, _error(ApiError("MissingAuthenticationTokenException", "no credentials")))
            return
        self._serve(self.server.kinesis.engine(key.group(1)), target.rpartition(".")[2], content)

    def _serve(self, engine: Engine, operation: str, content: bytes) -> None:
        try:
            request = json_wire.decoded(content)
            _require_valid(operation, request)
            answer = engine.call(operation, request)
        except ApiError as error:
            self._send(engine.clock, error.status, _error(error))
            return
        except ConnectionCutError:
            self._cut()
            return
        if answer.lost:
            if answer.subscription is not None:
                answer.subscription.end()
            self._cut()
        elif answer.subscription is not None:
            self._stream(engine, answer.subscription)
        else:
            self._send(engine.clock, 200, json_wire.encoded(answer.body), slow_seconds=answer.slow_seconds)

    def _stream(self, engine: Engine, subscription: Subscription) -> None:
        """Send the events of a subscription as they come, until it is over or the client gone."""
        self.close_connection = True
        try:
            self._begin(engine.clock, 200, event_stream.CONTENT_TYPE)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self._chunk(event_stream.initial_response())
            for message in self._messages(engine, subscription):
                self._chunk(message)
            self._chunk(b"")
        finally:
            subscription.end()

    def _messages(self, engine: Engine, subscription: Subscription) -> Any:
        while not self.server.kinesis.stopping.is_set() and not self._client_is_gone():
            try:
                event = subscription.next_event()
            except ApiError as error:
                yield event_stream.exception(error)
                return
            if event is NoEvent.MORE:
                return
            if isinstance(event, NoEvent):
                with engine.changed:
                    engine.changed.wait(_LOOK_SECONDS)
            else:
                yield event_stream.event(event)

    def _client_is_gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
        self.wfile.flush()

    def _answer_control(self, body: dict[str, Any]) -> None:
        try:
            answer = control.perform(self.server.kinesis.engine, self.path, body)
        except (ApiError, KeyError, TypeError, ValueError) as error:
            self._send(RealClock(), 400, json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
        else:
            self._send(RealClock(), 200, json.dumps(answer).encode())

    def _send(self, clock: ServerClock, status: int, content: bytes, *, slow_seconds: float = 0.0) -> None:
        self._begin(clock, status, CONTENT_TYPE)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if slow_seconds:
            self.wfile.write(content[:1])
            self.wfile.flush()
            self.server.kinesis.stopping.wait(slow_seconds)
            content = content[1:]
        self.wfile.write(content)
        self.wfile.flush()

    def _begin(self, clock: ServerClock, status: int, content_type: str) -> None:
        self.send_response_only(status)
        self.send_header("x-amzn-RequestId", str(uuid.uuid4()))
        self.send_header("Date", format_datetime(clock.now(), usegmt=True))
        self.send_header("Content-Type", content_type)

    def _cut(self) -> None:
        """End the connection as a machine does that crashes."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _require_valid(operation: str, request: dict[str, Any]) -> None:
    try:
        wrong = complaints(operation, request)
    except OperationNotFoundError:
        raise ApiError("UnknownOperationException", f"{operation} is no operation of the API") from None
    if wrong:
        raise validation(wrong)


def _error(error: ApiError) -> bytes:
    return json.dumps({"__type": error.code, "message": error.message}).encode()


def _account_of(access_key_id: str) -> str:
    return access_key_id if re.fullmatch(r"\d{12}", access_key_id) else "000000000000"
