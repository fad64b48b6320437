"""Pages that msgspec decodes are the pages that botocore parses."""

from __future__ import annotations

import base64
import builtins
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.reader import read_shard, reading_client
from airflow_provider_coordination.sources.kinesis.records import COLUMNS, KinesisRecord, page_decoder
from tests.support.aws_wire import AwsWire

SETTINGS = AwsSettings(
    region="eu-west-1",
    endpoint_url="http://127.0.0.1:1",
    access_key_id="AKIA",
    secret_access_key="hush",
    max_attempts=1,
)
CHILD = {
    "ShardId": "shard-2",
    "ParentShards": ["shard-1"],
    "HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "9"},
}


def a_record(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "SequenceNumber": str(10**55 + number),
        "ApproximateArrivalTimestamp": 1767268800.123 + number,
        "Data": base64.b64encode(b"\x00\xff data %d" % number).decode(),
        "PartitionKey": f"ключ-{number}",
        **changes,
    }


PAGES = {
    "records": {"Records": [a_record(1), a_record(2)], "NextShardIterator": "i2", "MillisBehindLatest": 1500},
    "empty": {"Records": [], "NextShardIterator": "i2", "MillisBehindLatest": 0},
    "last": {"Records": [a_record(1)], "ChildShards": [CHILD], "MillisBehindLatest": 0},
    "encrypted": {"Records": [a_record(1, EncryptionType="KMS")], "NextShardIterator": "i2"},
    "of a later version": {"Records": [a_record(1, New={"a": [1]})], "NextShardIterator": "i2", "Newer": 1},
    "whole seconds": {"Records": [a_record(1, ApproximateArrivalTimestamp=1767268800)], "NextShardIterator": "i2"},
    "no data": {"Records": [a_record(1, Data="")], "NextShardIterator": "i2"},
    "nulls": {"Records": [a_record(1)], "NextShardIterator": None, "ChildShards": None, "MillisBehindLatest": None},
}


@pytest.fixture(scope="module")
def plain() -> Any:
    return kinesis_client(SETTINGS)


@pytest.fixture(scope="module")
def fast() -> Any:
    return reading_client(SETTINGS)


def first_page(client: Any, answer: dict[str, Any]) -> ShardPage:
    wire = AwsWire(client)
    wire.answer("GetShardIterator", {"ShardIterator": "i1"})
    wire.answer("GetRecords", answer)
    try:
        return next(read_shard(client, "clicks", "shard-1", "TRIM_HORIZON"))
    finally:
        wire.disconnect()


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_both_parsers_give_the_same_page(plain: Any, fast: Any, page: dict[str, Any]) -> None:
    one, other = first_page(plain, page), first_page(fast, page)

    assert list(one.records) == list(other.records)
    assert (one.millis_behind_latest, one.end_of_shard, one.children) == (
        other.millis_behind_latest,
        other.end_of_shard,
        other.children,
    )


def test_record_is_returned_as_sent(fast: Any) -> None:
    assert first_page(fast, PAGES["records"]).records[0] == KinesisRecord(
        str(10**55 + 1), "ключ-1", datetime(2026, 1, 1, 12, 0, 1, 123000, tzinfo=UTC), b"\x00\xff data 1"
    )


def test_pages_use_the_fast_path(fast: Any, plain: Any) -> None:
    for client, is_fast in ((fast, True), (plain, False)):
        wire = AwsWire(client)
        wire.answer("GetRecords", PAGES["records"])
        assert (COLUMNS in client.get_records(ShardIterator="i1")) is is_fast
        wire.disconnect()


@given(st.integers(1_400_000_000_000, 4_000_000_000_000))
def test_every_millisecond_parses_to_the_same_instant(since_1970_ms: int) -> None:
    decode = page_decoder()
    assert decode is not None
    body = json.dumps({"Records": [a_record(1, ApproximateArrivalTimestamp=since_1970_ms / 1000)]}).encode()
    assert decode(body)[COLUMNS].arrivals.to_pylist() == [since_1970_ms * 1000]


def test_errors_stay_those_of_botocore(fast: Any) -> None:
    wire = AwsWire(fast)
    wire.refuse("GetRecords", "ExpiredIteratorException")
    with pytest.raises(ClientError, match="ExpiredIteratorException"):
        fast.get_records(ShardIterator="i1")
    wire.disconnect()


def test_other_responses_are_left_to_botocore(fast: Any) -> None:
    wire = AwsWire(fast)
    wire.answer("GetRecords", {"MillisBehindLatest": 0})
    answer = fast.get_records(ShardIterator="i1")
    assert COLUMNS not in answer and "Records" not in answer
    wire.disconnect()


@pytest.fixture
def without_msgspec(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def importing(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "msgspec":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", importing)


@pytest.mark.usefixtures("without_msgspec")
def test_botocore_parses_without_msgspec(plain: Any) -> None:
    assert page_decoder() is None
    client = reading_client(SETTINGS)
    assert first_page(client, PAGES["records"]).records == first_page(plain, PAGES["records"]).records
