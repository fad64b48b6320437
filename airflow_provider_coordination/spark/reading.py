"""The interface between a job and the kind of source that it reads: before Spark starts, and in its rounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.partition_leases import PartitionLeases
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.landed import Failure, LandedBatch, LandedProgress, LandedRow
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.settings import IngestSettings

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from airflow_provider_coordination.spark.job_spark import JobSpark
    from airflow_provider_coordination.spark.layout import RecordLayout


UNREADABLE_ROUNDS = 5
"""After how many consecutive rounds with an unavailable source a partition counts as failed."""
P = TypeVar("P", bound=LandedProgress)


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
    def is_caught_up(self) -> bool:
        """Whether every partition was read to the newest record, as far as the source reports its lag."""
        return bool(self.behind_ms) and not any(behind is None or behind > 0 for behind in self.behind_ms.values())

    @property
    def longest_lag(self) -> float:
        """The largest lag of a partition, in seconds; infinite if one is not known."""
        lags = [math.inf if behind is None else behind / 1000 for behind in self.behind_ms.values()]
        return max(lags, default=math.inf)

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

    def land(self, *, leave_slot: bool, max_seconds: float = math.inf) -> Sequence[Any]:
        """Read the partitions at work as far as they may be read, and land the records; return a row for each.

        :param leave_slot: whether to leave one slot to a delivery that runs at the same time.
        :param max_seconds: the maximum time for which a partition is read, if it is shorter than the round's.
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


class JobSource(Protocol):
    """The source of one job. The class is constructed with `ReadsSettings`; `SourceKind.reading` names it."""

    @property
    def name(self) -> str:
        """The name of the source in the log, such as `streams clicks`."""
        ...

    @property
    def layout(self) -> RecordLayout:
        """The columns of the landed records."""
        ...

    @property
    def default_leases(self) -> int | None:
        """The maximum number of leases of a job if the user gives none; None for no limit."""
        ...

    @property
    def stop_at(self) -> datetime | None:
        """The instant (aware) up to which the job reads; None if it has no such bound."""
        ...

    @property
    def is_bounded(self) -> bool:
        """Whether every partition comes to an end, so that the job ends once no partition is left for it."""
        ...

    @property
    def worker_imports(self) -> Sequence[str]:
        """The modules that landing needs in Python workers."""
        ...

    def columns(self, spark: JobSpark) -> StructType | None:
        """Return the columns of landed records, with Spark's types, as far as they are known before anything is read.

        :returns: None if they are not known.
        """
        ...

    def opened(self, coordinator: SourceCoordinator) -> Callable[[JobSpark], MakeReading]:
        """Check the source before Spark starts; return a function that makes its reading with Spark.

        :param coordinator: the source's coordinator.
        :raises ConfigurationError: if a setting cannot work.
        :raises CoordinationError: if the source is unavailable.
        """
        ...


def job_source(reads: ReadsSettings) -> JobSource:
    """Return the source that a job reads.

    :raises ConfigurationError: if its kind is unknown, cannot be imported, or has no reading.
    """
    kind = reads.source_kind()
    make: Callable[[ReadsSettings], JobSource] = import_attribute(
        kind.reading, f"kind of source {reads.kind!r}: its reading {kind.reading!r}"
    )
    return make(reads)


class KindPartitions(Generic[P]):
    """The partitions at work whose progress has one class.

    :param partitions: the partitions that the job works on.
    :param leases: the job's leases.
    :param progress: the class of their progress; partitions of other kinds are left out.
    """

    def __init__(self, partitions: PartitionsToRead, leases: PartitionLeases, progress: type[P]) -> None:
        self._partitions = partitions
        self._leases = leases
        self._class = progress
        self._unreadable: dict[str, int] = {}

    def all(self) -> Iterator[tuple[str, P]]:
        """Yield the partitions whose lease is held, with their progress."""
        for key, progress in self._partitions.all():
            if isinstance(progress, self._class):
                yield key, progress

    def to_land(self, besides: Collection[str] = ()) -> Iterator[tuple[str, P, int]]:
        """Yield the partitions that may be read further, with their progress and the fencing token of their lease.

        :param besides: the partitions that are not to be read at present.
        """
        for key, progress in self.all():
            if key not in besides and self._partitions.may_land(key, progress):
                try:
                    token = self._leases.fencing_token(key)
                except LOST:  # a lease that was lost just now is not read
                    continue
                yield key, progress, token

    def progress(self, key: str) -> P:
        """Return the progress of a partition that is held.

        :raises PartitionNotOwnedError: if its lease is lost.
        """
        return self._leases.leased(key).progress_as(self._class.from_mapping)

    def record(
        self,
        row: LandedRow,
        landing: Callable[[P, LandedBatch], P],
        recorded: Callable[[], object] = lambda: None,
    ) -> None:
        """Record a landed batch; see `PartitionsToRead.record`.

        :param landing: returns the progress with the batch in it.
        :param recorded: called once the batch is written.
        """
        key, batch = row.partition_key, row.batch(self._leases.fencing_token(row.partition_key))
        self._partitions.record(key, batch, lambda bounded: landing(self.progress(key), bounded), recorded)

    # Unreadable partitions

    def count_unreadable(self, key: str) -> bool:
        """Count a round in which a partition could not be read; return whether `UNREADABLE_ROUNDS` is reached."""
        self._unreadable[key] = self._unreadable.get(key, 0) + 1
        return self._unreadable[key] >= UNREADABLE_ROUNDS

    def note_readable(self, key: str) -> None:
        """Reset the count of rounds in which a partition could not be read."""
        self._unreadable.pop(key, None)

    def forget_ended(self) -> None:
        """Forget the partitions that the job no longer works on."""
        for key in self._unreadable.keys() - self._partitions.read_until.keys():
            del self._unreadable[key]
