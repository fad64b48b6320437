"""The table and its index: how they are created, awaited, and compared with those of Data Prepper."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from airflow_provider_coordination.aws import Permission, Proof, prove, response_time
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls, RejectedError
from airflow_provider_coordination.stores.dynamodb.items import INDEX, INDEX_KEY, TABLE_KEY, TTL_ATTRIBUTE

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0
USABLE = ("ACTIVE", "UPDATING")
WAITED_FOR = (*USABLE, "CREATING")


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How to create or check the table.

    :param skip_creation: only check it, create and change nothing.
    :param capacity: provisioned read and write units of the table, and the same for the index; None for on-demand. Used
        only when the table is created; an existing table is not changed.
    :param wait_seconds: how long to wait for a table that is being created.
    :param point_in_time_recovery: whether the table is created with point-in-time recovery.
    :param deletion_protection: whether the table is created with deletion protection.
    :param tags: the tags that the table is created with.
    """

    skip_creation: bool = False
    capacity: tuple[int, int] | None = None
    wait_seconds: float = 300.0
    point_in_time_recovery: bool = False
    deletion_protection: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)


def ensure_table(call: DynamoDbCalls, options: TableOptions, *, expire: bool) -> None:
    """Create the table if it does not exist, wait for it, check its keys, and enable TTL if items expire.

    An existing table that has other settings than a new one would get is reported and not changed.

    :param call: makes calls to the table.
    :param options: how to create or check the table.
    :param expire: whether items expire.
    :raises ConfigurationError: if the table has another format, or does not exist and must not be created.
    :raises StoreUnavailableError: if it does not become active in time, or DynamoDB is unavailable.
    """
    table = _describe(call)
    is_created = False
    if table is None:
        if options.skip_creation:
            raise ConfigurationError(
                f"store {call.name}: the table does not exist and 'skip_table_creation' is set; "
                "create it as described in docs/dynamodb.md, or check 'table', 'region' and the account"
            )
        is_created = _create(call, options)
    table = _wait(call, options.wait_seconds, table)
    _check(call, table)
    if is_created and options.point_in_time_recovery:
        call("update_continuous_backups", PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True})
        log.info("store %s: point-in-time recovery is enabled", call.name)
    for difference in () if is_created else _differences(call, table, options):
        log.warning("store %s: %s; the table is not changed", call.name, difference)
    if expire:
        _check_ttl(call) if options.skip_creation else _enable_ttl(call)


def _describe(call: DynamoDbCalls) -> Mapping[str, Any] | None:
    try:
        table: Mapping[str, Any] = call("describe_table", expect=("ResourceNotFoundException",))["Table"]
    except RejectedError:
        return None
    return table


def _differences(call: DynamoDbCalls, table: Mapping[str, Any], options: TableOptions) -> Iterator[str]:
    """Yield what an existing table lacks that the options ask for, each with the remedy."""
    if options.deletion_protection and not table.get("DeletionProtectionEnabled"):
        yield "'deletion_protection' is set and the table has none: enable it in AWS, or remove the field"
    if options.point_in_time_recovery:
        described = call("describe_continuous_backups")["ContinuousBackupsDescription"]
        recovery = described.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
        if recovery != "ENABLED":
            yield "'point_in_time_recovery' is set and the table has none: enable it in AWS, or remove the field"
    if options.tags:
        tags = dict(_tags(call, table["TableArn"]))
        if missing := [f"{name}={value}" for name, value in options.tags.items() if tags.get(name) != value]:
            yield f"the table does not have {', '.join(sorted(missing))} of 'tags': tag it in AWS, or correct the field"


def _tags(call: DynamoDbCalls, arn: str) -> Iterator[tuple[str, str]]:
    more: dict[str, str] = {}
    while True:
        page = call("list_tags_of_resource", ResourceArn=arn, **more)
        yield from ((tag["Key"], tag["Value"]) for tag in page.get("Tags", ()))
        if not page.get("NextToken"):
            return
        more = {"NextToken": page["NextToken"]}


