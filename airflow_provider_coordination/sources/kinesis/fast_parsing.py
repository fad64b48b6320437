"""Pages of records without botocore's parsing, which is the largest cost of reading.

A page is decoded with msgspec. If msgspec is not installed, or a response is not as expected, botocore parses the page,
and `pages` makes the same result of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_provider_coordination.sources.kinesis.pages import KinesisRecords

COLUMNS = "FastRecords"
"""The field of a response with the records of its page."""


def page_decoder() -> Callable[[bytes], Mapping[str, Any]] | None:
    """Return a function that decodes a page's JSON into a response, or None if msgspec is not installed.

    The function raises `ValueError` for a body that is not a page.
    """
    try:
        import msgspec
    except ImportError:
        return None

    record = msgspec.defstruct(
        "Record",
        [("SequenceNumber", str), ("ApproximateArrivalTimestamp", float), ("Data", bytes), ("PartitionKey", str)],
        gc=False,
    )
    page_of = msgspec.defstruct(
        "Page",
        [
            ("Records", list.__class_getitem__(record)),
            ("NextShardIterator", str | None, None),
            ("MillisBehindLatest", int | None, None),
            ("ChildShards", list[dict[str, Any]] | None, None),
        ],
        gc=False,
    )
    decoder: Any = msgspec.json.Decoder(page_of)

    def decode(body: bytes) -> dict[str, Any]:
        page = decoder.decode(body)
        return {
            COLUMNS: _listed(page.Records),
            "NextShardIterator": page.NextShardIterator,
            "MillisBehindLatest": page.MillisBehindLatest,
            "ChildShards": page.ChildShards,
        }

    return decode


def _listed(records: Sequence[Any]) -> KinesisRecords:
    return KinesisRecords.from_lists(
        sequence_numbers=[record.SequenceNumber for record in records],
        partition_keys=[record.PartitionKey for record in records],
        arrivals=[round(record.ApproximateArrivalTimestamp * 1_000_000) for record in records],
        data=[record.Data for record in records],
    )
