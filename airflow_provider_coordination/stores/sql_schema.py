"""The table of the partitions, and the steps that upgrade older databases to its current form.

There are only upgrade steps. Besides the table `<name>`, a table `<name>_schema` holds one number: the last step that
was done. If the database commits every statement of a step (MySQL, MariaDB), a step may be interrupted halfway. The
next run checks what exists already and continues from there.
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
"""Shorter than the response timeout of a connection."""


class KeyText(TypeDecorator[str]):
    """Text that is compared exactly and ordered by code points, whatever the database's collation is.

    MySQL and MariaDB store it as bytes; the longest keys would not fit into an index otherwise.
    """

    impl = sa.String
    cache_ok = True

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[str]:
        """Return the column type in the database."""
        length = self.length
        if dialect.name == "mysql":
            return dialect.type_descriptor(mysql.VARBINARY(length))  # type: ignore[arg-type]
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.String(length, collation="C"))
        return dialect.type_descriptor(sa.String(length))

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | bytes | None:
        """Return the value to pass to the driver."""
        return value.encode() if value is not None and dialect.name == "mysql" else value

    def process_result_value(self, value: str | bytes | None, dialect: Dialect) -> str | None:
        """Return the value from the driver."""
        return value.decode() if isinstance(value, bytes) else value


LONG_TEXT = sa.Text().with_variant(mysql.LONGTEXT(), "mysql")
INSTANT = sa.String(27)
MYSQL_TABLE: dict[str, Any] = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}


def partition_table(name: str) -> sa.Table:
    """Return the table with this name in its current form.

    :raises ConfigurationError: if the name is not valid.
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
    """Return the name of the index for acquisitions and queries."""
    return f"ix_{table}_order"


def initialize(database: Database, table: sa.Table) -> None:
    """Upgrade the database to the current form of the table. Safe to repeat, and for several processes at once.

    If nothing is left to do, the role needs no permission to create or alter tables.

    :raises ConfigurationError: if the database is newer than this package or too old; if the table belongs to another
        program; if the file or the role permits no writes.
    :raises StoreUnavailableError: if the database is unavailable.
    """
    try:
        last = database.read(lambda connection: schema_version(connection, database, table))
        database.check_version()
        if last < len(STEPS):
            database.write(lambda connection: _take_steps(connection, database, table))
        elif database.dialect_name == "sqlite":  # reports a read-only file only for a write statement
            nothing = sa.delete(_version_table(table.name)).where(sa.false())
            database.write(lambda connection: connection.execute(nothing))
    except StoreUnavailableError as error:
        remedy = remedy_for(error.__cause__)
        if remedy is None:
            raise
        raise ConfigurationError(f"{error}; {remedy}" if remedy else str(error)) from error


def _take_steps(connection: sa.Connection, database: Database, table: sa.Table) -> None:
    with _exclusive(connection, database, table.name):
        last = schema_version(connection, database, table)
        if last < len(STEPS):
            _check_encoding(connection, database)
        for number in range(last + 1, len(STEPS) + 1):
            STEPS[number - 1](connection, table)
            _record_version(connection, table.name, number)
            log.info("store %s: table %s is at schema version %d", database.name, table.name, number)


def schema_version(connection: sa.Connection, database: Database, table: sa.Table) -> int:
    """Return the number of the last step that the database has done; 0 if it has none of our tables."""
    inspector = sa.inspect(connection)
    versions = _version_table(table.name)
    if not inspector.has_table(table.name):
        return 0
    number = None
    if inspector.has_table(versions.name):
        number = connection.scalar(sa.select(versions.c.version))
    if number is None:  # step 1 was interrupted
        _check_ours(inspector, database, table)
        return 0
    if number > len(STEPS):
        raise ConfigurationError(
            f"store {database.name}: table {table.name!r} is at schema version {number}, which is newer than this "
            f"package knows ({len(STEPS)}); upgrade airflow-provider-coordination here"
        )
    return int(number)


def _check_ours(inspector: sa.Inspector, database: Database, table: sa.Table) -> None:
    columns = [column["name"] for column in inspector.get_columns(table.name)]
    key = inspector.get_pk_constraint(table.name)["constrained_columns"]
    missing = [column.name for column in table.columns if column.name not in columns]
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
            f"store {database.name}: the database's encoding is {encoding}, which cannot store all partition keys; "
            "create the database with ENCODING 'UTF8'"
        )


def _version_table(name: str) -> sa.Table:
    version = sa.Column("version", sa.Integer, primary_key=True, autoincrement=False)
    return sa.Table(f"{name}_schema", sa.MetaData(), version, **MYSQL_TABLE)


def _record_version(connection: sa.Connection, name: str, number: int) -> None:
    versions = _version_table(name)
    versions.create(connection, checkfirst=True)
    connection.execute(sa.delete(versions))
    connection.execute(sa.insert(versions).values(version=number))


# The steps


def _create(connection: sa.Connection, table: sa.Table) -> None:
    """Step 1: the table and its index."""
    table.create(connection, checkfirst=True)
    for index in table.indexes:
        index.create(connection, checkfirst=True)
    if connection.dialect.name == "postgresql":
        # If two indexes seem to cost the same, as on a table that was never analyzed, the planner takes the newer one.
        # It must be the key, because the other one finds a key only by trying every priority.
        quote = connection.dialect.identifier_preparer.quote
        name, key = quote(table.name), quote(str(sa.inspect(connection).get_pk_constraint(table.name)["name"]))
        connection.exec_driver_sql(f"ALTER TABLE {name} DROP CONSTRAINT {key}")
        connection.exec_driver_sql(
            f"ALTER TABLE {name} ADD CONSTRAINT {key} PRIMARY KEY (source_identifier, partition_key)"
        )


STEPS: tuple[Callable[[sa.Connection, sa.Table], None], ...] = (_create,)
"""In order; steps are numbered from 1. A released step is never changed: the next one changes what it made."""


# Locking


@contextmanager
def _exclusive(connection: sa.Connection, database: Database, name: str) -> Iterator[None]:
    """Prevent other processes from upgrading at the same time. SQLite's write transaction already does so."""
    if database.dialect_name == "postgresql":
        connection.execute(sa.text(f"SET LOCAL lock_timeout = '{LOCK_WAIT_SECONDS}s'"))
        key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], signed=True)
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(key)))
        yield
    elif database.dialect_name == "mysql":
        # Each of its statements commits on its own, so the lock belongs to the session. Its name is global to the
        # server.
        name_on_server = f"{database.engine.url.database}.{name}"
        lock = f"coordination.{hashlib.sha256(name_on_server.encode()).hexdigest()[:40]}"
        for _ in range(LOCK_WAIT_SECONDS // MYSQL_LOCK_TRY_SECONDS):
            if connection.scalar(sa.select(sa.func.get_lock(lock, MYSQL_LOCK_TRY_SECONDS))):
                break
        else:
            raise StoreUnavailableError(
                f"store {database.name}: another process has locked its schema for more than {LOCK_WAIT_SECONDS} s; "
                "check on the server which process holds the lock"
            )
        try:
            yield
            connection.exec_driver_sql("COMMIT")  # before the next process reads
        finally:
            connection.execute(sa.select(sa.func.release_lock(lock)))
    else:
        yield
