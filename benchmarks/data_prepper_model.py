"""A model of the requests that Data Prepper's two coordinators make to their DynamoDB table, and of their order.

`LeaseBasedModel` serves the S3 scan and the OpenSearch source: it reads a row before each write. `EnhancedModel` serves
the sources of DynamoDB streams, RDS and MongoDB: it writes the row that it already has, so it is the cheaper one.

The model was written from a description of their behaviour, for a comparison with ours on the same table format. Each
one makes the requests that Data Prepper makes when nothing fails: reads before writes, whole-row writes, queries page
by page. Features that do not change the number or size of requests are left out: time to live, metrics, retries, JSON
mapping, forced runs of the supplier. If versions of Data Prepper differ, the cheaper one is modelled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.partition import format_instant, parse_instant

INDEX = "source-status"
LEASE = timedelta(minutes=10)
GLOBAL_LEASE_RENEWAL = timedelta(minutes=3)
GLOBAL_STATE_KEY = "GLOBAL_STATE_SOURCE_PARTITION_KEY_FOR_CREATING_PARTITIONS"

PAGE_SIZES = {"ASSIGNED": 1, "UNASSIGNED": 5, "CLOSED": 1}
"""The order of the queries, and the rows of a page; a query reads all pages."""

Supplier = Callable[[], Sequence[str]]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One item of the table, as Data Prepper writes it."""

    source_identifier: str
    partition_key: str
    status: str
    priority: str
    version: int = 0
    closed_count: int = 0
    progress: str | None = None
    owner: str | None = None
    ownership_timeout: str | None = None
    reopen_at: str | None = None

    def item(self) -> dict[str, Any]:
        """Return the row as an item of the table."""
        texts = {
            "sourceIdentifier": self.source_identifier,
            "sourcePartitionKey": self.partition_key,
            "sourcePartitionStatus": self.status,
            "sourceStatusCombinationKey": f"{self.source_identifier}|{self.status}",
            "partitionPriority": self.priority,
            "partitionProgressState": self.progress,
            "partitionOwner": self.owner,
            "partitionOwnershipTimeout": self.ownership_timeout,
            "reOpenAt": self.reopen_at,
        }
        numbers = {"version": self.version, "closedCount": self.closed_count}
        return {name: {"S": text} for name, text in texts.items() if text is not None} | {
            name: {"N": str(number)} for name, number in numbers.items()
        }

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Row:
        """Return an item of the table as a row."""

        def text(name: str) -> str | None:
            return item[name]["S"] if name in item else None

        return cls(
            source_identifier=item["sourceIdentifier"]["S"],
            partition_key=item["sourcePartitionKey"]["S"],
            status=item["sourcePartitionStatus"]["S"],
            priority=item["partitionPriority"]["S"],
            version=int(item["version"]["N"]),
            closed_count=int(item["closedCount"]["N"]),
            progress=text("partitionProgressState"),
            owner=text("partitionOwner"),
            ownership_timeout=text("partitionOwnershipTimeout"),
            reopen_at=text("reOpenAt"),
        )


