"""Ranges of a column, and how a range is cut into smaller ones that hold about as many rows each.

The cut goes by the rows themselves, not by the width of the ranges: a gap of a million days costs nothing, and a busy
hour becomes as many ranges as it needs. Ranges follow each other without a gap and without an overlap, so that every
row, those that come later included, is in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.items import ItemUnreadableError
from airflow_provider_coordination.sources.jdbc.values import Kind, Value, literal, quoted, text_of


@dataclass(frozen=True, kw_only=True)
class Range:
    """The rows whose value in a column lies between two bounds: `[lower, upper)`, where it is not said otherwise.

    A range without bounds holds every row with a value. Rows without one are a range of their own.

    :param column: the column.
    :param kind: what its values are; empty only if there is no bound.
    :param lower: the lower bound, as `text_of` writes it; None for no bound.
    :param lower_open: whether the lower bound itself is left out.
    :param upper: the upper bound; None for no bound.
    :param upper_closed: whether the upper bound itself is taken in.
    :param is_null: whether it holds the rows without a value, and only those.
    """

    column: str
    kind: str = ""
    lower: str | None = None
    lower_open: bool = False
    upper: str | None = None
    upper_closed: bool = False
    is_null: bool = False

    def __str__(self) -> str:
        """Write it as it is written in mathematics."""
        if self.is_null:
            return f"{self.column} is null"
        if self.lower is not None and self.lower == self.upper:
            return f"{self.column} = {self.lower}"
        lower = "(-inf" if self.lower is None else f"{'(' if self.lower_open else '['}{self.lower}"
        upper = "inf)" if self.upper is None else f"{self.upper}{']' if self.upper_closed else ')'}"
        return f"{self.column} {lower}, {upper}"

    def predicate(self, dialect: str) -> str:
        """Write it as SQL.

        :param dialect: the kind of database.
        :raises ValueError: if a bound is not of the kind that it should be.
        """
        column = quoted(dialect, self.column)
        if self.is_null:
            return f"{column} IS NULL"
        bounds = [
            f"{column} {comparison} {literal(dialect, Kind(self.kind), bound)}"
            for bound, comparison in (
                (self.lower, ">" if self.lower_open else ">="),
                (self.upper, "<=" if self.upper_closed else "<"),
            )
            if bound is not None
        ]
        return " AND ".join(bounds) or f"{column} IS NOT NULL"

    def to_item(self) -> dict[str, Any]:
        """Return it as an item: what is as usual is left out."""
        return {name: value for name, value in write_settings(self).items() if value not in ("", None, False)}

    @classmethod
    def from_item(cls, item: Mapping[str, Any]) -> Range:
        """Return the range that an item says.

        :raises ItemUnreadableError: if it says none.
        """
        try:
            return read_settings(cls, "item", item)
        except ConfigurationError as error:
            raise ItemUnreadableError(
                f"{error}; it was written by hand, or by a newer version of this package"
            ) from None


@dataclass(frozen=True, kw_only=True)
class Cut:
    """What a range was cut into.

    :param ranges: in order; together they hold what the range holds.
    :param huge: the keys that have so many rows that each became a range of its own.
    """

    ranges: tuple[Range, ...]
    huge: tuple[Value, ...] = ()


def cut(whole: Range, starts: Sequence[Value]) -> Cut:
    """Cut a range at the values where, in the order of the column, a new portion of its rows begins.

    A range then holds less than two portions of rows, unless all of them have the same key. A key that fills a portion
    alone is met as the start of several, and becomes a range of its own.

    :param whole: what is cut.
    :param starts: the value of the first row of each portion, in order.
    """
    ranges: list[Range] = []
    huge: list[Value] = []
    left: Range | None = whole
    kind = Kind(whole.kind) if starts else Kind.INTEGER
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
            if whole.upper_closed and whole.upper == bound:
                left = None
    return Cut(ranges=(*ranges, *([] if left is None else [left])), huge=tuple(huge))


def rest(whole: Range, last: Range) -> Range | None:
    """Return what of a range comes after one of those that it was cut into; None if that is the last one."""
    if last.upper == whole.upper and last.upper_closed == whole.upper_closed:
        return None
    return replace(whole, lower=last.upper, lower_open=last.upper_closed)
