"""Keeps partitions in a SQL database, through SQLAlchemy Core: SQLite by default; PostgreSQL, MySQL or MariaDB in
production.

An acquisition selects and updates in one transaction, and skips rows that another worker is acquiring (`SKIP LOCKED`;
SQLite has only one writer at a time). Instants are text of fixed width, so that one schema and one order suit every
database.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache, partial
from itertools import chain, groupby
from operator import attrgetter, ge, gt, le, lt
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy import exc

from airflow_provider_coordination.coordination.browsing import (
    EXAMINED_PER_PAGE,
    PARKED_FROM,
    BrowsePage,
    BrowsePosition,
    Filter,
    SortOrder,
    end_of_prefix,
    position_of,
)
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
    parse_instant,
    progress_text,
    read_progress,
)
from airflow_provider_coordination.coordination.store import (
    Acquisition,
    CoordinationStore,
    acquisition_order,
    creation_refused,
    version_refused,
)
from airflow_provider_coordination.stores import RETRY_DEADLINE_SECONDS, sql_schema
from airflow_provider_coordination.stores.kind import StoreReport, measure_quickest
from airflow_provider_coordination.stores.sql_database import Database

CHUNK_ROWS = 1000
TRANSACTION_ITEMS = 2500
"""Databases allow more. This limit keeps the locks of a transaction short, some hundredths of a second."""
VARYING_COLUMNS = ("partition_key", "progress", "version", "priority")
"""The columns that differ between partitions that are created together."""
LEASE_COLUMNS = ("status", "owner", "ownership_timeout", "held_since", "priority", "reopen_at")
"""The columns that an acquisition sets besides the version, to the same value in every row."""

T = TypeVar("T")
Key = tuple[str, str]
"""A source identifier and a partition key."""
Comparison = Callable[[Any, Any], Any]
STRICT: dict[Comparison, Comparison] = {le: lt, ge: gt}


class SqlStore(CoordinationStore):
    """A store in one table of a SQL database.

    :param url: an SQLAlchemy URL; see `Database`.
    :param table: the name of the table, which is created if it does not exist and upgraded if it is older.
    :param retry_deadline_seconds: how long a transaction is retried after a broken connection, a deadlock or a busy
        database, before the store counts as unavailable.
    :raises ConfigurationError: if the URL or the table name is not valid, or the driver is not installed.
    """

    def __init__(self, url: str, *, table: str, retry_deadline_seconds: float = RETRY_DEADLINE_SECONDS) -> None:
        self._table = sql_schema.partition_table(table)
        self._database = Database(url, retry_deadline_seconds=retry_deadline_seconds)
        self._quoted = self._database.engine.dialect.identifier_preparer.quote(table)
        columns = self._table.c
        row = sa.and_(
            columns.source_identifier == sa.bindparam("of_source"), columns.partition_key == sa.bindparam("of_key")
        )
        self._lock_one = (
            sa.select(columns.source_identifier, columns.partition_key, columns.version).where(row).with_for_update()
        )
        self._update_one = sa.update(self._table).where(row, columns.version == sa.bindparam("of_version"))

    transaction_items = TRANSACTION_ITEMS
    combines_writes_cheaply = True

    @property
    @override
    def kind(self) -> str:
        return self._database.kind

    def initialize(self) -> None:
        """Create the table and its index if they do not exist, or upgrade them.

        :raises ConfigurationError: if the database is too old, or newer than this package; if the table belongs to
            another program; if the file or the role permits no writes.
        """
        sql_schema.initialize(self._database, self._table)

    def report(self, now: Callable[[], datetime]) -> StoreReport:
        """Return the report of the store; see `StoreKind.report`."""
        schema = self._database.read(partial(sql_schema.schema_version, database=self._database, table=self._table))
        self._database.check_version()
        server_time, local_time, took = measure_quickest(self._database.time, now)
        return StoreReport(
            name=self._database.name,
            round_trip=took,
            server_time=server_time,
            local_time=local_time,
            imprecision=took / 2,
            schema=schema,
            newest_schema=len(sql_schema.STEPS),
        )

    @override
    def close(self) -> None:
        self._database.close()

    @override
    def create(self, partitions: Sequence[Partition]) -> list[str]:
        """Uses transactions of a thousand rows."""
        created: list[str] = []
        for chunk in _chunks(partitions):
            created += self._database.write(partial(self._insert_absent, partitions=chunk))
        return created

    @override
    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        statement = sa.select(self._table).where(self._is(source_identifier, partition_key))
        row = self._database.read(lambda connection: connection.execute(statement).one_or_none())
        return None if row is None else _partition(row)

    @override
    def get_many(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        """Reads a thousand keys per statement."""
        columns = self._table.c
        partitions: dict[str, Partition] = {}
        for chunk in _chunks(partition_keys):
            statement = sa.select(self._table).where(
                columns.source_identifier == source_identifier, columns.partition_key.in_(chunk)
            )
            rows = self._database.read(partial(_all_rows, statement=statement))
            partitions |= {row.partition_key: _partition(row) for row in rows}
        return partitions

    @override
    def existing_keys(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        """Reads a thousand keys per statement."""
        existing: set[str] = set()
        for chunk in _chunks(partition_keys):
            known = partial(self._existing_keys, source_identifier=source_identifier, partition_keys=chunk)
            existing.update(self._database.read(known))
        return existing

    @override
    def acquire(self, request: Acquisition) -> list[Partition]:
        """Uses one transaction."""
        may_have_committed = False

        def acquire(connection: sa.Connection) -> list[Partition]:
            nonlocal may_have_committed
            if may_have_committed and (leased := self._leased_by(connection, request)):
                return leased
            may_have_committed = True
            taken: list[sa.Row[Any]] = []
            for status, latest in acquisition_order(request):
                if len(taken) == request.limit:
                    break
                taken += connection.execute(
                    self._in_order(request.source_identifier, status)
                    .add_columns(*self._row_location())
                    .where(self._table.c.priority <= format_instant(latest))
                    .limit(request.limit - len(taken))
                    .with_for_update(skip_locked=True)
                ).all()
            return self._lease(connection, taken, request)

        return self._database.write(acquire)

    @override
    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        """Uses one transaction and locks rows in the order of their keys."""

        def change(connection: sa.Connection) -> list[Partition]:
            if len(update) + len(unchanged) > 1:
                self._lock(connection, [*update, *unchanged])
            written = self._update(connection, update)
            self._insert_absent(connection, create, return_created=False)
            self._insert_new(connection, new)
            return written

        return self._database.write(change)

    @override
    def delete(self, partition: Partition) -> None:

        def remove(connection: sa.Connection) -> None:
            if connection.execute(sa.delete(self._table).where(self._is_version(partition))).rowcount != 1:
                raise version_refused(partition)

        self._database.write(remove)

    @override
    def query(
        self,
        source_identifier: str,
        status: PartitionStatus,
        *,
        since: datetime | None = None,
        after: Partition | None = None,
        limit: int = 500,
    ) -> list[Partition]:
        statement = self._in_order(source_identifier, status).limit(limit)
        if since is not None:
            statement = statement.where(self._table.c.priority >= format_instant(since))
        if after is not None:
            statement = statement.where(
                self._compared_to(gt, position_of(after, SortOrder.PRIORITY), SortOrder.PRIORITY)
            )
        return self._database.read(lambda connection: [_partition(row) for row in connection.execute(statement)])

    @override
    def browse(
        self,
        source_identifier: str,
        wanted: Filter,
        *,
        order: SortOrder = SortOrder.KEY,
        descending: bool = False,
        after: BrowsePosition | None = None,
        limit: int = 100,
        examine: int = EXAMINED_PER_PAGE,
    ) -> BrowsePage:
        """Reads along an index and filters the rows."""
        wanted.check(order, after)
        conditions = self._index_conditions(source_identifier, wanted, order)
        if after is not None:
            conditions.append(self._compared_to(lt if descending else gt, after, order))
        includes_all = wanted.includes_all(order)

        def read(connection: sa.Connection) -> BrowsePage:
            within, end = conditions, None
            if not includes_all:
                end = self._end(connection, conditions, order, descending=descending, examine=examine)
                within = [*conditions, *self._filter_conditions(wanted)]
                if end is not None:
                    within.append(self._compared_to(ge if descending else le, end, order))
            max_partitions = min(limit, examine)
            statement = self._select(within, order, descending=descending).limit(max_partitions + 1)
            rows = connection.execute(statement).all()
            partitions = [_partition(row) for row in rows[:max_partitions]]
            return BrowsePage(
                partitions=partitions, next=position_of(partitions[-1], order) if len(rows) > max_partitions else end
            )

        return self._database.read(read)

    @override
    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        columns = self._table.c
        statement = (
            sa.select(columns.status, sa.func.count())
            .where(columns.source_identifier == source_identifier, columns.status.in_([s.value for s in statuses]))
            .group_by(columns.status)
        )
        found = self._database.read(lambda connection: connection.execute(statement).all())
        return dict.fromkeys(statuses, 0) | {PartitionStatus(status): count for status, count in found}

    @override
    def source_identifiers(self) -> list[str]:
        column = self._table.c.source_identifier
        statement = sa.select(column).distinct().order_by(column)
        return self._database.read(lambda connection: list(connection.scalars(statement)))

    # Browsing: along an index from a position, for a limited number of rows.

    def _index_conditions(
        self, source_identifier: str, wanted: Filter, order: SortOrder
    ) -> list[sa.ColumnElement[bool]]:
        """Return the conditions that the index of the order can evaluate."""
        columns = self._table.c
        conditions = [columns.source_identifier == source_identifier]
        if order is SortOrder.KEY:
            return conditions + self._starts_with(wanted.prefix)
        [status] = set(wanted.statuses)
        conditions.append(columns.status == status.value)
        if status is PartitionStatus.ASSIGNED and wanted.expired_by is not None:
            conditions.append(columns.priority <= format_instant(wanted.expired_by))
        return conditions

    def _filter_conditions(self, wanted: Filter) -> list[sa.ColumnElement[bool]]:
        """Return the other conditions of the filter."""
        columns = self._table.c
        # The plain column would make databases use the index of statuses and sort the rows that they find there.
        status = columns.status.concat("")
        conditions = self._starts_with(wanted.prefix)
        if set(wanted.statuses) != set(PartitionStatus):
            conditions.append(status.in_([each.value for each in wanted.statuses]))
        for column, text in ((columns.partition_key, wanted.search), (columns.owner, wanted.owner)):
            if text:
                conditions.append(self._contains(column, text))
        if wanted.parked:
            conditions += [status == PartitionStatus.CLOSED.value, columns.reopen_at >= PARKED_FROM]
        if wanted.failing:
            conditions.append(columns.attempts > 0)
        if wanted.expired_by is not None:
            conditions += [
                status == PartitionStatus.ASSIGNED.value,
                columns.priority <= format_instant(wanted.expired_by),
            ]
        return conditions

    def _end(
        self,
        connection: sa.Connection,
        conditions: Sequence[sa.ColumnElement[bool]],
        order: SortOrder,
        *,
        descending: bool,
        examine: int,
    ) -> BrowsePosition | None:
        """Return the position of the last row to examine; None if there are no more rows. Reads only the index."""
        columns = self._table.c
        indexed = (columns.partition_key, columns.priority) if order is SortOrder.PRIORITY else (columns.partition_key,)
        statement = self._select(conditions, order, descending=descending).with_only_columns(*indexed)
        last = connection.execute(statement.offset(examine - 1).limit(2)).all()
        if len(last) < 2:
            return None
        key, *priority = last[0]
        return BrowsePosition(priority[0] if priority else "", key)

    def _select(
        self, conditions: Sequence[sa.ColumnElement[bool]], order: SortOrder, *, descending: bool
    ) -> sa.Select[Any]:
        columns = self._table.c
        chosen = [columns.priority, columns.partition_key] if order is SortOrder.PRIORITY else [columns.partition_key]
        index = sql_schema.order_index(self._table.name) if order is SortOrder.PRIORITY else "PRIMARY"
        return (
            sa.select(self._table)
            .with_hint(self._table, f"FORCE INDEX ({index})", "mysql")
            .where(*conditions)
            .order_by(*(column.desc() if descending else column for column in chosen))
        )

    def _compared_to(self, compared: Comparison, position: BrowsePosition, order: SortOrder) -> sa.ColumnElement[bool]:
        """Return the condition for the rows before or after a position in an order.

        :param compared: `lt`, `le`, `gt` or `ge`.
        """
        priority, key = self._table.c.priority, self._table.c.partition_key
        condition: sa.ColumnElement[bool]
        if order is SortOrder.KEY:
            condition = compared(key, position.partition_key)
        elif self._database.dialect_name == "mysql":  # uses the index only if the comparison is spelled out
            same = sa.and_(priority == position.priority, compared(key, position.partition_key))
            condition = sa.or_(STRICT.get(compared, compared)(priority, position.priority), same)
        else:
            at = sa.tuple_(*position, types=[priority.type, key.type])
            condition = compared(sa.tuple_(priority, key), at)
        return condition

    def _starts_with(self, prefix: str) -> list[sa.ColumnElement[bool]]:
        if not prefix:
            return []
        key, end = self._table.c.partition_key, end_of_prefix(prefix)
        return [key >= prefix, *([] if end is None else [key < end])]

    def _contains(self, column: sa.ColumnElement[Any], text: str) -> sa.ColumnElement[bool]:
        """Return the condition that a column contains this text; unlike LIKE, always case-sensitive."""
        position = sa.func.strpos if self._database.dialect_name == "postgresql" else sa.func.instr
        return position(column, sa.literal(text, column.type), type_=sa.Integer) > 0

    # Conditions

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
        # MySQL would sort instead of using the index, once most partitions have the requested status.
        hint = f"FORCE INDEX ({sql_schema.order_index(self._table.name)})"
        return (
            sa.select(self._table)
            .with_hint(self._table, hint, "mysql")
            .where(columns.source_identifier == source_identifier, columns.status == status.value)
            .order_by(columns.priority, columns.partition_key)
        )

    def _row_location(self) -> Sequence[sa.ColumnElement[Any]]:
        """Return the columns that locate a locked row, in addition to its key."""
        return (sa.literal_column("ctid"),) if self._database.dialect_name == "postgresql" else ()

    def _are_locked_rows(self, source_identifier: str, rows: Sequence[sa.Row[Any]]) -> sa.ColumnElement[bool]:
        """Return the condition for rows of one source that this transaction has locked."""
        if self._database.dialect_name == "postgresql":  # before its first ANALYZE it may scan the whole order index
            locations = [row.ctid for row in rows]
            return sa.text("ctid = ANY(CAST(:locations AS tid[]))").bindparams(locations=locations)  # type: ignore[return-value]
        columns = self._table.c
        return sa.and_(
            columns.source_identifier == source_identifier,
            columns.partition_key.in_([row.partition_key for row in rows]),
        )

    # Many rows at once, directly by the driver. SQLAlchemy needs longer for a thousand parameters than a database for
    # the rest; and PostgreSQL's driver needs longer for them, or for an array, than for one JSON text.

    def _existing_keys(
        self, connection: sa.Connection, source_identifier: str, partition_keys: Sequence[str]
    ) -> list[str]:
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
        shared = {name: value for name, value in _row(partitions[0]).items() if name not in VARYING_COLUMNS}
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

    # Parts of transactions

    def _lease(self, connection: sa.Connection, rows: Sequence[sa.Row[Any]], request: Acquisition) -> list[Partition]:
        """Lease rows that this transaction has locked, with one statement per thousand rows."""
        leased = [_partition(row).taken(request.owner, request.ownership_timeout, request.available_by) for row in rows]
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk, first = rows[start : start + CHUNK_ROWS], _row(leased[start])
            changes = {name: first[name] for name in LEASE_COLUMNS} | {"version": self._table.c.version + 1}
            statement = (
                sa.update(self._table).where(self._are_locked_rows(request.source_identifier, chunk)).values(changes)
            )
            if connection.execute(statement).rowcount != len(chunk):
                raise version_refused(leased[start])
        return leased

    def _leased_by(self, connection: sa.Connection, request: Acquisition) -> list[Partition]:
        """Return the rows that this request has already leased, if it was committed but its response was lost."""
        statement = (
            self._in_order(request.source_identifier, PartitionStatus.ASSIGNED)
            .where(self._table.c.priority == format_instant(request.ownership_timeout))
            .where(self._table.c.owner == request.owner)
            .limit(request.limit)
        )
        return [_partition(row) for row in connection.execute(statement)]

    def _update(self, connection: sa.Connection, partitions: Sequence[Partition]) -> list[Partition]:
        """Update rows that this transaction has locked, or a single row, if the versions match."""
        written = [partition.written() for partition in partitions]
        if not written:
            return written
        rows = [_row(each) for each in written]
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

    def _lock(self, connection: sa.Connection, partitions: Sequence[Partition]) -> None:
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

    def _insert_absent(
        self, connection: sa.Connection, partitions: Sequence[Partition], *, return_created: bool = True
    ) -> list[str]:
        """Insert the rows that do not exist; return the keys of the new rows, in the given order.

        :param return_created: whether to return them. Without, SQLite inserts rows several times as fast.
        """
        # Sorted, so that two processes that create the same rows do not deadlock; of equal keys, the first one counts.
        rows = {_key(p): _row(p) for p in reversed(partitions)}
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

    def _insert_new(self, connection: sa.Connection, partitions: Sequence[Partition]) -> None:
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


def _chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    return (rows[start : start + CHUNK_ROWS] for start in range(0, len(rows), CHUNK_ROWS))


def _all_rows(connection: sa.Connection, statement: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
    return connection.execute(statement).all()


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


def _row(partition: Partition) -> dict[str, Any]:
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


def _partition(row: sa.Row[Any]) -> Partition:
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
