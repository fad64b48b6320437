"""What a supervisor sees of its source: jobs at every look, partitions, shards and lag once a period.

Between two such runs a look reads a few small items: that is what watching an idle source costs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError, StoreUnavailableError
from airflow_provider_coordination.coordination.job_reports import REPORT_INTERVAL, RecordCounts
from airflow_provider_coordination.coordination.jobs import Job, Jobs
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.supervisor.lag import FINE, LagReading, LagSeries
from airflow_provider_coordination.supervisor.observation import Observation, PartitionCounts
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec import Change, IngestionSpec, change_between
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Supervision

log = logging.getLogger(__name__)

FRESH = 6 * REPORT_INTERVAL
"""An older report says nothing of the lag any more."""
PROBED_AT_ONCE = 20
PROBING_SECONDS = 2.0
"""How long a look asks the source for lags, about; it goes on with the others the next time."""


class Probe(Protocol):
    """Asks the source itself. It is asked nothing before it follows a spec."""

    def follow(self, spec: IngestionSpec) -> None:
        """Ask the source that this spec reads, from now on.

        :param spec: the spec that rules; the same object for as long as it does.
        """
        ...

    @property
    def looks_for_partitions(self) -> bool:
        """Whether nobody but the supervisor looks for new partitions, as with objects or tables."""
        ...

    def look_for_partitions(self) -> None:
        """Create the partitions of what is new in the source: shard sync, or its supplier. In a worker.

        :raises SourceError: if the source does not answer, or refuses.
        """
        ...

    def count(self) -> int | None:
        """Return how many open shards the source has, or whatever it consists of; None if nobody can say.

        It is asked once a period.

        :raises SourceError: if the source does not answer, or refuses: contact with it is lost.
        """
        ...

    def lags(self, partitions: Sequence[Partition]) -> Mapping[str, int]:
        """Return how far behind partitions are that nobody reads, in milliseconds, by key; without those unknown.

        :raises SourceError: if the source does not answer, or refuses.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What is looked at once a period."""

    at: datetime
    spec_version: int
    partitions: PartitionCounts
    open_partitions: int | None
    failing: frozenset[str]
    strays: frozenset[str]


class Observer:
    """Sees what a supervisor decides by. Keep it for several looks: it remembers what does not change.

    :param view: of the source, initialized.
    :param store: what is stored of its supervisor.
    :param jobs: the jobs of the source.
    :param probe: asks the source.
    :param task: what the supervisor's jobs work for.
    """

    def __init__(self, view: SourceView, store: SupervisionStore, jobs: Jobs, probe: Probe, task: str) -> None:
        self._view = view
        self._store = store
        self._jobs = jobs
        self._probe = probe
        self._task = task
        self._specs: dict[int, IngestionSpec | None] = {}
        self._run: _Run | None = None
        self._lag: LagSeries | None = None
        self._lag_is_new = False
        self._probed: dict[str, tuple[datetime, int | None]] = {}

    def spec(self, version: int) -> IngestionSpec | None:
        """Return a version of the spec; None if there is none, or it is a termination.

        :raises ConfigurationError: if it is of a newer version, or wrong by now.
        """
        if version not in self._specs:
            stored = self._store.spec(version)
            if stored is None:
                return None
            self._specs[version] = None if stored.spec is None else IngestionSpec.read(stored.spec)
        return self._specs[version]

    def observe(self, memory: Supervision, *, anew: bool = False) -> Observation:
        """Look.

        :param memory: what the supervisor remembers.
        :param anew: look at everything, whenever that was done last.
        """
        now = self._view.clock.now()
        errors: list[ErrorEvent] = []
        settings, outdated = None, frozenset[int]()
        with _noting(errors, now):
            settings, outdated = self._rules(memory)
        jobs = self._jobs_of(memory)
        is_run = anew or self._is_run_due(memory, settings, now)
        if is_run or self._run is None:
            self._run, lag_errors = self._looked(memory, settings, jobs, now)
            errors += lag_errors
        return Observation(
            at=now,
            settings=settings,
            outdated=outdated,
            is_suspended=self._view.suspensions.get() is not None,
            partitions=self._run.partitions,
            jobs=jobs,
            strays=self._run.strays - {job.owner for job in memory.jobs},
            safety_margin=self._view.safety_margin,
            lag=() if self._lag is None else self._lag.points,
            failing=self._run.failing,
            open_partitions=self._run.open_partitions,
            looks_for_partitions=self._probe.looks_for_partitions,
            is_run=is_run,
            errors=tuple(errors),
        )

    def save_lag(self) -> None:
        """Write the lag, if there is something new about it."""
        if self._lag is not None and self._lag_is_new:
            self._store.save_lag(self._lag)
            self._lag_is_new = False

    # Parts

    def _rules(self, memory: Supervision) -> tuple[SuperviseSettings | None, frozenset[int]]:
        """Return how the source is supervised, and the versions whose jobs have something else to do."""
        spec = self.spec(memory.spec_version)
        if spec is None:
            return None, frozenset()
        self._probe.follow(spec)
        versions = {job.spec_version for job in memory.jobs} - {memory.spec_version}
        return spec.supervise, frozenset(version for version in versions if self._is_outdated(version, spec))

    def _is_outdated(self, version: int, spec: IngestionSpec) -> bool:
        try:
            former = self.spec(version)
        except ConfigurationError:  # another version of this package read it
            return True
        return former is None or change_between(former, spec) is Change.JOBS

    def _jobs_of(self, memory: Supervision) -> dict[str, Job]:
        known = {job.owner: self._jobs.get(job.owner) for job in memory.jobs}
        return {owner: job for owner, job in known.items() if job is not None}

    def _is_run_due(self, memory: Supervision, settings: SuperviseSettings | None, now: datetime) -> bool:
        if self._run is None or self._run.spec_version != memory.spec_version or memory.looked_at is None:
            return True
        if memory.looked_at > self._run.at:  # somebody else has looked, and perhaps done something
            self._lag = None
            return True
        period = (settings or SuperviseSettings()).period
        if settings is not None and settings.auto_scale is not None:
            period = min(period, settings.auto_scale.lag_collection_interval)
        return now - self._run.at >= period

    def _looked(
        self, memory: Supervision, settings: SuperviseSettings | None, jobs: Mapping[str, Job], now: datetime
    ) -> tuple[_Run, list[ErrorEvent]]:
        """Look at what is looked at once a period; return it, and what went wrong."""
        errors: list[ErrorEvent] = []
        partitions = {each.partition_key: each for each in self._view.partitions(*UNFINISHED)}
        open_partitions = memory.open_partitions
        if settings is not None:
            with _noting(errors, now, of_source=True):
                open_partitions = self._probe.count()
            if not errors:  # who does not answer once is not asked for each shard
                with _noting(errors, now, of_source=True):
                    self._read_lag(partitions, memory, jobs, settings, now)
        soon = now + (settings or SuperviseSettings()).period
        counts = PartitionCounts(
            readable=sum(is_readable(partition, soon) for partition in partitions.values()),
            unfinished=len(partitions),
            is_empty=not partitions and self._view.first(PartitionStatus.COMPLETED) is None,
        )
        strays = frozenset(job.owner for job in self._jobs.unfinished() if job.task == self._task and job.stop is None)
        run = _Run(
            at=now,
            spec_version=memory.spec_version,
            partitions=counts,
            open_partitions=open_partitions,
            failing=frozenset(key for key, partition in partitions.items() if partition.attempts),
            strays=strays,
        )
        return run, errors

    def _read_lag(
        self,
        partitions: Mapping[str, Partition],
        memory: Supervision,
        jobs: Mapping[str, Job],
        settings: SuperviseSettings,
        now: datetime,
    ) -> None:
        if self._lag is None:
            self._lag = self._store.lag()
        scaling = settings.auto_scale
        interval = settings.period if scaling is None else scaling.lag_collection_interval
        if self._lag.points and now - self._lag.points[-1].at < interval:
            return
        lags: dict[str, int | None] = dict.fromkeys(partitions)
        reports = [job.report for job in jobs.values() if job.report is not None]
        for report in sorted((each for each in reports if now - each.at <= FRESH), key=lambda report: report.at):
            lags.update({key: lag for key, lag in report.lag_ms.items() if key in lags})
        unread = [each for each in partitions.values() if each.owner is None and lags[each.partition_key] is None]
        lags.update(self._probed_lags(unread, interval, now))
        fine = FINE if scaling is None else max(FINE, scaling.lag_collection_range + interval)
        counted = sum((report.totals for report in reports), RecordCounts.from_mapping(memory.totals))
        self._lag = self._lag.adding(LagReading(at=now, partitions=lags, counted=counted), fine=fine)
        self._lag_is_new = True

    def _probed_lags(self, unread: Sequence[Partition], interval: timedelta, now: datetime) -> dict[str, int | None]:
        """Return the lags of partitions that nobody reads, those first that were not asked for longest."""
        known = {each.partition_key: self._probed.get(each.partition_key) for each in unread}
        self._probed = {key: found for key, found in known.items() if found is not None}
        began = self._view.clock.monotonic()
        waiting = sorted(unread, key=lambda each: self._probed.get(each.partition_key, (_LONG_AGO,))[0])
        while waiting and self._view.clock.monotonic() - began < PROBING_SECONDS:
            asked, waiting = waiting[:PROBED_AT_ONCE], waiting[PROBED_AT_ONCE:]
            found = self._probe.lags(asked)
            self._probed.update({each.partition_key: (now, found.get(each.partition_key)) for each in asked})
        # What was asked about lately counts, at the lag of then.
        return {key: lag for key, (at, lag) in self._probed.items() if now - at < 10 * interval}


_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def is_readable(partition: Partition, soon: datetime) -> bool:
    """Return whether a job can read an unfinished partition at an instant (aware), if nobody changes it."""
    if partition.status is PartitionStatus.CLOSED:
        return partition.priority <= soon
    return not partition.is_awaiting


@contextmanager
def _noting(errors: list[ErrorEvent], at: datetime, *, of_source: bool = False) -> Iterator[None]:
    """Go on after what concerns the source, or its spec, alone; note it."""
    try:
        yield
    except StoreUnavailableError:
        raise
    except Exception as error:
        log.warning("supervisor: %s: %s", type(error).__name__, error)
        errors.append(error_event(error, at, of_source=of_source))


def error_event(error: Exception, at: datetime, *, of_source: bool = False) -> ErrorEvent:
    """Return an error as it is noted: by the class of its cause, where it has one.

    :param at: when it happened (aware).
    :param of_source: whether the source was asked: refused access, which is a wrong configuration, is its error then.
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
