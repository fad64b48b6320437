"""Which shards become partitions, and what those are called. Pure decisions, no I/O.

The rule, for reading a stream from the earliest record on: a shard's lease is created when every *listed*
parent is finished, and never before. A shard is finished when its lease is COMPLETED, or when it has no
lease (any more) but a descendant has one: since a child's lease is only ever created after its parents',
such a parent was worked off and cleaned up. Where the Kinesis Client Library reads the parent once more
(a sibling is leased, the parent's lease is gone), this rule does not: those records were delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.shards import Shard


class ShardKey(NamedTuple):
    """What a partition key says."""

    stream: str
    creation_epoch: int
    shard_id: str


def partition_key(stream: str, creation_epoch: int, shard_id: str) -> str:
    """Return the key of a shard's partition: `<stream>:<creation epoch>:<shard id>`.

    The epoch makes a stream that was deleted and created again another one, as in the Kinesis Client Library.

    :param stream: the stream's name.
    :param creation_epoch: when the stream was created, in whole seconds since 1970.
    :param shard_id: the shard's name.
    """
    return f"{stream}:{creation_epoch}:{shard_id}"


def parse_partition_key(text: str) -> ShardKey:
    """Return what `partition_key` put together.

    :raises ValueError: if the text is not such a key.
    """
    stream, _, rest = text.partition(":")
    epoch, _, shard_id = rest.partition(":")
    if not (stream and shard_id and ":" not in shard_id and epoch.isascii() and epoch.isdigit() and int(epoch) > 0):
        raise ValueError(f"partition key '{text}' is not <stream>:<creation epoch in seconds>:<shard id>")
    return ShardKey(stream, int(epoch), shard_id)


def leases_to_create(shards: Sequence[Shard], existing: Mapping[str, PartitionStatus]) -> list[Shard]:
    """Return the shards whose leases are to be created now, ancestors first.

    :param shards: what ListShards returned, every shard still listed.
    :param existing: the shards that have a lease, with its status; they need not be listed any more.
    """
    listed = {shard.shard_id: shard for shard in shards}
    overtaken = _ancestors(listed, existing)

    def is_finished(shard_id: str) -> bool:
        if shard_id in existing:
            return existing[shard_id] is PartitionStatus.COMPLETED
        return shard_id in overtaken

    due = [
        shard
        for shard in listed.values()
        if shard.shard_id not in existing
        and not is_finished(shard.shard_id)
        and all(is_finished(parent) for parent in shard.parent_shard_ids if parent in listed)
    ]
    return sorted(due, key=lambda shard: (int(shard.starting_sequence_number), shard.shard_id))


def _ancestors(listed: Mapping[str, Shard], leased: Iterable[str]) -> set[str]:
    """Return the listed shards that a listed, leased shard descends from."""
    found: set[str] = set()
    waiting = [shard_id for shard_id in leased if shard_id in listed]
    while waiting:
        for parent in listed[waiting.pop()].parent_shard_ids:
            if parent in listed and parent not in found:
                found.add(parent)
                waiting.append(parent)
    return found
