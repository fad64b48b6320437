from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from tests.support.aws_wire import AwsWire
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.partitions import SOURCE

MakeStore = Callable[..., DynamoDbStore]


@pytest.fixture
def make_store(dynamodb: DynamoDbServer, dynamodb_table: str) -> Iterator[MakeStore]:
    """Makes stores of one table, as different processes would."""
    with ExitStack() as stack:

        def make(**options: Any) -> DynamoDbStore:
            defaults: dict[str, Any] = {"table": dynamodb_table, "retry_deadline_seconds": 5.0}
            return stack.enter_context(closing(DynamoDbStore(dynamodb.settings, **(defaults | options))))

        yield make


@pytest.fixture
def store(make_store: MakeStore) -> DynamoDbStore:
    store = make_store()
    store.initialize()
    return store


@pytest.fixture
def wire(store: DynamoDbStore) -> AwsWire:
    return AwsWire(store.client)


@pytest.fixture
def other(make_store: MakeStore, store: DynamoDbStore) -> DynamoDbStore:
    """Another worker's view of the same table."""
    return make_store()


@pytest.fixture
def raw(dynamodb: DynamoDbServer, dynamodb_table: str) -> RawTable:
    return RawTable(dynamodb.client(), dynamodb_table)


class RawTable:
    """The table as other programs read it."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name

    def item(self, key: str, source: str = SOURCE) -> dict[str, Any]:
        item: dict[str, Any] = self.client.get_item(
            TableName=self.name,
            Key={"sourceIdentifier": {"S": source}, "sourcePartitionKey": {"S": key}},
            ConsistentRead=True,
        )["Item"]
        return item

    def put(self, key: str, source: str = SOURCE, **attributes: str | int) -> None:
        values = {name: {"N" if isinstance(v, int) else "S": str(v)} for name, v in attributes.items()}
        item = {"sourceIdentifier": {"S": source}, "sourcePartitionKey": {"S": key}, **values}
        self.client.put_item(TableName=self.name, Item=item)