class ModelStore:
    """Data Prepper's DynamoDB store: the requests of each operation.

    :param client: a boto3 DynamoDB client.
    :param table: the table's name.
    :param clock: the clock.
    """

    def __init__(self, client: Any, table: str, clock: Clock) -> None:
        self._client = client
        self._table = table
        self._clock = clock

    def get(self, source_identifier: str, partition_key: str) -> Row | None:
        """One GetItem, eventually consistent."""
        key = {"sourceIdentifier": {"S": source_identifier}, "sourcePartitionKey": {"S": partition_key}}
        item = self._client.get_item(TableName=self._table, Key=key).get("Item")
        return Row.of(item) if item else None

    def try_create(self, source_identifier: str, partition_key: str) -> bool:
        """One PutItem on the condition that the item does not exist."""
        row = Row(
            source_identifier=source_identifier,
            partition_key=partition_key,
            status="UNASSIGNED",
            priority=format_instant(self._clock.now()),
        )
        return self._put(row, ConditionExpression="attribute_not_exists(sourcePartitionKey)")

    def try_update(self, row: Row) -> Row | None:
        """One PutItem of the whole row on the condition that its version is unchanged; None if it has changed."""
        written = replace(row, version=row.version + 1)
        accepted = self._put(
            written,
            ConditionExpression="attribute_exists(sourcePartitionKey) AND version = :read",
            ExpressionAttributeValues={":read": {"N": str(row.version)}},
        )
        return written if accepted else None

    def try_acquire(self, source_identifier: str, owner: str) -> Row | None:
        """Read the index status by status, and try each row until a write is accepted."""
        for status in PAGE_SIZES:
            for row in self._available(source_identifier, status):
                timeout = format_instant(self._clock.now() + LEASE)
                taken = replace(row, status="ASSIGNED", owner=owner, ownership_timeout=timeout, priority=timeout)
                if acquired := self.try_update(taken):
                    return acquired
        return None

    def _available(self, source_identifier: str, status: str) -> Iterator[Row]:
        """Yield the rows of a status until one is not due yet: the rest are due later."""
        for row in self._rows(source_identifier, status):
            due = {"ASSIGNED": row.ownership_timeout, "CLOSED": row.reopen_at}.get(status)
            if due is not None and parse_instant(due) >= self._clock.now():
                return
            yield row

    def _rows(self, source_identifier: str, status: str) -> Iterator[Row]:
        """One Query for each page, and none for a page that nobody asks for."""
        arguments: dict[str, Any] = {
            "TableName": self._table,
            "IndexName": INDEX,
            "KeyConditionExpression": "sourceStatusCombinationKey = :status",
            "ExpressionAttributeValues": {":status": {"S": f"{source_identifier}|{status}"}},
            "Limit": PAGE_SIZES[status],
        }
        while True:
            page = self._client.query(**arguments)
            yield from (Row.of(item) for item in page["Items"])
            if "LastEvaluatedKey" not in page:
                return
            arguments["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _put(self, row: Row, **condition: Any) -> bool:
        try:
            self._client.put_item(TableName=self._table, Item=row.item(), **condition)
        except self._client.exceptions.ConditionalCheckFailedException:
            return False
        return True


class LeaseBasedModel:
    """Its `LeaseBasedSourceCoordinator` of one pipeline on one node.

    :param store: where the partitions are.
    :param pipeline: the pipeline's name.
    :param host: the node's name.
    :param clock: the clock.
    """

    def __init__(self, store: ModelStore, pipeline: str, host: str, clock: Clock) -> None:
        self._store = store
        self._partitions = f"{pipeline}|PARTITION"
        self._global_state = f"{pipeline}|GLOBAL_STATE"
        self._owner = f"{pipeline}:{host}"
        self._clock = clock
        self._global_renewed_at = clock.now()

    def initialize(self) -> None:
        """Create the global-state item if there is none."""
        self._store.try_create(self._global_state, GLOBAL_STATE_KEY)

    def create_partitions(self, keys: Sequence[str]) -> None:
        """Look each up, and write those that were not there."""
        self._renew_global_state()
        for key in keys:
            self._renew_global_state()
            if self._store.get(self._partitions, key) is None:
                self._store.try_create(self._partitions, key)

    def get_next_partition(self, supplier: Supplier | None = None) -> str | None:
        """Acquire a partition; where there is none run the supplier, if no other node does, and try again.

        :param supplier: finds new partitions. None asks once, as `EnhancedModel` does.
        :returns: the partition's key, or None.
        """
        row = self._store.try_acquire(self._partitions, self._owner)
        if row is None and supplier is not None:
            if state := self._acquire_global_state():
                self.create_partitions(supplier())
                self._release_global_state(state.progress)
            row = self._store.try_acquire(self._partitions, self._owner)
        return row.partition_key if row else None

    def save_progress(self, key: str, progress: str) -> None:
        """Read the row, check the owner, write it with its progress and a new lease."""
        timeout = format_instant(self._clock.now() + LEASE)
        self._change(key, progress=progress, ownership_timeout=timeout, priority=timeout)

    def complete(self, key: str) -> None:
        """Read the row, check the owner, write it as finished; its place in the index stays the lease's last end."""
        self._change(key, status="COMPLETED", owner=None, ownership_timeout=None, reopen_at=None)

    def _change(self, key: str, **changes: Any) -> None:
        row = self._store.get(self._partitions, key)
        assert row is not None and row.owner == self._owner, f"{key} is not owned by {self._owner}"
        assert self._store.try_update(replace(row, **changes)), f"{key} has changed under {self._owner}"

    def _acquire_global_state(self) -> Row | None:
        row = self._store.get(self._global_state, GLOBAL_STATE_KEY)
        if row is None or not self._may_take_global_state(row, self._clock.now()):
            return None
        timeout = format_instant(self._clock.now() + LEASE)
        return self._store.try_update(
            replace(row, status="ASSIGNED", owner=self._owner, ownership_timeout=timeout, priority=timeout)
        )

    def _may_take_global_state(self, row: Row, now: datetime) -> bool:
        if row.status == "ASSIGNED":
            expired = row.ownership_timeout is None or parse_instant(row.ownership_timeout) < now
            return expired or row.owner == self._owner
        return row.status == "UNASSIGNED" and row.owner in (None, self._owner)

    def _release_global_state(self, progress: str | None) -> None:
        row = self._store.get(self._global_state, GLOBAL_STATE_KEY)
        assert row is not None, "the global state is gone"
        self._store.try_update(
            replace(row, status="UNASSIGNED", owner=None, ownership_timeout=None, progress=progress or "{}")
        )

    def _renew_global_state(self) -> None:
        if self._clock.now() <= self._global_renewed_at + GLOBAL_LEASE_RENEWAL:
            return
        row = self._store.get(self._global_state, GLOBAL_STATE_KEY)
        if row is not None and row.owner == self._owner:
            timeout = format_instant(self._clock.now() + LEASE)
            self._store.try_update(replace(row, ownership_timeout=timeout, priority=timeout))
        self._global_renewed_at = self._clock.now()


class EnhancedModel:
    """Its `EnhancedLeaseBasedSourceCoordinator` of one pipeline on one node: no suppliers, no reads before writes.

    What protects a partition is the version of the row in hand alone.

    :param store: where the partitions are.
    :param pipeline: the pipeline's name.
    :param host: the node's name, which is the owner.
    :param clock: the clock.
    """

    def __init__(self, store: ModelStore, pipeline: str, host: str, clock: Clock) -> None:
        self._store = store
        self._partitions = f"{pipeline}|PARTITION"
        self._owner = host
        self._clock = clock
        self._in_hand: dict[str, Row] = {}

    def create_partitions(self, keys: Sequence[str]) -> None:
        """Write each, on the condition that there is none."""
        for key in keys:
            self._store.try_create(self._partitions, key)

    def get_next_partition(self) -> str | None:
        """Acquire a partition; return its key, or None."""
        row = self._store.try_acquire(self._partitions, self._owner)
        if row is None:
            return None
        self._in_hand[row.partition_key] = row
        return row.partition_key

    def save_progress(self, key: str, progress: str) -> None:
        """Write the row in hand with its progress and a new lease."""
        timeout = format_instant(self._clock.now() + LEASE)
        self._in_hand[key] = self._write(
            replace(self._in_hand[key], progress=progress, ownership_timeout=timeout, priority=timeout)
        )

    def complete(self, key: str) -> None:
        """Write the row in hand as finished."""
        row = self._in_hand.pop(key)
        self._write(replace(row, status="COMPLETED", owner=None, ownership_timeout=None, reopen_at=None))

    def _write(self, row: Row) -> Row:
        written = self._store.try_update(row)
        assert written is not None, f"{row.partition_key} has changed under {self._owner}"
        return written
