"""One stream: its shards through all resharding, and its status."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from tests.support.kinesis_server import numbers
from tests.support.kinesis_server.errors import in_use, invalid, not_found
from tests.support.kinesis_server.shard import Shard

if TYPE_CHECKING:
    from tests.support.kinesis_server.consumers import Consumer

HASH_KEYS = 2**128
HOUR_MS = 3_600_000


class SerialNumbers:
    """Gives every shard of the server a serial number, and every generation of shards a later tick."""

    def __init__(self) -> None:
        self._shards = 0
        self._tick = 0

    def serial(self) -> int:
        self._shards += 1
        return numbers.scrambled(self._shards)

    def knows(self, serial: int) -> bool:
        """Whether a shard of this serial was ever born."""
        # The inverse of the scrambling, modulo 2**32.
        return 0 < serial * pow(0x9E3779B1, -1, 1 << 32) % (1 << 32) <= self._shards

    def tick(self, now_ms: int) -> int:
        self._tick = max(self._tick + 1, now_ms // 1000)
        return self._tick


@dataclass(slots=True)
class Change:
    """What a stream is becoming.

    :param due_ms: when it is done.
    :param apply: does it, at that time.
    """

    due_ms: int
    apply: Callable[[int], None]


@dataclass(slots=True, eq=False)
class Stream:
    """A stream.

    :param uid: distinguishes it from every other stream there ever was.
    :param created_ms: its creation time; in another second than the creation of an earlier stream of
        its name.
    :param began_ms: since when it has shards: its trim horizon is never before.
    """

    uid: str
    name: str
    arn: str
    created_ms: int
    began_ms: int
    births: SerialNumbers
    mode: str = "PROVISIONED"
    max_record_bytes: int = 1024 * 1024
    retention_ms: int = 24 * HOUR_MS
    status: str = "CREATING"
    shards: dict[str, Shard] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    change: Change | None = None
    _born: int = 0
    _open: list[Shard] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)

    @property
    def open_shards(self) -> list[Shard]:
        """The shards that take records, by hash key."""
        return self._open

    def begin(self, count: int, now_ms: int) -> None:
        """Create the first shards, all of the same size, as nearly as can be."""
        self.began_ms = now_ms
        width = HASH_KEYS // count
        tick = self.births.tick(now_ms)
        for number in range(count):
            end = HASH_KEYS - 1 if number == count - 1 else (number + 1) * width - 1
            self._add(number * width, end, (), now_ms, tick)
        self._route()

    def shard(self, shard_id: str) -> Shard:
        """Return a shard that is still listed.

        :raises ApiError: if there is none.
        """
        try:
            return self.shards[shard_id]
        except KeyError:
            raise not_found(f"Shard {shard_id} in stream {self.name}") from None

    def shard_of(self, hash_key: int) -> Shard:
        """Return the open shard that takes a hash key."""
        return self._open[bisect_right(self._starts, hash_key) - 1]

    def require_active(self, doing: str) -> None:
        """Refuse to change a stream that is already changing."""
        if self.status != "ACTIVE":
            raise in_use(f"Stream {self.name} is {self.status}: {doing} needs an ACTIVE stream.")

    def require_splittable(self, shard_id: str, new_starting_hash_key: int) -> Shard:
        """Return the shard to split there."""
        shard = self._require_open(shard_id)
        if not shard.starting_hash_key + 1 < new_starting_hash_key < shard.ending_hash_key:
            raise invalid(
                f"NewStartingHashKey {new_starting_hash_key} used in SplitShard() on shard {shard_id} in stream"
                f" {self.name} is not both greater than one plus the shard's StartingHashKey"
                f" {shard.starting_hash_key} and less than the shard's EndingHashKey {shard.ending_hash_key}."
            )
        return shard

    def require_mergeable(self, shard_id: str, adjacent_id: str) -> tuple[Shard, Shard]:
        """Return the shards to merge, of which the first has the lower hash keys."""
        first, second = self._require_open(shard_id), self._require_open(adjacent_id)
        if first.ending_hash_key + 1 != second.starting_hash_key:
            raise invalid(f"Shards {shard_id} and {adjacent_id} in stream {self.name} are not an adjacent pair.")
        return first, second

    def split(self, shard: Shard, at: int, now_ms: int) -> tuple[Shard, Shard]:
        """Close a shard and open two in its place."""
        time, tick = self._end_of([shard], now_ms), self.births.tick(now_ms)
        parents = (shard.shard_id,)
        lower = self._add(shard.starting_hash_key, at - 1, parents, time, tick)
        upper = self._add(at, shard.ending_hash_key, parents, time, tick)
        shard.close(time, [lower, upper])
        self._route()
        return lower, upper

    def merge(self, first: Shard, second: Shard, now_ms: int) -> Shard:
        """Close two neighbours and open one in their place."""
        time, tick = self._end_of([first, second], now_ms), self.births.tick(now_ms)
        parents = (first.shard_id, second.shard_id)
        child = self._add(first.starting_hash_key, second.ending_hash_key, parents, time, tick)
        for parent in (first, second):
            parent.close(time, [child])
        self._route()
        return child

    def scale(self, count: int, now_ms: int) -> None:
        """Split and merge until there is this number of open shards, all of the same size, as nearly as can be.

        As AWS does it, this may need shards that are closed again at once.
        """
        width = HASH_KEYS // count
        bounds = [number * width for number in range(count)] + [HASH_KEYS]
        for bound in bounds[1:-1]:
            shard = self.shard_of(bound)
            if shard.starting_hash_key < bound:
                self.split(shard, bound, now_ms)
        for low, high in pairwise(bounds):
            inside = [shard for shard in self._open if low <= shard.starting_hash_key < high]
            merged = inside[0]
            for shard in inside[1:]:
                merged = self.merge(merged, shard, now_ms)

    def settle(self, now_ms: int) -> None:
        """Let happen what is due: changes, and the end of what is older than the retention."""
        if self.change is not None and self.change.due_ms <= now_ms:
            change, self.change = self.change, None
            change.apply(change.due_ms)
        self.trim(now_ms)

    def trim(self, now_ms: int) -> None:
        horizon = now_ms - self.retention_ms
        if horizon <= self.began_ms:
            return
        for shard in self.shards.values():
            shard.records.trim_older(horizon)
        self.forget(
            shard for shard in self.shards.values() if shard.closed_ms is not None and shard.closed_ms < horizon
        )

    def forget(self, shards: Iterable[Shard]) -> None:
        """Let closed shards vanish."""
        for shard in list(shards):
            del self.shards[shard.shard_id]

    def horizon(self, now_ms: int) -> int:
        """Return the time of the trim horizon."""
        return max(now_ms - self.retention_ms, self.began_ms)

    def _require_open(self, shard_id: str) -> Shard:
        shard = self.shard(shard_id)
        if not shard.is_open:
            raise invalid(f"Shard {shard_id} in stream {self.name} is closed.")
        return shard

    @staticmethod
    def _end_of(parents: list[Shard], now_ms: int) -> int:
        # A millisecond at least, also while the clock stands still: a shard is open before it is closed.
        return max([now_ms, *(parent.opened_ms + 1 for parent in parents)])

    def _add(self, start: int, end: int, parents: tuple[str, ...], opened_ms: int, tick: int) -> Shard:
        serial = self.births.serial()
        shard = Shard(
            shard_id=f"shardId-{self._born:012d}",
            serial=serial,
            starting_hash_key=start,
            ending_hash_key=end,
            parents=parents,
            opened_ms=opened_ms,
            first_number=numbers.first_number(tick, serial),
        )
        self._born += 1
        self.shards[shard.shard_id] = shard
        return shard

    def _route(self) -> None:
        self._open = sorted(
            (shard for shard in self.shards.values() if shard.is_open), key=lambda shard: shard.starting_hash_key
        )
        self._starts = [shard.starting_hash_key for shard in self._open]
