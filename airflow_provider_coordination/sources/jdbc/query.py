"""Querying a database from Python, for the supplier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, SourceError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.items import SourceUnavailableError
from airflow_provider_coordination.sql import is_transient

_REJECTED = ("OperationalError", "InterfaceError", "ProgrammingError", "NotSupportedError")
"""The names of PEP 249's errors by which a database rejects a request."""


@dataclass(frozen=True)
class QueryResult:
    """The result of a query.

    :param columns: the name of each column, and its driver's type code.
    :param rows: the rows.
    """

    columns: Sequence[tuple[str, object]]
    rows: Sequence[Sequence[Any]]


class Query(Protocol):
    """A database that can be queried."""

    def ask(self, sql: str, *, max_rows: int | None = None) -> QueryResult:
        """Run a SELECT.

        :param sql: the statement; it has no parameters.
        :param max_rows: the maximum number of rows to return; None for all.
        :raises SourceUnavailableError: if trying again later may help.
        :raises ConfigurationError: if the database rejects the statement or the login.
        :raises SourceError: if the result cannot be read.
        """
        ...


class DbApiQuery(Query):
    """Queries through PEP 249 connections, a new one for each statement; a `Query`.

    :param connect: opens a connection.
    :param session: a statement that is run at the start of every session; None for none.
    """

    def __init__(self, connect: Callable[[], Any], session: str | None = None) -> None:
        self._connect = connect
        self._session = session

    @override
    def ask(self, sql: str, *, max_rows: int | None = None) -> QueryResult:
        try:
            with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
                if self._session is not None:
                    cursor.execute(self._session)
                cursor.execute(sql)
                rows = cursor.fetchall() if max_rows is None else cursor.fetchmany(max_rows)
                return QueryResult([(column[0], column[1]) for column in cursor.description], rows)
        except CoordinationError:  # the connection could not be made
            raise
        except Exception as error:  # every driver has its own classes
            raise _explained(error) from error


def _explained(error: Exception) -> SourceError | ConfigurationError:
    cause = getattr(error, "orig", None) or error  # SQLAlchemy's errors are longer than users need
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    text = " ".join(str(cause).split()) or type(cause).__name__
    if is_transient(error):
        return SourceUnavailableError(
            f"the database is unavailable: {text}; check host and port of the connection, and the network"
        )
    if kinds.intersection(_REJECTED):
        return ConfigurationError(
            f"the database rejects the statement or the login: {text}; check the connection, the permissions of its "
            "login, and the given names"
        )
    return SourceError(f"the database's result cannot be read: {type(cause).__name__}: {text}")
