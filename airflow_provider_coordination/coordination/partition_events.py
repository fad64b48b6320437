"""The events of a source's partitions, counted and logged, one line per event."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import StrEnum

from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    PartitionNotFoundError,
    PartitionNotOwnedError,
)
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, Metrics
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus

log = logging.getLogger(__name__)


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
