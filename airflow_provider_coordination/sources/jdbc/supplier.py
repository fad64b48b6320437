"""The supplier: its queries of one column, and how it divides a table or query into ranges, each one a partition.

The bounds of the ranges depend on the present rows, and these change. So the next ranges are stored in the supplier's
state before they become partitions. An interrupted supplier continues with the same ranges, and no row is ever in two.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from math import ceil
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, SourceError
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.items import PartitionProgress, SourceUnavailableError
from airflow_provider_coordination.sources.jdbc.kind import (
    DEFAULT_ROWS_PER_PARTITION,
    READ,
    REFUSE,
    JdbcTable,
    connect_from_python,
)
from airflow_provider_coordination.sources.jdbc.ranges import (
    Cut,
    Kind,
    Range,
    RangeState,
    Value,
    can_be_bound,
    cut,
    given_value,
    is_finite,
    kind_of_type,
    kind_of_value,
    knows_types,
    literal,
    quoted,
    relation_identity,
    rest,
    text_of,
)
from airflow_provider_coordination.sql import POSTGRESQL, is_transient

_REJECTED = ("OperationalError", "InterfaceError", "ProgrammingError", "NotSupportedError")
"""The names of PEP 249's errors by which a database rejects a request."""


@dataclass(frozen=True)
class QueryResult:
    """The result of a query.

    :param columns: the name of each column, and its driver's type code.
    :param rows: the rows.
    """

    columns: Sequence[tuple[str, object]]
    rows: Sequence[Sequence[Any]]


class Query:
    """Queries a database through PEP 249 connections, a new one for each statement.

    :param connect: opens a connection.
    :param session: a statement that is run at the start of every session; None for none.
    """

    def __init__(self, connect: Callable[[], Any], session: str | None = None) -> None:
        self._connect = connect
        self._session = session

    def ask(self, sql: str, *, max_rows: int | None = None) -> QueryResult:
        """Run a SELECT.

        :param sql: the statement; it has no parameters.
        :param max_rows: the maximum number of rows to return; None for all.
        :raises SourceUnavailableError: if trying again later may help.
        :raises ConfigurationError: if the database rejects the statement or the login.
        :raises SourceError: if the result cannot be read.
        """
        try:
            with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
                if self._session is not None:
                    cursor.execute(self._session)
                cursor.execute(sql)
                rows = cursor.fetchall() if max_rows is None else cursor.fetchmany(max_rows)
                return QueryResult([(column[0], column[1]) for column in cursor.description], rows)
        except CoordinationError:  # the connection could not be made
            raise
        except Exception as error:  # every driver has its own classes
            raise _explained(error) from error


def _explained(error: Exception) -> SourceError | ConfigurationError:
    cause = getattr(error, "orig", None) or error  # SQLAlchemy's errors are longer than users need
    kinds = {kind.__name__ for kind in type(cause).__mro__}
    text = " ".join(str(cause).split()) or type(cause).__name__
    if is_transient(error):
        return SourceUnavailableError(
            f"the database is unavailable: {text}; check host and port of the connection, and the network"
        )
    if kinds.intersection(_REJECTED):
        return ConfigurationError(
            f"the database rejects the statement or the login: {text}; check the connection, the permissions of its "
            "login, and the given names"
        )
    return SourceError(f"the database's result cannot be read: {type(cause).__name__}: {text}")


MAX_RANGES = 100_000
"""The maximum number of ranges that a column is divided into at a time."""
RANGE_KEY = "_range_key"
"""The name under which the column of the ranges is selected as it is, if it arrives converted."""
RESERVED = ("_origin", "_row", "_batch_id", RANGE_KEY)
"""The names of columns that reading and landing add."""


