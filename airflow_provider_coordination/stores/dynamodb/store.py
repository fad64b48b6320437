"""The DynamoDB store: conditional writes to the table, and queues read from the index.

The index always lags a little behind the table. So its content is only a hint, and the conditional write to the table
decides. All other data that a decision depends on is read consistently.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from airflow_provider_coordination.aws import AwsSettings, Permission
from airflow_provider_coordination.coordination.browsing import (
    BrowsePage,
    BrowsePosition,
    PageRequest,
)
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, format_instant
from airflow_provider_coordination.coordination.store import (
    Acquisition,
    CoordinationStore,
    acquisition_order,
    version_refused,
)
from airflow_provider_coordination.stores import RETRY_DEADLINE_SECONDS
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls, RefusedError
from airflow_provider_coordination.stores.dynamodb.items import (
    TABLE_KEY,
    Item,
    at_version,
    browse_query,
    conditional_update,
    holds,
    key_of,
    lease_attributes,
    new_item,
    partition_of,
    queue_query,
    stored_position,
)
from airflow_provider_coordination.stores.dynamodb.table import TableOptions, ensure_table, inspect_table, permissions
from airflow_provider_coordination.stores.dynamodb.writes import (
    REFUSALS_IN_A_ROW,
    TRANSACTION_ITEMS,
    DynamoDbWrites,
    KnownVersions,
    QueueStart,
    QuietQueues,
)
from airflow_provider_coordination.stores.kind import StoreReport, measure_quickest

log = logging.getLogger(__name__)

BATCH_KEYS = 100
"""DynamoDB's limit for one BatchGetItem call."""
BROWSE_PAGE_ITEMS = 1000
BROWSE_SECONDS = 0.2
BROWSE_READ_UNITS = 384.0
"""After this, no further call starts for a page of browsing, because a user waits for it and it consumes the table's
capacity. Three megabytes cost this number of units."""
CREATE_THREADS = 8
HALF_A_SECOND = timedelta(seconds=0.5)
CREATE_CHUNK_ITEMS = 1000


