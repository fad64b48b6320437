"""Writes to the table of a DynamoDB store, and what a worker remembers of its writes and queues to save requests.

A write is conditional, and a transaction where there are several. A refusal may come from an earlier try of the same
call whose response was lost, so what is stored decides. What is remembered is only a hint: losing it costs refused
writes and additional queries, but never a partition.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import creation_refused, version_refused
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls, RefusedError
from airflow_provider_coordination.stores.dynamodb.items import (
    Value,
    at_version,
    attributes,
    conditional_update,
    holds,
    new_item,
    only_if_absent,
)

PAGE_ITEMS = 8
"""Reading this number of items of the usual size costs no more than reading one."""
CONTENDED_PAGE_FACTOR = 16
MIN_CONTENDED_PAGE_ITEMS = 48
MAX_CONTENDED_PAGE_ITEMS = 256
"""If eight workers start at random positions of such a page, one write in eight is refused, or one in five if each
acquires many."""
CONTENTION_ACQUISITIONS = 16
REFUSALS_IN_A_ROW = 4
INDEX_DELAY_SECONDS = 5.0
KNOWN_PARTITIONS = 1000
QUIET_TIME = timedelta(seconds=5)
"""How long a queue in which nothing was due is queried after the others instead of before them."""


class QueueStart:
    """Decides where in the queue to start: at its front, unless other workers were met there recently.

    :param randomness: the source of randomness.
    """

    def __init__(self, randomness: random.Random) -> None:
        self._randomness = randomness
        self._contended_for = 0

    def begin(self) -> None:
        """Record that an acquisition starts."""
        self._contended_for = max(0, self._contended_for - 1)

    def met_another(self) -> None:
        """Record that another worker was faster."""
        self._contended_for = CONTENTION_ACQUISITIONS

    @property
    def is_alone(self) -> bool:
        """Whether no other worker was met recently."""
        return not self._contended_for

    def page_items(self, wanted: int) -> int:
        """Return how many items to read at once in order to acquire `wanted` items."""
        if self.is_alone:
            return max(wanted, PAGE_ITEMS)
        return min(max(CONTENDED_PAGE_FACTOR * wanted, MIN_CONTENDED_PAGE_ITEMS), MAX_CONTENDED_PAGE_ITEMS)

    def start(self, items: int) -> int:
        """Return the index of the item to try next.

        :param items: the number of remaining items.
        """
        return self._randomness.randrange(items) if items and not self.is_alone else 0


class KnownVersions:
    """The versions of partitions that this process wrote or read recently, to detect stale index entries.

    :param monotonic: returns the monotonic time in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._versions: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, partition: Partition, version: int) -> None:
        """Record the version of a partition in the table."""
        key = (partition.source_identifier, partition.partition_key)
        with self._lock:
            self._versions.pop(key, None)
            self._versions[key] = (version, self._monotonic())
            while len(self._versions) > KNOWN_PARTITIONS:
                self._versions.popitem(last=False)

    def forget(self, source_identifier: str, partition_key: str) -> None:
        """Forget a partition that was deleted or created, because its versions restart."""
        with self._lock:
            self._versions.pop((source_identifier, partition_key), None)

    def outdated(self, partition: Partition) -> bool:
        """Return whether a newer version than the one in the index is known, for as long as the index may lag.

        The versions of a partition that another program deleted and created again restart at 0; such a partition must
        not be skipped forever.
        """
        with self._lock:
            version, seen_at = self._versions.get((partition.source_identifier, partition.partition_key), (0, 0.0))
            return partition.version < version and self._monotonic() - seen_at < INDEX_DELAY_SECONDS


class QuietQueues:
    """The queues in which nothing was due a moment ago, by the time of the acquisition."""

    def __init__(self) -> None:
        self._queried: dict[tuple[str, PartitionStatus], datetime] = {}

    def note(self, source_identifier: str, status: PartitionStatus, latest: datetime) -> None:
        """Record that no partition of a status was due at an instant."""
        self._queried[source_identifier, status] = latest

    def is_quiet(self, source_identifier: str, status: PartitionStatus, latest: datetime) -> bool:
        """Return whether nothing was due a moment before this instant."""
        queried = self._queried.get((source_identifier, status))
        return queried is not None and timedelta(0) <= latest - queried < QUIET_TIME


