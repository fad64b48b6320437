"""Simulates a stream and its workers without Spark, on a manual clock; all else is real.

Workers take turns, a round each, so that they compete for leases in an order that a test decides; they may die in
the middle of a round. What they publish is kept in the order in which it became visible.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.parquet as pq

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, MetricTotals
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.bounds import Bounds
from airflow_provider_coordination.sources.kinesis.fan_out import ensure_consumer
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, parse_partition_key, partition_key
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription, describe_stream
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.spark.delivery import Attempt, Delivery
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.kinesis import reading as shard_reading
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow, land_shard
from airflow_provider_coordination.spark.kinesis.reading import ShardReading
from airflow_provider_coordination.spark.kinesis.shard_format import KINESIS, ShardFormat
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery, ParquetSink
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.dag_versions import text_of
from tests.support.fleet import Crash, MortalStore, MortalWorker
from tests.support.job_settings import ingest, streams_of
from tests.support.kinesis_server.clock import VirtualClock
from tests.support.kinesis_server.engine import Engine
from tests.support.kinesis_server.in_process import InProcessClient
from tests.support.side_by_side import one_after_the_other

LEASE = timedelta(seconds=60)
MARGIN = timedelta(seconds=5)
HASH_KEYS = 2**128
MAX_ROUNDS = 400
STREAM = "clicks"


@dataclass
class Sink:
    """The batches in the order in which they became visible."""

    batches: dict[str, list[str]] = field(default_factory=dict)

    @property
    def events(self) -> list[str]:
        return [event for events in self.batches.values() for event in events]


def published(sink: ParquetSink, attempt: Attempt) -> list[bytes | str]:
    """Return the records of a batch that a dataset has."""
    file = sink.file_with(attempt)
    assert file is not None
    rows = pq.read_table(file, columns=["data", "_batch_id"]).to_pylist()
    return [row["data"] for row in rows if row["_batch_id"] == attempt.batch_id]


class PublishInOrder(ParquetLandedDelivery):
    """Publishes landed files, and notes when a batch became visible for the first time."""

    def __init__(self, output: str, seen: Sink) -> None:
        super().__init__(output)
        self._seen = seen

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        super().commit(sink, attempts)
        for attempt in attempts:
            if attempt.batch_id not in self._seen.batches:
                data = published(self._sink, attempt)
                self._seen.batches[attempt.batch_id] = [text_of(payload) for payload in data]


class ManualEvent(threading.Event):
    """Waits on a clock that the test moves."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def wait(self, timeout: float | None = None) -> bool:
        self._clock.advance(timeout or 0)
        return self.is_set()


