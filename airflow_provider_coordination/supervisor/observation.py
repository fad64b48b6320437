"""The observation of a source, as a value: its jobs, partitions and lag. With the stored state it decides what is next.

The lag of a partition is the time between the arrival of a record and its reading, in milliseconds; 0 if no records
arrive. Jobs report the lag of the partitions that they read. The lag of other partitions is queried from the source, or
unknown. While the source does not respond, a job that has read everything cannot know of later records: its 0 is
unknown then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.job_reports import (
    COUNTED,
    REPORT_INTERVAL,
    ErrorEvent,
    JobReport,
    RecordCounts,
    sinks_of,
)
from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.coordination.partition import Partition, format_instant, read_instant
from airflow_provider_coordination.coordination.texts import compress, decompress
from airflow_provider_coordination.supervisor.settings import SuperviseSettings

MAX_REPORT_AGE = 6 * REPORT_INTERVAL
"""Older reports are not used for the lag."""
RETENTION = timedelta(days=1)
"""How long points are kept."""
FULL_RESOLUTION = timedelta(minutes=15)
"""How long all points are kept. Of older points, the one with the largest lag per `COARSE_INTERVAL` is kept."""
COARSE_INTERVAL = timedelta(minutes=5)
REVIEWED_EVERY = timedelta(minutes=5)
"""How often an idle source is observed and recorded in full. In between, a poll only looks for records."""
PACKED = "packed"
MAX_CHARACTERS = 40_000
"""The limit of a compressed series: an item holds 64 KB."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class LagPoint:
    """The lag of a source at an instant.

    :param at: when (aware).
    :param oldest_ms: the lag of the partition that is furthest behind; None if no partition's is known.
    :param sum_ms: the sum of the known lags; None if no partition's is known.
    :param count: the number of partitions whose lag is known.
    :param unknown: the number of partitions whose lag is unknown.
    :param counted: the record counts of all jobs by then, including ended ones: the difference between two points is
        the work done between them.
    :param slots: how many Spark tasks the jobs run at the same time; None if unknown.
    :param freshness_ms: the age within which 95 percent of the latest records became visible in the slowest sink; None
        if unknown.
    :param watermark_ms: how long ago the watermark of the source was; None if unknown.
    """

    at: datetime
    oldest_ms: int | None
    sum_ms: int | None
    count: int
    unknown: int = 0
    counted: RecordCounts = field(default_factory=RecordCounts)
    slots: int | None = None
    freshness_ms: int | None = None
    watermark_ms: int | None = None

    @property
    def average_ms(self) -> int | None:
        """The average of the known lags; None if none is known."""
        return None if self.sum_ms is None or not self.count else round(self.sum_ms / self.count)


