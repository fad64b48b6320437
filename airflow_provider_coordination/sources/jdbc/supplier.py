"""The supplier: cuts a table or query into ranges, and makes each a partition.

Where the ranges begin and end depends on the rows that are there, and these change. So the next ranges are written
into the supplier's state before they become partitions: a supplier that is cut off in between goes on with the same
ranges, and no row ever belongs to two.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
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
"""How many ranges become partitions at a time; their bounds are kept in the supplier's state meanwhile."""
HUGE_KEYS_NAMED = 20


@dataclass(frozen=True, kw_only=True)
class RangeState:
    """What the supplier remembers from run to run.

    :param reads: what is read, so that others who read something else by the same source are refused.
    :param planned: the ranges that are partitions next, if they are not already.
    :param left: what is cut after them; None for nothing.
    :param began: the bound that the first one began at, where all that is new is read; None for no bound.
    :param mark: the largest value that was taken; None before the first.
    :param is_done: whether there is nothing left to take, ever.
    """

    reads: dict[str, Any] = field(default_factory=dict)
    planned: tuple[Range, ...] = ()
    left: Range | None = None
    began: str | None = None
    mark: str | None = None
    is_done: bool = False


class RangeSupplier:
    """Finds the ranges of a table or query; a `Supplier`.

    :param query: asks the database.
    :param settings: what is read.
    :param ranges: how it is cut, and which rows are read.
    :param now: what time it is (aware).
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

        :param stored: what the last run left.
        :raises ConfigurationError: if the table, the column or a bound cannot be used, or the source was made for
            another table, column or interval.
        :raises SourceError: if the database does not answer, or its rows cannot be cut.
        """
        state = self._state(stored)
        is_under_way = state.left is not None or bool(state.planned)
        if self.is_done(stored):
            log.info("%s: everything is partitions already", self._what)
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
        """Return whether everything is partitions already.

        :param stored: what the last run left.
        :raises ConfigurationError: if the source was made for another table, column or interval.
        """
        state = self._state(stored)
        return state.is_done and state.left is None and not state.planned

    def _state(self, stored: Mapping[str, Any]) -> RangeState:
        """Return what the last run left, if it read what this one does."""
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
                + ": give the task another 'source', or what it was made with"
            )
        return replace(state, reads=reads)

    def _begun(self, column: Column, state: RangeState) -> RangeState | None:
        """Return the state with what is to be cut now; None if there is nothing."""
        nulls = self._nulls(column)
        if column.kind is None and not self._ranges.reads_everything:
            return None  # there is no row
        start, end = (self._bound(column, name) for name in ("start", "end"))
        if start is not None and end is not None and start >= end:  # type: ignore[operator]
            raise ConfigurationError(
                f"{self._what}: field 'start' must be before 'end'; got {self._ranges.start!r} and "
                f"{self._ranges.end!r}; a run has an interval of some length by CronDataIntervalTimetable"
            )
        whole = column.everything
        if start is not None and column.kind is not None:
            whole = replace(whole, lower=text_of(column.kind, start))
        if end is not None and column.kind is not None:
            whole = replace(whole, upper=text_of(column.kind, end))
        if not self._ranges.incremental:
            return replace(state, planned=nulls, left=whole, is_done=True)
        if state.mark is not None:
            whole = replace(whole, lower=state.mark, lower_open=True)
        mark = self._new_mark(column, whole)
        if mark is None or column.kind is None:
            return None
        text = text_of(column.kind, mark)
        log.info("%s: taken up to %s, after %s", self._what, text, state.mark)
        began = self._ranges.start if state.mark is None else state.began
        return replace(state, left=replace(whole, upper=text, upper_closed=True), began=began, mark=text)

    def _cut(self, column: Column, whole: Range) -> tuple[Range, ...]:
        """Return the ranges that a range is cut into."""
        rows = self._ranges.rows_per_partition or DEFAULT_ROWS_PER_PARTITION
        if self._ranges.partitions is not None:
            rows = max(-(-column.count(whole) // self._ranges.partitions), 1)
        try:
            made = cut(whole, column.starts(whole, rows))
        except ValueError as error:
            raise ConfigurationError(
                f"{self._what}: no ranges can be cut: {error}; let the column hold values of one kind"
            ) from error
        self._warn_of_huge_keys(column, made)
        return made.ranges

    def _warn_of_huge_keys(self, column: Column, made: Cut) -> None:
        for key in made.huge[:HUGE_KEYS_NAMED]:
            assert column.kind is not None
            text = text_of(column.kind, key)
            rows = column.count(replace(column.everything, lower=text, upper=text, upper_closed=True))
            log.warning(
                "%s: the key %s alone has %d rows; they are one range, which one Spark task reads",
                self._what,
                text,
                rows,
            )
        if len(made.huge) > HUGE_KEYS_NAMED:
            log.warning("%s: %d keys have that many rows", self._what, len(made.huge))

    def _nulls(self, column: Column) -> tuple[Range, ...]:
        """Return the range of the rows without a value, if there are any and they are read."""
        nulls = Range(column=column.name, is_null=True)
        handling = self._ranges.null_handling
        rows = column.count(nulls) if handling in (READ, REFUSE) else 0
        if rows and handling == REFUSE:
            raise ConfigurationError(
                f"{self._what}: {rows} rows have no value in the column, so they are in no interval, and neither new "
                "nor old: correct them, or leave them out with nulls='ignore'"
                + ("; nulls='read' makes them a range of their own" if self._ranges.reads_everything else "")
            )
        return (nulls,) if rows else ()

    def _new_mark(self, column: Column, after: Range) -> Value | None:
        """Return the largest value that is taken now; None if there is none."""
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
        visible = self._now().astimezone(UTC) - timedelta(seconds=ranges.lag_seconds or 0)
        if kind is Kind.DATE:  # a day is taken once it is over
            return column.largest(after, visible.date(), closed=False)
        return column.largest(after, visible if kind is Kind.TIMESTAMP_TZ else visible.replace(tzinfo=None))

    def _bound(self, column: Column, name: str) -> Value | None:
        given: str | None = getattr(self._ranges, name)
        if given is None or column.kind is None:
            return None
        try:
            return given_value(column.kind, given)
        except ValueError as error:
            raise ConfigurationError(f"{self._what}: field {name!r} does not fit: {error}; got {given!r}") from None

    @property
    def _what(self) -> str:
        return f"{self._settings.name} by column {self._ranges.column!r}"


def taken_from(other: SourceCoordinator, table: str | None, query: str | None, column: str) -> datetime | None:
    """Return from which value of a column on a source reads all that is new in a table; None for all there is.

    :param other: of that source.
    :param table: the table; None where there is a query.
    :param query: the query.
    :param column: what holds times or dates.
    :raises ConfigurationError: if it has taken nothing yet, reads something else, or not what is new.
    """
    state = read_settings(RangeState, "state of the supplier", other.view.supplier_state())
    wanted = _identity(table, query, column)
    what = f"field 'deduplicate_against': source {other.source!r}"
    if state.mark is None and not state.is_done:
        raise ConfigurationError(f"{what} has taken no row yet, so where it begins is not known: let it run first")
    if differing := [name for name, value in wanted.items() if state.reads.get(name) != value]:
        told = ", ".join(f"{name!r} {state.reads.get(name)!r} there and {wanted[name]!r} here" for name in differing)
        raise ConfigurationError(f"{what} reads something else: {told}; name the source that reads the same")
    if not state.reads.get("incremental"):
        raise ConfigurationError(
            f"{what} does not read what is new, but its bounds once: name one with incremental=True, or choose "
            "intervals outside of its bounds"
        )
    if state.began is None:
        return None
    try:
        began = datetime.fromisoformat(state.began)
    except ValueError:
        raise ConfigurationError(
            f"{what} begins at {state.began!r}, which is no time: it cannot bound an interval"
        ) from None
    return began.replace(tzinfo=UTC) if began.tzinfo is None else began.astimezone(UTC)


def _identity(table: str | None, query: str | None, column: str) -> dict[str, Any]:
    """Return what tells one table from another, short enough for a state."""
    digest = None if query is None else hashlib.sha256(query.encode()).hexdigest()[:16]
    return {"table": table, "query": digest, "column": column}


def _partitions(ranges: Sequence[Range]) -> dict[str, dict[str, Any]]:
    """Return the first progress of the partitions that ranges become, by their keys."""
    return {str(each): PartitionProgress(kind=KIND, items=(each.to_item(),)).to_mapping() for each in ranges}


def _batched(ranges: Sequence[Range], size: int) -> Iterator[tuple[Range, ...]]:
    for first in range(0, len(ranges), size):
        yield tuple(ranges[first : first + size])


def _less(value: Value, lag: float) -> Value:
    if isinstance(value, Decimal):
        return value - Decimal(str(lag))
    return value - (int(lag) if isinstance(value, int) else lag)  # type: ignore[operator]
