"""Partitions as items of a DynamoDB table, attribute by attribute as Data Prepper's source coordination writes them.

Three attributes are additional: `attempts`, `lastError` and `heldSince`. Instants are always written with microseconds,
so that the order of the texts is the order of the instants. They are read with any number of digits, as Java writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

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
