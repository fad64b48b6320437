"""Requests to OpenSearch, the translation of its errors, and the indices of a cluster.

boto3 already depends on urllib3, and a few endpoints need no client library. A request that is throttled or gets no
response is repeated with growing pauses, at another node if there are several.
"""

from __future__ import annotations

import json
import logging
import random
import re
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import count
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from airflow_provider_coordination.aws import aws_session
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.texts import sentence
from airflow_provider_coordination.sources.items import ItemGoneError, ItemUnreadableError, SourceUnavailableError
from airflow_provider_coordination.sources.opensearch.kind import OpenSearchCluster, OpenSearchIndices

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 60.0
CONNECTIONS_PER_NODE = 20
MAX_ATTEMPTS = 5
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 8.0
REASON_CHARACTERS = 500
RETRYABLE_STATUSES = frozenset({408, 429, 502, 503, 504})
"""The status codes after which trying again may help."""


class ViewLostError(SourceUnavailableError):
    """The view of an index no longer exists: it expired, or its node went down."""


class OpenSearchClient:
    """Sends requests to a cluster. Threads may share it.

    :param cluster: the hosts and the credentials.
    :param sleep: waits that many seconds.
    """

    def __init__(self, cluster: OpenSearchCluster, sleep: Callable[[float], None] = time.sleep) -> None:
        self._cluster = cluster
        self._sleep = sleep
        self._nodes = [host.rstrip("/") for host in cluster.hosts]
        self._turns = count(random.randrange(len(self._nodes)))

    def json(self, method: str, path: str, *, about: str, **request: Any) -> Any:
        """Send a request and return its parsed response; see `send`."""
        body = self.send(method, path, about=about, **request)
        try:
            return json.loads(body)
        except ValueError:
            raise SourceUnavailableError(
                f"{about}: the response is not JSON; check that {self._nodes[0]} is OpenSearch, and not a proxy"
            ) from None

    def send(
        self,
        method: str,
        path: str,
        *,
        about: str,
        parameters: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        repeat: bool = True,
    ) -> bytes:
        """Send a request and return the body of its response.

        :param path: begins with `/`, percent-encoded.
        :param about: what the request concerns, for errors, such as `index 'logs'`.
        :param parameters: the query parameters.
        :param body: sent as JSON.
        :param repeat: whether it may be sent twice.
        :raises ItemGoneError: if the index does not exist.
        :raises ItemUnreadableError: if the index is closed, or blocked.
        :raises ViewLostError: if the view that it names no longer exists.
        :raises SourceUnavailableError: if trying again later may help.
        :raises ConfigurationError: if the user must fix something.
        """
        from urllib3.exceptions import HTTPError, LocationValueError, SSLError

        target = path + (f"?{urlencode(parameters)}" if parameters else "")
        content = None if body is None else json.dumps(body).encode()
        pauses = self._pauses() if repeat else iter(())
        while True:
            node = self._nodes[next(self._turns) % len(self._nodes)]
            try:
                response = self._pool.request(
                    method, node + target, body=content, headers=self._headers(method, node + target, content)
                )
                if response.status < 300:
                    return bytes(response.data)
                failure = _refusal(response.status, bytes(response.data), f"OpenSearch at {node}: {about}")
                if response.status not in RETRYABLE_STATUSES:
                    raise failure
            except (LocationValueError, UnicodeError, OSError) as error:  # such as a missing file of certificates
                raise ConfigurationError(f"OpenSearch at {node}: {about}: {error}; check the settings") from error
            except HTTPError as error:
                if isinstance(getattr(error, "reason", error), SSLError):
                    raise ConfigurationError(
                        f"OpenSearch at {node}: {about}: its certificate is not trusted: {sentence(error)}; give "
                        "'ca_certificates', or check the host's name"
                    ) from error
                failure = SourceUnavailableError(
                    f"OpenSearch at {node}: {about}: no response: {sentence(error)}; check hosts and the network"
                )
            pause = next(pauses, None)
            if pause is None:
                raise failure
            log.debug("%s; trying again in %.2f s", failure, pause)
            self._sleep(pause)

    def _pauses(self) -> Iterator[float]:
        longest = FIRST_PAUSE_SECONDS
        for _ in range(MAX_ATTEMPTS - 1):
            yield random.uniform(longest / 2, longest)
            longest = min(2 * longest, LONGEST_PAUSE_SECONDS)

    @cached_property
    def _pool(self) -> Any:
        import urllib3

        return urllib3.PoolManager(
            maxsize=CONNECTIONS_PER_NODE,
            cert_reqs="CERT_REQUIRED" if self._cluster.verify_certificates else "CERT_NONE",
            ca_certs=self._cluster.ca_certificates,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=READ_TIMEOUT_SECONDS),
        )

    def _headers(self, method: str, url: str, content: bytes | None) -> dict[str, str]:
        headers = {"Accept-Encoding": "gzip"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if self._cluster.user:
            token = b64encode(f"{self._cluster.user}:{self._cluster.password}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        return headers if self._cluster.aws is None else self._signed(method, url, content, headers)

    def _signed(self, method: str, url: str, content: bytes | None, headers: dict[str, str]) -> dict[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        request = AWSRequest(method=method, url=url, data=content or b"", headers={"Host": urlsplit(url).netloc})
        try:
            credentials = self._session.get_credentials()
            if credentials is None:
                raise ConfigurationError(
                    "OpenSearch cluster: field 'aws' has no credentials, and the AWS SDK finds none; give an AWS "
                    "connection with keys, or provide credentials in the AWS default credential chain"
                )
            SigV4Auth(credentials, "es", self._session.region_name).add_auth(request)
        except BotoCoreError as error:
            raise ConfigurationError(f"OpenSearch cluster: field 'aws': {sentence(error)}") from error
        return {**headers, **dict(request.headers.items())}

    @cached_property
    def _session(self) -> Any:
        assert self._cluster.aws is not None
        session = aws_session(self._cluster.aws)
        if not session.region_name:
            raise ConfigurationError("OpenSearch cluster: field 'aws' needs a region, for which requests are signed")
        return session


def index_path(name: str) -> str:
    """Return the path of an index, or of a pattern."""
    return "/" + quote(name, safe="")


def _refusal(status: int, body: bytes, about: str) -> CoordinationError:
    try:
        error = json.loads(body).get("error")
    except (AttributeError, ValueError):
        error = body.decode(errors="replace")
    kinds, reason = set(_kinds(error)), _reason(error)
    if "index_not_found_exception" in kinds:
        return ItemGoneError(f"{about}: it does not exist any more")
    if "index_closed_exception" in kinds:
        return ItemUnreadableError(f"{about}: it is closed; open it, or exclude it and remove its partitions")
    if kinds & {"search_context_missing_exception", "search_context_exception"}:
        return ViewLostError(f"{about}: the view that was read no longer exists: {reason}")
    if "cluster_block_exception" in kinds and status not in RETRYABLE_STATUSES:
        return ItemUnreadableError(f"{about}: it is blocked: {reason}; remove the block")
    if status in (401, 403):
        return ConfigurationError(
            f"{about}: access denied ({status}): {reason}; check user and password, or the AWS identity, and its "
            "permissions in the cluster"
        )
    if status in RETRYABLE_STATUSES or status >= 500:
        cause = "too many requests; read fewer slices at a time" if status == 429 else "the cluster is unavailable"
        return SourceUnavailableError(f"{about}: {cause} ({status}): {reason}")
    return ConfigurationError(f"{about}: refused ({status}): {reason}; check the settings")


def _kinds(error: Any) -> Iterator[str]:
    """Yield the types of an error and of its causes."""
    if isinstance(error, Mapping):
        if isinstance(error.get("type"), str):
            yield error["type"]
        for name in ("root_cause", "failed_shards", "caused_by", "reason"):
            yield from _kinds(error.get(name))
    elif isinstance(error, list):
        for each in error:
            yield from _kinds(each)


def _reason(error: Any) -> str:
    """Return the innermost reason, which is the most specific."""
    cause: Any = error
    while isinstance(cause, Mapping):
        roots = cause.get("root_cause")
        if isinstance(roots, list) and roots and isinstance(roots[0], Mapping):
            cause = {key: value for key, value in roots[0].items() if key != "root_cause"}
        elif isinstance(cause.get("caused_by"), Mapping):
            cause = cause["caused_by"]
        else:
            cause = cause.get("reason") or cause.get("type") or ""
    return " ".join(str(cause or "").split())[:REASON_CHARACTERS] or "no reason is given"


STREAM_INDEX = ".ds-"
"""The prefix of the names of a data stream's indices."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """An index.

    :param name: its name.
    :param uuid: distinguishes it from other indices of the same name.
    :param shards: the number of primary shards, which never changes.
    :param bytes: the size of the primary shards.
    :param is_open: whether it can be read.
    """

    name: str
    uuid: str
    shards: int
    bytes: int
    is_open: bool


def select_indices(client: OpenSearchClient, settings: OpenSearchIndices) -> Iterator[Index]:
    """Yield the indices that the settings select, each once.

    Hidden indices and system indices are only selected by a name that begins with a dot.

    :raises SourceUnavailableError: if the cluster is unavailable.
    :raises ConfigurationError: if the cluster denies access.
    """
    seen: set[str] = set()
    for pattern in settings.indices:
        for index in find_indices(client, pattern):
            wanted = not index.name.startswith(".") or index.name.startswith(STREAM_INDEX) or pattern.startswith(".")
            excluded = any(fnmatchcase(index.name, out) for out in settings.exclude)
            if wanted and not excluded and index.name not in seen:
                seen.add(index.name)
                yield index


def find_indices(client: OpenSearchClient, pattern: str) -> list[Index]:
    """Return the indices of a name, an alias, a data stream or a pattern; empty if there is none."""
    parameters = {
        "format": "json",
        "bytes": "b",
        "h": "index,uuid,pri,pri.store.size,status",
        "expand_wildcards": "open,closed,hidden" if pattern.startswith(".") else "open,closed",
    }
    path = f"/_cat/indices{index_path(pattern)}"
    try:
        rows = client.json("GET", path, about=f"indices {pattern!r}", parameters=parameters)
    except ItemGoneError:
        return []
    return [
        Index(
            name=row["index"],
            uuid=row["uuid"],
            shards=int(row["pri"] or 1),
            bytes=int(row["pri.store.size"] or 0),
            is_open=row["status"] == "open",
        )
        for row in rows
    ]


@dataclass(frozen=True, kw_only=True)
class IndexPart:
    """A part of an index.

    :param filter: a query that its documents match; None for all.
    :param shards: the numbers of the shards that hold them; None for all.
    """

    filter: dict[str, Any] | None = None
    shards: frozenset[int] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole index."""
        return self.filter is None and self.shards is None


WHOLE = IndexPart()


def selected_part(client: OpenSearchClient, settings: OpenSearchIndices, name: str, shards: int) -> IndexPart | None:
    """Return the part of an open index that the settings select now.

    :param name: the index.
    :param shards: its number of shards.
    :returns: None if no name of the settings selects the index any more.
    :raises SourceUnavailableError: if the cluster is unavailable.
    """
    if any(_matches(pattern, name) for pattern in settings.indices):
        return WHOLE
    parameters = {"ignore_unavailable": "true", "expand_wildcards": "open,hidden"}
    path = index_path(",".join(settings.indices)) + "/_search_shards"
    try:
        response = client.json("GET", path, about=f"aliases of index {name!r}", parameters=parameters)
    except ItemGoneError:
        return None
    if name not in response["indices"]:
        return None
    routed = frozenset(copy["shard"] for copies in response["shards"] for copy in copies if copy["index"] == name)
    return IndexPart(filter=response["indices"][name].get("filter"), shards=None if len(routed) == shards else routed)


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None
