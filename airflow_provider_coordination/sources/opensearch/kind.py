"""Indices of OpenSearch as a kind of source: what a DAG or a spec says of them, and how to reach their cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar
from urllib.parse import urlsplit

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.field_hints import Limits, Texts
from airflow_provider_coordination.settings import CONNECTED
from airflow_provider_coordination.sources.connections import ConnectionResolver, ConnectionValues
from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.questions import Question
from airflow_provider_coordination.sources.reads import RereadReads
from airflow_provider_coordination.sources.source_kind import DatasetName, Settings, host_of

FIELDS = ("use_ssl", "verify_certs", "ca_certs", "aws_conn_id", "region_name")
DEFAULT_PORT = 9200


@dataclass(frozen=True, kw_only=True)
class OpenSearchCluster:
    """The nodes of a cluster, and the credentials.

    :param hosts: the URLs of the nodes, such as `https://search.example.com:9200`; they are used in turn.
    :param user: the user, together with `password`.
    :param password: the user's password; never shown.
    :param aws: sign the requests with this identity instead, for a domain of Amazon OpenSearch Service.
    :param verify_certificates: whether the nodes' certificates must be valid.
    :param ca_certificates: a file, on every worker, with the certificates to trust; None for the default ones.
    :raises ConfigurationError: naming the field, the value and the remedy.
    """

    hosts: tuple[str, ...] = ("https://localhost:9200",)
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    aws: AwsSettings | None = None
    verify_certificates: bool = True
    ca_certificates: str | None = None

    def __post_init__(self) -> None:
        if not self.hosts:
            raise _invalid("hosts", "must name a node, such as 'https://search.example.com:9200'; got []")
        for host in self.hosts:
            _check_host(host)
        if bool(self.user) != bool(self.password):
            raise ConfigurationError("OpenSearch cluster: fields 'user' and 'password' must be given together")
        if self.user and self.aws is not None:
            raise ConfigurationError("OpenSearch cluster: give either 'user' with 'password', or 'aws'; got both")


def cluster_of(opensearch_conn_id: str, connections: ConnectionResolver) -> OpenSearchCluster:
    """Return the cluster of a connection.

    The host is one node, or several separated by commas, as names or URLs. Port and schema (`http` or `https`) apply to
    names. Login and password are those of the user. The extra may hold `use_ssl` (true by default), `verify_certs`
    (true by default) and `ca_certs`, a file on every worker. For Amazon OpenSearch Service, `aws_conn_id` signs the
    requests with an AWS connection instead, and `region_name` is the region of the domain.

    :param opensearch_conn_id: the connection, of any type.
    :param connections: resolves it.
    :raises ConfigurationError: if the connection is not defined, or a field is not valid.
    """
    name = f"OpenSearch connection {opensearch_conn_id!r}"
    values = connections.values(opensearch_conn_id, name)
    extra = values.extra
    for each in extra:
        if each not in FIELDS:
            raise ConfigurationError(
                f"{name}: unknown field {each!r} in its extra; the known fields are {', '.join(FIELDS)}"
            )
    for each in ("use_ssl", "verify_certs"):
        if not isinstance(extra.get(each, True), bool):
            raise ConfigurationError(f"{name}: field {each!r} must be true or false; got {extra[each]!r}")
    aws = None
    if "aws_conn_id" in extra:
        aws = connections.aws(extra["aws_conn_id"], extra.get("region_name"), "es")
    return OpenSearchCluster(
        hosts=_hosts(name, values),
        user=values.login,
        password=values.password,
        aws=aws,
        verify_certificates=extra.get("verify_certs", True),
        ca_certificates=extra.get("ca_certs"),
    )


def _hosts(name: str, values: ConnectionValues) -> tuple[str, ...]:
    if not values.host:
        raise ConfigurationError(f"{name}: its host is empty; give a node, such as 'search.example.com'")
    scheme = values.schema if values.schema in ("http", "https") else None
    scheme = scheme or ("https" if values.extra.get("use_ssl", True) else "http")
    port = values.port or (443 if "aws_conn_id" in values.extra else DEFAULT_PORT)
    hosts = [host.strip() for host in values.host.split(",") if host.strip()]
    return tuple(host if "://" in host else f"{scheme}://{host}:{port}" for host in hosts)


def _check_host(host: str) -> None:
    parts = urlsplit(host)
    if parts.username or parts.password:
        raise _invalid(
            "hosts", f"must not contain a password; give {parts.scheme}://{parts.hostname} with 'user' and 'password'"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _invalid("hosts", f"must contain URLs that begin with http:// or https://; got {host!r}")


def _invalid(name: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"OpenSearch cluster: field {name!r} {problem}")


POINT_IN_TIME = "point_in_time"
SCROLL = "scroll"
MAX_SLICES = 1024
"""The maximum number of slices of an index, unless its settings have another limit."""
MAX_PAGE_DOCUMENTS = 10_000
"""The maximum number of documents that a search returns, unless the index's settings have another limit."""


