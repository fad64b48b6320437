"""A few records of streams, read without a lease: enough to see whether a stream exists and what it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from airflow_provider_coordination.sources.kinesis.aggregation import expand
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.errors import kinesis_errors
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, list_shards

RECORDS = 20
"""The maximum number of records of a stream."""
SHARDS = 4
"""The maximum number of shards of a stream that are read, so that a large stream costs no more than a small one."""
PAGES = 3
"""The maximum number of pages of a shard: a shard that was quiet for a while returns empty pages first."""
LOOKS_BACK = timedelta(hours=1)


def sample(client: KinesisClient, streams: Iterable[str]) -> list[bytes]:
    """Return the payloads of some recent records; empty if there are none.

    :raises StreamNotFoundError: if a stream does not exist.
    :raises SourceError: if Kinesis is unavailable.
    """
    return [payload for stream in streams for payload in islice(_payloads(client, stream), RECORDS)]


def _payloads(client: KinesisClient, stream: str) -> Iterator[bytes]:
    described = describe_stream(client, stream, ready_within_seconds=0.0)
    begin = (described.described_at or datetime.now(UTC)) - LOOKS_BACK
    open_shards = [shard for shard in list_shards(client, stream) if shard.is_open]
    for shard in open_shards[:SHARDS]:
        with kinesis_errors(client, stream, shard.shard_id):
            iterator = client.get_shard_iterator(
                StreamName=stream, ShardId=shard.shard_id, ShardIteratorType="AT_TIMESTAMP", Timestamp=begin
            )["ShardIterator"]
        for _ in range(PAGES):
            with kinesis_errors(client, stream, shard.shard_id):
                page = client.get_records(ShardIterator=iterator, Limit=RECORDS)
            for record in page["Records"]:
                yield from (data for _, _, data in expand(record["Data"], record["PartitionKey"]))
            iterator = page.get("NextShardIterator")
            if iterator is None or page["Records"]:
                break
