"""OpenSearch connections as portable settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Connection

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.aws import aws_settings
from airflow_provider_coordination.hooks.connections import airflow_connection

FIELDS = ("use_ssl", "verify_certs", "ca_certs", "aws_conn_id", "region_name")
DEFAULT_PORT = 9200


def opensearch_cluster(opensearch_conn_id: str) -> dict[str, Any]:
    """Return how to reach a cluster, from a connection, as fields of `OpenSearchSettings`.

    The host is one node, or several separated by commas, as names or URLs. Port and schema (`http` or `https`) apply to
    names. Login and password are those of the user. The extra may hold `use_ssl` (true by default), `verify_certs`
    (true by default) and `ca_certs`, a file on every worker. For Amazon OpenSearch Service, `aws_conn_id` signs the
    requests with an AWS connection instead, and `region_name` is the region of the domain.

    :param opensearch_conn_id: the connection, of any type.
    :raises ConfigurationError: if the connection is not defined, or a field is not valid.
    """
    name = f"OpenSearch connection {opensearch_conn_id!r}"
    try:
        connection = airflow_connection(opensearch_conn_id, name, "create it")
        extra = connection.extra_dejson
    except ValueError as error:
        raise ConfigurationError(f"{name}: its extra is not JSON: {error}") from None
    for field in extra:
        if field not in FIELDS:
            raise ConfigurationError(
                f"{name}: unknown field {field!r} in its extra; the known fields are {', '.join(FIELDS)}"
            )
    for field in ("use_ssl", "verify_certs"):
        if not isinstance(extra.get(field, True), bool):
            raise ConfigurationError(f"{name}: field {field!r} must be true or false; got {extra[field]!r}")
    signs = "aws_conn_id" in extra
    return {
        "hosts": _hosts(name, connection, extra),
        "user": connection.login or None,
        "password": connection.password or None,
        "aws": aws_settings(extra["aws_conn_id"], extra.get("region_name"), service="es") if signs else None,
        "verify_certificates": extra.get("verify_certs", True),
        "ca_certificates": extra.get("ca_certs"),
    }


def _hosts(name: str, connection: Connection, extra: Mapping[str, Any]) -> tuple[str, ...]:
    if not connection.host:
        raise ConfigurationError(f"{name}: its host is empty; give a node, such as 'search.example.com'")
    scheme = connection.schema if connection.schema in ("http", "https") else None
    scheme = scheme or ("https" if extra.get("use_ssl", True) else "http")
    port = connection.port or (443 if "aws_conn_id" in extra else DEFAULT_PORT)
    hosts = [host.strip() for host in connection.host.split(",") if host.strip()]
    return tuple(host if "://" in host else f"{scheme}://{host}:{port}" for host in hosts)
