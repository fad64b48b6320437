"""Airflow's connections to the databases of SQL sinks, which use PostgreSQL's and MySQL's own protocols."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.hooks.connections import airflow_connection
from airflow_provider_coordination.spark.sql.settings import MYSQL, PORTS, POSTGRESQL

TYPES = {"postgres": POSTGRESQL, "postgresql": POSTGRESQL, "mysql": MYSQL, "mariadb": MYSQL}
TLS = {POSTGRESQL: ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl"), MYSQL: ("ca", "cert", "key")}
"""TLS options of connections: for PostgreSQL in the extra itself, for MySQL in the extra's `ssl`."""


@dataclass(frozen=True, kw_only=True)
class SqlServer:
    """A database on a server.

    :param database: the kind of server: `postgresql` or `mysql`.
    :param host: its host.
    :param port: its port.
    :param catalog: the database on it.
    :param user: the user.
    :param password: the password; never shown.
    :param tls: the TLS options of the client; never shown.
    """

    database: str
    host: str
    port: int
    catalog: str
    user: str | None
    password: str | None = field(repr=False)
    tls: dict[str, str] = field(repr=False)


def sql_server(conn_id: str) -> SqlServer:
    """Resolve an Airflow connection, without connecting to the database.

    :param conn_id: a connection of type `postgres` or `mysql`, with host, port, schema, login and password.
    :raises ConfigurationError: naming the connection, and what is missing.
    """
    name = f"connection {conn_id!r}"
    connection = airflow_connection(conn_id, name, "create it with type 'postgres' or 'mysql'")
    database = TYPES.get(connection.conn_type or "")
    if database is None:
        raise ConfigurationError(
            f"{name}: a connection of type {connection.conn_type!r} is not supported for SQL sinks; the supported "
            f"types are {', '.join(TYPES)}"
        )
    if not connection.host:
        raise ConfigurationError(f"{name}: field 'host' is missing; name the database server")
    if not connection.schema:
        raise ConfigurationError(f"{name}: field 'schema' is missing; name the database")
    return SqlServer(
        database=database,
        host=connection.host,
        port=connection.port or PORTS[database],
        catalog=connection.schema,
        user=connection.login or None,
        password=connection.password or None,
        tls=_tls(name, database, connection.extra_dejson),
    )


def _tls(name: str, database: str, extra: dict[str, Any]) -> dict[str, str]:
    tls: Any = extra if database == POSTGRESQL else extra.get("ssl") or {}
    if isinstance(tls, str):
        try:
            tls = json.loads(tls)
        except ValueError:
            tls = None
    if not isinstance(tls, dict):
        raise ConfigurationError(f'{name}: the extra \'ssl\' is not a JSON object such as {{"ca": "/etc/ca.pem"}}')
    return {key: str(tls[key]) for key in TLS[database] if key in tls}
