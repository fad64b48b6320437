"""What happens to the partitions of a source, counted and logged, one line an event."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from airflow_provider_coordination.coordination.errors import (
    PartitionNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    ProgressChangedError,
    ProgressError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, Metrics
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus

log = logging.getLogger(__name__)


class PartitionEvents:
    """Counts and logs what one owner did to the partitions of one source, once it is written.

    :param metrics: where counts go.
    :param source: the source's name.
    :param store_kind: the kind of store that the partitions are in, such as `sql`.
    :param owner: who acts.
    """

    def __init__(self, metrics: Metrics, *, source: str, store_kind: str, owner: str) -> None:
        self._metrics = metrics
        self._tags = {"source": source, "store": store_kind}
        self._source = source
        self._owner = owner

    def count(self, metric: StrEnum, by: int = 1) -> None:
        """Count events of a kind.

        :param by: how many there were; none are not counted.
        """
        if by:
            self._metrics.count(metric, self._tags, by)

    def gauge(self, metric: str, value: float) -> None:
        """Note how much of something this source has now."""
        self._metrics.gauge(metric, value, self._tags)

    @contextmanager
    def counting_errors(self, other: CoordinationMetric | None = None) -> Iterator[None]:
        """Count what a write raises: a lost lease as such, anything else as `other`."""
        try:
            yield
        except PartitionNotFoundError:
            self.count(CoordinationMetric.PARTITION_NOT_FOUND_ERRORS)
            raise
        except PartitionNotOwnedError:
            self.count(CoordinationMetric.PARTITION_NOT_OWNED_ERRORS)
            raise
        except (PartitionUpdateError, ProgressChangedError, ProgressError, StoreUnavailableError):
            if other is not None:
                self.count(other)
            raise

    def created(self, partition_keys: Sequence[str]) -> None:
        """Note partitions that were created."""
        for key in partition_keys:
            log.info("partition created: source=%s partition=%s", self._source, key)
        self.count(CoordinationMetric.PARTITIONS_CREATED, len(partition_keys))

    def acquired(self, partitions: Sequence[Partition]) -> None:
        """Note partitions that the owner holds from now on."""
        for partition in partitions:
            log.info(
                "partition acquired: source=%s partition=%s owner=%s fencing_token=%d",
                self._source, partition.partition_key, self._owner, partition.version,
            )  # fmt: skip
        self.count(CoordinationMetric.PARTITIONS_ACQUIRED, len(partitions))

    def completed(self, partition_key: str, followed_by: Sequence[str] = ()) -> None:
        """Note a partition that was completed.

        :param followed_by: the partitions that were created with that.
        """
        self.count(CoordinationMetric.PARTITIONS_COMPLETED)
        log.info(
            "partition completed: source=%s partition=%s owner=%s followed by=%s",
            self._source, partition_key, self._owner, ", ".join(followed_by) or "none",
        )  # fmt: skip

    def closed(self, partition: Partition) -> None:
        """Note a partition that was put aside, its data so far delivered."""
        self.count(CoordinationMetric.PARTITIONS_CLOSED)
        log.info(
            "partition closed: source=%s partition=%s reopen_at=%s",
            self._source, partition.partition_key, partition.reopen_at,
        )  # fmt: skip

    def failed(self, partition: Partition) -> None:
        """Note a partition that was given back because working on it failed."""
        self.count(CoordinationMetric.ATTEMPTS_FAILED)
        self.count(CoordinationMetric.PARTITIONS_GIVEN_UP)
        becomes = "is available again"
        if partition.is_parked:
            self.count(CoordinationMetric.PARTITIONS_PARKED)
            becomes = "is parked until a person reopens it"
        elif partition.status is PartitionStatus.CLOSED:
            self.count(CoordinationMetric.PARTITIONS_CLOSED)
            becomes = f"rests until {partition.reopen_at:%Y-%m-%dT%H:%M:%SZ}"
        log.error(
            "partition failed, attempt %d, and %s: source=%s partition=%s owner=%s: %s",
            partition.attempts, becomes, self._source, partition.partition_key, self._owner, partition.last_error,
        )  # fmt: skip
