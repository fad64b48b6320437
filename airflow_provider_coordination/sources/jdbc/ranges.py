"""Ranges of a column: the values that bound them, their SQL, and dividing a range into smaller ones.

A value is stored as text with its kind. It becomes SQL only after it is parsed by its kind and formatted again. So no
stored text is ever part of a statement unchanged.

Ranges are made by the number of rows, not by their width: a gap of a million days costs nothing, and a busy hour
becomes as many ranges as it needs. Ranges follow each other without a gap and without an overlap. So every row,
including later ones, is in exactly one range.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from itertools import groupby
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sql import MYSQL, POSTGRESQL

Value = int | float | Decimal | date | datetime
"""The value of a bound. A `datetime` is aware if its kind is `TIMESTAMP_TZ`, and naive otherwise."""


class Kind(StrEnum):
    """The kind of a column's values."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    DATE = "date"
    TIMESTAMP = "timestamp"
    """Without a time zone."""
    TIMESTAMP_TZ = "timestamp_tz"
    """With a time zone: an instant."""

    @property
    def is_time(self) -> bool:
        """Whether it is a date or a time."""
        return self in (Kind.DATE, Kind.TIMESTAMP, Kind.TIMESTAMP_TZ)


ORACLE = "oracle"
SQL_SERVER = "sqlserver"

_BY_TYPE_CODE = {
    # The object identifiers of the types.
    POSTGRESQL: {
        20: Kind.INTEGER,
        21: Kind.INTEGER,
        23: Kind.INTEGER,
        700: Kind.FLOAT,
        701: Kind.FLOAT,
        1082: Kind.DATE,
        1114: Kind.TIMESTAMP,
        1184: Kind.TIMESTAMP_TZ,
        1700: Kind.DECIMAL,
    },
    # The field types of the protocol.
    MYSQL: {
        0: Kind.DECIMAL,
        1: Kind.INTEGER,
        2: Kind.INTEGER,
        3: Kind.INTEGER,
        4: Kind.FLOAT,
        5: Kind.FLOAT,
        7: Kind.TIMESTAMP,
        8: Kind.INTEGER,
        9: Kind.INTEGER,
        10: Kind.DATE,
        12: Kind.TIMESTAMP,
        246: Kind.DECIMAL,
    },
}


def knows_types(dialect: str) -> bool:
    """Return whether the type codes of this kind of database are known; otherwise kinds are found by values."""
    return dialect in _BY_TYPE_CODE


def kind_of_type(dialect: str, type_code: object) -> Kind | None:
    """Return the kind of a column by its driver's type code; None if the column cannot define ranges."""
    return _BY_TYPE_CODE.get(dialect, {}).get(type_code)  # type: ignore[call-overload, no-any-return]


def kind_of_value(value: object) -> Kind | None:
    """Return the kind of a driver's value; None if such values cannot define ranges."""
    if isinstance(value, bool):
        return None
    if isinstance(value, datetime):
        return Kind.TIMESTAMP if value.tzinfo is None else Kind.TIMESTAMP_TZ
    for kind, of in ((Kind.INTEGER, int), (Kind.DECIMAL, Decimal), (Kind.FLOAT, float), (Kind.DATE, date)):
        if isinstance(value, of):
            return kind
    return None


_MIDNIGHT = {Kind.DATE: "", Kind.TIMESTAMP: "T00:00:00", Kind.TIMESTAMP_TZ: "T00:00:00+00:00"}
FIRST_BOUND, LAST_BOUND = "0001-01-02", "9999-12-30"
"""Between these days, a time is valid in Python in every time zone. Databases have more times, and infinity."""


def is_finite(value: Value) -> bool:
    """Return whether a value is neither infinite nor NaN."""
    return not isinstance(value, (float, Decimal)) or math.isfinite(value)


