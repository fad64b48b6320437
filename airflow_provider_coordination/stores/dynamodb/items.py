"""Partitions as items of a DynamoDB table, attribute by attribute as Data Prepper's source coordination writes them.

Three attributes are additional: `attempts`, `lastError` and `heldSince`. Instants are always written with microseconds,
so that the order of the texts is the order of the instants. They are read with any number of digits, as Java writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from airflow_provider_coordination.coordination.browsing import (
    PARKED_FROM,
    BrowsePosition,
    Filter,
    PageRequest,
    SortOrder,
)
from airflow_provider_coordination.coordination.claims import FAMILY as CLAIM_FAMILY
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
    progress_text,
    read_progress,
)

INDEX = "source-status"
TABLE_KEY = ("sourceIdentifier", "sourcePartitionKey")
INDEX_KEY = ("sourceStatusCombinationKey", "partitionPriority")
TTL_ATTRIBUTE = "expirationTime"

Value = dict[str, str]
"""An attribute's value in the format of DynamoDB's API: `{"S": text}` or `{"N": number}`."""

Item = Mapping[str, Mapping[str, Any]]


def key_of(source_identifier: str, partition_key: str) -> dict[str, Value]:
    """Return the table's key of a partition."""
    return {"sourceIdentifier": {"S": source_identifier}, "sourcePartitionKey": {"S": partition_key}}


def combination_key(source_identifier: str, status: PartitionStatus) -> str:
    """Return the index's hash key of a source's partitions in a status."""
    return f"{source_identifier}|{status}"


def lease_attributes(partition: Partition, ttl_seconds: int | None) -> dict[str, Value | None]:
    """Return the attributes that an acquisition changes; None for attributes that the item must not have.

    :param ttl_seconds: how long a COMPLETED partition is kept; None forever. Data Prepper lets items of every status
        expire, and so loses partitions that wait long. A claim never expires, because its name would be read again.
    """
    is_claim = partition.source_identifier.endswith(f"|{CLAIM_FAMILY}")
    completed = partition.status is PartitionStatus.COMPLETED and not is_claim
    expires = int(partition.priority.timestamp()) + ttl_seconds if completed and ttl_seconds is not None else None
    return {
        "partitionOwner": _text(partition.owner),
        "sourcePartitionStatus": _text(partition.status.value),
        "partitionOwnershipTimeout": _instant(partition.ownership_timeout),
        "heldSince": _instant(partition.held_since),
        "reOpenAt": _instant(partition.reopen_at),
        "version": _number(partition.version),
        "sourceStatusCombinationKey": _text(combination_key(partition.source_identifier, partition.status)),
        "partitionPriority": _instant(partition.priority),
        TTL_ATTRIBUTE: _number(expires),
    }


def attributes(partition: Partition, ttl_seconds: int | None) -> dict[str, Value | None]:
    """Return the attributes of a partition's item except its key; None for attributes that it must not have.

    :param ttl_seconds: see `lease_attributes`.
    :raises ProgressError: if the progress cannot be stored.
    """
    has_progress = bool(partition.progress) or partition.unreadable_progress is not None
    return lease_attributes(partition, ttl_seconds) | {
        "partitionProgressState": _text(progress_text(partition) if has_progress else None),
        "closedCount": _number(partition.closed_count),
        "attempts": _number(partition.attempts or None),
        "lastError": _text(partition.last_error),
    }


def new_item(partition: Partition, ttl_seconds: int | None) -> dict[str, Value]:
    """Return the item of a new partition."""
    present = {name: value for name, value in attributes(partition, ttl_seconds).items() if value is not None}
    return key_of(partition.source_identifier, partition.partition_key) | present


def holds(item: Item, wanted: Mapping[str, Value | None]) -> bool:
    """Return whether an item has these attributes, and does not have those that are None."""
    return all(item.get(name) == value for name, value in wanted.items())


def partition_of(item: Item) -> Partition:
    """Return the partition in an item, whichever program wrote it.

    An item without a status, such as the global items of Data Prepper's newer sources, reads as UNASSIGNED.

    :raises ConfigurationError: if an attribute has a format that neither this package nor Data Prepper writes.
    """
    values = {name: next(iter(value.values())) for name, value in item.items() if "NULL" not in value}
    try:
        timeout, reopen_at, held_since = (
            _read_instant(values.get(name)) for name in ("partitionOwnershipTimeout", "reOpenAt", "heldSince")
        )
        return Partition(
            source_identifier=values["sourceIdentifier"],
            partition_key=values["sourcePartitionKey"],
            status=PartitionStatus(values.get("sourcePartitionStatus", PartitionStatus.UNASSIGNED)),
            owner=values.get("partitionOwner"),
            ownership_timeout=timeout,
            held_since=held_since,
            reopen_at=reopen_at,
            closed_count=int(values.get("closedCount", 0)),
            version=int(values.get("version", 0)),
            priority=_read_instant(values.get("partitionPriority")) or timeout or reopen_at or _LONG_AGO,
            attempts=int(values.get("attempts", 0)),
            last_error=values.get("lastError"),
            **read_progress(values.get("partitionProgressState")),
        )
    except (TypeError, ValueError) as error:
        raise ConfigurationError(
            f"partition {values.get('sourcePartitionKey')!r} of {values.get('sourceIdentifier')!r}: "
            f"its item in DynamoDB cannot be read: {error}; fix it, or delete it"
        ) from None


def _text(value: str | None) -> Value | None:
    return None if value is None else {"S": value}


def _number(value: int | None) -> Value | None:
    return None if value is None else {"N": str(value)}


def _instant(value: datetime | None) -> Value | None:
    return None if value is None else {"S": format_instant(value)}


def _read_instant(text: str | None) -> datetime | None:
    """Return the instant in a text of Java's `Instant.toString` or `format_instant`, with 0, 3, 6 or 9 digits."""
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


_LONG_AGO = datetime.fromtimestamp(0, UTC)


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


def browse_query(request: PageRequest) -> dict[str, Any]:
    """Return a query along the table's key or the index, with the filter that DynamoDB can evaluate."""
    source_identifier, wanted, order = request.source_identifier, request.wanted, request.order
    status: PartitionStatus | None = None
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
    if request.after is not None:
        query["ExclusiveStartKey"] = position_key(source_identifier, status, request.after)
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
