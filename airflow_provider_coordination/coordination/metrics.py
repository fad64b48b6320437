"""The metrics of coordination, and the interface that receives them.

The core counts. The caller decides where the counts go: to Airflow's stats in a task, to the log's summary and to OTLP
in a Spark job. The names are those of Data Prepper's source coordination, in our format; the second group is ours.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


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
