"""The operations on records: put, choose where to read, read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.kinesis_server.clock import instant, milliseconds
from tests.support.kinesis_server.errors import ApiError, in_use, invalid, throttled, validation
from tests.support.kinesis_server.limits import MIB
from tests.support.kinesis_server.numbers import serial_of
from tests.support.kinesis_server.shard import Record, Shard
from tests.support.kinesis_server.state import Body, Request, State
from tests.support.kinesis_server.stream import HASH_KEYS, Stream
from tests.support.kinesis_server.tokens import fields_of, token

PAGE_RECORDS = 10_000
PAGE_BYTES = 10 * MIB
PUT_RECORDS = 500
PUT_BYTES = 10 * MIB


def put_record(state: State, request: Request) -> Body:
    stream = _written(state, request)
    _require_valid(stream, request)
    shard = stream.shard_of(_hash_key(request))
    if not _may_write(state, shard, request):
        raise throttled(_rate_exceeded(state, stream, shard))
    number = shard.put(state.now_ms, request["Data"], request["PartitionKey"])
    return {"ShardId": shard.shard_id, "SequenceNumber": number, "EncryptionType": "NONE"}


def put_records(state: State, request: Request) -> Body:
    stream, entries = _written(state, request), request["Records"]
    if len(entries) > PUT_RECORDS:
        raise validation(f"Value at 'records' failed to satisfy constraint: at most {PUT_RECORDS} members.")
    if sum(map(_size, entries)) > PUT_BYTES:
        raise invalid("Records size exceeds 10 MB limit")
    for entry in entries:
        _require_valid(stream, entry)
    now, results = state.now_ms, []
    for entry in entries:
        shard = stream.shard_of(_hash_key(entry))
        if _may_write(state, shard, entry):
            number = shard.put(now, entry["Data"], entry["PartitionKey"])
            results.append({"SequenceNumber": number, "ShardId": shard.shard_id})
        else:
            refused = "ProvisionedThroughputExceededException"
            results.append({"ErrorCode": refused, "ErrorMessage": _rate_exceeded(state, stream, shard)})
    failed = sum("ErrorCode" in result for result in results)
    return {"FailedRecordCount": failed, "Records": results, "EncryptionType": "NONE"}


def _written(state: State, request: Request) -> Stream:
    stream = state.stream_of(request)
    if stream.status == "CREATING":
        raise in_use(f"Stream {stream.name} is CREATING.")
    return stream


def _require_valid(stream: Stream, entry: Mapping[str, Any]) -> None:
    if _size(entry) > stream.max_record_bytes:
        raise validation(f"Record of {_size(entry)} bytes: the limit is {stream.max_record_bytes}.")
    if not 1 <= len(entry["PartitionKey"]) <= 256:
        raise validation("Value at 'partitionKey' failed to satisfy constraint: 1 to 256 characters.")
    if not 0 <= int(entry.get("ExplicitHashKey", 0)) < HASH_KEYS:
        raise invalid(f"Invalid ExplicitHashKey {entry['ExplicitHashKey']}: it must be between 0 and 2^128 - 1.")


def _size(entry: Mapping[str, Any]) -> int:
    return len(entry["Data"]) + len(entry["PartitionKey"].encode())


def _hash_key(entry: Mapping[str, Any]) -> int:
    if "ExplicitHashKey" in entry:
        return int(entry["ExplicitHashKey"])
    return int.from_bytes(hashlib.md5(entry["PartitionKey"].encode()).digest(), "big")


def _may_write(state: State, shard: Shard, entry: Mapping[str, Any]) -> bool:
    now, size, most = state.now_ms, _size(entry), state.limits.write_bytes_per_second
    if most is not None and shard.write_bytes.used(now) + size > most:
        return False
    if not shard.write_records.take(now, state.limits.write_records_per_second):
        return False
    return shard.write_bytes.take(now, most, size)


def _rate_exceeded(state: State, stream: Stream, shard: Shard) -> str:
    return f"Rate exceeded for shard {shard.shard_id} in stream {stream.name} under account {state.account}."


def get_shard_iterator(state: State, request: Request) -> Body:
    stream = state.stream_of(request)
    shard = stream.shard(request["ShardId"])
    if not shard.iterator_calls.take(state.now_ms, state.limits.get_shard_iterator_per_second):
        raise throttled(_rate_exceeded(state, stream, shard))
    start = position(
        state,
        stream,
        shard,
        request["ShardIteratorType"],
        request.get("StartingSequenceNumber"),
        request.get("Timestamp"),
    )
    return {"ShardIterator": _iterator(state, stream, shard, start)}


def position(state: State, stream: Stream, shard: Shard, kind: str, number: str | None, timestamp: Any | None) -> int:
    """Return the lowest sequence number wanted.

    :param kind: one of the five types of iterators.
    :param number: with `AT_SEQUENCE_NUMBER` and `AFTER_SEQUENCE_NUMBER`.
    :param timestamp: with `AT_TIMESTAMP`.
    :raises ApiError: if it is no position of this shard.
    """
    if kind == "TRIM_HORIZON":
        return 0
    if kind == "LATEST":
        return shard.latest
    if kind == "AT_TIMESTAMP":
        if timestamp is None:
            raise invalid("Must specify timestamp for an iterator of type AT_TIMESTAMP.")
        return _position_at(state, stream, shard, milliseconds(timestamp))
    if kind not in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        raise validation(f"Value '{kind}' at 'shardIteratorType' failed to satisfy constraint: no such type.")
    if number is None:
        raise invalid(f"Must specify a sequence number for an iterator of type {kind}.")
    _require_of_shard(state, stream, shard, int(number))
    return int(number) + (kind == "AFTER_SEQUENCE_NUMBER")


def _position_at(state: State, stream: Stream, shard: Shard, at_ms: int) -> int:
    if at_ms > state.now_ms:
        raise invalid(
            f"The timestampInMillis parameter cannot be greater than the currentTimestampInMillis."
            f" timestampInMillis: {at_ms}, currentTimestampInMillis: {state.now_ms}"
        )
    number = shard.records.number_at(at_ms)
    return shard.latest if number is None else number


def _require_of_shard(state: State, stream: Stream, shard: Shard, number: int) -> None:
    serial = serial_of(number)
    another = serial is not None and serial != shard.serial and state.births.knows(serial)
    if another or not shard.first_number <= number <= shard.last_position:
        raise invalid(
            f"StartingSequenceNumber {number} used in GetShardIterator on shard {shard.shard_id} in stream"
            f" {stream.name} under account {state.account} is invalid because it did not come from this"
            f" {'shard' if another else 'stream'}."
        )


def get_records(state: State, request: Request) -> Body:
    limit = request.get("Limit", PAGE_RECORDS)
    if not 1 <= limit <= PAGE_RECORDS:
        raise invalid(f"Limit {limit} is not between 1 and {PAGE_RECORDS}.")
    stream, shard, start = _resolved(state, request["ShardIterator"])
    _require_budget(state, stream, shard)
    page = read_page(state, shard, start, limit, PAGE_BYTES)
    _spend(state, shard, page.size)
    body: Body = {"Records": page.records, "MillisBehindLatest": page.millis_behind_latest}
    if page.ended:
        body["ChildShards"] = [child.described_as_child() for child in shard.children]
    else:
        body["NextShardIterator"] = _iterator(state, stream, shard, page.next_position)
    return body


class Page:
    """What one read of a shard returns, and where the next one goes on."""

    __slots__ = ("ended", "millis_behind_latest", "next_position", "records", "size")

    def __init__(
        self, records: list[Record], size: int, millis_behind_latest: int, next_position: int, *, ended: bool
    ) -> None:
        self.records = records
        self.size = size
        self.millis_behind_latest = millis_behind_latest
        self.next_position = next_position
        self.ended = ended


def read_page(state: State, shard: Shard, start: int, limit: int, size: int) -> Page:
    """Read a shard: at most this number of records or bytes."""
    shard.reads += 1
    log, now = shard.records, state.now_ms
    first, last = log.page(start, limit, size)
    every = state.behaviour.empty_page_every
    if every and first < last and shard.reads % every == 0:
        last = first
    records = [dict(record) for record in log.records[first:last]]
    unread = last < len(log.numbers)
    behind = 0
    if unread:
        # Never 0 while something is unread: 0 says that there is no more.
        behind = max(1, now - log.arrivals[last - 1 if records else last])
    return Page(
        records,
        log.ends[last - 1] - (log.ends[first - 1] if first else 0) if records else 0,
        behind,
        log.numbers[last - 1] + 1 if records else start,
        ended=not shard.is_open and not unread and (state.behaviour.end_with_data or not records),
    )


def _iterator(state: State, stream: Stream, shard: Shard, start: int) -> str:
    return token(stream.uid, shard.shard_id, start, state.now_ms)


def iterator_subject(state: State, iterator: str) -> tuple[str | None, str | None]:
    """Return the stream and shard that an iterator is for, as far as they are known."""
    fields = fields_of(iterator, 4)
    if fields is None:
        return None, None
    names = [stream.name for stream in state.streams.values() if stream.uid == fields[0]]
    return (names[0] if names else None), fields[1]


def _resolved(state: State, iterator: str) -> tuple[Stream, Shard, int]:
    fields = fields_of(iterator, 4)
    if fields is None:
        raise invalid("Invalid ShardIterator.")
    uid, shard_id, start, made_at = fields
    lifetime = round(state.behaviour.iterator_lifetime_seconds * 1000)
    if state.now_ms - int(made_at) > lifetime:
        raise ApiError(
            "ExpiredIteratorException",
            f"Iterator expired. The iterator was created at time {instant(int(made_at))} while right now it is"
            f" {state.clock.now()} which is further in the future than the tolerated delay of {lifetime} milliseconds.",
        )
    stream = state.stream_by_uid(uid)
    return stream, stream.shard(shard_id), int(start)


def _require_budget(state: State, stream: Stream, shard: Shard) -> None:
    now, limits = state.now_ms, state.limits
    if limits.read_bytes_per_second is not None and shard.read_bytes.used(now) >= limits.read_bytes_per_second:
        raise throttled(_rate_exceeded(state, stream, shard))
    if not shard.read_calls.take(now, limits.get_records_per_second):
        raise throttled(_rate_exceeded(state, stream, shard))


def _spend(state: State, shard: Shard, size: int) -> None:
    limit = state.limits.read_bytes_per_second
    if limit is not None and size:
        seconds = max(1.0, size / limit)
        shard.read_bytes.use(state.now_ms, min(size, limit), for_ms=round(seconds * 1000))


OPERATIONS: Mapping[str, Callable[[State, Request], Body]] = {
    "PutRecord": put_record,
    "PutRecords": put_records,
    "GetShardIterator": get_shard_iterator,
    "GetRecords": get_records,
}
