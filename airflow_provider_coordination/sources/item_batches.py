"""What the end of an acknowledgment set means to a partition of items."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_coordination.coordination.batches import Lookup, Progress, Settlement
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.landed import pending_sets
from airflow_provider_coordination.sources.progress import PartitionProgress


class ItemBatches:
    """How partitions of items keep their batches; a `BatchLedger`."""

    def set_of(self, progress: Progress, batch_id: str) -> str | None:
        """See `BatchLedger.set_of`."""
        batch = PartitionProgress.from_mapping(progress).batch(batch_id)
        return None if batch is None else batch.acknowledgment_set

    def in_delivery(self, progress: Progress, batch_id: str, set_id: str) -> Progress:
        """See `BatchLedger.in_delivery`."""
        return PartitionProgress.from_mapping(progress).in_delivery(batch_id, set_id).to_mapping()

    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        """See `BatchLedger.delivered`: items that could not be read follow a finished partition, each on its own."""
        before = PartitionProgress.from_mapping(partition.progress)
        after = before.acknowledged(batch_id)
        finished = after.is_finished
        split = after.split(partition.partition_key) if finished else {}
        anew = finished and after.will_be_reread
        return Settlement(
            progress=(after.anew() if anew else after).to_mapping(),
            moved=len(after.landed) < len(before.landed),
            finished=finished,
            reopen_after=timedelta(seconds=after.reread_seconds or 0.0) if anew else None,
            pending=pending_sets(after.landed),
            create={key: first.to_mapping() for key, first in split.items()},
        )

    def undelivered(self, partition: Partition, batch_id: str) -> Settlement:
        """See `BatchLedger.undelivered`."""
        after = PartitionProgress.from_mapping(partition.progress).rejected(batch_id)
        return Settlement(progress=after.to_mapping(), pending=pending_sets(after.landed))
