"""Tables of PostgreSQL, MySQL and MariaDB as sinks, and their servers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.settings import CONNECTED
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.spark.writes import MergingSink
from airflow_provider_coordination.sql import CONNECTION_TYPES, MYSQL, PORTS, POSTGRESQL

TYPES = {name: database for name, database in CONNECTION_TYPES.items() if database in PORTS}
"""The databases of sinks, by the types of connections."""
TLS = {POSTGRESQL: ("sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl"), MYSQL: ("ca", "cert", "key")}
"""TLS options of connections: for PostgreSQL in the extra itself, for MySQL in the extra's `ssl`."""

DEFAULT_SCHEMA = "public"
_TABLE = re.compile(r"(?:([^.\"`%/]+)\.)?([^.\"`%/]+)")


@dataclass(frozen=True, kw_only=True)
class SqlServer:
    """A database on a server.

    :param database: the kind of server: `postgresql` or `mysql`.
    :param host: a host name, an address, or the folder of the server's socket.
    :param port: its port.
    :param catalog: the database on the server; in MySQL also the prefix of a table's name.
    :param user: the user.
    :param password: the password; never shown.
    :param tls: the TLS options of the client; never shown.
    """

    database: str = POSTGRESQL
    host: str = ""
    port: int = PORTS[POSTGRESQL]
    catalog: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass
class SqlTable(MergingSink):
    """A table of PostgreSQL, MySQL or MariaDB, for the `writes` of operators.

    One transaction writes the rows of a batch and its id. The ids are kept in the table `_coordination_batches` next
    to the table.

    :param table: the table, with its schema if that is not `public`; for MySQL with its database if that is not the
        connection's. It is created if it does not exist. (templated)
    :param conn_id: the connection, of type `postgres` or `mysql`. (templated)
    :param staging_path: where rows wait for their transaction: a path or URI that the driver and every executor reach.
        (templated)
    :param merge_on: the key columns by which a row replaces an existing row; by default every row is added. (templated)
    :param order_by: the column whose greatest value wins among the rows of one key, in a delivery and in the table. Of
        equal ones, the one delivered last wins. Without it, a key must be unique in a batch, and the later delivery
        wins. (templated)
    :param op: the column that says what a row does: `DELETE`, `REMOVE` or `D` deletes the row of its key. The names of
        other changes, and null, replace it. It needs `order_by`. (templated)
    :param tombstone_retention: how long the database remembers the key and the order of a deleted row, so that no older
        change restores it. (templated)
    :param add_columns: add columns that the table lacks; by default they are an error. (templated)
    :param name: the sink's name, unique within the task: up to 64 letters, digits, `_` and `-`. (templated)
    :param where: which records the sink receives: a SQL predicate over the written columns; all by default. (templated)
    :param aws_conn_id: the AWS connection for a staging path on S3; by default the AWS default credential chain.
        (templated)
    """

    kind: ClassVar[str] = "sql"
    folder_field: ClassVar[str] = "staging_path"

    table: str
    _: KW_ONLY
    conn_id: str
    staging_path: str
    add_columns: bool = False
    server: SqlServer = field(default_factory=SqlServer, repr=False, metadata=CONNECTED)

    @property
    def schema(self) -> str:
        """The schema of the table; in MySQL the database."""
        schema = self._parts[0]
        return schema or (DEFAULT_SCHEMA if self.server.database == POSTGRESQL else self.server.catalog)

    @property
    def table_name(self) -> str:
        """The name of the table without its schema."""
        return self._parts[1]

    @property
    @override
    def sink_location(self) -> str:
        server = self.server  # the same for all spellings of the table's name
        return (
            f"{server.database}://{server.host.lower()}:{server.port}/{server.catalog}/{self.schema}.{self.table_name}"
        )

    @override
    def use(self, connections: ConnectionResolver, aws: AwsSettings | None) -> None:
        self.server = sql_server(self.conn_id, connections)

    @override
    def check_together(self) -> None:
        super().check_together()
        if not self.conn_id.strip():
            raise self.invalid("conn_id", "must not be empty")
        _ = self._parts

    @property
    def _parts(self) -> tuple[str | None, str]:
        match = _TABLE.fullmatch(self.table)
        if match is None:
            raise self.invalid("table", "must be a table such as 'orders' or 'sales.orders', without quotes")
        return match[1], match[2]


def sql_server(conn_id: str, connections: ConnectionResolver) -> SqlServer:
    """Resolve an Airflow connection, without connecting to the database.

    :param conn_id: a connection of type `postgres` or `mysql`, with host, port, schema, login and password.
    :param connections: resolves it.
    :raises ConfigurationError: naming the connection, and what is missing.
    """
    name = f"connection {conn_id!r}"
    connection = connections.values(conn_id, name)
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
        user=connection.login,
        password=connection.password,
        tls=_tls(name, database, connection.extra),
    )


def _tls(name: str, database: str, extra: Mapping[str, Any]) -> dict[str, str]:
    tls: Any = extra if database == POSTGRESQL else extra.get("ssl") or {}
    if isinstance(tls, str):
        try:
            tls = json.loads(tls)
        except ValueError:
            tls = None
    if not isinstance(tls, Mapping):
        raise ConfigurationError(f'{name}: the extra \'ssl\' is not a JSON object such as {{"ca": "/etc/ca.pem"}}')
    return {key: str(tls[key]) for key in TLS[database] if key in tls}
