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
from airflow_provider_coordination.spark.sinks.sql.database import SinkDatabase
from airflow_provider_coordination.spark.writes.sql import SqlTable
from airflow_provider_coordination.sql import POSTGRESQL
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

    def counted(settings: SqlTable) -> SinkDatabase:
        database = made(settings)
        _count(database, calls, _connection_lost(is_postgresql=settings.server.database == POSTGRESQL))
        return database

    with patch.object(sql, "database_of", counted):
        yield


def _count(database: SinkDatabase, calls: Calls, error: Any) -> None:
    """Let every call of a database's connections count.

    :param error: what a lost connection raises.
    """
    dialect, cursor = database.engine.dialect, database.cursor

    def counting(what: str, call: Any, text: int | None = None) -> Any:
        def made(*arguments: Any, **named: Any) -> Any:
            said = what if text is None else f"{what} {str(arguments[text])[:40]}"
            return calls.make(said, lambda: call(*arguments, **named), error)

        return made

    dialect.connect = counting("sql.connect", dialect.connect)  # type: ignore[method-assign]
    for name in ("do_execute", "do_execute_no_params", "do_executemany"):
        setattr(dialect, name, counting("sql.execute", getattr(dialect, name), 1))
    dialect.do_commit = counting("sql.commit", dialect.do_commit)  # type: ignore[method-assign]
    database.cursor = lambda connection: _CountedCursor(cursor(connection), calls, error)  # type: ignore[method-assign]


class _CountedCursor:
    """A cursor of the driver that counts every call."""

    def __init__(self, made: Any, calls: Calls, error: Any) -> None:
        self._made = made
        self._calls = calls
        self._error = error

    def __enter__(self) -> _CountedCursor:
        return self

    def __exit__(self, *error: object) -> None:
        self._made.close()

    def copy(self, statement: str) -> Any:
        return self._calls.make("sql.copy", lambda: self._made.copy(statement), self._error)

    def execute(self, statement: Any) -> Any:
        return self._calls.make(
            f"sql.execute {str(statement)[:40]}", lambda: self._made.execute(statement), self._error
        )


def _connection_lost(*, is_postgresql: bool) -> Any:
    if is_postgresql:
        import psycopg

        return lambda: psycopg.OperationalError("server closed the connection unexpectedly")
    import pymysql

    return lambda: pymysql.err.OperationalError(2013, "Lost connection to server during query")
