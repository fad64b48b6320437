"""Kinesis data streams as a source: every shard is one partition.

`client` makes the calls and translates their errors; `shards` lists a stream's shards; `leases` decides which shards
become partitions and `sync` creates them; `progress` is the stored progress of a shard's partition; `reader` polls a
shard and `fan_out` subscribes to it, both from a position on and page by page; `records` are a page's records;
`batch_reading` decides which of them make a batch; `aggregation` splits the aggregates of the Kinesis Producer Library,
and `user_records` does so for whole pages.
"""

from __future__ import annotations

RECORD_COLUMNS = (
    "stream",
    "shard_id",
    "sequence_number",
    "sub_sequence_number",
    "partition_key",
    "approximate_arrival_timestamp",
    "data",
    "_batch_id",
)
"""The columns of a shard's records in the order in which they are landed; `docs/columns.md` describes them."""