@dataclass(frozen=True, kw_only=True)
class LagReading:
    """The lag of each partition at an instant.

    :param at: when (aware).
    :param partitions: the lag of each unfinished partition in milliseconds, by key; None where it is unknown.
    :param counted: the record counts of all jobs by then, including ended ones.
    :param is_in_contact: whether the source responded.
    :param slots: how many Spark tasks the jobs run at the same time; None if unknown.
    :param freshness_ms: see `LagPoint`.
    :param watermark_ms: see `LagPoint`.
    """

    at: datetime
    partitions: Mapping[str, int | None] = field(default_factory=dict)
    counted: RecordCounts = field(default_factory=RecordCounts)
    is_in_contact: bool = True
    slots: int | None = None
    freshness_ms: int | None = None
    watermark_ms: int | None = None

    @classmethod
    def of(
        cls,
        partitions: Iterable[Partition],
        lags: Mapping[str, int | None],
        reports: Iterable[JobReport],
        *,
        at: datetime,
        counted: RecordCounts | None = None,
        is_in_contact: bool = True,
        watermark_ms: int | None = None,
    ) -> LagReading:
        """Return the reading that follows from the reports of jobs.

        A report counts for partitions that some job reads, as long as it is not older than `MAX_REPORT_AGE`.

        :param partitions: the unfinished partitions.
        :param lags: the lags that are known otherwise, in milliseconds, by key; a report takes precedence.
        :param reports: the latest reports of the jobs.
        :param at: the present instant (aware).
        :param counted: see the class.
        :param is_in_contact: see the class; if not, only lags above 0 are known.
        :param watermark_ms: see the class.
        """
        read = {each.partition_key: has_reader(each) for each in partitions}
        known = {key: lags.get(key) for key in read}
        recent = sorted((each for each in reports if at - each.at <= MAX_REPORT_AGE), key=lambda report: report.at)
        for report in recent:
            known.update({key: lag for key, lag in report.lag_ms.items() if read.get(key)})
        slots = [report.slots for report in recent if report.slots is not None]
        if not is_in_contact:
            known = {key: lag or None for key, lag in known.items()}
        ages = [sink.freshness_p95 for sink in sinks_of(recent) if sink.freshness_p95 is not None]
        return cls(
            at=at,
            partitions=known,
            counted=counted or RecordCounts(),
            is_in_contact=is_in_contact,
            slots=sum(slots) if slots and len(slots) == len(recent) else None,
            freshness_ms=round(max(ages) * 1000) if ages else None,
            watermark_ms=watermark_ms,
        )

    @property
    def point(self) -> LagPoint:
        """The reading as one point of the series."""
        known = [max(0, lag) for lag in self.partitions.values() if lag is not None]
        is_known = bool(known) or (self.is_in_contact and not self.partitions)
        return LagPoint(
            at=self.at,
            oldest_ms=max(known, default=0) if is_known else None,
            sum_ms=sum(known) if is_known else None,
            count=len(known),
            unknown=len(self.partitions) - len(known),
            counted=self.counted,
            slots=self.slots,
            freshness_ms=self.freshness_ms,
            watermark_ms=self.watermark_ms,
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
            [
                _ms(point.at),
                point.oldest_ms,
                point.sum_ms,
                point.count,
                point.unknown,
                point.slots,
                point.freshness_ms,
                point.watermark_ms,
                *_counts(point.counted),
            ]
            for point in self.points
        ]
        latest = {} if self.latest is None else dict(self.latest.partitions)
        while len(text := compress(self._written(points, latest))) > MAX_CHARACTERS and latest:
            worst = set(sorted(latest, key=lambda key: -(latest[key] or 0))[: len(latest) * 3 // 4])
            latest = {key: lag for key, lag in latest.items() if key in worst}
        return {PACKED: text}

    def _written(self, points: list[list[Any]], latest: Mapping[str, int | None]) -> dict[str, Any]:
        at = None if self.latest is None else format_instant(self.latest.at)
        is_in_contact = self.latest is None or self.latest.is_in_contact
        return {"points": points, "at": at, "partitions": latest, "is_in_contact": is_in_contact}

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
        latest = LagReading(
            at=at,
            partitions=partitions,
            counted=points[-1].counted,
            slots=points[-1].slots,
            freshness_ms=points[-1].freshness_ms,
            watermark_ms=points[-1].watermark_ms,
            is_in_contact=content.get("is_in_contact") is not False,
        )
        return cls(points=points, latest=latest)


def has_reader(partition: Partition) -> bool:
    """Return whether a job reads an unfinished partition; one that waits for acknowledgments has no reader."""
    return partition.owner is not None and not partition.is_awaiting


def _thinned(points: list[LagPoint], before: datetime) -> list[LagPoint]:
    """Return the points; of those before an instant, only the one with the largest lag per `COARSE_INTERVAL`."""
    thinned: dict[int, LagPoint] = {}
    for point in points:
        if point.at < before:
            slot = (point.at - _EPOCH) // COARSE_INTERVAL
            if slot not in thinned or (point.oldest_ms or 0) >= (thinned[slot].oldest_ms or 0):
                thinned[slot] = point
    return [*thinned.values(), *(point for point in points if point.at >= before)]


def _point(
    at: int,
    oldest_ms: int | None,
    sum_ms: int | None,
    count: int,
    unknown: int,
    slots: int | None,
    freshness_ms: int | None,
    watermark_ms: int | None,
    *counts: int,
) -> LagPoint:
    return LagPoint(
        at=_EPOCH + timedelta(milliseconds=at),
        oldest_ms=oldest_ms,
        sum_ms=sum_ms,
        count=count,
        unknown=unknown,
        counted=RecordCounts.from_mapping(dict(zip(COUNTED, counts, strict=False))),
        slots=slots,
        freshness_ms=freshness_ms,
        watermark_ms=watermark_ms,
    )


def _counts(counted: RecordCounts) -> list[int]:
    return [getattr(counted, name) for name in COUNTED]


def _ms(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(milliseconds=1)


@dataclass(frozen=True, kw_only=True)
class PartitionCounts:
    """The numbers of partitions of a source.

    :param readable: partitions that a job can read now or within a period.
    :param unfinished: partitions that are not COMPLETED, including those parked or waiting for acknowledgment.
    :param undelivered: partitions without a reader that have landed data which no sink may have yet.
    :param is_empty: whether the source has no partitions at all.
    """

    readable: int = 0
    unfinished: int = 0
    undelivered: int = 0
    is_empty: bool = True


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The observation of a source.

    :param at: the instant of the observation (aware).
    :param settings: how the source is supervised; None if the supervisor is terminated, or has no current spec that can
        be read.
    :param outdated: the versions of the spec whose jobs differ from those of the current version.
    :param is_suspended: whether the source is suspended.
    :param partitions: the numbers of partitions; None if unknown.
    :param jobs: the jobs of the supervisor as recorded in the store, by owner.
    :param orphans: the owners of jobs that are missing in the supervisor's state and were not requested to stop.
    :param safety_margin: by how much the clocks of machines may differ.
    :param lag: the latest points of the lag, the oldest first.
    :param failing: the keys of unfinished partitions whose last attempt failed, without progress since.
    :param open_partitions: the number of open shards of the source, or of its other units; None if unknown.
    :param must_discover_partitions: whether only the supervisor discovers new partitions, as for objects and tables.
    :param has_news: whether a discovery would find new partitions; None if only a discovery knows.
    :param is_full: whether everything was observed and not only jobs: a full observation counts for the health.
    :param errors: the errors of the observation.
    """

    at: datetime
    settings: SuperviseSettings | None
    outdated: frozenset[int] = frozenset()
    is_suspended: bool = False
    partitions: PartitionCounts | None = None
    jobs: Mapping[str, Job] = field(default_factory=dict)
    orphans: frozenset[str] = frozenset()
    safety_margin: timedelta = timedelta(0)
    lag: Sequence[LagPoint] = ()
    failing: frozenset[str] = frozenset()
    open_partitions: int | None = None
    must_discover_partitions: bool = False
    has_news: bool | None = None
    is_full: bool = True
    errors: tuple[ErrorEvent, ...] = ()

    def state_of(self, owner: str) -> JobState | None:
        """Return the state of a job; None if the store does not know it."""
        known = self.jobs.get(owner)
        return None if known is None else known.state

    def has_begun(self, owner: str) -> bool:
        """Return whether the process of a job has started, as far as the store knows."""
        known = self.jobs.get(owner)
        return known is not None and known.has_begun
