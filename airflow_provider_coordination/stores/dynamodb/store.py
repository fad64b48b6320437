"""The store: conditional writes to the table, and queues read from the index.

The index is always a little behind the table, so what it shows is a hint, and the conditional write to the table
decides. Whatever else a decision rests on is read consistently.
"""

from __future__ import annotations

import logging
import random
import re
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.browsing import (
    EXAMINED_PER_PAGE,
    BrowsePage,
    BrowsePosition,
    Filter,
    SortOrder,
)
from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, format_instant
from airflow_provider_coordination.coordination.store import (
    Acquisition,
    acquisition_order,
    creation_refused,
    version_refused,
)
from airflow_provider_coordination.permissions import Permission
from airflow_provider_coordination.stores import RETRY_DEADLINE_SECONDS
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls, RefusedError
from airflow_provider_coordination.stores.dynamodb.expressions import (
    at_version,
    browse_query,
    conditional_update,
    only_if_absent,
    place_key,
    queue_query,
    stored_place,
)
from airflow_provider_coordination.stores.dynamodb.hints import REFUSALS_IN_A_ROW, KnownVersions, QuietQueues, Spread
from airflow_provider_coordination.stores.dynamodb.items import (
    TABLE_KEY,
    Item,
    Value,
    attributes,
    holds,
    key_of,
    lease_attributes,
    new_item,
    partition_of,
)
from airflow_provider_coordination.stores.dynamodb.permissions import permissions
from airflow_provider_coordination.stores.dynamodb.table import TableOptions, found, make_ready
from airflow_provider_coordination.stores.report import StoreReport, timed

log = logging.getLogger(__name__)

TRANSACTION_ITEMS = 100
"""DynamoDB takes no more in one transaction."""
BATCH_KEYS = 100
"""DynamoDB takes no more in one BatchGetItem."""
BROWSED_AT_ONCE = 1000
BROWSED_SECONDS = 0.2
BROWSED_UNITS = 384.0
"""For a page of browsing no further call begins after that: a person waits for it, and the table pays for it. Three
megabytes are so many units."""
CREATE_THREADS = 8
HALF_A_SECOND = timedelta(seconds=0.5)
CREATE_CHUNK_ITEMS = 1000