@dataclass(frozen=True, kw_only=True)
class RangeColumn:
    """The column that defines the ranges.

    :param name: its name.
    :param kind: the kind of its values; None if the database does not report it and there are no values.
    :param settings: of the table or query.
    :param query: queries the database.
    """

    name: str
    kind: Kind | None
    settings: JdbcTable
    query: Query

    @property
    def everything(self) -> Range:
        """The range of all rows that have a value."""
        return Range(column=self.name, kind=self.kind.value if self.kind else "")

    def count(self, within: Range) -> int:
        """Return the number of rows in a range."""
        return int(self._one("COUNT(*)", within.predicate(self.settings.dialect)))

    def count_beyond_times(self) -> int:
        """Return the number of rows with infinity or a year above 9999, which no mark reaches."""
        if self.settings.dialect != POSTGRESQL or self.kind is None or not self.kind.is_time:
            return 0
        return int(self._one("COUNT(*)", f"{self._quoted} >= '10000-01-01'"))

    def largest(self, within: Range, upper: Value | None = None, *, closed: bool = True) -> Value | None:
        """Return the largest value in a range that can be a bound; None if it has none.

        :param upper: an upper bound; None for none.
        :param closed: whether the bound itself is included.
        :raises ConfigurationError: if the value is an infinite number or NaN: no value could follow it.
        """
        predicate = self._bounds(within)
        if upper is not None:
            assert self.kind is not None
            bound = literal(self.settings.dialect, self.kind, text_of(self.kind, upper))
            predicate += f" AND {self._quoted} {'<=' if closed else '<'} {bound}"
        value: Value | None = self._one(f"MAX({self._quoted})", predicate)
        if value is not None and not is_finite(value):
            raise ConfigurationError(
                f"{self._where}: its largest value is {value}, which no value can follow; correct that row, or leave "
                "it out with a query"
            )
        return value

    def starts(self, within: Range, rows: int) -> list[Value]:
        """Return the value of the first row of each portion of `rows` rows, in order, without those that are no bounds.

        The database numbers the rows: it scans the column once, by its index if it has one.

        :raises ConfigurationError: if there are too many portions.
        """
        offset = f"MOD(n - 1, {rows})" if self.settings.dialect == "oracle" else f"(n - 1) % {rows}"
        rows_found = self.query.ask(
            f"SELECT v FROM (SELECT {self._quoted} AS v, ROW_NUMBER() OVER (ORDER BY {self._quoted}) AS n "
            f"FROM {self.settings.relation} WHERE {self._bounds(within)}) numbered "
            f"WHERE {offset} = 0 ORDER BY n",
            max_rows=MAX_RANGES + 1,
        ).rows
        if len(rows_found) > MAX_RANGES:
            raise ConfigurationError(
                f"{self._where}: with {rows} rows each there would be more than {MAX_RANGES} ranges; give a larger "
                "'rows_per_partition'"
            )
        return [row[0] for row in rows_found if is_finite(row[0])]

    @property
    def _quoted(self) -> str:
        return quoted(self.settings.dialect, self.name)

    @property
    def _where(self) -> str:
        return f"{self.settings.name}: column {self.name!r}"

    def _bounds(self, within: Range) -> str:
        """Return the condition for the rows of a range whose value can be a bound."""
        dialect, predicate = self.settings.dialect, within.predicate(self.settings.dialect)
        if self.kind is None or not self.kind.is_time:
            return predicate
        return f"{predicate} AND {can_be_bound(dialect, self.kind, self.name)}"

    def _one(self, expression: str, predicate: str) -> Any:
        return self.query.ask(f"SELECT {expression} FROM {self.settings.relation} WHERE {predicate}").rows[0][0]


def find_column(settings: JdbcTable, name: str, query: Query) -> RangeColumn:
    """Find a column in the database.

    :param settings: of the table or query.
    :param name: the name of the column.
    :param query: queries the database.
    :raises ConfigurationError: if the table or column does not exist, or the column cannot define ranges.
    """
    try:
        columns = query.ask(f"SELECT * FROM {settings.relation} WHERE 1 = 0").columns
    except ConfigurationError as error:
        raise ConfigurationError(f"{settings.name} cannot be read: {error}") from error
    _check_names(settings.name, [column for column, _ in columns], name)
    type_code = dict(columns)[name]
    kind, met = kind_of_type(settings.dialect, type_code), f"of the database's type {type_code}"
    if not knows_types(settings.dialect):
        kind, met = _kind_of_values(settings, name, query)
    if kind is None and met:
        raise ConfigurationError(
            f"{settings.name}: column {name!r} is {met}; ranges need a column of whole numbers, decimals, dates "
            "or times"
        )
    return RangeColumn(name=name, kind=kind, settings=settings, query=query)


def _check_names(relation: str, columns: Sequence[str], name: str) -> None:
    if name not in columns:
        near = [column for column in columns if column.lower() == name.lower()]
        raise ConfigurationError(
            f"{relation}: there is no column {name!r}; "
            + (f"did you mean {near[0]!r}?" if near else f"the columns are {', '.join(columns)}")
        )
    lowered = [column.lower() for column in columns]  # Spark ignores case
    if doubled := sorted(column for column in columns if lowered.count(column.lower()) > 1):
        raise ConfigurationError(f"{relation}: column {doubled[0]!r} appears twice; give each column its own name")
    if taken := [column for column in columns if column.lower() in RESERVED]:
        raise ConfigurationError(
            f"{relation}: the name of column {taken[0]!r} is reserved by the provider; rename it with a query"
        )


