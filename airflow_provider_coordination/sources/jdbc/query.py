"""Asking a database from Python: what the supplier needs to know before Spark reads."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Protocol

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, SourceError
from airflow_provider_coordination.sources.items import SourceUnavailableError

_PASSING = ("OperationalError", "InterfaceError")
"""What the errors are called that trying again may mend, by PEP 249."""
_LASTING = re.compile(
    r"no such (table|column)|does not exist|unknown (column|database|table)|doesn't exist|authentication|access denied|"
    r"permission denied|no pg_hba\.conf|unable to open database|not a database|syntax error",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Answer:
    """What a database answers.

    :param columns: the name of each column, and what its driver calls its type.
    :param rows: the rows.
    """

    columns: Sequence[tuple[str, object]]
    rows: Sequence[Sequence[Any]]


class Query(Protocol):
    """A database that can be asked."""

    def ask(self, sql: str, *, at_most: int | None = None) -> Answer:
        """Run a SELECT.

        :param sql: the statement; it has no parameters.
        :param at_most: how many rows of its answer are wanted; None for all.
        :raises SourceUnavailableError: if trying again later may help.
        :raises ConfigurationError: if the database refuses the statement, or the login.
        :raises SourceError: if the answer cannot be read.
        """
        ...


class DbApiQuery:
    """Asks by a connection as PEP 249 describes it, a new one for each question; a `Query`.

    :param connect: opens a connection.
    :param session: a statement that every session begins with; None for none.
    """

    def __init__(self, connect: Callable[[], Any], session: str | None = None) -> None:
        self._connect = connect
        self._session = session

    def ask(self, sql: str, *, at_most: int | None = None) -> Answer:
        """See `Query.ask`."""
        try:
            with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
                if self._session is not None:
                    cursor.execute(self._session)
                cursor.execute(sql)
                rows = cursor.fetchall() if at_most is None else cursor.fetchmany(at_most)
                return Answer([(column[0], column[1]) for column in cursor.description], rows)
        except CoordinationError:  # there is no way to connect
            raise
        except Exception as error:  # every driver has its own classes
            raise _explained(error) from error


def _explained(error: Exception) -> SourceError | ConfigurationError:
    cause = getattr(error, "orig", None) or error  # SQLAlchemy's errors say more than a person needs
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    text = " ".join(str(cause).split()) or type(cause).__name__
    if kinds.intersection(_PASSING) and not _LASTING.search(text):
        return SourceUnavailableError(
            f"the database does not answer: {text}; check host and port of the connection, and the network"
        )
    if kinds.intersection(("ProgrammingError", "NotSupportedError", *_PASSING)):
        return ConfigurationError(
            f"the database refuses: {text}; check the connection, what its login may read, and the names that are given"
        )
    return SourceError(f"the database's answer cannot be read: {type(cause).__name__}: {text}")
