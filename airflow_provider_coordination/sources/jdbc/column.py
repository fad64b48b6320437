"""The supplier's queries: a database that is asked from Python, and the questions about one column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError, SourceError
from airflow_provider_coordination.sources.items import SourceUnavailableError
from airflow_provider_coordination.sources.jdbc.kind import JdbcTable
from airflow_provider_coordination.sources.jdbc.ranges import Range
from airflow_provider_coordination.sources.jdbc.values import (
    Kind,
    Value,
    can_be_bound,
    is_finite,
    kind_of_type,
    kind_of_value,
    knows_types,
    literal,
    quoted,
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
