"""The names of the sources that hold the leases of intervals: each run of an interval works on a source of its own."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

_INSTANT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z"
_NAME = re.compile(rf"(?P<source>.+)@(?P<start>{_INSTANT})--(?P<end>{_INSTANT})", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class IntervalName:
    """What the name of such a source says.

    :param source: the name of the whole source.
    :param start: the first instant (aware, UTC) of the interval.
    :param end: the first instant (aware, UTC) after the interval.
    """

    source: str
    start: datetime
    end: datetime

    def __str__(self) -> str:
        """Return the name."""
        return f"{self.source}@{instant_text(self.start)}--{instant_text(self.end)}"


def read_interval_name(name: str) -> IntervalName | None:
    """Return what the name of a source says of its interval; None if the source is no interval of another one."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        start, end = datetime.fromisoformat(match["start"]), datetime.fromisoformat(match["end"])
    except ValueError:
        return None
    return IntervalName(source=match["source"], start=start, end=end) if start < end else None


def intervals_of(source: str, names: Sequence[str]) -> list[IntervalName]:
    """Return the intervals of a source among the names of sources.

    :param source: the name of the whole source.
    :param names: sorted.
    """
    # "A" follows "@".
    found = names[bisect_left(names, f"{source}@") : bisect_left(names, f"{source}A")]
    intervals = (read_interval_name(each) for each in found)
    return [each for each in intervals if each is not None and each.source == source]


def instant_text(instant: datetime) -> str:
    """Return an instant (aware) as ISO 8601 text in UTC, without a fraction of a second that is zero."""
    text = instant.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}Z"
