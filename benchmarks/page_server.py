"""A Kinesis endpoint with pages rendered in advance, so it costs almost nothing compared with the readers.

Each shard of its stream has the same pages, with sequence numbers that grow from page to page. After the last page the
shard is idle. If Kinesis records are aggregates, each shard has its own pages with partition keys of that shard,
because readers drop user records of other shards.

Usage: python -m benchmarks.page_server <shards> <records a page> <bytes a record> <pages> [user records an aggregate];
records and bytes refer to user records. It prints its port, and ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from airflow_provider_coordination.sources.kinesis.aggregation import HASH_KEYS, hash_key_of
from tests.support.aggregation import aggregate
from tests.support.shard_protocol import ShardProtocol

PARTITION_KEY_CHARACTERS = 32
FIRST = 49590338271490256608559692538361571095921575989136588898
"""The first sequence number of each shard."""
SEQUENCE_NUMBERS_A_PAGE = 10**6
KEYS_A_SHARD = 1000
"""The number of partition keys of a shard's user records."""


def event(number: int, size: int) -> bytes:
    """Return a JSON event of a size in bytes; half of it is random."""
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
    """Return an aggregate of events, each of a size in bytes."""
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


class Connection(ShardProtocol):
    """One connection.

    :param pages: the records of each page of each shard.
    """

    def __init__(self, pages: Sequence[Sequence[bytes]]) -> None:
        super().__init__(len(pages), FIRST)
        self._pages = pages

    def iterator(self, request: Mapping[str, Any]) -> str:
        """See `ShardProtocol.iterator`."""
        number = request.get("StartingSequenceNumber")
        page = (int(number) - FIRST) // SEQUENCE_NUMBERS_A_PAGE + 1 if number else 0
        return f"{request['ShardId']}:{page}"

    def page(self, request: Mapping[str, Any]) -> Sequence[bytes]:
        """See `ShardProtocol.page`."""
        shard, _, text = request["ShardIterator"].partition(":")
        page = int(text)
        pages = self._pages[int(shard.rpartition("-")[2])]
        left = len(pages) - page
        after = min(page + 1, len(pages))
        records = pages[page] if left > 0 else b"[]"
        behind = max(left - 1, 0) * 1000
        tail = f',"NextShardIterator":"{shard}:{after}","MillisBehindLatest":{behind}}}'.encode()
        return [b'{"Records":', records, tail]


async def serve(shards: int, records: int, size: int, pages: int, users: int = 1) -> None:
    """Serve until the standard input ends."""
    if users > 1:
        made = [[rendered(page, records, size, users, keys) for page in range(pages)] for keys in keys_of(shards)]
    else:
        made = [[rendered(page, records, size) for page in range(pages)]] * shards
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Connection, made), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
