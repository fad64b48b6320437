"""A Kinesis endpoint of pages that are rendered before anybody asks: it costs next to nothing beside who reads.

Each shard of its stream has the same pages, with sequence numbers that grow from page to page, and an end after which
it is idle. Where each Kinesis record is an aggregate of user records, each shard has pages of its own, whose partition
keys belong to it: readers leave out what belongs to another shard.

Usage: python -m benchmarks.page_server <shards> <records a page> <bytes a record> <pages> [user records an aggregate];
records and bytes are those of user records. It prints its port, and ends with its standard input.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import threading
from collections.abc import Sequence
from datetime import UTC, datetime

from airflow_provider_coordination.sources.kinesis.aggregation import HASH_KEYS, aggregate, hash_key_of

PARTITION_KEY_CHARACTERS = 32
FIRST = 49590338271490256608559692538361571095921575989136588898
"""The first sequence number of each shard."""
SEQUENCE_NUMBERS_A_PAGE = 10**6
KEYS_A_SHARD = 1000
"""How many partition keys the user records of a shard have."""


def event(number: int, size: int) -> bytes:
    """Return an event of a size in bytes: JSON, of which half is random."""
    head = f'{{"id": "event-{number:012d}", "at": "2026-01-01T00:00:00Z", "text": "'
    return f'{head}{os.urandom(size // 2).hex()[: size - len(head) - 2]}"}}'.encode()


def keys_of(shards: int) -> list[list[str]]:
    """Return partition keys of each shard."""
    found: list[list[str]] = [[] for _ in range(shards)]
    number = 0
    while any(len(keys) < KEYS_A_SHARD for keys in found):
        key = f"{number:0{PARTITION_KEY_CHARACTERS}d}"
        found[min(hash_key_of(key) // (HASH_KEYS // shards), shards - 1)].append(key)
        number += 1
    return found


def aggregate_of(number: int, size: int, users: int, keys: Sequence[str]) -> bytes:
    """Return an aggregate of events of a size in bytes."""
    numbers = range(number * users, (number + 1) * users)
    return aggregate([(keys[each % len(keys)], event(each, size)) for each in numbers])


def rendered(page: int, records: int, size: int, users: int = 1, keys: Sequence[str] = ()) -> bytes:
    """Return the records of a page as JSON: aggregates if keys are given."""
    at = datetime.now(UTC).timestamp()
    first = FIRST + page * SEQUENCE_NUMBERS_A_PAGE
    made = [
        {
            "SequenceNumber": str(first + number),
            "ApproximateArrivalTimestamp": round(at, 3),
            "Data": base64.b64encode(aggregate_of(number, size, users, keys) if keys else event(number, size)).decode(),
            "PartitionKey": f"{number:0{PARTITION_KEY_CHARACTERS}d}",
        }
        for number in range(records // users)
    ]
    return json.dumps(made).encode()


class Shards(asyncio.Protocol):
    """One connection."""

    pages: list[list[bytes]]
    shards: int

    def __init__(self) -> None:
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep it."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer whole requests."""
        self._buffer += data
        while True:
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            headers = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
            length = int({k.lower(): v for k, v in headers.items()}[b"content-length"])
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            target = {k.lower(): v for k, v in headers.items()}[b"x-amz-target"].rpartition(b".")[2]
            self._answer(target.decode(), json.loads(rest[:length]))

    def _answer(self, call: str, request: dict[str, object]) -> None:
        parts: list[bytes]
        if call == "GetShardIterator":
            number = str(request.get("StartingSequenceNumber", ""))
            page = (int(number) - FIRST) // SEQUENCE_NUMBERS_A_PAGE + 1 if number else 0
            parts = [json.dumps({"ShardIterator": f"{request['ShardId']}:{page}"}).encode()]
        elif call in ("DescribeStreamSummary", "ListShards"):
            parts = [json.dumps(self._listed() if call == "ListShards" else self._described()).encode()]
        else:
            shard, _, text = str(request["ShardIterator"]).partition(":")
            page = int(text)
            pages = self.pages[int(shard.rpartition("-")[2])]
            left = len(pages) - page
            after = min(page + 1, len(pages))
            records = pages[page] if left > 0 else b"[]"
            behind = max(left - 1, 0) * 1000
            tail = f',"NextShardIterator":"{shard}:{after}","MillisBehindLatest":{behind}}}'.encode()
            parts = [b'{"Records":', records, tail]
        size = sum(map(len, parts))
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        kind = "Content-Type: application/x-amz-json-1.1"
        head = ["HTTP/1.1 200 OK", f"Date: {date}", kind, f"Content-Length: {size}"]
        self._transport.writelines([("\r\n".join(head) + "\r\n\r\n").encode(), *parts])  # type: ignore[attr-defined]

    def _listed(self) -> dict[str, object]:
        step = HASH_KEYS // self.shards
        return {
            "Shards": [
                {
                    "ShardId": f"shardId-{number:012d}",
                    "HashKeyRange": {
                        "StartingHashKey": str(number * step),
                        "EndingHashKey": str(HASH_KEYS - 1 if number == self.shards - 1 else (number + 1) * step - 1),
                    },
                    "SequenceNumberRange": {"StartingSequenceNumber": str(FIRST)},
                }
                for number in range(self.shards)
            ]
        }

    def _described(self) -> dict[str, object]:
        summary = {
            "StreamName": "b",
            "StreamARN": "arn:aws:kinesis:us-east-1:123456789012:stream/b",
            "StreamStatus": "ACTIVE",
            "RetentionPeriodHours": 24,
            "StreamCreationTimestamp": 1_700_000_000.0,
            "EnhancedMonitoring": [],
            "OpenShardCount": self.shards,
        }
        return {"StreamDescriptionSummary": summary}


async def serve(shards: int, records: int, size: int, pages: int, users: int = 1) -> None:
    """Serve until the standard input ends."""
    if users > 1:
        Shards.pages = [
            [rendered(page, records, size, users, keys) for page in range(pages)] for keys in keys_of(shards)
        ]
    else:
        Shards.pages = [[rendered(page, records, size) for page in range(pages)]] * shards
    Shards.shards = shards
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Shards, "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
