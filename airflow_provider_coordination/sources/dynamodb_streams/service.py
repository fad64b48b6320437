"""What DynamoDB Streams is asked about tables: permissions, and a sample of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from airflow_provider_coordination.aws import AwsSettings, Permission, Proof, aws_client, prove
from airflow_provider_coordination.sources.dynamodb_streams.client import StreamsClient
from airflow_provider_coordination.sources.kinesis.client import kinesis_errors
from airflow_provider_coordination.sources.kinesis.records import COLUMNS
from airflow_provider_coordination.sources.kinesis.shards import describe_stream

RECORDS = 20
"""The maximum number of records of a table."""
SHARDS = 4
"""The maximum number of shards of a table that are read."""


def sample(client: StreamsClient, tables: Iterable[str]) -> list[bytes]:
    """Return the payloads of some recent changes; empty if there are none.

    :raises StreamNotFoundError: if a table does not exist, or has no stream.
    :raises SourceError: if DynamoDB is unavailable.
    """
    return [payload for table in tables for payload in islice(_payloads(client, table), RECORDS)]


def _payloads(client: StreamsClient, table: str) -> Iterator[bytes]:
    arn = describe_stream(client, table, ready_within_seconds=0.0).address
    for shard in client.list_shards(StreamARN=arn, ShardFilter={"Type": "AT_LATEST"})["Shards"][:SHARDS]:
        name = shard["ShardId"]
        with kinesis_errors(client, table, name):
            at = client.get_shard_iterator(StreamARN=arn, ShardId=name, ShardIteratorType="TRIM_HORIZON")
            records = client.get_records(ShardIterator=at["ShardIterator"], Limit=RECORDS)[COLUMNS]
        yield from (payload.encode() for payload in records.data.to_pylist())


def permissions(aws: AwsSettings, table_aws: AwsSettings, table: str) -> Iterator[Permission]:
    """Yield the permissions that the tasks and jobs of a table's stream need.

    :param aws: how to reach DynamoDB Streams.
    :param table_aws: how to reach DynamoDB.
    :param table: the table, by its name or ARN.
    """
    streams, tables = aws_client(aws, "dynamodbstreams"), aws_client(table_aws, "dynamodb")
    facts: dict[str, Any] = {}

    def describe_table() -> None:
        facts.update(tables.describe_table(TableName=table)["Table"])

    def describe() -> None:
        shards = streams.describe_stream(StreamArn=facts["LatestStreamArn"])["StreamDescription"]["Shards"]
        facts.update({"shard": shards[0]["ShardId"]} if shards else {})

    def iterate() -> None:
        at = {"StreamArn": facts["LatestStreamArn"], "ShardId": facts["shard"], "ShardIteratorType": "LATEST"}
        facts["iterator"] = streams.get_shard_iterator(**at)["ShardIterator"]

    # Each call needs the response of the previous one; without it, the permission cannot be tested.
    prove(describe_table)
    arn = facts.get("TableArn", f"table {table}")
    yield Permission(action="dynamodb:DescribeTable", resource=arn, call=describe_table)
    list_streams = partial(streams.list_streams, TableName=facts.get("TableName", table), Limit=1)
    yield Permission(action="dynamodb:ListStreams", resource="*", call=list_streams)
    stream = facts.get("LatestStreamArn")
    is_described = stream is not None and prove(describe)[0] is Proof.ALLOWED and "shard" in facts
    if is_described:
        prove(iterate)
    read = partial(streams.get_records, ShardIterator=facts["iterator"], Limit=1) if "iterator" in facts else None
    calls = {
        "DescribeStream": None if stream is None else describe,
        "GetShardIterator": iterate if is_described else None,
        "GetRecords": read,
    }
    for action, call in calls.items():
        yield Permission(action=f"dynamodb:{action}", resource=stream or f"{arn}/stream/*", call=call)
