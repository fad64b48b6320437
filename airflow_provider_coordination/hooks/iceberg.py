"""Iceberg catalogs as portable settings: the catalog properties of a connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from airflow.sdk import Connection

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import airflow_connection

DATABASES = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "sqlite": "sqlite",
}
"""The SQLAlchemy name of a database, by connection type."""


def catalog_properties(catalog_conn_id: str) -> dict[str, str]:
    """Return the catalog properties of a connection, as pyiceberg names them.

    A connection to a database is a catalog in that database. For any other connection the host is the catalog's URI,
    login and password form its `credential`, and a password alone is its `token`. The extra holds further properties,
    which override these.

    :param catalog_conn_id: the connection.
    :raises ConfigurationError: if the connection is not defined, or its extra is not valid.
    """
    name = f"catalog connection {catalog_conn_id!r}"
    try:
        connection = airflow_connection(catalog_conn_id, name, "create it")
        extra = connection.extra_dejson
    except ValueError:
        raise ConfigurationError(f"{name}: its extra is not JSON") from None
    for field, value in extra.items():
        if not isinstance(value, str | int | bool):
            raise ConfigurationError(
                f"{name}: field {field!r} in its extra must be text, a property of the catalog; got a value of type "
                f"{type(value).__name__}"
            )
    own = _of_database(connection) if connection.conn_type in DATABASES else _of_service(connection)
    return {**own, **{field: _text(value) for field, value in extra.items()}}


def storage_properties(aws: AwsSettings) -> dict[str, str]:
    """Return the properties by which pyiceberg reaches S3 and Glue, from AWS settings."""
    values = {
        "client.region": aws.region,
        "client.access-key-id": aws.access_key_id,
        "client.secret-access-key": aws.secret_access_key,
        "client.session-token": aws.session_token,
        "client.role-arn": aws.role_arn,
        "s3.endpoint": aws.endpoint_url,
    }
    return {name: value for name, value in values.items() if value}


def _of_database(connection: Connection) -> dict[str, str]:
    driver = DATABASES[str(connection.conn_type)]
    if driver == "sqlite":
        return {"type": "sql", "uri": f"sqlite:///{connection.host or connection.schema or ''}"}
    user = quote(connection.login or "", safe="")
    secret = f":{quote(connection.password, safe='')}" if connection.password else ""
    port = f":{connection.port}" if connection.port else ""
    login = f"{user}{secret}@" if user else ""
    return {"type": "sql", "uri": f"{driver}://{login}{connection.host or ''}{port}/{connection.schema or ''}"}


def _of_service(connection: Connection) -> dict[str, str]:
    properties: dict[str, str] = {}
    if host := connection.host:
        port = f":{connection.port}" if connection.port else ""
        properties["uri"] = host if "://" in host else f"{connection.schema or 'https'}://{host}{port}"
    if connection.password:
        credential = {"credential": f"{connection.login}:{connection.password}"}
        properties |= credential if connection.login else {"token": connection.password}
    return properties


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def location_of(properties: Mapping[str, str]) -> str:
    """Return the location of a catalog, without secrets."""
    uri = properties.get("uri", "")
    scheme, separator, rest = uri.partition("://")
    if not separator:
        return properties.get("type", "default")
    return f"{rest.rpartition('@')[2].partition('?')[0].strip('/')}" or scheme
