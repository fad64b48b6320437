"""Observing a source: jobs at every poll; partitions, shards and lag once per period.

Other polls read only a few small items. Of an idle source, only partitions and lag are read once per period, and what
is found is recorded every few minutes, so watching it is cheap.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError, StoreUnavailableError
from airflow_provider_coordination.coordination.job_reports import ErrorEvent, RecordCounts
from airflow_provider_coordination.coordination.jobs import Job, Jobs
from airflow_provider_coordination.coordination.metrics import WATERMARK_SECONDS
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.texts import storable
from airflow_provider_coordination.sources.kinds import kind_named
from airflow_provider_coordination.sources.watermarks import watermark_among
from airflow_provider_coordination.supervisor.observation import (
    FULL_RESOLUTION,
    REVIEWED_EVERY,
    LagReading,
    LagSeries,
    Observation,
    PartitionCounts,
    has_reader,
)
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec, SpecChange, change_between
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Supervision

log = logging.getLogger(__name__)

PROBE_SECONDS = 2.0
"""The approximate time that a poll spends on querying lags; it continues with the other partitions the next time."""


class Probe(Protocol):
    """Queries the source itself. `follow` is called first."""

    def follow(self, spec: IngestionSpec) -> None:
        """Query the source of this spec from now on.

        :param spec: the current spec; the same object as long as it is current.
        """
        ...

    @property
    def must_discover_partitions(self) -> bool:
        """Whether only the supervisor discovers new partitions, as for objects and tables."""
        ...

    def discover_partitions(self) -> None:
        """Create partitions for new data of the source, by shard sync or its supplier. Runs in a worker.

        :raises SourceError: if the source is unavailable or refuses the request.
        """
        ...

    def count(self) -> int | None:
        """Return the number of open shards of the source, or of its other units; None if unknown.

        Called once per period.

        :raises SourceError: if the source is unavailable or refuses the request: contact with it is lost.
        """
        ...

    def lag(self, partition: Partition) -> int | None:
        """Return the lag of a partition that no job reads, in milliseconds; None if unknown.

        It is called for one partition at a time, so that many slow responses are not taken for a source that hangs.

        :raises SourceError: if the source is unavailable or refuses the request.
        """
        ...

    def confirmed_progress(self, partition: Partition) -> Mapping[str, Any] | None:
        """Return the progress of a partition that no job reads, if it is read up to now; None if it is not, or unknown.

        :raises SourceError: if the source is unavailable or refuses the request.
        """
        ...

    def has_news(self) -> bool | None:
        """Return whether a discovery would find new partitions; None if only a discovery knows.

        Called once per period if only the supervisor discovers partitions.

        :raises SourceError: if the source is unavailable or refuses the request.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class _Snapshot:
    """What is read once per period."""

    at: datetime
    spec_version: int
    partitions: PartitionCounts
    open_partitions: int | None
    failing: frozenset[str]
    orphans: frozenset[str]