class DynamoDbStore:
    """A store in one DynamoDB table.

    :param aws: where DynamoDB is and who asks.
    :param table: the table's name.
    :param options: what the table should be.
    :param ttl_seconds: how long completed partitions are kept; None for ever.
    :param retry_deadline_seconds: how long a call is tried again after throttling, a broken connection or an error of
        the service, before the store counts as unavailable.
    :param chance: where randomness comes from.
    :raises ConfigurationError: if the table's name is not usable, or no region is known.
    """

    kind = "dynamodb"
    transaction_items = TRANSACTION_ITEMS
    combines_writes_cheaply = False  # what is written in a transaction costs twice

    def __init__(
        self,
        aws: AwsSettings,
        *,
        table: str,
        options: TableOptions | None = None,
        ttl_seconds: int | None = None,
        retry_deadline_seconds: float = RETRY_DEADLINE_SECONDS,
        chance: random.Random | None = None,
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
        self._spread = Spread(chance or random.Random())
        self._quiet = QuietQueues()

    @property
    def client(self) -> Any:
        """The client of boto3, for whoever wants to watch its calls."""
        return self._call.client

    def initialize(self) -> None:
        """Create the table and its index if they are absent, and wait until they can be used.

        :raises ConfigurationError: if it is another table than we need, absent although it is not to be created, or
            access to it is refused.
        """
        make_ready(self._call, self._options, expire=self._ttl_seconds is not None)

    def report(self, now: Callable[[], datetime]) -> StoreReport:
        """See `Reporting.report`."""
        (is_there, server_time), here, took = timed(partial(found, self._call), now)
        if server_time is not None:
            server_time += HALF_A_SECOND  # whole seconds: it is later than that, by less than one
        return StoreReport(
            name=self._call.name,
            round_trip=took,
            server_time=server_time,
            here=here,
            imprecision=took / 2 + HALF_A_SECOND,
            schema=int(is_there),
            newest_schema=1,
        )

    def permissions(self) -> tuple[AwsSettings, Sequence[Permission]]:
        """See `Reporting.permissions`."""
        creates, expires = not self._options.skip_creation, self._ttl_seconds is not None
        return self._aws, list(permissions(self.client, self._table, creates=creates, expires=expires))

    def close(self) -> None:
        """Close the client's connections."""
        self.client.close()

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        """See `CoordinationStore.create`; one write each, several at a time."""
        items = {(p.source_identifier, p.partition_key): new_item(p, self._ttl_seconds) for p in reversed(partitions)}
        ordered = list(reversed(items.values()))
        if len(ordered) == 1:
            return [key for key in map(self._put_absent, ordered) if key is not None]
        created: list[str] = []
        with ThreadPoolExecutor(CREATE_THREADS) as pool:
            for start in range(0, len(ordered), CREATE_CHUNK_ITEMS):
                keys = pool.map(self._put_absent, ordered[start : start + CREATE_CHUNK_ITEMS])
                created += [key for key in keys if key is not None]
        return created

    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        """See `CoordinationStore.get`; read consistently."""
        answer = self._call("get_item", Key=key_of(source_identifier, partition_key), ConsistentRead=True)
        return partition_of(answer["Item"]) if "Item" in answer else None

    def get_many(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        """See `CoordinationStore.get_many`; a hundred keys a call, read consistently."""
        found = map(partition_of, self._batch_get(source_identifier, partition_keys))
        return {partition.partition_key: partition for partition in found}

    def known(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        """See `CoordinationStore.known`; a hundred keys a call, read consistently."""
        key = TABLE_KEY[1]
        return {item[key]["S"] for item in self._batch_get(source_identifier, partition_keys, attribute=key)}

    def acquire(self, request: Acquisition) -> list[Partition]:
        """See `CoordinationStore.acquire`; one conditional write for each partition.

        While nobody else is met in the queue it is taken from its front; after a refused write, and for a while from
        then on, from a random place.

        A queue in which nothing was due two seconds ago is asked after the others, and only if they have too little.
        """
        taken: list[Partition] = []
        self._spread.begin()
        in_order = acquisition_order(request)
        in_order.sort(key=lambda queue: self._quiet.is_quiet(request.source_identifier, *queue))
        try:
            for status, latest in in_order:
                self._take(request, status, latest, taken)
                if len(taken) >= request.limit:
                    break
        except StoreUnavailableError as error:
            if not taken:
                raise
            log.warning("%s; %d partitions were acquired before that", error, len(taken))
        return taken

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        """See `CoordinationStore.transact`; a lone update costs half of what it would in a transaction.

        :raises ConfigurationError: if it would need more than 100 items, which DynamoDB does not take.
        """
        # An item may be part of a transaction once only.
        conditional: dict[tuple[str, str], Partition] = {}
        for partition in (*update, *unchanged):
            if conditional.setdefault(_place(partition), partition).version != partition.version:
                raise version_refused(partition)
        updated = {_place(p) for p in update}
        if len(updated) < len(update):
            raise version_refused(update[-1])
        checks = [p for place, p in conditional.items() if place not in updated]
        creates = {_place(p): p for p in reversed(create) if _place(p) not in conditional}
        self._write(list(update), list(reversed(creates.values())), list(new), checks)
        return [p.written() for p in update]

    def delete(self, partition: Partition) -> None:
        """See `CoordinationStore.delete`."""
        try:
            self._call("delete_item", **at_version(partition))
        except RefusedError as refused:
            if not (refused.unsure and refused.stored[0] is None):  # gone by an earlier try whose answer was lost
                raise version_refused(partition) from None
        self._known.forget(*_place(partition))

    def query(
        self,
        source_identifier: str,
        status: PartitionStatus,
        *,
        since: datetime | None = None,
        after: Partition | None = None,
        limit: int = 500,
    ) -> list[Partition]:
        """See `CoordinationStore.query`; from the index, so a change of the last instant may be missing.

        All partitions of one and the same priority are read to put them in the order of their keys. Instants that Java
        wrote are in order but for those of one second.
        """
        last = None if after is None else (self._stored_priority(after), after.partition_key)
        lowest = max(format_instant(since)[:-1] if since is not None else "", last[0] if last else "")
        found: list[tuple[tuple[str, str], Partition]] = []
        for page in self._call.pages("query", **queue_query(source_identifier, status, lowest=lowest), Limit=limit + 1):
            for item in page["Items"]:
                place = (item["partitionPriority"]["S"], item["sourcePartitionKey"]["S"])
                if last is not None and place <= last:
                    continue
                partition = partition_of(item)
                if since is None or partition.priority >= since:
                    found.append((place, partition))
            if len(found) > limit and found[-1][0][0] != found[limit - 1][0][0]:
                break
        found.sort(key=lambda each: each[0])
        return [partition for _, partition in found[:limit]]

    def browse(
        self,
        source_identifier: str,
        wanted: Filter,
        *,
        order: SortOrder = SortOrder.KEY,
        descending: bool = False,
        after: BrowsePosition | None = None,
        limit: int = 100,
        examine: int = EXAMINED_PER_PAGE,
    ) -> BrowsePage:
        """See `CoordinationStore.browse`; of the table or the index, as many calls as there is time for."""
        wanted.check(order, after)
        asked = browse_query(source_identifier, wanted, order)
        if after is not None:
            status = next(iter(wanted.statuses)) if order is SortOrder.PRIORITY else None
            asked["ExclusiveStartKey"] = place_key(source_identifier, status, after)
        most = min(limit, examine)
        at_once = most + 1 if wanted.includes_all(order) else min(examine, BROWSED_AT_ONCE)
        over = time.monotonic() + BROWSED_SECONDS
        found: list[tuple[BrowsePosition, Partition]] = []
        examined = 0
        units = 0.0
        asked |= {"Limit": at_once, "ScanIndexForward": not descending, "ReturnConsumedCapacity": "TOTAL"}
        for page in self._call.pages("query", **asked):
            examined += page["ScannedCount"]
            units += page.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0)
            for item in page["Items"]:
                partition = _readable(item)
                if partition is not None and wanted.matches(partition):
                    found.append((stored_place(item, order), partition))
            if len(found) > most:
                return BrowsePage(partitions=[p for _, p in found[:most]], next=found[most - 1][0])
            end = page.get("LastEvaluatedKey")
            is_enough = examined >= examine or units >= BROWSED_UNITS or time.monotonic() > over
            if end is not None and is_enough:
                return BrowsePage(partitions=[p for _, p in found], next=stored_place(end, order))
        return BrowsePage(partitions=[p for _, p in found], next=None)

    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        """See `CoordinationStore.count_by_status`; reads the index entries of these statuses, so ask for few."""
        return {
            status: sum(
                page["Count"]
                for page in self._call.pages("query", **queue_query(source_identifier, status), Select="COUNT")
            )
            for status in statuses
        }

    def source_identifiers(self) -> list[str]:
        """See `CoordinationStore.source_identifiers`; reads the whole table."""
        names = {"#source": TABLE_KEY[0]}
        pages = self._call.pages("scan", ProjectionExpression="#source", ExpressionAttributeNames=names)
        return sorted({item[TABLE_KEY[0]]["S"] for page in pages for item in page["Items"]})

    # Acquiring

    def _take(self, request: Acquisition, status: PartitionStatus, latest: datetime, taken: list[Partition]) -> None:
        """Lease what is due in one status, page by page, until there is enough.

        Where another worker is met for the first time the queue is read anew, in larger pages: they differ less often
        about where to begin.

        An instant that Java wrote with fewer digits sorts behind ours of the same second, or millisecond, and is seen
        by so much later.
        """
        was_alone = self._spread.is_alone
        page_items = self._spread.page_items(request.limit - len(taken))
        due = queue_query(request.source_identifier, status, highest=format_instant(latest))
        found = False
        for page in self._call.pages("query", **due, Limit=page_items):
            found = found or bool(page["Items"])
            partitions = [p for p in map(_readable, page["Items"]) if p is not None]
            candidates = [p for p in partitions if _is_due(p, latest) and not self._known.outdated(p)]
            if not self._take_from(candidates, request, taken):
                break
        if not found:
            self._quiet.note(request.source_identifier, status, latest)
        if was_alone and not self._spread.is_alone and len(taken) < request.limit:
            self._take(request, status, latest, taken)

    def _take_from(self, candidates: list[Partition], request: Acquisition, taken: list[Partition]) -> bool:
        """Lease what is wanted of one page; tell whether to go on to the next."""
        was_alone = self._spread.is_alone
        place = self._spread.start(len(candidates))
        refusals = 0
        while candidates and len(taken) < request.limit:
            acquired = self._acquire(candidates.pop(place % len(candidates)), request)
            if acquired is not None:
                taken.append(acquired)
                refusals = 0
                continue
            self._spread.met_another()
            place = self._spread.start(len(candidates))
            refusals += 1
            if was_alone or (taken and refusals == REFUSALS_IN_A_ROW):
                return False  # others are at this page: what is left of it is better read anew
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
            found = refused.stored[0]
            if found is None or not (refused.unsure and holds(found, lease)):
                log.debug("partition %r was taken by another worker", candidate.partition_key)
                self._known.note(candidate, _version(found))
                return None
            stored = found  # by an earlier try whose answer was lost
        self._known.note(candidate, intended.version)
        return replace(partition_of(stored), change=intended.change)

    # Writing

    def _put_absent(self, item: Mapping[str, Value]) -> str | None:
        """Write an item whose key is absent; return its key if it was."""
        try:
            self._call("put_item", Item=item, **only_if_absent())
        except RefusedError as refused:
            stored = refused.stored[0]
            if not refused.unsure or stored is None or not holds(stored, item):
                return None
        self._known.forget(item["sourceIdentifier"]["S"], item["sourcePartitionKey"]["S"])
        return item["sourcePartitionKey"]["S"]

    def _write(
        self, updates: list[Partition], creates: list[Partition], new: list[Partition], checks: list[Partition]
    ) -> None:
        """Do all of it or nothing, passing over what is to be created and exists."""
        values = [attributes(p.written(), self._ttl_seconds) for p in updates]
        items = [new_item(p, self._ttl_seconds) for p in creates]
        must_be_new = [new_item(p, self._ttl_seconds) for p in new]
        while True:
            try:
                self._try_to_write(updates, values, [*must_be_new, *items], checks)
                break
            except RefusedError as refused:
                if refused.unsure and updates and _all_stored(refused, values):
                    break  # by an earlier try whose answer was lost
                conditional = [*updates, *new, *([None] * len(items)), *checks]
                before = len(updates) + len(new)
                for place in sorted(refused.stored):
                    if (changed := conditional[place]) is not None:
                        is_new = len(updates) <= place < before
                        raise (creation_refused if is_new else version_refused)(changed) from None
                items = [item for n, item in enumerate(items) if n + before not in refused.stored]
        for partition in updates:
            self._known.note(partition, partition.version + 1)

    def _try_to_write(
        self,
        updates: list[Partition],
        values: list[dict[str, Value | None]],
        items: list[dict[str, Value]],
        checks: list[Partition],
    ) -> None:
        """Write all of it, alone or in a transaction, or raise `RefusedError`."""
        if len(updates) + len(items) + len(checks) > 1 or checks:
            self._transact(updates, values, items, checks)
        elif updates:
            self._call("update_item", **conditional_update(updates[0], values[0]))
        elif items and self._put_absent(items[0]) is None:
            raise RefusedError({0: None}, unsure=False)

    def _transact(
        self,
        updates: list[Partition],
        values: list[dict[str, Value | None]],
        items: list[dict[str, Value]],
        checks: list[Partition],
    ) -> None:
        actions: list[dict[str, Any]] = [
            *({"Update": conditional_update(p, wanted)} for p, wanted in zip(updates, values, strict=True)),
            *({"Put": {"Item": item, **only_if_absent()}} for item in items),
            *({"ConditionCheck": at_version(p)} for p in checks),
        ]
        if len(actions) > TRANSACTION_ITEMS:
            raise ConfigurationError(
                f"store {self._call.name}: a transaction of {len(actions)} partitions; DynamoDB takes "
                f"{TRANSACTION_ITEMS}: keep the partitions in an SQL store"
            )
        for action in actions:
            for request in action.values():
                request["TableName"] = self._table
        # The token makes a repeated call a question about the first one, for ten minutes.
        self._call("transact_write_items", TransactItems=actions, ClientRequestToken=uuid.uuid4().hex)

    # Reading

    def _batch_get(
        self, source_identifier: str, partition_keys: Sequence[str], attribute: str | None = None
    ) -> Iterator[Item]:
        keys = list(dict.fromkeys(partition_keys))
        for start in range(0, len(keys), BATCH_KEYS):
            wanted = [key_of(source_identifier, key) for key in keys[start : start + BATCH_KEYS]]
            yield from self._call.batch_get(wanted, attribute)

    def _stored_priority(self, partition: Partition) -> str:
        """Return a partition's priority as its item has it, in which whoever wrote it chose the number of digits."""
        answer = self._call(
            "get_item",
            Key=key_of(partition.source_identifier, partition.partition_key),
            ProjectionExpression="partitionPriority, sourceIdentifier, sourcePartitionKey",
        )
        item = answer.get("Item")
        if item is not None and "partitionPriority" in item and partition_of(item).priority == partition.priority:
            return str(item["partitionPriority"]["S"])
        return format_instant(partition.priority)


def _place(partition: Partition) -> tuple[str, str]:
    return (partition.source_identifier, partition.partition_key)


def _all_stored(refused: RefusedError, values: list[dict[str, Value | None]]) -> bool:
    """Tell whether every update that was refused is stored as it was meant."""
    places = range(len(values))
    return all((stored := refused.stored.get(place)) is not None and holds(stored, values[place]) for place in places)


def _version(item: Item | None) -> int:
    return int(item["version"]["N"]) if item is not None and "version" in item else 0


def _readable(item: Item) -> Partition | None:
    try:
        return partition_of(item)
    except ConfigurationError as error:
        log.error("%s; it is passed over", error)
        return None


def _is_due(partition: Partition, latest: datetime) -> bool:
    """Tell by its own instants, which Data Prepper may have written to another effect than its priority."""
    due = {PartitionStatus.ASSIGNED: partition.ownership_timeout, PartitionStatus.CLOSED: partition.reopen_at}
    return (due.get(partition.status) or partition.priority) <= latest
