"""The differences between databases, and transactions that are repeated after a transient failure."""

from __future__ import annotations

import importlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.pool import NullPool

from airflow_provider_coordination.spark.delivery import DeliveryError, SinkUnavailableError
from airflow_provider_coordination.spark.sql import locks
from airflow_provider_coordination.spark.sql.locks import LockHolder, LockWait
from airflow_provider_coordination.spark.writes.sql import SqlTable
from airflow_provider_coordination.sql import (
    DRIVERS,
    MYSQL,
    POSTGRESQL,
    Patience,
    is_locked,
    is_transient,
    reason_of,
    sql_engine,
)

log = logging.getLogger(__name__)

LOCK_TIMEOUT_SECONDS = 30
"""How long a statement waits for the lock of another transaction, which may be another owner's on the same batch."""
RESPONSE_TIMEOUT_SECONDS = 600
WAIT_SECONDS = 60.0
"""How long a delivery waits for an unavailable database."""

T = TypeVar("T")


class SinkDatabase(ABC):
    """The database of a sink's table. It connects at the first request; connections are not pooled.

    :param settings: the settings of the table.
    :raises ConfigurationError: if its driver is not installed.
    """

    dialect: ClassVar[str]
    accepts_nan: ClassVar[bool]
    """Whether floating-point columns accept NaN and infinite values."""
    ignores_case: ClassVar[bool]
    """Whether names of columns that differ in case only are one column."""

    def __init__(self, settings: SqlTable) -> None:
        self.settings = settings
        server = settings.server
        is_socket = server.host.startswith("/") and self.dialect == MYSQL
        self.engine = sql_engine(
            sa.URL.create(
                f"{self.dialect}+{DRIVERS[self.dialect][0]}",
                username=server.user,
                password=server.password,
                host=None if is_socket else server.host,
                port=None if is_socket else server.port,
                database=server.catalog,
            ),
            "kind of sink 'sql'",
            response_seconds=RESPONSE_TIMEOUT_SECONDS,
            arguments={
                **self.arguments(LOCK_TIMEOUT_SECONDS, locks.ABANDONED_SECONDS),
                **({"unix_socket": server.host} if is_socket else {}),
            },
            # All statements depend on it: MySQL's default would lock the gaps between rows.
            isolation_level="READ COMMITTED",
            poolclass=NullPool,
            pool_reset_on_return=None,  # a connection is closed after each failure
            hide_parameters=True,
        )

    @property
    def location(self) -> str:
        """The location of the table, for display."""
        return self.settings.sink_location

    @property
    def table(self) -> str:
        """The quoted name of the table with its schema."""
        return f"{self.quoted(self.settings.schema)}.{self.quoted(self.settings.table_name)}"

    def cursor(self, connection: sa.Connection) -> Any:
        """Return a cursor of the driver, for the text of many rows; it follows PEP 249."""
        return connection.connection.cursor()

    @abstractmethod
    def arguments(self, lock_seconds: int, idle_seconds: int) -> dict[str, Any]:
        """Return the arguments of the driver that only sinks have, with the settings of every session.

        :param lock_seconds: how long a statement waits for a lock.
        :param idle_seconds: how long a session may be idle within a transaction.
        """

    @abstractmethod
    def quoted(self, name: str) -> str:
        """Return a name as it is written in statements.

        :raises DeliveryError: if the database does not accept such a name.
        """

    @abstractmethod
    def reason(self, error: BaseException) -> str:
        """Return the database's message with the place of the value and the remedy, if they are known."""

    @abstractmethod
    def lock(self, connection: sa.Connection) -> None:
        """Block other changes of tables until the transaction or the connection ends."""

    @abstractmethod
    def lock_holders(self, connection: sa.Connection, seconds: float) -> list[LockHolder]:
        """Return the sessions whose transactions hold locks on the table, the oldest first.

        :param seconds: the minimum age of their transactions.
        """

    def check_table(self, inspector: sa.Inspector) -> None:  # noqa: B027 (most databases have one sort of tables)
        """Check that the table supports transactions.

        :raises DeliveryError: if it does not.
        """

    @abstractmethod
    def load(self, connection: sa.Connection, rows: pa.Table, merge_on: Sequence[str]) -> None:
        """Add rows to the table; with `merge_on`, replace rows with the same values in those columns."""


class DatabaseSession:
    """A connection that is opened again after a failure.

    :param database: the database to connect to.
    :param wait_seconds: how long a transaction is retried; `WAIT_SECONDS` by default.
    """

    def __init__(self, database: SinkDatabase, wait_seconds: float | None = None) -> None:
        self._database = database
        self._wait_seconds = WAIT_SECONDS if wait_seconds is None else wait_seconds
        self._connection: sa.Connection | None = None
        self._errors = (exc.DBAPIError, database.engine.dialect.loaded_dbapi.Error)

    def run(self, work: Callable[[sa.Connection], T]) -> T:
        """Run work in a transaction, again after a transient failure; return its result.

        A commit without a response may have succeeded. So `work` runs again, and must find that out.

        :raises DeliveryError: if the database refuses the work.
        :raises SinkUnavailableError: if the database stays unavailable.
        :raises SinkLockedError: if others hold the locks of the transaction for too long.
        """
        patience = Patience(self._wait_seconds)
        locked = LockWait(self._database.location, self._holders, self._end)
        while True:
            began = time.monotonic()
            try:
                return self._try(work)
            except self._errors as error:
                reason = self._database.reason(error)
                if not is_transient(error):
                    raise DeliveryError(reason) from None  # the original text may hold values of rows
                if is_locked(error):
                    locked.note(reason, time.monotonic() - began)
                    patience.renew()
                elif patience.is_over:
                    raise SinkUnavailableError(reason) from None
                log.info("the transaction is retried in %.1f s: %s", patience.pause, reason)
                patience.wait()

    def _try(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            if self._connection is None:
                self._connection = self._database.engine.connect()
            transaction = self._connection.begin()
            result = work(self._connection)
            transaction.commit()
        except BaseException:
            self._drop()
            raise
        return result

    def _holders(self, seconds: float) -> list[LockHolder]:
        """Return who holds locks on the table; nobody if the database does not say."""
        try:
            return self._try(lambda connection: self._database.lock_holders(connection, seconds))
        except Exception as error:  # it is only missing in the message
            log.info("who holds locks on %s is not known: %s", self._database.location, reason_of(error))
            return []

    def _end(self, holder: LockHolder) -> None:
        with suppress(Exception):  # it may have ended just now
            self._try(lambda connection: connection.exec_driver_sql(holder.ends_by))

    def _drop(self) -> None:
        """Close the connection without another request, which ends its transaction."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # it may be broken
                connection.invalidate()
            with suppress(Exception):
                connection.close()

    def close(self) -> None:
        """Close the connection."""
        self._drop()


def database_of(settings: SqlTable) -> SinkDatabase:
    """Return the database for the settings.

    :raises ConfigurationError: if its driver is not installed.
    """
    module, name = {POSTGRESQL: ("postgresql", "PostgreSql"), MYSQL: ("mysql", "MySql")}[settings.server.database]
    kind = getattr(importlib.import_module(f"airflow_provider_coordination.spark.sql.{module}"), name)
    database: SinkDatabase = kind(settings)
    return database
