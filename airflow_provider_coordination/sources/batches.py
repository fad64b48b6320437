"""The batches of any source, for those who end acknowledgment sets without knowing what the source is."""

from __future__ import annotations

from airflow_provider_coordination.coordination.batches import (
    BatchLedger,
    Lookup,
    Progress,
    Settlement,
    WholePartition,
)
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinesis.batches import ShardBatches, pending_sets
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress


class SourceBatches:
    """Tells by a partition's progress what kind of source it belongs to; a `BatchLedger` for all of them."""

    def __init__(self) -> None:
        self._shards = ShardBatches()
        self._whole = WholePartition()

    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        """See `BatchLedger.set_of`."""
        return self._of(progress).set_of(progress, batch_id)

    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        """See `BatchLedger.in_delivery`."""
        return self._of(progress).in_delivery(progress, batch_id, set_id)

    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        """See `BatchLedger.delivered`."""
        return self._of(partition.progress).delivered(partition, batch_id, lookup)

    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        """See `BatchLedger.undelivered`."""
        return self._of(partition.progress).undelivered(partition, batch_id)

    def pending(self, progress: Progress) -> list[str]:
        """Return the acknowledgment sets that a partition's batches wait for.

        :raises ProgressFormatError: if the progress is not what its source writes.
        """
        if "shard_id" in progress:
            return pending_sets(ShardProgress.from_mapping(progress))
        waiting = self._whole.set_of(progress, "")
        return [] if waiting is None else [waiting]

    def _of(self, progress: Progress) -> BatchLedger:
        return self._shards if "shard_id" in progress else self._whole