def _kind_of_values(settings: JdbcTable, name: str, query: Query) -> tuple[Kind | None, str]:
    """Return the kind of a column's values and a description; None and an empty text if there are no values."""
    column = quoted(settings.dialect, name)
    ends = query.ask(f"SELECT MIN({column}), MAX({column}) FROM {settings.relation}").rows[0]
    kinds = {kind_of_value(end) for end in ends if end is not None}
    if not kinds:
        return None, ""
    if kinds == {Kind.INTEGER, Kind.FLOAT}:
        kinds = {Kind.FLOAT}
    return (kinds.pop() if len(kinds) == 1 else None), f"one with values such as {ends[1]!r}"


log = logging.getLogger(__name__)

PAGE_RANGES = 100
"""How many ranges become partitions at a time; until then, their bounds are in the supplier's state."""
HUGE_KEYS_NAMED = 20
_EXACT = Context(prec=200_000)
"""With more digits than a decimal of any database has: the default context rounds to 28."""


class RangeSupplier:
    """Finds the ranges of a table or query; a `Supplier`.

    :param query: queries the database.
    :param table: what is read, and how it is divided.
    :param now: returns the present instant (aware).
    """

    def __init__(
        self,
        query: Query,
        table: JdbcTable,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._query = query
        self._table = table
        self._now = now

    def __call__(self, stored: Mapping[str, Any]) -> Iterator[Page]:
        """Yield the ranges that are not partitions yet, page by page.

        :param stored: the state of the last run.
        :raises ConfigurationError: if the table, the column or a bound is invalid, or the source was made for another
            table, column or interval.
        :raises SourceError: if the database is unavailable, or its rows cannot be divided.
        """
        state = self._state(stored)
        is_under_way = state.left is not None or bool(state.planned)
        if self.is_done(stored):
            log.info("%s: everything is in partitions already", self._what)
            return
        column = find_column(self._table, self._table.column, self._query)
        if not is_under_way:
            begun = self._begun(column, state)
            if begun is None:
                log.info("%s: nothing new", self._what)
                return
            state = begun
        ranges = () if state.left is None else self._cut(column, state.left)
        planned, left = state.planned, state.left
        for page in (*_batched(ranges, PAGE_RANGES), ()):
            left = rest(left, page[-1]) if page and left is not None else None
            yield Page(_partitions(planned), state=write_settings(replace(state, planned=page, left=left)))
            planned = page

    def is_done(self, stored: Mapping[str, Any]) -> bool:
        """Return whether everything is in partitions already.

        :param stored: the state of the last run.
        :raises ConfigurationError: if the source was made for another table, column or interval.
        """
        state = self._state(stored)
        return state.is_done and state.left is None and not state.planned

    def _state(self, stored: Mapping[str, Any]) -> RangeState:
        """Return the state of the last run, if it read the same table, column and interval."""
        state = read_settings(RangeState, "state of the supplier", stored)
        table = self._table
        reads = {
            **relation_identity(table.table, table.query, table.column),
            "start": None if table.incremental else table.start,
            "end": table.end,
            "incremental": table.incremental,
        }
        if state.reads and (other := [name for name in reads if reads[name] != state.reads.get(name)]):
            raise ConfigurationError(
                f"{self._what}: the source was made with "
                + ", ".join(f"{name!r} {state.reads.get(name)!r}" for name in other)
                + ", and is now given "
                + ", ".join(f"{name!r} {reads[name]!r}" for name in other)
                + "; give the task another 'source', or the previous settings"
            )
        return replace(state, reads=reads)

    def _begun(self, column: RangeColumn, state: RangeState) -> RangeState | None:
        """Return the state with the range to divide now; None if there is none."""
        nulls = self._nulls(column)
        if column.kind is None and not self._table.reads_everything:
            return None  # there is no row
        start, end = (self._bound(column, name) for name in ("start", "end"))
        if start is not None and end is not None and start >= end:  # type: ignore[operator]
            raise ConfigurationError(
                f"{self._what}: field 'start' must be before 'end'; got {self._table.start!r} and "
                f"{self._table.end!r}; use CronDataIntervalTimetable to give runs an interval longer than zero"
            )
        full_range = column.everything
        if start is not None and column.kind is not None:
            full_range = replace(full_range, lower=text_of(column.kind, start))
        if end is not None and column.kind is not None:
            full_range = replace(full_range, upper=text_of(column.kind, end))
        if not self._table.incremental:
            return replace(state, planned=nulls, left=full_range, is_done=True)
        if state.mark is not None:
            full_range = replace(full_range, lower=state.mark, lower_open=True)
        mark = self._new_mark(column, full_range)
        if mark is None or column.kind is None:
            return None
        text = text_of(column.kind, mark)
        log.info("%s: reading new rows up to %s, after %s", self._what, text, state.mark)
        began = self._table.start if state.mark is None else state.began
        return replace(state, left=replace(full_range, upper=text, upper_closed=True), began=began, mark=text)

    def _cut(self, column: RangeColumn, full_range: Range) -> tuple[Range, ...]:
        """Divide a range into ranges."""
        rows = self._table.rows_per_partition or DEFAULT_ROWS_PER_PARTITION
        if self._table.partitions is not None:
            rows = max(-(-column.count(full_range) // self._table.partitions), 1)
        try:
            result = cut(full_range, column.starts(full_range, rows))
        except ValueError as error:
            raise ConfigurationError(
                f"{self._what}: the column cannot be divided into ranges: {error}; use a column with values of one kind"
            ) from error
        self._warn_of_huge_keys(column, result)
        return result.ranges

    def _warn_of_huge_keys(self, column: RangeColumn, result: Cut) -> None:
        for key in result.huge[:HUGE_KEYS_NAMED]:
            assert column.kind is not None
            text = text_of(column.kind, key)
            rows = column.count(replace(column.everything, lower=text, upper=text, upper_closed=True))
            log.warning(
                "%s: the key %s has %d rows; they are one range, which one Spark task reads",
                self._what,
                text,
                rows,
            )
        if len(result.huge) > HUGE_KEYS_NAMED:
            log.warning("%s: %d keys have more rows than a range should have", self._what, len(result.huge))

    def _nulls(self, column: RangeColumn) -> tuple[Range, ...]:
        """Return the range of the rows without a value, if there are any and they are read."""
        nulls = Range(column=column.name, is_null=True)
        handling = self._table.null_handling
        rows = column.count(nulls) if handling in (READ, REFUSE) else 0
        if rows and handling == REFUSE:
            raise ConfigurationError(
                f"{self._what}: {rows} rows have NULL in the column, so no interval and no incremental read can "
                "include them; give them a value, or set nulls='ignore' to leave them out"
                + ("; nulls='read' makes them a separate range" if self._table.reads_everything else "")
            )
        return (nulls,) if rows else ()

    def _new_mark(self, column: RangeColumn, after: Range) -> Value | None:
        """Return the largest value that is read now; None if there is none."""
        lag, kind = self._table.lag, column.kind
        assert kind is not None
        if lag is not None and isinstance(lag, timedelta) is not kind.is_time:
            raise ConfigurationError(
                f"{self._what}: field 'lag' must be {'a duration' if kind.is_time else 'a number'} for a column of the "
                f"kind {kind.value!r}"
            )
        if not kind.is_time:
            highest = column.largest(after)
            if highest is None or not lag:
                return highest
            assert not isinstance(lag, timedelta)
            return column.largest(after, _less(highest, lag))
        if beyond := column.count_beyond_times():
            raise ConfigurationError(
                f"{self._what}: {beyond} rows have infinity or a year above 9999 in the column, which no incremental "
                "read reaches; correct them, or leave them out with a query"
            )
        visible = self._now().astimezone(UTC) - (lag if isinstance(lag, timedelta) else timedelta(0))
        if kind is Kind.DATE:  # a day is read once it is over
            return column.largest(after, visible.date(), closed=False)
        return column.largest(after, visible if kind is Kind.TIMESTAMP_TZ else visible.replace(tzinfo=None))

    def _bound(self, column: RangeColumn, name: str) -> Value | None:
        bound: str | None = getattr(self._table, name)
        if bound is None or column.kind is None:
            return None
        try:
            return given_value(column.kind, bound)
        except ValueError as error:
            raise ConfigurationError(f"{self._what}: field {name!r} does not fit: {error}; got {bound!r}") from None

    @property
    def _what(self) -> str:
        return f"{self._table.name} by column {self._table.column!r}"


def range_supplier(table: JdbcTable, coordinator: SourceCoordinator, connections: ConnectionResolver) -> RangeSupplier:
    """Return the supplier of a table or query; see `SourceKind.supplier`."""
    connect = connect_from_python(table.jdbc_conn_id, table.database, connections)
    return RangeSupplier(Query(connect, table.session_statement), table, coordinator.clock.now)


def _partitions(ranges: Sequence[Range]) -> dict[str, dict[str, Any]]:
    """Return the first progress of the partitions that ranges become, by partition key."""
    return {str(each): PartitionProgress(kind=JdbcTable.kind, items=(each.to_item(),)).to_mapping() for each in ranges}


def _batched(ranges: Sequence[Range], size: int) -> Iterator[tuple[Range, ...]]:
    for first in range(0, len(ranges), size):
        yield tuple(ranges[first : first + size])


def _less(value: Value, lag: float) -> Value:
    if isinstance(value, Decimal):
        return _EXACT.subtract(value, Decimal(str(lag)))
    return value - (ceil(lag) if isinstance(value, int) else lag)  # type: ignore[operator]
