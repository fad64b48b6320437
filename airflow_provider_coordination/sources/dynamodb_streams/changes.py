"""Changes of items as Arrow columns: one row a record of a stream, in the order of the shard.

Items are plain JSON, as those of a table's scan and export: a number has exactly DynamoDB's digits, binary is base64,
and a set is a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.dynamodb.calls import plain_json
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord, KinesisRecords, microseconds

TTL = "dynamodb.amazonaws.com"
"""The principal of deletes that DynamoDB makes because an item expired."""
SECOND_US = 1_000_000

NUMBER_DIGITS = 40
"""The maximum number of digits of a sequence number."""

CHANGE_SCHEMA = pa.schema(
    [
        pa.field("sequence_number", pa.string(), nullable=False),
        pa.field("operation", pa.string(), nullable=False),
        pa.field("keys", pa.string(), nullable=False),
        pa.field("new_image", pa.string()),
        pa.field("old_image", pa.string()),
        pa.field("approximate_creation_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("is_ttl_delete", pa.bool_(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("data", pa.string(), nullable=False),
    ]
)
"""The columns of a change; `docs/dynamodb_streams.md` describes them."""


CHANGE_COLUMNS = pa.schema(
    [
        pa.field("table_name", pa.string()),
        pa.field("shard_id", pa.string()),
        *(column.with_nullable(True) for column in CHANGE_SCHEMA),
        pa.field("change_order", pa.string()),
    ]
)
"""The columns of a landed change, and of an item of the history, without those of every record."""


def change_order(epoch: int, numbers: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the order of changes as text of one width: of two changes of an item, the later one has the greater text.

    :param epoch: when the stream was created, or was reset since, in whole seconds since 1970: what is read of a stream
        that is enabled again, or is read again, is later than everything before.
    :param numbers: the sequence numbers. An item of the history has the number 0: every change of the stream is later.
    """
    padded = pc.utf8_lpad(numbers, NUMBER_DIGITS, "0")
    return pc.binary_join_element_wise(f"{epoch:012d}", padded, "-")


class ChangeRecords(KinesisRecords):
    """Changes in order; for what shards have in common, they are records whose data is the item.

    :param changes: of `CHANGE_SCHEMA`.
    """

    __slots__ = ("changes",)

    def __init__(self, changes: pa.RecordBatch) -> None:
        arrivals = changes.column("approximate_creation_time").cast(pa.int64())
        super().__init__(changes.column("sequence_number"), changes.column("keys"), arrivals, changes.column("data"))
        self.changes = changes

    @classmethod
    def of_response(cls, records: Iterable[Mapping[str, Any]]) -> ChangeRecords:
        """Return the records of a response, with typed values as boto3 has them.

        :raises ItemUnreadableError: if a value has a type that DynamoDB does not have.
        :raises KeyError: if a record lacks a field that every record has.
        """
        return cls(pa.RecordBatch.from_pylist([_row(record) for record in records], schema=CHANGE_SCHEMA))

    @property
    @override
    def size(self) -> int:
        return pc.sum(self.changes.column("size_bytes")).as_py() or 0

    @override
    def first_since(self, since_1970_us: int) -> int:
        """Return the index of the first record that arrived at an instant or later; the length if none did.

        DynamoDB rounds times down to whole seconds. A record that arrived after an instant may have the start of its
        second, so an instant means its whole second.
        """
        return super().first_since(since_1970_us - since_1970_us % SECOND_US)

    @overload
    def __getitem__(self, index: int) -> KinesisRecord: ...

    @overload
    def __getitem__(self, index: slice) -> ChangeRecords: ...

    @override
    def __getitem__(self, index: int | slice) -> KinesisRecord | ChangeRecords:
        if isinstance(index, slice):
            start, stop, _ = index.indices(len(self))
            return ChangeRecords(self.changes.slice(start, max(stop - start, 0)))
        return super().__getitem__(index)


def _row(record: Mapping[str, Any]) -> dict[str, Any]:
    change = record["dynamodb"]
    keys = plain_json(dict(sorted(change["Keys"].items())))  # the service gives them in any order
    new, old = (None if change.get(name) is None else plain_json(change[name]) for name in ("NewImage", "OldImage"))
    by = record.get("userIdentity") or {}
    return {
        "sequence_number": change["SequenceNumber"],
        "operation": record["eventName"],
        "keys": keys,
        "new_image": new,
        "old_image": old,
        "approximate_creation_time": microseconds(change["ApproximateCreationDateTime"]),
        "is_ttl_delete": record["eventName"] == "REMOVE" and by.get("PrincipalId") == TTL,
        "size_bytes": change.get("SizeBytes", 0),
        "data": keys if new is None else new,
    }
