"""Airflow's database connections in the form that Spark needs: a JDBC URL, with separate login and password.

The task also queries the database from Python. It uses the hook of the connection's provider if that is installed, and
otherwise SQLAlchemy, for PostgreSQL, MySQL, MariaDB and SQLite.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowException

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import airflow_connection

PORTS = {"postgresql": 5432, "mysql": 3306}
TYPES = {"postgres": "postgresql", "postgresql": "postgresql", "mysql": "mysql", "mariadb": "mysql", "sqlite": "sqlite"}
"""The connection types that determine a URL, and the database's name in the URL."""
TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Options that PostgreSQL's own clients, Airflow's connections and the JDBC driver name in the same way."""
CONNECT_TIMEOUT_SECONDS = 10

_SERVER = re.compile(r"jdbc:(postgresql|mysql)://([^/?:,]+|\[[^\]]+\])(?::(\d+))?/([^?]*)(?:\?(.*))?")
_MODULES = {"postgresql": ("psycopg", "postgres"), "mysql": ("pymysql", "mysql")}


@dataclass(frozen=True, kw_only=True)
class JdbcConnection:
    """How to connect to a database, from Spark and from Python.

    :param url: the JDBC URL, without user and password.
    :param user: the user.
    :param password: the password; never shown.
    :param properties: further driver properties from the connection; never shown.
    :param connect: opens a connection from Python, as PEP 249 describes it.
    """

    url: str
    user: str | None
    password: str | None = field(repr=False)
    properties: Mapping[str, str] = field(repr=False)
    connect: Callable[[], Any] = field(repr=False)


def jdbc_connection(conn_id: str, url: str | None = None) -> JdbcConnection:
    """Resolve an Airflow connection, without connecting to the database.

    :param conn_id: a connection of any type with host, port, schema, login and password; or with a complete JDBC URL
        as its host.
    :param url: a JDBC URL, if the connection's type does not determine one.
    :raises ConfigurationError: naming the connection, and what is missing.
    """
    connection = airflow_connection(
        conn_id, f"connection {conn_id!r}", "create it, of the database's type or of type 'jdbc'"
    )
    jdbc_url = url or _url_of(connection)
    user, password = connection.login or None, connection.password or None
    extra = connection.extra_dejson
    properties = {name: str(extra[name]) for name in TLS if name in extra} if jdbc_url.startswith("jdbc:postg") else {}
    return JdbcConnection(
        url=jdbc_url,
        user=user,
        password=password,
        properties=properties,
        connect=lambda: _opening(connection, jdbc_url, properties)(),
    )


def _url_of(connection: Connection) -> str:
    """Return the JDBC URL of a connection."""
    name = f"connection {connection.conn_id!r}"
    host = connection.host or ""
    if host.startswith("jdbc:"):
        return host
    kind = TYPES.get(connection.conn_type or "")
    if kind is None:
        raise ConfigurationError(
            f"{name}: a connection of type {connection.conn_type!r} does not determine a JDBC URL; give 'url', or the "
            f"complete JDBC URL as its host. The types that determine one are {', '.join(TYPES)}"
        )
    if not host:
        raise ConfigurationError(f"{name}: field 'host' is missing; name the database server")
    if kind == "sqlite":
        return f"jdbc:sqlite:{host}"
    if not connection.schema:
        raise ConfigurationError(f"{name}: field 'schema' is missing; name the database")
    return f"jdbc:{kind}://{host}:{connection.port or PORTS[kind]}/{connection.schema}"


def _opening(connection: Connection, url: str, properties: Mapping[str, str]) -> Callable[[], Any]:
    """Return a function that opens a connection from Python."""
    is_whole_url = (connection.host or "").startswith("jdbc:")
    if connection.conn_type == "jdbc" or not is_whole_url:
        try:
            hook: Any = connection.get_hook()  # type: ignore[no-untyped-call]
        except (AirflowException, ImportError):  # the provider of this type is not installed
            hook = None
        if hasattr(hook, "get_records"):
            return hook.get_conn  # type: ignore[no-any-return]
    return _engine_of(connection, url, properties)


def _engine_of(connection: Connection, url: str, properties: Mapping[str, str]) -> Callable[[], Any]:
    import sqlalchemy as sa
    from sqlalchemy.pool import NullPool

    if url.startswith("jdbc:sqlite:"):
        target = sa.URL.create("sqlite", database=url.removeprefix("jdbc:sqlite:").removeprefix("file:"))
        return sa.create_engine(target, poolclass=NullPool).raw_connection
    match = _SERVER.fullmatch(url)
    if match is None:
        raise ConfigurationError(
            f"connection {connection.conn_id!r}: the task cannot query this database from Python; install the Airflow "
            f"provider of the connection's type {connection.conn_type!r}, or use a type that has a provider"
        )
    kind, host, port, database, options = match.groups()
    driver, extra = _MODULES[kind]
    parameters = {name.lower(): value for name, value in parse_qsl(options or "")} | dict(properties)
    target = sa.URL.create(
        f"{kind}+{driver}",
        username=connection.login or None,
        password=connection.password or None,
        host=host.strip("[]"),
        port=int(port or PORTS[kind]),
        database=database,
        query={name: parameters[name] for name in TLS if name in parameters} if kind == "postgresql" else {},
    )
    try:
        engine = sa.create_engine(target, poolclass=NullPool, connect_args={"connect_timeout": CONNECT_TIMEOUT_SECONDS})
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"connection {connection.conn_id!r}: {error.name!r} is not installed; install "
            f"airflow-provider-coordination[{extra}], or the Airflow provider of type {connection.conn_type!r}"
        ) from None
    return engine.raw_connection
