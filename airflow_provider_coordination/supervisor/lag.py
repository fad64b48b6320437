"""How far behind a source is: of each partition now, and as a short series over time, with what was counted by then.

The lag of a partition is the time between the arrival of a record and its reading, in milliseconds, 0 for a quiet one.
Jobs report it for what they read; what nobody reads is asked of the source, or is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.compression import packed, unpacked
from airflow_provider_coordination.coordination.job_reports import COUNTED, RecordCounts
from airflow_provider_coordination.coordination.partition import format_instant, read_instant

KEPT = timedelta(days=1)
"""How long the series is."""
FINE = timedelta(minutes=15)
"""How long each point is kept as it is; older ones become one for each of `COARSE`, the worst."""
COARSE = timedelta(minutes=5)
PACKED = "packed"
MAX_CHARACTERS = 40_000
"""Of a packed series: an item has 64 KB."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class LagPoint:
    """The lag of a source at an instant.

    :param at: when (aware).
    :param oldest_ms: the lag of the partition that is furthest behind; None if no partition's is known.
    :param sum_ms: the sum of what is known.
    :param count: of how many partitions it is known.
    :param unknown: of how many it is not.
    :param counted: what all jobs had counted by then, those that had ended too: the difference between two points is
        what was done between them.
    """

    at: datetime
    oldest_ms: int | None
    sum_ms: int
    count: int
    unknown: int = 0
    counted: RecordCounts = field(default_factory=RecordCounts)

    @property
    def average_ms(self) -> int | None:
        """The average of what is known; None if nothing is."""
        return round(self.sum_ms / self.count) if self.count else None


@dataclass(frozen=True, kw_only=True)
class LagReading:
    """The lag of each partition at an instant.

    :param at: when (aware).
    :param partitions: the lag of each unfinished partition in milliseconds, by key; None where it is unknown.
    :param counted: what all jobs have counted by then, those that have ended too.
    """

    at: datetime
    partitions: Mapping[str, int | None] = field(default_factory=dict)
    counted: RecordCounts = field(default_factory=RecordCounts)

    @property
    def point(self) -> LagPoint:
        """The same as one point."""
        known = [max(0, lag) for lag in self.partitions.values() if lag is not None]
        return LagPoint(
            at=self.at,
            oldest_ms=max(known, default=None if self.partitions else 0),
            sum_ms=sum(known),
            count=len(known),
            unknown=len(self.partitions) - len(known),
            counted=self.counted,
        )


@dataclass(frozen=True, kw_only=True)
class LagSeries:
    """The lag over time, and of each partition the last time.

    :param points: the oldest first.
    :param latest: the lag of each partition when it was noted last; None if it never was.
    """

    points: tuple[LagPoint, ...] = ()
    latest: LagReading | None = None

    def adding(self, reading: LagReading, *, fine: timedelta = FINE) -> LagSeries:
        """Return it with one more reading, and without what is too old.

        :param fine: how long each point is kept as it is.
        """
        points = [point for point in self.points if reading.at - KEPT < point.at < reading.at]
        points.append(reading.point)
        return LagSeries(points=tuple(_thinned(points, reading.at - fine)), latest=reading)

    def since(self, instant: datetime | None) -> tuple[LagPoint, ...]:
        """Return the points after an instant (aware), all of them for None."""
        return tuple(point for point in self.points if instant is None or point.at > instant)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object, compressed; of too many partitions, those are left out that lag least."""
        points = [
            [_ms(point.at), point.oldest_ms, point.sum_ms, point.count, point.unknown, *_counts(point.counted)]
            for point in self.points
        ]
        latest = {} if self.latest is None else dict(self.latest.partitions)
        while len(text := packed(self._written(points, latest))) > MAX_CHARACTERS and latest:
            worst = set(sorted(latest, key=lambda key: -(latest[key] or 0))[: len(latest) * 3 // 4])
            latest = {key: lag for key, lag in latest.items() if key in worst}
        return {PACKED: text}

    def _written(self, points: list[list[Any]], latest: Mapping[str, int | None]) -> dict[str, Any]:
        at = None if self.latest is None else format_instant(self.latest.at)
        return {"points": points, "at": at, "partitions": latest}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> LagSeries:
        """Return it from a JSON object; an empty one if that is unreadable."""
        try:
            content = unpacked(mapping[PACKED])
            points = tuple(_point(*record) for record in content["points"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return cls()
        at, partitions = read_instant(content.get("at")), content.get("partitions")
        if at is None or not points or not isinstance(partitions, dict):
            return cls(points=points)
        return cls(points=points, latest=LagReading(at=at, partitions=partitions, counted=points[-1].counted))


def _thinned(points: list[LagPoint], before: datetime) -> list[LagPoint]:
    """Return the points, those before an instant one for each `COARSE`: the one that is furthest behind."""
    thinned: dict[int, LagPoint] = {}
    for point in points:
        if point.at < before:
            slot = (point.at - _EPOCH) // COARSE
            if slot not in thinned or (point.oldest_ms or 0) >= (thinned[slot].oldest_ms or 0):
                thinned[slot] = point
    return [*thinned.values(), *(point for point in points if point.at >= before)]


def _point(at: int, oldest_ms: int | None, sum_ms: int, count: int, unknown: int, *counts: int) -> LagPoint:
    return LagPoint(
        at=_EPOCH + timedelta(milliseconds=at),
        oldest_ms=oldest_ms,
        sum_ms=sum_ms,
        count=count,
        unknown=unknown,
        counted=RecordCounts.from_mapping(dict(zip(COUNTED, counts, strict=False))),
    )


def _counts(counted: RecordCounts) -> list[int]:
    return [getattr(counted, name) for name in COUNTED]


def _ms(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(milliseconds=1)