class Observer:
    """Observes a source for its supervisor. Reuse it for several polls: it caches what does not change.

    :param view: of the source, initialized.
    :param store: the stored state of the supervisor.
    :param jobs: the jobs of the source.
    :param probe: queries the source.
    :param task: the name of the task that the supervisor's jobs work for.
    :param report: receives the name and the value of a gauge.
    """

    def __init__(
        self,
        view: SourceView,
        store: SupervisionStore,
        jobs: Jobs,
        probe: Probe,
        task: str,
        report: Callable[[str, float], None] = lambda name, value: None,
    ) -> None:
        self._view = view
        self._store = store
        self._jobs = jobs
        self._probe = probe
        self._task = task
        self._report = report
        self._specs: dict[int, IngestionSpec | None] = {}
        self._snapshot: _Snapshot | None = None
        self._lag: LagSeries | None = None
        self._lag_is_new = False
        self._lag_saved_at: datetime | None = None
        self._reviewed_at: datetime | None = None
        self._has_news: bool | None = None
        self._probed: dict[str, tuple[datetime, int | None]] = {}

    def spec(self, version: int) -> IngestionSpec | None:
        """Return a version of the spec; None if it does not exist or is a termination.

        :raises ConfigurationError: if it needs a newer package, or is no longer valid.
        """
        if version not in self._specs:
            stored = self._store.spec(version)
            if stored is None:
                return None
            self._specs[version] = None if stored.spec is None else IngestionSpec.read(stored.spec)
        return self._specs[version]

    def observe(self, memory: Supervision, *, refresh: bool = False) -> Observation:
        """Observe the source.

        :param memory: the stored state of the supervisor.
        :param refresh: whether to read everything even if the period has not passed.
        """
        now = self._view.clock.now()
        errors: list[ErrorEvent] = []
        settings, outdated = None, frozenset[int]()
        with _collecting(errors, now):
            settings, outdated = self._current_settings(memory)
        jobs = self._jobs_of(memory)
        is_full = refresh or self._is_snapshot_due(memory, settings, now)
        if is_full or self._snapshot is None:
            self._snapshot, lag_errors = self._take_snapshot(memory, settings, jobs, now)
            errors += lag_errors
        return Observation(
            at=now,
            settings=settings,
            outdated=outdated,
            is_suspended=self._view.suspensions.recent() is not None,
            partitions=self._snapshot.partitions,
            jobs=jobs,
            orphans=self._snapshot.orphans - {job.owner for job in memory.jobs},
            safety_margin=self._view.safety_margin,
            lag=() if self._lag is None else self._lag.points,
            failing=self._snapshot.failing,
            open_partitions=self._snapshot.open_partitions,
            must_discover_partitions=self._probe.must_discover_partitions,
            has_news=self._has_news,
            is_full=is_full,
            errors=tuple(errors),
        )

    def save_lag(self, *, is_idle: bool = False) -> None:
        """Write the lag if it is new.

        :param is_idle: whether the source is idle, so that the lag is usually 0: it is written every few minutes.
        """
        if self._lag is None or not self._lag_is_new:
            return
        at = self._lag.points[-1].at
        if is_idle and self._lag_saved_at is not None and at - self._lag_saved_at < REVIEWED_EVERY:
            return
        self._store.save_lag(self._lag)
        self._lag_is_new, self._lag_saved_at = False, at

    # Parts

    def _current_settings(self, memory: Supervision) -> tuple[SuperviseSettings | None, frozenset[int]]:
        """Return how the source is supervised, and the outdated versions of the spec."""
        spec = self.spec(memory.spec_version)
        if spec is None:
            return None, frozenset()
        self._probe.follow(spec)
        versions = {job.spec_version for job in memory.jobs} - {memory.spec_version}
        return spec.supervise, frozenset(version for version in versions if self._is_outdated(version, spec))

    def _is_outdated(self, version: int, spec: IngestionSpec) -> bool:
        try:
            previous = self.spec(version)
        except ConfigurationError:  # it was read by another version of this package
            return True
        return previous is None or change_between(previous, spec) is SpecChange.JOBS

    def _jobs_of(self, memory: Supervision) -> dict[str, Job]:
        known = {job.owner: self._jobs.get(job.owner) for job in memory.jobs}
        return {owner: job for owner, job in known.items() if job is not None}

    def _is_snapshot_due(self, memory: Supervision, settings: SuperviseSettings | None, now: datetime) -> bool:
        if self._snapshot is None or self._snapshot.spec_version != memory.spec_version or memory.polled_at is None:
            return True
        if memory.polled_at > self._snapshot.at:  # another process has polled, and may have acted
            self._lag = None
            return True
        pace = settings or SuperviseSettings()
        return now - self._snapshot.at >= min(pace.period, pace.lag_interval)

    def _take_snapshot(
        self, memory: Supervision, settings: SuperviseSettings | None, jobs: Mapping[str, Job], now: datetime
    ) -> tuple[_Snapshot, list[ErrorEvent]]:
        """Read what is read once per period. Return it with the errors."""
        errors: list[ErrorEvent] = []
        has_watermark = self._has_watermark(memory)
        everything = list(self._view.partitions_by_key() if has_watermark else self._view.partitions(*UNFINISHED))
        partitions = {each.partition_key: each for each in everything if each.status in UNFINISHED}
        known = self._reviewed(memory, now)
        open_partitions = memory.open_partitions if known is None else known.open_partitions
        self._has_news = None
        if settings is not None:
            with _collecting(errors, now, of_source=True):
                open_partitions = self._probe.count() if known is None else known.open_partitions
                self._has_news = self._probe.has_news() if self._probe.must_discover_partitions else None
            self._read_lag(partitions, memory, jobs, settings, errors, now, everything if has_watermark else ())
        soon = now + (settings or SuperviseSettings()).period
        counts = PartitionCounts(
            readable=sum(is_readable(partition, soon) for partition in partitions.values()),
            unfinished=len(partitions),
            undelivered=sum(is_undelivered(partition, now) for partition in partitions.values()),
            is_empty=not everything and self._view.first(PartitionStatus.COMPLETED) is None,
        )
        orphans = self._orphans() if known is None else known.orphans
        if known is None:
            is_quiet = memory.idle is not None and not memory.jobs and not errors
            self._reviewed_at = now if is_quiet else None
        run = _Snapshot(
            at=now,
            spec_version=memory.spec_version,
            partitions=counts,
            open_partitions=open_partitions,
            failing=frozenset(key for key, partition in partitions.items() if partition.attempts),
            orphans=orphans,
        )
        return run, errors

    def _has_watermark(self, memory: Supervision) -> bool:
        with suppress(ConfigurationError):
            spec = self.spec(memory.spec_version)
            return spec is not None and kind_named(spec.ingestion.reads.kind).settles_after is not None
        return False

    def _reviewed(self, memory: Supervision, now: datetime) -> _Snapshot | None:
        """Return the last snapshot of an idle source if it is recent enough to look for records only."""
        is_recent = self._reviewed_at is not None and now - self._reviewed_at < REVIEWED_EVERY
        return self._snapshot if memory.idle is not None and is_recent and not memory.jobs else None

    def _orphans(self) -> frozenset[str]:
        return frozenset(job.owner for job in self._jobs.unfinished() if job.task == self._task and job.stop is None)

    def _read_lag(
        self,
        partitions: Mapping[str, Partition],
        memory: Supervision,
        jobs: Mapping[str, Job],
        settings: SuperviseSettings,
        errors: list[ErrorEvent],
        now: datetime,
        everything: Sequence[Partition],
    ) -> None:
        """Add a point to the lag, if it is due.

        :param errors: the errors of the source. Without one, it is queried for the partitions that no job reads, and an
            error of that is added.
        :param everything: all partitions, also those that are COMPLETED; none of a source without a watermark.
        """
        if self._lag is None:
            self._lag = self._store.lag()
        scaling, interval = settings.auto_scale, settings.lag_interval
        if self._lag.points and now - self._lag.points[-1].at < interval:
            return
        probed: dict[str, int | None] = {}
        if not errors:  # an unavailable source is not queried for each shard
            with _collecting(errors, now, of_source=True):
                probed = self._probed_lags(
                    [each for each in partitions.values() if not has_reader(each)], interval, now
                )
        reports = [job.report for job in jobs.values() if job.report is not None]
        reading = LagReading.of(
            partitions.values(),
            probed,
            reports,
            at=now,
            counted=sum((report.totals for report in reports), RecordCounts.from_mapping(memory.totals)),
            is_in_contact=not errors,
            watermark_ms=self._watermark_ms(everything, now),
        )
        full_resolution = (
            FULL_RESOLUTION if scaling is None else max(FULL_RESOLUTION, scaling.lag_collection_range + interval)
        )
        self._lag = self._lag.with_reading(reading, full_resolution=full_resolution)
        self._lag_is_new = True

    def _watermark_ms(self, partitions: Sequence[Partition], now: datetime) -> int | None:
        """Return how long ago the watermark of the source was, and report it; None if that is unknown.

        The state is read after the partitions: a stream that was first listed in between may be missing from one point.
        """
        watermark = watermark_among(partitions, self._view.supplier_state()) if partitions else None
        if watermark is None or watermark.until is None:
            return None
        age = max(timedelta(0), now - watermark.until)
        self._report(WATERMARK_SECONDS, age.total_seconds())
        return age // timedelta(milliseconds=1)

    def _probed_lags(self, unread: Sequence[Partition], interval: timedelta, now: datetime) -> dict[str, int | None]:
        """Return the lags of partitions that no job reads. The ones not queried for longest come first."""
        known = {each.partition_key: self._probed.get(each.partition_key) for each in unread}
        self._probed = {key: found for key, found in known.items() if found is not None}
        began = self._view.clock.monotonic()
        waiting = sorted(unread, key=lambda each: self._probed.get(each.partition_key, (_LONG_AGO,))[0])
        while waiting and self._view.clock.monotonic() - began < PROBE_SECONDS:
            partition = waiting.pop(0)
            self._probed[partition.partition_key] = (now, self._probe.lag(partition))
        # Recent results are used with the lag of that time.
        return {key: lag for key, (at, lag) in self._probed.items() if now - at < 10 * interval}


