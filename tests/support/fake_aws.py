"""An HTTP stand-in for AWS whose only meaningful responses are about credentials."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>{expiration}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class FakeAws(ThreadingHTTPServer):
    """Answers AssumeRole, and answers every call of a service that the resource does not exist.

    What `denied` names, such as `GetRecords`, is refused.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lifetime = timedelta(hours=1)
        self.denies = False
        self.denied: set[str] = set()
        self.assumed: list[dict[str, list[str]]] = []
        self.authorizations: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def fake_aws() -> Iterator[FakeAws]:
    """Run the server in a thread."""
    with FakeAws() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    server: FakeAws

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "X-Amz-Target" in self.headers:
            self.server.authorizations.append(self.headers["Authorization"])
            operation = self.headers["X-Amz-Target"].rpartition(".")[2]
            code = "AccessDeniedException" if operation in self.server.denied else "ResourceNotFoundException"
            self.answer(400, f'{{"__type": "{code}", "message": "no"}}')
        elif self.server.denies:
            self.answer(403, "<ErrorResponse><Error><Code>AccessDenied</Code></Error></ErrorResponse>")
        else:
            self.server.assumed.append(parse_qs(body.decode()))
            expiration = (datetime.now(UTC) + self.server.lifetime).strftime("%Y-%m-%dT%H:%M:%SZ")
            self.answer(200, ANSWER.format(key=f"ROLE{len(self.server.assumed)}", expiration=expiration))

    def answer(self, status: int, body: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass
