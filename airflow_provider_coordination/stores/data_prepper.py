"""Takes over the items of Data Prepper's source coordination from its DynamoDB table.

Either in place, because our DynamoDB store works on the same items. Then only harmful attributes are repaired, item by
item, if no other process has written the item since. Everything else stays unchanged, the progress byte for byte.
Or into another store: each item becomes a partition of the same name there, and the table is only read.

Two things are harmful. An unfinished item may expire. And an item that was given up may be queued by a lease that has
not ended yet: here, a priority in the future delays a partition, while there it only orders the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError
from airflow_provider_coordination.coordination.partition import (
    MAX_PROGRESS_BYTES,
    MAX_SOURCE_IDENTIFIER_BYTES,
    Partition,
    PartitionStatus,
    format_instant,
    progress_text,
)
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls, RefusedError, RejectedError
from airflow_provider_coordination.stores.dynamodb.items import (
    TTL_ATTRIBUTE,
    Item,
    Value,
    combination_key,
    holds,
    key_of,
    partition_of,
)
from airflow_provider_coordination.stores.dynamodb.table import TableOptions, ensure_table

NO_STATUS = "none"
WRITE_THREADS = 8


class Repair(StrEnum):
    """The repair of an item."""

    KEEP = "no longer expires"
    QUEUE = "queued as of now"
    RELEASE = "released"


@dataclass(frozen=True, kw_only=True)
class CheckedItem:
    """An item of the table, with its problem and its repairs.

    :param item: the item as DynamoDB returned it.
    :param source_identifier: the item family it belongs to.
    :param partition_key: its key in that family.
    :param partition: the partition in the item; None if it is unreadable.
    :param status: the stored status; `NO_STATUS` if it has none.
    :param is_leased: whether a lease on it has not ended yet.
    :param expires: whether TTL may delete it.
    :param problem: a problem that only a user can fix; empty if there is none.
    :param repairs: the repairs that the item needs.
    """

    item: Item
    source_identifier: str
    partition_key: str
    partition: Partition | None
    status: str
    is_leased: bool = False
    expires: bool = False
    problem: str = ""
    repairs: tuple[Repair, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FamilySummary:
    """A summary of one item family of the table.

    :param source_identifier: the family.
    :param statuses: the number of items of each status; `none` for items without a status.
    :param unreadable_progress: the number of items whose state is not a JSON object; it is kept unchanged.
    :param leased: the number of items that are leased now.
    :param problems: the number of items with a problem that only a user can fix.
    :param repairs: the number of items that need each repair.
    """

    source_identifier: str
    statuses: Mapping[str, int]
    unreadable_progress: int
    leased: int
    problems: int
    repairs: Mapping[str, int]


def check_table(call: DynamoDbCalls) -> bool:
    """Check that a table is one of Data Prepper's source coordination; return whether its items expire.

    :param call: makes calls to the table.
    :raises ConfigurationError: if the table does not exist, or has another key or index.
    :raises StoreUnavailableError: if DynamoDB is unavailable.
    """
    ensure_table(call, TableOptions(skip_creation=True), expire=False)
    try:
        description = call("describe_time_to_live", expect=("UnknownOperationException",))["TimeToLiveDescription"]
    except RejectedError:
        return False
    return (
        description["TimeToLiveStatus"] in ("ENABLED", "ENABLING") and description.get("AttributeName") == TTL_ATTRIBUTE
    )


def read_items(call: DynamoDbCalls) -> list[Item]:
    """Return every item of the table, read consistently, page by page.

    :param call: makes calls to the table.
    :raises StoreUnavailableError: if DynamoDB is unavailable.
    """
    return [item for page in call.pages("scan", ConsistentRead=True) for item in page["Items"]]


def is_of(item: Item, source: str | None, prefix: str | None) -> bool:
    """Return whether an item belongs to a source, `[prefix|]source|family`.

    :param item: the item as DynamoDB returned it.
    :param source: the name of the source, which Data Prepper takes from the pipeline; None for any.
    :param prefix: the table's `partition_prefix`; None for any.
    """
    parts = str(item["sourceIdentifier"]["S"]).split("|")
    return source in (None, *parts[-2:-1]) and prefix in (None, "|".join(parts[:-2]))


def check_item(item: Item, now: datetime, *, release: bool = False) -> CheckedItem:
    """Return an item with its problem and the repairs that it needs.

    :param item: the item as DynamoDB returned it.
    :param now: the current time (aware).
    :param release: whether to end leases now instead of at their timeout.
    """
    checked = CheckedItem(
        item=item,
        source_identifier=item["sourceIdentifier"]["S"],
        partition_key=item["sourcePartitionKey"]["S"],
        partition=None,
        status=_text(item, "sourcePartitionStatus") or NO_STATUS,
        expires="N" in item.get(TTL_ATTRIBUTE, {}),
    )
    try:
        partition = partition_of(item)
    except ConfigurationError as error:
        return replace(checked, problem=str(error))
    is_finished = checked.status == PartitionStatus.COMPLETED
    is_assigned = checked.status == PartitionStatus.ASSIGNED
    timeout = partition.ownership_timeout
    repairs = [Repair.KEEP] if checked.expires and not is_finished else []
    if checked.status == PartitionStatus.UNASSIGNED and partition.priority > now:
        repairs.append(Repair.QUEUE)
    if is_assigned and release:
        repairs.append(Repair.RELEASE)
    problem = _problem(item, checked.status)
    return replace(
        checked,
        partition=partition,
        is_leased=is_assigned and timeout is not None and timeout > now,
        problem=problem,
        repairs=() if problem else tuple(repairs),
    )


def summarize(items: Iterable[CheckedItem]) -> list[FamilySummary]:
    """Return the summary of each item family, sorted by name."""
    families: dict[str, list[CheckedItem]] = {}
    for item in items:
        families.setdefault(item.source_identifier, []).append(item)
    return [_summary(name, families[name]) for name in sorted(families)]


def repair_items(call: DynamoDbCalls, items: Sequence[CheckedItem], now: datetime) -> list[CheckedItem]:
    """Repair items; return those that another process has changed in the interim, which are not changed.

    :param call: makes calls to the table.
    :param items: items from `check_item`; those that need no repair are skipped.
    :param now: the current time (aware), as of which items are queued.
    :raises ConfigurationError: if access is refused.
    :raises StoreUnavailableError: if DynamoDB is unavailable. Items that were written until then stay repaired, and
        repeating the repair is safe.
    """
    to_repair = [item for item in items if item.repairs]
    with ThreadPoolExecutor(WRITE_THREADS) as pool:
        done = pool.map(lambda item: _write(call, item, now), to_repair)
        return [item for item, written in zip(to_repair, done, strict=True) if not written]


def copied(item: CheckedItem, now: datetime, *, release: bool = False) -> Partition:
    """Return the partition for another store that an item becomes.

    A finished item stays finished. A leased item becomes available when its lease ends. An item without a status, such
    as the global items of Data Prepper's newer sources, becomes UNASSIGNED; no worker here acquires from its family.

    :param item: an item from `check_item`.
    :param now: the current time (aware).
    :param release: whether leases end now.
    :raises ConfigurationError: if it is unreadable, or other stores cannot store it.
    """
    if item.partition is None:
        raise ConfigurationError(item.problem)
    partition = replace(_storable(item.partition, item.item), version=0)
    if partition.status is PartitionStatus.COMPLETED:
        return partition.completed(min(partition.priority, now))
    if partition.status is PartitionStatus.CLOSED:
        reopen_at = partition.reopen_at or now
        return replace(partition, reopen_at=reopen_at, priority=reopen_at)
    if partition.status is PartitionStatus.ASSIGNED:
        ends = partition.ownership_timeout
        return partition.given_up(now if release or ends is None else ends)
    return partition.given_up(min(partition.priority, now))


def _storable(partition: Partition, item: Item) -> Partition:
    """Return a partition that every store can store. Progress with non-JSON values, such as NaN, is kept as text."""
    name = f"partition {partition.partition_key!r} of {partition.source_identifier!r}"
    state = _text(item, "partitionProgressState") or ""
    if len(partition.source_identifier.encode()) > MAX_SOURCE_IDENTIFIER_BYTES:
        raise ConfigurationError(
            f"{name}: the source identifier has more than {MAX_SOURCE_IDENTIFIER_BYTES} bytes; keep it in DynamoDB"
        )
    try:
        size = len(progress_text(partition).encode())
    except ProgressError:
        partition = replace(partition, progress={}, unreadable_progress=state)
        size = len(state.encode())
    if size > MAX_PROGRESS_BYTES:
        raise ConfigurationError(
            f"{name}: its state has {size} bytes; the limit is {MAX_PROGRESS_BYTES}. Keep it in DynamoDB"
        )
    return partition


def _problem(item: Item, status: str) -> str:
    """Return the problem of a readable item that only a user can fix; empty if there is none."""
    family = item["sourceIdentifier"]["S"]
    wanted = f"{family}|{'null' if status == NO_STATUS else status}"
    found = _text(item, "sourceStatusCombinationKey")
    if found != wanted and status != NO_STATUS:
        return f"it is in the queue {found!r} and should be in {wanted!r}: set sourceStatusCombinationKey"
    if _text(item, "partitionPriority") is None and status != NO_STATUS:
        return "it is in no queue: set partitionPriority"
    if "N" not in item.get("version", {}):
        return "it has no version, so no write to it is safe: set version to 0"
    return ""


def _summary(source_identifier: str, items: Sequence[CheckedItem]) -> FamilySummary:
    return FamilySummary(
        source_identifier=source_identifier,
        statuses=dict(sorted(Counter(item.status for item in items).items())),
        unreadable_progress=sum(p.unreadable_progress is not None for item in items if (p := item.partition)),
        leased=sum(item.is_leased for item in items),
        problems=sum(bool(item.problem) for item in items),
        repairs=dict(Counter(str(repair_items) for item in items for repair_items in item.repairs)),
    )


def _write(call: DynamoDbCalls, item: CheckedItem, now: datetime) -> bool:
    """Repair one item; return False if it has changed since it was read."""
    wanted = _repaired(item, now)
    present = {name: value for name, value in wanted.items() if value is not None}
    absent = [f"#{name}" for name in wanted if name not in present]
    request: dict[str, Any] = {
        "Key": key_of(item.source_identifier, item.partition_key),
        "UpdateExpression": "SET " + ", ".join(f"#{name} = :{name}" for name in present),
        "ConditionExpression": "#version = :expected",
        "ExpressionAttributeNames": {f"#{name}": name for name in wanted},
        "ExpressionAttributeValues": {f":{name}": value for name, value in present.items()},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }
    if absent:
        request["UpdateExpression"] += " REMOVE " + ", ".join(absent)
    request["ExpressionAttributeValues"][":expected"] = item.item["version"]
    try:
        call("update_item", **request)
    except RefusedError as refused:
        stored = refused.stored[0]
        return refused.unsure and stored is not None and holds(stored, wanted)
    return True


def _repaired(item: CheckedItem, now: datetime) -> dict[str, Value | None]:
    """Return the new values of the attributes to change; None for those to remove."""
    version = int(item.item["version"]["N"]) + 1
    wanted: dict[str, Value | None] = {"version": {"N": str(version)}}
    if Repair.KEEP in item.repairs:
        wanted[TTL_ATTRIBUTE] = None
    if Repair.QUEUE in item.repairs or Repair.RELEASE in item.repairs:
        wanted["partitionPriority"] = {"S": format_instant(now)}
    if Repair.RELEASE in item.repairs:
        queue = combination_key(item.source_identifier, PartitionStatus.UNASSIGNED)
        wanted |= {
            "sourcePartitionStatus": {"S": PartitionStatus.UNASSIGNED.value},
            "sourceStatusCombinationKey": {"S": queue},
            "partitionOwner": None,
            "partitionOwnershipTimeout": None,
            "heldSince": None,
        }
    return wanted


def _text(item: Item, name: str) -> str | None:
    value = item.get(name, {})
    return str(value["S"]) if "S" in value else None
