"""Tables and queries of databases, by JDBC, as a kind of source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from airflow_provider_coordination.sources.item_kind import ItemKind, changed_values
from airflow_provider_coordination.sources.source_kind import DatasetName, Settings

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Supplier
    from airflow_provider_coordination.sources.connections import ConnectionResolver
    from airflow_provider_coordination.sources.jdbc.settings import JdbcTable

JDBC_URL = re.compile(r"jdbc:(?P<dialect>\w+):(?:\w+:)*@?//(?P<host>[^/;?,]+)(?:/(?P<database>[^;?/]*))?")
DATABASES = {
    "postgresql": ("postgres", "5432", "public"),
    "mysql": ("mysql", "3306", ""),
    "mariadb": ("mysql", "3306", ""),
}
"""OpenLineage's scheme, the default port and the default schema of a database, by its JDBC name."""


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    """Return the dataset of a table by its JDBC URL; a query has no dataset."""
    match = JDBC_URL.match(settings["database"]["url"])
    if match is None or not settings.get("table"):
        return
    dialect, host, database = match["dialect"], match["host"].rpartition("@")[2], match["database"] or ""
    scheme, port, schema = DATABASES.get(dialect, (dialect, "", ""))
    table = re.sub(r'["`\[\]]', "", settings["table"])
    if schema and "." not in table:
        table = f"{schema}.{table}"
    authority = host if ":" in host or not port else f"{host}:{port}"
    is_named_whole = table.startswith(f"{database}.") and (table.count(".") == 2 or not schema)
    yield DatasetName(f"{scheme}://{authority}", table if is_named_whole or not database else f"{database}.{table}")


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the table or query, and the column that divides it, if they differ."""
    return changed_values(before, now, ("table", "query", "column"))


def _supplier(table: JdbcTable, coordinator: SourceCoordinator, connections: ConnectionResolver) -> Supplier:
    from airflow_provider_coordination.sources.jdbc.database import connect_from_python
    from airflow_provider_coordination.sources.jdbc.query import DbApiQuery
    from airflow_provider_coordination.sources.jdbc.supplier import RangeSupplier

    connect = connect_from_python(table.jdbc_conn_id, table.database, connections)
    return RangeSupplier(DbApiQuery(connect, table.session_statement), table, coordinator.clock.now)


KIND = ItemKind(
    "jdbc",
    "airflow_provider_coordination.sources.jdbc.reader:RangeReader",
    _datasets,
    reads="airflow_provider_coordination.sources.jdbc.settings:JdbcTable",
    left=_left,
    supplier=_supplier,
)
