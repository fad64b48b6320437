"""A proxy before an HTTP server that counts requests and injects faults.

The server is one for S3, or a REST catalog.
"""

from __future__ import annotations

import http.client
import re
import socket
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from airflow_provider_coordination.aws import AwsSettings
from tests.support.waiting import PATIENCE_SECONDS

UNAVAILABLE_BODY = b"<Error><Code>ServiceUnavailable</Code><Message>Reduce your request rate.</Message></Error>"
FORBIDDEN_BODY = b"<Error><Code>AccessDenied</Code><Message>Access Denied.</Message></Error>"

UNKNOWN_BODY = b"<Error><Code>NotImplemented</Code><Message>No such thing here.</Message></Error>"

XML = {"Content-Type": "application/xml"}


class Fault(StrEnum):
    """The fault of a request."""

    CUT = "cut off"
    """The server gets half of it."""
    UNAVAILABLE = "503"
    """The server does not get it, and the client is asked to come again."""
    FORBIDDEN = "403"
    """The server does not get it, and the client is refused."""
    UNAUTHORIZED = "401"
    """The server does not get it, and the client must authenticate again."""
    UNKNOWN = "501"
    """The server does not get it, and the client gets the answer that there is no such request."""
    OVERDUE = "504"
    """The server does it, and a gateway says that no answer came in time."""
    LOST = "answered into the void"
    """The server does it, and the client gets no answer."""
    HELD = "held"
    """It is on its way until somebody lets it through."""
    ANSWERED = "answered"
    """The server does not get it, and the client gets an answer that the test has."""


@dataclass(frozen=True)
class Refusal:
    """An error response of S3.

    :param code: of the error.
    :param message: for people.
    :param status: of HTTP.
    :param more: further elements of the error, as XML.
    :param headers: of the answer.
    """

    code: str
    message: str
    status: int = 403
    more: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def body(self) -> bytes:
        """The error as XML."""
        return f"<Error><Code>{self.code}</Code><Message>{self.message}</Message>{self.more}</Error>".encode()


@dataclass
class PlannedFault:
    """A fault for the next requests that match a pattern.

    :param what: a regular expression over method and path, such as `PUT .*a-1.parquet`.
    :param left: how many requests.
    :param refusal: what the client gets that is `ANSWERED`.
    """

    what: str
    fault: Fault
    left: int = 1
    refusal: Refusal | None = None
    reached: threading.Event = field(default_factory=threading.Event)
    let_through: threading.Event = field(default_factory=threading.Event)


class FaultyS3:
    """A proxy on the loopback interface, as a context manager.

    :param settings: how the server behind it is reached.
    """

    def __init__(self, settings: AwsSettings) -> None:
        self._behind = settings
        self._lock = threading.Lock()
        self._troubles: list[PlannedFault] = []
        self.requests: list[str] = []
        """Method and path of each request."""
        self.seconds = 0.0
        """How long each request is on its way."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def settings(self) -> AwsSettings:
        """How clients reach it."""
        return replace(self._behind, endpoint_url=f"http://127.0.0.1:{self._server.server_address[1]}")

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for trouble in self._troubles:
            trouble.let_through.set()
        self._server.shutdown()
        self._server.server_close()

    def make(self, what: str, fault: Fault, times: int = 1, refusal: Refusal | None = None) -> PlannedFault:
        """Let the next requests of a sort go wrong."""
        trouble = PlannedFault(what, fault, times, refusal)
        with self._lock:
            self._troubles.append(trouble)
        return trouble

    def _trouble(self, what: str) -> PlannedFault | None:
        with self._lock:
            self.requests.append(what)
            for trouble in self._troubles:
                if trouble.left and re.search(trouble.what, what):
                    trouble.left -= 1
                    return trouble
        return None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer, address = self, urlsplit(self._behind.endpoint_url or "").netloc

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, format: str, *args: object) -> None:
                pass

            def answer(self) -> None:
                body = self._body()
                trouble = outer._trouble(f"{self.command} {self.path}")
                time.sleep(outer.seconds)
                match trouble and trouble.fault:
                    case Fault.UNAVAILABLE:
                        self._send(503, XML, UNAVAILABLE_BODY)
                        return
                    case Fault.FORBIDDEN:
                        self._send(403, XML, FORBIDDEN_BODY)
                        return
                    case Fault.UNAUTHORIZED:
                        self._send(401, XML, FORBIDDEN_BODY)
                        return
                    case Fault.UNKNOWN:
                        self._send(501, XML, UNKNOWN_BODY)
                        return
                    case Fault.ANSWERED:
                        assert trouble is not None
                        assert trouble.refusal is not None
                        self._send(trouble.refusal.status, {**XML, **trouble.refusal.headers}, trouble.refusal.body)
                        return
                    case Fault.CUT:
                        self._forward_half(body)
                        self._hang_up()
                        return
                    case Fault.HELD:
                        assert trouble is not None
                        trouble.reached.set()
                        trouble.let_through.wait(PATIENCE_SECONDS)
                connection = http.client.HTTPConnection(address, timeout=PATIENCE_SECONDS)
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() != "expect":
                        connection.putheader(name, value)
                connection.endheaders(body)
                answered = connection.getresponse()
                content, status, headers = answered.read(), answered.status, dict(answered.getheaders())
                connection.close()
                match trouble and trouble.fault:
                    case Fault.LOST:
                        self._hang_up()
                    case Fault.OVERDUE:
                        self._send(504, XML, UNAVAILABLE_BODY)
                    case _:
                        self._send(status, headers, content)

            def _body(self) -> bytes:
                """Read what the client sends, in chunks as they are where it sends chunks."""
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                read = b""
                while True:
                    line = self.rfile.readline()
                    size = int(line.partition(b";")[0], 16)
                    read += line + self.rfile.read(size + len(b"\r\n"))
                    if not size:
                        return read

            def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers.items():
                    if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                        self.send_header(name, value)
                length = headers.get("Content-Length", "0") if self.command == "HEAD" else str(len(content))
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            def _forward_half(self, body: bytes) -> None:
                host, _, port = address.partition(":")
                with socket.create_connection((host, int(port))) as server:
                    headers = "".join(f"{n}: {v}\r\n" for n, v in self.headers.items() if n.lower() != "expect")
                    server.sendall(f"{self.command} {self.path} HTTP/1.1\r\n{headers}\r\n".encode())
                    server.sendall(body[: len(body) // 2])

            def _hang_up(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        for method in ("GET", "PUT", "POST", "HEAD", "DELETE"):
            setattr(Handler, f"do_{method}", Handler.answer)
        return Handler
