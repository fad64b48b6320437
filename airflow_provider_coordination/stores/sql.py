"""Partitions in a SQL database, through SQLAlchemy Core: SQLite as the embedded default, PostgreSQL, MySQL or MariaDB
for production.

Acquisition selects and updates in one transaction, passing over rows that another worker is taking (`SKIP LOCKED`;
SQLite has one writer at a time instead). Instants are text of fixed width, so that one schema and one order serve
every database.
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
    acquisition_order,
    creation_refused,
    version_refused,
)
from airflow_provider_coordination.stores import RETRY_DEADLINE_SECONDS, sql_schema
from airflow_provider_coordination.stores.report import StoreReport, timed
from airflow_provider_coordination.stores.sql_database import Database

CHUNK_ROWS = 1000
TRANSACTION_ITEMS = 2500
"""A database takes more; this keeps what a transaction locks short, some hundredths of a second."""
OF_EACH = ("partition_key", "progress", "version", "priority")
"""What differs between partitions that are created together."""
LEASE_COLUMNS = ("status", "owner", "ownership_timeout", "held_since", "priority", "reopen_at")
"""What an acquisition changes beside the version, the same in every row that it takes."""

T = TypeVar("T")
Key = tuple[str, str]
"""A source identifier and a partition key."""
Comparison = Callable[[Any, Any], Any]
STRICTLY: dict[Comparison, Comparison] = {le: lt, ge: gt}


class SqlStore:
    """A store in one table of a SQL database.

    :param url: an SQLAlchemy URL; see `Database`.
    :param table: the table's name; created if absent, and brought up to date if it is older.
    :param retry_deadline_seconds: how long a transaction is tried again after a broken connection, a deadlock or a
        busy database, before the store counts as unavailable.
    :raises ConfigurationError: if the URL or the table name is not usable, or its driver is not installed.
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
    def kind(self) -> str:
        """See `CoordinationStore.kind`."""
        return self._database.kind

    def initialize(self) -> None:
        """Create the table and its index if they are absent, or bring them up to date.

        :raises ConfigurationError: if the database is too old, or newer than this package; if the table is another
            one's; if the file or the role lets nothing be written.
        """
        sql_schema.initialize(self._database, self._table)

    def report(self, now: Callable[[], datetime]) -> StoreReport:
        """See `Reporting.report`."""
        schema = self._database.read(partial(sql_schema.reached, database=self._database, table=self._table))
        self._database.check_version()
        server_time, here, took = timed(self._database.time, now)
        return StoreReport(
            name=self._database.name,
            round_trip=took,
            server_time=server_time,
            here=here,
            imprecision=took / 2,
            schema=schema,
            newest_schema=len(sql_schema.STEPS),
        )

    def permissions(self) -> None:
        """See `Reporting.permissions`."""

    def close(self) -> None:
        """Close the pooled connections."""
        self._database.close()

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        """See `CoordinationStore.create`; in transactions of a thousand rows."""
        created: list[str] = []
        for chunk in _chunks(partitions):
            created += self._database.write(partial(self._insert_absent, partitions=chunk))
        return created

    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        """See `CoordinationStore.get`."""
        statement = sa.select(self._table).where(self._is(source_identifier, partition_key))
        row = self._database.read(lambda connection: connection.execute(statement).one_or_none())
        return None if row is None else _partition(row)

    def get_many(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        """See `CoordinationStore.get_many`; a thousand keys a statement."""
        columns = self._table.c
        found: dict[str, Partition] = {}
        for chunk in _chunks(partition_keys):
            statement = sa.select(self._table).where(
                columns.source_identifier == source_identifier, columns.partition_key.in_(chunk)
            )
            rows = self._database.read(partial(_all_rows, statement=statement))
            found |= {row.partition_key: _partition(row) for row in rows}
        return found

    def known(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        """See `CoordinationStore.known`; a thousand keys a statement."""
        found: set[str] = set()
        for chunk in _chunks(partition_keys):
            known = partial(self._known, source_identifier=source_identifier, partition_keys=chunk)
            found.update(self._database.read(known))
        return found

    def acquire(self, request: Acquisition) -> list[Partition]:
        """See `CoordinationStore.acquire`; one transaction."""
        committed_perhaps = False

        def take(connection: sa.Connection) -> list[Partition]:
            nonlocal committed_perhaps
            if committed_perhaps and (leased := self._leased_by(connection, request)):
                return leased
            committed_perhaps = True
            taken: list[sa.Row[Any]] = []
            for status, latest in acquisition_order(request):
                if len(taken) == request.limit:
                    break
                taken += connection.execute(
                    self._in_order(request.source_identifier, status)
                    .add_columns(*self._places())
                    .where(self._table.c.priority <= format_instant(latest))
                    .limit(request.limit - len(taken))
                    .with_for_update(skip_locked=True)
                ).all()
            return self._lease(connection, taken, request)

        return self._database.write(take)

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        """See `CoordinationStore.transact`; one transaction, rows locked in the order of their keys."""

        def change(connection: sa.Connection) -> list[Partition]:
            if len(update) + len(unchanged) > 1:
                self._lock(connection, [*update, *unchanged])
            written = self._update(connection, update)
            self._insert_absent(connection, create, tell=False)
            self._insert_new(connection, new)
            return written

        return self._database.write(change)

    def delete(self, partition: Partition) -> None:
        """See `CoordinationStore.delete`."""

        def remove(connection: sa.Connection) -> None:
            if connection.execute(sa.delete(self._table).where(self._is_version(partition))).rowcount != 1:
                raise version_refused(partition)

        self._database.write(remove)

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
            statement = statement.where(self._stands(gt, position_of(after, SortOrder.PRIORITY), SortOrder.PRIORITY))
        return self._database.read(lambda connection: [_partition(row) for row in connection.execute(statement)])

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
        """See `CoordinationStore.browse`; along an index, and what is wanted is picked out of what is there."""
        wanted.check(order, after)
        along = self._along(source_identifier, wanted, order)
        if after is not None:
            along.append(self._stands(lt if descending else gt, after, order))
        includes_all = wanted.includes_all(order)

        def look(connection: sa.Connection) -> BrowsePage:
            within, end = along, None
            if not includes_all:
                end = self._end(connection, along, order, descending=descending, examine=examine)
                within = [*along, *self._picking(wanted)]
                if end is not None:
                    within.append(self._stands(ge if descending else le, end, order))
            most = min(limit, examine)
            statement = self._select(within, order, descending=descending).limit(most + 1)
            rows = connection.execute(statement).all()
            partitions = [_partition(row) for row in rows[:most]]
            return BrowsePage(
                partitions=partitions, next=position_of(partitions[-1], order) if len(rows) > most else end
            )

        return self._database.read(look)

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
        found = self._database.read(lambda connection: connection.execute(statement).all())
        return dict.fromkeys(statuses, 0) | {PartitionStatus(status): count for status, count in found}

    def source_identifiers(self) -> list[str]:
        """See `CoordinationStore.source_identifiers`."""
        column = self._table.c.source_identifier
        statement = sa.select(column).distinct().order_by(column)
        return self._database.read(lambda connection: list(connection.scalars(statement)))

    # Browsing: along an index from a place on, so far as is looked at once.

    def _along(self, source_identifier: str, wanted: Filter, order: SortOrder) -> list[sa.ColumnElement[bool]]:
        """Return the conditions that the index of an order fulfils."""
        columns = self._table.c
        conditions = [columns.source_identifier == source_identifier]
        if order is SortOrder.KEY:
            return conditions + self._begins_with(wanted.prefix)
        [status] = set(wanted.statuses)
        conditions.append(columns.status == status.value)
        if status is PartitionStatus.ASSIGNED and wanted.expired_by is not None:
            conditions.append(columns.priority <= format_instant(wanted.expired_by))
        return conditions

    def _picking(self, wanted: Filter) -> list[sa.ColumnElement[bool]]:
        """Return the conditions for what is wanted of that."""
        columns = self._table.c
        # Not by itself, or databases would go by the index of statuses, and put in order what they find there.
        status = columns.status.concat("")
        conditions = self._begins_with(wanted.prefix)
        if set(wanted.statuses) != set(PartitionStatus):
            conditions.append(status.in_([each.value for each in wanted.statuses]))
        for column, text in ((columns.partition_key, wanted.search), (columns.owner, wanted.owner)):
            if text:
                conditions.append(self._has(column, text))
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
        along: Sequence[sa.ColumnElement[bool]],
        order: SortOrder,
        *,
        descending: bool,
        examine: int,
    ) -> BrowsePosition | None:
        """Return where a look of so many partitions ends; None if there are no more. The index alone tells."""
        columns = self._table.c
        named = (columns.partition_key, columns.priority) if order is SortOrder.PRIORITY else (columns.partition_key,)
        statement = self._select(along, order, descending=descending).with_only_columns(*named)
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

    def _stands(self, compared: Comparison, place: BrowsePosition, order: SortOrder) -> sa.ColumnElement[bool]:
        """Return the condition for what an order has before or behind a place.

        :param compared: `lt`, `le`, `gt` or `ge`.
        """
        priority, key = self._table.c.priority, self._table.c.partition_key
        condition: sa.ColumnElement[bool]
        if order is SortOrder.KEY:
            condition = compared(key, place.partition_key)
        elif self._database.dialect_name == "mysql":  # finds its place in the index only if it is spelled out
            among = sa.and_(priority == place.priority, compared(key, place.partition_key))
            condition = sa.or_(STRICTLY.get(compared, compared)(priority, place.priority), among)
        else:
            there = sa.tuple_(*place, types=[priority.type, key.type])
            condition = compared(sa.tuple_(priority, key), there)
        return condition

    def _begins_with(self, prefix: str) -> list[sa.ColumnElement[bool]]:
        if not prefix:
            return []
        key, behind = self._table.c.partition_key, end_of_prefix(prefix)
        return [key >= prefix, *([] if behind is None else [key < behind])]

    def _has(self, column: sa.ColumnElement[Any], text: str) -> sa.ColumnElement[bool]:
        """Return the condition that a column has this text in it; unlike LIKE, to the letter everywhere."""
        place = sa.func.strpos if self._database.dialect_name == "postgresql" else sa.func.instr
        return place(column, sa.literal(text, column.type), type_=sa.Integer) > 0

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
        # MySQL would rather sort than walk the index, once most partitions have the status that is asked for.
        hint = f"FORCE INDEX ({sql_schema.order_index(self._table.name)})"
        return (
            sa.select(self._table)
            .with_hint(self._table, hint, "mysql")
            .where(columns.source_identifier == source_identifier, columns.status == status.value)
            .order_by(columns.priority, columns.partition_key)
        )

    def _places(self) -> Sequence[sa.ColumnElement[Any]]:
        """Return what tells where a locked row is, beside its key."""
        return (sa.literal_column("ctid"),) if self._database.dialect_name == "postgresql" else ()

    def _are(self, source_identifier: str, rows: Sequence[sa.Row[Any]]) -> sa.ColumnElement[bool]:
        """Return the condition for rows of one source that this transaction has locked."""
        if self._database.dialect_name == "postgresql":  # before its first ANALYZE it might walk the whole order index
            places = [row.ctid for row in rows]
            return sa.text("ctid = ANY(CAST(:places AS tid[]))").bindparams(places=places)  # type: ignore[return-value]
        columns = self._table.c
        return sa.and_(
            columns.source_identifier == source_identifier,
            columns.partition_key.in_([row.partition_key for row in rows]),
        )

    # Many at once, by the driver alone: SQLAlchemy needs longer for a thousand parameters than a database for the rest;
    # and PostgreSQL's driver for them, or for an array, longer than for one text of JSON.

    def _known(self, connection: sa.Connection, source_identifier: str, partition_keys: Sequence[str]) -> list[str]:
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

    def _insert_alike(self, connection: sa.Connection, partitions: Sequence[Partition]) -> None:
        """Insert partitions that differ in no other column than `OF_EACH`: the others are parameters once."""
        shared = {name: value for name, value in _row(partitions[0]).items() if name not in OF_EACH}
        rows = _rows_of_each(partitions)
        match self._database.dialect_name:
            case "sqlite":
                of_each = f"column1, column2, column3, column4 FROM (VALUES {_marks('(?, ?, ?, ?)', rows)})"
                mark, values = "?", (*shared.values(), *chain.from_iterable(rows))
            case "postgresql":
                types = "partition_key text, progress text, version bigint, priority text"
                of_each = f"* FROM json_to_recordset(%s::json) AS given({types})"
                given = [dict(zip(OF_EACH, row, strict=True)) for row in rows]
                mark, values = "%s", (*shared.values(), json.dumps(given))
            case _:
                connection.execute(
                    sa.insert(self._table), [shared | dict(zip(OF_EACH, row, strict=True)) for row in rows]
                )
                return
        columns = ", ".join((*shared, *OF_EACH))
        connection.exec_driver_sql(
            f"INSERT INTO {self._quoted} ({columns}) SELECT {_marks(mark, shared)}, {of_each}", values
        )

    # What transactions are made of

    def _lease(self, connection: sa.Connection, rows: Sequence[sa.Row[Any]], request: Acquisition) -> list[Partition]:
        """Lease rows that this transaction has locked: one statement for all of them."""
        leased = [_partition(row).taken(request.owner, request.ownership_timeout, request.available_by) for row in rows]
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk, first = rows[start : start + CHUNK_ROWS], _row(leased[start])
            changes = {name: first[name] for name in LEASE_COLUMNS} | {"version": self._table.c.version + 1}
            statement = sa.update(self._table).where(self._are(request.source_identifier, chunk)).values(changes)
            if connection.execute(statement).rowcount != len(chunk):
                raise version_refused(leased[start])
        return leased

    def _leased_by(self, connection: sa.Connection, request: Acquisition) -> list[Partition]:
        """Return what this very request leased already: its commit happened, and the answer was lost."""
        statement = (
            self._in_order(request.source_identifier, PartitionStatus.ASSIGNED)
            .where(self._table.c.priority == format_instant(request.ownership_timeout))
            .where(self._table.c.owner == request.owner)
            .limit(request.limit)
        )
        return [_partition(row) for row in connection.execute(statement)]

    def _update(self, connection: sa.Connection, partitions: Sequence[Partition]) -> list[Partition]:
        """Write what this transaction has locked, or a single partition, if each is the version that it carries."""
        written = [partition.written() for partition in partitions]
        if not written:
            return written
        rows = [_row(each) for each in written]
        if len(rows) > 1 and self._database.dialect_name == "postgresql":
            count = connection.execute(self._updating(rows)).rowcount
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
        """Lock rows in the order of their keys, if each is the version that its partition carries."""
        keys = sorted({_key(partition) for partition in partitions})
        stored = {
            (source_identifier, key): version for source_identifier, key, version in self._locked(connection, keys)
        }
        for partition in partitions:
            if stored.get(_key(partition)) != partition.version:
                raise version_refused(partition)

    def _locked(self, connection: sa.Connection, keys: Sequence[Key]) -> Iterator[Sequence[Any]]:
        """Lock rows one after another; yield the key and the version of each that is there."""
        if self._database.dialect_name == "mysql":  # many keys at once might lead it through the whole table
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

    def _updating(self, rows: Sequence[dict[str, Any]]) -> sa.Update:
        """Return the statement that writes rows to PostgreSQL."""
        columns, given = self._table.c, self._given(rows)
        return (
            sa.update(self._table)
            .where(
                columns.source_identifier == given.c.source_identifier,
                columns.partition_key == given.c.partition_key,
                columns.version == given.c.version - 1,
            )
            .values({column: given.c[column.name] for column in columns if not column.primary_key})
        )

    def _insert_absent(
        self, connection: sa.Connection, partitions: Sequence[Partition], *, tell: bool = True
    ) -> list[str]:
        """Insert what is absent; return the keys that were, in the given order.

        :param tell: whether anybody wants to know them: SQLite takes rows several times as fast where nobody does.
        """
        # Sorted, so that two that create the same do not wait for each other; of equal keys the first one counts.
        rows = {_key(p): _row(p) for p in reversed(partitions)}
        absent = [rows[key] for key in sorted(rows)]
        if not absent:
            return []
        match self._database.dialect_name:
            case "mysql":
                created = self._insert_missing(connection, absent)
            case "sqlite" if not tell:
                connection.execute(self._insert_or_ignore(), absent)
                return []
            case _:
                created = self._insert_or_pass_over(connection, absent)
        return [key[1] for key in dict.fromkeys(map(_key, partitions)) if key in created]

    def _insert_new(self, connection: sa.Connection, partitions: Sequence[Partition]) -> None:
        try:
            for _, alike in groupby(sorted(partitions, key=_key), key=_SHARED):
                self._insert_alike(connection, list(alike))
        except exc.IntegrityError as error:
            if not _is_duplicate(error):
                raise
            raise creation_refused(partitions[0]) from None

    def _insert_or_pass_over(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> set[Key]:
        key = (self._table.c.source_identifier, self._table.c.partition_key)
        if self._database.dialect_name == "postgresql":
            from sqlalchemy.dialects.postgresql import insert as postgresql_insert

            statement = postgresql_insert(self._table).from_select(list(rows[0]), sa.select(self._given(rows)))
            inserted = connection.execute(statement.on_conflict_do_nothing().returning(*key))
        else:
            inserted = connection.execute(self._insert_or_ignore().returning(*key), rows)
        return {(row[0], row[1]) for row in inserted}

    def _insert_or_ignore(self) -> Any:
        from sqlalchemy.dialects.sqlite import insert as sqlite_insert

        return sqlite_insert(self._table).on_conflict_do_nothing()

    def _given(self, rows: Sequence[dict[str, Any]]) -> sa.TableValuedAlias:
        """Return rows as one parameter instead of many thousand, which take PostgreSQL's driver twice the time."""
        columns = [sa.column(name, self._table.c[name].type) for name in rows[0]]
        given = sa.func.json_to_recordset(sa.cast(list(rows), sa.JSON))
        return given.table_valued(*columns, name="given").render_derived(with_types=True)

    def _insert_missing(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> set[Key]:
        """Insert where the database cannot pass over a row that exists and say so: look first, and again if need be.

        `INSERT IGNORE` would hide other errors, and the count of `ON DUPLICATE KEY UPDATE` does not name rows.
        """
        while True:
            there = self._which_exist(connection, rows)
            missing = [row for row in rows if (row["source_identifier"], row["partition_key"]) not in there]
            if not missing:
                return set()
            try:
                with connection.begin_nested():
                    connection.execute(sa.insert(self._table), missing)
            except exc.IntegrityError as error:
                if not _is_duplicate(error):
                    raise
                continue  # another process created one of them after we looked
            return {(row["source_identifier"], row["partition_key"]) for row in missing}

    def _which_exist(self, connection: sa.Connection, rows: Sequence[dict[str, Any]]) -> set[Key]:
        columns = self._table.c
        found: set[Key] = set()
        for source_identifier, family in groupby(rows, key=lambda row: row["source_identifier"]):
            statement = sa.select(columns.partition_key).where(
                columns.source_identifier == source_identifier,
                columns.partition_key.in_([row["partition_key"] for row in family]),
            )
            found.update((source_identifier, key) for key in connection.scalars(statement))
        return found


def _chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    return (rows[start : start + CHUNK_ROWS] for start in range(0, len(rows), CHUNK_ROWS))


def _all_rows(connection: sa.Connection, statement: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
    return connection.execute(statement).all()


def _is_duplicate(error: exc.IntegrityError) -> bool:
    """Tell whether a row was refused because its key exists, in the words of MySQL, PostgreSQL or SQLite."""
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


_SHARED = attrgetter(*(field.name for field in fields(Partition) if field.compare and field.name not in OF_EACH))


def _rows_of_each(partitions: Sequence[Partition]) -> list[tuple[Any, ...]]:
    """Return the columns `OF_EACH`; what several partitions have as one object is written once."""
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
