"""The counts of a job report: rounds and deliveries note them; the thread that renews the job's record reads them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta

from airflow_provider_coordination.coordination.clock import Clock
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
from airflow_provider_coordination.coordination.texts import storable
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.bad_records import BadRecords, Stage
from airflow_provider_coordination.spark.delivery import Prepared
from airflow_provider_coordination.spark.job_settings import RoundSettings
from airflow_provider_coordination.spark.landed_row import Failure
from airflow_provider_coordination.spark.redaction import Redaction

QUIET_MARGIN = timedelta(minutes=1)
"""How long a partition with nothing left counts as caught up without being read again, beyond a round and a pause."""


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
        self._lock = threading.Lock()

    def note_delivered(self, batch: LandedBatch, delivered: Prepared) -> None:
        """Count the records of a batch that was delivered."""
        left_out = delivered.left_out
        counted = RecordCounts(
            # A transform that makes several rows from a record may mark each of them.
            processed=max(0, batch.records - sum(left_out.values())),
            processed_bytes=batch.bytes,
            processed_with_error=left_out.get(Stage.TRANSFORM, 0),
            unparseable=left_out.get(Stage.SCHEMA, 0),
            thrown_away=left_out.get(Stage.TIME, 0),
        )
        now = self._clock.now()
        with self._lock:
            self._totals += counted
            for name in delivered.records.keys() & self._sinks.keys():
                self._sinks[name] = self._sinks[name].available(now)
                self._held.pop(name, None)

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

    def note_failed(self, partition: str, reason: str, failure: Failure) -> None:
        """Note that a partition failed, or was parked.

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

    def report(self) -> JobReport:
        """Return the job report as of now."""
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
        )

    def _lag_ms(self, behind_ms: int, seconds: float) -> int | None:
        """Return how long ago the oldest unread record arrived, in milliseconds; None if that is not known.

        :param behind_ms: the lag when it was last read; 0 if there was no unread record.
        :param seconds: how long ago the lag was read.
        """
        if behind_ms > 0:
            return behind_ms + round(seconds * 1000)  # that record is still unread, whatever arrived since
        return 0 if seconds <= self._quiet_seconds else None
