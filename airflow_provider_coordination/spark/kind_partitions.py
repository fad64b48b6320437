"""The partitions of one kind that a job works on: which of them may be landed, and how landed batches are recorded."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Generic, TypeVar

from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.partition_leases import PartitionLeases
from airflow_provider_coordination.sources.landed import LandedBatch, LandedProgress
from airflow_provider_coordination.spark.landed_row import LandedRow
from airflow_provider_coordination.spark.reading import UNREADABLE_ROUNDS, PartitionsToRead

P = TypeVar("P", bound=LandedProgress)


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
