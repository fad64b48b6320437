"""An endpoint of DynamoDB Streams with pages rendered in advance, so it costs almost nothing compared with the readers.

Each shard of its stream has the same pages, with sequence numbers that grow from page to page. After the last page the
shard is idle. Items are flights of the demo; a text of random digits fills larger ones up.

Usage: python -m benchmarks.change_server <shards> <changes a page> <pages> <bytes of that text>; it prints its port,
and ends when its standard input closes.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from boto3.dynamodb.types import TypeSerializer

from airflow_provider_coordination.coordination.override import override
from demo.events import flights
from tests.support.shard_protocol import ShardProtocol

LABEL = "2026-01-01T00:00:00.000"
TABLE = "flights"
STREAM = f"arn:aws:dynamodb:us-east-1:123456789012:table/{TABLE}/stream/{LABEL}"
FIRST = 10**20
"""The first sequence number of each shard."""
NUMBERS_A_PAGE = 10**6


def shard_id(number: int) -> str:
    """Return the name of a shard. The middle of it is when it was created, in milliseconds since 1970."""
    return f"shardId-{1_767_225_600_000:020d}-{number:08d}"


def changes(count: int, fill_bytes: int) -> list[dict[str, Any]]:
    """Return changes of items as DynamoDB's JSON, without sequence numbers.

    :param count: how many.
    :param fill_bytes: how many bytes of text each item has beside the flight.
    """
    serialize = TypeSerializer().serialize
    found = []
    for event in flights(count):
        item = {name: serialize(value) for name, value in json.loads(event.data, parse_float=str).items()}
        if fill_bytes:
            item["text"] = {"S": os.urandom(fill_bytes // 2).hex()}
        keys = {"event_id": item["event_id"]}
        size = sum(len(name) + len(str(held)) for name, value in item.items() for held in value.values())
        facts = {"Keys": keys, "NewImage": item, "SizeBytes": size, "StreamViewType": "NEW_IMAGE"}
        found.append({"eventName": "MODIFY", "dynamodb": facts})
    return found


def rendered(page: int, of: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the records of a page as JSON."""
    first, at = FIRST + page * NUMBERS_A_PAGE, int(time.time())
    made = [
        {
            "awsRegion": "us-east-1",
            "dynamodb": {
                "ApproximateCreationDateTime": at,
                **change["dynamodb"],
                "SequenceNumber": str(first + number),
            },
            "eventID": os.urandom(16).hex(),
            "eventName": change["eventName"],
            "eventSource": "aws:dynamodb",
            "eventVersion": "1.1",
        }
        for number, change in enumerate(of)
    ]
    return json.dumps(made, separators=(",", ":")).encode()


class Connection(ShardProtocol):
    """One connection.

    :param shards: how many there are.
    :param pages: the records of each page of each shard.
    """

    def __init__(self, shards: int, pages: Sequence[bytes]) -> None:
        super().__init__(shards, FIRST)
        self._pages = pages

    @override
    def iterator(self, request: Mapping[str, Any]) -> str:
        number = request.get("SequenceNumber")
        page = (int(number) - FIRST) // NUMBERS_A_PAGE + 1 if number else 0
        return f"{request['ShardId']}:{page}"

    @override
    def page(self, request: Mapping[str, Any]) -> Sequence[bytes]:
        shard, _, text = request["ShardIterator"].partition(":")
        page = int(text)
        records = self._pages[page] if page < len(self._pages) else b"[]"
        after = min(page + 1, len(self._pages))
        return [b'{"Records":', records, f',"NextShardIterator":"{shard}:{after}"}}'.encode()]

    @override
    def _described(self, request: Mapping[str, Any]) -> dict[str, object]:
        shards = [
            {"ShardId": shard_id(number), "SequenceNumberRange": {"StartingSequenceNumber": str(FIRST)}}
            for number in range(self._shards)
        ]
        described = {
            "StreamArn": STREAM,
            "StreamLabel": LABEL,
            "StreamStatus": "ENABLED",
            "StreamViewType": "NEW_IMAGE",
            "CreationRequestDateTime": 1_767_225_600.0,
            "TableName": TABLE,
            "KeySchema": [{"AttributeName": "event_id", "KeyType": "HASH"}],
            "Shards": shards,
        }
        return {"StreamDescription": described}


async def serve(shards: int, records: int, pages: int, fill_bytes: int) -> None:
    """Serve until the standard input ends."""
    made = changes(records, fill_bytes)
    rendered_pages = [rendered(page, made) for page in range(pages)]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(partial(Connection, shards, rendered_pages), "127.0.0.1", 0, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    ended = asyncio.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(ended.set)), daemon=True).start()
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
