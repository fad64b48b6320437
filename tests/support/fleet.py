"""Ingestion by one job after another, with a stream in memory and without Spark; all else is real."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow.dataset as ds

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.kinesis import fan_out
from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPage
from airflow_provider_coordination.sources.kinesis.positions import parse_position
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress, ShardRange, partition_key
from airflow_provider_coordination.sources.kinesis.reader import KinesisRecord
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.delivery import Delivery
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.kinesis import reading as shard_reading
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow, land_shard
from airflow_provider_coordination.spark.kinesis.reading import ShardReading
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
from airflow_provider_coordination.spark.telemetry import Spans
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.job_settings import ingest, streams_of

EPOCH = 7
STREAM = StreamDescription(name="s", creation_epoch=EPOCH, open_shards=0, retention_hours=24)
PHASES = ["landed", "recorded", "delivering", "delivered"]


@dataclass
class FakeShard:
    name: str
    records: list[KinesisRecord] = field(default_factory=list)
    children: tuple[ShardRange, ...] | None = None  # None while open
    error: Exception | None = None


class FakeStream:
    """The shards of a stream; only what a reader sees of them."""

    def __init__(self, shards: int) -> None:
        self.shards = {name: FakeShard(name) for name in (f"shard-{n}" for n in range(shards))}
        self.sent: list[str] = []
        self.clock: Clock = SystemClock()

    @property
    def open_shards(self) -> list[FakeShard]:
        return [shard for shard in self.shards.values() if shard.children is None]

    def send(self, count: int) -> None:
        for _ in range(count):
            event = f"event-{len(self.sent)}"
            shard = self.open_shards[len(self.sent) % len(self.open_shards)]
            shard.records.append(KinesisRecord(str(10**20 + len(self.sent)), "k", datetime.now(UTC), event.encode()))
            self.sent.append(event)

    def split(self) -> None:
        self._continue(self.open_shards[:1], 2)

    def merge(self) -> None:
        if len(self.open_shards) > 1:
            self._continue(self.open_shards[:2], 1)

    def _continue(self, parents: Sequence[FakeShard], count: int) -> None:
        names = tuple(parent.name for parent in parents)
        born = [FakeShard(f"shard-{len(self.shards) + n}") for n in range(count)]
        self.shards |= {shard.name: shard for shard in born}
        for parent in parents:
            parent.children = tuple(
                ShardRange(shard_id=s.name, parent_shard_ids=names, starting_hash_key="0", ending_hash_key="9")
                for s in born
            )

    def read(
        self, client: object, stream: str, shard_id: str, start: str, *, inclusive: bool = False, **options: object
    ) -> Iterator[ShardPage]:
        shard = self.shards[shard_id]
        if shard.error:
            raise shard.error
        left = [record for record in shard.records if _follows(record, start, inclusive)]
        while True:
            page, left = left[:3], left[3:]
            ends = not left and shard.children is not None
            yield ShardPage(
                records=page,
                millis_behind_latest=len(left),
                end_of_shard=ends,
                children=(shard.children or ()) if ends else (),
                read_at=self.clock.now(),
            )
            if ends:
                return


def _follows(record: KinesisRecord, start: str, inclusive: bool) -> bool:
    position = parse_position(start)
    if position.timestamp is not None:
        return record.approximate_arrival_timestamp >= position.timestamp
    if position.sequence_number is None:
        return True
    return int(record.sequence_number) + inclusive > int(position.sequence_number)


class Crash(BaseException):
    """The process died."""


class MortalStore(InMemoryStore):
    """The shared store as one process uses it; a dead process no longer reaches it."""

    def __init__(self, shared: InMemoryStore) -> None:
        self._partitions, self._lock = shared._partitions, shared._lock
        self.dead = False

    def transact(self, **changes: Any) -> Any:
        if self.dead:
            raise Crash
        return super().transact(**changes)

    def delete(self, partition: Partition) -> None:
        if self.dead:
            raise Crash
        super().delete(partition)


@dataclass
class MortalWorker:
    """One job that runs round by round, and may die in the middle of a round.

    :param store: as its process sees it.
    :param dies_at: the phase, and at which time of passing it.
    """

    name: str
    job: IngestionJob
    store: MortalStore
    dies_at: tuple[str, int] | None = None

    def passes(self, phase: str) -> None:
        if self.dies_at is None or self.dies_at[0] != phase:
            return
        left = self.dies_at[1] - 1
        self.dies_at = (phase, left)
        if left == 0:
            self.store.dead = True
            raise Crash


class LaterClock(SystemClock):
    """The machine's clock, which a test can advance."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


