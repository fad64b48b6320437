"""What DynamoDB Streams is asked about tables: unread changes, permissions, and a sample of records."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from airflow_provider_coordination.aws import AwsSettings, Permission, Proof, aws_client, prove
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.dynamodb_streams import MAX_RECORDS_PER_READ
from airflow_provider_coordination.sources.dynamodb_streams.changes import ChangeRecords
from airflow_provider_coordination.sources.dynamodb_streams.client import EMPTY_PAGES, StreamsClient
from airflow_provider_coordination.sources.kinesis import service as shards
from airflow_provider_coordination.sources.kinesis.client import kinesis_errors
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.positions import parse_position
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from airflow_provider_coordination.sources.kinesis.records import COLUMNS
from airflow_provider_coordination.sources.kinesis.shards import describe_stream
from airflow_provider_coordination.sources.kinesis.stream_names import StreamService, stream_name
from airflow_provider_coordination.sources.landed import ProgressFormatError
from airflow_provider_coordination.sources.peek import Peek, add_rows

UNREAD_PAGES = EMPTY_PAGES + 1
"""How many pages are requested for a lag: a quiet shard is known to be one after `EMPTY_PAGES`."""
RECORDS = 20
"""The maximum number of records of a table."""
SHARDS = 4
"""The maximum number of shards of a table that are read."""


def unread(service: StreamService, partition: Partition, retry: RetryBudget | None = None) -> shards.Unread:
    """Look for the first unread change of a shard.

    One change answers it. Only from an instant on, whole pages are read: changes before the instant come first.

    :param service: the client, and how to name the tables.
    :param partition: the partition of the shard, which has no reader now; otherwise nothing is known.
    :param retry: how long to retry; by default there is one attempt.
    """
    try:
        begins_at_instant = parse_position(ShardProgress.from_mapping(partition.progress).landed_position).timestamp
    except ProgressFormatError:
        return shards.Unread()
    records = 1 if begins_at_instant is None else MAX_RECORDS_PER_READ
    return shards.unread(service, partition, retry, pages=UNREAD_PAGES, page_records=records)


def sample(client: StreamsClient, tables: Iterable[str]) -> list[bytes]:
    """Return the payloads of some recent changes; empty if there are none.

    :raises StreamNotFoundError: if a table does not exist, or has no stream.
    :raises SourceError: if DynamoDB is unavailable.
    """
    return [
        payload.encode()
        for table in tables
        for payload in islice((each for _, page in _pages(client, table) for each in page.data.to_pylist()), RECORDS)
    ]


def peek_tables(client: StreamsClient, tables: Sequence[str], peek: Peek) -> None:
    """Read a few changes of tables, the oldest ones of their open shards.

    :raises StreamNotFoundError: if a table does not exist, or has no stream.
    :raises SourceError: if DynamoDB is unavailable.
    """
    for table in tables:
        for shard_id, page in _pages(client, table):
            add_rows(peek, page.changes, table_name=stream_name(table), shard_id=shard_id)
            if peek.is_full:
                return
    if not peek.records:
        peek.nothing = (
            f"the first {SHARDS} open shards of table {', '.join(map(repr, tables))} begin with no change; write an "
            "item, and try again"
        )


def _pages(client: StreamsClient, table: str) -> Iterator[tuple[str, ChangeRecords]]:
    """Yield the first page of some shards, with the name of the shard."""
    arn = describe_stream(client, table, ready_within_seconds=0.0).address
    for shard in client.list_shards(StreamARN=arn, ShardFilter={"Type": "AT_LATEST"})["Shards"][:SHARDS]:
        name = shard["ShardId"]
        with kinesis_errors(client, table, name):
            at = client.get_shard_iterator(StreamARN=arn, ShardId=name, ShardIteratorType="TRIM_HORIZON")
            records = client.get_records(ShardIterator=at["ShardIterator"], Limit=RECORDS)[COLUMNS]
        yield name, records


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
        listed = streams.describe_stream(StreamArn=facts["LatestStreamArn"])["StreamDescription"]["Shards"]
        facts.update({"shard": listed[0]["ShardId"]} if listed else {})

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
