"""How to reach a database, by an Airflow connection: a JDBC URL for Spark, and a connection from Python.

The password is never part of the URL: URLs are shown in logs and plans, passwords never.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import FieldError
from airflow_provider_coordination.sources.connections import ConnectionResolver, ConnectionValues
from airflow_provider_coordination.sql import CONNECTION_TYPES, DRIVERS, PORTS, POSTGRESQL, SQLITE, sql_engine

TLS = ("sslmode", "sslrootcert", "sslcert", "sslkey")
"""Options that PostgreSQL's own clients, Airflow's connections and the JDBC driver name in the same way."""

_SERVER = re.compile(r"jdbc:(postgresql|mysql)://([^/?:,]+|\[[^\]]+\])(?::(\d+))?/([^?]*)(?:\?(.*))?")

_URL = re.compile(r"jdbc:([a-z0-9]+):(\S+)")
_SECRET = re.compile(r"://[^/?#@]*:[^/?#@]*@|[?&;](?:password|pwd)=|^jdbc:oracle:\w+:[^/@]+/[^@]*@", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class JdbcDatabase:
    """A database that Spark reaches by JDBC.

    :param url: the JDBC URL, without user and password.
    :param user: the user.
    :param password: the user's password; never shown.
    :param properties: further properties of the driver, such as `{"sslmode": "verify-full"}`; never shown.
    """

    url: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def dialect(self) -> str:
        """The kind of database: the first word of the URL."""
        found = _URL.fullmatch(self.url)
        return found[1] if found else ""

    def check(self) -> None:
        """Check the URL. The messages do not show it, since it may contain a password.

        :raises FieldError: if it is none, or contains a password.
        """
        match = _URL.fullmatch(self.url)
        if match is None:
            raise FieldError(
                "JdbcTable", "url", "is not a JDBC URL; give one such as jdbc:postgresql://host:5432/database"
            )
        if _SECRET.search(self.url):
            raise FieldError(
                "JdbcTable",
                "url",
                "must not contain a password, since URLs are shown in logs and plans; put it into the login and "
                "password of the connection",
            )
        if match[1] == "mariadb":
            raise FieldError(
                "JdbcTable",
                "url",
                "begins with 'jdbc:mariadb:', for which Spark quotes names as in standard SQL, so that it reads the "
                "names of columns instead of their values; begin it with 'jdbc:mysql:' and, with MariaDB's driver, end "
                "it with '?permitMysqlScheme'",
            )


def database_of(conn_id: str, url: str | None, connections: ConnectionResolver) -> JdbcDatabase:
    """Return the database of a connection, without connecting to it.

    :param conn_id: a connection of any type with host, port, schema, login and password; or with a complete JDBC URL
        as its host.
    :param url: a JDBC URL, if the connection's type does not determine one.
    :param connections: resolves the connection.
    :raises ConfigurationError: naming the connection, and what is missing.
    """
    name = f"connection {conn_id!r}"
    values = connections.values(conn_id, name)
    jdbc_url = url or _url_of(name, values)
    is_postgres = jdbc_url.startswith("jdbc:postg")
    properties = {name: str(values.extra[name]) for name in TLS if name in values.extra} if is_postgres else {}
    return JdbcDatabase(url=jdbc_url, user=values.login, password=values.password, properties=properties)


def connect_from_python(conn_id: str, database: JdbcDatabase, connections: ConnectionResolver) -> Callable[[], Any]:
    """Return what opens a connection to a database from Python, as PEP 249 describes it.

    The hook of the connection's provider opens it if that is installed. Otherwise SQLAlchemy does, for PostgreSQL,
    MySQL, MariaDB and SQLite.

    :param conn_id: the Airflow connection.
    :param database: its database.
    :param connections: resolves the connection.
    :raises ConfigurationError: if no library for the database is installed.
    """
    name = f"connection {conn_id!r}"
    values = connections.values(conn_id, name)
    connect = None
    if values.conn_type == "jdbc" or not (values.host or "").startswith("jdbc:"):
        connect = connections.from_python(conn_id)
    return connect or _connect_of(name, values, database)


def _url_of(name: str, values: ConnectionValues) -> str:
    """Return the JDBC URL of a connection."""
    host = values.host or ""
    if host.startswith("jdbc:"):
        return host
    kind = CONNECTION_TYPES.get(values.conn_type or "")
    if kind is None:
        raise ConfigurationError(
            f"{name}: a connection of type {values.conn_type!r} does not determine a JDBC URL; give 'url', or the "
            f"complete JDBC URL as its host. The types that determine one are {', '.join(CONNECTION_TYPES)}"
        )
    if not host:
        raise ConfigurationError(f"{name}: field 'host' is missing; name the database server")
    if kind == SQLITE:
        return f"jdbc:sqlite:{host}"
    if not values.schema:
        raise ConfigurationError(f"{name}: field 'schema' is missing; name the database")
    return f"jdbc:{kind}://{host}:{values.port or PORTS[kind]}/{values.schema}"


def _connect_of(name: str, values: ConnectionValues, database: JdbcDatabase) -> Callable[[], Any]:
    import sqlalchemy as sa
    from sqlalchemy.pool import NullPool

    if database.url.startswith("jdbc:sqlite:"):
        target = sa.URL.create("sqlite", database=database.url.removeprefix("jdbc:sqlite:").removeprefix("file:"))
        return sa.create_engine(target, poolclass=NullPool).raw_connection
    match = _SERVER.fullmatch(database.url)
    if match is None:
        raise ConfigurationError(
            f"{name}: the task cannot query this database from Python; install the Airflow "
            f"provider of the connection's type {values.conn_type!r}, or use a type that has a provider"
        )
    kind, host, port, schema, options = match.groups()
    parameters = {name.lower(): value for name, value in parse_qsl(options or "")} | dict(database.properties)
    target = sa.URL.create(
        f"{kind}+{DRIVERS[kind][0]}",
        username=database.user,
        password=database.password,
        host=host.strip("[]"),
        port=int(port or PORTS[kind]),
        database=schema,
        query={name: parameters[name] for name in TLS if name in parameters} if kind == POSTGRESQL else {},
    )
    needs = f"{name}, without the Airflow provider of type {values.conn_type!r}"
    return sql_engine(target, needs, poolclass=NullPool).raw_connection
