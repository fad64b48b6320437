"""Writes to the table of a DynamoDB store: conditional, and as a transaction where there are several.

A refusal may come from an earlier try of the same call whose response was lost, so what is stored decides.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.store import creation_refused, version_refused
from airflow_provider_coordination.stores.dynamodb.calls import DynamoDbCalls, RefusedError
from airflow_provider_coordination.stores.dynamodb.hints import KnownVersions
from airflow_provider_coordination.stores.dynamodb.items import (
    Value,
    at_version,
    attributes,
    conditional_update,
    holds,
    new_item,
    only_if_absent,
)

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
        if len(updates) + len(items) + len(checks) > 1 or checks:
            self._transact(updates, values, items, checks)
        elif updates:
            self._call("update_item", **conditional_update(updates[0], values[0]))
        elif items and self.put_absent(items[0]) is None:
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
