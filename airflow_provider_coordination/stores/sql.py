"""Keeps partitions in a SQL database, through SQLAlchemy Core: SQLite by default; PostgreSQL, MySQL or MariaDB in
production.

An acquisition selects and updates in one transaction, and skips rows that another worker is acquiring (`SKIP LOCKED`;
SQLite has only one writer at a time). Instants are text of fixed width, so that one schema and one order suit every
database.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime
from functools import partial
from operator import ge, gt, le, lt
from typing import Any, TypeVar

import sqlalchemy as sa

from airflow_provider_coordination.coordination.browsing import (
    PARKED_FROM,
    BrowsePage,
    BrowsePosition,
    Filter,
    PageRequest,
    SortOrder,
    end_of_prefix,
    position_of,
)
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
)
from airflow_provider_coordination.coordination.store import (
    Acquisition,
    CoordinationStore,
    acquisition_order,
    version_refused,
)
from airflow_provider_coordination.stores import RETRY_DEADLINE_SECONDS, sql_schema
from airflow_provider_coordination.stores.kind import StoreReport, measure_quickest
from airflow_provider_coordination.stores.sql_database import Database
from airflow_provider_coordination.stores.sql_rows import SqlRows, partition_of, row_of

CHUNK_ROWS = 1000
TRANSACTION_ITEMS = 2500
"""Databases allow more. This limit keeps the locks of a transaction short, some hundredths of a second."""
LEASE_COLUMNS = ("status", "owner", "ownership_timeout", "held_since", "priority", "reopen_at")
"""The columns that an acquisition sets besides the version, to the same value in every row."""

T = TypeVar("T")
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
        self._rows = SqlRows(self._database, self._table)

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
            created += self._database.write(partial(self._rows.insert_absent, partitions=chunk))
        return created

    @override
    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        statement = sa.select(self._table).where(self._is(source_identifier, partition_key))
        row = self._database.read(lambda connection: connection.execute(statement).one_or_none())
        return None if row is None else partition_of(row)

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
            partitions |= {row.partition_key: partition_of(row) for row in rows}
        return partitions

    @override
    def existing_keys(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        """Reads a thousand keys per statement."""
        existing: set[str] = set()
        for chunk in _chunks(partition_keys):
            known = partial(self._rows.existing_keys, source_identifier=source_identifier, partition_keys=chunk)
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
                self._rows.lock(connection, [*update, *unchanged])
            written = self._rows.update(connection, update)
            self._rows.insert_absent(connection, create, return_created=False)
            self._rows.insert_new(connection, new)
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
        return self._database.read(lambda connection: [partition_of(row) for row in connection.execute(statement)])

    @override
    def browse(self, request: PageRequest) -> BrowsePage:
        """Reads along an index and filters the rows."""
        request.check()
        wanted, order, descending = request.wanted, request.order, request.descending
        conditions = self._index_conditions(request.source_identifier, wanted, order)
        if request.after is not None:
            conditions.append(self._compared_to(lt if descending else gt, request.after, order))

        def read(connection: sa.Connection) -> BrowsePage:
            within, end = conditions, None
            if not request.includes_all:
                end = self._end(connection, conditions, order, descending=descending, examine=request.examine)
                within = [*conditions, *self._filter_conditions(wanted)]
                if end is not None:
                    within.append(self._compared_to(ge if descending else le, end, order))
            max_partitions = min(request.limit, request.examine)
            statement = self._select(within, order, descending=descending).limit(max_partitions + 1)
            rows = connection.execute(statement).all()
            partitions = [partition_of(row) for row in rows[:max_partitions]]
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

    # Leases within a transaction

    def _lease(self, connection: sa.Connection, rows: Sequence[sa.Row[Any]], request: Acquisition) -> list[Partition]:
        """Lease rows that this transaction has locked, with one statement per thousand rows."""
        leased = [
            partition_of(row).taken(request.owner, request.ownership_timeout, request.available_by) for row in rows
        ]
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk, first = rows[start : start + CHUNK_ROWS], row_of(leased[start])
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
        return [partition_of(row) for row in connection.execute(statement)]


def _chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    return (rows[start : start + CHUNK_ROWS] for start in range(0, len(rows), CHUNK_ROWS))


def _all_rows(connection: sa.Connection, statement: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
    return connection.execute(statement).all()
