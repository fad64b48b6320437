"""Streams of tables: the tests' own service beside MiniStack, and our client on both."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import pytest
from botocore.exceptions import ClientError

from airflow_provider_coordination.aws import Proof, prove
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.dynamodb import calls
from airflow_provider_coordination.sources.dynamodb.kind import DynamoDBTable
from airflow_provider_coordination.sources.dynamodb_streams.changes import CHANGE_COLUMNS, change_order
from airflow_provider_coordination.sources.dynamodb_streams.client import StreamsClient, streams_client
from airflow_provider_coordination.sources.dynamodb_streams.history import HistoryReader, history_pages
from airflow_provider_coordination.sources.dynamodb_streams.settings import DynamoDBStreams
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.reader import read_shard
from airflow_provider_coordination.sources.kinesis.shards import describe_stream, shard_listing
from airflow_provider_coordination.sources.peek import Peek, PeekLimits
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.dynamodb_server import DynamoDbServer, create_streamed_table
from tests.support.dynamodb_streams import DynamoDbStreams, InProcessDynamoDb, Item, client_of, strings

pytestmark = pytest.mark.integration


@dataclass
class Service:
    """A service with a table that has a stream of one shard.

    :param streams: a client of its streams, as boto3 makes it.
    :param ours: our client.
    """

    table: str
    streams: Any
    ours: StreamsClient
    put: Callable[[Item], object]
    remove: Callable[[Item], object]
    disable: Callable[[], object]

    def change(self) -> None:
        for event in ("1", "2"):
            self.put(strings(id="a", event=event))
        self.put({"id": {"S": "b"}, "n": {"N": "1.23456789"}, "raw": {"B": b"\x00\xff"}, "set": {"NS": ["1", "2"]}})
        self.remove(strings(id="a"))

    @property
    def arn(self) -> str:
        return describe_stream(self.ours, self.table).address

    def refusal(self, operation: str, **request: Any) -> str:
        """Return the code with which a call is refused."""
        with pytest.raises(ClientError) as refused:
            getattr(self.streams, operation)(**request)
        return str(refused.value.response["Error"]["Code"])


@pytest.fixture(params=["ministack", "own"])
def service(request: pytest.FixtureRequest) -> Iterator[Service]:
    if request.param == "own":
        own = DynamoDbStreams()
        own.create_table("orders", shards=1)
        yield Service(
            "orders",
            InProcessDynamoDb(own, "dynamodbstreams"),
            client_of(own),
            lambda item: own.put("orders", item),
            lambda key: own.remove("orders", key["id"]),
            lambda: own.disable("orders"),
        )
        return
    server: DynamoDbServer = request.getfixturevalue("dynamodb")
    table: str = request.getfixturevalue("dynamodb_table")
    tables = server.client()
    create_streamed_table(tables, table, "NEW_AND_OLD_IMAGES")
    ours = streams_client(server.settings, server.settings)
    with contextlib.closing(tables):
        yield Service(
            table,
            ours._streams,
            ours,
            lambda item: tables.put_item(TableName=table, Item=item),
            lambda key: tables.delete_item(TableName=table, Key=key),
            lambda: tables.update_table(TableName=table, StreamSpecification={"StreamEnabled": False}),
        )


def test_changes_are_read_alike(service: Service) -> None:
    service.change()
    [shard] = shard_listing(service.ours, service.arn).shards
    pages = read_shard(service.ours, service.arn, shard.shard_id, "TRIM_HORIZON", retry=RetryBudget(attempts=2))
    rows = next(page.records.changes for page in pages if page.records).to_pylist()  # type: ignore[attr-defined]
    assert [(row["operation"], row["keys"], row["new_image"], row["old_image"], row["data"]) for row in rows] == [
        ("INSERT", '{"id":"a"}', '{"id":"a","event":"1"}', None, '{"id":"a","event":"1"}'),
        ("MODIFY", '{"id":"a"}', '{"id":"a","event":"2"}', '{"id":"a","event":"1"}', '{"id":"a","event":"2"}'),
        ("INSERT", '{"id":"b"}', IMAGE, None, IMAGE),
        ("REMOVE", '{"id":"a"}', None, '{"id":"a","event":"2"}', '{"id":"a"}'),
    ]


IMAGE = '{"id":"b","n":1.23456789,"raw":"AP8=","set":[1,2]}'


def test_history_is_read_alike(service: Service) -> None:
    service.change()
    service.put(strings(id="c", event="1"))
    table = DynamoDBTable(service.table, follow=True, segments=2)
    coordinator = SourceCoordinator(InMemoryStore(), "orders", "test")
    coordinator.initialize()
    described = describe_stream(service.ours, service.table)
    with patch.object(calls, "aws_client", lambda settings, name: service.ours._tables):
        pages = list(history_pages(table, coordinator, described))
        items = [progress["items"][0] for page in pages for progress in page.partitions.values()]
        rows = [
            row for item in items for page in HistoryReader(table).read(item, "") for row in page.records.to_pylist()
        ]
    assert len(items) == 2 and {row["operation"] for row in rows} == {"READ"}
    assert sorted((row["keys"], row["new_image"]) for row in rows) == [
        ('{"id":"b"}', IMAGE),
        ('{"id":"c"}', '{"id":"c","event":"1"}'),
    ]
    [shard] = shard_listing(service.ours, service.arn).shards
    read = read_shard(service.ours, service.arn, shard.shard_id, "TRIM_HORIZON", retry=RetryBudget(attempts=2))
    changes = next(page.records.changes for page in read if page.records)  # type: ignore[attr-defined]
    first = change_order(described.creation_epoch, changes.column("sequence_number")).to_pylist()
    assert max(row["change_order"] for row in rows) < first[0] and first == sorted(first)


def test_composite_key_is_the_same_in_history_and_changes(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    tables = dynamodb.client()
    create_streamed_table(tables, dynamodb_table, keys=("id", "at"))
    tables.put_item(TableName=dynamodb_table, Item=strings(id="a", at="9"))
    client = streams_client(dynamodb.settings, dynamodb.settings)
    table = DynamoDBTable(dynamodb_table, follow=True, segments=1, aws=dynamodb.settings)
    coordinator = SourceCoordinator(InMemoryStore(), "orders", "test")
    coordinator.initialize()
    described = describe_stream(client, dynamodb_table)
    [page] = history_pages(table, coordinator, described)
    [progress] = page.partitions.values()
    [item] = [each for read in HistoryReader(table).read(progress["items"][0], "") for each in read.records.to_pylist()]
    [shard] = shard_listing(client, described.arn).shards
    read = read_shard(client, described.arn, shard.shard_id, "TRIM_HORIZON", retry=RetryBudget(attempts=2))
    changes = next(each.records.changes for each in read if each.records)  # type: ignore[attr-defined]
    assert item["keys"] == changes.column("keys")[0].as_py() == '{"at":"9","id":"a"}'


def test_positions_mean_the_same(service: Service) -> None:
    service.change()
    [shard] = shard_listing(service.ours, service.arn).shards
    at = {"StreamArn": service.arn, "ShardId": shard.shard_id}

    def events(kind: str, **position: str) -> list[str]:
        iterator = service.streams.get_shard_iterator(**at, ShardIteratorType=kind, **position)["ShardIterator"]
        records = service.streams.get_records(ShardIterator=iterator, Limit=2)["Records"]
        return [record["eventName"] for record in records]

    iterator = service.streams.get_shard_iterator(**at, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    second = service.streams.get_records(ShardIterator=iterator)["Records"][1]["dynamodb"]["SequenceNumber"]
    assert events("TRIM_HORIZON") == ["INSERT", "MODIFY"]
    assert events("AT_SEQUENCE_NUMBER", SequenceNumber=second) == ["MODIFY", "INSERT"]
    assert events("AFTER_SEQUENCE_NUMBER", SequenceNumber=second) == ["INSERT", "REMOVE"]
    assert events("LATEST") == []


def test_disabled_stream_ends_and_stays_readable(service: Service) -> None:
    service.change()
    arn = service.arn
    service.disable()
    described = service.streams.describe_stream(StreamArn=arn)["StreamDescription"]
    [shard] = shard_listing(service.ours, arn).shards
    assert (described["StreamStatus"], shard.is_open) == ("DISABLED", False)
    pages = list(read_shard(service.ours, arn, shard.shard_id, "TRIM_HORIZON", retry=RetryBudget(attempts=2)))
    assert (sum(len(page.records) for page in pages), pages[-1].end_of_shard, pages[-1].children) == (4, True, ())
    ended = describe_stream(service.ours, arn).ended
    assert ended is not None and f"--table-name {service.table}" in ended


def test_calls_are_refused_alike(service: Service) -> None:
    service.change()
    arn, shard = service.arn, "shardId-00000001414576573621-f55eea83"
    assert service.refusal("describe_stream", StreamArn=f"{arn}1") == "ResourceNotFoundException"
    wrong = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "LATEST"}
    assert service.refusal("get_shard_iterator", **wrong) == "ResourceNotFoundException"


def no_supplier(coordinator: Any) -> Any:
    raise AssertionError("shards are found without a supplier")


def test_kind_asks_the_service_for_what_it_needs(dynamodb: DynamoDbServer, dynamodb_table: str) -> None:
    kind = get_kind("dynamodb_streams")
    tables = dynamodb.client()
    create_streamed_table(tables, dynamodb_table)
    tables.put_item(TableName=dynamodb_table, Item=strings(id="a", event="1"))
    reads = DynamoDBStreams(dynamodb_table, aws=dynamodb.settings, table_aws=dynamodb.settings)
    settings = reads.resolved().to_mapping()
    service = kind.service(settings)
    assert kind.sample(service, settings) == [b'{"id":"a","event":"1"}']
    peek = Peek(PeekLimits())
    kind.peek(service, settings, peek, no_supplier)
    [change] = peek.records
    assert (change["table_name"], change["operation"], change["data"]) == (
        dynamodb_table,
        "INSERT",
        '{"id":"a","event":"1"}',
    )
    assert list(peek.columns) == [name for name in CHANGE_COLUMNS.names if name != "change_order"]
    assert kind.open_partitions(service, settings) == kind.capacity(settings, ask=True).partitions == 1
    found = kind.permissions(dynamodb_table, lambda name: dynamodb.settings)
    assert found is not None
    proofs = {each.action: each.call is not None and prove(each.call)[0] for each in found[1]}
    calls = ("DescribeTable", "ListStreams", "DescribeStream", "GetShardIterator", "GetRecords")
    assert proofs == {f"dynamodb:{call}": Proof.ALLOWED for call in calls}
