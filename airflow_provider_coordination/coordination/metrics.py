"""What is counted about coordination, and the seam through which the counts leave.

The core counts; where the counts go is decided outside: to Airflow's stats in a task, to the log's summary and to
OTLP in a Spark job. The names are those of Data Prepper's source coordination, in our form; the second group is ours.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol


class CoordinationMetric(StrEnum):
    """What a coordinator counts, each with the tags `source` and `store`."""

    PARTITION_CREATION_SUPPLIER_INVOCATIONS = "coordination.partition_creation_supplier_invocations"
    """A supplier ran to its end."""
    NO_PARTITIONS_ACQUIRED = "coordination.no_partitions_acquired"
    """A partition was asked for and none was available."""
    PARTITIONS_CREATED = "coordination.partitions_created"
    PARTITIONS_ACQUIRED = "coordination.partitions_acquired"
    PARTITIONS_COMPLETED = "coordination.partitions_completed"
    PARTITIONS_CLOSED = "coordination.partitions_closed"
    PARTITIONS_DELETED = "coordination.partitions_deleted"
    PARTITIONS_GIVEN_UP = "coordination.partitions_given_up"
    PROGRESS_SAVED = "coordination.progress_saved"
    PARTITION_NOT_FOUND_ERRORS = "coordination.partition_not_found_errors"
    """A write found that the partition is gone."""
    PARTITION_NOT_OWNED_ERRORS = "coordination.partition_not_owned_errors"
    """A write was refused, or not even tried, because the lease is lost."""
    SAVE_STATE_UPDATE_ERRORS = "coordination.save_state_partition_update_errors"
    CLOSE_UPDATE_ERRORS = "coordination.close_partition_update_errors"
    COMPLETE_UPDATE_ERRORS = "coordination.complete_partition_update_errors"

    LEASES_RENEWED = "coordination.leases_renewed"
    ATTEMPTS_FAILED = "coordination.attempts_failed"
    """Working on a partition failed."""
    PARTITIONS_PARKED = "coordination.partitions_parked"
    """A partition failed so often that only a person reopens it."""
    SUPPLIER_FAILURES = "coordination.supplier_failures"
    """A supplier raised, or lost the lease on the global state while it ran."""
    DATA_LOSS = "coordination.data_loss"
    """Data of the source was gone before it was read."""
    PARTITIONS_REOPENED = "coordination.partitions_reopened"
    """A CLOSED partition became available because its time had come."""

    HANDOVERS_ASKED = "coordination.handovers_asked"
    """A worker asked another for a lease."""
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
    """A release came after its set had ended, and changed nothing."""
    INVALID_ACKNOWLEDGMENTS = "coordination.invalid_acknowledgments"
    """A release or an acquisition of a reference was refused: no such set or handle, or nothing left to release."""


PARTITIONS = "coordination.partitions"
"""A gauge: how many partitions there are now, with the tags `source`, `store` and `status`."""

WORKERS = "coordination.workers"
"""A gauge: how many live workers there are now, with the tags `source` and `store`."""


class Metrics(Protocol):
    """Where counts go. Called from several threads; must neither block nor raise."""

    def count(self, name: str, tags: Mapping[str, str], by: int = 1) -> None:
        """Count that something happened so many times."""
        ...

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Note how much of something there is now."""
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
        """Add to the total of the name, whatever the tags."""
        with self._lock:
            self._counts[name] += by

    def gauge(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Keep the last value of the name, whatever the tags."""
        with self._lock:
            self._gauges[name] = value

    @property
    def totals(self) -> dict[str, float]:
        """What was counted and noted so far, by name, sorted."""
        with self._lock:
            return dict(sorted({**self._gauges, **self._counts}.items()))
