"""What differs between databases, and transactions that are made again after a passing failure."""

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
from airflow_provider_coordination.spark.delivery import DeliveryError, SinkAwayError
from airflow_provider_coordination.spark.sql.settings import MYSQL, POSTGRESQL, SqlSettings

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_SECONDS = 10
LOCK_TIMEOUT_SECONDS = 30
"""How long one waits for the transaction of another owner of the same batch."""
WAIT_SECONDS = 60.0
"""How long a delivery waits for a database that does not answer."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
REASON_CHARACTERS = 500

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of a table that is there.

    :param name: its name.
    :param type: its type, as the database writes it, such as `numeric(10,2)`.
    :param is_required: whether a row must have a value for it, as it has no default.
    """

    name: str
    type: str
    is_required: bool = False


class Database(Protocol):
    """One kind of database. Cursors are those of PEP 249, with `%s` for parameters."""

    batch_id_type: str
    """The type of columns that hold names, compared letter by letter."""
    instant_type: str
    """The type of columns that hold instants."""
    table_options: str
    """What follows the columns of a new table."""
    skips_known: str
    """What ends an INSERT that passes over a row whose key is there."""
    takes_nan: bool
    """Whether columns of floating-point numbers take NaN and infinite values."""

    def connect(self) -> Any:
        """Open a connection; each of its transactions begins by itself."""
        ...

    def quoted(self, name: str) -> str:
        """Return a name as statements have it.

        :raises DeliveryError: if the database takes no such name.
        """
        ...

    def is_passing(self, error: Exception) -> bool:
        """Return whether trying again may help."""
        ...

    def reason(self, error: Exception) -> str:
        """Return what the database says, without what the rows hold as far as it says that apart."""
        ...

    def lock(self, cursor: Any, name: str) -> None:
        """Let nobody else change tables at the same time, until the transaction or the connection ends."""
        ...

    def columns(self, cursor: Any, table: str) -> list[Column] | None:
        """Return the columns of a table of the schema; None if there is no such table.

        :raises DeliveryError: if it cannot be written within a transaction.
        """
        ...

    def unique_keys(self, cursor: Any) -> set[frozenset[str]]:
        """Return the columns of each unique key of the table."""
        ...

    def type_for(self, kind: pa.DataType, *, is_key: bool) -> str | None:
        """Return the type of a new column; None if there is none for such values."""
        ...

    def holds(self, column: Column, kind: pa.DataType) -> bool:
        """Return whether a column takes all values of a type as they are, or refuses them: none is rounded or cut."""
        ...

    def load(self, cursor: Any, rows: pa.Table, merge_on: Sequence[str]) -> None:
        """Add rows to the table, or let them replace those that have the same values in some columns."""
        ...


class Session:
    """A connection that is opened again after a failure.

    :param database: what it leads to.
    :param wait_seconds: how long a transaction is tried again; `WAIT_SECONDS` by default.
    """

    def __init__(self, database: Database, wait_seconds: float | None = None) -> None:
        self._database = database
        self._wait_seconds = WAIT_SECONDS if wait_seconds is None else wait_seconds
        self._connection: Any = None

    def run(self, work: Callable[[Any], T]) -> T:
        """Run work in a transaction, again after a passing failure; return what it returns.

        A commit whose answer was lost is not taken for one that failed: `work` runs again, and must find out.

        :param work: gets a cursor.
        :raises DeliveryError: if the database refuses.
        :raises SinkAwayError: if it does not answer in time.
        """
        deadline, pause = time.monotonic() + self._wait_seconds, FIRST_PAUSE_SECONDS
        while True:
            try:
                return self._try(work)
            except DeliveryError:
                raise
            except Exception as error:
                if not is_of_database(error):
                    raise
                reason = self._database.reason(error)
                if not self._database.is_passing(error):
                    raise DeliveryError(reason) from None  # its text may hold what the rows do
                if time.monotonic() + pause > deadline:
                    raise SinkAwayError(reason) from None
                log.info("the database is tried again in %.1f s: %s", pause, reason)
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

    def close(self) -> None:
        """Close the connection, which ends its transaction."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it may be broken
                connection.close()


def is_of_database(error: Exception) -> bool:
    """Return whether a driver of a database raised this; PEP 249 names the base of its errors."""
    return any(
        each.__name__ == "Error" and each.__module__.startswith(("psycopg", "pymysql")) for each in type(error).__mro__
    )


def database_of(settings: SqlSettings) -> Database:
    """Return the database that settings name.

    :raises ConfigurationError: if its driver is not installed.
    """
    module, name, driver, extra = {
        POSTGRESQL: ("postgresql", "PostgreSql", "psycopg", "postgres"),
        MYSQL: ("mysql", "MySql", "pymysql", "mysql"),
    }[settings.database]
    if importlib.util.find_spec(driver) is None:
        raise ConfigurationError(
            f"kind of sink 'sql' needs the module {driver!r}, which is not installed where the job runs; install "
            f"airflow-provider-coordination[{extra}]"
        )
    made: Database = getattr(importlib.import_module(f"airflow_provider_coordination.spark.sql.{module}"), name)(
        settings
    )
    return made
