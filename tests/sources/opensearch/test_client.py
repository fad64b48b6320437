"""Requests to a cluster that refuses, throttles or is unreachable."""

from __future__ import annotations

import base64
import gzip
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import ItemGoneError, ItemUnreadableError, SourceUnavailableError
from airflow_provider_coordination.sources.opensearch.client import MAX_ATTEMPTS, OpenSearchClient, ViewLostError
from airflow_provider_coordination.sources.opensearch.kind import OpenSearchCluster, OpenSearchIndices
from airflow_provider_coordination.sources.opensearch.slices import Views
from demo.server_process import free_ports

SECRET = "never-to-be-seen-4711"
ITEM = {"index": "logs", "uuid": "u", "shards": 1, "slice": 0, "slices": 1}


class StubNode(ThreadingHTTPServer):
    """Returns the given responses one after the other, and then an empty object."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, Any]] = []
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: StubNode

    def _answer(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append((self.command, self.path, dict(self.headers), content))
        status, body = self.server.answers.pop(0) if self.server.answers else (200, {})
        data = gzip.compress(body if isinstance(body, bytes) else json.dumps(body).encode())
        self.send_response(status)
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - http.server's names

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def running() -> Iterator[StubNode]:
    with StubNode() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def node(running: StubNode) -> StubNode:
    running.answers, running.requests = [], []
    return running


def client(*hosts: str, sleep: Callable[[float], None] = lambda seconds: None, **changes: Any) -> OpenSearchClient:
    return OpenSearchClient(OpenSearchCluster(hosts=hosts, **changes), sleep)


def failing(kind: str, reason: str = "so it is") -> dict[str, Any]:
    """Return an error in the form of OpenSearch."""
    cause = {"type": kind, "reason": reason}
    return {"error": {"root_cause": [cause], "type": "search_phase_execution_exception", "reason": "all failed"}}


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_throttled_request_is_retried_with_growing_pauses(node: StubNode, status: int) -> None:
    pauses: list[float] = []
    node.answers = [(status, failing("rejected_execution_exception"))] * (MAX_ATTEMPTS - 1) + [(200, {"a": 1})]
    assert client(node.url, sleep=pauses.append).json("GET", "/", about="its version") == {"a": 1}
    assert len(pauses) == MAX_ATTEMPTS - 1 and pauses == sorted(pauses) and pauses[0] > 0


def test_constantly_throttling_cluster_is_unavailable(node: StubNode) -> None:
    node.answers = [(429, failing("circuit_breaking_exception", "Data too large"))] * 20
    with pytest.raises(SourceUnavailableError, match=r"too many requests; .* \(429\): Data too large"):
        client(node.url).json("GET", "/", about="its version")
    assert len(node.requests) == MAX_ATTEMPTS


def test_non_idempotent_request_is_sent_once(node: StubNode) -> None:
    node.answers = [(503, {})]
    with pytest.raises(SourceUnavailableError):
        client(node.url).send("POST", "/_search/scroll", about="a scroll", repeat=False)
    assert len(node.requests) == 1


def test_unresponsive_node_is_replaced_by_another(node: StubNode) -> None:
    [closed] = free_ports(1)
    asking = client(f"http://127.0.0.1:{closed}", node.url)
    assert [asking.json("GET", "/", about="its version") for _ in range(4)] == [{}] * 4


def test_unresponsive_cluster_is_unavailable() -> None:
    [closed] = free_ports(1)
    with pytest.raises(SourceUnavailableError, match=r"no response: .*; check hosts and the network"):
        client(f"http://127.0.0.1:{closed}").json("GET", "/", about="its version")


@pytest.mark.parametrize(
    ("status", "body", "error", "says"),
    [
        (401, b"Unauthorized", ConfigurationError, r"access denied \(401\): Unauthorized; check user and password"),
        (403, failing("security_exception", "no permissions"), ConfigurationError, "no permissions"),
        (404, failing("index_not_found_exception"), ItemGoneError, "does not exist any more"),
        (400, failing("index_closed_exception"), ItemUnreadableError, "it is closed; open it"),
        (403, failing("cluster_block_exception", "blocked by: [index read]"), ItemUnreadableError, "index read"),
        (404, failing("search_context_missing_exception"), ViewLostError, "the view that was read no longer exists"),
        (500, failing("null_pointer_exception"), SourceUnavailableError, "the cluster is unavailable"),
        (400, failing("parsing_exception", "unknown query [x]"), ConfigurationError, r"unknown query \[x\]"),
    ],
)
def test_refusal_names_its_cause_and_whether_to_retry(
    node: StubNode, status: int, body: Any, error: type[Exception], says: str
) -> None:
    node.answers = [(status, body)]
    with pytest.raises(error, match=says) as caught:
        client(node.url, user="me", password=SECRET).json("GET", "/logs", about="index 'logs'")
    assert type(caught.value) is error and SECRET not in str(caught.value) and "index 'logs'" in str(caught.value)


def test_server_other_than_opensearch_is_reported(node: StubNode) -> None:
    node.answers = [(200, b"<html>")]
    with pytest.raises(SourceUnavailableError, match=r"is not JSON; check that .* is OpenSearch, and not a proxy"):
        client(node.url).json("GET", "/", about="its version")


def test_user_is_sent_with_each_request(node: StubNode) -> None:
    client(node.url, user="mé", password=SECRET).json("GET", "/", about="its version")
    [(_, _, headers, _)] = node.requests
    assert base64.b64decode(headers["Authorization"].removeprefix("Basic ")).decode() == f"mé:{SECRET}"


def test_requests_to_amazon_opensearch_service_are_signed(node: StubNode) -> None:
    aws = AwsSettings(region="eu-west-1", access_key_id="AKIA", secret_access_key=SECRET, session_token="token")
    client(node.url, aws=aws).send("POST", "/logs-%2A/_search", about="x", parameters={"a": "b c"}, body={"size": 1})
    [(_, path, headers, content)] = node.requests
    assert (path, json.loads(content)) == ("/logs-%2A/_search?a=b+c", {"size": 1})
    assert headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIA/")
    assert "/eu-west-1/es/aws4_request" in headers["Authorization"] and headers["X-Amz-Security-Token"] == "token"


@pytest.mark.parametrize("part", [{"timed_out": True}, {"_shards": {"failed": 1}}])
def test_partial_search_is_never_taken_as_complete(node: StubNode, part: dict[str, Any]) -> None:
    settings = OpenSearchIndices("*", context="scroll")
    node.answers = [(200, {"hits": {"hits": []}, "_shards": {"failed": 0}, "_scroll_id": "s", **part})]
    with pytest.raises(SourceUnavailableError, match=r"the search (timed out|failed on 1 shards); check the health"):
        list(Views(client(node.url), settings).pages(ITEM, -1))


def test_document_without_a_stored_source_is_unreadable(node: StubNode) -> None:
    settings = OpenSearchIndices("*", context="scroll")
    hit = {"_id": "a", "sort": [0]}
    node.answers = [(200, {"hits": {"hits": [hit]}, "_shards": {"failed": 0}, "_scroll_id": "s"})]
    with pytest.raises(ItemUnreadableError, match="document 'a' has no _source"):
        list(Views(client(node.url), settings).pages(ITEM, -1))


@pytest.mark.parametrize(
    ("version", "path"),
    [
        ({"distribution": "opensearch", "number": "2.4.0"}, "/logs/_search/point_in_time"),
        ({"distribution": "opensearch", "number": "3.1.0"}, "/logs/_search/point_in_time"),
        ({"distribution": "opensearch", "number": "2.3.0"}, "/logs/_search"),
        ({"number": "7.10.2"}, "/logs/_search"),
    ],
)
def test_server_version_selects_the_view(node: StubNode, version: dict[str, str], path: str) -> None:
    empty = {"hits": {"hits": []}, "_shards": {"failed": 0}, "pit_id": "p", "_scroll_id": "s"}
    node.answers = [(200, {"version": version}), (200, empty), (200, empty), (200, {})]
    assert list(Views(client(node.url), OpenSearchIndices("*")).pages(ITEM, -1)) == [[]]
    assert node.requests[1][1].partition("?")[0] == path


def test_page_size_follows_document_size(node: StubNode) -> None:
    settings = OpenSearchIndices("*", context="point_in_time", page_documents=5000)

    def page(first: int, count: int) -> tuple[int, Any]:
        hits = [{"_id": str(n), "sort": [n], "_source": {"x": "y" * 83886}} for n in range(first, first + count)]
        return 200, {"hits": {"hits": hits}, "_shards": {"failed": 0}}

    node.answers = [(200, {"pit_id": "p"}), page(0, 100), page(100, 1)]
    list(Views(client(node.url), settings).pages(ITEM, -1))
    sizes = [json.loads(content)["size"] for _, path, _, content in node.requests if path.startswith("/_search?")]
    assert sizes == [100, 49]
