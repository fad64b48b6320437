"""Pages of records without botocore's parsing, which is most of what reading costs.

A page is decoded with msgspec. Where that is missing, or where an answer is not what it should be, botocore parses as
ever, and `pages` makes the same of it.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from airflow_provider_coordination.sources.fast_answers import Decode, Decoded
from airflow_provider_coordination.sources.kinesis.pages import KinesisRecords

COLUMNS = "FastRecords"
"""Under this name an answer carries the records of its page."""
_ONE_AT_A_TIME = threading.Lock()
"""Threads that decode take turns anyway: one after the other, they use the same memory again and again."""


def page_decoder() -> Decode | None:
    """Return what makes an answer of a page's JSON, or None where msgspec is not installed."""
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

    def decode(body: bytes) -> Decoded:
        with _ONE_AT_A_TIME:
            page = decoder.decode(body)
            fields = {
                COLUMNS: _listed(page.Records),
                "Records": [],
                "NextShardIterator": page.NextShardIterator,
                "MillisBehindLatest": page.MillisBehindLatest,
                "ChildShards": page.ChildShards,
            }
        return Decoded(b"{}", fields)

    return decode


def _listed(records: Sequence[Any]) -> KinesisRecords:
    return KinesisRecords.listed(
        sequence_numbers=[record.SequenceNumber for record in records],
        partition_keys=[record.PartitionKey for record in records],
        arrivals=[round(record.ApproximateArrivalTimestamp * 1_000_000) for record in records],
        data=[record.Data for record in records],
    )
