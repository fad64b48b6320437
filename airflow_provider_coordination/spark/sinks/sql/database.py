"""The differences between databases, transactions that are repeated after a transient failure, and waiting for locks.

A job that is paused within a transaction keeps its locks until the server ends its session. The next owner waits that
long. PostgreSQL does not end a session that stopped in the middle of a COPY, or after an error of one; then the next
owner ends it.
"""

from __future__ import annotations

import hashlib
import importlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy import exc
from sqlalchemy.pool import NullPool

from airflow_provider_coordination.spark.delivery import (
    DeliveryError,
    RefusedRowError,
    SinkLockedError,
    SinkUnavailableError,
)
from airflow_provider_coordination.spark.merging import Merging
from airflow_provider_coordination.spark.writes.sql import SqlTable
from airflow_provider_coordination.sql import (
    DRIVERS,
    MYSQL,
    POSTGRESQL,
    Patience,
    is_locked,
    is_of_row,
    is_transient,
    reason_of,
    sql_engine,
)

log = logging.getLogger(__name__)

INCOMING = "_coordination_incoming"
"""The temporary table that rows are merged from."""
DELETES = "_coordination_deletes"
"""Its column that says which rows delete."""
TOMBSTONES_PREFIX = "_coordination_deleted_"
DELETED_AT = "_deleted_at"
MAX_TOMBSTONES_BYTES = 63
"""PostgreSQL's limit, which is the lower one."""
ABANDONED_SECONDS = 60
"""After this time, a worker that stopped in the middle of a transaction loses its locks."""
LOCKED_SECONDS = 180.0
"""How long a transaction is repeated while others hold its locks: longer than an abandoned session lasts."""
MAX_NAMED = 3
"""The number of sessions that a message names."""


@dataclass(frozen=True, kw_only=True)
class LockHolder:
    """A session of the database whose transaction holds locks.

    :param session: its number.
    :param user: its user.
    :param client: its application and address; empty if the server does not show it.
    :param since: when its transaction began; None if the server does not show it.
    :param idle_since: since when it is idle; None if it works, or if the server does not show it.
    :param until: when the server ends it if it stays idle; None if that is not known.
    :param copied: the number of bytes that it has received, if a job of the same login waits for more within a COPY.
    :param is_certain: whether it does hold locks, as far as the server shows.
    :param ends_by: the statement that ends it.
    """

    session: int
    user: str
    client: str = ""
    since: datetime | None = None
    idle_since: datetime | None = None
    until: datetime | None = None
    copied: int | None = None
    is_certain: bool = True
    ends_by: str

    def __str__(self) -> str:
        said = f"{'' if self.is_certain else 'probably by '}session {self.session} of user {self.user!r}"
        said += f" ({self.client})" if self.client else ""
        said += f", in a transaction since {self.since:%Y-%m-%d %H:%M:%S}" if self.since else ""
        said += f", idle since {self.idle_since:%H:%M:%S}" if self.idle_since else ""
        said += ", waiting for its client within a COPY" if self.copied is not None else ""
        said += f"; the server ends it at {self.until:%H:%M:%S} UTC if it stays idle" if self.until else ""
        return f"{said}; to end it now: {self.ends_by}"


def lock_holders(rows: Sequence[Sequence[Any]], ends_by: str, *, is_certain: bool = True) -> list[LockHolder]:
    """Return the sessions that a server shows: readers only if nobody else holds a lock.

    :param rows: for each session the fields of `LockHolder` up to `copied`, and whether it holds a writer's lock.
    :param ends_by: the statement that ends a session, with its number as `{}`.
    :param is_certain: whether the sessions do hold locks, as far as the server shows.
    """
    writers = [row for row in rows if row[-1]]
    return [
        LockHolder(
            session=session,
            user=user,
            client=client,
            since=since,
            idle_since=idle_since,
            until=until,
            copied=copied,
            is_certain=is_certain,
            ends_by=ends_by.format(session),
        )
        for session, user, client, since, idle_since, until, copied, _ in writers or rows
    ]


