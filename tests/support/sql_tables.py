"""Tables that the SQL sink writes in the databases of the tests."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import sqlalchemy as sa

from airflow_provider_coordination.spark.sink_settings import SinkSettings
from airflow_provider_coordination.spark.sinks.sql import SqlSink
from airflow_provider_coordination.spark.sinks.sql.database import SinkDatabase, database_of
from airflow_provider_coordination.spark.writes.sql import SqlServer, SqlTable
from airflow_provider_coordination.sql import MYSQL, POSTGRESQL

SERVERS = {POSTGRESQL: "postgres_url", MYSQL: "mariadb_url"}
"""The fixture that gives the URL of an empty database, by what the server is."""
TABLE = "clicks"


class SqlTarget:
    """An empty database, the table that sinks create in it, and their staging folder.

    :param url: the database's, as SQLAlchemy writes it.
    :param folder: the folder.
    :param table: the table.
    """

    def __init__(self, url: str, folder: Path, table: str = TABLE) -> None:
        self.url = url
        parts = urlsplit(url)
        self.is_postgresql = parts.scheme.startswith("postgres")
        catalog = parts.path.strip("/")
        server = SqlServer(
            database=POSTGRESQL if self.is_postgresql else MYSQL,
            host=parts.hostname or parse_qs(parts.query)["host"][0],
            port=parts.port or 5432,
            catalog=catalog,
            user=parts.username,
        )
        self.settings = SqlTable(table, conn_id="warehouse", staging_path=str(folder), server=server)
        # The server ends an idle session of a sink, after a second in some tests: never the test's own.
        self._engine = sa.create_engine(
            self.database.engine.url, poolclass=sa.NullPool, isolation_level="READ COMMITTED"
        )

    @property
    def database(self) -> SinkDatabase:
        return database_of(self.settings)

    def sink_settings(self, **changed: Any) -> SinkSettings:
        settings = replace(self.settings, **changed)
        return SinkSettings(name="main", kind="sql", location=settings.sink_location, settings=settings.to_mapping())

    def sink(self, name: str = "main", database: SinkDatabase | None = None, **changed: Any) -> SqlSink:
        """Return the sink of a new job."""
        settings = replace(self.settings, **changed)
        return SqlSink(name, settings, database or database_of(settings))

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        """Run one statement, and return its rows."""
        with self._engine.begin() as connection:
            found = connection.exec_driver_sql(statement)
            return [tuple(row) for row in found] if found.returns_rows else []

    def rows(self, columns: str = "_batch_id, n") -> list[tuple[Any, ...]]:
        """Return what the table holds, sorted; nothing where there is no table."""
        return sorted(self.run(f"SELECT {columns} FROM {self.database.table}")) if self._is_made() else []

    def records(self) -> list[dict[str, Any]]:
        """Return what the table holds, by the names of columns."""
        if not self._is_made():
            return []
        with self._engine.connect() as connection:
            return [dict(row) for row in connection.exec_driver_sql(f"SELECT * FROM {self.database.table}").mappings()]

    def _is_made(self) -> bool:
        tables = f"SELECT table_name FROM information_schema.tables WHERE table_schema = '{self.settings.schema}'"
        return (self.settings.table,) in self.run(tables)

    def connect_socket(self) -> socket.socket:
        """Return a connection to the server, for a cable."""
        if self.settings.server.host.startswith("/"):
            end = socket.socket(socket.AF_UNIX)
            end.connect(f"{self.settings.server.host}/.s.PGSQL.{self.settings.server.port}")
            return end
        return socket.create_connection((self.settings.server.host, self.settings.server.port))
