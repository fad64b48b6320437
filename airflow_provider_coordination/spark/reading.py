"""The interface between a job's rounds and the kind of source that it reads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.landed import LandedBatch, LandedProgress
from airflow_provider_coordination.spark.landed_row import Failure
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.summary import Summary

UNREADABLE_ROUNDS = 5
"""After how many consecutive rounds with an unavailable source a partition counts as failed."""


@dataclass(frozen=True, kw_only=True)
class RoundRead:
    """What one round read, for the log and the metrics.

    :param partitions: the number of partitions that landed something.
    :param bytes: the payload bytes that were landed.
    :param items: the number of items that were processed; None if the source has no items.
    :param gone: the number of these items that no longer existed.
    :param set_aside: the number of these items that could not be read.
    :param behind_ms: the lag of each partition, by its key, in milliseconds; None if it is not known.
    :param filtered: the number of records that were left out because they belong to another partition.
    :param throttled: the number of reads that the source refused because there were too many.
    """

    partitions: int = 0
    bytes: int = 0
    items: int | None = None
    gone: int = 0
    set_aside: int = 0
    behind_ms: Mapping[str, int | None] = field(default_factory=dict)
    filtered: int = 0
    throttled: int = 0

    @property
    def text(self) -> str:
        """The text for the log, beside bytes and records; lags only if they are known."""
        items = "" if self.items is None else f" items={self.items} gone={self.gone} set_aside={self.set_aside}"
        lags = " ".join(f"{name}={behind}" for name, behind in self.behind_ms.items() if behind is not None)
        return f"partitions={self.partitions}{items}{f' lag_ms=[{lags}]' if lags else ''}"


class PartitionsToRead(Protocol):
    """The partitions that a job works on, as a reading uses them."""

    @property
    def read_until(self) -> Mapping[str, datetime | None]:
        """The partitions at work, each with the arrival time up to which it is read; None if that is not known."""
        ...

    def all(self) -> Iterator[tuple[str, LandedProgress]]:
        """Yield the partitions whose lease is held, with their progress; one whose progress is unreadable fails."""
        ...

    def may_land(self, key: str, progress: LandedProgress) -> bool:
        """Return whether a partition may be read further.

        That is so while it is not to be handed over, at most one batch is in delivery, and the pending batches are
        below their limits.
        """
        ...

    def note_read(self, key: str, until: datetime | None) -> None:
        """Note up to when a partition is read in which no record was found."""
        ...

    def recording(self, key: str) -> AbstractContextManager[None]:
        """Contain errors of recording a partition's landed batch: the batch is dropped, or the partition fails."""
        ...

    def record(
        self,
        key: str,
        batch: LandedBatch,
        landing: Callable[[LandedBatch], LandedProgress],
        recorded: Callable[[], object] = ...,
    ) -> None:
        """Record a landed batch, which fixes it, with the event-time bounds outside which its records are left out.

        The batch is written with those of the other partitions, once `Reading.record` returns.

        :param landing: returns the partition's present progress with a batch added; called again if an earlier batch is
            acknowledged during that time.
        :param recorded: called once the batch is written.
        """
        ...

    def park(self, key: str, reason: str, progress: dict[str, Any], failure: Failure) -> None:
        """Park a partition until a user reopens it: a retry cannot help."""
        ...

    def fail(self, key: str, reason: str, failure: Failure) -> None:
        """Give back a partition, with its landed batches; the retry policy decides when it is retried."""
        ...


class Reading(Protocol):
    """The part of a job's rounds that depends on the kind of source: which partitions may be read, and landing them."""

    @property
    def at_stop(self) -> Collection[str]:
        """The partitions whose records up to the job's `stop_at` are all landed."""
        ...

    @property
    def expects_more(self) -> bool:
        """Whether there will soon be partitions to acquire, although there are none now."""
        ...

    def refresh_source(self) -> None:
        """Check the source before leases are acquired, and forget partitions that the job no longer works on."""
        ...

    def may_start(self, partition: Partition) -> bool:
        """Return whether the job can work on an acquired partition; if not, the partition has been given back.

        :raises SourceError: if it cannot because of an error.
        """
        ...

    def land(self, *, leave_slot: bool) -> Sequence[Any]:
        """Read the partitions at work as far as they may be read, and land the records; return a row for each.

        :param leave_slot: whether to leave one slot to a delivery that runs at the same time.
        """
        ...

    def record(self, rows: Sequence[Any]) -> RoundRead:
        """Record the landed batches, and give back the partitions that could not be read."""
        ...

    def completed(self, partition: Partition) -> None:
        """Finish a partition that is delivered to its end."""
        ...

    def end_round(self) -> None:
        """Do what must wait until all landed batches are delivered."""
        ...

    def last_known(self, key: str) -> LandedProgress | None:
        """Return the progress with which to give back a partition that has nothing left to deliver.

        :returns: None if the stored progress is complete.
        :raises PartitionNotOwnedError: if its lease is lost.
        """
        ...


MakeReading = Callable[[IngestSettings, SourceCoordinator, PartitionsToRead, Summary], Reading]
"""Makes the reading of a job from its settings, its coordinator, its partitions and its summary."""
