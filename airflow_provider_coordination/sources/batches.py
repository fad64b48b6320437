"""The batches of any source, for code that ends acknowledgment sets without knowing the kind of source."""

from __future__ import annotations

from airflow_provider_coordination.coordination.batches import (
    BatchLedger,
    Lookup,
    Progress,
    Settlement,
    WholePartition,
)
from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinds import kind_of
from airflow_provider_coordination.sources.landed import LandedProgress, pending_sets


class SourceBatches(BatchLedger):
    """A `BatchLedger` for every kind of source; it finds the kind by the partition's progress."""

    def __init__(self) -> None:
        self._whole = WholePartition()

    @override
    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        return self._of(progress).set_of(progress, batch_id)

    @override
    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        return self._of(progress).in_delivery(progress, batch_id, set_id)

    @override
    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        return self._of(partition.progress).delivered(partition, batch_id, lookup)

    @override
    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        return self._of(partition.progress).undelivered(partition, batch_id)

    def pending(self, progress: Progress) -> list[str]:
        """Return the acknowledgment sets that a partition's batches wait for.

        :raises SourceError: if the progress is not in the format of its kind.
        """
        landed = landed_progress(progress)
        if landed is not None:
            return pending_sets(landed.landed)
        waiting = self._whole.set_of(progress, "")
        return [] if waiting is None else [waiting]

    def _of(self, progress: Progress) -> BatchLedger:
        kind = kind_of(progress)
        return self._whole if kind is None else kind.batches


def landed_progress(progress: Progress) -> LandedProgress | None:
    """Return a partition's progress as an object of its kind; None if it names no kind.

    :raises SourceError: if the progress is not in the format of its kind.
    """
    kind = kind_of(progress)
    return None if kind is None else kind.progress(progress)


def progress_of(partition: Partition) -> LandedProgress:
    """Return the progress of a partition that a job works on.

    :raises SourceError: if it names no kind, or is not in the format of its kind.
    """
    progress = partition.progress_as(landed_progress)
    if progress is None:
        raise SourceError(
            f"partition {partition.partition_key!r}: its stored progress names no kind of source, so no job can read "
            "it; create partitions with a supplier, or restore the stored progress"
        )
    return progress