def creation(options: TableOptions) -> dict[str, Any]:
    """Return the parameters of a CreateTable call, except the table's name."""
    throughput: dict[str, Any] = {}
    if options.capacity is not None:
        read, write = options.capacity
        throughput = {"ProvisionedThroughput": {"ReadCapacityUnits": read, "WriteCapacityUnits": write}}
    return {
        "KeySchema": _key_schema(TABLE_KEY),
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in (*TABLE_KEY, *INDEX_KEY)],
        "GlobalSecondaryIndexes": [
            {
                "IndexName": INDEX,
                "KeySchema": _key_schema(INDEX_KEY),
                "Projection": {"ProjectionType": "ALL"},
                **throughput,
            }
        ],
        "BillingMode": "PROVISIONED" if options.capacity else "PAY_PER_REQUEST",
        **throughput,
        **({"DeletionProtectionEnabled": True} if options.deletion_protection else {}),
        **({"Tags": [{"Key": k, "Value": v} for k, v in options.tags.items()]} if options.tags else {}),
    }


def inspect_table(call: DynamoDbCalls) -> tuple[bool, datetime | None]:
    """Return whether the table exists, and the time of DynamoDB's clock in whole seconds.

    :raises ConfigurationError: if the table has another format.
    :raises StoreUnavailableError: if DynamoDB is unavailable.
    """
    try:
        response = call("describe_table", expect=("ResourceNotFoundException",))
    except RejectedError as rejected:
        return False, response_time(getattr(rejected.__cause__, "response", {}))
    _check(call, response["Table"])
    return True, response_time(response)


def _create(call: DynamoDbCalls, options: TableOptions) -> bool:
    """Create the table; return whether this process did it."""
    try:
        call("create_table", expect=("ResourceInUseException",), **creation(options))
    except RejectedError:
        log.info("store %s: another process is creating the table", call.name)
        return False
    log.info("store %s: table and index are being created", call.name)
    return True


