"""What Kinesis is asked about streams: their capacity, records that are not read, permissions, and a sample."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from typing import Any

from airflow_provider_coordination.aws import Permission, Proof, prove
from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.kinesis import RECORD_COLUMNS
from airflow_provider_coordination.sources.kinesis.aggregation import expand
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, kinesis_errors
from airflow_provider_coordination.sources.kinesis.pacing import READ_BYTES_PER_SECOND, READS_PER_SECOND, RetryBudget
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.reader import ShardPage, read_shard
from airflow_provider_coordination.sources.kinesis.shards import (
    MIN_RETENTION,
    describe_stream,
    list_shards,
    open_shards,
)
from airflow_provider_coordination.sources.kinesis.stream_names import (
    StreamService,
    is_arn,
    naming,
    naming_read,
    stream_name,
)
from airflow_provider_coordination.sources.landed import ProgressFormatError
from airflow_provider_coordination.sources.peek import Peek
from airflow_provider_coordination.sources.source_kind import Capacity

WRITTEN_BYTES_PER_SECOND = 2**20
"""A shard accepts 1 MiB or 1,000 records a second."""


def capacity_of(settings: Mapping[str, Any]) -> Capacity:
    """Return the limits of a shard that is read with these settings, and the minimum retention of a stream."""
    uses_fan_out = bool(settings.get("consumer_name"))
    return Capacity(
        retention=MIN_RETENTION,
        read_bytes_per_second=READ_BYTES_PER_SECOND,
        is_shared=not uses_fan_out,
        written_bytes_per_second=WRITTEN_BYTES_PER_SECOND,
        reads_per_second=0.0 if uses_fan_out else settings.get("reads_per_second", READS_PER_SECOND),
    )


def extent_of(client: KinesisClient, streams: Sequence[str]) -> tuple[int, timedelta]:
    """Return the number of open shards of the streams, and the shortest retention among the streams.

    :raises SourceError: if the service is unavailable, or a stream does not exist.
    :raises ConfigurationError: if access is denied.
    """
    retention = min(describe_stream(client, name, ready_within_seconds=0).retention for name in streams)
    return sum(open_shards(client, name) for name in streams), retention


PAGES = 3
"""How many pages are requested at most: the first ones may be empty although records follow."""


LEAST_LAG = timedelta(milliseconds=1)
"""The lag of a shard for which a job has something to do, at least, even if its record has just arrived.

