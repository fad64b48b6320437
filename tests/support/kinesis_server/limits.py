"""The limits of the real service, each enabled by its own test."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Self

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How much is allowed; None is unlimited. Reads of a shard share one budget, whoever reads.

    :param get_records_per_second: GetRecords of one shard.
    :param read_bytes_per_second: what GetRecords of one shard may return; a page larger than that keeps the shard
        shut for as many seconds as it takes, so a page of 10 MiB for 5 s.
    :param get_shard_iterator_per_second: GetShardIterator of one shard.
    :param write_bytes_per_second: into one shard, partition keys included.
    :param write_records_per_second: into one shard.
    :param list_shards_per_second: ListShards of one stream.
    :param describe_stream_summary_per_second: of the whole account.
    :param list_streams_per_second: of the whole account.
    :param list_tags_per_second: of the whole account.
    :param subscribe_per_second: SubscribeToShard of one consumer and shard.
    :param consumers_per_stream: registered at the same time.
    """

    get_records_per_second: int | None = None
    read_bytes_per_second: int | None = None
    get_shard_iterator_per_second: int | None = None
    write_bytes_per_second: int | None = None
    write_records_per_second: int | None = None
    list_shards_per_second: int | None = None
    describe_stream_summary_per_second: int | None = None
    list_streams_per_second: int | None = None
    list_tags_per_second: int | None = None
    subscribe_per_second: int | None = None
    consumers_per_stream: int | None = None

    @classmethod
    def real(cls) -> Self:
        """Return the limits that AWS documents for a stream of provisioned shards."""
        return cls(
            get_records_per_second=5,
            read_bytes_per_second=2 * MIB,
            get_shard_iterator_per_second=5,
            write_bytes_per_second=MIB,
            write_records_per_second=1000,
            list_shards_per_second=1000,
            describe_stream_summary_per_second=20,
            list_streams_per_second=5,
            list_tags_per_second=5,
            subscribe_per_second=1,
            consumers_per_stream=20,
        )


class Window:
    """What was used in the last second."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used: deque[tuple[int, int]] = deque()

    def used(self, now_ms: int) -> int:
        """Return how much counts now."""
        if not self._used:
            return 0
        self._used = deque(entry for entry in self._used if entry[0] > now_ms)
        return sum(amount for _, amount in self._used)

    def use(self, now_ms: int, amount: int = 1, *, for_ms: int = 1000) -> None:
        """Count an amount for a time."""
        self._used.append((now_ms + for_ms, amount))

    def take(self, now_ms: int, limit: int | None, amount: int = 1) -> bool:
        """Count an amount if it fits, and return whether it did."""
        if limit is None:
            return True
        if self.used(now_ms) + amount > limit:
            return False
        self.use(now_ms, amount)
        return True