_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def is_readable(partition: Partition, soon: datetime) -> bool:
    """Return whether a job can read an unfinished partition at an instant (aware), unless it changes."""
    if partition.status is PartitionStatus.CLOSED:
        return partition.priority <= soon
    return not partition.is_awaiting


def is_undelivered(partition: Partition, at: datetime) -> bool:
    """Return whether an unfinished partition has landed data that no job delivers at an instant (aware)."""
    is_closed = partition.status is PartitionStatus.CLOSED
    is_leased = partition.ownership_timeout is not None and partition.ownership_timeout > at
    return bool(partition.progress.get("landed")) and not (is_closed or is_leased or partition.is_awaiting)


@contextmanager
def _collecting(errors: list[ErrorEvent], at: datetime, *, of_source: bool = False) -> Iterator[None]:
    """Collect an error of the source or its spec and continue."""
    try:
        yield
    except StoreUnavailableError:
        raise
    except Exception as error:
        log.warning("supervisor: %s: %s", type(error).__name__, error)
        errors.append(error_event(error, at, of_source=of_source))


def error_event(error: Exception, at: datetime, *, of_source: bool = False) -> ErrorEvent:
    """Return an error event, with the class of the error's root cause.

    :param at: when it happened (aware).
    :param of_source: whether the source was queried: then a `ConfigurationError`, such as denied access, is its error.
    """
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return ErrorEvent(
        at=at,
        error_class=type(cause).__name__,
        message=storable(str(error)),
        is_stream_error=isinstance(error, SourceError | ConfigurationError if of_source else SourceError),
    )