A shard that has ended without another record has this lag: a job has to note that, and to read its children.
"""


@dataclass(frozen=True)
class Unread:
    """What a shard that no job reads has for the next one.

    :param lag: how long its first unread record has waited; None if that is not known.
    :param confirmed: its progress, if it is read and delivered up to now; None if it is not, or that is not known.
    """

    lag: timedelta | None = None
    confirmed: Mapping[str, Any] | None = None


def unread(
    service: StreamService,
    partition: Partition,
    retry: RetryBudget | None = None,
    *,
    pages: int = PAGES,
    page_records: int = 1,
) -> Unread:
    """Look for the first unread record of a shard.

    :param service: the client, and how to name the streams.
    :param partition: the partition of the shard, which has no reader now.
    :param retry: how long to retry; by default there is one attempt.
    :param pages: how many pages are requested at most.
    :param page_records: the maximum number of records of a page.
    """
    try:
        progress = ShardProgress.from_mapping(partition.progress)
        if progress.is_ended:
            return Unread(timedelta(0))
        page = _next_page(service, progress, retry, pages, page_records)
    except (ProgressFormatError, SourceError):
        return Unread()
    if page is None:
        return Unread()
    if page.records:
        return Unread(max(page.read_at - page.records[0].approximate_arrival_timestamp, LEAST_LAG))
    if page.end_of_shard:
        return Unread(LEAST_LAG)
    is_known = progress.delivered_until is not None and page.read_at <= progress.delivered_until
    is_confirmed = not (progress.landed or is_known)
    return Unread(timedelta(0), progress.quiet_until(page.read_at).to_mapping() if is_confirmed else None)


def _next_page(
    service: StreamService, progress: ShardProgress, retry: RetryBudget | None, pages: int, page_records: int
) -> ShardPage | None:
    """Return the page of a shard that has its next record, or shows that there is none; None if neither was found."""
    read = read_shard(
        service.client,
        service.address(progress.stream),
        progress.shard_id,
        progress.landed_position,
        page_records=page_records,
        retry=retry or RetryBudget(attempts=1),
    )
    with closing(read):
        shown = (page for page in islice(read, pages) if page.records or page.is_drained or page.end_of_shard)
        return next(shown, None)


def permissions(client: KinesisClient, stream: str, consumer_name: str | None = None) -> Iterator[Permission]:
    """Yield the permissions that a stream's tasks and jobs need.

    :param stream: its name or ARN.
    :param consumer_name: the name or ARN of the consumer that reads it by enhanced fan-out; None if it is polled.
    """
    facts: dict[str, Any] = {}

    def describe() -> None:
        facts.update(client.describe_stream_summary(**naming(stream))["StreamDescriptionSummary"])

    def list_shards() -> None:
        shards = client.list_shards(**naming(stream), MaxResults=1)["Shards"]
        facts.update({"shard": shards[0]["ShardId"]} if shards else {})

    def iterate() -> None:
        response = client.get_shard_iterator(**naming(stream), ShardId=facts["shard"], ShardIteratorType="LATEST")
        facts["iterator"] = response["ShardIterator"]

    # Each call needs the response of the previous one; without it, the permission cannot be tested.
    prove(describe)
    arn = facts.get("StreamARN", f"stream {stream}")
    yield Permission(action="kinesis:DescribeStreamSummary", resource=arn, call=describe)
    yield Permission(action="kinesis:ListShards", resource=arn, call=list_shards)
    if prove(list_shards)[0] is not Proof.ALLOWED or "shard" not in facts:
        yield Permission(action="kinesis:GetShardIterator", resource=arn)
        yield Permission(action="kinesis:GetRecords", resource=arn)
    else:
        yield Permission(action="kinesis:GetShardIterator", resource=arn, call=iterate)
        prove(iterate)
        read = None
        if "iterator" in facts:
            read = partial(client.get_records, ShardIterator=facts["iterator"], Limit=1, **naming_read(stream))
        yield Permission(action="kinesis:GetRecords", resource=arn, call=read)
    if consumer_name is not None:
        yield from _fan_out(client, arn, consumer_name)


def _fan_out(client: KinesisClient, arn: str, consumer_name: str) -> Iterator[Permission]:
    # Registering or subscribing would disturb another reader, so these are not tested.
    if is_arn(consumer_name):
        describe = partial(client.describe_stream_consumer, ConsumerARN=consumer_name)
        yield Permission(action="kinesis:DescribeStreamConsumer", resource=consumer_name, call=describe)
        yield Permission(action="kinesis:SubscribeToShard", resource=consumer_name)
        return
    known = partial(client.describe_stream_consumer, StreamARN=arn, ConsumerName=consumer_name) if is_arn(arn) else None
    yield Permission(action="kinesis:DescribeStreamConsumer", resource=arn, call=known)
    yield Permission(action="kinesis:RegisterStreamConsumer", resource=arn)
    yield Permission(action="kinesis:SubscribeToShard", resource=arn)


RECORDS = 20
"""The maximum number of records of a stream."""
SHARDS = 4
"""The maximum number of shards of a stream that are read, so that a large stream costs no more than a small one."""
SAMPLED_PAGES = 3
"""The maximum number of pages of a shard: a shard that was quiet for a while returns empty pages first."""
LOOKS_BACK = timedelta(hours=1)
RECORD_TYPES: Mapping[str, str] = dict(
    zip(
        RECORD_COLUMNS[:-1],
        ("string", "string", "string", "int64", "string", "timestamp[us, tz=UTC]", "binary"),
        strict=True,
    )
)
"""The Arrow types of the columns of a record, without its batch."""


def sample(client: KinesisClient, streams: Iterable[str]) -> list[bytes]:
    """Return the payloads of some recent records; empty if there are none.

    :raises StreamNotFoundError: if a stream does not exist.
    :raises SourceError: if Kinesis is unavailable.
    """
    return [
        record["data"]
        for stream in streams
        for record in islice(_records(client, stream, RECORDS, is_recent=True), RECORDS)
    ]


def peek_streams(client: KinesisClient, streams: Sequence[str], peek: Peek) -> None:
    """Read a few records of streams: recent ones, or else the oldest ones.

    :raises StreamNotFoundError: if a stream does not exist.
    :raises SourceError: if Kinesis is unavailable.
    """
    each = -(-peek.limits.records // max(len(streams), 1))
    for is_recent in (True, False):
        for stream in streams:
            for record in islice(_records(client, stream, each, is_recent=is_recent), each):
                if peek.is_full:
                    return
                peek.add(record, RECORD_TYPES)
        if peek.records:
            return
    peek.nothing = (
        f"stream {', '.join(map(repr, streams))} has no record of the last hour, nor one on the oldest pages of its "
        f"first {SHARDS} open shards; put a record, and try again"
    )


def _records(client: KinesisClient, stream: str, limit: int, *, is_recent: bool) -> Iterator[dict[str, Any]]:
    """Yield some records of the first open shards of a stream.

    :param limit: the maximum number of records of a page.
    :param is_recent: whether to start an hour ago; otherwise with the oldest record.
    """
    described = describe_stream(client, stream, ready_within_seconds=0.0)
    at: dict[str, Any] = {"ShardIteratorType": "TRIM_HORIZON"}
    if is_recent:
        begin = (described.described_at or datetime.now(UTC)) - LOOKS_BACK
        at = {"ShardIteratorType": "AT_TIMESTAMP", "Timestamp": begin}
    open_shards = [shard for shard in list_shards(client, stream) if shard.is_open]
    for shard in open_shards[:SHARDS]:
        with kinesis_errors(client, stream, shard.shard_id):
            iterator = client.get_shard_iterator(**naming(stream), ShardId=shard.shard_id, **at)["ShardIterator"]
        for _ in range(SAMPLED_PAGES):
            with kinesis_errors(client, stream, shard.shard_id):
                page = client.get_records(ShardIterator=iterator, Limit=limit, **naming_read(stream))
            for record in page["Records"]:
                for sub_sequence_number, partition_key, data in expand(record["Data"], record["PartitionKey"]):
                    yield {
                        "stream": stream_name(stream),
                        "shard_id": shard.shard_id,
                        "sequence_number": record["SequenceNumber"],
                        "sub_sequence_number": sub_sequence_number,
                        "partition_key": partition_key,
                        "approximate_arrival_timestamp": record["ApproximateArrivalTimestamp"].astimezone(UTC),
                        "data": data,
                    }
            iterator = page.get("NextShardIterator")
            if iterator is None or page["Records"]:
                break
