"""Changes of items as Arrow columns: one row a record of a stream, in the order of the shard.

Items are plain JSON, as those of a table's scan and export: a number has exactly DynamoDB's digits, binary is base64,
and a set is a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.dynamodb.calls import plain_json
from airflow_provider_coordination.sources.dynamodb.item_texts import ItemTexts
from airflow_provider_coordination.sources.kinesis.records import (
    COLUMNS,
    DecodePage,
    KinesisRecord,
    KinesisRecords,
    microseconds,
)

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
        """Return the records of a response.

        :param records: with typed values as boto3 has them, or as the service's JSON has them.

        :raises ItemUnreadableError: if a value has a type that DynamoDB does not have.
        :raises KeyError: if a record lacks a field that every record has.
        """
        return cls.of_columns(list(zip(*map(_row, records), strict=True)) or [()] * len(CHANGE_SCHEMA))

    @classmethod
    def of_columns(cls, columns: Sequence[Sequence[Any]]) -> ChangeRecords:
        """Return the records of the values of each column of `CHANGE_SCHEMA`."""
        arrays = [pa.array(held, field.type) for held, field in zip(columns, CHANGE_SCHEMA, strict=True)]
        return cls(pa.RecordBatch.from_arrays(arrays, schema=CHANGE_SCHEMA))

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


def change_decoder() -> DecodePage | None:
    """Return a function that decodes the pages of DynamoDB Streams, or None if msgspec is not installed.

    The function raises `ItemUnreadableError` as well; see `ChangeRecords.of_response`.
    """
    try:
        import msgspec
    except ImportError:
        return None

    nothing = msgspec.Raw(b"null")
    change_of = msgspec.defstruct(
        "Change",
        [
            ("SequenceNumber", str),
            ("Keys", msgspec.Raw),
            ("ApproximateCreationDateTime", float),
            ("NewImage", msgspec.Raw, nothing),
            ("OldImage", msgspec.Raw, nothing),
            ("SizeBytes", int, 0),
        ],
        gc=False,
    )
    record_of = msgspec.defstruct(
        "Record",
        [("eventName", str), ("dynamodb", change_of), ("userIdentity", dict[str, Any] | None, None)],
        gc=False,
    )
    page_of = msgspec.defstruct(
        "Page",
        [("Records", list.__class_getitem__(record_of)), ("NextShardIterator", str | None, None)],
        gc=False,
    )
    decoder: Any = msgspec.json.Decoder(page_of)
    keys, images = ItemTexts(msgspec.json.decode, _by_name), ItemTexts(msgspec.json.decode)

    def image(typed: Any) -> str | None:
        return None if typed == nothing else images.plain(typed)

    def decode(body: bytes) -> dict[str, Any]:
        page = decoder.decode(body)
        changes = [record.dynamodb for record in page.Records]
        try:
            key = [keys.plain(change.Keys) for change in changes]
            new_image = [image(change.NewImage) for change in changes]
            columns = (
                [change.SequenceNumber for change in changes],
                [record.eventName for record in page.Records],
                key,
                new_image,
                [image(change.OldImage) for change in changes],
                [round(change.ApproximateCreationDateTime * SECOND_US) for change in changes],
                [_is_ttl_delete(record.eventName, record.userIdentity) for record in page.Records],
                [change.SizeBytes for change in changes],
                [new or old for new, old in zip(new_image, key, strict=True)],
            )
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a page: {error!r}") from None
        return {COLUMNS: ChangeRecords.of_columns(columns), "NextShardIterator": page.NextShardIterator}

    return decode


def _by_name(key: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the attributes of a key by their names: the service gives them in any order."""
    return dict(sorted(key.items()))


def _is_ttl_delete(operation: str, identity: Mapping[str, Any] | None) -> bool:
    return operation == "REMOVE" and (identity or {}).get("PrincipalId") == TTL


def _row(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of `CHANGE_SCHEMA`."""
    change, operation = record["dynamodb"], record["eventName"]
    keys = plain_json(_by_name(change["Keys"]))
    new, old = change.get("NewImage"), change.get("OldImage")
    new_image = None if new is None else plain_json(new)
    created_at = change["ApproximateCreationDateTime"]
    return (
        change["SequenceNumber"],
        operation,
        keys,
        new_image,
        None if old is None else plain_json(old),
        microseconds(created_at) if isinstance(created_at, datetime) else round(created_at * SECOND_US),
        _is_ttl_delete(operation, record.get("userIdentity")),
        change.get("SizeBytes", 0),
        keys if new_image is None else new_image,
    )
