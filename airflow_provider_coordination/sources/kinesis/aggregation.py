"""Splitting the aggregates of the Kinesis Producer Library.

An aggregate is one Kinesis record with many user records: a magic number, a protobuf message, and the MD5 digest of
the message. Every other record passes through unchanged, as one record. If an aggregate is damaged half-way, the
Kinesis Client Library keeps the first part; if it has no user record, the library emits nothing. This module passes
both through whole.

After a resharding, a producer that does not know it yet puts user records of two shards into one aggregate. A user
record belongs to the shard with its hash key, and can be left out of another shard's aggregate. For one such user
record, the Kinesis Client Library leaves out the whole aggregate. This module leaves out that user record only, and
counts it.

The message is parsed by hand, since this runs for every user record; no protobuf library is needed. `user_records` does
the same for whole pages at once, faster.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from airflow_provider_coordination.sources.kinesis.positions import is_number

UserRecord = tuple[int, str, bytes]
"""Sub-sequence number (0, 1, 2, … within its Kinesis record), partition key, data. A tuple for speed."""

HASH_KEYS = 2**128
"""The number of hash keys, from 0 on."""
MAGIC = b"\xf3\x89\x9a\xc2"
DIGEST_BYTES = 16

# A tag of protobuf is the field's number times 8 plus its wire type: 0 a varint, 1 eight bytes, 2 length
# and bytes, 5 four bytes.
_PARTITION_KEY = 1 << 3 | 2
_EXPLICIT_HASH_KEY = 2 << 3 | 2
_RECORD = 3 << 3 | 2
_RECORD_PARTITION_KEY_INDEX = 1 << 3 | 0
_RECORD_EXPLICIT_HASH_KEY_INDEX = 2 << 3 | 0
_RECORD_DATA = 3 << 3 | 2
_SMALLEST_RECORD_BYTES = 4  # an index and empty data
_LONGEST_IN_TWO_BYTES = (1 << 14) - 1
_LONGEST_HASH_KEY = 100  # leading zeros are allowed, but limited
_NOT_GIVEN = -1


class _MalformedError(Exception):
    """The message is not an AggregatedRecord."""


@dataclass(frozen=True, order=True)
class HashKeyRange:
    """A range of hash keys, both ends included.

    :param first: the first hash key.
    :param last: the last hash key.
    """

    first: int
    last: int

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"

    @property
    def is_whole(self) -> bool:
        """Whether it contains every hash key."""
        return self.first <= 0 and self.last >= HASH_KEYS - 1

    def __contains__(self, hash_key: int) -> bool:
        return self.first <= hash_key <= self.last


def hash_keys_between(first: str, last: str) -> HashKeyRange | None:
    """Return the range between two decimal numbers; None if they are not the ends of a range."""
    if not (is_number(first) and is_number(last) and int(first) <= int(last)):
        return None
    return HashKeyRange(int(first), int(last))


@lru_cache(maxsize=16_384)  # 5 MB
def hash_key_of(partition_key: str) -> int:
    """Return the hash key that Kinesis gives a record of this partition key: its MD5 as a number."""
    return int.from_bytes(_digest(partition_key.encode()), "big")


def is_aggregated(data: bytes | memoryview) -> bool:
    """Return whether a Kinesis record has the form of an aggregate: magic number, a message, and its digest.

    :param data: the record's data.
    """
    if data[: len(MAGIC)] != MAGIC or len(data) <= len(MAGIC) + DIGEST_BYTES:
        return False
    return _digest(memoryview(data)[len(MAGIC) : -DIGEST_BYTES]) == data[-DIGEST_BYTES:]


def expand(data: bytes, partition_key: str) -> list[UserRecord]:
    """Return the user records of a Kinesis record, at least one.

    :param data: the record's data.
    :param partition_key: the record's own partition key, which a record that is not a valid aggregate keeps.
    """
    return expand_within(data, partition_key, None)[0]


def expand_within(data: bytes, partition_key: str, hash_keys: HashKeyRange | None) -> tuple[list[UserRecord], int]:
    """Return the user records of a Kinesis record that belong to its shard, and the number of the others.

    Each keeps its sub-sequence number. A record that is not a valid aggregate belongs to its shard.

    :param data: the record's data.
    :param partition_key: the record's own partition key, which a record that is not a valid aggregate keeps.
    :param hash_keys: the shard's range; None, or the whole range, keeps every user record.
    """
    if not is_aggregated(data):
        return [(0, partition_key, data)], 0
    try:
        parsed = _parse(data[len(MAGIC) : -DIGEST_BYTES])
        keys = list(map(parsed.keys.__getitem__, parsed.key_indices))
    except (_MalformedError, IndexError, UnicodeDecodeError):
        # IndexError: the message ends too early, or an index points beyond the table of keys.
        return [(0, partition_key, data)], 0
    records = list(zip(range(len(keys)), keys, parsed.payloads, strict=True))
    if hash_keys is None or hash_keys.is_whole:
        return records, 0
    given = parsed.given_hash_keys
    kept = [
        record
        for record in records
        if (given[record[0]] if record[0] in given else hash_key_of(record[1])) in hash_keys
    ]
    return kept, len(records) - len(kept)


def _digest(message: bytes | bytearray | memoryview) -> bytes:
    return hashlib.md5(message, usedforsecurity=False).digest()


@dataclass
class _Message:
    """An AggregatedRecord.

    :param keys: the table of partition keys.
    :param key_indices: of each user record, the index of its key in the table.
    :param payloads: of each user record.
    :param given_hash_keys: of each user record that has one, by its sub-sequence number.
    """

    keys: list[str]
    key_indices: list[int]
    payloads: list[bytes]
    given_hash_keys: dict[int, int]


def _parse(message: bytes) -> _Message:
    """Parse an AggregatedRecord; its tables of keys may come before or after the records that use them."""
    keys: list[str] = []
    hash_keys: list[int] = []
    hash_key_indices: dict[int, int] = {}
    key_indices: list[int] = []
    payloads: list[bytes] = []
    size = len(message)
    position = 0
    while position < size:
        # What producers write: lengths of one or two bytes, and records of an index of one byte and data.
        # These two branches run for every user record and are inlined for speed; every other form is
        # parsed by the general code below.
        tag = message[position]
        length = message[position + 1]
        start = position + 2
        if length > 0x7F:
            length += (message[start] << 7) - 0x80
            start += 1
        end = start + length
        if end > size or length > _LONGEST_IN_TWO_BYTES:
            pass  # malformed, or the length has more than two bytes
        elif tag == _PARTITION_KEY:
            keys.append(message[start:end].decode())
            position = end
            continue
        elif tag == _RECORD and length >= _SMALLEST_RECORD_BYTES:
            data_length = message[start + 3]
            data_start = start + 4
            if data_length > 0x7F and data_start < end:
                data_length += (message[data_start] << 7) - 0x80
                data_start += 1
            if (
                data_start + data_length == end
                and message[start + 2] == _RECORD_DATA
                and message[start] == _RECORD_PARTITION_KEY_INDEX
                and message[start + 1] < 0x80
            ):
                key_indices.append(message[start + 1])
                payloads.append(message[data_start:end])
                position = end
                continue
        tag, start, position = _any_field(message, position, size)
        if tag == _RECORD:
            key_index, hash_key_index, payload = _record(message, start, position)
            if hash_key_index != _NOT_GIVEN:
                hash_key_indices[len(payloads)] = hash_key_index
            key_indices.append(key_index)
            payloads.append(payload)
        elif tag == _PARTITION_KEY:
            keys.append(message[start:position].decode())
        elif tag == _EXPLICIT_HASH_KEY:
            hash_keys.append(_hash_key(message[start:position]))
    if not payloads:
        raise _MalformedError
    given = {number: hash_keys[index] for number, index in hash_key_indices.items()}
    return _Message(keys, key_indices, payloads, given)


def _hash_key(text: bytes) -> int:
    """Return an explicit hash key, which is a decimal number."""
    if not text.isdigit() or len(text) > _LONGEST_HASH_KEY or (number := int(text)) >= HASH_KEYS:
        raise _MalformedError
    return number


def _record(message: bytes, position: int, end: int) -> tuple[int, int, bytes]:
    """Parse a Record of any shape: partition key index, hash key index and data; the last of each counts."""
    key_index = hash_key_index = _NOT_GIVEN
    payload: bytes | None = None
    while position < end:
        tag, start, position = _any_field(message, position, end)
        if tag == _RECORD_PARTITION_KEY_INDEX:
            key_index, _ = _read_varint(message, start)
        elif tag == _RECORD_EXPLICIT_HASH_KEY_INDEX:
            hash_key_index, _ = _read_varint(message, start)
        elif tag == _RECORD_DATA:
            payload = message[start:position]
    if key_index == _NOT_GIVEN or payload is None:
        raise _MalformedError
    return key_index, hash_key_index, payload


def _any_field(message: bytes, position: int, end: int) -> tuple[int, int, int]:
    """Return a field's tag, where its content starts, and where it ends, whatever the field is."""
    tag, start = _read_varint(message, position)
    wire_type = tag & 7
    if wire_type == 0:
        _, stop = _read_varint(message, start)
    elif wire_type == 1:
        stop = start + 8
    elif wire_type == 2:
        length, start = _read_varint(message, start)
        stop = start + length
    elif wire_type == 5:
        stop = start + 4
    else:
        raise _MalformedError
    if stop > end or tag < 8:
        raise _MalformedError
    return tag, start, stop


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    """Return the number at a position and where it ends; at most 64 bits."""
    number = shift = 0
    while True:
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
        shift += 7
        if shift > 63:
            raise _MalformedError