def text_of(kind: Kind, value: Value) -> str:
    """Return a value as text, from which `value_of` returns an equal one.

    :raises ValueError: if it is not of this kind, or not finite.
    """
    if not is_finite(value):
        raise ValueError(f"{value} cannot be a bound")
    if kind is Kind.INTEGER and value == int(value):  # type: ignore[arg-type]
        return str(int(value))  # type: ignore[arg-type]
    if kind is Kind.DECIMAL and isinstance(value, (int, Decimal)):
        return format(Decimal(value), "f")
    if kind is Kind.FLOAT and isinstance(value, (int, float, Decimal)):
        return repr(float(value))
    if kind is Kind.DATE and isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if kind is Kind.TIMESTAMP and isinstance(value, datetime) and value.tzinfo is None:
        return value.isoformat()
    if kind is Kind.TIMESTAMP_TZ and isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).isoformat()
    raise ValueError(f"{value!r} is not of the kind {kind.value!r}")


_NUMBERS = {
    Kind.INTEGER: r"-?\d+",
    Kind.DECIMAL: r"-?\d+(\.\d+)?",
    Kind.FLOAT: r"-?\d+(\.\d+)?(e[+-]?\d+)?",
}


def value_of(kind: Kind, text: str) -> Value:
    """Parse a value.

    :raises ValueError: if it is not of this kind.
    """
    if pattern := _NUMBERS.get(kind):
        if not re.fullmatch(pattern, text, re.ASCII | re.IGNORECASE):
            raise ValueError(f"{text!r} is not of the kind {kind.value!r}")
        return int(text) if kind is Kind.INTEGER else Decimal(text) if kind is Kind.DECIMAL else float(text)
    if kind is Kind.DATE:
        return date.fromisoformat(text)
    value = datetime.fromisoformat(text)
    if (value.tzinfo is None) is (kind is Kind.TIMESTAMP_TZ):
        raise ValueError(f"{text!r} is not of the kind {kind.value!r}")
    return value


def given_value(kind: Kind, text: str) -> Value:
    """Parse a bound that a user gives, which may be an instant for any kind of time.

    For a column without a time zone, an instant is converted to UTC. A day means its first moment.

    :raises ValueError: with the expected form.
    """
    if not kind.is_time:
        try:
            return value_of(kind, text.strip())
        except ValueError:
            raise ValueError(f"the column is of the kind {kind.value!r}; give a number") from None
    try:
        instant = datetime.fromisoformat(text.strip())
        if instant.tzinfo is not None:
            instant = instant.astimezone(UTC)
    except (OverflowError, ValueError):
        raise ValueError(
            f"the column is of the kind {kind.value!r}; give a time such as 2026-01-31T00:00:00Z"
        ) from None
    if kind is Kind.TIMESTAMP_TZ:
        if instant.tzinfo is None:
            raise ValueError(
                "the column has instants with a time zone; add 'Z' or an offset, such as 2026-01-31T00:00:00Z"
            )
        return instant
    naive = instant.replace(tzinfo=None)
    if kind is Kind.TIMESTAMP:
        return naive
    if naive.time() != time():
        raise ValueError("the column has dates; give a date such as 2026-01-31, or an instant at midnight UTC")
    return naive.date()


def literal(dialect: str, kind: Kind, text: str) -> str:
    """Return a value as a SQL literal.

    :param dialect: the kind of database.
    :param text: the value, as `text_of` returns it.
    :raises ValueError: if it is not of this kind.
    """
    value = value_of(kind, text)
    if not kind.is_time:
        return text_of(kind, value)
    if not isinstance(value, datetime):
        text, standard, of_sql_server = value.isoformat(), "DATE", "DATE"  # type: ignore[union-attr]
    elif kind is Kind.TIMESTAMP:
        text, standard, of_sql_server = value.isoformat(" "), "TIMESTAMP", "DATETIME2"
    else:
        text = value.astimezone(UTC).isoformat(" ")
        # Oracle sees from the text whether there is a zone.
        standard = "TIMESTAMP" if dialect == ORACLE else "TIMESTAMP WITH TIME ZONE"
        of_sql_server = "DATETIMEOFFSET"
    return f"CAST('{text}' AS {of_sql_server})" if dialect == SQL_SERVER else f"{standard} '{text}'"