@dataclass
class OpenSearchIndices(RereadReads):
    """Indices of an OpenSearch cluster, for the `reads` of operators.

    :param indices: a name, or a list of names, of indices, aliases and data streams; `*` matches any characters.
        Hidden indices, and indices whose names begin with a dot, are left out unless the given name also begins with a
        dot. (templated)
    :param exclude: names of indices to leave out, with the same wildcard. (templated)
    :param slices: the minimum number of slices of an index; by default one for each shard. (templated)
    :param query: read only documents that match this query, in OpenSearch's query DSL; all by default. (templated)
    :param page_documents: the maximum number of documents in a page, up to 10,000; large documents make smaller pages,
        of about 4 MB. (templated)
    :param context: how to keep a consistent view of a slice while it is read: `"point_in_time"` or `"scroll"`; by
        default what the server supports. (templated)
    :param opensearch_conn_id: the connection to the cluster. (templated)
    :param source: the source's name if the operator sets none; `opensearch-<indices>` by default. (templated)
    """

    kind: ClassVar[str] = "opensearch"

    indices: Annotated[Texts, Limits(min_items=1)]
    _: KW_ONLY
    exclude: Texts = ()
    slices: Annotated[int | None, Limits(minimum=1, maximum=MAX_SLICES)] = None
    query: Mapping[str, Any] | None = None
    page_documents: Annotated[int, Limits(minimum=1, maximum=MAX_PAGE_DOCUMENTS)] = 1000
    context: Annotated[str | None, Limits(one_of=(POINT_IN_TIME, SCROLL))] = None
    opensearch_conn_id: str = "opensearch_default"
    cluster: OpenSearchCluster = field(default_factory=OpenSearchCluster, repr=False, metadata=CONNECTED)

    @property
    @override
    def own_name(self) -> str:
        return f"opensearch-{','.join(self.listed('indices'))}"

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        return {"opensearch_conn_id": self.opensearch_conn_id, "indices": sorted(self.listed("indices"))}

    @override
    def set_connections(self, connections: ConnectionResolver) -> None:
        self.cluster = cluster_of(self.opensearch_conn_id, connections)

    @override
    def check_together(self) -> None:
        super().check_together()
        for field_name in ("indices", "exclude"):
            for name in getattr(self, field_name):
                if not name or "," in name or name.startswith("-"):
                    raise self.invalid(
                        field_name,
                        "must be one name or pattern each, such as 'logs-*'; use 'exclude' to leave some out",
                    )


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    host = host_of(next(iter(settings["cluster"]["hosts"]), None)) or "opensearch"
    return (DatasetName(f"opensearch://{host}", pattern) for pattern in settings["indices"])


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the names of indices that no name matches now; a wider or a narrower pattern leaves nothing."""
    patterns = now.get("indices", ())
    for name in before.get("indices", ()):
        if not any(fnmatchcase(name, pattern) or fnmatchcase(pattern, name) for pattern in patterns):
            yield f"index {name!r}"


KIND = ItemKind(
    "opensearch",
    "airflow_provider_coordination.sources.opensearch.slices:SliceReader",
    _datasets,
    reads="airflow_provider_coordination.sources.opensearch.kind:OpenSearchIndices",
    left=_left,
    supplier="airflow_provider_coordination.sources.opensearch.slices:SliceSupplier",
    is_peeked=True,
    questions=(
        Question(
            option="index",
            text="Index, alias or data stream; * matches any characters",
            field="indices",
            pattern=r"[^\s,/\\\"<>|#?A-Z]+",
            words="a name in lower case without spaces",
        ),
        Question(
            option="source-conn-id",
            text="Airflow connection to the cluster",
            field="opensearch_conn_id",
            default="opensearch_default",
        ),
    ),
)
