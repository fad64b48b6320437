"""The seam between a job's rounds and the kind of source that it reads."""

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
"""How many rounds in a row a source that does not answer is asked for a partition, before that counts as a failure."""


@dataclass(frozen=True, kw_only=True)
class RoundRead:
    """What one round read, for the log and the metrics.

    :param partitions: of how many partitions something was landed.
    :param bytes: payload bytes of what was landed.
    :param items: how many items were done with; None where the source has none.
    :param gone: how many of these were not there any more.
    :param set_aside: how many of these could not be read.
    :param behind_ms: how far each partition is behind its source, by its key, in milliseconds; None where nobody says.
    :param filtered: records that were left out because they belong to another partition.
    :param throttled: reads that the source refused because there were too many.
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
        """Its text in the log beside bytes and records; how far it is behind only where somebody knows."""
        items = "" if self.items is None else f" items={self.items} gone={self.gone} set_aside={self.set_aside}"
        lags = " ".join(f"{name}={behind}" for name, behind in self.behind_ms.items() if behind is not None)
        return f"partitions={self.partitions}{items}{f' lag_ms=[{lags}]' if lags else ''}"


class PartitionsToRead(Protocol):
    """The partitions that a job works on, as far as a reading has to do with them."""

    @property
    def read_until(self) -> Mapping[str, datetime | None]:
        """The partitions at work: up to which arrival time each is read; None where that is not known."""
        ...

    def all(self) -> Iterator[tuple[str, LandedProgress]]:
        """Yield the partitions whose lease is held, with their progress; one whose progress is unreadable fails."""
        ...

    def may_land(self, key: str, progress: LandedProgress) -> bool:
        """Return whether a partition may be read further: it is not to be handed over, at most one batch is in
        delivery, and not too much is pending."""
        ...

    def note_read(self, key: str, until: datetime | None) -> None:
        """Note up to when a partition is read in which nothing was found."""
        ...

    def recording(self, key: str) -> AbstractContextManager[None]:
        """Let a partition whose landed batch cannot be recorded end no round: it is dropped, or the partition fails."""
        ...

    def record(
        self,
        key: str,
        batch: LandedBatch,
        landing: Callable[[LandedBatch], LandedProgress],
        recorded: Callable[[], object] = ...,
    ) -> None:
        """Have a landed batch recorded, which fixes it, with the bounds outside which its records are late or early.

        It is written with those of the other partitions, once `Reading.record` returns.

        :param landing: makes the partition's progress with a batch in it out of its present progress; called again
            where somebody acknowledged an earlier batch during that time.
        :param recorded: called once it is written.
        """
        ...

    def park(self, key: str, reason: str, progress: dict[str, Any], failure: Failure) -> None:
        """Put a partition aside for a person to decide about: trying again cannot help."""
        ...

    def fail(self, key: str, reason: str, failure: Failure) -> None:
        """Give a partition back, with its landed batches; the retry policy decides when it is tried again."""
        ...


class Reading(Protocol):
    """What a job's rounds leave to the kind of source: which partitions may be read, and landing them."""

    @property
    def at_stop(self) -> Collection[str]:
        """The partitions of which everything up to the job's `stop_at` is landed."""
        ...

    @property
    def expects_more(self) -> bool:
        """Whether there will soon be something to acquire, though nothing is there now."""
        ...

    def look_after(self) -> None:
        """Look after the source, before leases are acquired; forget what is not at work any more."""
        ...

    def may_begin(self, partition: Partition) -> bool:
        """Return whether a partition that was acquired can be worked on; otherwise it has been given back.

        :raises SourceError: if it cannot, and that is an error.
        """
        ...

    def land(self, *, leave_slot: bool) -> Sequence[Any]:
        """Read what may be read of the partitions at work, and land it; return a row for each.

        :param leave_slot: whether a delivery goes on meanwhile that a slot is to be left to.
        """
        ...

    def record(self, rows: Sequence[Any]) -> RoundRead:
        """Have recorded what was landed, or give back what could not be read."""
        ...

    def completed(self, partition: Partition) -> None:
        """Do what is left to do once a partition is delivered to its end."""
        ...

    def end_round(self) -> None:
        """Do what has to wait until everything that is landed is delivered."""
        ...

    def last_known(self, key: str) -> LandedProgress | None:
        """Return the progress with which a partition at work is given back that has nothing left to deliver; None if
        what is stored says everything.

        :raises PartitionNotOwnedError: if its lease is lost.
        """
        ...


MakeReading = Callable[[IngestSettings, SourceCoordinator, PartitionsToRead, Summary], Reading]
"""Makes the reading of a job, of its settings, its coordinator, what it works on and its report."""
