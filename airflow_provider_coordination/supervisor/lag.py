"""The lag of a source: of each partition now, and as a time series together with the record counts.

The lag of a partition is the time between the arrival of a record and its reading, in milliseconds; 0 if no records
arrive. Jobs report the lag of the partitions that they read. The lag of other partitions is queried from the source, or
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.compression import compress, decompress
from airflow_provider_coordination.coordination.job_reports import COUNTED, RecordCounts
from airflow_provider_coordination.coordination.partition import format_instant, read_instant

RETENTION = timedelta(days=1)
"""How long points are kept."""
FULL_RESOLUTION = timedelta(minutes=15)
"""How long all points are kept. Of older points, the one with the largest lag per `COARSE_INTERVAL` is kept."""
COARSE_INTERVAL = timedelta(minutes=5)
PACKED = "packed"
MAX_CHARACTERS = 40_000
"""The limit of a compressed series: an item holds 64 KB."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class LagPoint:
    """The lag of a source at an instant.

    :param at: when (aware).
    :param oldest_ms: the lag of the partition that is furthest behind; None if no partition's is known.
    :param sum_ms: the sum of the known lags.
    :param count: the number of partitions whose lag is known.
    :param unknown: the number of partitions whose lag is unknown.
    :param counted: the record counts of all jobs by then, including ended ones: the difference between two points is
        the work done between them.
    """

    at: datetime
    oldest_ms: int | None
    sum_ms: int
    count: int
    unknown: int = 0
    counted: RecordCounts = field(default_factory=RecordCounts)

    @property
    def average_ms(self) -> int | None:
        """The average of the known lags; None if none is known."""
        return round(self.sum_ms / self.count) if self.count else None


@dataclass(frozen=True, kw_only=True)
class LagReading:
    """The lag of each partition at an instant.

    :param at: when (aware).
    :param partitions: the lag of each unfinished partition in milliseconds, by key; None where it is unknown.
    :param counted: the record counts of all jobs by then, including ended ones.
    """

    at: datetime
    partitions: Mapping[str, int | None] = field(default_factory=dict)
    counted: RecordCounts = field(default_factory=RecordCounts)

    @property
    def point(self) -> LagPoint:
        """The reading as one point of the series."""
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
    """The lag over time, and the latest lag of each partition.

    :param points: the points, the oldest first.
    :param latest: the latest reading; None if there is none.
    """

    points: tuple[LagPoint, ...] = ()
    latest: LagReading | None = None

    def with_reading(self, reading: LagReading, *, full_resolution: timedelta = FULL_RESOLUTION) -> LagSeries:
        """Return the series with one more reading and without points that are too old.

        :param full_resolution: how long all points are kept.
        """
        points = [point for point in self.points if reading.at - RETENTION < point.at < reading.at]
        points.append(reading.point)
        return LagSeries(points=tuple(_thinned(points, reading.at - full_resolution)), latest=reading)

    def since(self, instant: datetime | None) -> tuple[LagPoint, ...]:
        """Return the points after an instant (aware), all of them for None."""
        return tuple(point for point in self.points if instant is None or point.at > instant)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a compressed JSON object. If it is too large, partitions with the smallest lags are left out."""
        points = [
            [_ms(point.at), point.oldest_ms, point.sum_ms, point.count, point.unknown, *_counts(point.counted)]
            for point in self.points
        ]
        latest = {} if self.latest is None else dict(self.latest.partitions)
        while len(text := compress(self._written(points, latest))) > MAX_CHARACTERS and latest:
            worst = set(sorted(latest, key=lambda key: -(latest[key] or 0))[: len(latest) * 3 // 4])
            latest = {key: lag for key, lag in latest.items() if key in worst}
        return {PACKED: text}

    def _written(self, points: list[list[Any]], latest: Mapping[str, int | None]) -> dict[str, Any]:
        at = None if self.latest is None else format_instant(self.latest.at)
        return {"points": points, "at": at, "partitions": latest}

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> LagSeries:
        """Return the series from a JSON object; an empty series if it is unreadable."""
        try:
            content = decompress(mapping[PACKED])
            points = tuple(_point(*record) for record in content["points"])
        except (KeyError, TypeError, ValueError, OverflowError):
            return cls()
        at, partitions = read_instant(content.get("at")), content.get("partitions")
        if at is None or not points or not isinstance(partitions, dict):
            return cls(points=points)
        return cls(points=points, latest=LagReading(at=at, partitions=partitions, counted=points[-1].counted))


def _thinned(points: list[LagPoint], before: datetime) -> list[LagPoint]:
    """Return the points; of those before an instant, only the one with the largest lag per `COARSE_INTERVAL`."""
    thinned: dict[int, LagPoint] = {}
    for point in points:
        if point.at < before:
            slot = (point.at - _EPOCH) // COARSE_INTERVAL
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
