"""A few records of a source, read beside its jobs: without a lease, without progress, and within limits.

A kind reads them in its method `peek`. What is read is gathered here, until there is enough of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

MAX_BYTES = 2**20
MAX_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class PeekLimits:
    """How much is read at most.

    :param records: the number of records.
    :param max_bytes: the size of their values; one record is read whatever its size.
    :param seconds: how long reading takes, in seconds; a request to the source that has begun is waited for.
    """

    records: int = 10
    max_bytes: int = MAX_BYTES
    seconds: float = MAX_SECONDS


class Peek:
    """Gathers the records of a source, with the columns in which they are landed.

    :param limits: how much is gathered at most.
    :param monotonic: returns the seconds of a clock.
    """

    def __init__(self, limits: PeekLimits, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self.records: list[Mapping[str, Any]] = []
        """The values of each record by column."""
        self.columns: dict[str, str] = {}
        """The Arrow types of the columns, by name."""
        self.problems: list[str] = []
        """Why parts of the source could not be read, each with its name."""
        self.nothing = ""
        """Where records were looked for, if there are none; a sentence without its period."""
        self._bytes = 0
        self._monotonic = monotonic
        self._ends_at = monotonic() + limits.seconds

    @property
    def is_full(self) -> bool:
        """Whether no more must be read."""
        return len(self.records) >= self.limits.records or self._bytes >= self.limits.max_bytes or self.is_late

    @property
    def is_late(self) -> bool:
        """Whether the time has passed."""
        return self._monotonic() >= self._ends_at

    @property
    def wanted(self) -> int:
        """How many records may still be added."""
        return max(0, self.limits.records - len(self.records))

    def add(self, record: Mapping[str, Any], types: Mapping[str, str]) -> None:
        """Add a record, unless it is full.

        :param types: the Arrow types of its columns, by name.
        """
        if not self.is_full or not self.records:
            self.records.append(record)
            self.columns.update(types)
            self._bytes += sum(map(_size_of, record.values()))


def _size_of(value: Any) -> int:
    """Return about how many bytes a value has."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(_size_of, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(_size_of, value))
    return 8


def add_rows(peek: Peek, rows: Any, **origin: str) -> None:
    """Add rows of a table of Arrow, until it is full.

    :param rows: a table or a batch of records.
    :param origin: further columns of text, which come first.
    """
    types = {**dict.fromkeys(origin, "string"), **{field.name: str(field.type) for field in rows.schema}}
    for row in _first(rows, peek.wanted):
        if peek.is_full:
            return
        peek.add({**origin, **row}, types)


def _first(rows: Any, count: int) -> Iterable[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = rows.slice(0, count).to_pylist()
    return found
