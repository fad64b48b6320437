"""Taking over what Data Prepper's source coordination left in its DynamoDB table.

Either in place, since our DynamoDB store works on the very same items: then only what would hurt us is put right, item
by item, under the condition that nobody has written it since, and everything else stays as it is, the progress to the
byte. Or into another store: then each item becomes a partition of the same name there, and the table is only read.

What would hurt: an item that may expire although it is not finished, and one that was given up and queues by a lease
that had not ended yet, since priorities delay here and only order there.
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
from airflow_provider_coordination.stores.dynamodb.table import TableOptions, make_ready

NO_STATUS = "none"
WRITE_THREADS = 8


class Repair(StrEnum):
    """What is put right in an item."""

    KEEP = "no longer expires"
    QUEUE = "queued as of now"
    RELEASE = "released"


@dataclass(frozen=True, kw_only=True)
class CheckedItem:
    """An item of the table, and what is to be done about it.

    :param item: as DynamoDB returned it.
    :param source_identifier: the item family it belongs to.
    :param partition_key: its name there.
    :param partition: what it holds; None if that cannot be read.
    :param status: as it is stored; `NO_STATUS` where it has none.
    :param is_leased: whether somebody's lease on it runs now.
    :param expires: whether TTL may delete it.
    :param problem: what only a person can put right; empty if nothing is.
    :param mends: what is to be put right.
    """

    item: Item
    source_identifier: str
    partition_key: str
    partition: Partition | None
    status: str
    is_leased: bool = False
    expires: bool = False
    problem: str = ""
    mends: tuple[Repair, ...] = ()


@dataclass(frozen=True, kw_only=True)
class FamilySummary:
    """What one item family of the table holds.

    :param source_identifier: the family.
    :param statuses: how many items have each status; `none` for those without.
    :param unreadable_progress: how many hold a state that is not a JSON object; it is kept as it is.
    :param leased: how many are leased now: somebody works on them.
    :param problems: how many only a person can put right.
    :param mends: how many items each thing is put right in.
    """

    source_identifier: str
    statuses: Mapping[str, int]
    unreadable_progress: int
    leased: int
    problems: int
    mends: Mapping[str, int]


def check_table(call: DynamoDbCalls) -> bool:
    """Check that a table is one of Data Prepper's source coordination; tell whether its items expire.

    :param call: makes calls to the table.
    :raises ConfigurationError: if it is absent, or has another key or index.
    :raises StoreUnavailableError: if DynamoDB does not answer.
    """
    make_ready(call, TableOptions(skip_creation=True), expire=False)
    try:
        description = call("describe_time_to_live", expect=("UnknownOperationException",))["TimeToLiveDescription"]
    except RejectedError:
        return False
    return (
        description["TimeToLiveStatus"] in ("ENABLED", "ENABLING") and description.get("AttributeName") == TTL_ATTRIBUTE
    )


def read_items(call: DynamoDbCalls) -> list[Item]:
    """Return every item of the table, read consistently, page after page.

    :param call: makes calls to the table.
    :raises StoreUnavailableError: if DynamoDB does not answer.
    """
    return [item for page in call.pages("scan", ConsistentRead=True) for item in page["Items"]]


def is_of(item: Item, source: str | None, prefix: str | None) -> bool:
    """Tell whether an item belongs to a source, `[prefix|]source|family`.

    :param item: as DynamoDB returned it.
    :param source: the source's name, which Data Prepper takes from the pipeline; None for any.
    :param prefix: the table's `partition_prefix`; None for any.
    """
    parts = str(item["sourceIdentifier"]["S"]).split("|")
    return source in (None, *parts[-2:-1]) and prefix in (None, "|".join(parts[:-2]))


def judge(item: Item, now: datetime, *, release: bool = False) -> CheckedItem:
    """Return what an item holds and what is to be put right in it.

    :param item: as DynamoDB returned it.
    :param now: the present instant (aware).
    :param release: whether leases are to be ended now rather than at their timeout.
    """
    judged = CheckedItem(
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
        return replace(judged, problem=str(error))
    is_finished = judged.status == PartitionStatus.COMPLETED
    is_assigned = judged.status == PartitionStatus.ASSIGNED
    timeout = partition.ownership_timeout
    mends = [Repair.KEEP] if judged.expires and not is_finished else []
    if judged.status == PartitionStatus.UNASSIGNED and partition.priority > now:
        mends.append(Repair.QUEUE)
    if is_assigned and release:
        mends.append(Repair.RELEASE)
    problem = _problem(item, judged.status)
    return replace(
        judged,
        partition=partition,
        is_leased=is_assigned and timeout is not None and timeout > now,
        problem=problem,
        mends=() if problem else tuple(mends),
    )


def summarize(items: Iterable[CheckedItem]) -> list[FamilySummary]:
    """Return what each item family holds, in the order of their names."""
    families: dict[str, list[CheckedItem]] = {}
    for item in items:
        families.setdefault(item.source_identifier, []).append(item)
    return [_summary(name, families[name]) for name in sorted(families)]


def mend(call: DynamoDbCalls, items: Sequence[CheckedItem], now: datetime) -> list[CheckedItem]:
    """Put right what is to be put right; return the items that were written by somebody else meanwhile, untouched.

    :param call: makes calls to the table.
    :param items: as `judge` returns them; those with nothing to be put right are passed over.
    :param now: the present instant (aware); what is queued queues as of then.
    :raises ConfigurationError: if access is refused.
    :raises StoreUnavailableError: if DynamoDB does not answer; what was written until then stays, and doing it again is
        harmless.
    """
    to_mend = [item for item in items if item.mends]
    with ThreadPoolExecutor(WRITE_THREADS) as pool:
        done = pool.map(lambda item: _write(call, item, now), to_mend)
        return [item for item, written in zip(to_mend, done, strict=True) if not written]


def copied(item: CheckedItem, now: datetime, *, release: bool = False) -> Partition:
    """Return the partition of another store that an item becomes.

    What was finished stays finished. What is leased is available when the lease ends. What has no status, as the global
    items of Data Prepper's newer sources, becomes UNASSIGNED: the family it is in is none that is worked off here.

    :param item: as `judge` returns it.
    :param now: the present instant (aware).
    :param release: whether leases end now.
    :raises ConfigurationError: if it cannot be read, or no other store can hold it.
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
    """Return a partition as every store can hold it: what JSON does not know, such as NaN, is kept as text."""
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
            f"{name}: its state has {size} bytes and may have {MAX_PROGRESS_BYTES}; keep it in DynamoDB"
        )
    return partition


