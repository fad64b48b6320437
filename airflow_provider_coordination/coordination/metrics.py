"""The metrics of coordination, the interface that receives them, and the events that are counted and logged.

The core counts. The caller decides where the counts go: to Airflow's stats in a task, to the log's summary and to OTLP
in a Spark job. The names are those of Data Prepper's source coordination, in our format; the second group is ours.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    PartitionNotFoundError,
    PartitionNotOwnedError,
)
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus

log = logging.getLogger(__name__)


class CoordinationMetric(StrEnum):
    """The counters of a coordinator, each with the tags `source` and `store`."""

    PARTITION_CREATION_SUPPLIER_INVOCATIONS = "coordination.partition_creation_supplier_invocations"
    """A supplier run completed."""
    NO_PARTITIONS_ACQUIRED = "coordination.no_partitions_acquired"
    """A partition was requested and none was available."""
    PARTITIONS_CREATED = "coordination.partitions_created"
    PARTITIONS_ACQUIRED = "coordination.partitions_acquired"
    PARTITIONS_COMPLETED = "coordination.partitions_completed"
    PARTITIONS_CLOSED = "coordination.partitions_closed"
    PARTITIONS_DELETED = "coordination.partitions_deleted"
    PARTITIONS_GIVEN_UP = "coordination.partitions_given_up"
    PROGRESS_SAVED = "coordination.progress_saved"
    PARTITION_NOT_FOUND_ERRORS = "coordination.partition_not_found_errors"
    """A write found that the partition no longer exists."""
    PARTITION_NOT_OWNED_ERRORS = "coordination.partition_not_owned_errors"
    """A write was refused, or not even attempted, because the lease is lost."""
    SAVE_STATE_UPDATE_ERRORS = "coordination.save_state_partition_update_errors"
    CLOSE_UPDATE_ERRORS = "coordination.close_partition_update_errors"
    COMPLETE_UPDATE_ERRORS = "coordination.complete_partition_update_errors"

    LEASES_RENEWED = "coordination.leases_renewed"
    ATTEMPTS_FAILED = "coordination.attempts_failed"
    """Work on a partition failed."""
    PARTITIONS_PARKED = "coordination.partitions_parked"
    """A partition was parked: only a user reopens it."""
    SUPPLIER_FAILURES = "coordination.supplier_failures"
    """A supplier raised, or lost the lease on the global state while it ran."""
    DATA_LOSS = "coordination.data_loss"
    """Data of the source was deleted before it was read."""
    PARTITIONS_REOPENED = "coordination.partitions_reopened"
    """A CLOSED partition became available because it was due."""

    HANDOVERS_REQUESTED = "coordination.handovers_requested"
    """A worker requested a lease from another."""
    HANDOVERS_GIVEN = "coordination.handovers_given"
    """A worker handed a lease over to another."""
    HANDOVERS_FORCED = "coordination.handovers_forced"
    """A worker took a lease that its owner did not hand over in time."""

    ACKNOWLEDGMENT_SETS_CREATED = "coordination.acknowledgment_sets_created"
    ACKNOWLEDGMENT_SETS_ACKNOWLEDGED = "coordination.acknowledgment_sets_acknowledged"
    ACKNOWLEDGMENT_SETS_REJECTED = "coordination.acknowledgment_sets_rejected"
    ACKNOWLEDGMENT_SETS_EXPIRED = "coordination.acknowledgment_sets_expired"
    ACKNOWLEDGMENT_SETS_CANCELLED = "coordination.acknowledgment_sets_cancelled"
    LATE_ACKNOWLEDGMENTS = "coordination.late_acknowledgments"
    """A release arrived after its set had ended, and changed nothing."""
    INVALID_ACKNOWLEDGMENTS = "coordination.invalid_acknowledgments"
    """A release or an acquisition of a reference was refused: unknown set or handle, or nothing left to release."""


WATERMARK_SECONDS = "coordination.watermark_seconds"
"""A gauge: how long ago the watermark of a source was, with the tags `source` and `store`."""
PARTITIONS = "coordination.partitions"
"""A gauge: the current number of partitions, with the tags `source`, `store` and `status`."""

WORKERS = "coordination.workers"
"""A gauge: the current number of live workers, with the tags `source` and `store`."""


class Metrics(Protocol):
    """Receives metrics. Called from several threads; must neither block nor raise."""

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        """Increase a counter."""
        ...

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Set a gauge to its current value."""
        ...


