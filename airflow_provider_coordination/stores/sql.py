"""Partitions in a SQL database, through SQLAlchemy Core: SQLite as the embedded default, PostgreSQL for production.

Acquisition selects and updates in one transaction, passing over rows that another worker is taking (`SKIP LOCKED`;
SQLite has one writer at a time instead). Instants are text of fixed width, so that one schema and one order serve
every database.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
    parse_instant,
    progress_text,
    read_progress,
)
from airflow_provider_coordination.coordination.store import Acquisition, acquisition_order, version_refused

log = logging.getLogger(__name__)

RETRY_DEADLINE_SECONDS = 15.0
SQLITE_BUSY_TIMEOUT_MS = 30_000
CREATE_CHUNK_ROWS = 200

T = TypeVar("T")


class SqlStore:
    """A store in one table of a SQL database.

    :param url: an SQLAlchemy URL; `postgres://` and `postgresql://` use the psycopg driver.
    :param table: the table's name; created if absent.
    :param retry_deadline_seconds: how long a transaction is tried again after a broken connection, a deadlock or a
        busy database, before the store counts as unavailable.
    :raises ConfigurationError: if the URL or the table name is not usable, or its driver is not installed.
    """

    def __init__(self, url: str, *, table: str, retry_deadline_seconds: float = RETRY_DEADLINE_SECONDS) -> None:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", table):
            raise ConfigurationError(f"store 'sql': table {table!r} is not usable: give letters, digits and '_'")
        self._engine = _engine(url)
        self._name = self._engine.url.render_as_string(hide_password=True)
        self.kind = self._engine.dialect.name
        self._retry_deadline_seconds = retry_deadline_seconds
        self._table = _table(table)

    def initialize(self) -> None:
        """Create the table and its index if they are absent."""

        def create_table(connection: sa.Connection) -> None:
            self._table.metadata.create_all(connection)

        def exists(connection: sa.Connection) -> bool:
            return bool(sa.inspect(connection).has_table(self._table.name))

        try:
            self._write(create_table)
        except (exc.ProgrammingError, exc.IntegrityError):  # another process created it in the same instant
            if not self._read(exists):
                raise

    def close(self) -> None:
        """Close the pooled connections."""
        self._engine.dispose()

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        """See `CoordinationStore.create`; in transactions of a few hundred rows."""
        created = []
        for start in range(0, len(partitions), CREATE_CHUNK_ROWS):
            chunk = partitions[start : start + CREATE_CHUNK_ROWS]
            created += self._write(partial(self._insert_absent, partitions=chunk))
        return created

    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        """See `CoordinationStore.get`."""
        where = self._is(source_identifier, partition_key)
        row = self._read(lambda connection: connection.execute(sa.select(self._table).where(where)).one_or_none())
        return None if row is None else _partition(row)

    def acquire(self, request: Acquisition) -> list[Partition]:
        """See `CoordinationStore.acquire`; one transaction."""

        def take(connection: sa.Connection) -> list[Partition]:
            taken: list[Partition] = []
            for status, latest in acquisition_order(request):
                if len(taken) == request.limit:
                    break
                rows = connection.execute(
                    self._in_order(request.source_identifier, status)
                    .where(self._table.c.priority <= format_instant(latest))
                    .limit(request.limit - len(taken))
                    .with_for_update(skip_locked=True)
                )
                taken += [_partition(row).acquired(request.owner, request.ownership_timeout) for row in rows]
            return self._update(connection, taken)

        return self._write(take)

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        """See `CoordinationStore.transact`; one transaction, rows locked in the order of their keys."""

        def change(connection: sa.Connection) -> list[Partition]:
            if len(update) + len(unchanged) > 1:
                self._lock(connection, [*update, *unchanged])
            written = self._update(connection, update)
            self._insert_absent(connection, create)
            return written

        return self._write(change)

    def delete(self, partition: Partition) -> None:
        """See `CoordinationStore.delete`."""

        def remove(connection: sa.Connection) -> None:
            if connection.execute(sa.delete(self._table).where(self._is_version(partition))).rowcount != 1:
                raise version_refused(partition)

        self._write(remove)

    def query(
        self,
        source_identifier: str,
        status: PartitionStatus,
        *,
        since: datetime | None = None,
        after: Partition | None = None,
        limit: int = 500,
    ) -> list[Partition]:
        """See `CoordinationStore.query`."""
        statement = self._in_order(source_identifier, status).limit(limit)
        if since is not None:
            statement = statement.where(self._table.c.priority >= format_instant(since))
        if after is not None:
            place = sa.tuple_(self._table.c.priority, self._table.c.partition_key)
            last = sa.tuple_(sa.literal(format_instant(after.priority)), sa.literal(after.partition_key))
            statement = statement.where(place > last)
        return self._read(lambda connection: [_partition(row) for row in connection.execute(statement)])

    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        """See `CoordinationStore.count_by_status`."""
        columns = self._table.c
        statement = (
            sa.select(columns.status, sa.func.count())
            .where(columns.source_identifier == source_identifier, columns.status.in_([s.value for s in statuses]))
            .group_by(columns.status)
        )
        found = self._read(lambda connection: connection.execute(statement).all())
        return dict.fromkeys(statuses, 0) | {PartitionStatus(status): count for status, count in found}

    def source_identifiers(self) -> list[str]:
        """See `CoordinationStore.source_identifiers`."""
        column = self._table.c.source_identifier
        statement = sa.select(column).distinct().order_by(column)
        return self._read(lambda connection: list(connection.scalars(statement)))

    # Statements

    def _is(self, source_identifier: str, partition_key: str) -> sa.ColumnElement[bool]:
        columns = self._table.c
        return sa.and_(columns.source_identifier == source_identifier, columns.partition_key == partition_key)

    def _is_version(self, partition: Partition) -> sa.ColumnElement[bool]:
        return sa.and_(
            self._is(partition.source_identifier, partition.partition_key),
            self._table.c.version == partition.version,
        )

    def _in_order(self, source_identifier: str, status: PartitionStatus) -> sa.Select[Any]:
        columns = self._table.c
        return (
            sa.select(self._table)
            .where(columns.source_identifier == source_identifier, columns.status == status.value)
            .order_by(columns.priority, columns.partition_key)
        )

    def _update(self, connection: sa.Connection, partitions: Sequence[Partition]) -> list[Partition]:
        written = []
        for partition in partitions:
            changed = partition.written()
            statement = sa.update(self._table).where(self._is_version(partition)).values(_row(changed))
            if connection.execute(statement).rowcount != 1:
                raise version_refused(partition)
            written.append(changed)
        return written

    def _insert_absent(self, connection: sa.Connection, partitions: Sequence[Partition]) -> list[str]:
        key = self._table.c.partition_key
        inserts = (self._insert_if_absent().values(_row(p)).returning(key) for p in partitions)
        return [created for insert in inserts for created in connection.execute(insert).scalars()]

    def _insert_if_absent(self) -> Any:
        if self._engine.dialect.name == "postgresql":
            from sqlalchemy.dialects.postgresql import insert as postgresql_insert

            return postgresql_insert(self._table).on_conflict_do_nothing()
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(self._table).on_conflict_do_nothing()

    def _lock(self, connection: sa.Connection, partitions: Sequence[Partition]) -> None:
        for partition in sorted(partitions, key=lambda p: (p.source_identifier, p.partition_key)):
            locked = sa.select(self._table.c.version).where(self._is_version(partition)).with_for_update()
            if connection.execute(locked).one_or_none() is None:
                raise version_refused(partition)

    # Transactions

    def _read(self, work: Callable[[sa.Connection], T]) -> T:
        return self._run(work, {})

    def _write(self, work: Callable[[sa.Connection], T]) -> T:
        return self._run(work, {"coordination_write": True})

    def _run(self, work: Callable[[sa.Connection], T], options: dict[str, Any]) -> T:
        """Run `work` in a transaction, again after a passing failure, until the deadline.

        A commit whose answer was lost may run twice: inserts are idempotent, and the coordinator recognises its own
        update.
        """
        deadline = time.monotonic() + self._retry_deadline_seconds
        for attempt in range(100):
            try:
                with self._engine.connect().execution_options(**options) as connection, connection.begin():
                    return work(connection)
            except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as error:
                pause = random.uniform(0.5, 1.0) * min(0.05 * 2**attempt, 2.0)
                if time.monotonic() + pause > deadline or not _is_passing(error):
                    raise StoreUnavailableError(f"store {self._name} cannot be used: {_reason(error)}") from error
                log.debug("store %s: %s; trying again in %.2f s", self._name, _reason(error), pause)
                time.sleep(pause)
            except exc.DatabaseError as error:
                if type(error) is exc.DatabaseError:  # the file is damaged, or no database at all
                    raise StoreUnavailableError(f"store {self._name} cannot be used: {_reason(error)}") from error
                raise
        raise StoreUnavailableError(f"store {self._name} cannot be used: it failed 100 times in a row")


def _table(name: str) -> sa.Table:
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("source_identifier", sa.String(256), primary_key=True),
        sa.Column("partition_key", sa.String(512), primary_key=True),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("owner", sa.String(512)),
        sa.Column("ownership_timeout", sa.String(27)),
        sa.Column("progress", sa.Text, nullable=False),
        sa.Column("reopen_at", sa.String(27)),
        sa.Column("closed_count", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("priority", sa.String(27), nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("last_error", sa.Text),
        sa.Index(f"ix_{name}_order", "source_identifier", "status", "priority", "partition_key"),
    )


def _engine(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
    except exc.ArgumentError:
        raise ConfigurationError(
            "store 'sql': 'url' is not an SQLAlchemy URL; "
            "give for example sqlite:////var/lib/coordination.db or postgresql://user@host/database"
        ) from None
    if parsed.drivername in ("postgres", "postgresql"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    dialect = parsed.get_backend_name()
    if dialect not in ("sqlite", "postgresql"):
        raise ConfigurationError(f"store 'sql': database {dialect!r} is not supported; use sqlite or postgresql")
    if dialect == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ConfigurationError(
            "store 'sql': SQLite needs a file that all workers of the machine share; give sqlite:////path/to/file.db"
        )
    try:
        engine = sa.create_engine(parsed, pool_pre_ping=dialect != "sqlite")
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"store 'sql': the driver {error.name!r} is not installed; install airflow-provider-coordination[postgres]"
        ) from None
    if dialect == "sqlite":
        sa.event.listen(engine, "connect", _configure_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # transactions are begun below, not guessed by the driver
    # The timeout first: another process may be switching the same new file to WAL in this moment.
    connection.execute(f"PRAGMA busy_timeout = {SQLITE_BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a checkpoint that was acknowledged survives a power cut


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer takes the write lock at once: upgrading a read lock later fails without waiting.
    write = connection.get_execution_options().get("coordination_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _is_passing(error: exc.SQLAlchemyError) -> bool:
    """Tell whether trying again may help: not where the file or the database itself cannot be opened."""
    return not re.search(r"unable to open|not a database|readonly|password|does not exist", str(error), re.IGNORECASE)


def _reason(error: exc.SQLAlchemyError) -> str:
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]


def _row(partition: Partition) -> dict[str, Any]:
    return {
        "source_identifier": partition.source_identifier,
        "partition_key": partition.partition_key,
        "status": partition.status.value,
        "owner": partition.owner,
        "ownership_timeout": partition.ownership_timeout and format_instant(partition.ownership_timeout),
        "progress": progress_text(partition),
        "reopen_at": partition.reopen_at and format_instant(partition.reopen_at),
        "closed_count": partition.closed_count,
        "version": partition.version,
        "priority": format_instant(partition.priority),
        "attempts": partition.attempts,
        "last_error": partition.last_error,
    }


def _partition(row: sa.Row[Any]) -> Partition:
    return Partition(
        source_identifier=row.source_identifier,
        partition_key=row.partition_key,
        status=PartitionStatus(row.status),
        owner=row.owner,
        ownership_timeout=row.ownership_timeout and parse_instant(row.ownership_timeout),
        reopen_at=row.reopen_at and parse_instant(row.reopen_at),
        closed_count=row.closed_count,
        version=row.version,
        priority=parse_instant(row.priority),
        attempts=row.attempts,
        last_error=row.last_error,
        **read_progress(row.progress),
    )
