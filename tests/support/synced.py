"""Shard sync, a worker and a store over an in-process Kinesis."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.metrics import MetricTotals
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_KEY
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, ShardRange, parse_partition_key
from airflow_provider_coordination.sources.kinesis.shards import Shard, list_shards
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.sources.kinesis.sync_state import (
    ShardSyncSummary,
    StreamState,
    StreamSync,
    SyncState,
)
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.batches import a_batch, begin_delivery, end_shard
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient

STREAM = "clicks"
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
MIDDLE = str(2**127)


class GraphClient:
    """Answers as Kinesis for one stream with given shards. A sequence number is the second since `EPOCH` of its time.

    As the mock of the Kinesis Client Library's tests, a shard is there at `start <= t < end`.
    """

    EPOCH = datetime(2026, 1, 1, tzinfo=UTC)

    def __init__(self, shards: Sequence[Shard], *, retention_hours: int = 24, name: str = STREAM) -> None:
        self.shards, self.retention_hours, self.name = list(shards), retention_hours, name
        self.meta = SimpleNamespace(region_name="eu-west-1", endpoint_url="http://graph")
        self.filters: list[Mapping[str, Any] | None] = []
        self.before_listing: Callable[[], object] = lambda: None

    def describe_stream_summary(self, **request: Any) -> Mapping[str, Any]:
        assert request == {"StreamName": self.name}
        return {
            "StreamDescriptionSummary": {
                "StreamStatus": "ACTIVE",
                "StreamCreationTimestamp": self.EPOCH,
                "OpenShardCount": sum(shard.is_open for shard in self.shards),
                "RetentionPeriodHours": self.retention_hours,
            }
        }

    def list_shards(self, **request: Any) -> Mapping[str, Any]:
        self.before_listing()
        self.filters.append(request.get("ShardFilter"))
        return {"Shards": [_described(shard) for shard in self.shards if self._is_listed(shard, self.filters[-1])]}

    def get_shard_iterator(self, **request: Any) -> Mapping[str, Any]:
        raise AssertionError("no shard of the graph is ever gone")

    get_records = describe_stream_consumer = register_stream_consumer = subscribe_to_shard = get_shard_iterator

    def _is_listed(self, shard: Shard, wanted: Mapping[str, Any] | None) -> bool:
        match wanted:
            case {"Type": "AT_LATEST"}:
                return shard.is_open
            case {"Type": "AT_TRIM_HORIZON"}:
                return not any(parent.shard_id in shard.parent_shard_ids for parent in self.shards)
            case {"Type": "AT_TIMESTAMP", "Timestamp": instant}:
                at = (instant - self.EPOCH).total_seconds()
                ends = shard.ending_sequence_number
                return int(shard.starting_sequence_number) <= at and (ends is None or at < int(ends))
        return True


def _described(shard: Shard) -> dict[str, Any]:
    parents = dict(zip(("ParentShardId", "AdjacentParentShardId"), shard.parent_shard_ids, strict=False))
    numbers = {"StartingSequenceNumber": shard.starting_sequence_number}
    if shard.ending_sequence_number is not None:
        numbers["EndingSequenceNumber"] = shard.ending_sequence_number
    return {
        "ShardId": shard.shard_id,
        "HashKeyRange": {"StartingHashKey": shard.starting_hash_key, "EndingHashKey": shard.ending_hash_key},
        "SequenceNumberRange": numbers,
        **parents,
    }


class SyncedSource:
    """A source, its shard sync, and a worker that delivers what a test asks for.

    :param shards: how many shards the stream `clicks` begins with; 0 for no stream.
    :param client: answers as Kinesis; a server in this process by default.
    """

    def __init__(
        self,
        shards: int = 2,
        *,
        client: Any = None,
        store: CoordinationStore | None = None,
        clock: VirtualClock | None = None,
    ) -> None:
        self.clock = clock or VirtualClock()
        self.engine = Engine(self.clock)
        self.client: Any = client or InProcessClient(self.engine)
        self.store = store or InMemoryStore()
        self.totals = MetricTotals()
        self.coordinator = self.owner("sync")
        self.worker = self.owner("worker")
        if shards and client is None:
            self.client.create_stream(StreamName=STREAM, ShardCount=shards)
            self.pass_time(1)

    def owner(self, name: str) -> SourceCoordinator:
        coordinator = SourceCoordinator(self.store, "source", name, metrics=self.totals, clock=self.clock)
        coordinator.initialize()
        return coordinator

    def pass_time(self, seconds: float = 0, *, hours: float = 0) -> None:
        self.clock.advance(seconds + 3600 * hours)

    # Syncing

    def summary(self, *streams: str, forced: bool = True, **options: Any) -> ShardSyncSummary | None:
        options = {"keep_completed": timedelta(0), "sleep": self.clock.sleep, **options}
        return ShardSync(self.client, self.coordinator, **options).run(streams or [STREAM], forced=forced)

    def sync(self, stream: str = STREAM, **options: Any) -> StreamSync:
        """Sync one stream, which is the only one."""
        summary = self.summary(stream, **options)
        assert summary is not None and summary.skipped is None
        return summary.streams[0]

    def state(self, stream: str = STREAM) -> StreamState | None:
        item = self.store.get("source|GLOBAL_STATE", GLOBAL_STATE_KEY)
        assert item is not None
        return SyncState.from_mapping(item.progress).latest(stream)

    # Looking

    def leases(self, stream: str = STREAM) -> dict[str, Partition]:
        """The partitions of a stream, by shard."""
        found = {parse_partition_key(p.partition_key): p for p in self.coordinator.view.partitions()}
        return {key.shard_id: found[key] for key in sorted(found) if key.stream == stream}

    def names(self, stream: str = STREAM) -> str:
        """The numbers of the shards that have a partition."""
        return " ".join(str(int(shard.removeprefix("shardId-"))) for shard in self.leases(stream))

    def progress(self, shard_id: str, stream: str = STREAM) -> ShardProgress:
        return ShardProgress.from_mapping(self.leases(stream)[shard_id].progress)

    def count(self, metric: str) -> float:
        return self.totals.totals.get(f"coordination.{metric}", 0)

    # Changing the stream

    def split(self, shard: int, stream: str = STREAM) -> None:
        found = self.shard(shard, stream)
        middle = (int(found.starting_hash_key) + int(found.ending_hash_key) + 1) // 2
        self.client.split_shard(StreamName=stream, ShardToSplit=found.shard_id, NewStartingHashKey=str(middle))
        self.pass_time(1)

    def merge(self, first: int, second: int, stream: str = STREAM) -> None:
        self.client.merge_shards(StreamName=stream, ShardToMerge=shard_id(first), AdjacentShardToMerge=shard_id(second))
        self.pass_time(1)

    def shard(self, number: int, stream: str = STREAM) -> Shard:
        return next(s for s in list_shards(self.client, stream) if s.shard_id == shard_id(number))

    # Working

    def start(self, *shards: int, stream: str = STREAM) -> None:
        """Deliver a first record of each shard."""
        for number in shards:
            key = self._acquire(shard_id(number), stream)
            start = self.progress(shard_id(number), stream).landed_position
            end = self.shard(number, stream).starting_sequence_number
            begin_delivery(self.worker, key, a_batch(start, end, read_until=self.clock.now()))
            self.worker.leases.give_up_all()

    def work_off(self, *shards: int, stream: str = STREAM) -> None:
        """Deliver the end of each shard."""
        for number in shards:
            key = self._acquire(shard_id(number), stream)
            end_shard(self.worker, key, *self.children(number, stream))
            self.worker.leases.give_up_all()

    def children(self, number: int, stream: str = STREAM) -> list[ShardRange]:
        return [
            ShardRange(
                shard_id=shard.shard_id,
                parent_shard_ids=shard.parent_shard_ids,
                starting_hash_key=shard.starting_hash_key,
                ending_hash_key=shard.ending_hash_key,
            )
            for shard in list_shards(self.client, stream)
            if shard_id(number) in shard.parent_shard_ids
        ]

    def land(self, number: int, end: str, stream: str = STREAM) -> None:
        """Land a batch of a shard that is not delivered."""
        key = self._acquire(shard_id(number), stream)
        progress = self.progress(shard_id(number), stream)
        landed = progress.landing(a_batch(progress.landed_position, end, read_until=self.clock.now()))
        self.worker.leases.save_progress(key, landed.to_mapping())
        self.worker.leases.give_up_all()

    def hold(self, number: int, stream: str = STREAM) -> str:
        """Let the worker hold one partition; return its key."""
        return self._acquire(shard_id(number), stream)

    def delete(self, *numbers: int, stream: str = STREAM) -> None:
        """Delete leases behind everybody's back."""
        for number in numbers:
            self.store.delete(self.leases(stream)[shard_id(number)])

    def _acquire(self, shard: str, stream: str) -> str:
        key = self.leases(stream)[shard].partition_key
        for other in self.worker.leases.acquire(10_000):
            if other.partition_key != key:
                self.worker.leases.give_up(other.partition_key)
        assert key in self.worker.leases.held
        return key


def shard_id(number: int) -> str:
    return f"shardId-{number:012d}"


def sync_shards(client: KinesisClient, coordinator: SourceCoordinator, stream: str, **options: Any) -> StreamSync:
    """Run a forced sync of the only stream of a source; return the result for the stream.

    :param options: as for `ShardSync`.
    """
    summary = ShardSync(client, coordinator, **options).run([stream], forced=True)
    assert summary is not None and summary.streams, summary
    return summary.streams[0]
