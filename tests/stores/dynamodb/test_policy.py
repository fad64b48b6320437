"""The policy in docs/dynamodb.md allows what the store calls, and nothing else."""

from __future__ import annotations

import inspect
import json
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.stores.dynamodb import DynamoDbStore
from airflow_provider_coordination.stores.dynamodb.table import TableOptions
from tests.stores import test_store_contract
from tests.support.aws_wire import AwsWire
from tests.support.dynamodb_server import DynamoDbServer
from tests.support.partitions import SOURCE

pytestmark = pytest.mark.integration

DOCS = Path(__file__).resolve().parents[3] / "docs" / "dynamodb.md"
TABLE = "arn:aws:dynamodb:eu-west-1:123456789012:table/coordination_partition"
INDEX = f"{TABLE}/index/source-status"
IN_A_TRANSACTION = {"Update": "UpdateItem", "Put": "PutItem", "ConditionCheck": "ConditionCheckItem"}


def documented() -> set[tuple[str, str]]:
    """Return each action that the policy of the docs allows, with its resource."""
    (policy,) = (json.loads(block) for block in re.findall(r"^```json\n(.*?)^```", DOCS.read_text(), re.M | re.S))
    allowed = set()
    for statement in policy["Statement"]:
        assert statement["Effect"] == "Allow"
        actions = statement["Action"]
        for action in [actions] if isinstance(actions, str) else actions:
            assert (action, statement["Resource"]) not in allowed, "documented twice"
            allowed.add((action, statement["Resource"]))
    return allowed


def permissions(operation: str, request: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what AWS asks for before it does this: for a transaction, what each part of it would need alone."""
    if operation == "TransactWriteItems":
        for action in request["TransactItems"]:
            (kind,) = action
            yield f"dynamodb:{IN_A_TRANSACTION[kind]}", TABLE
    else:
        index = request.get("IndexName")
        assert index in (None, "source-status")
        yield f"dynamodb:{operation}", INDEX if index else TABLE


def test_documented_policy_matches_the_calls_of_the_store(dynamodb: DynamoDbServer) -> None:
    needed: set[tuple[str, str]] = set()

    def run(use: Any, *, table: str | None = None, **options: Any) -> str:
        table = table or f"test-{uuid.uuid4().hex[:12]}"
        with closing(DynamoDbStore(dynamodb.settings, table=table, **options)) as store:
            wire = AwsWire(store.client)
            store.initialize()
            use(store)
        for operation, request in wire.requests:
            needed.update(permissions(operation, request))
        return table

    def read_everything(store: DynamoDbStore) -> None:
        store.source_identifiers()
        store.count_by_status(SOURCE)
        store.query(SOURCE, PartitionStatus.COMPLETED)

    contract = [
        test
        for name, test in vars(test_store_contract).items()
        if name.startswith("test_") and list(inspect.signature(test).parameters) == ["store"]
    ]
    assert len(contract) >= 20
    tables = [run(test) for test in contract]
    tables.append(run(read_everything, ttl_seconds=60))
    run(read_everything, table=tables[-1], ttl_seconds=60, options=TableOptions(skip_creation=True))
    for table in tables:
        dynamodb.client().delete_table(TableName=table)

    assert needed == documented()


def test_policy_without_creation_and_expiry_needs_fewer_statements(
    dynamodb: DynamoDbServer, store: DynamoDbStore, dynamodb_table: str
) -> None:
    """The docs say which statements may go."""
    checking = DynamoDbStore(dynamodb.settings, table=dynamodb_table, options=TableOptions(skip_creation=True))
    with closing(checking):
        wire = AwsWire(checking.client)
        checking.initialize()

    assert wire.operations == ["DescribeTable"]
