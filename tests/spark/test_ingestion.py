"""The round, with everything real but Kinesis and Spark: whatever is sent is delivered once, whenever jobs die."""

from __future__ import annotations

import json
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.clock import SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import Acquisition
from airflow_provider_coordination.sources.kinesis.errors import KinesisUnavailableError, ShardNotFoundError
from airflow_provider_coordination.sources.kinesis.leases import partition_key
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, LandedBatch, ShardProgress
from airflow_provider_coordination.sources.kinesis.reader import KinesisRecord, ShardPage
from airflow_provider_coordination.spark import ingestion, landing
from airflow_provider_coordination.spark.delivery import DeliveryError, PublishLanded
from airflow_provider_coordination.spark.ingestion import Ingestion, Summary
from airflow_provider_coordination.spark.landing import Landed, LandingOptions, ReadPlan, land_shard
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.stores.in_memory import InMemoryStore

EPOCH = 7
PHASES = ["landed", "recorded", "delivering", "delivered"]


@dataclass
class FakeShard:
    name: str
    records: list[KinesisRecord] = field(default_factory=list)
    children: tuple[ChildShard, ...] | None = None  # None while open
    error: Exception | None = None


class FakeStream:
    """The shards of a stream; only what a reader sees of them."""

    def __init__(self, shards: int) -> None:
        self.shards = {name: FakeShard(name) for name in (f"shard-{n}" for n in range(shards))}
        self.sent: list[str] = []

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
                ChildShard(shard_id=s.name, parent_shard_ids=names, starting_hash_key="0", ending_hash_key="9")
                for s in born
            )

    def read(self, client: object, stream: str, shard_id: str, start: str, **options: object) -> Iterator[ShardPage]:
        shard = self.shards[shard_id]
        if shard.error:
            raise shard.error
        left = [r for r in shard.records if start == "TRIM_HORIZON" or int(r.sequence_number) > int(start)]
        while True:
            page, left = left[:3], left[3:]
            ends = not left and shard.children is not None
            yield ShardPage(
                records=page,
                millis_behind_latest=len(left),
                end_of_shard=ends,
                children=(shard.children or ()) if ends else (),
                read_at=datetime.now(UTC),
            )
            if ends:
                return


class Crash(BaseException):
    """The process is gone."""


class MortalStore(InMemoryStore):
    """The shared store as one process sees it: once the process is dead, nothing of it gets through."""

    def __init__(self, shared: InMemoryStore) -> None:
        self._partitions, self._lock = shared._partitions, shared._lock
        self.dead = False

    def transact(self, **changes: Any) -> Any:
        if self.dead:
            raise Crash
        return super().transact(**changes)


class LaterClock(SystemClock):
    """The machine's clock, which a test can put forward."""

    def __init__(self) -> None:
        self.ahead = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.ahead


