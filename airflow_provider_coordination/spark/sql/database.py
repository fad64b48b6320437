"""The differences between databases, and transactions that are repeated after a transient failure."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import random
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.spark.delivery import DeliveryError, SinkUnavailableError
from airflow_provider_coordination.spark.sql.locks import LockHolder, LockWait
from airflow_provider_coordination.spark.writes.sql import MYSQL, POSTGRESQL, SqlTable

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 10
LOCK_TIMEOUT_SECONDS = 30
"""How long a statement waits for the lock of another transaction, which may be another owner's on the same batch."""
WAIT_SECONDS = 60.0
"""How long a delivery waits for an unavailable database."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
REASON_CHARACTERS = 500

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of an existing table.

    :param name: its name.
    :param type: its type in the database's notation, such as `numeric(10,2)`.
    :param is_required: whether a row must have a value for it, because it has no default.
    """

    name: str
    type: str
    is_required: bool = False


class SinkDatabase(Protocol):
    """One kind of database. Its cursors follow PEP 249, with `%s` for parameters."""

    batch_id_type: str
    """The type of columns that hold names, compared byte by byte."""
    instant_type: str
    """The type of columns that hold instants."""
    table_options: str
    """The options after the columns of a new table."""
    skip_known_clause: str
    """The end of an INSERT that skips a row whose key exists."""
    accepts_nan: bool
    ignores_case: bool
    """Whether names of columns that differ in case only are one column."""

    @property
    def location(self) -> str:
        """The location of the table, for display."""
        ...

    """Whether floating-point columns accept NaN and infinite values."""

    def connect(self) -> Any:
        """Open a connection; each of its transactions begins automatically."""
        ...

    def quoted(self, name: str) -> str:
        """Return a name as it is written in statements.

        :raises DeliveryError: if the database does not accept such a name.
        """
        ...

    def is_transient(self, error: Exception) -> bool:
        """Return whether a retry may help."""
        ...

    def reason(self, error: Exception) -> str:
        """Return the database's message, without the values of rows if they can be separated from it."""
        ...

    def is_lock(self, error: Exception) -> bool:
        """Return whether the transaction failed because of the locks of others."""
        ...

    def lock(self, cursor: Any) -> None:
        """Block other changes of tables until the transaction or the connection ends."""
        ...

    def lock_holders(self, cursor: Any, seconds: float) -> list[LockHolder]:
        """Return the sessions whose transactions hold locks on the table, the oldest first.

        :param seconds: the minimum age of their transactions.
        """
        ...

    def columns(self, cursor: Any, table: str) -> list[Column] | None:
        """Return the columns of a table in the schema; None if there is no such table.

        :raises DeliveryError: if the table does not support transactions.
        """
        ...

    def unique_keys(self, cursor: Any) -> set[frozenset[str]]:
        """Return the columns of each unique key of the table."""
        ...

    def type_for(self, kind: pa.DataType, *, is_key: bool) -> str | None:
        """Return the type of a new column; None if the database has no type for such values."""
        ...

    def holds(self, column: Column, kind: pa.DataType) -> bool:
        """Return whether a column stores all values of a type exactly, or refuses them: none is rounded or cut."""
        ...

    def load(self, cursor: Any, rows: pa.Table, merge_on: Sequence[str]) -> None:
        """Add rows to the table; with `merge_on`, replace rows with the same values in those columns."""
        ...


class DatabaseSession:
    """A connection that is opened again after a failure.

    :param database: the database to connect to.
    :param wait_seconds: how long a transaction is retried; `WAIT_SECONDS` by default.
    """

    def __init__(self, database: SinkDatabase, wait_seconds: float | None = None) -> None:
        self._database = database
        self._wait_seconds = WAIT_SECONDS if wait_seconds is None else wait_seconds
        self._connection: Any = None

    def run(self, work: Callable[[Any], T]) -> T:
        """Run work in a transaction, again after a transient failure; return its result.

        A commit without a response may have succeeded. So `work` runs again, and must find that out.

        :param work: receives a cursor.
        :raises DeliveryError: if the database refuses the work.
        :raises SinkUnavailableError: if the database stays unavailable.
        :raises SinkLockedError: if others hold the locks of the transaction for too long.
        """
        deadline, pause = time.monotonic() + self._wait_seconds, FIRST_PAUSE_SECONDS
        locked = LockWait(self._database.location, self._holders, self._end)
        while True:
            began = time.monotonic()
            try:
                return self._try(work)
            except DeliveryError:
                raise
            except Exception as error:
                if not is_of_database(error):
                    raise
                reason = self._database.reason(error)
                if not self._database.is_transient(error):
                    raise DeliveryError(reason) from None  # the original text may hold values of rows
                if self._database.is_lock(error):
                    locked.note(reason, time.monotonic() - began)
                    deadline = time.monotonic() + self._wait_seconds
                elif time.monotonic() + pause > deadline:
                    raise SinkUnavailableError(reason) from None
                log.info("the transaction is retried in %.1f s: %s", pause, reason)
                time.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _try(self, work: Callable[[Any], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._database.connect()
            with closing(self._connection.cursor()) as cursor:
                result = work(cursor)
            self._connection.commit()
        except BaseException:
            self.close()
            raise
        return result

    def _holders(self, seconds: float) -> list[LockHolder]:
        """Return who holds locks on the table; nobody if the database does not say."""
        try:
            return self._try(lambda cursor: self._database.lock_holders(cursor, seconds))
        except Exception as error:  # it is only missing in the message
            log.info("who holds locks on %s is not known: %s", self._database.location, self._database.reason(error))
            return []

    def _end(self, holder: LockHolder) -> None:
        with suppress(Exception):  # it may have ended just now
            self._try(lambda cursor: cursor.execute(holder.ends_by))

    def close(self) -> None:
        """Close the connection, which ends its transaction."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it may be broken
                connection.close()


def is_of_database(error: Exception) -> bool:
    """Return whether a database driver raised this error; PEP 249 defines the name of the base class."""
    return any(
        each.__name__ == "Error" and each.__module__.startswith(("psycopg", "pymysql")) for each in type(error).__mro__
    )


def database_of(settings: SqlTable) -> SinkDatabase:
    """Return the database for the settings.

    :raises ConfigurationError: if its driver is not installed.
    """
    module, name, driver, extra = {
        POSTGRESQL: ("postgresql", "PostgreSql", "psycopg", "postgres"),
        MYSQL: ("mysql", "MySql", "pymysql", "mysql"),
    }[settings.server.database]
    if importlib.util.find_spec(driver) is None:
        raise ConfigurationError(
            f"kind of sink 'sql' needs the module {driver!r}, which is not installed where the job runs; install "
            f"airflow-provider-coordination[{extra}]"
        )
    database: SinkDatabase = getattr(
        importlib.import_module(f"airflow_provider_coordination.spark.sql.{module}"), name
    )(settings)
    return database
