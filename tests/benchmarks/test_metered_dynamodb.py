"""The counted cost of requests, and the agreement of the server's reports with AWS's published rules."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.metered_dynamodb import Meter, Tally, Turnstile, cost_of, item_bytes
from tests.support.dynamodb_server import DynamoDbServer

INDEX_KEY = ("queue", "priority")


def test_refused_write_costs_a_write_to_the_table() -> None:
    answer = {"Error": {"Code": "ConditionalCheckFailedException"}}

    assert cost_of("UpdateItem", answer) == Tally(requests=1, refused=1, write_units=1)


def test_other_failed_request_ends_the_count() -> None:
    with pytest.raises(ValueError, match="Throttling"):
        cost_of("PutItem", {"Error": {"Code": "ThrottlingException"}})


def test_item_size_counts_names_and_values() -> None:
    assert item_bytes({"key": {"S": "ä"}, "version": {"N": "12345"}}) == 3 + 2 + 7 + 4


@pytest.mark.parametrize("seed", [1, 2])
def test_worker_order_depends_on_the_seed_alone(seed: int) -> None:
    assert passages(seed) == passages(seed)


def test_another_seed_gives_another_order() -> None:
    assert passages(1) != passages(2)


def passages(seed: int) -> list[str]:
    turnstile = Turnstile({"a", "b", "c"}, seed)
    passed: list[str] = []

    def pass_often(worker: str) -> None:
        for _ in range(20):
            turnstile.wait(worker)
            passed.append(worker)
        turnstile.leave(worker)

    threads = [threading.Thread(target=pass_often, args=(worker,)) for worker in ("c", "a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return passed


@pytest.fixture
def client(dynamodb: DynamoDbServer, dynamodb_table: str) -> Iterator[Any]:
    client = dynamodb.client()
    client.create_table(
        TableName=dynamodb_table,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("key", *INDEX_KEY)],
        KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}],
        GlobalSecondaryIndexes=[
            {
                "IndexName": "by-queue",
                "KeySchema": [
                    {"AttributeName": name, "KeyType": kind}
                    for name, kind in zip(INDEX_KEY, ("HASH", "RANGE"), strict=True)
                ],
                "Projection": {"ProjectionType": "ALL"},
            }
        ],
    )
    yield client
    client.close()


def item(queue: str = "waiting", priority: str = "1", padding: int = 300, version: int = 0) -> dict[str, Any]:
    return {
        "key": {"S": "partition"},
        "queue": {"S": queue},
        "priority": {"S": priority},
        "padding": {"S": "x" * padding},
        "version": {"N": str(version)},
    }


@pytest.mark.integration
@pytest.mark.parametrize(
    ("stored", "written", "units"),
    [
        (None, item(), 1 + 1),
        (item(), item(), 1 + 0),
        (item(), item(version=1), 1 + 1),
        (item(), item(queue="leased"), 1 + 2),
        (item(), item(priority="2"), 1 + 2),
        (None, item(padding=1500), 2 + 2),
        (item(padding=1500), item(padding=300, priority="2"), 2 + 2 + 1),
    ],
    ids=["new", "the same", "not the key", "the hash key", "the range key", "new, 2 KB", "shrunk and moved"],
)
def test_put_costs_its_changes_in_table_and_index(
    client: Any, dynamodb_table: str, stored: dict[str, Any] | None, written: dict[str, Any], units: float
) -> None:
    if stored:
        client.put_item(TableName=dynamodb_table, Item=stored)
    meter = Meter(client, lambda: None)

    with meter.counting() as cost:
        client.put_item(TableName=dynamodb_table, Item=written)

    assert cost == Tally(requests=1, write_units=units)


@pytest.mark.integration
@pytest.mark.parametrize(("items", "units"), [(0, 0.5), (1, 0.5), (11, 0.5), (12, 1.0)])
def test_query_costs_half_a_unit_per_four_kilobytes(client: Any, dynamodb_table: str, items: int, units: float) -> None:
    stored = [item() | {"key": {"S": f"partition-{number:03d}"}} for number in range(items)]
    assert (sum(map(item_bytes, stored)) > 4096) == (units > 0.5)
    for each in stored:
        client.put_item(TableName=dynamodb_table, Item=each)
    meter = Meter(client, lambda: None)

    with meter.counting() as cost:
        client.query(
            TableName=dynamodb_table,
            IndexName="by-queue",
            KeyConditionExpression="queue = :queue",
            ExpressionAttributeValues={":queue": {"S": "waiting"}},
        )

    assert cost == Tally(requests=1, read_units=units)