def _problem(item: Item, status: str) -> str:
    """Return what only a person can put right in an item that can be read; empty if nothing is."""
    family = item["sourceIdentifier"]["S"]
    wanted = f"{family}|{'null' if status == NO_STATUS else status}"
    found = _text(item, "sourceStatusCombinationKey")
    if found != wanted and status != NO_STATUS:
        return f"it is in the queue {found!r} and should be in {wanted!r}: set sourceStatusCombinationKey"
    if _text(item, "partitionPriority") is None and status != NO_STATUS:
        return "it is in no queue: set partitionPriority"
    if "N" not in item.get("version", {}):
        return "it has no version, so that no write to it is safe: set version to 0"
    return ""


def _summary(source_identifier: str, items: Sequence[CheckedItem]) -> FamilySummary:
    return FamilySummary(
        source_identifier=source_identifier,
        statuses=dict(sorted(Counter(item.status for item in items).items())),
        unreadable_progress=sum(p.unreadable_progress is not None for item in items if (p := item.partition)),
        leased=sum(item.is_leased for item in items),
        problems=sum(bool(item.problem) for item in items),
        mends=dict(Counter(str(mend) for item in items for mend in item.mends)),
    )


def _write(call: DynamoDbCalls, item: CheckedItem, now: datetime) -> bool:
    """Put one item right; tell whether it still was as it was read."""
    wanted = _mended(item, now)
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


def _mended(item: CheckedItem, now: datetime) -> dict[str, Value | None]:
    """Return the attributes that change; None for those that go."""
    version = int(item.item["version"]["N"]) + 1
    wanted: dict[str, Value | None] = {"version": {"N": str(version)}}
    if Repair.KEEP in item.mends:
        wanted[TTL_ATTRIBUTE] = None
    if Repair.QUEUE in item.mends or Repair.RELEASE in item.mends:
        wanted["partitionPriority"] = {"S": format_instant(now)}
    if Repair.RELEASE in item.mends:
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
