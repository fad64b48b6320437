"""The leases of a source for shard sync, audit and cleanup: by stream and shard, with their progress."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.keys import ShardKey, parse_partition_key
from airflow_provider_coordination.sources.kinesis.positions import is_sequence_number
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress


class StreamKey(NamedTuple):
    """A stream that exists or existed; another stream of the same name has another epoch."""

    stream: str
    creation_epoch: int

    def __str__(self) -> str:
        return f"{self.stream}:{self.creation_epoch}"


@dataclass(frozen=True)
class ShardLease:
    """The lease of a shard.

    :param key: the parsed key of its partition.
    :param partition: as it was read.
    :param progress: the progress of the partition; None if it cannot be read.
    """

    key: ShardKey
    partition: Partition
    progress: ShardProgress | None

    @property
    def is_finished(self) -> bool:
        """Whether it is COMPLETED."""
        return self.partition.status is PartitionStatus.COMPLETED

    @property
    def is_started(self) -> bool:
        """Whether some or all of the shard is delivered, so that its start no longer matters."""
        return self.is_finished or (self.progress is not None and is_sequence_number(self.progress.checkpoint))

    @property
    def is_put_aside(self) -> bool:
        """Whether shard sync parked it because of its stream, and it was not written since."""
        mark = None if self.progress is None else self.progress.put_aside
        return self.partition.is_parked and mark is not None and mark.version == self.partition.version


Leases = Mapping[str, ShardLease]
"""The leases of one stream, by shard."""


def leases_by_stream(partitions: Iterable[Partition]) -> dict[StreamKey, dict[str, ShardLease]]:
    """Return the leases of shards, by stream and shard; partitions of other kinds are left out."""
    by_stream: dict[StreamKey, dict[str, ShardLease]] = defaultdict(dict)
    for partition in partitions:
        try:
            key = parse_partition_key(partition.partition_key)
        except ValueError:
            continue  # not a shard: the source may hold partitions of other kinds
        by_stream[StreamKey(key.stream, key.creation_epoch)][key.shard_id] = ShardLease(
            key, partition, stored_progress(partition)
        )
    return dict(by_stream)


def stored_progress(partition: Partition) -> ShardProgress | None:
    """Return the progress that a shard's partition stores; None if it cannot be read."""
    try:
        return ShardProgress.from_mapping(partition.progress)
    except SourceError:
        return None
