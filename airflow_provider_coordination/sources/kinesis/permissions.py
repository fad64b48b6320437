"""The permissions that reading a stream needs, each with a call that changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from airflow_provider_coordination.permissions import Permission, Proof, prove
from airflow_provider_coordination.sources.kinesis.client import KinesisClient


def permissions(client: KinesisClient, stream: str, consumer_name: str | None = None) -> Iterator[Permission]:
    """Yield the permissions that a stream's tasks and jobs need.

    :param stream: its name.
    :param consumer_name: the consumer that reads it by enhanced fan-out; None if it is polled.
    """
    facts: dict[str, Any] = {}

    def describe() -> None:
        facts.update(client.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"])

    def list_shards() -> None:
        shards = client.list_shards(StreamName=stream, MaxResults=1)["Shards"]
        facts.update({"shard": shards[0]["ShardId"]} if shards else {})

    def iterate() -> None:
        response = client.get_shard_iterator(StreamName=stream, ShardId=facts["shard"], ShardIteratorType="LATEST")
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
        read = partial(client.get_records, ShardIterator=facts["iterator"], Limit=1) if "iterator" in facts else None
        yield Permission(action="kinesis:GetRecords", resource=arn, call=read)
    if consumer_name is not None:
        yield from _fan_out(client, arn, consumer_name)


def _fan_out(client: KinesisClient, arn: str, consumer_name: str) -> Iterator[Permission]:
    describe = None
    if arn.startswith("arn:"):
        describe = partial(client.describe_stream_consumer, StreamARN=arn, ConsumerName=consumer_name)
    yield Permission(action="kinesis:DescribeStreamConsumer", resource=arn, call=describe)
    # Registering or subscribing would disturb another reader, so these are not tested.
    yield Permission(action="kinesis:RegisterStreamConsumer", resource=arn)
    yield Permission(action="kinesis:SubscribeToShard", resource=arn)