class NoMetrics:
    """Counts nothing."""

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        """Do nothing."""

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Do nothing."""


class MetricTotals:
    """Keeps the totals of one process, for a summary at its end."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._gauges: dict[str, float] = {}
        self._lock = threading.Lock()

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        """Increase the total of the name, ignoring the tags."""
        with self._lock:
            self._counts[name] += by

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Keep the last value of the name, ignoring the tags."""
        with self._lock:
            self._gauges[name] = value

    @property
    def totals(self) -> dict[str, float]:
        """The totals and the last gauge values so far, sorted by name."""
        with self._lock:
            return dict(sorted({**self._gauges, **self._counts}.items()))


class PartitionEvents:
    """Counts and logs what one owner has done with the partitions of one source, after it was written.

    :param metrics: where metrics are sent.
    :param source: the name of the source.
    :param store_kind: the kind of store of the partitions, such as `sqlite`.
    :param owner: the acting owner.
    """

    def __init__(self, metrics: Metrics, *, source: str, store_kind: str, owner: str) -> None:
        self._metrics = metrics
        self._tags = {"source": source, "store": store_kind}
        self._source = source
        self._owner = owner

    def count(self, metric: StrEnum, by: int = 1) -> None:
        """Increase a counter.

        :param by: the number of events; zero is ignored.
        """
        if by:
            self._metrics.count(metric, self._tags, by)

    def gauge(self, metric: str, value: float) -> None:
        """Set a gauge of this source."""
        self._metrics.gauge(metric, value, self._tags)

    def note_error(self, error: Exception, metric: CoordinationMetric | None = None) -> None:
        """Count the error of a write: a lost lease as such, other errors as `metric`; None does not count them."""
        if isinstance(error, PartitionNotFoundError):
            self.count(CoordinationMetric.PARTITION_NOT_FOUND_ERRORS)
        elif isinstance(error, PartitionNotOwnedError):
            self.count(CoordinationMetric.PARTITION_NOT_OWNED_ERRORS)
        elif metric is not None and isinstance(error, CoordinationError):
            self.count(metric)

    def created(self, partition_keys: Sequence[str]) -> None:
        """Record created partitions."""
        for key in partition_keys:
            log.info("partition created: source=%s partition=%s", self._source, key)
        self.count(CoordinationMetric.PARTITIONS_CREATED, len(partition_keys))

    def acquired(self, partitions: Sequence[Partition]) -> None:
        """Record partitions that the owner has acquired."""
        for partition in partitions:
            log.info(
                "partition acquired: source=%s partition=%s owner=%s fencing_token=%d",
                self._source, partition.partition_key, self._owner, partition.version,
            )  # fmt: skip
        self.count(CoordinationMetric.PARTITIONS_ACQUIRED, len(partitions))

    def completed(self, partition_key: str, followed_by: Sequence[str] = ()) -> None:
        """Record a completed partition.

        :param followed_by: the partitions that were created in the same transaction.
        """
        self.count(CoordinationMetric.PARTITIONS_COMPLETED)
        log.info(
            "partition completed: source=%s partition=%s owner=%s followed by=%s",
            self._source, partition_key, self._owner, ", ".join(followed_by) or "none",
        )  # fmt: skip

    def closed(self, partition: Partition) -> None:
        """Record a partition that was closed until later, with its data so far delivered."""
        self.count(CoordinationMetric.PARTITIONS_CLOSED)
        log.info(
            "partition closed: source=%s partition=%s reopen_at=%s",
            self._source, partition.partition_key, partition.reopen_at,
        )  # fmt: skip

    def failed(self, partition: Partition) -> None:
        """Record a partition that was given back because work on it failed."""
        self.count(CoordinationMetric.ATTEMPTS_FAILED)
        self.count(CoordinationMetric.PARTITIONS_GIVEN_UP)
        result = "is available again"
        if partition.is_parked:
            self.count(CoordinationMetric.PARTITIONS_PARKED)
            result = "is parked until a user reopens it"
        elif partition.status is PartitionStatus.CLOSED:
            self.count(CoordinationMetric.PARTITIONS_CLOSED)
            result = f"waits until {partition.reopen_at:%Y-%m-%dT%H:%M:%SZ} before the next retry"
        log.error(
            "partition failed, attempt %d, and %s: source=%s partition=%s owner=%s: %s",
            partition.attempts, result, self._source, partition.partition_key, self._owner, partition.last_error,
        )  # fmt: skip
