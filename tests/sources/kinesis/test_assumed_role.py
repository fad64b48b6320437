"""Credentials of a role are fetched on first use, and again before they expire."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from airflow_provider_coordination.sources.kinesis.client import KinesisSettings, kinesis_client
from airflow_provider_coordination.sources.kinesis.errors import AccessDeniedError, StreamNotFoundError
from airflow_provider_coordination.sources.kinesis.shards import describe_stream

ROLE = "arn:aws:iam::123456789012:role/reader"
ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken>
<Expiration>{expiration}</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>"""


class FakeAws(ThreadingHTTPServer):
    """Answers AssumeRole, and tells every Kinesis call that the stream does not exist."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lifetime = timedelta(hours=1)
        self.denies = False
        self.assumed: list[dict[str, list[str]]] = []
        self.kinesis_authorizations: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeAws

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if "X-Amz-Target" in self.headers:
            self.server.kinesis_authorizations.append(self.headers["Authorization"])
            self.answer(400, '{"__type": "ResourceNotFoundException", "message": "no"}')
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


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeAws]:
    with FakeAws() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", server.url)
        yield server
        server.shutdown()
        thread.join()


def describe_twice(aws: FakeAws) -> None:
    settings = KinesisSettings(
        region="eu-west-1",
        endpoint_url=aws.url,
        role_arn=ROLE,
        external_id="ours",
        access_key_id="AKIA",
        secret_access_key="hush",
        max_attempts=1,
    )
    client = kinesis_client(settings)
    for _ in range(2):
        with pytest.raises(StreamNotFoundError):
            describe_stream(client, "clicks")


def test_calls_are_signed_as_the_role_which_is_assumed_once(aws: FakeAws) -> None:
    describe_twice(aws)

    [request] = aws.assumed
    assert (request["RoleArn"], request["ExternalId"]) == ([ROLE], ["ours"])
    assert ["Credential=ROLE1/" in authorization for authorization in aws.kinesis_authorizations] == [
        True,
        True,
    ]


def test_a_role_is_assumed_again_before_its_credentials_expire(aws: FakeAws) -> None:
    aws.lifetime = timedelta(minutes=5)

    describe_twice(aws)

    first, second = (authorization.split("/")[0] for authorization in aws.kinesis_authorizations)
    assert first != second


def test_a_role_that_cannot_be_assumed_is_a_clear_error(aws: FakeAws) -> None:
    aws.denies = True

    with pytest.raises(AccessDeniedError, match=r"the role cannot be assumed.*check role_arn"):
        describe_twice(aws)
