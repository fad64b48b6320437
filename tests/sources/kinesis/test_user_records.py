"""A page expanded by columns equals its records expanded one by one."""

from __future__ import annotations

import hashlib
import importlib.util
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.kinesis.aggregation import MAGIC, HashKeyRange, expand_within, hash_key_of
from airflow_provider_coordination.sources.kinesis.records import KinesisRecord, KinesisRecords
from airflow_provider_coordination.sources.kinesis.user_records import USER_RECORD_SCHEMA, user_records
from tests.support.aggregation import aggregate
from tests.support.depth import examples

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HALF = HashKeyRange(0, 2**127 - 1)
WHOLE = HashKeyRange(0, 2**128 - 1)

KEYS = st.sampled_from(["a", "b", "c", "key-ö"]) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=140
)
# Around 128 and 16384 protobuf's lengths take another byte.
PAYLOADS = st.binary(max_size=20) | st.sampled_from([0, 121, 122, 123, 124, 127, 128, 129, 16_380, 16_384]).map(bytes)
USERS = st.lists(st.tuples(KEYS, PAYLOADS), min_size=1, max_size=8)
GIVEN = st.lists(st.none() | st.integers(0, 2**128 - 1).map(str), max_size=3)
MANY = 32
"""From this number on, messages are read side by side."""
RANGES = st.sampled_from([None, WHOLE, HALF, HashKeyRange(2**127, 2**128 - 1), HashKeyRange(5, 5)])


def sealed(message: bytes) -> bytes:
    return MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """An aggregate that was damaged before it was sealed, so that its digest is right."""
    message = bytearray(aggregate(draw(USERS))[len(MAGIC) : -16])
    for _ in range(draw(st.integers(1, 3))):
        message[draw(st.integers(0, len(message) - 1))] = draw(st.integers(0, 255))
    return sealed(bytes(message[: draw(st.integers(0, len(message)) | st.just(len(message)))]))


DATA = st.one_of(
    st.binary(max_size=30),
    USERS.map(aggregate),
    st.tuples(USERS, GIVEN).map(lambda pair: aggregate(pair[0], pair[1][: len(pair[0])])),
    damaged(),
    st.binary(max_size=40).map(sealed),
    USERS.map(aggregate).map(lambda data: data[:-1]),
)


def page_of(data: list[bytes]) -> KinesisRecords:
    return KinesisRecords.of([KinesisRecord(str(10**55 + n), f"outer-{n}", NOON, d) for n, d in enumerate(data)])


def one_by_one(page: KinesisRecords, hash_keys: HashKeyRange | None, after: int | None) -> tuple[list[Any], int]:
    found, filtered = [], 0
    for number, record in enumerate(page):
        users, dropped = expand_within(record.data, record.partition_key, hash_keys)
        filtered += dropped
        for sub, key, payload in users:
            if number or after is None or sub > after:
                found.append((record.sequence_number, sub, key, record.approximate_arrival_timestamp, payload))
    return found, filtered


def in_columns(page: KinesisRecords, hash_keys: HashKeyRange | None, after: int | None) -> tuple[list[Any], int]:
    users = user_records(page, hash_keys, after=after)
    assert users.columns.schema == USER_RECORD_SCHEMA
    users.columns.validate(full=True)
    return [tuple(row.values()) for row in users.columns.to_pylist()], users.filtered


@settings(max_examples=examples(60))  # the first call imports a lot
@given(st.lists(DATA, max_size=6), st.sampled_from([1, MANY]), RANGES, st.none() | st.integers(0, 3))
def test_columns_hold_the_individually_expanded_records(
    data: list[bytes], times: int, hash_keys: HashKeyRange | None, after: int | None
) -> None:
    page = page_of(data * times)
    assert in_columns(page, hash_keys, after) == one_by_one(page, hash_keys, after)


