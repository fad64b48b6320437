"""Aggregated records of the Kinesis Producer Library are unpacked; other records pass unchanged."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.sources.kinesis.aggregation import (
    MAGIC,
    HashKeyRange,
    expand,
    expand_within,
    hash_key_of,
    is_aggregated,
)
from tests.support.aggregation import aggregate
from tests.support.depth import examples

KEYS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
# The sizes around 128 and 16384 are where protobuf's lengths take another byte.
PAYLOADS = st.binary(max_size=200) | st.sampled_from([120, 125, 127, 128, 16_370, 16_384]).map(bytes)
USER_RECORDS = st.lists(st.tuples(KEYS, PAYLOADS), min_size=1, max_size=20)


def sealed(message: bytes) -> bytes:
    """An aggregate of this message, whatever the message is."""
    return MAGIC + message + hashlib.md5(message, usedforsecurity=False).digest()


def record(content: bytes) -> bytes:
    assert len(content) < 128
    return b"\x1a" + bytes([len(content)]) + content


KEY_A = b"\x0a\x01a"
KEY_B = b"\x0a\x01b"
HASH_KEY_7 = b"\x12\x017"
RECORD_A = record(b"\x08\x00\x1a\x02hi")


@given(USER_RECORDS)
def test_aggregate_expands_to_the_same_records_in_order(records: list[tuple[str, bytes]]) -> None:
    data = aggregate(records)

    assert is_aggregated(data)
    assert expand(data, "outer") == [(number, key, payload) for number, (key, payload) in enumerate(records)]


def test_more_than_127_keys_expand() -> None:
    records = [(f"key-{number}", b"x") for number in range(1000)]

    assert [key for _, key, _ in expand(aggregate(records), "outer")] == [key for key, _ in records]


def test_record_of_the_producer_library_expands() -> None:
    # Three user records under two keys, as the format's public description lays them out.
    message = KEY_A + KEY_B + RECORD_A + record(b"\x08\x01\x1a\x01x") + record(b"\x08\x00\x1a\x00")

    assert expand(sealed(message), "outer") == [(0, "a", b"hi"), (1, "b", b"x"), (2, "a", b"")]


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(RECORD_A + KEY_A, id="keys after records"),
        pytest.param(KEY_A + record(b"\x1a\x02hi\x08\x00"), id="data before the index"),
        pytest.param(KEY_A + HASH_KEY_7 + record(b"\x08\x00\x10\x00\x1a\x02hi"), id="explicit hash key"),
        pytest.param(KEY_A + record(b"\x08\x00\x1a\x02hi\x22\x03\x0a\x01t"), id="a tag"),
        pytest.param(KEY_A + record(b"\x08\x80\x00\x1a\x02hi"), id="an index in two bytes"),
        pytest.param(KEY_A + record(b"\x08\x00\x1a\x82\x00hi"), id="a data length in two bytes"),
        pytest.param(KEY_A + b"\x1a\x86\x00\x08\x00\x1a\x02hi", id="a record length in two bytes"),
        pytest.param(KEY_A + b"\x1a\x86\x80\x00\x08\x00\x1a\x02hi", id="a record length in three bytes"),
        pytest.param(KEY_A + record(b"\x08\x00\x1a\x03old\x1a\x02hi"), id="data twice, the last counts"),
        pytest.param(
            b"\x7a\x01?" + KEY_A + b"\x28\x05" + RECORD_A + b"\x31" + bytes(8) + b"\x35" + bytes(4),
            id="unknown fields of every kind",
        ),
        pytest.param(KEY_A + record(b"\x08\x00\x1a\x02hi\x35abcd"), id="an unknown field in a record"),
        pytest.param(b"\x8a\x00\x01a" + RECORD_A, id="a tag in two bytes"),
    ],
)
def test_every_valid_encoding_is_read(message: bytes) -> None:
    assert expand(sealed(message), "outer") == [(0, "a", b"hi")]


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"a plain record", id="plain"),
        pytest.param(MAGIC, id="the magic alone"),
        pytest.param(MAGIC[:3], id="a part of the magic"),
        pytest.param(MAGIC + b"0123456789abcdef", id="magic and sixteen bytes"),
        pytest.param(sealed(b""), id="an empty message"),
        pytest.param(MAGIC + b"garbage after the magic number", id="garbage after the magic"),
        pytest.param(sealed(KEY_A + RECORD_A)[:-1], id="the last byte missing"),
        pytest.param(sealed(KEY_A + RECORD_A)[:-20], id="truncated in the message"),
        pytest.param(sealed(KEY_A + RECORD_A) + b"\n", id="a byte too many"),
        pytest.param(sealed(KEY_A + RECORD_A)[:-1] + b"\x00", id="wrong digest"),
        pytest.param(b"x" + sealed(KEY_A + RECORD_A), id="a byte before the magic"),
        pytest.param(sealed(KEY_A + RECORD_A[:-1]), id="message ends in a record"),
        pytest.param(sealed(KEY_A + b"\x1a"), id="message ends after a tag"),
        pytest.param(sealed(KEY_A + b"\x1a\xff"), id="message ends in a varint"),
        pytest.param(sealed(KEY_A + RECORD_A + b"\x0a\x05abc"), id="a key longer than the message"),
        pytest.param(sealed(KEY_A + b"\x1a" + b"\xff" * 10 + b"\x01" + b"x"), id="a varint of eleven bytes"),
        pytest.param(sealed(KEY_A + record(b"\x08\x01\x1a\x02hi")), id="an index beyond the keys"),
        pytest.param(
            sealed(KEY_A + RECORD_A + record(b"\x08\x01\x1a\x02hi")),
            id="an index beyond the keys, second record",
        ),
        pytest.param(sealed(RECORD_A), id="no keys"),
        pytest.param(sealed(KEY_A), id="no records"),
        pytest.param(sealed(KEY_A + record(b"\x1a\x02hi")), id="a record without an index"),
        pytest.param(sealed(KEY_A + record(b"\x08\x00")), id="a record without data"),
        pytest.param(sealed(KEY_A + record(b"")), id="an empty record"),
        pytest.param(sealed(KEY_A + record(b"\x08\x00\x1a\x09hi")), id="data longer than its record"),
        pytest.param(sealed(KEY_A + record(b"\x08\x00\x1a\x03hi") + b"z"), id="data that reaches into the next"),
        pytest.param(sealed(KEY_A + record(b"\x08\x00\x10\x00\x1a\x02hi")), id="a hash key index beyond the table"),
        pytest.param(sealed(b"\x0a\x01\xff" + RECORD_A), id="a key that is no text"),
        pytest.param(sealed(KEY_A + RECORD_A + b"\x00\x00"), id="field number zero"),
        pytest.param(sealed(KEY_A + RECORD_A + b"\x0b\x0c"), id="a group"),
    ],
)
def test_invalid_aggregate_passes_through_unchanged(data: bytes) -> None:
    assert expand(data, "outer") == [(0, "outer", data)]


@given(USER_RECORDS, st.data())
def test_damaged_record_stays_whole(records: list[tuple[str, bytes]], draw: st.DataObject) -> None:
    data = bytearray(aggregate(records))
    place = draw.draw(st.integers(0, len(data) - 1))
    data[place] ^= draw.draw(st.integers(1, 255))

    assert expand(bytes(data), "outer") == [(0, "outer", bytes(data))]


@given(USER_RECORDS, st.data())
def test_message_damaged_before_sealing_neither_raises_nor_vanishes(
    records: list[tuple[str, bytes]], draw: st.DataObject
) -> None:
    message = bytearray(aggregate(records)[len(MAGIC) : -16])
    place = draw.draw(st.integers(0, len(message) - 1))
    message[place] = draw.draw(st.integers(0, 255))
    data = sealed(bytes(message))

    expanded = expand(data, "outer")

    assert [number for number, _, _ in expanded] == list(range(len(expanded)))
    assert expanded


@given(st.binary(max_size=60))
def test_any_sealed_bytes_give_at_least_one_record(message: bytes) -> None:
    assert expand(sealed(message), "outer")


def test_nested_aggregate_is_expanded_once() -> None:
    inner = aggregate([("a", b"hi")])

    assert expand(aggregate([("b", inner)]), "outer") == [(0, "b", inner)]


def test_empty_aggregate_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one user record"):
        aggregate([])


HASH_KEYS = st.none() | st.integers(0, 2**128 - 1).map(str) | st.integers(0, 99).map("{:05d}".format)


@settings(max_examples=examples(50))
@given(st.lists(st.tuples(KEYS, PAYLOADS, HASH_KEYS), min_size=1, max_size=10), st.data())
def test_user_record_belongs_to_the_shard_of_its_hash_key(
    records: list[tuple[str, bytes, str | None]], draw: st.DataObject
) -> None:
    first, last = sorted(draw.draw(st.tuples(*[st.integers(0, 2**128 - 1) | st.integers(0, 99)] * 2)))
    data = aggregate([(key, payload) for key, payload, _ in records], [given for _, _, given in records])
    belonging = [
        (number, key, payload)
        for number, (key, payload, given) in enumerate(records)
        if first
        <= int(given if given is not None else hashlib.md5(key.encode()).hexdigest(), 10 if given else 16)
        <= last
    ]

    assert expand_within(data, "outer", HashKeyRange(first, last)) == (belonging, len(records) - len(belonging))
    assert expand_within(data, "outer", None)[0] == [(n, key, payload) for n, (key, payload, _) in enumerate(records)]


def test_hash_range_includes_its_ends() -> None:
    data = aggregate([("k", b"%d" % number) for number in range(4)], ["9", "10", "20", "21"])

    kept, filtered = expand_within(data, "outer", HashKeyRange(10, 20))

    assert ([payload for _, _, payload in kept], filtered) == ([b"1", b"2"], 2)


def test_unaggregated_record_is_never_left_out() -> None:
    nowhere = HashKeyRange(5, 5)
    assert expand_within(b"plain", "outer", nowhere) == ([(0, "outer", b"plain")], 0)
    broken = aggregate([("k", b"x")])[:-1]
    assert expand_within(broken, "outer", nowhere) == ([(0, "outer", broken)], 0)


def test_partition_key_hashes_like_kinesis() -> None:
    # md5("ö") in UTF-8, unsigned and big-endian
    assert hash_key_of("\u00f6") == int(hashlib.md5("\u00f6".encode()).hexdigest(), 16)
    assert hash_key_of("a") == 0x0CC175B9C0F1B6A831C399E269772661


@pytest.mark.parametrize(
    "hash_key", [b"", b"-1", b"+1", b" 1", b"1.0", b"x", "\u0661".encode(), str(2**128).encode(), b"0" * 101]
)
def test_aggregate_with_an_invalid_hash_key_passes_through(hash_key: bytes) -> None:
    data = sealed(KEY_A + b"\x12" + bytes([len(hash_key)]) + hash_key + record(b"\x08\x00\x10\x00\x1a\x02hi"))

    for within in (None, HashKeyRange(5, 5)):
        assert expand_within(data, "outer", within) == ([(0, "outer", data)], 0)


def test_more_hash_keys_than_records_are_refused() -> None:
    with pytest.raises(ValueError, match="2 explicit hash keys are given for 1 user records"):
        aggregate([("k", b"x")], ["1", "2"])
