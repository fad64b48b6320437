"""Numbers every call of one job to Iceberg catalogs and databases, as `freezing` numbers its calls to files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog

from airflow_provider_coordination.spark.sinks import sql
from airflow_provider_coordination.spark.sql.database import SinkDatabase
from airflow_provider_coordination.spark.writes.sql import POSTGRESQL, SqlTable
from tests.support.delta_tables import counted_tables
from tests.support.freezing import Calls


@contextmanager
def counted_sinks(calls: Calls) -> Iterator[None]:
    """Let every call to a table count, of whatever kind."""
    with counted_tables(calls), counted_catalogs(calls), counted_databases(calls):
        yield


@contextmanager
def counted_catalogs(calls: Calls) -> Iterator[None]:
    """Let every call to a catalog count that loads a table or commits to one."""

    def counting(kind: type[Catalog], method: str) -> Any:
        made = getattr(kind, method)

        def called(*arguments: Any, **more: Any) -> Any:
            what = f"catalog.{method}"
            return calls.make(what, lambda: made(*arguments, **more), lambda: ConnectionResetError("connection reset"))

        return patch.object(kind, method, called)

    with ExitStack() as stack:
        for kind in (RestCatalog, SqlCatalog):
            for method in ("load_table", "commit_table"):
                stack.enter_context(counting(kind, method))
        yield


@contextmanager
def counted_databases(calls: Calls) -> Iterator[None]:
    """Let every call to a database count that a connection makes."""
    made = sql.database_of

    def counted(settings: SqlTable) -> Any:
        return CountedDatabase(made(settings), calls, is_postgresql=settings.server.database == POSTGRESQL)

    with patch.object(sql, "database_of", counted):
        yield


class CountedDatabase:
    """A database whose connections count every call.

    :param database: the database.
    :param calls: the calls.
    :param is_postgresql: what the server is, which decides what a lost connection raises.
    """

    def __init__(self, database: SinkDatabase, calls: Calls, *, is_postgresql: bool) -> None:
        self._database = database
        self._calls = calls
        self._error = _connection_lost(is_postgresql=is_postgresql)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def connect(self) -> Any:
        connection = self._calls.make("sql.connect", self._database.connect, self._error)
        return _CountedConnection(connection, self._calls, self._error)


class _CountedConnection:
    """A connection or a cursor that counts every call."""

    def __init__(self, made: Any, calls: Calls, error: Any) -> None:
        self._made = made
        self._calls = calls
        self._error = error

    def cursor(self) -> _CountedConnection:
        return _CountedConnection(self._made.cursor(), self._calls, self._error)

    def copy(self, statement: str) -> Any:
        return self._calls.make("sql.copy", lambda: self._made.copy(statement), self._error)

    def execute(self, statement: Any, parameters: Any = None) -> Any:
        what = f"sql.execute {str(statement)[:40]}"
        return self._calls.make(what, lambda: self._made.execute(statement, parameters), self._error)

    def commit(self) -> None:
        self._calls.make("sql.commit", self._made.commit, self._error)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)


def _connection_lost(*, is_postgresql: bool) -> Any:
    if is_postgresql:
        import psycopg

        return lambda: psycopg.OperationalError("server closed the connection unexpectedly")
    import pymysql

    return lambda: pymysql.err.OperationalError(2013, "Lost connection to server during query")
