"""A cheap server connection with the Kinesis calls that a job needs to read one stream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_provider_coordination.sources.kinesis.aggregation import HASH_KEYS

REASONS = {200: "OK", 400: "Bad Request", 429: "Too Many Requests"}


class RefusedError(Exception):
    """The server refuses a call.

    :param status: the HTTP status.
    :param body: of the answer.
    """

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


class ShardProtocol(asyncio.Protocol):
    """One connection to a stream whose shards are all open.

    :param shards: how many there are.
    :param first: the first sequence number of each.
    """

    def __init__(self, shards: int, first: int) -> None:
        self._shards = shards
        self._first = first
        self._buffer = b""

    def iterator(self, request: Mapping[str, Any]) -> str:
        """Return the iterator that a GetShardIterator asks for."""
        raise NotImplementedError

    def page(self, request: Mapping[str, Any]) -> Sequence[bytes]:
        """Return the answer to a GetRecords, in parts.

        :raises RefusedError: if there is none.
        """
        raise NotImplementedError

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
            lines = (line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
            headers = {name.lower(): value for name, value in lines}
            length = int(headers[b"content-length"])
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            target = headers[b"x-amz-target"].rpartition(b".")[2]
            self._answer(target.decode(), json.loads(rest[:length]))

    def _answer(self, call: str, request: Mapping[str, Any]) -> None:
        try:
            status, parts = 200, self._parts(call, request)
        except RefusedError as error:
            status, parts = error.status, [error.body]
        size = sum(map(len, parts))
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        kind = "Content-Type: application/x-amz-json-1.1"
        head = [f"HTTP/1.1 {status} {REASONS[status]}", f"Date: {date}", kind, f"Content-Length: {size}"]
        self._transport.writelines([("\r\n".join(head) + "\r\n\r\n").encode(), *parts])  # type: ignore[attr-defined]

    def _parts(self, call: str, request: Mapping[str, Any]) -> Sequence[bytes]:
        if call == "GetRecords":
            return self.page(request)
        if call == "GetShardIterator":
            return [json.dumps({"ShardIterator": self.iterator(request)}).encode()]
        if call == "ListShards":
            return [json.dumps(self._listed()).encode()]
        return [json.dumps(self._described(request)).encode()]

    def _listed(self) -> dict[str, object]:
        step = HASH_KEYS // self._shards
        return {
            "Shards": [
                {
                    "ShardId": f"shardId-{number:012d}",
                    "HashKeyRange": {
                        "StartingHashKey": str(number * step),
                        "EndingHashKey": str(HASH_KEYS - 1 if number == self._shards - 1 else (number + 1) * step - 1),
                    },
                    "SequenceNumberRange": {"StartingSequenceNumber": str(self._first)},
                }
                for number in range(self._shards)
            ]
        }

    def _described(self, request: Mapping[str, Any]) -> dict[str, object]:
        stream = request.get("StreamName") or request["StreamARN"].rpartition("/")[2]
        summary = {
            "StreamName": stream,
            "StreamARN": f"arn:aws:kinesis:us-east-1:123456789012:stream/{stream}",
            "StreamStatus": "ACTIVE",
            "RetentionPeriodHours": 24,
            "StreamCreationTimestamp": 1_700_000_000.0,
            "EnhancedMonitoring": [],
            "OpenShardCount": self._shards,
        }
        return {"StreamDescriptionSummary": summary}
