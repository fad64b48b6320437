"""A job's metrics: kept as totals for its end, and sent to an OpenTelemetry collector if one is configured.

See `otlp` for how the collector is configured. An unavailable collector does not delay rounds, and delays the end of
the job by a few seconds.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.coordination.metrics import Metrics, MetricTotals
from airflow_provider_coordination.spark.otlp import FLUSH_SECONDS, METRICS, make_sender, resource_of
from airflow_provider_coordination.spark.reading import RoundRead
from airflow_provider_coordination.spark.summary import Summary

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics import MeterProvider

log = logging.getLogger(__name__)


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


class RoundCounts:
    """Counts what a job did in each round.

    :param metrics: receives the counts.
    :param tags: `source` and `store`.
    """

    def __init__(self, metrics: Metrics, tags: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._tags = tags
        self._counted: Counter[tuple[str, str]] = Counter()

    def note(self, summary: Summary, read: RoundRead) -> None:
        """Count what was done since the last call.

        :param summary: what the job did so far.
        :param read: what the round read.
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

    def _count(self, name: IngestionMetric, total: int, sink: str = "") -> None:
        tags = {**self._tags, "sink": sink} if sink else self._tags
        self._metrics.count(name, tags, total - self._counted[name, sink])
        self._counted[name, sink] = total


class JobMetrics:
    """The metrics of one job; an implementation of `Metrics`. Close it when the job ends, however it ends.

    :param owner: the job's owner, which distinguishes its series from those of other jobs.
    """

    def __init__(self, owner: str) -> None:
        self._totals = MetricTotals()
        self._otlp = otlp_metrics(owner)

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        """Add to a counter."""
        self._totals.count(name, tags, by)
        if self._otlp is not None:
            self._otlp.count(name, tags, by)

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Set a gauge."""
        self._totals.gauge(name, value, tags)
        if self._otlp is not None:
            self._otlp.gauge(name, value, tags)

    @property
    def totals(self) -> dict[str, float]:
        """The totals so far that are not zero, by name, sorted."""
        return {str(name): value for name, value in self._totals.totals.items() if value}

    def close(self) -> None:
        """Log the totals, if there are any, and send the last counts, waiting a few seconds at most."""
        if self.totals:
            log.info("metrics: %s", " ".join(f"{name}={value}" for name, value in self.totals.items()))
        if self._otlp is not None:
            self._otlp.close()


class OtlpMetrics:
    """Sends metrics to an OpenTelemetry collector, from a thread of OpenTelemetry.

    :param provider: makes the instruments; `close` shuts it down.
    """

    def __init__(self, provider: MeterProvider) -> None:
        self._provider = provider
        self._meter = provider.get_meter("airflow_provider_coordination")
        self._instruments: dict[str, Any] = {}
        self._lock = threading.Lock()

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        """Add to a counter."""
        self._instrument(name, self._meter.create_counter).add(by, dict(tags))

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Set a gauge."""
        self._instrument(name, self._meter.create_gauge).set(value, dict(tags))

    def close(self) -> None:
        """Send the remaining metrics; wait a few seconds at most."""
        try:
            self._provider.shutdown(timeout_millis=FLUSH_SECONDS * 1000)
        except Exception as error:
            log.warning("the last metrics may not have been exported: %s", error)

    def _instrument(self, name: str, create: Any) -> Any:
        with self._lock:
            if name not in self._instruments:
                self._instruments[name] = create(str(name))
            return self._instruments[name]


def otlp_metrics(owner: str) -> OtlpMetrics | None:
    """Return the sender to the collector that the environment configures; None if there is none, or it cannot work.

    :param owner: the job's owner; becomes `service.instance.id`.
    """
    return make_sender(METRICS, lambda exporter: OtlpMetrics(_provider(owner, exporter)))


def _provider(owner: str, exporter: Any) -> MeterProvider:
    """Return a provider for this job only: a transform that uses OpenTelemetry's global provider is not affected."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    return MeterProvider(
        metric_readers=[PeriodicExportingMetricReader(exporter)],
        resource=resource_of(owner),
        shutdown_on_exit=False,  # it waits for half a minute
    )
