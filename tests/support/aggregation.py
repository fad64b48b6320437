"""Aggregates as the Kinesis Producer Library makes them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from airflow_provider_coordination.sources.kinesis.aggregation import MAGIC

# A tag of protobuf is the field's number times 8 plus its wire type: 0 a varint, 2 length and bytes.
_PARTITION_KEY = 1 << 3 | 2
_EXPLICIT_HASH_KEY = 2 << 3 | 2
_RECORD = 3 << 3 | 2
_RECORD_PARTITION_KEY_INDEX = 1 << 3 | 0
_RECORD_EXPLICIT_HASH_KEY_INDEX = 2 << 3 | 0
_RECORD_DATA = 3 << 3 | 2


def aggregate(records: Sequence[tuple[str, bytes]], explicit_hash_keys: Sequence[str | None] = ()) -> bytes:
    """Return the data of one Kinesis record that carries these user records.

    The caller must keep within the size of a Kinesis record (1 MiB, unless the stream allows more).

    :param records: partition key and data of each, at least one.
    :param explicit_hash_keys: for each record, a decimal number or None; missing ones count as None.
    :raises ValueError: if there is no record, or there are more hash keys than records.
    """
    if not records:
        raise ValueError("an aggregate needs at least one user record")
    if len(explicit_hash_keys) > len(records):
        raise ValueError(f"{len(explicit_hash_keys)} explicit hash keys are given for {len(records)} user records")
    hash_keys = [*explicit_hash_keys, *[None] * (len(records) - len(explicit_hash_keys))]
    indices = {key: index for index, key in enumerate(dict.fromkeys(key for key, _ in records))}
    hash_indices = {key: index for index, key in enumerate(dict.fromkeys(key for key in hash_keys if key is not None))}
    message = bytearray()
    for key in indices:
        message += _field(_PARTITION_KEY, key.encode())
    for key in hash_indices:
        message += _field(_EXPLICIT_HASH_KEY, key.encode())
    for (key, payload), hash_key in zip(records, hash_keys, strict=True):
        index = bytes((_RECORD_PARTITION_KEY_INDEX,)) + _varint(indices[key])
        if hash_key is not None:
            index += bytes((_RECORD_EXPLICIT_HASH_KEY_INDEX,)) + _varint(hash_indices[hash_key])
        message += _field(_RECORD, index + _field(_RECORD_DATA, payload))
    return MAGIC + bytes(message) + hashlib.md5(message, usedforsecurity=False).digest()


def _field(tag: int, content: bytes) -> bytes:
    return bytes((tag,)) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
