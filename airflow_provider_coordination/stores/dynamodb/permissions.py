"""The permissions of the policy in docs/dynamodb.md, each one with a call that changes nothing.

Writes have a condition that never holds: an item must exist whose key no partition has.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from airflow_provider_coordination.permissions import Permission, Proof, prove
from airflow_provider_coordination.stores.dynamodb.items import INDEX, INDEX_KEY, TABLE_KEY, TTL_ATTRIBUTE
from airflow_provider_coordination.stores.dynamodb.table import creation


def permissions(client: Any, table: str, *, creates: bool, expires: bool) -> Iterator[Permission]:
    """Yield the permissions that a store needs for its table.

    :param client: the boto3 client of DynamoDB.
    :param creates: whether the store may create the table.
    :param expires: whether items expire.
    """
    described: dict[str, Any] = {}

    def describe() -> None:
        described.update(client.describe_table(TableName=table)["Table"])

    is_described = prove(describe)[0] is Proof.ALLOWED
    arn = described.get("TableArn", f"table {table}")
    key = {name: f"doctor|{secrets.token_hex(8)}" for name in TABLE_KEY}
    yield Permission(action="dynamodb:DescribeTable", resource=arn, call=describe)
    for action, call in _items(client, table, key).items():
        yield Permission(action=f"dynamodb:{action}", resource=arn, call=call)
    queue = {"TableName": table, "IndexName": INDEX, "Limit": 1, **_equals(INDEX_KEY[0], key[TABLE_KEY[0]])}
    yield Permission(
        action="dynamodb:Query",
        resource=f"{arn}/index/{INDEX}",
        call=partial(client.query, **queue),
    )
    if creates:
        # The call is refused for an existing table; without a table, it would create one.
        create = partial(client.create_table, TableName=table, **creation(None)) if described else None
        yield Permission(action="dynamodb:CreateTable", resource=arn, call=create, is_needed=not described)
    if expires:
        describe_ttl = partial(client.describe_time_to_live, TableName=table)
        yield Permission(action="dynamodb:DescribeTimeToLive", resource=arn, call=describe_ttl)
        if creates:
            update = _same_expiry(client, table) if is_described else None
            yield Permission(action="dynamodb:UpdateTimeToLive", resource=arn, call=update, is_needed=False)


def _items(client: Any, table: str, key: Mapping[str, str]) -> dict[str, Any]:
    """Return the calls for items, by the action that each one needs."""
    wire = {name: {"S": value} for name, value in key.items()}
    exists = {"TableName": table, "ConditionExpression": f"attribute_exists({TABLE_KEY[0]})"}
    condition = {"ConditionCheck": {**exists, "Key": wire}}
    return {
        "BatchGetItem": partial(client.batch_get_item, RequestItems={table: {"Keys": [wire]}}),
        "ConditionCheckItem": partial(client.transact_write_items, TransactItems=[condition]),
        "DeleteItem": partial(client.delete_item, **exists, Key=wire),
        "GetItem": partial(client.get_item, TableName=table, Key=wire),
        "PutItem": partial(client.put_item, **exists, Item=wire),
        "Query": partial(client.query, TableName=table, Limit=1, **_equals(TABLE_KEY[0], key[TABLE_KEY[0]])),
        "Scan": partial(client.scan, TableName=table, Limit=1, Select="COUNT"),
        "UpdateItem": partial(client.update_item, **exists, Key=wire, UpdateExpression="REMOVE doctorProbe"),
    }


def _equals(name: str, value: str) -> dict[str, Any]:
    return {
        "KeyConditionExpression": "#key = :value",
        "ExpressionAttributeNames": {"#key": name},
        "ExpressionAttributeValues": {":value": {"S": value}},
    }


def _same_expiry(client: Any, table: str) -> Any:
    """Return a call that requests the current TTL setting again, which DynamoDB refuses."""
    states: list[Mapping[str, Any]] = []
    proof, _ = prove(lambda: states.append(client.describe_time_to_live(TableName=table)["TimeToLiveDescription"]))
    if proof is not Proof.ALLOWED or not states or states[0]["TimeToLiveStatus"] not in ("ENABLED", "DISABLED"):
        return None
    [state] = states
    specification = {
        "Enabled": state["TimeToLiveStatus"] == "ENABLED",
        "AttributeName": state.get("AttributeName", TTL_ATTRIBUTE),
    }
    return partial(client.update_time_to_live, TableName=table, TimeToLiveSpecification=specification)
