"""The settings of OpenSearch sources, which are passed to the Spark job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.rereading import check_rereading

POINT_IN_TIME = "point_in_time"
SCROLL = "scroll"
CONTEXTS = (POINT_IN_TIME, SCROLL)
MAX_SLICES = 1024
"""The maximum number of slices of an index, unless its settings have another limit."""
MAX_PAGE_DOCUMENTS = 10_000
"""The maximum number of documents that a search returns, unless the index's settings have another limit."""


@dataclass(frozen=True, kw_only=True)
class OpenSearchSettings:
    """Some indices of an OpenSearch cluster.

    :param hosts: the URLs of the cluster's nodes, such as `https://search.example.com:9200`; they are used in turn.
    :param user: the user, together with `password`.
    :param password: the user's password; never shown.
    :param aws: sign the requests with this identity instead, for a domain of Amazon OpenSearch Service.
    :param verify_certificates: whether the nodes' certificates must be valid.
    :param ca_certificates: a file, on every worker, with the certificates to trust; None for the default ones.
    :param indices: names of indices, aliases and data streams; `*` matches any characters.
    :param exclude: names of indices to leave out, in the same form.
    :param slices: the minimum number of slices of an index; None for one slice a shard.
    :param query: read only documents that match, in OpenSearch's query DSL; None for all.
    :param page_documents: the maximum number of documents that are requested at a time.
    :param context: how a view of a slice is kept while it is read: `"point_in_time"` or `"scroll"`; None to choose
        what the server supports.
    :param interval_seconds: read each slice again this many seconds after it is delivered; None for never.
    :param count: how often it is read in total; None for no limit. Only with `interval_seconds`.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """

    hosts: tuple[str, ...]
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    aws: AwsSettings | None = None
    verify_certificates: bool = True
    ca_certificates: str | None = None
    indices: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    slices: int | None = None
    query: dict[str, Any] | None = None
    page_documents: int = 1000
    context: str | None = None
    interval_seconds: float | None = None
    count: int | None = None

    def __post_init__(self) -> None:
        if not self.hosts:
            raise _invalid("hosts", list(self.hosts), "must name a node, such as 'https://search.example.com:9200'")
        for host in self.hosts:
            _check_host(host)
        if bool(self.user) != bool(self.password):
            raise ConfigurationError("OpenSearch settings: fields 'user' and 'password' must be given together")
        if self.user and self.aws is not None:
            raise ConfigurationError("OpenSearch settings: give either 'user' with 'password', or 'aws'; got both")
        if not self.indices or not all(self.indices):
            raise _invalid("indices", list(self.indices), "must name indices, such as 'logs-*'")
        for name in (*self.indices, *self.exclude):
            if "," in name or name.startswith("-"):
                raise _invalid("indices", name, "must be one name or pattern each; use 'exclude' to leave indices out")
        if self.slices is not None and not 1 <= self.slices <= MAX_SLICES:
            raise _invalid("slices", self.slices, f"must be from 1 to {MAX_SLICES}")
        if not 1 <= self.page_documents <= MAX_PAGE_DOCUMENTS:
            raise _invalid("page_documents", self.page_documents, f"must be from 1 to {MAX_PAGE_DOCUMENTS}")
        if self.context is not None and self.context not in CONTEXTS:
            raise _invalid("context", self.context, f"must be {' or '.join(map(repr, CONTEXTS))}")
        check_rereading("OpenSearch settings", self.interval_seconds, self.count)

    @property
    def reads_left(self) -> int | None:
        """How often each slice is read after the first time; None for no limit."""
        return None if self.count is None else self.count - 1


def _check_host(host: str) -> None:
    parts = urlsplit(host)
    if parts.username or parts.password:
        raise ConfigurationError(
            f"OpenSearch settings: field 'hosts' must not contain a password; give {parts.scheme}://"
            f"{parts.hostname} with 'user' and 'password'"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _invalid("hosts", host, "must contain URLs that begin with http:// or https://")


def _invalid(name: str, value: object, remedy: str) -> ConfigurationError:
    return ConfigurationError(f"OpenSearch settings: field {name!r} {remedy}; got {value!r}")
