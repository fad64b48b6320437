"""The table that partitions are kept in, and the steps by which older databases reach its present form.

Steps only go forward. Beside the table `<name>` a table `<name>_schema` holds one number, the last step that was taken.
A step may be cut off in the middle where the database commits each of its statements (MySQL, MariaDB): it looks what is
already there, and goes on from it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import MAX_KEY_BYTES, MAX_SOURCE_IDENTIFIER_BYTES
from airflow_provider_coordination.stores.sql_database import Database, remedy_for

log = logging.getLogger(__name__)

MAX_TABLE_NAME = 54
"""`ix_<name>_order` then fits into PostgreSQL's 63 characters."""
LOCK_WAIT_SECONDS = 600
MYSQL_LOCK_TRY_SECONDS = 20
"""Shorter than the time that a connection waits for an answer."""


class KeyText(TypeDecorator[str]):
    """Text that is equal only to itself and ordered by code points, whatever the database's collation.

    MySQL and MariaDB keep it as bytes, which the longest keys need anyway to fit into an index.
    """

    impl = sa.String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """Return what the database keeps it as."""
        length = self.length
        if dialect.name == "mysql":
            return dialect.type_descriptor(mysql.VARBINARY(length))  # type: ignore[arg-type]
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.String(length, collation="C"))
        return dialect.type_descriptor(sa.String(length))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | bytes | None:
        """Return what the driver is given."""
        return value.encode() if value is not None and dialect.name == "mysql" else value

    def process_result_value(self, value: str | bytes | None, dialect: Dialect) -> str | None:
        """Return what the driver has given."""
        return value.decode() if isinstance(value, bytes) else value


LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")
INSTANT = sa.String(27)
MYSQL_TABLE: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def partition_table(name: str) -> sa.Table:
    """Return the table of this name in its present form.

    :raises ConfigurationError: if the name is not usable.
    """
    if not name.isascii() or not name.isidentifier() or len(name) > MAX_TABLE_NAME:
        raise ConfigurationError(
            f"store 'sql': table {name!r} is not usable: give up to {MAX_TABLE_NAME} letters, digits and '_'"
        )
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("source_identifier", KeyText(MAX_SOURCE_IDENTIFIER_BYTES), primary_key=True),
        sa.Column("partition_key", KeyText(MAX_KEY_BYTES), primary_key=True),
        sa.Column("status", KeyText(16), nullable=False),
        sa.Column("owner", LONG_TEXT),
        sa.Column("ownership_timeout", INSTANT),
        sa.Column("progress", LONG_TEXT, nullable=False),
        sa.Column("reopen_at", INSTANT),
        sa.Column("closed_count", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("priority", KeyText(27), nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("last_error", LONG_TEXT),
        sa.Column("held_since", INSTANT),
        sa.Index(order_index(name), "source_identifier", "status", "priority", "partition_key"),
        **MYSQL_TABLE,
    )


def order_index(table: str) -> str:
    """Return the name of the index that acquisition and queries go by."""
    return f"ix_{table}_order"


def initialize(database: Database, table: sa.Table) -> None:
    """Bring the database to the present form of the table; harmless when it is, and when others do it at once.

    A role without the right to create or alter tables will do where nothing is left to do.

    :raises ConfigurationError: if the database is newer than this package or too old; if the table is not one of
        ours; if the file or the role lets nothing be written.
    :raises StoreUnavailableError: if the database does not answer.
    """
    try:
        last = database.read(lambda connection: reached(connection, database, table))
        database.check_version()
        if last < len(STEPS):
            database.write(lambda connection: _take_steps(connection, database, table))
        elif database.dialect_name == "sqlite":  # tells only a statement that writes that its file is read-only
            nothing = sa.delete(_version_table(table.name)).where(sa.false())
            database.write(lambda connection: connection.execute(nothing))
    except StoreUnavailableError as error:
        remedy = remedy_for(error.__cause__)
        if remedy is None:
            raise
        raise ConfigurationError(f"{error}; {remedy}" if remedy else str(error)) from error


def _take_steps(connection: sa.Connection, database: Database, table: sa.Table) -> None:
    with _alone(connection, database, table.name):
        last = reached(connection, database, table)
        if last < len(STEPS):
            _check_encoding(connection, database)
        for number in range(last + 1, len(STEPS) + 1):
            STEPS[number - 1](connection, table)
            _note(connection, table.name, number)
            log.info("store %s: table %s is at schema version %d", database.name, table.name, number)


def reached(connection: sa.Connection, database: Database, table: sa.Table) -> int:
    """Return the last step that the database has taken; 0 if it has none of our tables."""
    inspector = sa.inspect(connection)
    versions = _version_table(table.name)
    if not inspector.has_table(table.name):
        return 0
    number = None
    if inspector.has_table(versions.name):
        number = connection.scalar(sa.select(versions.c.version))
    if number is None:  # made before there were steps: by step 1, perhaps not to its end, or by part of a later one
        _check_ours(inspector, database, table)
        return int(inspector.has_index(table.name, order_index(table.name)))
    if number > len(STEPS):
        raise ConfigurationError(
            f"store {database.name}: table {table.name!r} is at schema version {number}, which is newer than this "
            f"package knows ({len(STEPS)}); upgrade airflow-provider-coordination here"
        )
    return int(number)


def _check_ours(inspector: sa.Inspector, database: Database, table: sa.Table) -> None:
    columns = [column["name"] for column in inspector.get_columns(table.name)]
    key = inspector.get_pk_constraint(table.name)["constrained_columns"]
    ours = [column.name for column in _first_table(table.name).columns]
    missing = [name for name in ours if name not in columns]
    if missing or key != ["source_identifier", "partition_key"]:
        raise ConfigurationError(
            f"store {database.name}: table {table.name!r} is not one of ours: it has the columns "
            f"{', '.join(columns)} and the primary key ({', '.join(key)}); give another 'table'"
        )


def _check_encoding(connection: sa.Connection, database: Database) -> None:
    if database.dialect_name != "postgresql":
        return
    encoding = connection.scalar(sa.text("SELECT current_setting('server_encoding')"))
    if encoding != "UTF8":
        raise ConfigurationError(
            f"store {database.name}: the database's encoding is {encoding}, which not all partition keys fit; "
            "create the database with ENCODING 'UTF8'"
        )


def _version_table(name: str) -> sa.Table:
    version = sa.Column("version", sa.Integer, primary_key=True, autoincrement=False)
    return sa.Table(f"{name}_schema", sa.MetaData(), version, **MYSQL_TABLE)


def _note(connection: sa.Connection, name: str, number: int) -> None:
    versions = _version_table(name)
    versions.create(connection, checkfirst=True)
    connection.execute(sa.delete(versions))
    connection.execute(sa.insert(versions).values(version=number))


# The steps


def _first_table(name: str) -> sa.Table:
    # As it was: what a later step needs to be different is that step's to say.
    return sa.Table(
        name,
        sa.MetaData(),
        sa.Column("source_identifier", KeyText(256).with_variant(sa.String(256), "postgresql"), primary_key=True),
        sa.Column("partition_key", KeyText(1024).with_variant(sa.String(512), "postgresql"), primary_key=True),
        sa.Column("status", KeyText(16).with_variant(sa.String(16), "postgresql"), nullable=False),
        sa.Column("owner", LONG_TEXT.with_variant(sa.String(512), "postgresql")),
        sa.Column("ownership_timeout", INSTANT),
        sa.Column("progress", LONG_TEXT, nullable=False),
        sa.Column("reopen_at", INSTANT),
        sa.Column("closed_count", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("priority", KeyText(27).with_variant(sa.String(27), "postgresql"), nullable=False),
        sa.Index(order_index(name), "source_identifier", "status", "priority", "partition_key"),
        **MYSQL_TABLE,
    )


def _create(connection: sa.Connection, table: sa.Table) -> None:
    """Step 1: the table and its index."""
    first = _first_table(table.name)
    first.create(connection, checkfirst=True)
    for index in first.indexes:
        index.create(connection, checkfirst=True)


def _add_failures_and_order_by_code_points(connection: sa.Connection, table: sa.Table) -> None:
    """Step 2: what failed, how often; longer keys, compared by code points."""
    _add_missing(
        connection,
        table,
        sa.Column("attempts", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("last_error", LONG_TEXT),
    )
    if connection.dialect.name == "postgresql":
        _alter(
            connection,
            table.name,
            'ALTER COLUMN source_identifier TYPE VARCHAR(256) COLLATE "C", '
            'ALTER COLUMN partition_key TYPE VARCHAR(1024) COLLATE "C", '
            'ALTER COLUMN status TYPE VARCHAR(16) COLLATE "C", '
            'ALTER COLUMN priority TYPE VARCHAR(27) COLLATE "C", '
            "ALTER COLUMN owner TYPE TEXT",
        )
        # Between two indexes that seem to cost the same, as on a table that was never analyzed, the planner takes the
        # younger one: it must be this one, as the other finds a key only by trying every priority.
        key = sa.inspect(connection).get_pk_constraint(table.name)["name"]
        quoted = connection.dialect.identifier_preparer.quote(str(key))
        _alter(connection, table.name, f"DROP CONSTRAINT {quoted}")
        _alter(connection, table.name, f"ADD CONSTRAINT {quoted} PRIMARY KEY (source_identifier, partition_key)")


def _add_since_when_it_is_held(connection: sa.Connection, table: sa.Table) -> None:
    """Step 3: since when its owner has held a partition."""
    _add_missing(connection, table, sa.Column("held_since", INSTANT))


def _add_missing(connection: sa.Connection, table: sa.Table, *columns: sa.Column[Any]) -> None:
    there = {column["name"] for column in sa.inspect(connection).get_columns(table.name)}
    for column in columns:
        if column.name not in there:
            _alter(connection, table.name, f"ADD COLUMN {_definition(connection, column)}")


def _alter(connection: sa.Connection, name: str, change: str) -> None:
    quoted = connection.dialect.identifier_preparer.quote(name)
    connection.exec_driver_sql(f"ALTER TABLE {quoted} {change}")


def _definition(connection: sa.Connection, column: sa.Column[Any]) -> str:
    return str(sa.schema.CreateColumn(column).compile(dialect=connection.dialect))


STEPS: tuple[Callable[[sa.Connection, sa.Table], None], ...] = (
    _create,
    _add_failures_and_order_by_code_points,
    _add_since_when_it_is_held,
)
"""In order; the number of a step is its place, counted from 1. A step that was released is never changed."""


# One at a time


@contextmanager
def _alone(connection: sa.Connection, database: Database, name: str) -> Iterator[None]:
    """Let no other process take steps meanwhile; SQLite's write transaction does so by itself."""
    if database.dialect_name == "postgresql":
        connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_WAIT_SECONDS}s'"))
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
        yield
    elif database.dialect_name == "mysql":
        # Its statements commit each by itself, so the lock is the session's. Its name is the whole server's.
        place = f"{database.engine.url.database}.{name}"
        lock = f"coordination.{hashlib.sha256(place.encode()).hexdigest()[:40]}"
        for _ in range(LOCK_WAIT_SECONDS // MYSQL_LOCK_TRY_SECONDS):
            if connection.scalar(sa.select(sa.func.get_lock(lock, MYSQL_LOCK_TRY_SECONDS))):
                break
        else:
            raise StoreUnavailableError(f"store {database.name}: another process has held its schema for too long")
        try:
            yield
            connection.exec_driver_sql("COMMIT")  # before the next one looks
        finally:
            connection.execute(sa.select(sa.func.release_lock(lock)))
    else:
        yield
