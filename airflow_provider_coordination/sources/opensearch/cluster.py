"""How to reach an OpenSearch cluster: its nodes and the credentials, by an Airflow connection."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.connections import ConnectionResolver, ConnectionValues

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