class Fleet:
    """Jobs over one stream and one dataset, one after the other."""

    def __init__(
        self, stream: FakeStream, folder: Path, store: CoordinationStore | None = None, **leases: timedelta
    ) -> None:
        self.stream, self.folder, self.jobs, self.leases = stream, folder, 0, leases
        self.store = store or InMemoryStore()
        self.clock = stream.clock = LaterClock()
        self.look = self.coordinator("look", self.store)
        self.look.create_partitions(
            {
                partition_key("s", EPOCH, shard): ShardProgress(
                    stream="s", shard_id=shard, parent_shard_ids=(), starting_hash_key="0", ending_hash_key="9"
                ).to_mapping()
                for shard in stream.shards
            }
        )

    def coordinator(self, owner: str, store: CoordinationStore, policy: RetryPolicy | None = None) -> SourceCoordinator:
        coordinator = SourceCoordinator(store, "clicks", owner, clock=self.clock, retry_policy=policy, **self.leases)
        coordinator.initialize()
        return coordinator

    def run(self, *details: Any, **changes: Any) -> Summary:
        """Run a job to its end; see `work`."""
        with self.without_spark():
            return self.work(*details, **changes)

    def work(
        self,
        observer: Callable[[str], None] = lambda phase: None,
        delivery: Delivery | None = None,
        store: CoordinationStore | None = None,
        bad_records: BadRecords | None = None,
        stop: threading.Event | None = None,
        spans: Spans | None = None,
        clock: Clock | None = None,
        is_shared: bool = False,
        **changes: Any,
    ) -> Summary:
        """Run a job to its end, within `without_spark`; an observer that raises `Crash` kills it where it stands."""
        self.jobs += 1
        mortal = MortalStore(self.store) if isinstance(self.store, InMemoryStore) else None
        store = store or mortal or self.store
        job_settings = ingest(
            **{
                "source": "clicks",
                "owner": f"job-{self.jobs}",
                "streams": ("s",),
                "output": str(self.folder),
                "expires_at": datetime.now(UTC) + timedelta(hours=1),
                "store": StoreSettings(kind="in_memory"),
                "idle_duration": 0.0,
                **changes,
            }
        )

        def dying(phase: str) -> None:
            try:
                observer(phase)
            except Crash:
                assert mortal is not None
                mortal.dead = True
                raise

        job = IngestionJob(
            job_settings,
            self.coordinator(job_settings.owner, store, job_settings.retry_policy),
            delivery
            or ParquetLandedDelivery(job_settings.writes[0].location, keep=bool(job_settings.acknowledgments.handles)),
            reading=partial(ShardReading, None, streams_of(job_settings), Streams([STREAM.name], lambda name: STREAM)),
            stop_at=streams_of(job_settings).stop_at,
            stop=stop or threading.Event(),
            bad_records=bad_records,
            observer=dying,
            spans=spans,
            clock=clock,
            is_shared=is_shared,
        )
        try:
            return job.run()
        except Crash:
            self.look.give_up_owner(job_settings.owner)
            raise
        finally:
            self.report = job.report()

    @contextmanager
    def without_spark(self) -> Iterator[None]:
        """Read and land in this process; entered once for all jobs that run side by side."""

        def in_process(
            spark: object, plans: Sequence[ShardReadPlan], options: ShardLandingOptions, *_: object
        ) -> list[LandedShardRow]:
            return [land_shard(None, options, plan) for plan in plans]

        with ExitStack() as stack:
            stack.enter_context(patch.object(shard_reading, "land", in_process))
            stack.enter_context(patch.object(fan_out, "read_shard", self.stream.read))
            yield

    def delivered(self) -> Counter[str]:
        files = [str(path) for path in self.folder.glob("*.parquet")]
        data = ds.dataset(files).to_table(columns=["data"])["data"].to_pylist() if files else []
        return Counter(payload.decode() for payload in data)

    def progress(self, shard: str) -> ShardProgress:
        partition = self.look.view.get(partition_key("s", EPOCH, shard))
        assert partition is not None
        return ShardProgress.from_mapping(partition.progress)


def crash_at(phase: str, count: int) -> Callable[[str], None]:
    left = [count]

    def observer(passed: str) -> None:
        left[0] -= passed == phase
        if passed == phase and left[0] == 0:
            raise Crash

    return observer
