"""Writes and locks many rows of a SQL store's table, as each database does it fastest, within a transaction."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import fields
from functools import cache
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

import sqlalchemy as sa
from sqlalchemy import exc

from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
    parse_instant,
    progress_text,
    read_progress,
)
from airflow_provider_coordination.coordination.store import creation_refused, version_refused
from airflow_provider_coordination.stores.sql_database import Database

VARYING_COLUMNS = ("partition_key", "progress", "version", "priority")
"""The columns that differ between partitions that are created together."""
Key = tuple[str, str]
"""A source identifier and a partition key."""


class SqlRows:
    """The rows of a table of partitions.

    :param database: where the table is.
    :param table: the table.
    """

    def __init__(self, database: Database, table: sa.Table) -> None:
        self._database = database
        self._table = table
        self._quoted = database.engine.dialect.identifier_preparer.quote(table.name)
        columns = table.c
        row = sa.and_(
            columns.source_identifier == sa.bindparam("of_source"), columns.partition_key == sa.bindparam("of_key")
        )
        self._lock_one = (
            sa.select(columns.source_identifier, columns.partition_key, columns.version).where(row).with_for_update()
        )
        self._update_one = sa.update(table).where(row, columns.version == sa.bindparam("of_version"))

    # Many rows at once, directly by the driver. SQLAlchemy needs longer for a thousand parameters than a database for
    # the rest; and PostgreSQL's driver needs longer for them, or for an array, than for one JSON text.

    def existing_keys(
        self, connection: sa.Connection, source_identifier: str, partition_keys: Sequence[str]
    ) -> list[str]:
        """Return which of some keys of a source exist."""
        statement = f"SELECT partition_key FROM {self._quoted} WHERE source_identifier = "
        match self._database.dialect_name:
            case "sqlite":
                statement += f"? AND partition_key IN ({_marks('?', partition_keys)})"
                rows = connection.exec_driver_sql(statement, (source_identifier, *partition_keys))
            case "postgresql":
                statement += "%s AND partition_key = ANY(ARRAY(SELECT json_array_elements_text(%s::json)))"
                rows = connection.exec_driver_sql(statement, (source_identifier, json.dumps(partition_keys)))
            case _:  # KeyText
                statement += f"%s AND partition_key IN ({_marks('%s', partition_keys)})"
                values = (source_identifier.encode(), *(key.encode() for key in partition_keys))
                return [row[0].decode() for row in connection.exec_driver_sql(statement, values)]
        return [row[0] for row in rows]

    def _insert_similar(self, connection: sa.Connection, partitions: Sequence[Partition]) -> None:
        """Insert partitions that differ only in `VARYING_COLUMNS`. The other columns are passed only once."""
        shared = {name: value for name, value in row_of(partitions[0]).items() if name not in VARYING_COLUMNS}
        rows = _rows_of_each(partitions)
        match self._database.dialect_name:
            case "sqlite":
                of_each = f"column1, column2, column3, column4 FROM (VALUES {_marks('(?, ?, ?, ?)', rows)})"
                mark, values = "?", (*shared.values(), *chain.from_iterable(rows))
            case "postgresql":
                types = "partition_key text, progress text, version bigint, priority text"
                of_each = f"* FROM json_to_recordset(%s::json) AS given({types})"
                given = [dict(zip(VARYING_COLUMNS, row, strict=True)) for row in rows]
                mark, values = "%s", (*shared.values(), json.dumps(given))
            case _:
                connection.execute(
                    sa.insert(self._table), [shared | dict(zip(VARYING_COLUMNS, row, strict=True)) for row in rows]
                )
                return
        columns = ", ".join((*shared, *VARYING_COLUMNS))
        connection.exec_driver_sql(
            f"INSERT INTO {self._quoted} ({columns}) SELECT {_marks(mark, shared)}, {of_each}", values
        )

    def update(self, connection: sa.Connection, partitions: Sequence[Partition]) -> list[Partition]:
        """Update rows that this transaction has locked, or a single row, if the versions match."""
        written = [partition.written() for partition in partitions]
        if not written:
            return written
        rows = [row_of(each) for each in written]
        if len(rows) > 1 and self._database.dialect_name == "postgresql":
            count = connection.execute(self._update_statement(rows)).rowcount
        else:
            keys = ("source_identifier", "partition_key")
            changes = [
                {name: value for name, value in row.items() if name not in keys}
                | {"of_source": seen.source_identifier, "of_key": seen.partition_key, "of_version": seen.version}
                for seen, row in zip(partitions, rows, strict=True)
            ]
            count = connection.execute(self._update_one, changes).rowcount
        if count != len(written):
            raise version_refused(partitions[0])
        return written

    def lock(self, connection: sa.Connection, partitions: Sequence[Partition]) -> None:
        """Lock rows in the order of their keys, if their versions match those of the partitions."""
        keys = sorted({_key(partition) for partition in partitions})
        stored = {
            (source_identifier, key): version for source_identifier, key, version in self._locked(connection, keys)
        }
        for partition in partitions:
            if stored.get(_key(partition)) != partition.version:
                raise version_refused(partition)

    def _locked(self, connection: sa.Connection, keys: Sequence[Key]) -> Iterator[Sequence[Any]]:
        """Lock rows one after another; yield the key and the version of each existing row."""
        if self._database.dialect_name == "mysql":  # many keys at once may make it scan the whole table
            for source_identifier, key in keys:
                yield from connection.execute(self._lock_one, {"of_source": source_identifier, "of_key": key})
        elif self._database.dialect_name == "postgresql":
            statement = (
                "SELECT stored.source_identifier, stored.partition_key, stored.version "
                f"FROM {self._quoted} AS stored JOIN json_to_recordset(%s::json) AS given(of_source text, of_key text) "
                "ON stored.source_identifier = of_source AND stored.partition_key = of_key "
                "ORDER BY stored.source_identifier, stored.partition_key FOR UPDATE OF stored"
            )
            given = [{"of_source": source_identifier, "of_key": key} for source_identifier, key in keys]
            yield from connection.exec_driver_sql(statement, (json.dumps(given),))
        else:  # the whole file is locked
            statement = (
                f"SELECT source_identifier, partition_key, version FROM {self._quoted} "
                f"WHERE (source_identifier, partition_key) IN (VALUES {_marks('(?, ?)', keys)})"
            )
            yield from connection.exec_driver_sql(statement, tuple(chain.from_iterable(keys)))

    def _update_statement(self, rows: Sequence[dict[str, Any]]) -> sa.Update:
        """Return the statement that updates rows in PostgreSQL."""
        columns, values = self._table.c, self._as_table(rows)
        return (
            sa.update(self._table)
            .where(
                columns.source_identifier == values.c.source_identifier,
                columns.partition_key == values.c.partition_key,
                columns.version == values.c.version - 1,
            )
            .values({column: values.c[column.name] for column in columns if not column.primary_key})
        )

    def insert_absent(
        self, connection: sa.Connection, partitions: Sequence[Partition], *, return_created: bool = True
    ) -> list[str]:
        """Insert the rows that do not exist; return the keys of the new rows, in the given order.

        :param return_created: whether to return them. Without, SQLite inserts rows several times as fast.
        """
        # Sorted, so that two processes that create the same rows do not deadlock; of equal keys, the first one counts.
        rows = {_key(p): row_of(p) for p in reversed(partitions)}
        absent = [rows[key] for key in sorted(rows)]
        if not absent:
            return []
        match self._database.dialect_name:
            case "mysql":
                created = self._insert_missing(connection, absent)
            case "sqlite" if not return_created:
                connection.execute(self._insert_or_ignore(), absent)
                return []
            case _:
                created = self._insert_or_skip(connection, absent)
        return [key[1] for key in dict.fromkeys(map(_key, partitions)) if key in created]

    def insert_new(self, connection: sa.Connection, partitions: Sequence[Partition]) -> None:
        """Insert rows that must not exist.

        :raises PartitionUpdateError: if one of them exists.
        """
        try:
            for _, alike in groupby(sorted(partitions, key=_key), key=_SHARED):
                self._insert_similar(connection, list(alike))
        except exc.IntegrityError as error:
            if not _is_duplicate(error):
                raise
            raise creation_refused(partitions[0]) from None

    def _insert_or_skip(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> set[Key]:
        key = (self._table.c.source_identifier, self._table.c.partition_key)
        if self._database.dialect_name == "postgresql":
            from sqlalchemy.dialects.postgresql import insert as postgresql_insert

            statement = postgresql_insert(self._table).from_select(list(rows[0]), sa.select(self._as_table(rows)))
            inserted = connection.execute(statement.on_conflict_do_nothing().returning(*key))
        else:
            inserted = connection.execute(self._insert_or_ignore().returning(*key), rows)
        return {(row[0], row[1]) for row in inserted}

    def _insert_or_ignore(self) -> Any:
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(self._table).on_conflict_do_nothing()

    def _as_table(self, rows: Sequence[dict[str, Any]]) -> sa.TableValuedAlias:
        """Return rows as one parameter instead of many thousand, which take PostgreSQL's driver twice as long."""
        columns = [sa.column(name, self._table.c[name].type) for name in rows[0]]
        given = sa.func.json_to_recordset(sa.cast(list(rows), sa.JSON))
        return given.table_valued(*columns, name="given").render_derived(with_types=True)

    def _insert_missing(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> set[Key]:
        """Insert rows if the database cannot report which rows it skipped: read first, and repeat if necessary.

        `INSERT IGNORE` would hide other errors, and the count of `ON DUPLICATE KEY UPDATE` does not identify rows.
        """
        while True:
            existing = self._existing_rows(connection, rows)
            missing = [row for row in rows if (row["source_identifier"], row["partition_key"]) not in existing]
            if not missing:
                return set()
            try:
                with connection.begin_nested():
                    connection.execute(sa.insert(self._table), missing)
            except exc.IntegrityError as error:
                if not _is_duplicate(error):
                    raise
                continue  # another process created one of them in between
            return {(row["source_identifier"], row["partition_key"]) for row in missing}

    def _existing_rows(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> set[Key]:
        columns = self._table.c
        existing: set[Key] = set()
        for source_identifier, family in groupby(rows, key=lambda row: row["source_identifier"]):
            statement = sa.select(columns.partition_key).where(
                columns.source_identifier == source_identifier,
                columns.partition_key.in_([row["partition_key"] for row in family]),
            )
            existing.update((source_identifier, key) for key in connection.scalars(statement))
        return existing


def _is_duplicate(error: exc.IntegrityError) -> bool:
    """Return whether a row was refused because its key exists, by the codes of MySQL, PostgreSQL or SQLite."""
    refused: Any = error.orig
    return (
        refused.args[:1] == (1062,)
        or getattr(refused, "sqlstate", None) == "23505"
        or getattr(refused, "sqlite_errorname", None) == "SQLITE_CONSTRAINT_PRIMARYKEY"
    )


def _marks(mark: str, values: Collection[object]) -> str:
    return ", ".join([mark] * len(values))


def _key(partition: Partition) -> Key:
    return (partition.source_identifier, partition.partition_key)


_SHARED = attrgetter(
    *(field.name for field in fields(Partition) if field.compare and field.name not in VARYING_COLUMNS)
)


def _rows_of_each(partitions: Sequence[Partition]) -> list[tuple[Any, ...]]:
    """Return the columns `VARYING_COLUMNS`. The same progress object of several partitions is encoded only once."""
    texts = {key: progress_text(each) for key, each in {id(each.progress): each for each in partitions}.items()}
    instant = cache(format_instant)
    return [(each.partition_key, texts[id(each.progress)], each.version, instant(each.priority)) for each in partitions]


def row_of(partition: Partition) -> dict[str, Any]:
    """Return the row of a partition."""
    return {
        "source_identifier": partition.source_identifier,
        "partition_key": partition.partition_key,
        "status": partition.status.value,
        "owner": partition.owner,
        "ownership_timeout": partition.ownership_timeout and format_instant(partition.ownership_timeout),
        "held_since": partition.held_since and format_instant(partition.held_since),
        "progress": progress_text(partition),
        "reopen_at": partition.reopen_at and format_instant(partition.reopen_at),
        "closed_count": partition.closed_count,
        "version": partition.version,
        "priority": format_instant(partition.priority),
        "attempts": partition.attempts,
        "last_error": partition.last_error,
    }


def partition_of(row: sa.Row[Any]) -> Partition:
    """Return the partition of a row."""
    return Partition(
        source_identifier=row.source_identifier,
        partition_key=row.partition_key,
        status=PartitionStatus(row.status),
        owner=row.owner,
        ownership_timeout=row.ownership_timeout and parse_instant(row.ownership_timeout),
        held_since=row.held_since and parse_instant(row.held_since),
        reopen_at=row.reopen_at and parse_instant(row.reopen_at),
        closed_count=row.closed_count,
        version=row.version,
        priority=parse_instant(row.priority),
        attempts=row.attempts,
        last_error=row.last_error,
        **read_progress(row.progress),
    )