TRANSACTION_ITEMS = 100
"""DynamoDB's limit for one transaction."""


class DynamoDbWrites:
    """The writes of a store.

    :param call: calls DynamoDB.
    :param table: the name of the table.
    :param known: receives the versions that are written.
    :param ttl_seconds: how long completed partitions are kept; None forever.
    """

    def __init__(self, call: DynamoDbCalls, table: str, known: KnownVersions, ttl_seconds: int | None) -> None:
        self._call = call
        self._table = table
        self._known = known
        self._ttl_seconds = ttl_seconds

    def put_absent(self, item: Mapping[str, Value]) -> str | None:
        """Write an item if it does not exist; return its key if it was written."""
        try:
            self._call("put_item", Item=item, **only_if_absent())
        except RefusedError as refused:
            stored = refused.stored[0]
            if not refused.unsure or stored is None or not holds(stored, item):
                return None
        self._known.forget(item["sourceIdentifier"]["S"], item["sourcePartitionKey"]["S"])
        return item["sourcePartitionKey"]["S"]

    def write(
        self, updates: list[Partition], creates: list[Partition], new: list[Partition], checks: list[Partition]
    ) -> None:
        """Write everything or nothing, except items to create that exist already."""
        values = [attributes(p.written(), self._ttl_seconds) for p in updates]
        items = [new_item(p, self._ttl_seconds) for p in creates]
        must_be_new = [new_item(p, self._ttl_seconds) for p in new]
        while True:
            try:
                self._write_once(updates, values, [*must_be_new, *items], checks)
                break
            except RefusedError as refused:
                if refused.unsure and updates and _all_stored(refused, values):
                    break  # written by an earlier try whose response was lost
                conditional = [*updates, *new, *([None] * len(items)), *checks]
                before = len(updates) + len(new)
                for index in sorted(refused.stored):
                    if (changed := conditional[index]) is not None:
                        is_new = len(updates) <= index < before
                        raise (creation_refused if is_new else version_refused)(changed) from None
                items = [item for n, item in enumerate(items) if n + before not in refused.stored]
        for partition in updates:
            self._known.note(partition, partition.version + 1)

    def _write_once(
        self,
        updates: list[Partition],
        values: list[dict[str, Value | None]],
        items: list[dict[str, Value]],
        checks: list[Partition],
    ) -> None:
        """Write everything, as a single request or in a transaction, or raise `RefusedError`."""
        actions: list[dict[str, Any]] = [
            *({"Update": conditional_update(p, wanted)} for p, wanted in zip(updates, values, strict=True)),
            *({"Put": {"Item": item, **only_if_absent()}} for item in items),
            *({"ConditionCheck": at_version(p)} for p in checks),
        ]
        if len(actions) > 1 or checks:
            self._transact(actions)
        elif updates:
            self._call("update_item", **conditional_update(updates[0], values[0]))
        elif items and self.put_absent(items[0]) is None:
            raise RefusedError({0: None}, unsure=False)

    def _transact(self, actions: list[dict[str, Any]]) -> None:
        if len(actions) > TRANSACTION_ITEMS:
            raise ConfigurationError(
                f"store {self._call.name}: a transaction has {len(actions)} partitions; the limit of DynamoDB is "
                f"{TRANSACTION_ITEMS}. Keep the partitions in an SQL store"
            )
        for action in actions:
            for request in action.values():
                request["TableName"] = self._table
        # With the token, a repeated call only returns the result of the first one, for ten minutes.
        self._call("transact_write_items", TransactItems=actions, ClientRequestToken=uuid.uuid4().hex)


def _all_stored(refused: RefusedError, values: list[dict[str, Value | None]]) -> bool:
    """Return whether every refused update is stored as intended."""
    indexes = range(len(values))
    return all((stored := refused.stored.get(n)) is not None and holds(stored, values[n]) for n in indexes)
