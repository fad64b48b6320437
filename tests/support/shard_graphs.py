"""Shard graphs of the Kinesis Client Library's own tests (`HierarchicalShardSyncerTest`), with short names."""

from __future__ import annotations

from airflow_provider_coordination.sources.kinesis.shards import MAX_HASH_KEY, Shard


def shard(
    name: int | str, start: int, end: int | None, *parents: int | str, keys: tuple[int, int] = (0, MAX_HASH_KEY)
) -> Shard:
    """Return a shard that is open without an end."""
    first, last = keys
    return Shard(
        str(name), tuple(str(parent) for parent in parents), str(first), str(last), str(start), end and str(end)
    )


def slice_of(first: int, last: int, of: int) -> tuple[int, int]:
    """Return the hash keys from slice `first` to slice `last` (included), where all are cut into this number."""
    size = (MAX_HASH_KEY + 1) // of
    return first * size, MAX_HASH_KEY if last == of - 1 else (last + 1) * size - 1


GRAPH_A = [
    *(shard(root, 11, 102, keys=slice_of(2 * root, 2 * root + 1, 12)) for root in range(4)),
    shard(4, 11, None, keys=slice_of(8, 9, 12)),
    shard(5, 11, 205, keys=slice_of(10, 11, 12)),
    shard(6, 103, 205, 0, 1, keys=slice_of(0, 3, 12)),
    shard(7, 103, 205, 2, 3, keys=slice_of(4, 7, 12)),
    shard(8, 206, None, 6, 7, keys=slice_of(0, 7, 12)),
    shard(9, 206, None, 5, keys=slice_of(10, 10, 12)),
    shard(10, 206, None, 5, keys=slice_of(11, 11, 12)),
]
GRAPH_B = [
    shard(0, 11, 100),
    shard(1, 11, 100),
    shard(2, 101, 200, 0, 1),
    shard(3, 201, 300, 2),
    shard(4, 201, 300, 2),
    shard(5, 301, 400, 3, 4),
    shard(6, 401, 500, 5),
    shard(7, 401, 500, 5),
    shard(8, 501, 600, 6, 7),
    shard(9, 601, None, 8),
    shard(10, 601, None, 8),
]
GRAPH_C = [
    shard(0, 11, 102),
    shard(1, 11, None),
    shard(2, 11, 102),
    shard(3, 11, 102),
    shard(4, 103, 205, 0),
    shard(5, 103, 205, 0),
    shard(6, 103, None, 2, 3),
    shard(7, 206, None, 4),
    shard(8, 206, None, 4),
    shard(9, 206, None, 5),
    shard(10, 206, None, 5),
]
