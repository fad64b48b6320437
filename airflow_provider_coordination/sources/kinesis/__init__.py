"""Kinesis data streams as a source: every shard is one partition.

`client` talks to the service and `errors` says what went wrong; `shards` lists what a stream consists of;
`leases` decides which shards become partitions and `sync` creates them; `progress` is what a partition
remembers; `reader` reads a shard from a position on by polling and `fan_out` by subscriptions, both as
`pages`; `batch_reading` decides what of them makes a batch; `aggregation` takes apart what the Kinesis Producer
Library put together, and `user_records` does so for whole pages.
"""
