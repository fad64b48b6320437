"""What a job counts while it runs: the metrics of its rounds, and its job report.

Rounds and deliveries note the counts; the thread that renews the job's record reads the report.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.freshness import Ages, RecentAges
from airflow_provider_coordination.coordination.job_reports import (
    MAX_ERRORS,
    MAX_MESSAGE_CHARACTERS,
    MAX_PARSE_ERRORS,
    ErrorEvent,
    JobReport,
    MovingAverages,
    RecordCounts,
    SinkReport,
)
from airflow_provider_coordination.coordination.metrics import Metrics
from airflow_provider_coordination.coordination.texts import storable
from airflow_provider_coordination.sources.landed import Failure, LandedBatch
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import Prepared, Stage
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.reading import RoundRead
from airflow_provider_coordination.spark.redaction import Redaction

QUIET_MARGIN = timedelta(minutes=1)
"""How long a partition with nothing left counts as caught up without being read again, beyond a round and a pause."""


class IngestionMetric(StrEnum):
    """The metrics of each round, with the tags `source` and `store`."""

    RECORDS_LANDED = "coordination.records_landed"
    RECORDS_DELIVERED = "coordination.records_delivered"
    PARSE_EXCEPTIONS = "coordination.parse_exceptions"
    RECORDS_UNROUTED = "coordination.records_unrouted"
    RECORDS_THROWN_AWAY = "coordination.records_thrown_away"
    """Records that were left out because they are late or early."""
    SINK_RECORDS = "coordination.sink_records"
    """With the tag `sink` as well; the dead letters are the sink `dead_letter`."""
    SINK_BATCHES_HELD = "coordination.sink_batches_held"
    """Batches that wait for an unavailable sink, with the tag `sink` as well."""
    RECORDS_FILTERED = "coordination.records_filtered"
    """User records of an aggregate that were left out because they belong to another shard."""
    READS_THROTTLED = "coordination.reads_throttled"
    """Reads that were refused because other consumers read the shard as well."""
    ITEMS_READ = "coordination.items_read"
    """Items, such as objects or ranges, that were processed; only for sources of items."""
    ITEMS_GONE = "coordination.items_gone"
    """Items that no longer existed when they were to be read."""
    ITEMS_SET_ASIDE = "coordination.items_set_aside"
    """Items that could not be read, and become partitions of their own."""
    MILLIS_BEHIND_LATEST = "coordination.millis_behind_latest"
    """A gauge: how far the job is behind the end of the source, for the partition that is furthest behind."""
    FRESHNESS_SECONDS = "coordination.freshness_seconds"
    """A gauge: within which age 95 percent of the records became visible in a sink, with the tag `sink` as well."""


class RoundCounts:
    """Counts what a job did in each round.

    :param metrics: receives the counts.
    :param tags: `source` and `store`.
    """

    def __init__(self, metrics: Metrics, tags: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._tags = tags
        self._counted: Counter[tuple[str, str]] = Counter()

    def note(self, summary: Summary, read: RoundRead, ages: Mapping[str, Ages]) -> None:
        """Count what was done since the last call.

        :param summary: what the job did so far.
        :param read: what the round read.
        :param ages: of the records that became visible lately, by sink.
        """
        self._count(IngestionMetric.RECORDS_LANDED, summary.records_landed)
        self._count(IngestionMetric.RECORDS_DELIVERED, summary.records_delivered)
        self._count(IngestionMetric.PARSE_EXCEPTIONS, summary.parse_exceptions)
        self._count(IngestionMetric.RECORDS_UNROUTED, summary.unrouted)
        self._count(IngestionMetric.RECORDS_THROWN_AWAY, summary.thrown_away)
        for sink, records in summary.records_by_sink.items():
            self._count(IngestionMetric.SINK_RECORDS, records, sink)
        for sink, batches in summary.held_by_sink.items():
            self._count(IngestionMetric.SINK_BATCHES_HELD, batches, sink)
        count, tags = self._metrics.count, self._tags
        count(IngestionMetric.RECORDS_FILTERED, tags, read.filtered)
        count(IngestionMetric.READS_THROTTLED, tags, read.throttled)
        if read.items is not None:
            count(IngestionMetric.ITEMS_READ, tags, read.items)
            count(IngestionMetric.ITEMS_GONE, tags, read.gone)
            count(IngestionMetric.ITEMS_SET_ASIDE, tags, read.set_aside)
        known = [behind for behind in read.behind_ms.values() if behind is not None]
        if known:
            self._metrics.gauge(IngestionMetric.MILLIS_BEHIND_LATEST, max(known), tags)
        # The slowest sink last: totals without tags keep the last value.
        for seconds, sink in sorted((each.quantile(0.95) or 0.0, sink) for sink, each in ages.items()):
            self._metrics.gauge(IngestionMetric.FRESHNESS_SECONDS, seconds, {**tags, "sink": sink})

    def _count(self, name: IngestionMetric, total: int, sink: str = "") -> None:
        tags = {**self._tags, "sink": sink} if sink else self._tags
        self._metrics.count(name, tags, total - self._counted[name, sink])
        self._counted[name, sink] = total


class JobReporting:
    """The counts of one job. Safe to use from several threads; no thread waits for a report.

    :param rounds: how the job makes its rounds.
    :param bad_records: the job's bad records.
    :param redaction: hides secrets in errors and samples.
    :param clock: the clock of the job.
    :param sinks: the initial reports of the job's sinks.
    """

    def __init__(
        self,
        rounds: RoundSettings,
        bad_records: BadRecords,
        redaction: Redaction,
        clock: Clock,
        sinks: Iterable[SinkReport] = (),
    ) -> None:
        self._bad_records = bad_records
        self._redaction = redaction
        self._clock = clock
        self._quiet_seconds = (rounds.round_duration + rounds.idle_duration + QUIET_MARGIN).total_seconds()
        self._totals = RecordCounts()
        self._averages = MovingAverages(clock.monotonic())
        self._errors: deque[ErrorEvent] = deque(maxlen=MAX_ERRORS)
        self._error_count = 0
        self._behind: dict[str, tuple[int, float]] = {}  # by partition: milliseconds behind, and when that was read
        self._sinks = {sink.name: sink for sink in sinks}
        self._held: dict[str, set[str]] = {}  # the batches that wait for a sink, by its name
        self._ages = {name: RecentAges() for name in self._sinks}
        self._lock = threading.Lock()

    def note_delivered(self, batch: LandedBatch, delivered: Prepared) -> None:
        """Count the records of a batch that was delivered."""
        left_out, refused = delivered.left_out, sum(delivered.refused.values())
        counted = RecordCounts(
            # A transform that makes several rows from a record may mark each of them, and a sink may refuse each.
            processed=max(0, batch.records - sum(left_out.values()) - refused),
            processed_bytes=batch.bytes,
            processed_with_error=left_out.get(Stage.TRANSFORM, 0) + refused,
            unparseable=left_out.get(Stage.SCHEMA, 0),
            thrown_away=left_out.get(Stage.TIME, 0),
        )
        now = self._clock.now()
        with self._lock:
            self._totals += counted
            for name in delivered.records.keys() & self._sinks.keys():
                self._sinks[name] = self._sinks[name].available(now)
                self._held.pop(name, None)

    def note_committed(self, sink: str, batches: Sequence[tuple[LandedBatch, int]]) -> None:
        """Note that batches have just become visible in a sink. Those without times of arrival do not count.

        :param sink: the sink's name.
        :param batches: the batches, each with its number of records in the sink.
        """
        now = self._clock.now()
        ages = [
            Ages.between(
                (now - batch.last_arrival).total_seconds(), (now - batch.first_arrival).total_seconds(), records
            )
            for batch, records in batches
            if batch.first_arrival is not None and batch.last_arrival is not None and records
        ]
        if ages and sink in self._ages:
            with self._lock:
                self._ages[sink].add(self._clock.monotonic(), Ages.sum(ages))

    def ages(self) -> dict[str, Ages]:
        """Return the ages of the records that became visible within `FRESHNESS_WINDOW`, by sink; of no idle sink."""
        now = self._clock.monotonic()
        with self._lock:
            found = {sink: recent.ages(now) for sink, recent in self._ages.items()}
        return {sink: ages for sink, ages in found.items() if ages.counts}

    def note_held(self, sink: str, batch: LandedBatch, reason: str) -> None:
        """Note that a batch waits for an unavailable sink.

        :param sink: the sink's name.
        :param reason: why it is unavailable.
        """
        reason, now = self._redaction.text(reason), self._clock.now()
        with self._lock:
            held = self._held.setdefault(sink, set())
            held.add(batch.batch_id)
            if sink in self._sinks:
                self._sinks[sink] = self._sinks[sink].unavailable(now, reason, len(held))

    def note_read(self, behind_ms: Mapping[str, int | None], at_work: Collection[str]) -> None:
        """Note how far partitions are behind their source, as the source just reported.

        :param behind_ms: the lag of each partition that was read, in milliseconds; None if it is not known.
        :param at_work: all partitions that the job works on; the lags of others are forgotten.
        """
        now = self._clock.monotonic()
        read = {key: (behind, now) for key, behind in behind_ms.items() if behind is not None}
        with self._lock:
            known = {**self._behind, **read}
            self._behind = {key: known[key] for key in at_work if key in known}

    def note_failed(self, partition: str | None, reason: str, failure: Failure) -> None:
        """Note that a partition failed, or was parked.

        :param partition: its key; None for an error of the job that fails no partition.
        :param reason: why, without secrets.
        """
        event = ErrorEvent(
            at=self._clock.now(),
            error_class=failure.error_class,
            message=storable(reason, MAX_MESSAGE_CHARACTERS),
            partition=partition,
            is_stream_error=failure.is_of_source,
        )
        with self._lock:
            self._errors.append(event)
            self._error_count += 1

    def report(self, slots: int | None = None, freshness_problem: str = "") -> JobReport:
        """Return the job report as of now.

        :param slots: how many tasks the job runs at the same time; None if unknown.
        :param freshness_problem: see `JobReport`.
        """
        now = self._clock.monotonic()
        with self._lock:
            totals, behind, errors, error_count = self._totals, self._behind, tuple(self._errors), self._error_count
            sinks = tuple(self._sinks.values())
            rates = self._averages.rates(now, totals)
        lags = {key: self._lag_ms(ms, now - at) for key, (ms, at) in behind.items()}
        return JobReport(
            at=self._clock.now(),
            totals=totals,
            rates=rates,
            lag_ms={key: lag for key, lag in lags.items() if lag is not None},
            parse_errors=tuple(map(self._redaction.mapping, self._bad_records.samples[-MAX_PARSE_ERRORS:])),
            errors=errors,
            error_count=error_count,
            sinks=sinks,
            slots=slots,
            ages=self.ages(),
            freshness_problem=freshness_problem,
        )

    def _lag_ms(self, behind_ms: int, seconds: float) -> int | None:
        """Return how long ago the oldest unread record arrived, in milliseconds; None if that is not known.

        :param behind_ms: the lag when it was last read; 0 if there was no unread record.
        :param seconds: how long ago the lag was read.
        """
        if behind_ms > 0:
            return behind_ms + round(seconds * 1000)  # that record is still unread, whatever arrived since
        return 0 if seconds <= self._quiet_seconds else None