def _wait(call: DynamoDbCalls, wait_seconds: float, table: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return the table when it and its index can be used."""
    started = time.monotonic()
    while True:
        table = table or _describe(call)
        state = _pending(table)
        if table is not None and state is None:
            return table
        if table is not None and table["TableStatus"] not in WAITED_FOR:
            raise StoreUnavailableError(f"store {call.name} cannot be used: {state}; check it in AWS")
        waited = time.monotonic() - started
        if waited >= wait_seconds:
            raise StoreUnavailableError(
                f"store {call.name} cannot be used: after {waited:.0f} s of waiting, {state}; check it in AWS"
            )
        log.info("store %s: waiting for %.0f s, %s", call.name, waited, state)
        time.sleep(min(POLL_SECONDS, wait_seconds - waited))
        table = None


def _pending(table: Mapping[str, Any] | None) -> str | None:
    """Return what is not ready yet; None if everything is."""
    if table is None:
        return "the table does not exist yet"
    if table["TableStatus"] not in USABLE:
        return f"the table is {table['TableStatus']}"
    status = {index["IndexName"]: index.get("IndexStatus") for index in table.get("GlobalSecondaryIndexes", [])}
    return f"the index {INDEX} is {status[INDEX]}" if status.get(INDEX) in ("CREATING", "DELETING") else None


def _check(call: DynamoDbCalls, table: Mapping[str, Any]) -> None:
    """Check that the table and its index have the required keys."""
    types = {each["AttributeName"]: each["AttributeType"] for each in table["AttributeDefinitions"]}
    if _keys(table["KeySchema"], types) != _wanted(TABLE_KEY):
        raise ConfigurationError(
            f"store {call.name}: the table has the key {_keys(table['KeySchema'], types)} and must have "
            f"{_wanted(TABLE_KEY)}; give another table in 'table'"
        )
    indexes = {index["IndexName"]: index for index in table.get("GlobalSecondaryIndexes", [])}
    if INDEX not in indexes:
        raise ConfigurationError(
            f"store {call.name}: the table has no index {INDEX!r}, only {sorted(indexes)}; create it with the key "
            f"{_wanted(INDEX_KEY)} and all attributes, or give another table in 'table'"
        )
    index = indexes[INDEX]
    actual = f"{_keys(index['KeySchema'], types)}, projection {index['Projection'].get('ProjectionType')}"
    wanted = f"{_wanted(INDEX_KEY)}, projection ALL"
    if actual != wanted:
        raise ConfigurationError(
            f"store {call.name}: the index {INDEX!r} has the key {actual} and must have {wanted}; "
            "create it again, or give another table in 'table'"
        )


def _enable_ttl(call: DynamoDbCalls) -> None:
    if _ttl_is_on(call):
        return
    specification = {"Enabled": True, "AttributeName": TTL_ATTRIBUTE}
    try:
        call("update_time_to_live", expect=("ValidationException",), TimeToLiveSpecification=specification)
        log.info("store %s: items expire by their %s", call.name, TTL_ATTRIBUTE)
    except RejectedError as rejected:
        if not _ttl_is_on(call):  # another process may have enabled it at this moment
            raise ConfigurationError(
                f"store {call.name}: TTL cannot be enabled: {rejected.message}; try again in an hour, or remove 'ttl'"
            ) from None


def _check_ttl(call: DynamoDbCalls) -> None:
    if not _ttl_is_on(call):
        raise ConfigurationError(
            f"store {call.name}: 'ttl' is set, TTL is disabled on the table and 'skip_table_creation' is set; "
            f"enable TTL on the attribute {TTL_ATTRIBUTE}, or remove 'ttl'"
        )


def _ttl_is_on(call: DynamoDbCalls) -> bool:
    description = call("describe_time_to_live")["TimeToLiveDescription"]
    if description["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
        return False
    if description.get("AttributeName") != TTL_ATTRIBUTE:
        raise ConfigurationError(
            f"store {call.name}: the table's TTL attribute is {description.get('AttributeName')!r} and must be "
            f"{TTL_ATTRIBUTE!r}; disable TTL and enable it again, or remove 'ttl'"
        )
    return True


def _key_schema(names: tuple[str, str]) -> list[dict[str, str]]:
    return [{"AttributeName": n, "KeyType": kind} for n, kind in zip(names, ("HASH", "RANGE"), strict=True)]


def _keys(schema: list[dict[str, str]], types: Mapping[str, str]) -> str:
    keys = sorted(schema, key=lambda key: key["KeyType"])
    return ", ".join(f"{key['AttributeName']} ({key['KeyType']}, {types[key['AttributeName']]})" for key in keys)


def _wanted(names: tuple[str, str]) -> str:
    return _keys(_key_schema(names), dict.fromkeys(names, "S"))


def permissions(client: Any, table: str, options: TableOptions, *, expires: bool) -> Iterator[Permission]:
    """Yield the permissions that a store needs for its table.

    :param client: the boto3 client of DynamoDB.
    :param options: how the store creates and checks the table.
    :param expires: whether items expire.
    """
    described: dict[str, Any] = {}
    creates = not options.skip_creation

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
        create = partial(client.create_table, TableName=table, **creation(TableOptions())) if described else None
        yield Permission(action="dynamodb:CreateTable", resource=arn, call=create, is_needed=not described)
        yield from _of_new_tables(options, arn, is_needed=not described)
    if options.point_in_time_recovery:
        backups = partial(client.describe_continuous_backups, TableName=table)
        yield Permission(action="dynamodb:DescribeContinuousBackups", resource=arn, call=backups)
    if options.tags:
        tags = partial(client.list_tags_of_resource, ResourceArn=arn) if is_described else None
        yield Permission(action="dynamodb:ListTagsOfResource", resource=arn, call=tags)
    if expires:
        describe_ttl = partial(client.describe_time_to_live, TableName=table)
        yield Permission(action="dynamodb:DescribeTimeToLive", resource=arn, call=describe_ttl)
        if creates:
            update = _same_expiry(client, table) if is_described else None
            yield Permission(action="dynamodb:UpdateTimeToLive", resource=arn, call=update, is_needed=False)


def _of_new_tables(options: TableOptions, arn: str, *, is_needed: bool) -> Iterator[Permission]:
    """Yield what only the creation of a table needs; a test would change the table."""
    if options.point_in_time_recovery:
        yield Permission(action="dynamodb:UpdateContinuousBackups", resource=arn, is_needed=is_needed)
    if options.tags:
        yield Permission(action="dynamodb:TagResource", resource=arn, is_needed=is_needed)


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