KEY, USER = b"\x0a\x01a", b"\x1a\x06\x08\x00\x1a\x02hi"


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(KEY + USER + b"\x1a\x0b\x08\x00\x1a\x02hi\x22\x03\x0a\x01t", id="a tag"),
        pytest.param(KEY + b"\x1a\x06\x08\x01\x1a\x02hi", id="a key that only the next one has"),
        pytest.param(KEY + b"\x1a\x06\x08\x00\x1a\x01hi", id="data that is shorter than its record"),
        pytest.param(KEY + b"\x1a\x06\x08\x00\x1a\x03hi" + USER, id="data that is longer than its record"),
        pytest.param(KEY + b"\x1a\x86\x80\x00\x08\x00\x1a\x02hi", id="a length in three bytes"),
        pytest.param(KEY + b"\x1a\x07\x08\x80\x00\x1a\x02hi", id="an index in two bytes"),
        pytest.param(KEY + b"\x1a\x08\x08\x80\x80\x00\x1a\x02hi", id="an index in three bytes"),
        pytest.param(KEY + b"\x1a\x06\x10\x00\x1a\x02hi", id="no index"),
        pytest.param(KEY + b"\x1a\x06\x1a\x02hi\x08\x00", id="data before the index"),
        pytest.param(USER + KEY, id="keys after records"),
        pytest.param(b"\x0a\x81\x80\x00a" + USER, id="a key's length in three bytes"),
        pytest.param(b"\x0a\x01\xff" + USER, id="a key that is no text"),
        pytest.param(KEY, id="no records"),
        pytest.param(KEY + USER[:-1], id="cut off"),
    ],
)
def test_irregular_aggregate_among_regular_ones_expands_the_same(message: bytes) -> None:
    good = aggregate([("b", b"1"), ("c", b"2")])
    for times in (1, MANY):
        page = page_of([good, sealed(message), good, b"plain"] * times)
        assert in_columns(page, None, None) == one_by_one(page, None, None)
        assert in_columns(page, HALF, None) == one_by_one(page, HALF, None)


@pytest.mark.parametrize("count", [127, 128, 129, 1000])
def test_aggregates_with_many_keys_are_expanded(count: int) -> None:
    long = aggregate([(f"key-{n}", b"%d" % n) for n in range(count)])
    for data in ([long, b"plain"], [long] * MANY, [aggregate([("a", b"1")]), *[long] * 3] * MANY):
        page = page_of(data)
        assert in_columns(page, HALF, None) == one_by_one(page, HALF, None)


def test_last_message_alone_is_expanded_to_its_end() -> None:
    long = aggregate([(f"key-{n}", b"%d" % n) for n in range(500)])
    page = page_of([*[aggregate([("a", b"1")])] * MANY, long, *[aggregate([("b", b"2")])] * MANY])
    assert in_columns(page, None, None) == one_by_one(page, None, None)


def test_regular_aggregates_use_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*arguments: object) -> None:
        raise AssertionError("one by one")

    monkeypatch.setattr("airflow_provider_coordination.sources.kinesis.user_records.expand_within", never)
    users = user_records(page_of([b"plain", aggregate([("a", b"x" * 200), ("b", b"")]), aggregate([("a", b"y")])]))
    assert users.columns["data"].to_pylist() == [b"plain", b"x" * 200, b"", b"y"]


def test_result_is_the_same_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    page = page_of([b"plain", aggregate([("a", b"1"), ("b", b"2")])])
    before = in_columns(page, HALF, None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert in_columns(page, HALF, None) == before


@pytest.mark.integration  # for its time
def test_aggregate_of_a_million_tiny_records_expands() -> None:
    message = b"\x0a\x01a" + b"\x1a\x05\x08\x00\x1a\x01x" * 1_000_000
    users = user_records(page_of([sealed(message)]), HashKeyRange(hash_key_of("a"), hash_key_of("a")))
    assert (users.columns.num_rows, users.filtered) == (1_000_000, 0)
    assert users.columns["sub_sequence_number"][-1].as_py() == 999_999


def test_page_of_foreign_user_records_is_empty() -> None:
    users = user_records(page_of([aggregate([("a", b"1"), ("b", b"2")])] * 2), HashKeyRange(5, 5))
    assert (users.columns.num_rows, users.filtered) == (0, 4)