class DynamoDbStore(CoordinationStore):
    """A store in one DynamoDB table.

    :param aws: the location of DynamoDB and the credentials.
    :param table: the name of the table.
    :param options: how to create or check the table.
    :param ttl_seconds: how long completed partitions are kept; None forever.
    :param retry_deadline_seconds: how long a call is retried after throttling, a broken connection or an error of the
        service, before the store counts as unavailable.
    :param randomness: the source of randomness.
    :raises ConfigurationError: if the table's name is not valid, or no region is configured.
    """

    kind = "dynamodb"
    transaction_items = TRANSACTION_ITEMS
    combines_writes_cheaply = False  # a write in a transaction costs twice as much

    def __init__(
        self,
        aws: AwsSettings,
        *,
        table: str,
        options: TableOptions | None = None,
        ttl_seconds: int | None = None,
        retry_deadline_seconds: float = RETRY_DEADLINE_SECONDS,
        randomness: random.Random | None = None,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{3,255}", table):
            raise ConfigurationError(
                f"store 'dynamodb': table {table!r} is not usable: give 3 to 255 letters, digits, '_', '-' and '.'"
            )
        self._aws = aws
        self._call = DynamoDbCalls(aws, table, retry_deadline_seconds)
        self._table = table
        self._options = options or TableOptions()
        self._ttl_seconds = ttl_seconds
        self._known = KnownVersions()
        self._writes = DynamoDbWrites(self._call, table, self._known, ttl_seconds)
        self._queue_start = QueueStart(randomness or random.Random())
        self._quiet = QuietQueues()

    @property
    def client(self) -> Any:
        """The boto3 client, for example to observe its calls."""
        return self._call.client

    def initialize(self) -> None:
        """Create the table and its index if they do not exist, and wait until they can be used.

        :raises ConfigurationError: if the table has another format, if it does not exist and must not be created, or if
            access to it is refused.
        """
        ensure_table(self._call, self._options, expire=self._ttl_seconds is not None)

    def report(self, now: Callable[[], datetime]) -> StoreReport:
        """Return the report of the store; see `StoreKind.report`."""
        (is_there, server_time), local_time, took = measure_quickest(partial(inspect_table, self._call), now)
        if server_time is not None:
            server_time += HALF_A_SECOND  # in whole seconds: the real time is later by less than one
        return StoreReport(
            name=self._call.name,
            round_trip=took,
            server_time=server_time,
            local_time=local_time,
            imprecision=took / 2 + HALF_A_SECOND,
            schema=int(is_there),
            newest_schema=1,
        )

    def permissions(self) -> tuple[AwsSettings, Sequence[Permission]]:
        """Return the AWS settings, and the permissions that the store needs."""
        expires = self._ttl_seconds is not None
        return self._aws, list(permissions(self.client, self._table, self._options, expires=expires))

    @override
    def close(self) -> None:
        self.client.close()

    @override
    def create(self, partitions: Sequence[Partition]) -> list[str]:
        """Uses one write per partition, several at a time."""
        items = {(p.source_identifier, p.partition_key): new_item(p, self._ttl_seconds) for p in reversed(partitions)}
        ordered = list(reversed(items.values()))
        if len(ordered) == 1:
            return [key for key in map(self._writes.put_absent, ordered) if key is not None]
        created: list[str] = []
        with ThreadPoolExecutor(CREATE_THREADS) as pool:
            for start in range(0, len(ordered), CREATE_CHUNK_ITEMS):
                keys = pool.map(self._writes.put_absent, ordered[start : start + CREATE_CHUNK_ITEMS])
                created += [key for key in keys if key is not None]
        return created

    @override
    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        """Reads consistently."""
        response = self._call("get_item", Key=key_of(source_identifier, partition_key), ConsistentRead=True)
        return partition_of(response["Item"]) if "Item" in response else None

    @override
    def get_many(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        """Reads a hundred keys per call, consistently."""
        found = map(partition_of, self._batch_get(source_identifier, partition_keys))
        return {partition.partition_key: partition for partition in found}

    @override
    def existing_keys(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        """Reads a hundred keys per call, consistently."""
        key = TABLE_KEY[1]
        return {item[key]["S"] for item in self._batch_get(source_identifier, partition_keys, attribute=key)}

    @override
    def acquire(self, request: Acquisition) -> list[Partition]:
        """Uses one conditional write per partition.

        While no other worker is met in the queue, it is read from its front. After a refused write, and for some time
        from then on, it is read from a random position.

        A queue in which nothing was due a few seconds ago is queried after the others, and only if they do not suffice.
        """
        taken: list[Partition] = []
        self._queue_start.begin()
        in_order = acquisition_order(request)
        in_order.sort(key=lambda queue: self._quiet.is_quiet(request.source_identifier, *queue))
        try:
            for status, latest in in_order:
                self._acquire_from_queue(request, status, latest, taken)
                if len(taken) >= request.limit:
                    break
        except StoreUnavailableError as error:
            if not taken:
                raise
            log.warning("%s; %d partitions were acquired before that", error, len(taken))
        return taken

    @override
    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        """A single update is written without a transaction, at half the cost.

        :raises ConfigurationError: if it needs more than 100 items, which is DynamoDB's limit.
        """
        # An item may occur in a transaction only once.
        conditional: dict[tuple[str, str], Partition] = {}
        for partition in (*update, *unchanged):
            if conditional.setdefault(_item_key(partition), partition).version != partition.version:
                raise version_refused(partition)
        updated = {_item_key(p) for p in update}
        if len(updated) < len(update):
            raise version_refused(update[-1])
        checks = [p for key, p in conditional.items() if key not in updated]
        creates = {_item_key(p): p for p in reversed(create) if _item_key(p) not in conditional}
        self._writes.write(list(update), list(reversed(creates.values())), list(new), checks)
        return [p.written() for p in update]

    @override
    def delete(self, partition: Partition) -> None:
        try:
            self._call("delete_item", **at_version(partition))
        except RefusedError as refused:
            if not (refused.unsure and refused.stored[0] is None):  # deleted by an earlier try whose response was lost
                raise version_refused(partition) from None
        self._known.forget(*_item_key(partition))

    @override
    def query(
        self,
        source_identifier: str,
        status: PartitionStatus,
        *,
        since: datetime | None = None,
        after: Partition | None = None,
        limit: int = 500,
    ) -> list[Partition]:
        """Reads the index, so the latest changes may be missing.

        All partitions of one priority are read, to sort them by key. Instants that Java wrote are in order except for
        those of the same second.
        """
        last = None if after is None else (self._stored_priority(after), after.partition_key)
        lowest = max(format_instant(since)[:-1] if since is not None else "", last[0] if last else "")
        matches: list[tuple[tuple[str, str], Partition]] = []
        for page in self._call.pages("query", **queue_query(source_identifier, status, lowest=lowest), Limit=limit + 1):
            for item in page["Items"]:
                position = (item["partitionPriority"]["S"], item["sourcePartitionKey"]["S"])
                if last is not None and position <= last:
                    continue
                partition = partition_of(item)
                if since is None or partition.priority >= since:
                    matches.append((position, partition))
            if len(matches) > limit and matches[-1][0][0] != matches[limit - 1][0][0]:
                break
        matches.sort(key=lambda each: each[0])
        return [partition for _, partition in matches[:limit]]

    @override
    def browse(self, request: PageRequest) -> BrowsePage:
        """Reads the table or the index, with as many calls as the time permits."""
        request.check()
        order = request.order
        query = browse_query(request)
        max_partitions = min(request.limit, request.examine)
        at_once = max_partitions + 1 if request.includes_all else min(request.examine, BROWSE_PAGE_ITEMS)
        over = time.monotonic() + BROWSE_SECONDS
        matches: list[tuple[BrowsePosition, Partition]] = []
        examined = 0
        units = 0.0
        query |= {"Limit": at_once, "ScanIndexForward": not request.descending, "ReturnConsumedCapacity": "TOTAL"}
        for page in self._call.pages("query", **query):
            examined += page["ScannedCount"]
            units += page.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0)
            for item in page["Items"]:
                partition = _readable(item)
                if partition is not None and request.wanted.matches(partition):
                    matches.append((stored_position(item, order), partition))
            if len(matches) > max_partitions:
                return BrowsePage(
                    partitions=[p for _, p in matches[:max_partitions]], next=matches[max_partitions - 1][0]
                )
            end = page.get("LastEvaluatedKey")
            is_enough = examined >= request.examine or units >= BROWSE_READ_UNITS or time.monotonic() > over
            if end is not None and is_enough:
                return BrowsePage(partitions=[p for _, p in matches], next=stored_position(end, order))
        return BrowsePage(partitions=[p for _, p in matches], next=None)

    @override
    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        """Reads the index entries of these statuses, so request few."""
        return {
            status: sum(
                page["Count"]
                for page in self._call.pages("query", **queue_query(source_identifier, status), Select="COUNT")
            )
            for status in statuses
        }

    @override
    def source_identifiers(self) -> list[str]:
        names = {"#source": TABLE_KEY[0]}
        pages = self._call.pages("scan", ProjectionExpression="#source", ExpressionAttributeNames=names)
        return sorted({item[TABLE_KEY[0]]["S"] for page in pages for item in page["Items"]})

    # Acquisition

    def _acquire_from_queue(
        self, request: Acquisition, status: PartitionStatus, latest: datetime, taken: list[Partition]
    ) -> None:
        """Lease due partitions of one status, page by page, until there are enough.

        When another worker is met for the first time, the queue is read again in larger pages, so that the workers
        rarely start at the same position.

        An instant that Java wrote with fewer digits sorts after ours of the same second or millisecond, and is found
        later by that difference.
        """
        was_alone = self._queue_start.is_alone
        page_items = self._queue_start.page_items(request.limit - len(taken))
        due = queue_query(request.source_identifier, status, highest=format_instant(latest))
        has_items = False
        for page in self._call.pages("query", **due, Limit=page_items):
            has_items = has_items or bool(page["Items"])
            partitions = [p for p in map(_readable, page["Items"]) if p is not None]
            candidates = [p for p in partitions if _is_due(p, latest) and not self._known.outdated(p)]
            if not self._acquire_from_page(candidates, request, taken):
                break
        if not has_items:
            self._quiet.note(request.source_identifier, status, latest)
        if was_alone and not self._queue_start.is_alone and len(taken) < request.limit:
            self._acquire_from_queue(request, status, latest, taken)

    def _acquire_from_page(self, candidates: list[Partition], request: Acquisition, taken: list[Partition]) -> bool:
        """Lease partitions of one page; return whether to continue with the next page."""
        was_alone = self._queue_start.is_alone
        index = self._queue_start.start(len(candidates))
        refusals = 0
        while candidates and len(taken) < request.limit:
            acquired = self._acquire(candidates.pop(index % len(candidates)), request)
            if acquired is not None:
                taken.append(acquired)
                refusals = 0
                continue
            self._queue_start.met_another()
            index = self._queue_start.start(len(candidates))
            refusals += 1
            if was_alone or (taken and refusals == REFUSALS_IN_A_ROW):
                return False  # others work on this page, so it is better to read the rest again
        return len(taken) < request.limit

    def _acquire(self, candidate: Partition, request: Acquisition) -> Partition | None:
        """Lease one partition unless it has changed since it was read."""
        intended = candidate.taken(request.owner, request.ownership_timeout, request.available_by)
        lease = lease_attributes(intended, self._ttl_seconds)
        try:
            stored = self._call("update_item", **conditional_update(candidate, lease), ReturnValues="ALL_NEW")[
                "Attributes"
            ]
        except RefusedError as refused:
            current = refused.stored[0]
            if current is None or not (refused.unsure and holds(current, lease)):
                log.debug("partition %r was taken by another worker", candidate.partition_key)
                self._known.note(candidate, _version(current))
                return None
            stored = current  # written by an earlier try whose response was lost
        self._known.note(candidate, intended.version)
        return replace(partition_of(stored), change=intended.change)

    # Reads

    def _batch_get(
        self, source_identifier: str, partition_keys: Sequence[str], attribute: str | None = None
    ) -> Iterator[Item]:
        keys = list(dict.fromkeys(partition_keys))
        for start in range(0, len(keys), BATCH_KEYS):
            wanted = [key_of(source_identifier, key) for key in keys[start : start + BATCH_KEYS]]
            yield from self._call.batch_get(wanted, attribute)

    def _stored_priority(self, partition: Partition) -> str:
        """Return a partition's priority as stored, because the number of its digits depends on the writer."""
        response = self._call(
            "get_item",
            Key=key_of(partition.source_identifier, partition.partition_key),
            ProjectionExpression="partitionPriority, sourceIdentifier, sourcePartitionKey",
        )
        item = response.get("Item")
        if item is not None and "partitionPriority" in item and partition_of(item).priority == partition.priority:
            return str(item["partitionPriority"]["S"])
        return format_instant(partition.priority)


def _item_key(partition: Partition) -> tuple[str, str]:
    return (partition.source_identifier, partition.partition_key)


def _version(item: Item | None) -> int:
    return int(item["version"]["N"]) if item is not None and "version" in item else 0


def _readable(item: Item) -> Partition | None:
    try:
        return partition_of(item)
    except ConfigurationError as error:
        log.error("%s; it is skipped", error)
        return None


def _is_due(partition: Partition, latest: datetime) -> bool:
    """Return whether it is due by its own instants, because Data Prepper may have written another priority."""
    due = {PartitionStatus.ASSIGNED: partition.ownership_timeout, PartitionStatus.CLOSED: partition.reopen_at}
    return (due.get(partition.status) or partition.priority) <= latest