class History:
    """A stream and a fleet that reads it.

    :param folder: an empty folder for files.
    :param shards: with how many shards the stream begins.
    :param initial_position: where the source begins.
    :param on_data_loss: what becomes of shards whose data is gone.
    """

    format: ShardFormat = KINESIS
    """What the records are."""

    def __init__(
        self,
        folder: Path,
        shards: int = 2,
        *,
        initial_position: str = "TRIM_HORIZON",
        on_data_loss: str = "earliest",
        **settings: Any,
    ) -> None:
        self.folder, self.on_data_loss, self.settings = folder, on_data_loss, settings
        self.initial_position = initial_position
        self.bounds: Bounds | None = None
        self.consumer: str | None = None
        self.clock = VirtualClock()
        self.client = self.connect(shards)
        self.store = InMemoryStore()
        self.sink = Sink()
        self.metrics = MetricTotals()
        self.sent: list[str] = []
        self.workers: dict[str, MortalWorker] = {}
        self.started = 0
        self.entered = 0
        self.look = self.coordinator("look", self.store)

    # What happens to the stream

    def connect(self, shards: int) -> Any:
        """Create the stream; return a client."""
        self.engine = Engine(self.clock)
        client = InProcessClient(self.engine)
        client.create_stream(StreamName=STREAM, ShardCount=shards)
        return client

    def send(self, count: int, keys: int = 5) -> None:
        for _ in range(count):
            key = f"k{len(self.sent) % keys}"
            event = f"{key}/{len(self.sent)}"
            self.clock.advance(0.001)
            self.client.put_record(StreamName=STREAM, Data=event.encode(), PartitionKey=key)
            self.sent.append(event)

    @property
    def open_shards(self) -> list[dict[str, Any]]:
        shards = self.client.list_shards(StreamName=STREAM)["Shards"]
        ours = [shard for shard in shards if "EndingSequenceNumber" not in shard["SequenceNumberRange"]]
        return sorted(ours, key=lambda shard: int(shard["HashKeyRange"]["StartingHashKey"]))

    def split(self, at: int) -> None:
        shards = self.open_shards
        shard = shards[at % len(shards)]
        first, last = (int(shard["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
        if last - first > 2:
            middle = str((first + last) // 2)
            self.client.split_shard(StreamName=STREAM, ShardToSplit=shard["ShardId"], NewStartingHashKey=middle)

    def merge(self, at: int) -> None:
        shards = self.open_shards
        if len(shards) > 1:
            first = at % (len(shards) - 1)
            left, right = shards[first]["ShardId"], shards[first + 1]["ShardId"]
            self.client.merge_shards(StreamName=STREAM, ShardToMerge=left, AdjacentShardToMerge=right)

    def recreate(self, shards: int) -> None:
        """Delete the stream, and create another one of the same name."""
        self.client.delete_stream(StreamName=STREAM, EnforceConsumerDeletion=True)
        self.clock.advance(2)
        self.client.create_stream(StreamName=STREAM, ShardCount=1 + shards)

    # What the fleet does

    def coordinator(self, owner: str, store: InMemoryStore) -> SourceCoordinator:
        coordinator = SourceCoordinator(
            store,
            STREAM,
            owner,
            clock=self.clock,
            ownership_timeout=LEASE,
            safety_margin=MARGIN,
            metrics=self.metrics,
        )
        coordinator.initialize()
        return coordinator

    def sync(self, *, forced: bool = True) -> Any:
        return self.sync_of(self.look).run([STREAM], forced=forced)

    def sync_of(self, coordinator: SourceCoordinator) -> ShardSync:
        return ShardSync(
            self.client,
            coordinator,
            initial_position=self.initial_position,
            on_data_loss=self.on_data_loss,
            bounds=self.bounds,
            sleep=self.clock.sleep,
        )

    def run(self, **settings: Any) -> Summary:
        """Run a job to its end."""
        worker = self.start(**settings)
        with self.without_spark():
            summary = worker.job.run()
        del self.workers[worker.name]
        return summary

    def delivery(self) -> Delivery:
        """Return what takes the batches of a job that starts."""
        return PublishInOrder(str(self.folder), self.sink)

    def start(self, **changes: Any) -> MortalWorker:
        self.started += 1
        name = f"worker-{self.started}"
        store = MortalStore(self.store)
        coordinator = self.coordinator(name, self.as_reached(store))
        settings = ingest(
            **{
                "source": STREAM,
                "owner": name,
                "streams": (STREAM,),
                "output": str(self.folder),
                "expires_at": self.clock.now() + timedelta(days=365),
                "store": StoreSettings(kind="in_memory"),
                "idle_duration": 1.0,
                "round_duration": 5.0,
                "on_data_loss": self.on_data_loss,
                "bounds": self.bounds,
                "ownership_timeout": LEASE,
                "safety_margin": MARGIN,
                **self.settings,
                **changes,
            }
        )
        sync = self.sync_of(coordinator)
        streams = Streams(
            streams_of(settings).streams,
            lambda stream: describe_stream(self.client, stream, clock=self.clock, sleep=self.clock.sleep),
            sync=lambda: sync.run(streams_of(settings).streams, forced=False),
            register=self.register if self.consumer else None,
            clock=self.clock,
        )
        worker: MortalWorker
        job = IngestionJob(
            settings,
            coordinator,
            self.delivery(),
            reading=self.reading(streams_of(settings), streams),
            stop_at=streams_of(settings).stop_at,
            is_bounded=streams_of(settings).bounds is not None,
            stop=ManualEvent(self.clock),
            observer=lambda phase: worker.passes(phase),
            clock=self.clock,
        )
        worker = self.workers[name] = MortalWorker(name, job, store)
        return worker

    def as_reached(self, store: Any) -> Any:
        """Return a store as a job reaches it."""
        return store

    def reading(self, reads: Any, streams: Streams) -> Any:
        """Return what makes the reading of a job."""
        return partial(ShardReading, None, reads, streams, format=self.format)

    def register(self, stream: StreamDescription) -> str:
        retry = RetryBudget(clock=self.clock, sleep=self.clock.sleep)
        return ensure_consumer(self.client, stream.name, stream.arn, str(self.consumer), retry=retry)

    def round(self, worker: MortalWorker) -> None:
        """Let a worker make a round; it is gone if it dies on the way."""
        with self.without_spark():
            try:
                for renewable in worker.job.renewables:
                    renewable.renew_due()
                worker.job.round()
            except Crash:
                self.lose(worker)

    def work(self, worker: MortalWorker) -> None:
        """Let a worker make a round and deliver what it landed; it is gone if it dies on the way."""
        self.round(worker)
        if worker.name in self.workers:
            with self.without_spark():
                try:
                    worker.job.finish()
                except Crash:
                    self.lose(worker)

    def lose(self, worker: MortalWorker) -> None:
        """A worker is killed: nothing of it gets through any more."""
        worker.store.dead = True
        del self.workers[worker.name]

    def stop(self, worker: MortalWorker) -> None:
        with self.without_spark():
            worker.job.give_back()
        del self.workers[worker.name]

    def notice(self, worker: MortalWorker) -> None:
        """Airflow has seen that a worker died."""
        self.look.give_up_owner(worker.name)

    @contextmanager
    def without_spark(self) -> Iterator[None]:
        def land(
            spark: object, plans: Sequence[ShardReadPlan], options: ShardLandingOptions, *_: object
        ) -> list[LandedShardRow]:
            return [land_shard(self.client, options, plan, clock=self.clock, sleep=self.clock.sleep) for plan in plans]

        self.entered += 1
        order = one_after_the_other(lands_first=self.entered % 2 == 0)
        with patch.object(shard_reading, "land", land), order:
            yield

    def settle(self) -> None:
        """Let the fleet work until nothing changes any more."""
        before, calm = "", 0
        for _ in range(MAX_ROUNDS):
            if not self.workers:
                self.start()
            for worker in list(self.workers.values()):
                self.round(worker)
            self.clock.advance(15)
            after = json.dumps(
                [
                    sorted(
                        (p.partition_key, p.status, p.progress.get("checkpoint")) for p in self.look.view.partitions()
                    ),
                    len(self.sink.batches),
                ]
            )
            calm = calm + 1 if after == before else 0
            before = after
            if calm >= 2 * LEASE.total_seconds() / 15:
                return
        raise AssertionError(f"the fleet never came to rest: {before}")

    # What there is to see

    @property
    def partitions(self) -> dict[str, Partition]:
        return {parse_partition_key(p.partition_key).shard_id: p for p in self.look.view.partitions()}

    def progress(self, shard: str) -> ShardProgress:
        return ShardProgress.from_mapping(self.partitions[shard].progress)

    @property
    def delivered(self) -> Counter[str]:
        return Counter(self.sink.events)

    def out_of_order(self) -> list[str]:
        """Return the events that became visible after a later one of their key."""
        last: dict[str, int] = defaultdict(lambda: -1)
        late = []
        for event in self.sink.events:
            key, _, number = event.partition("/")
            if int(number) < last[key]:
                late.append(event)
            last[key] = max(last[key], int(number))
        return late

    @property
    def losses(self) -> int:
        """How often lost data was reported."""
        return int(self.metrics.totals.get(CoordinationMetric.DATA_LOSS, 0))

    def unfinished(self) -> list[str]:
        """Return the closed shards whose partition is there and not COMPLETED."""
        epoch = describe_stream(self.client, STREAM, clock=self.clock, sleep=self.clock.sleep).creation_epoch
        opened = {partition_key(STREAM, epoch, shard["ShardId"]) for shard in self.open_shards}
        return [
            f"{partition.partition_key} {partition.status} {partition.last_error}"
            for partition in self.look.view.partitions()
            if partition.partition_key not in opened and partition.status is not PartitionStatus.COMPLETED
        ]
