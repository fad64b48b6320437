"""Pages of records without botocore's parsing, which is most of what reading costs.

botocore lets a handler look at an answer before it parses it. This one decodes a page with msgspec, leaves botocore
nothing to parse, and hands the columns over beside the answer. Credentials, signing, endpoints and errors stay
botocore's. Where msgspec is missing, where botocore does not call the handler, or where an answer is not what it should
be, botocore parses as ever, and `pages` makes the same of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from airflow_provider_coordination.sources.kinesis.pages import KinesisRecords

COLUMNS = "FastRecords"
"""Under this name an answer carries the records of its page."""
EVENT = "before-parse.kinesis.GetRecords"


def parse_pages_fast(client: Any) -> bool:
    """Let a client's answers to GetRecords carry their records as `KinesisRecords`; tell whether they will.

    :param client: of boto3; another one is left alone.
    """
    decode = page_decoder()
    events = getattr(client.meta, "events", None)
    if decode is None or events is None:
        return False
    events.register(EVENT, functools.partial(_before_parse, decode))
    return True


def page_decoder() -> Callable[[bytes], Mapping[str, Any]] | None:
    """Return what makes an answer of a page's JSON, or None where msgspec is not installed.

    It raises `ValueError` for what is no page.
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

    def decode(body: bytes) -> Mapping[str, Any]:
        page = decoder.decode(body)
        records = page.Records
        return {
            COLUMNS: KinesisRecords(
                sequence_numbers=[record.SequenceNumber for record in records],
                partition_keys=[record.PartitionKey for record in records],
                arrivals=[round(record.ApproximateArrivalTimestamp * 1_000_000) for record in records],
                data=[record.Data for record in records],
            ),
            "Records": [],
            "NextShardIterator": page.NextShardIterator,
            "MillisBehindLatest": page.MillisBehindLatest,
            "ChildShards": page.ChildShards,
        }

    return decode


def _before_parse(
    decode: Callable[[bytes], Mapping[str, Any]],
    response_dict: dict[str, Any],
    customized_response_dict: dict[str, Any],
    **_: Any,
) -> None:
    if response_dict.get("status_code") != 200:
        return  # errors are botocore's, so that it knows them
    try:
        page = decode(response_dict["body"])
    except ValueError:
        return  # botocore says what is wrong with it
    response_dict["body"] = b"{}"
    customized_response_dict.update(page)