class LockWait:
    """How long one transaction waits for the locks of others.

    :param location: the table, for messages.
    :param find: returns the sessions that hold locks on the table in transactions that are older than some seconds.
    :param end: ends a session.
    """

    def __init__(
        self, location: str, find: Callable[[float], Sequence[LockHolder]], end: Callable[[LockHolder], None]
    ) -> None:
        self._location = location
        self._find = find
        self._end = end
        self._began: float | None = None
        self._stalled: dict[tuple[int, datetime | None, int | datetime], float] = {}

    def note(self, reason: str, waited: float) -> None:
        """Note that a lock was not granted.

        :param reason: the server's message.
        :param waited: the seconds since the transaction began.
        :raises SinkLockedError: if the transaction has waited long enough.
        """
        now = time.monotonic()
        if self._began is None:
            self._began = now - waited
        holders = self._find(waited)
        named = " and ".join(map(str, holders[:MAX_NAMED])) or "a session that the server does not show"
        said = f"table {self._location} is locked by {named} ({reason})"
        if now - self._began >= LOCKED_SECONDS:
            raise SinkLockedError(said)
        log.warning("the transaction is repeated: %s", said)
        for holder in holders:
            self._end_if_stalled(holder, now)

    def _end_if_stalled(self, holder: LockHolder, now: float) -> None:
        """End a session of ours that has received nothing for as long as an idle one may last."""
        state = holder.idle_since if holder.copied is None and holder.until is not None else holder.copied
        if state is None:
            return
        since = self._stalled.setdefault((holder.session, holder.since, state), now)
        if now - since >= ABANDONED_SECONDS:
            log.warning("the abandoned session %d of user %r is ended", holder.session, holder.user)
            self._end(holder)


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
        self.merging = Merging.of(settings)
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
                **self.arguments(LOCK_TIMEOUT_SECONDS, ABANDONED_SECONDS),
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

    @property
    def title(self) -> str:
        """The table, for messages."""
        return f"table {self.table}"

    @property
    def tombstones(self) -> str:
        """The quoted name of the table of deleted keys with its schema."""
        return f"{self.quoted(self.settings.schema)}.{self.quoted(tombstones_name(self.settings.table_name))}"

    @property
    def remembered(self) -> list[str]:
        """The columns of a deleted row that are remembered: its key, and its order."""
        return [*self.merging.on, *filter(None, [self.merging.order_by])]

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

    def listed(self, names: Iterable[str]) -> str:
        """Return quoted names, with commas."""
        return ", ".join(map(self.quoted, names))

    def same_key(self, one: str, other: str) -> str:
        """Return the condition that rows of two tables have the same key.

        :param one: the name or alias of a table.
        """
        return " AND ".join(f"{one}.{name} = {other}.{name}" for name in map(self.quoted, self.merging.on))

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

    def check_constraints_at_once(self, connection: sa.Connection) -> None:  # noqa: B027 (most databases always do)
        """Let each statement of the transaction check the constraints that are otherwise checked at its end."""

    @abstractmethod
    def tombstones_creation(self) -> list[str]:
        """Return the statements that create the table of deleted keys; its columns have the types of the target's."""

    def try_load(self, connection: sa.Connection, rows: pa.Table, *, keeps: bool = True) -> str | None:
        """Add rows to the table as `load` does, unless it refuses one of them; then none is added.

        :param keeps: whether accepted rows stay in the table.
        :returns: the error of the refused row; None if it accepts the rows.
        """
        savepoint = connection.begin_nested()
        reason: str | None
        try:
            self.load(connection, rows)
        except RefusedRowError as error:
            reason = str(error)
        except (exc.DBAPIError, self.engine.dialect.loaded_dbapi.Error) as error:
            if not is_of_row(error):
                raise
            reason = self.reason(error)
        else:
            if keeps:
                savepoint.commit()
                return None
            reason = None
        savepoint.rollback()
        return reason

    @abstractmethod
    def load(self, connection: sa.Connection, rows: pa.Table) -> None:
        """Add rows to the table; with `merge_on`, replace or delete rows with the same values in those columns.

        With `op`, the transaction has locked the target; see `CommittedBatches.lock_target`.

        :raises RefusedRowError: if a row cannot be written as the database reads it.
        """


def tombstones_name(table: str) -> str:
    """Return the name of the table of tombstones for a target.

    :param table: the name of the target, without its schema.
    """
    name = TOMBSTONES_PREFIX + table
    if len(name.encode()) <= MAX_TOMBSTONES_BYTES:
        return name
    digest = hashlib.sha256(table.encode()).hexdigest()[:8]
    return f"{name.encode()[: MAX_TOMBSTONES_BYTES - 9].decode(errors='ignore')}_{digest}"


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
    kind = getattr(importlib.import_module(f"airflow_provider_coordination.spark.sinks.sql.{module}"), name)
    database: SinkDatabase = kind(settings)
    return database