def is_null(dialect: str, name: str) -> str:
    """Return the condition for the rows without a value in a column."""
    # For MySQL, the zero date of a column that is NOT NULL is also NULL, but only to IS NULL.
    return f"{quoted(dialect, name)} {'<=> NULL' if dialect == MYSQL else 'IS NULL'}"


def is_not_null(dialect: str, name: str) -> str:
    """Return the condition for the rows with a value in a column."""
    return f"NOT ({is_null(dialect, name)})" if dialect == MYSQL else f"{quoted(dialect, name)} IS NOT NULL"


def can_be_bound(dialect: str, kind: Kind, name: str) -> str:
    """Return the condition for the values of a column of times that Python can represent, so that they can be bounds.

    Other values are in the ranges between bounds: infinity, BC, years above 9999, and MySQL's dates with a zero.
    """
    column = quoted(dialect, name)
    first, last = (literal(dialect, kind, f"{day}{_MIDNIGHT[kind]}") for day in (FIRST_BOUND, LAST_BOUND))
    without_zero = f" AND MONTH({column}) > 0 AND DAY({column}) > 0" if dialect == MYSQL else ""
    return f"{column} >= {first} AND {column} <= {last}{without_zero}"


def quoted(dialect: str, name: str) -> str:
    """Return the quoted name of a column."""
    mark = "`" if dialect == MYSQL else '"'
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


