"""Ranges of a column, and dividing a range into smaller ones with about the same number of rows.

Ranges are made by the number of rows, not by their width: a gap of a million days costs nothing, and a busy hour
becomes as many ranges as it needs. Ranges follow each other without a gap and without an overlap. So every row,
including later ones, is in exactly one range.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.jdbc.values import (
    Kind,
    Value,
    is_not_null,
    is_null,
    literal,
    quoted,
    text_of,
)


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
