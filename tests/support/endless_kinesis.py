"""A Kinesis endpoint of one stream that returns known records as fast as they are requested, until a test ends it.

What it sends follows from shard and number, so that reading may begin behind any record, again and again. The records
of a shard are a millisecond apart and began half a day ago, so that a reader which keeps to what a shard allows does
not catch up.

Usage: python -m tests.support.endless_kinesis <shards>. It prints its port and when its records began, answers each
line of its standard input by one, and ends with it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from airflow_provider_coordination.aws import AwsSettings
from tests.support.known_records import FIRST, Pages, number_of
from tests.support.shard_protocol import RefusedError, ShardProtocol

PAGE_RECORDS = 2000
"""How many records a page has: as many as a shard gives in a second."""
BEGAN_SECONDS_AGO = 12 * 3600
THROTTLED = b'{"__type":"ProvisionedThroughputExceededException","message":"Rate exceeded for shard"}'
TOO_MANY = b"<html>too many requests</html>"
BODIES = {400: THROTTLED, 429: TOO_MANY}
"""How a call is refused: by Kinesis, and by what stands before it."""

_REPOSITORY = Path(__file__).resolve().parents[2]


class Shards:
    """What the connections share.

    :param number: how many shards there are.
    """

    def __init__(self, number: int) -> None:
        self.began_at = int((time.time() - BEGAN_SECONDS_AGO) * 1000)
        self.pages = Pages(self.began_at)
        self.served = [PAGE_RECORDS] * number
        """Of each shard, how many of its first records were sent at least once, or a page."""
        self.is_ended = False
        self.refused: dict[int, tuple[float, int]] = {}
        """Of a shard that is refused, until when, and by which status."""
        self.refusals = [0] * number

    def control(self, what: str, **arguments: Any) -> Any:
        """Do what `EndlessKinesis` says."""
        if what == "end":
            self.is_ended = True
            if arguments["last"] is not None:
                self.served = [arguments["last"] + 1] * len(self.served)
            return [served - 1 for served in self.served]
        if what == "refuse":
            self.refused[arguments["shard"]] = (time.monotonic() + arguments["seconds"], arguments["status"])
        return self.refusals

    def records(self, shard: int, first: int, limit: int) -> tuple[bytes, int]:
        """Return a page of a shard's records, and how many it has."""
        count = min(limit, PAGE_RECORDS)
        if self.is_ended:
            count = min(count, self.served[shard] - first)
        if count <= 0:
            return b"[]", 0
        self.served[shard] = max(self.served[shard], first + count)
        return self.pages.rendered(shard, first, count), count

    def behind(self, shard: int, number: int) -> int:
        """Return by how many milliseconds a record is behind the latest one."""
        if self.is_ended:
            return self.served[shard] - number
        return max(1, round(time.time() * 1000) - self.began_at - number)

    def check(self, shard: int) -> None:
        """Check that a shard may be read.

        :raises RefusedError: if it may not.
        """
        until, status = self.refused.get(shard, (0.0, 0))
        if time.monotonic() < until:
            self.refusals[shard] += 1
            raise RefusedError(status, BODIES[status])


class Connection(ShardProtocol):
    """One connection."""

    def __init__(self, shards: Shards) -> None:
        super().__init__(len(shards.served), FIRST)
        self._all = shards

    def iterator(self, request: Mapping[str, Any]) -> str:
        """See `ShardProtocol.iterator`."""
        match request["ShardIteratorType"]:
            case "TRIM_HORIZON":
                number = 0
            case "AT_SEQUENCE_NUMBER":
                number = number_of(request["StartingSequenceNumber"])
            case "AFTER_SEQUENCE_NUMBER":
                number = number_of(request["StartingSequenceNumber"]) + 1
            case other:
                raise ValueError(other)
        return f"{request['ShardId']}:{number}"

    def page(self, request: Mapping[str, Any]) -> Sequence[bytes]:
        """See `ShardProtocol.page`."""
        name, _, number = request["ShardIterator"].partition(":")
        shard, first = int(name.rpartition("-")[2]), int(number)
        self._all.check(shard)
        records, count = self._all.records(shard, first, request.get("Limit", PAGE_RECORDS))
        behind = self._all.behind(shard, first + count)
        tail = f',"NextShardIterator":"{name}:{first + count}","MillisBehindLatest":{behind}}}'
        return [b'{"Records":', records, tail.encode()]


async def serve(number: int) -> None:
    """Serve until the standard input ends."""
    shards, loop, ended = Shards(number), asyncio.get_running_loop(), asyncio.Event()
    server = await loop.create_server(partial(Connection, shards), "127.0.0.1", 0, backlog=2048)

    def say(line: str) -> None:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def answer(line: str) -> None:
        say(json.dumps(shards.control(**json.loads(line))))

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(answer, line)
        loop.call_soon_threadsafe(ended.set)

    say(f"{server.sockets[0].getsockname()[1]} {shards.began_at}")
    threading.Thread(target=listen, daemon=True).start()
    await ended.wait()


class EndlessKinesis:
    """A running server, as a context manager.

    :param shards: how many the stream has.
    """

    def __init__(self, shards: int) -> None:
        self.shards = shards
        self.endpoint_url = ""
        self.began_at = 0
        """When each shard's first record arrived, in milliseconds since 1970."""
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.support.endless_kinesis", str(self.shards)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, cwd=_REPOSITORY, stdin=pipe, stdout=pipe, text=True)
        port, began_at = self._line().split()
        self.endpoint_url, self.began_at = f"http://127.0.0.1:{port}", int(began_at)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        with self._process as process:
            process.terminate()

    @property
    def settings(self) -> AwsSettings:
        """How it is reached."""
        return AwsSettings(
            region="us-east-1", endpoint_url=self.endpoint_url, access_key_id="test", secret_access_key="test"
        )

    def end(self, last: int | None = None) -> list[int]:
        """Let nothing follow in any shard; return the number of the last record of each.

        :param last: that number; by default it is of the last record that was sent of the shard.
        """
        heads: list[int] = self._control("end", last=last)
        return heads

    def refuse(self, shard: int, seconds: float, status: int) -> None:
        """Refuse to give a shard's records for a while.

        :param status: 400, as Kinesis does, or 429, as what stands before it does.
        """
        self._control("refuse", shard=shard, seconds=seconds, status=status)

    def refusals(self) -> list[int]:
        """Return how often each shard was refused."""
        refusals: list[int] = self._control("count")
        return refusals

    def _control(self, what: str, **arguments: Any) -> Any:
        assert self._process is not None and self._process.stdin is not None
        self._process.stdin.write(json.dumps({"what": what, **arguments}) + "\n")
        self._process.stdin.flush()
        return json.loads(self._line())

    def _line(self) -> str:
        assert self._process is not None and self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended with {self._process.wait()}")
        return line


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
