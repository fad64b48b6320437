"""Rounds with everything real but Kinesis and Spark deliver each record once, whenever jobs die."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.retries import RetryPolicy
from airflow_provider_coordination.coordination.store import Acquisition
from airflow_provider_coordination.sources.kinesis.client import AccessDeniedError, KinesisUnavailableError
from airflow_provider_coordination.sources.kinesis.progress import partition_key
from airflow_provider_coordination.spark import ingestion_job
from airflow_provider_coordination.spark.delivery import Attempt, DeliveryError, Prepared
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.depth import examples
from tests.support.fleet import EPOCH, PHASES, Crash, FakeStream, Fleet, MortalStore, crash_at


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(FakeStream(2), tmp_path)


actions = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 12)),
    st.tuples(st.just("split"), st.none()),
    st.tuples(st.just("merge"), st.none()),
    st.tuples(st.just("run"), st.none()),
    st.tuples(st.just("crash"), st.tuples(st.sampled_from(PHASES), st.integers(1, 3))),
)


@pytest.mark.integration
@settings(max_examples=examples(40))
@given(st.lists(actions, max_size=14))
def test_events_are_delivered_once_despite_dying_jobs_and_resharding(story: list[tuple[str, Any]]) -> None:
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
        counts = fleet.look.view.count_by_status()
        assert counts[PartitionStatus.UNASSIGNED] == len(stream.open_shards)
        assert counts[PartitionStatus.COMPLETED] == len(stream.shards) - len(stream.open_shards)
        assert list((Path(folder) / "_landing").rglob("*.parquet")) == []


def test_batches_of_a_dead_job_are_delivered_as_recorded(fleet: Fleet) -> None:
    fleet.stream.send(4)
    with pytest.raises(Crash):
        fleet.run(crash_at("recorded", 1))
    recorded = fleet.progress("shard-0").landed
    fleet.stream.send(4)
    fleet.run()
    delivered = ds.dataset(list(map(str, fleet.folder.glob("*.parquet")))).to_table(columns=["_batch_id", "data"])
    theirs = delivered.filter(pc.equal(delivered["_batch_id"], recorded[0].batch_id))
    assert theirs.num_rows == recorded[0].records, "the range is the same"
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_unreadable_shard_never_stops_the_others(fleet: Fleet) -> None:
    fleet.stream.send(4)
    fleet.stream.shards["shard-0"].error = AccessDeniedError("shard-0 is denied")
    summary = fleet.run()
    assert summary.failed == {partition_key("s", EPOCH, "shard-0"): "shard-0 is denied"}
    assert summary.records_delivered == 2
    counts = fleet.look.view.count_by_status()
    assert (counts[PartitionStatus.UNASSIGNED], counts[PartitionStatus.CLOSED]) == (1, 1)


def test_failure_is_retried_then_rests_with_its_last_error(fleet: Fleet) -> None:
    fleet.stream.shards["shard-0"].error = AccessDeniedError("shard-0 is denied")
    fleet.run()
    partition = fleet.look.view.get(partition_key("s", EPOCH, "shard-0"))
    assert partition is not None
    assert (partition.attempts, partition.last_error) == (3, "shard-0 is denied")
    later = fleet.run()
    assert (later.failed, later.resting) == ({}, [partition.partition_key]), (
        "it rests, and the next job leaves it alone"
    )


def test_failure_that_passes_within_the_job_is_forgotten(fleet: Fleet) -> None:
    fleet.stream.send(4)
    sink = FailingDelivery(str(fleet.folder))

    def repair(phase: str) -> None:
        sink.broken = sink.broken and phase != "delivered"  # the other shard's batch went through

    assert fleet.run(repair, delivery=sink).failed == {}
    partition = fleet.look.view.get(partition_key("s", EPOCH, "shard-0"))
    assert partition is not None and (partition.attempts, partition.last_error) == (0, None)
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_temporarily_unreadable_shard_is_retried(fleet: Fleet) -> None:
    fleet.stream.send(4)
    fleet.stream.shards["shard-0"].error = KinesisUnavailableError("throttled")
    rounds: list[str] = []

    def recover(phase: str) -> None:
        rounds.append(phase)
        if rounds.count("landed") == 3:
            fleet.stream.shards["shard-0"].error = None

    summary = fleet.run(recover)
    assert summary.failed == {} and fleet.delivered() == Counter(fleet.stream.sent)


def test_permanently_unreadable_shard_fails_after_some_rounds(fleet: Fleet) -> None:
    fleet.stream.shards["shard-0"].error = KinesisUnavailableError("throttled")
    assert list(fleet.run().failed.values()) == ["throttled"]


class FailingDelivery(ParquetLandedDelivery):
    """A sink that cannot take the batches of one shard, until it is repaired."""

    broken = True

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        if self.broken and any("shard-0" in attempt.folder for attempt in attempts):
            raise DeliveryError("the sink is broken")
        return super().prepare(attempts, sinks)


def test_undeliverable_batch_stays_landed_for_the_next_job(fleet: Fleet) -> None:
    fleet.stream.send(4)
    sink = FailingDelivery(str(fleet.folder))
    summary = fleet.run(delivery=sink)
    assert list(summary.failed.values()) == ["the sink is broken"]
    assert len(fleet.progress("shard-0").landed) == 1
    sink.broken = False
    fleet.clock.ahead += timedelta(minutes=1)
    assert fleet.run(delivery=sink).failed == {}
    assert fleet.delivered() == Counter(fleet.stream.sent)


def landed_file(fleet: Fleet, shard: str) -> Path:
    [batch] = fleet.progress(shard).landed
    [file] = fleet.folder.glob(f"_landing/*/*{shard}*/{batch.start}*.parquet")
    return file


@pytest.mark.parametrize("damage", [lambda content: content[: len(content) // 2], lambda content: b"x" * len(content)])
def test_damaged_landed_file_parks_its_partition_alone(fleet: Fleet, damage: Callable[[bytes], bytes]) -> None:
    fleet.stream.send(4)
    with pytest.raises(Crash):
        fleet.run(crash_at("recorded", 1))
    content = landed_file(fleet, "shard-0").read_bytes()
    landed_file(fleet, "shard-0").write_bytes(damage(content))
    for _ in range(4):
        fleet.run(retry_policy=RetryPolicy(max_attempts=2, max_closed_count=1))
        assert fleet.delivered() == Counter(fleet.stream.sent[1::2]), "the healthy shard"
        fleet.clock.ahead += timedelta(hours=2)
    damaged = fleet.look.view.get(partition_key("s", EPOCH, "shard-0"))
    assert damaged is not None and damaged.is_parked and damaged.attempts == 4
    landed_file(fleet, "shard-0").write_bytes(content)  # restored
    Administration(fleet.store, fleet.look.view.source_identifier, fleet.clock).reopen(damaged.partition_key)
    fleet.run()
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_dataset_link_is_followed(tmp_path: Path) -> None:
    fleet = Fleet(FakeStream(1), tmp_path / "lake")
    fleet.stream.send(2)
    fleet.run()
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    (tmp_path / "lake").symlink_to(tmp_path / "elsewhere")
    fleet.stream.send(2)
    fleet.run()
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_dangling_dataset_link_fails_partitions_without_loss(
    tmp_path: Path,
) -> None:
    fleet = Fleet(FakeStream(1), tmp_path / "lake")
    fleet.stream.send(2)
    with pytest.raises(Crash):
        fleet.run(crash_at("recorded", 1))
    (tmp_path / "lake").rename(tmp_path / "elsewhere")
    (tmp_path / "lake").symlink_to(tmp_path / "nowhere")
    assert "lake" in next(iter(fleet.run(retry_policy=RetryPolicy(max_attempts=1)).failed.values()))
    (tmp_path / "lake").unlink()
    (tmp_path / "elsewhere").rename(tmp_path / "lake")
    fleet.clock.ahead += timedelta(hours=2)
    fleet.run()
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_shards_of_an_earlier_stream_are_not_read(fleet: Fleet) -> None:
    old = partition_key("s", EPOCH - 1, "shard-0")
    fleet.look.create_partitions({old: fleet.progress("shard-0").to_mapping()})
    fleet.stream.send(4)
    summary = fleet.run()
    assert list(summary.failed) == [old] and "deleted and created again" in summary.failed[old]
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_partitions_of_another_stream_are_not_read(fleet: Fleet) -> None:
    foreign = partition_key("other", EPOCH, "shard-0")
    fleet.look.create_partitions({foreign: {**fleet.progress("shard-0").to_mapping(), "stream": "other"}})
    fleet.stream.send(4)
    summary = fleet.run()
    assert list(summary.failed) == [foreign] and "belongs to stream 'other'" in summary.failed[foreign]
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_unreadable_progress_fails_its_partition_alone(fleet: Fleet) -> None:
    strange = partition_key("s", EPOCH, "shard-9")
    fleet.look.create_partitions({strange: {"written": "by hand"}})
    fleet.stream.send(4)
    summary = fleet.run()
    assert list(summary.failed) == [strange] and "stored progress" in summary.failed[strange]
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_progress_that_is_not_json_is_kept_unchanged(fleet: Fleet) -> None:
    strange = Partition(
        source_identifier=fleet.look.view.source_identifier,
        partition_key=partition_key("s", EPOCH, "shard-9"),
        status=PartitionStatus.UNASSIGNED,
        priority=datetime(2026, 1, 1, tzinfo=UTC),
        unreadable_progress="{'written': by hand",
    )
    fleet.store.create([strange])
    fleet.stream.send(4)
    summary = fleet.run()
    assert list(summary.failed) == [strange.partition_key]
    assert "is not a JSON object and is kept unchanged" in summary.failed[strange.partition_key]
    stored = fleet.look.view.get(strange.partition_key)
    assert stored is not None and stored.unreadable_progress == strange.unreadable_progress
    assert fleet.delivered() == Counter(fleet.stream.sent)


class UnavailableStore(MortalStore):
    """The shared store behind a network that fails for the given number of calls, some of which get through."""

    def __init__(self, shared: InMemoryStore, *, calls: int, get_through: bool) -> None:
        super().__init__(shared)
        self.away, self.left, self.get_through = False, calls, get_through

    def acquire(self, request: Acquisition) -> list[Partition]:
        return cast("list[Partition]", self._answer(lambda: super(UnavailableStore, self).acquire(request)))

    def transact(self, **changes: Any) -> Any:
        return self._answer(lambda: super(UnavailableStore, self).transact(**changes))

    def query(self, *place: Any, **page: Any) -> Any:
        return self._answer(lambda: super(UnavailableStore, self).query(*place, **page))

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
def test_temporary_store_outage_loses_and_doubles_nothing(
    fleet: Fleet, phase: str | None, calls: int, get_through: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ingestion_job, "STORE_POLL_SECONDS", 0.001)
    store = UnavailableStore(fleet.store, calls=calls, get_through=get_through)
    store.away = phase is None

    def go_away(passed: str) -> None:
        store.away = store.away or passed == phase

    fleet.stream.send(12)
    fleet.stream.split()
    summary = fleet.run(go_away, store=store)
    assert store.left == 0 or phase is None
    assert (summary.failed, fleet.delivered()) == ({}, Counter(fleet.stream.sent))
    assert fleet.look.view.count_by_status()[PartitionStatus.ASSIGNED] == 0


def test_lasting_store_outage_ends_the_job(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion_job, "STORE_POLL_SECONDS", 0.001)
    monkeypatch.setattr(ingestion_job, "STORE_WAIT_SECONDS", 0.05)
    store = UnavailableStore(fleet.store, calls=10**9, get_through=False)
    store.away = True
    with pytest.raises(StoreUnavailableError, match="no route"):
        fleet.run(store=store)


def test_job_leaves_the_share_of_expected_workers(fleet: Fleet) -> None:
    fleet.stream.send(4)
    assert fleet.run(workers=2).records_delivered == 2


def test_idle_shard_is_released_with_its_position(fleet: Fleet) -> None:
    before = datetime.now(UTC)
    fleet.run()
    until = fleet.progress("shard-0").delivered_until
    assert until is not None and until >= before


def test_summary_is_json(fleet: Fleet) -> None:
    fleet.stream.send(2)
    assert json.loads(json.dumps(fleet.run().to_mapping()))["records_delivered"] == 2
