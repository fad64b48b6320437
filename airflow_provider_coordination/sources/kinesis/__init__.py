"""Kinesis data streams as a source: every shard is one partition.

`client` makes the calls and `errors` translates their errors; `shards` lists a stream's shards;
`leases` decides which shards become partitions and `sync` creates them; `progress` is the stored progress of a
shard's partition; `reader` polls a shard and `fan_out` subscribes to it, both from a position on and as `pages`;
`batch_reading` decides which records of the pages make a batch; `aggregation` splits the aggregates of the Kinesis
Producer Library, and `user_records` does so for whole pages.
"""
