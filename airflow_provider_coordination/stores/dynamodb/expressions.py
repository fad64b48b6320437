"""DynamoDB requests for partitions: keys, conditions of writes, and queries of the index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.coordination.browsing import PARKED_FROM, BrowsePosition, Filter, SortOrder
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, format_instant
from airflow_provider_coordination.stores.dynamodb.items import INDEX, TABLE_KEY, Item, Value, combination_key, key_of


def only_if_absent() -> dict[str, Any]:
    """Return the condition that no item with this key exists."""
    return {
        "ConditionExpression": "attribute_not_exists(#key)",
        "ExpressionAttributeNames": {"#key": TABLE_KEY[0]},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def at_version(partition: Partition) -> dict[str, Any]:
    """Return a partition's key, and the condition that the stored version matches its `version`."""
    return {
        "Key": key_of(partition.source_identifier, partition.partition_key),
        "ConditionExpression": "#version = :expected",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":expected": {"N": str(partition.version)}},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def conditional_update(partition: Partition, values: Mapping[str, Value | None]) -> dict[str, Any]:
    """Return a conditional update of these attributes; None removes one. Other attributes are not changed."""
    present = {name: value for name, value in values.items() if value is not None}
    absent = [name for name in values if name not in present]
    request = at_version(partition)
    request["UpdateExpression"] = "SET " + ", ".join(f"#{name} = :{name}" for name in present)
    if absent:
        request["UpdateExpression"] += " REMOVE " + ", ".join(f"#{name}" for name in absent)
    request["ExpressionAttributeNames"] |= {f"#{name}": name for name in values}
    request["ExpressionAttributeValues"] |= {f":{name}": value for name, value in present.items()}
    return request


def queue_query(
    source_identifier: str, status: PartitionStatus, *, lowest: str = "", highest: str = ""
) -> dict[str, Any]:
    """Return a query of a source's partitions in a status, in the order of their stored priorities.

    :param lowest: the first priority, as text; empty for no bound.
    :param highest: the last priority, as text; empty for no bound.
    """
    names = {"#queue": "sourceStatusCombinationKey"}
    values = {":queue": {"S": combination_key(source_identifier, status)}}
    condition = "#queue = :queue"
    for bound, sign, name in ((lowest, ">=", ":lowest"), (highest, "<=", ":highest")):
        if bound:
            names["#priority"] = "partitionPriority"
            values[name] = {"S": bound}
            condition += f" AND #priority {sign} {name}"
    return {
        "IndexName": INDEX,
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }


def key_query(source_identifier: str, prefix: str = "") -> dict[str, Any]:
    """Return a query of a source's partitions in the order of their keys.

    :param prefix: the start of the keys; empty for all.
    """
    source, key = TABLE_KEY
    names, values = {"#source": source}, {":source": {"S": source_identifier}}
    condition = "#source = :source"
    if prefix:
        names["#key"], values[":prefix"] = key, {"S": prefix}
        condition += " AND begins_with(#key, :prefix)"
    return {
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }


def filter_expression(wanted: Filter, order: SortOrder) -> tuple[list[str], dict[str, str], dict[str, Value]]:
    """Return the part of a filter that DynamoDB can evaluate: conditions, and their names and values.

    DynamoDB cannot filter by its own keys, so `Filter.matches` does the rest. The filter saves transfer, not reads.
    """
    conditions: list[str] = []
    names: dict[str, str] = {}
    values: dict[str, Value] = {}
    if order is SortOrder.KEY and set(wanted.statuses) != set(PartitionStatus):
        names["#status"] = "sourcePartitionStatus"
        marks = {f":status{n}": {"S": status.value} for n, status in enumerate(sorted(set(wanted.statuses)))}
        values |= marks
        condition = f"#status IN ({', '.join(marks)})"
        if PartitionStatus.UNASSIGNED in wanted.statuses:  # an item without a status reads as UNASSIGNED
            condition = f"({condition} OR NOT attribute_type(#status, :text))"
            values[":text"] = {"S": "S"}
        conditions.append(condition)
    if wanted.owner:
        conditions.append("contains(#owner, :owner)")
        names["#owner"], values[":owner"] = "partitionOwner", {"S": wanted.owner}
    if wanted.parked:
        conditions.append("#reopens >= :parked")
        names["#reopens"], values[":parked"] = "reOpenAt", {"S": PARKED_FROM}
    if wanted.failing:
        conditions.append("#attempts > :none")
        names["#attempts"], values[":none"] = "attempts", {"N": "0"}
    return conditions, names, values


def browse_query(source_identifier: str, wanted: Filter, order: SortOrder) -> dict[str, Any]:
    """Return a query along the table's key or the index, with the filter that DynamoDB can evaluate."""
    if order is SortOrder.PRIORITY:
        [status] = set(wanted.statuses)
        by_lease = status is PartitionStatus.ASSIGNED and wanted.expired_by is not None
        highest = format_instant(wanted.expired_by) if by_lease and wanted.expired_by is not None else ""
        query = queue_query(source_identifier, status, highest=highest)
    else:
        query = key_query(source_identifier, wanted.prefix)
    conditions, names, values = filter_expression(wanted, order)
    if conditions:
        query["FilterExpression"] = " AND ".join(conditions)
        query["ExpressionAttributeNames"] |= names
        query["ExpressionAttributeValues"] |= values
    return query


def position_key(source_identifier: str, status: PartitionStatus | None, position: BrowsePosition) -> dict[str, Value]:
    """Return the key after which a query continues.

    :param source_identifier: the item family.
    :param status: the status of the queue; None for a query in the order of keys.
    :param position: the position of the previous page's end.
    """
    key = key_of(source_identifier, position.partition_key)
    if status is None:
        return key
    queue = {"S": combination_key(source_identifier, status)}
    return key | {"sourceStatusCombinationKey": queue, "partitionPriority": {"S": position.priority}}


def stored_position(item: Item, order: SortOrder) -> BrowsePosition:
    """Return the position of an item in an order."""
    priority = item["partitionPriority"]["S"] if order is SortOrder.PRIORITY else ""
    return BrowsePosition(priority, item["sourcePartitionKey"]["S"])