class Fleet:
    """Jobs over one stream and one dataset, one after the other."""

    def __init__(self, stream: FakeStream, folder: Path) -> None:
        self.stream, self.folder, self.store, self.jobs = stream, folder, InMemoryStore(), 0
        self.clock = LaterClock()
        self.look = self.coordinator("look", self.store)
        self.look.create_partitions(
            {
                partition_key("s", EPOCH, shard): ShardProgress(
                    stream="s", shard_id=shard, parent_shard_ids=(), starting_hash_key="0", ending_hash_key="9"
                ).to_mapping()
                for shard in stream.shards
            }
        )

    def coordinator(self, owner: str, store: InMemoryStore) -> SourceCoordinator:
        coordinator = SourceCoordinator(store, "clicks", owner, clock=self.clock)
        coordinator.initialize()
        return coordinator

    def run(
        self,
        observer: Callable[[str], None] = lambda phase: None,
        sink: PublishLanded | None = None,
        store: MortalStore | None = None,
        **changes: Any,
    ) -> Summary:
        """Run a job to its end; an observer that raises `Crash` kills it where it stands."""
        self.jobs += 1
        store = store or MortalStore(self.store)
        job_settings = IngestSettings(
            **{
                "source": "clicks",
                "owner": f"job-{self.jobs}",
                "stream": "s",
                "output": str(self.folder),
                "expires_at": datetime.now(UTC) + timedelta(hours=1),
                "store": StoreSettings(store="in_memory"),
                "idle_seconds": 0.0,
                **changes,
            }
        )

        def dying(phase: str) -> None:
            try:
                observer(phase)
            except Crash:
                store.dead = True
                raise

        job = Ingestion(
            job_settings,
            None,  # type: ignore[arg-type]
            self.coordinator(job_settings.owner, store),
            sink or PublishLanded(job_settings.output),
            creation_epoch=EPOCH,
            stop=threading.Event(),
            observer=dying,
        )
        try:
            with self._without_spark():
                return job.run()
        except Crash:
            self.look.give_up_owner(job_settings.owner)
            raise

    @contextmanager
    def _without_spark(self) -> Iterator[None]:
        def in_process(spark: object, plans: Sequence[ReadPlan], options: LandingOptions) -> list[Landed]:
            return [land_shard(None, options, plan) for plan in plans]

        with ExitStack() as stack:
            stack.enter_context(patch.object(ingestion, "land", in_process))
            stack.enter_context(patch.object(landing, "read_shard", self.stream.read))
            yield

    def delivered(self) -> Counter[str]:
        files = [str(path) for path in self.folder.glob("*.parquet")]
        data = ds.dataset(files).to_table(columns=["data"])["data"].to_pylist() if files else []
        return Counter(payload.decode() for payload in data)

    def progress(self, shard: str) -> ShardProgress:
        partition = self.look.get(partition_key("s", EPOCH, shard))
        assert partition is not None
        return ShardProgress.from_mapping(partition.progress)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(FakeStream(2), tmp_path)


def crash_at(phase: str, count: int) -> Callable[[str], None]:
    left = [count]

    def observer(passed: str) -> None:
        left[0] -= passed == phase
        if passed == phase and left[0] == 0:
            raise Crash

    return observer


actions = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 12)),
    st.tuples(st.just("split"), st.none()),
    st.tuples(st.just("merge"), st.none()),
    st.tuples(st.just("run"), st.none()),
    st.tuples(st.just("crash"), st.tuples(st.sampled_from(PHASES), st.integers(1, 3))),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(actions, max_size=14))
