"""What is asked of DynamoDB for a partition: its key, the conditions of writes, and the queues of the index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.stores.dynamodb.items import INDEX, TABLE_KEY, Value, combination_key, key_of


def only_if_absent() -> dict[str, Any]:
    """Return the condition that there is no item of this key."""
    return {
        "ConditionExpression": "attribute_not_exists(#key)",
        "ExpressionAttributeNames": {"#key": TABLE_KEY[0]},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def at_version(partition: Partition) -> dict[str, Any]:
    """Return a partition's key, and the condition that the stored version is the one that it carries."""
    return {
        "Key": key_of(partition.source_identifier, partition.partition_key),
        "ConditionExpression": "#version = :expected",
        "ExpressionAttributeNames": {"#version": "version"},
        "ExpressionAttributeValues": {":expected": {"N": str(partition.version)}},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def conditional_update(partition: Partition, values: Mapping[str, Value | None]) -> dict[str, Any]:
    """Return a conditional update of these attributes, None removing one; all others stay, whoever wrote them."""
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
    """Return a query of a source's partitions in a status, in the order of their priorities' texts.

    :param lowest: the first priority, as text; empty for no bound.
    :param highest: the last priority, as text; empty for no bound.
    """
    names = {"#queue": "sourceStatusCombinationKey"}
    values = {":queue": {"S": combination_key(source_identifier, status)}}
    condition = "#queue = :queue"
    for bound, sign, place in ((lowest, ">=", ":lowest"), (highest, "<=", ":highest")):
        if bound:
            names["#priority"] = "partitionPriority"
            values[place] = {"S": bound}
            condition += f" AND #priority {sign} {place}"
    return {
        "IndexName": INDEX,
        "KeyConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
