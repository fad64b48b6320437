"""What happens to a partition of items when an acknowledgment set ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from airflow_provider_coordination.coordination.batches import Lookup, Settlement
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.landed import LandedBatches
from airflow_provider_coordination.sources.progress import PartitionProgress


class ItemBatches(LandedBatches):
    """The batches of partitions of items."""

    def __init__(self) -> None:
        super().__init__(PartitionProgress)

    def with_followers(
        self,
        settlement: Settlement,
        partition: Partition,
        before: PartitionProgress,
        after: PartitionProgress,
        lookup: Lookup,
    ) -> Settlement:
        """See `LandedBatches.with_followers`: each item that could not be read becomes a partition of its own."""
        split = {key: first.to_mapping() for key, first in after.split(partition.partition_key).items()}
        if not after.will_be_reread:
            return replace(settlement, create=split)
        wait = timedelta(seconds=after.reread_seconds or 0.0)
        return replace(settlement, progress=after.for_next_read().to_mapping(), reopen_after=wait, create=split)