def test_every_event_is_delivered_once_whenever_jobs_die_and_shards_change(story: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stream = FakeStream(2)
        fleet = Fleet(stream, Path(folder))
        for action, value in story:
            if action == "send":
                stream.send(value)
            elif action == "run":
                fleet.run()
            elif action == "crash":
                with suppress(Crash):
                    fleet.run(crash_at(*value))
            else:
                getattr(stream, action)()
            assert set(fleet.delivered().values()) <= {1}, "nothing is ever there twice"
        summary = fleet.run()
        assert (summary.failed, summary.lost) == ({}, [])
        assert fleet.delivered() == Counter(stream.sent)
        counts = fleet.look.count_by_status()
        assert counts[PartitionStatus.UNASSIGNED] == len(stream.open_shards)
        assert counts[PartitionStatus.COMPLETED] == len(stream.shards) - len(stream.open_shards)
        assert list((Path(folder) / "_landing").rglob("*.parquet")) == []


def test_what_a_dead_job_recorded_is_delivered_as_it_was_recorded(fleet: Fleet) -> None:
    fleet.stream.send(4)
    with pytest.raises(Crash):
        fleet.run(crash_at("recorded", 1))
    recorded = fleet.progress("shard-0").landed
    fleet.stream.send(4)
    fleet.run()
    assert (fleet.folder / f"{recorded[0].batch_id}.parquet").exists()
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_a_shard_that_cannot_be_read_never_stops_the_others(fleet: Fleet) -> None:
    fleet.stream.send(4)
    fleet.stream.shards["shard-0"].error = ShardNotFoundError("shard-0 is gone")
    summary = fleet.run()
    assert summary.failed == {partition_key("s", EPOCH, "shard-0"): "shard-0 is gone"}
    assert summary.records_delivered == 2
    counts = fleet.look.count_by_status()
    assert (counts[PartitionStatus.UNASSIGNED], counts[PartitionStatus.CLOSED]) == (1, 1)


def test_what_fails_is_tried_again_and_then_rests_with_its_last_error(fleet: Fleet) -> None:
    fleet.stream.shards["shard-0"].error = ShardNotFoundError("shard-0 is gone")
    fleet.run()
    partition = fleet.look.get(partition_key("s", EPOCH, "shard-0"))
    assert partition is not None
    assert (partition.attempts, partition.last_error) == (3, "shard-0 is gone")
    assert fleet.run().failed == {}, "it rests, and the next job leaves it alone"


def test_a_failure_that_passes_within_the_job_is_forgotten(fleet: Fleet) -> None:
    fleet.stream.send(4)
    sink = FailsForAWhile(str(fleet.folder))

    def mend(phase: str) -> None:
        sink.broken = sink.broken and phase != "delivered"  # the other shard's batch went through

    assert fleet.run(mend, sink=sink).failed == {}
    partition = fleet.look.get(partition_key("s", EPOCH, "shard-0"))
    assert partition is not None and (partition.attempts, partition.last_error) == (0, None)
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_a_shard_that_cannot_be_read_for_a_while_is_tried_again(fleet: Fleet) -> None:
    fleet.stream.send(4)
    fleet.stream.shards["shard-0"].error = KinesisUnavailableError("throttled")
    rounds: list[str] = []

    def recover(phase: str) -> None:
        rounds.append(phase)
        if rounds.count("landed") == 3:
            fleet.stream.shards["shard-0"].error = None

    summary = fleet.run(recover)
    assert summary.failed == {} and fleet.delivered() == Counter(fleet.stream.sent)


def test_a_shard_that_stays_unreadable_fails_after_some_rounds(fleet: Fleet) -> None:
    fleet.stream.shards["shard-0"].error = KinesisUnavailableError("throttled")
    assert list(fleet.run().failed.values()) == ["throttled"]


class FailsForAWhile(PublishLanded):
    """A sink that cannot take the batches of one shard, until it is mended."""

    broken = True

    def prepare(self, folder: str, batch: LandedBatch, fencing_token: int) -> None:
        if self.broken and "shard-0" in folder:
            raise DeliveryError("the sink is broken")


def test_a_batch_that_cannot_be_delivered_stays_landed_and_is_delivered_by_the_next_job(fleet: Fleet) -> None:
    fleet.stream.send(4)
    sink = FailsForAWhile(str(fleet.folder))
    summary = fleet.run(sink=sink)
    assert list(summary.failed.values()) == ["the sink is broken"]
    assert len(fleet.progress("shard-0").landed) == 1
    sink.broken = False
    fleet.clock.ahead += timedelta(minutes=1)
    assert fleet.run(sink=sink).failed == {}
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_shards_of_an_earlier_stream_of_the_same_name_are_not_read(fleet: Fleet) -> None:
    old = partition_key("s", EPOCH - 1, "shard-0")
    fleet.look.create_partitions({old: fleet.progress("shard-0").to_mapping()})
    fleet.stream.send(4)
    summary = fleet.run()
    assert list(summary.failed) == [old] and "deleted and created anew" in summary.failed[old]
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_partitions_of_another_stream_are_not_read_from_this_one(fleet: Fleet) -> None:
    foreign = partition_key("other", EPOCH, "shard-0")
    fleet.look.create_partitions({foreign: {**fleet.progress("shard-0").to_mapping(), "stream": "other"}})
    fleet.stream.send(4)
    summary = fleet.run()
    assert list(summary.failed) == [foreign] and "belongs to stream 'other'" in summary.failed[foreign]
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_a_progress_that_cannot_be_read_fails_its_own_partition_alone(fleet: Fleet) -> None:
    strange = partition_key("s", EPOCH, "shard-9")
    fleet.look.create_partitions({strange: {"written": "by hand"}})
    fleet.stream.send(4)
    summary = fleet.run()
    assert list(summary.failed) == [strange] and "stored progress" in summary.failed[strange]
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_a_progress_that_is_not_json_is_kept_as_it_is(fleet: Fleet) -> None:
    strange = Partition(
        source_identifier=fleet.look.source_identifier,
        partition_key=partition_key("s", EPOCH, "shard-9"),
        status=PartitionStatus.UNASSIGNED,
        priority=datetime(2026, 1, 1, tzinfo=UTC),
        unreadable_progress="{'written': by hand",
    )
    fleet.store.create([strange])
    fleet.stream.send(4)
    summary = fleet.run()
    assert list(summary.failed) == [strange.partition_key]
    assert "is not a JSON object and is kept as it is" in summary.failed[strange.partition_key]
    stored = fleet.look.get(strange.partition_key)
    assert stored is not None and stored.unreadable_progress == strange.unreadable_progress
    assert fleet.delivered() == Counter(fleet.stream.sent)


class AwayForAWhile(MortalStore):
    """The shared store behind a network that fails for the given number of calls, some of which get through."""

    def __init__(self, shared: InMemoryStore, *, calls: int, get_through: bool) -> None:
        super().__init__(shared)
        self.away, self.left, self.get_through = False, calls, get_through

    def acquire(self, request: Acquisition) -> list[Partition]:
        return cast("list[Partition]", self._answer(lambda: super(AwayForAWhile, self).acquire(request)))

    def transact(self, **changes: Any) -> Any:
        return self._answer(lambda: super(AwayForAWhile, self).transact(**changes))

    def query(self, *place: Any, **page: Any) -> Any:
        return self._answer(lambda: super(AwayForAWhile, self).query(*place, **page))

    def _answer(self, call: Callable[[], object]) -> object:
        if not self.away or self.left <= 0:
            return call()
        self.left -= 1
        if self.get_through:
            call()
        raise StoreUnavailableError("no route to the store")


@pytest.mark.parametrize("get_through", [True, False])
@pytest.mark.parametrize("phase", [None, *PHASES])
@pytest.mark.parametrize("calls", [1, 2, 3, 5])
def test_a_store_that_goes_away_for_a_while_loses_and_doubles_nothing(
    fleet: Fleet, phase: str | None, calls: int, get_through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion, "STORE_POLL_SECONDS", 0.001)
    store = AwayForAWhile(fleet.store, calls=calls, get_through=get_through)
    store.away = phase is None

    def go_away(passed: str) -> None:
        store.away = store.away or passed == phase

    fleet.stream.send(12)
    fleet.stream.split()
    summary = fleet.run(go_away, store=store)
    assert store.left == 0 or phase is None
    assert (summary.failed, fleet.delivered()) == ({}, Counter(fleet.stream.sent))
    assert fleet.look.count_by_status()[PartitionStatus.ASSIGNED] == 0


def test_a_store_that_stays_away_ends_the_job(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion, "STORE_POLL_SECONDS", 0.001)
    monkeypatch.setattr(ingestion, "STORE_PATIENCE_SECONDS", 0.05)
    store = AwayForAWhile(fleet.store, calls=10**9, get_through=False)
    store.away = True
    with pytest.raises(StoreUnavailableError, match="no route"):
        fleet.run(store=store)


def test_a_job_leaves_the_share_of_the_workers_that_are_expected(fleet: Fleet) -> None:
    fleet.stream.send(4)
    assert fleet.run(workers=2).records_delivered == 2


def test_an_idle_shard_tells_how_far_it_is_when_it_is_given_back(fleet: Fleet) -> None:
    before = datetime.now(UTC)
    fleet.run()
    until = fleet.progress("shard-0").delivered_until
    assert until is not None and until >= before


def test_the_summary_is_json(fleet: Fleet) -> None:
    fleet.stream.send(2)
    assert json.loads(json.dumps(fleet.run().to_mapping()))["records_delivered"] == 2
