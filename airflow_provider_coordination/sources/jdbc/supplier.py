"""The supplier: divides a table or query into ranges, and makes each range a partition.

The bounds of the ranges depend on the present rows, and these change. So the next ranges are stored in the supplier's
state before they become partitions. An interrupted supplier continues with the same ranges, and no row is ever in two.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from math import ceil
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.jdbc.column import Column, find_column
from airflow_provider_coordination.sources.jdbc.query import Query
from airflow_provider_coordination.sources.jdbc.ranges import Cut, Range, cut, rest
from airflow_provider_coordination.sources.jdbc.settings import (
    DEFAULT_ROWS_PER_PARTITION,
    READ,
    REFUSE,
    JdbcSettings,
    RangeSettings,
)
from airflow_provider_coordination.sources.jdbc.values import Kind, Value, given_value, text_of
from airflow_provider_coordination.sources.progress import PartitionProgress

log = logging.getLogger(__name__)

KIND = "jdbc"
PAGE_RANGES = 100
"""How many ranges become partitions at a time; until then, their bounds are in the supplier's state."""
HUGE_KEYS_NAMED = 20
_EXACT = Context(prec=200_000)
"""With more digits than a decimal of any database has: the default context rounds to 28."""


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


class RangeSupplier:
    """Finds the ranges of a table or query; a `Supplier`.

    :param query: queries the database.
    :param settings: the table or query.
    :param ranges: how it is divided, and which rows are read.
    :param now: returns the present instant (aware).
    """

    def __init__(
        self,
        query: Query,
        settings: JdbcSettings,
        ranges: RangeSettings,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        settings.check()
        ranges.check()
        self._query = query
        self._settings = settings
        self._ranges = ranges
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
        column = find_column(self._settings, self._ranges.column, self._query)
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
        settings, ranges = self._settings, self._ranges
        reads = {
            **_identity(settings.table, settings.query, ranges.column),
            "start": None if ranges.incremental else ranges.start,
            "end": ranges.end,
            "incremental": ranges.incremental,
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

    def _begun(self, column: Column, state: RangeState) -> RangeState | None:
        """Return the state with the range to divide now; None if there is none."""
        nulls = self._nulls(column)
        if column.kind is None and not self._ranges.reads_everything:
            return None  # there is no row
        start, end = (self._bound(column, name) for name in ("start", "end"))
        if start is not None and end is not None and start >= end:  # type: ignore[operator]
            raise ConfigurationError(
                f"{self._what}: field 'start' must be before 'end'; got {self._ranges.start!r} and "
                f"{self._ranges.end!r}; use CronDataIntervalTimetable to give runs an interval longer than zero"
            )
        full_range = column.everything
        if start is not None and column.kind is not None:
            full_range = replace(full_range, lower=text_of(column.kind, start))
        if end is not None and column.kind is not None:
            full_range = replace(full_range, upper=text_of(column.kind, end))
        if not self._ranges.incremental:
            return replace(state, planned=nulls, left=full_range, is_done=True)
        if state.mark is not None:
            full_range = replace(full_range, lower=state.mark, lower_open=True)
        mark = self._new_mark(column, full_range)
        if mark is None or column.kind is None:
            return None
        text = text_of(column.kind, mark)
        log.info("%s: reading new rows up to %s, after %s", self._what, text, state.mark)
        began = self._ranges.start if state.mark is None else state.began
        return replace(state, left=replace(full_range, upper=text, upper_closed=True), began=began, mark=text)

    def _cut(self, column: Column, full_range: Range) -> tuple[Range, ...]:
        """Divide a range into ranges."""
        rows = self._ranges.rows_per_partition or DEFAULT_ROWS_PER_PARTITION
        if self._ranges.partitions is not None:
            rows = max(-(-column.count(full_range) // self._ranges.partitions), 1)
        try:
            result = cut(full_range, column.starts(full_range, rows))
        except ValueError as error:
            raise ConfigurationError(
                f"{self._what}: the column cannot be divided into ranges: {error}; use a column with values of one kind"
            ) from error
        self._warn_of_huge_keys(column, result)
        return result.ranges

    def _warn_of_huge_keys(self, column: Column, result: Cut) -> None:
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

    def _nulls(self, column: Column) -> tuple[Range, ...]:
        """Return the range of the rows without a value, if there are any and they are read."""
        nulls = Range(column=column.name, is_null=True)
        handling = self._ranges.null_handling
        rows = column.count(nulls) if handling in (READ, REFUSE) else 0
        if rows and handling == REFUSE:
            raise ConfigurationError(
                f"{self._what}: {rows} rows have NULL in the column, so no interval and no incremental read can "
                "include them; give them a value, or set nulls='ignore' to leave them out"
                + ("; nulls='read' makes them a range of their own" if self._ranges.reads_everything else "")
            )
        return (nulls,) if rows else ()

    def _new_mark(self, column: Column, after: Range) -> Value | None:
        """Return the largest value that is read now; None if there is none."""
        ranges, kind = self._ranges, column.kind
        assert kind is not None
        if (ranges.lag_keys if kind.is_time else ranges.lag_seconds) is not None:
            raise ConfigurationError(
                f"{self._what}: field 'lag' must be {'a duration' if kind.is_time else 'a number'} for a column of the "
                f"kind {kind.value!r}"
            )
        if not kind.is_time:
            highest = column.largest(after)
            if highest is None or not ranges.lag_keys:
                return highest
            return column.largest(after, _less(highest, ranges.lag_keys))
        if beyond := column.count_beyond_times():
            raise ConfigurationError(
                f"{self._what}: {beyond} rows have infinity or a year above 9999 in the column, which no incremental "
                "read reaches; correct them, or leave them out with a query"
            )
        visible = self._now().astimezone(UTC) - timedelta(seconds=ranges.lag_seconds or 0)
        if kind is Kind.DATE:  # a day is read once it is over
            return column.largest(after, visible.date(), closed=False)
        return column.largest(after, visible if kind is Kind.TIMESTAMP_TZ else visible.replace(tzinfo=None))

    def _bound(self, column: Column, name: str) -> Value | None:
        bound: str | None = getattr(self._ranges, name)
        if bound is None or column.kind is None:
            return None
        try:
            return given_value(column.kind, bound)
        except ValueError as error:
            raise ConfigurationError(f"{self._what}: field {name!r} does not fit: {error}; got {bound!r}") from None

    @property
    def _what(self) -> str:
        return f"{self._settings.name} by column {self._ranges.column!r}"


def incremental_start(other: SourceCoordinator, table: str | None, query: str | None, column: str) -> datetime | None:
    """Return the value from which an incremental source reads a table; None if it reads all rows.

    :param other: the coordinator of that source.
    :param table: the table; None if there is a query.
    :param query: the query.
    :param column: a column of times or dates.
    :raises ConfigurationError: if the source has read nothing yet, reads something else, or is not incremental.
    """
    state = read_settings(RangeState, "state of the supplier", other.view.supplier_state())
    wanted = _identity(table, query, column)
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


def _identity(table: str | None, query: str | None, column: str) -> dict[str, Any]:
    """Return the identity of a table or query, short enough for a state."""
    digest = None if query is None else hashlib.sha256(query.encode()).hexdigest()[:16]
    return {"table": table, "query": digest, "column": column}


def _partitions(ranges: Sequence[Range]) -> dict[str, dict[str, Any]]:
    """Return the first progress of the partitions that ranges become, by partition key."""
    return {str(each): PartitionProgress(kind=KIND, items=(each.to_item(),)).to_mapping() for each in ranges}


def _batched(ranges: Sequence[Range], size: int) -> Iterator[tuple[Range, ...]]:
    for first in range(0, len(ranges), size):
        yield tuple(ranges[first : first + size])


def _less(value: Value, lag: float) -> Value:
    if isinstance(value, Decimal):
        return _EXACT.subtract(value, Decimal(str(lag)))
    return value - (ceil(lag) if isinstance(value, int) else lag)  # type: ignore[operator]