@dataclass(frozen=True, kw_only=True)
class Range:
    """The rows whose value in a column lies between two bounds: `[lower, upper)`, unless set otherwise.

    A range without bounds has every row with a value. Rows without a value are a range of their own.

    :param column: the column.
    :param kind: the kind of its values; empty only if there is no bound.
    :param lower: the lower bound, as `text_of` writes it; None for no bound.
    :param lower_open: whether the lower bound itself is excluded.
    :param upper: the upper bound; None for no bound.
    :param upper_closed: whether the upper bound itself is included.
    :param is_null: whether it has exactly the rows without a value.
    """

    column: str
    kind: str = ""
    lower: str | None = None
    lower_open: bool = False
    upper: str | None = None
    upper_closed: bool = False
    is_null: bool = False

    def __str__(self) -> str:
        """Return the range in mathematical notation."""
        if self.is_null:
            return f"{self.column} is null"
        if self.lower is not None and self.lower == self.upper:
            return f"{self.column} = {self.lower}"
        lower = "(-inf" if self.lower is None else f"{'(' if self.lower_open else '['}{self.lower}"
        upper = "inf)" if self.upper is None else f"{self.upper}{']' if self.upper_closed else ')'}"
        return f"{self.column} {lower}, {upper}"

    def predicate(self, dialect: str) -> str:
        """Return the range as a SQL predicate.

        :param dialect: the kind of database.
        :raises ValueError: if a bound is not of the range's kind.
        """
        column = quoted(dialect, self.column)
        if self.is_null:
            return is_null(dialect, self.column)
        bounds = [
            f"{column} {comparison} {literal(dialect, Kind(self.kind), bound)}"
            for bound, comparison in (
                (self.lower, ">" if self.lower_open else ">="),
                (self.upper, "<=" if self.upper_closed else "<"),
            )
            if bound is not None
        ]
        return " AND ".join(bounds) or is_not_null(dialect, self.column)

    def to_item(self) -> dict[str, Any]:
        """Return the range as an item, without default values."""
        return {name: value for name, value in write_settings(self).items() if value not in ("", None, False)}

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Range:
        """Return the range of an item.

        :raises ItemUnreadableError: if the item is not a range.
        """
        try:
            return read_settings(cls, "item", item)
        except ConfigurationError as error:
            raise ItemUnreadableError(
                f"{error}; it was written by hand, or by a newer version of this package"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Cut:
    """The parts of a range.

    :param ranges: in order; together they have the same rows as the range.
    :param huge: the keys with enough rows for a range of their own.
    """

    ranges: tuple[Range, ...]
    huge: tuple[Value, ...] = ()


def cut(full_range: Range, starts: Sequence[Value]) -> Cut:
    """Divide a range at the values where, in the order of the column, a new portion of its rows starts.

    A range then has less than two portions of rows, unless all of them have the same key. A key that fills a portion
    alone is the start of several portions, and becomes a range of its own.

    :param full_range: the range.
    :param starts: the value of the first row of each portion, in order.
    """
    ranges: list[Range] = []
    huge: list[Value] = []
    left: Range | None = full_range
    kind = Kind(full_range.kind) if starts else Kind.INTEGER
    for number, (value, same) in enumerate(groupby(starts)):
        assert left is not None
        bound, portions = text_of(kind, value), len(list(same))
        if number and bound != left.lower:
            ranges.append(replace(left, upper=bound, upper_closed=False))
            left = replace(left, lower=bound, lower_open=False)
        if portions > 1:
            huge.append(value)
            ranges.append(replace(left, upper=bound, upper_closed=True))
            left = replace(left, lower=bound, lower_open=True)
            if full_range.upper_closed and full_range.upper == bound:
                left = None
    return Cut(ranges=(*ranges, *([] if left is None else [left])), huge=tuple(huge))


def rest(full_range: Range, last: Range) -> Range | None:
    """Return the rest of a range after one of its parts; None if that is the last part."""
    if last.upper == full_range.upper and last.upper_closed == full_range.upper_closed:
        return None
    return replace(full_range, lower=last.upper, lower_open=last.upper_closed)


@dataclass(frozen=True, kw_only=True)
class RangeState:
    """The state of the supplier between runs.

    :param reads: the identity of the table and settings, so that the source cannot be used for another one.
    :param planned: the ranges that become partitions next, if they are not partitions already.
    :param left: the range that is divided after them; None if nothing is left.
    :param began: the bound of the first run of an incremental read; None for no bound.
    :param mark: the largest value that was read; None before the first run.
    :param is_done: whether nothing will ever be left to read.
    """

    reads: dict[str, Any] = field(default_factory=dict)
    planned: tuple[Range, ...] = ()
    left: Range | None = None
    began: str | None = None
    mark: str | None = None
    is_done: bool = False


def incremental_start(other: SourceCoordinator, table: str | None, query: str | None, column: str) -> datetime | None:
    """Return the value from which an incremental source reads a table; None if it reads all rows.

    :param other: the coordinator of that source.
    :param table: the table; None if there is a query.
    :param query: the query.
    :param column: a column of times or dates.
    :raises ConfigurationError: if the source has read nothing yet, reads something else, or is not incremental.
    """
    state = read_settings(RangeState, "state of the supplier", other.view.supplier_state())
    wanted = relation_identity(table, query, column)
    what = f"field 'deduplicate_against': source {other.source!r}"
    if state.mark is None and not state.is_done:
        raise ConfigurationError(f"{what} has read no row yet, so its start is not known; let it run first")
    if differing := [name for name, value in wanted.items() if state.reads.get(name) != value]:
        differences = ", ".join(
            f"{name!r} {state.reads.get(name)!r} there and {wanted[name]!r} here" for name in differing
        )
        raise ConfigurationError(f"{what} reads something else: {differences}; name the source that reads the same")
    if not state.reads.get("incremental"):
        raise ConfigurationError(
            f"{what} is not incremental, but reads its bounds once; name one with incremental=True, or choose "
            "intervals outside of its bounds"
        )
    if state.began is None:
        return None
    try:
        began = datetime.fromisoformat(state.began)
    except ValueError:
        raise ConfigurationError(
            f"{what} starts at {state.began!r}, which is not a time, so it cannot bound an interval; name a source "
            "with a column of times"
        ) from None
    return began.replace(tzinfo=UTC) if began.tzinfo is None else began.astimezone(UTC)


def relation_identity(table: str | None, query: str | None, column: str) -> dict[str, Any]:
    """Return the identity of a table or query, short enough for a state."""
    digest = None if query is None else hashlib.sha256(query.encode()).hexdigest()[:16]
    return {"table": table, "query": digest, "column": column}
