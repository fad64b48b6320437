"""One shard: its place in the hash-key space and in time, and its records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any

from tests.support.kinesis_server import numbers
from tests.support.kinesis_server.clock import instant
from tests.support.kinesis_server.limits import Window

Record = dict[str, Any]
"""A record as the API returns it."""


class Records:
    """What a shard holds, in order. Trimming only ever moves the beginning."""

    __slots__ = ("arrivals", "ends", "first", "numbers", "records")

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.arrivals: list[int] = []
        self.records: list[Record] = []
        self.ends: list[int] = []  # bytes up to and including each record
        self.first = 0

    def append(self, number: int, arrival_ms: int, data: bytes, partition_key: str) -> None:
        size = len(data) + len(partition_key.encode())
        self.numbers.append(number)
        self.arrivals.append(arrival_ms)
        self.ends.append((self.ends[-1] if self.ends else 0) + size)
        self.records.append(
            {
                "SequenceNumber": str(number),
                "ApproximateArrivalTimestamp": instant(arrival_ms),
                "Data": data,
                "PartitionKey": partition_key,
            }
        )

    def trim_older(self, than_ms: int) -> None:
        if self.first < len(self.arrivals) and self.arrivals[self.first] < than_ms:
            self._begin_at(bisect_left(self.arrivals, than_ms, self.first))

    def trim_through(self, number: int) -> None:
        self._begin_at(max(self.first, bisect_right(self.numbers, number)))

    def index_of(self, position: int) -> int:
        """Return where the record is that has this number or, if there is none, the next."""
        return bisect_left(self.numbers, position, self.first)

    def number_at(self, at_ms: int) -> int | None:
        """Return the number of the first record that arrived then or later; None if there is none yet."""
        index = bisect_left(self.arrivals, at_ms, self.first)
        return self.numbers[index] if index < len(self.numbers) else None

    def page(self, position: int, records: int, size: int) -> tuple[int, int]:
        """Return where a page begins and ends: at most this number of records or bytes, but at least one record."""
        start = self.index_of(position)
        if start == len(self.numbers):
            return start, start
        before = self.ends[start - 1] if start else 0
        by_size = bisect_right(self.ends, before + size, start)
        return start, min(max(by_size, start + 1), start + records, len(self.numbers))

    def __len__(self) -> int:
        return len(self.numbers) - self.first

    def _begin_at(self, index: int) -> None:
        # Released where they are, so that every index stays what it is.
        for trimmed in range(self.first, index):
            self.records[trimmed] = {}
        self.first = index


@dataclass(slots=True, eq=False)
class Shard:
    """A shard.

    :param shard_id: its name.
    :param serial: its number among all shards of the server.
    :param starting_hash_key: the first hash key it takes.
    :param ending_hash_key: the last one.
    :param parents: the names of the shards it came from.
    :param opened_ms: since when it takes records.
    :param first_number: where its sequence numbers begin.
    """

    shard_id: str
    serial: int
    starting_hash_key: int
    ending_hash_key: int
    parents: tuple[str, ...]
    opened_ms: int
    first_number: int
    closed_ms: int | None = None
    ending_number: int | None = None
    newest_number: int = 0
    children: list[Shard] = field(default_factory=list)
    records: Records = field(default_factory=Records)
    reads: int = 0
    read_calls: Window = field(default_factory=Window)
    read_bytes: Window = field(default_factory=Window)
    iterator_calls: Window = field(default_factory=Window)
    write_bytes: Window = field(default_factory=Window)
    write_records: Window = field(default_factory=Window)
    _index: int = 0

    @property
    def is_open(self) -> bool:
        return self.closed_ms is None

    def put(self, now_ms: int, data: bytes, partition_key: str) -> str:
        """Store a record and return its number."""
        # Numbers have gaps, as those of AWS.
        self._index += 1 + self._index % 3
        arrivals = self.records.arrivals
        arrival = max(now_ms, arrivals[-1]) if arrivals else now_ms
        self.newest_number = numbers.record_number(self.first_number, self._index, arrival // 1000)
        self.records.append(self.newest_number, arrival, data, partition_key)
        return str(self.newest_number)

    def close(self, at_ms: int, children: list[Shard]) -> None:
        self.closed_ms = at_ms
        self.ending_number = numbers.last_number(self.first_number, at_ms // 1000)
        self.children = children

    @property
    def latest(self) -> int:
        """The position just after the newest record."""
        return max(self.newest_number, self.first_number) + 1

    @property
    def last_position(self) -> int:
        """The highest number that may be asked for."""
        return self.ending_number or numbers.highest_number(self.first_number)

    def described(self) -> dict[str, Any]:
        """Return it as ListShards does."""
        names = dict(zip(("ParentShardId", "AdjacentParentShardId"), self.parents, strict=False))
        sequence = {"StartingSequenceNumber": str(self.first_number)}
        if self.ending_number is not None:
            sequence["EndingSequenceNumber"] = str(self.ending_number)
        return {"ShardId": self.shard_id, **names, "HashKeyRange": self.hash_key_range, "SequenceNumberRange": sequence}

    def described_as_child(self) -> dict[str, Any]:
        """Return it as the last page of its parent does."""
        return {"ShardId": self.shard_id, "ParentShards": list(self.parents), "HashKeyRange": self.hash_key_range}

    @property
    def hash_key_range(self) -> dict[str, str]:
        return {"StartingHashKey": str(self.starting_hash_key), "EndingHashKey": str(self.ending_hash_key)}
