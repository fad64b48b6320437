"""All batches of a round are delivered together, and an error of one delays no other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError, StoreUnavailableError
from airflow_provider_coordination.coordination.freshness import Ages
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.progress import partition_key
from airflow_provider_coordination.spark.delivery import (
    Attempt,
    DeliveryError,
    MissingColumnError,
    Prepared,
    SinkLockedError,
    SinkUnavailableError,
    by_halves,
)
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow, land_shard
from airflow_provider_coordination.spark.landed_identity import partition_folder
from airflow_provider_coordination.spark.outages import translating_outages
from airflow_provider_coordination.spark.sinks.parquet import ParquetLandedDelivery
from airflow_provider_coordination.spark.storage import delete_folder, join
from tests.support.fleet import EPOCH, Crash, FakeStream, Fleet, MortalStore
from tests.support.job_settings import parquet

SHARDS = 5
FILES = {"shared file": {}, "own files": {"target_file_bytes": 1}}
"""Options of a delivery whose batches share a file, or have one each."""


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(FakeStream(SHARDS), tmp_path)
    fleet.stream.send(2 * SHARDS)
    return fleet


def events_of(fleet: Fleet, *shards: str) -> Counter[str]:
    return Counter(record.data.decode() for shard in shards for record in fleet.stream.shards[shard].records)


def others(fleet: Fleet, shard: str) -> list[str]:
    return [name for name in fleet.stream.shards if name != shard]


class RecordingDelivery(ParquetLandedDelivery):
    """Notes how many batches it is called with; fails for one shard."""

    def __init__(self, fleet: Fleet, *, prepares: str = "", commits: str = "", **options: Any) -> None:
        super().__init__(str(fleet.folder), **options)
        self.fails_to_prepare, self.fails_to_commit = prepares, commits
        self.prepared: list[int] = []
        self.committed: list[int] = []

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        self.prepared.append(len(attempts))
        self._fail(self.fails_to_prepare, attempts)
        return super().prepare(attempts, sinks)

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        self.committed.append(len(attempts))
        self._fail(self.fails_to_commit, attempts)
        super().commit(sink, attempts)

    def _fail(self, shard: str, attempts: Sequence[Attempt]) -> None:
        if shard and any(attempt.partition_key.endswith(shard) for attempt in attempts):
            raise DeliveryError(f"{shard} is broken")


def test_batches_of_a_round_are_prepared_and_committed_together(fleet: Fleet) -> None:
    sink = RecordingDelivery(fleet)
    fleet.run(delivery=sink)
    assert (sink.prepared, sink.committed) == ([SHARDS], [SHARDS])
    assert fleet.delivered() == Counter(fleet.stream.sent)


@pytest.mark.parametrize("step", ["prepares", "commits"])
def test_failing_batch_is_isolated_within_the_round(fleet: Fleet, step: str) -> None:
    delivered: list[Counter[str]] = []

    def observer(phase: str) -> None:
        if phase == "recorded":
            delivered.append(fleet.delivered())

    sink = (
        RecordingDelivery(fleet, prepares="shard-3")
        if step == "prepares"
        else RecordingDelivery(fleet, commits="shard-3", target_file_bytes=1)
    )
    summary = fleet.run(observer, delivery=sink)
    assert delivered[1] == fleet.delivered() == events_of(fleet, *others(fleet, "shard-3"))
    assert summary.failed == {partition_key("s", EPOCH, "shard-3"): "shard-3 is broken"}
    assert summary.records_delivered == 2 * (SHARDS - 1)
    fleet.clock.ahead += timedelta(minutes=1)
    assert fleet.run().failed == {}, "the next job delivers it"
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_failed_sweep_fails_only_its_partition(fleet: Fleet) -> None:
    key = partition_key("s", EPOCH, "shard-3")

    class Unswept(RecordingDelivery):
        def sweep(self, tokens: Mapping[str, int]) -> None:
            if partition_folder(fleet.look.view.source_identifier, key) in tokens:
                raise OSError("no permission")
            super().sweep(tokens)

    assert fleet.run(delivery=Unswept(fleet)).failed == {key: "no permission"}
    assert fleet.delivered() == events_of(fleet, *others(fleet, "shard-3"))


class ColumnMissingDelivery(RecordingDelivery):
    """Finds that a column is missing from the batches of some shards."""

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        lacking = {each.batch_id for each in attempts if each.partition_key.endswith(self.fails_to_prepare)}
        prepared = ParquetLandedDelivery.prepare(self, [a for a in attempts if a.batch_id not in lacking], sinks)
        return {**prepared, **{batch_id: MissingColumnError("no column 'colour'") for batch_id in lacking}}


def test_column_missing_from_every_batch_ends_the_job(fleet: Fleet) -> None:
    with pytest.raises(ConfigurationError, match="no column 'colour'"):
        fleet.run(delivery=ColumnMissingDelivery(fleet))
    held = [fleet.look.view.get(partition_key("s", EPOCH, shard)) for shard in fleet.stream.shards]
    assert {(each.status, each.attempts) for each in held if each is not None} == {(PartitionStatus.UNASSIGNED, 0)}
    assert fleet.run().failed == {}
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_column_missing_from_some_batches_fails_only_these(fleet: Fleet) -> None:
    summary = fleet.run(delivery=ColumnMissingDelivery(fleet, prepares="shard-3"))
    assert summary.failed == {partition_key("s", EPOCH, "shard-3"): "no column 'colour'"}
    assert fleet.delivered() == events_of(fleet, *others(fleet, "shard-3"))


def test_shared_file_name_is_recorded_before_the_file_exists(fleet: Fleet) -> None:
    named: list[set[str | None]] = []

    class ObservingDelivery(RecordingDelivery):
        def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
            named.append({fleet.progress(shard).landed[0].shared_file for shard in fleet.stream.shards})
            assert list(fleet.folder.glob("*.parquet")) == []
            super().commit(sink, attempts)

    fleet.run(delivery=ObservingDelivery(fleet))
    [file] = fleet.folder.glob("*.parquet")
    assert [{str(name).rpartition("/")[-1] for name in names} for names in named] == [{file.stem}]
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_file_removed_before_commit_is_rewritten_within_the_round(fleet: Fleet) -> None:
    class SweptDelivery(RecordingDelivery):
        def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
            if not self.committed:
                [first] = {attempt.shared_file for attempt in attempts}
                assert first is not None
                delete_folder(join(str(fleet.folder), "_staging", first))
            super().commit(sink, attempts)

    sink = SweptDelivery(fleet)
    summary = fleet.run(delivery=sink)
    assert (summary.lost, summary.failed, summary.rounds) == ([], {}, 2)
    assert fleet.delivered() == Counter(fleet.stream.sent)


@pytest.mark.parametrize("options", FILES.values(), ids=FILES)
def test_lost_lease_excludes_only_its_batch(fleet: Fleet, options: dict[str, int]) -> None:
    key = partition_key("s", EPOCH, "shard-1")

    def steal(phase: str) -> None:
        if phase == "delivering":
            held, now = fleet.look.view.get(key), fleet.clock.now()
            assert held is not None
            fleet.store.transact(update=[held.acquired("thief", now + timedelta(hours=1), now)])

    sink = RecordingDelivery(fleet, **options)
    summary = fleet.run(steal, delivery=sink)
    assert sink.committed == [SHARDS - 1]
    assert (summary.lost, summary.failed) == ([key], {})
    assert len(list(fleet.folder.glob("*.parquet"))) == SHARDS - 1, "a file that they shared is given up"
    assert fleet.delivered() == events_of(fleet, *others(fleet, "shard-1"))


@pytest.mark.parametrize("options", FILES.values(), ids=FILES)
def test_ended_set_excludes_only_its_batch(fleet: Fleet, options: dict[str, int]) -> None:
    from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
    from airflow_provider_coordination.sources.kinds import SourceBatches

    cancelled: list[str] = []

    def cancel(phase: str) -> None:
        if phase == "delivering" and not cancelled:
            [batch] = fleet.progress("shard-1").landed
            assert batch.acknowledgment_set is not None
            AcknowledgmentSets(fleet.look, SourceBatches()).cancel(batch.acknowledgment_set, "wrong")
            cancelled.append(batch.batch_id)

    sink = RecordingDelivery(fleet, **options)
    summary = fleet.run(cancel, delivery=sink)
    assert sink.committed == [SHARDS - 1, 1], "a cancelled batch is delivered again, alone"
    assert (summary.lost, summary.failed) == ([], {})
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_batch_is_replaced_if_the_sinks_changed_since_its_delivery(fleet: Fleet) -> None:
    replaced: list[bool] = []

    class CrashingDelivery(RecordingDelivery):
        def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
            super().commit(sink, attempts)
            raise Crash

    class CountingTwoSinkDelivery(RecordingDelivery):
        sinks = ("main", "copy")

        def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
            replaced.extend(attempt.batch.redeliver for attempt in attempts)
            return super().prepare(attempts, sinks)

        def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
            if sink == "main":
                super().commit(sink, attempts)

    with suppress(Crash):
        fleet.run(delivery=CrashingDelivery(fleet, target_file_bytes=1), timeout=36000.0)
    assert fleet.delivered() == Counter(fleet.stream.sent)
    fleet.clock.ahead += timedelta(hours=1)
    fleet.run(delivery=CountingTwoSinkDelivery(fleet, target_file_bytes=1))
    assert replaced == [True] * SHARDS
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_store_outage_delays_only_unreleased_batches(
    fleet: Fleet,
) -> None:
    class UnavailableStore(MortalStore):
        left = -1

        def transact(self, **changes: Any) -> Any:
            self.left -= 1
            if self.left == 0:
                raise StoreUnavailableError("connection reset")
            return super().transact(**changes)

    store = UnavailableStore(fleet.store)

    def observer(phase: str) -> None:
        if phase == "delivered" and store.left < 0:
            store.left = 3  # the third release

    summary = fleet.run(observer, store=store)
    assert (summary.lost, summary.failed) == ([], {})
    assert summary.records_delivered == 2 * SHARDS
    assert fleet.delivered() == Counter(fleet.stream.sent)


@pytest.mark.parametrize("bad", [set(), {0}, {6}, {1, 5}, set(range(7))])
def test_failing_batches_are_found_by_bisection(bad: set[int]) -> None:
    done: list[int] = []

    def act(numbers: Sequence[int]) -> int:
        if bad & set(numbers):
            raise ValueError("no")
        done.extend(numbers)
        return sum(numbers)

    found = list(by_halves(range(7), act, "work"))
    assert sorted(done) == sorted(set(range(7)) - bad)
    assert {batches[0] for batches, result in found if isinstance(result, Exception)} == bad
    assert all(result == sum(batches) for batches, result in found if not isinstance(result, Exception))


def test_unresponsive_sink_is_waited_for_once() -> None:
    acts = []

    def act(batches: Sequence[int]) -> None:
        acts.append(batches)
        raise SinkUnavailableError("nobody answers")

    found = list(by_halves(range(7), act, "work"))
    assert acts == [range(7)]
    assert [(some, type(error)) for some, error in found] == [([n], SinkUnavailableError) for n in range(7)]


# A sink that is down


class TwoSinkDelivery:
    """Publishes what is landed in two datasets, of which one or both may be down."""

    sinks = ("main", "copy")

    def __init__(self, fleet: Fleet, folder: Path) -> None:
        self.folder = folder
        self._each = {
            name: ParquetLandedDelivery(str(place), name=name, keep=True)
            for name, place in zip(self.sinks, (fleet.folder, folder), strict=True)
        }
        self.down: set[str] = set()
        self.down_to_prepare: set[str] = set()
        self.outage: Exception = ConnectionRefusedError("nobody listens")
        self.slow: dict[str, timedelta] = {}
        self._clock = fleet.clock
        self.committed: list[tuple[str, int]] = []

    def prepare(self, attempts: Sequence[Attempt], sinks: Collection[str]) -> Mapping[str, Prepared | Exception]:
        records: dict[str, dict[str, int]] = {attempt.batch_id: {} for attempt in attempts}
        for name in sinks:
            with translating_outages(name):
                if name in self.down_to_prepare:
                    raise ConnectionRefusedError("nobody listens")
                for batch_id, prepared in self._each[name].prepare(attempts, [name]).items():
                    assert isinstance(prepared, Prepared)
                    records[batch_id] |= prepared.records
        return {batch_id: Prepared(records=each) for batch_id, each in records.items()}

    def commit(self, sink: str, attempts: Sequence[Attempt]) -> None:
        self.committed.append((sink, len(attempts)))
        if sink in self.down:
            raise self.outage
        self._each[sink].commit(sink, attempts)
        self._clock.ahead += self.slow.get(sink, timedelta())

    def discard(self, attempts: Sequence[Attempt]) -> None:
        for each in self._each.values():
            each.discard(attempts)

    def sweep(self, tokens: Mapping[str, int]) -> None:
        for each in self._each.values():
            each.sweep(tokens)

    def copied(self) -> int:
        return len(list(self.folder.glob("*.parquet")))


def up_again(sinks: TwoSinkDelivery) -> Callable[[str], None]:
    """An observer that ends an outage once a delivery met it."""
    rounds = [0]

    def observer(phase: str) -> None:
        rounds[0] += phase == "recorded"
        if rounds[0] == 2:
            sinks.down, sinks.down_to_prepare = set(), set()

    return observer


@pytest.mark.parametrize("down", sorted(TwoSinkDelivery.sinks))
def test_down_sink_is_tried_once_while_another_delivers(fleet: Fleet, tmp_path: Path, down: str) -> None:
    sinks = TwoSinkDelivery(fleet, tmp_path / "copy")
    sinks.down = {down}
    [other] = set(sinks.sinks) - sinks.down
    summary = fleet.run(up_again(sinks), delivery=sinks)
    assert sinks.committed.count((other, SHARDS)) == 1, "what has a batch does not get it again"
    assert {count for _, count in sinks.committed} == {SHARDS}, "no batch is tried alone"
    assert fleet.delivered() == Counter(fleet.stream.sent) and sinks.copied() == SHARDS
    assert set(summary.held_by_sink) == {down} and summary.held_by_sink[down] % SHARDS == 0
    assert (summary.failed, summary.lost) == ({}, [])


@pytest.mark.parametrize(
    ("outage", "attempts"), [(SinkLockedError("by session 7"), 0), (ConnectionRefusedError("nobody listens"), 1)]
)
def test_only_locks_count_as_no_partition_failure(
    fleet: Fleet, tmp_path: Path, outage: Exception, attempts: int
) -> None:
    sinks = TwoSinkDelivery(fleet, tmp_path / "copy")
    sinks.down, sinks.outage = {"main"}, outage
    summary = fleet.run(delivery=sinks)
    assert set(summary.held_by_sink) == {"main"} and len(summary.failed) == SHARDS and not summary.lost
    assert {min(1, partition.attempts) for partition in fleet.look.view.partitions()} == {attempts}
    sinks.down = set()
    fleet.clock.ahead += timedelta(hours=1)
    fleet.run(delivery=sinks)
    assert fleet.delivered() == Counter(fleet.stream.sent) and sinks.copied() == SHARDS


def test_job_reports_failing_sinks_with_cause_and_waiting_batches(fleet: Fleet, tmp_path: Path) -> None:
    sinks = TwoSinkDelivery(fleet, tmp_path / "copy")
    sinks.down = {"main"}
    fleet.run(delivery=sinks)
    [main] = fleet.report.sinks
    assert (main.name, main.kind, main.waiting_batches) == ("main", "parquet", SHARDS)
    assert main.unavailable_since is not None and main.error == "ConnectionRefusedError: nobody listens"


def test_recovered_sink_is_reported(fleet: Fleet, tmp_path: Path) -> None:
    sinks = TwoSinkDelivery(fleet, tmp_path / "copy")
    sinks.down = {"main"}
    fleet.run(up_again(sinks), delivery=sinks)
    [main] = fleet.report.sinks
    assert main.at is not None and (main.unavailable_since, main.error, main.waiting_batches) == (None, "", 0)


@pytest.mark.parametrize("down", sorted(TwoSinkDelivery.sinks))
def test_unprepared_sink_holds_only_itself(fleet: Fleet, tmp_path: Path, down: str) -> None:
    sinks = TwoSinkDelivery(fleet, tmp_path / "copy")
    sinks.down_to_prepare = {down}
    [other] = set(sinks.sinks) - sinks.down_to_prepare
    summary = fleet.run(up_again(sinks), delivery=sinks)
    assert sinks.committed == [(other, SHARDS), (down, SHARDS)]
    assert fleet.delivered() == Counter(fleet.stream.sent) and sinks.copied() == SHARDS
    assert set(summary.held_by_sink) == {down}


def test_outage_of_all_sinks_names_the_first(fleet: Fleet, tmp_path: Path) -> None:
    sinks = TwoSinkDelivery(fleet, tmp_path / "copy")
    sinks.down = set(sinks.sinks)
    summary = fleet.run(delivery=sinks)
    assert fleet.delivered() == Counter() and sinks.copied() == 0
    assert len(summary.failed) == SHARDS
    reasons = set(summary.failed.values())
    assert reasons == {"sink 'main' is unavailable: ConnectionRefusedError: nobody listens"}
    [waiting, *_] = [fleet.progress(shard).landed[0] for shard in fleet.stream.shards]
    assert not waiting.redeliver, "no batch is at fault"


# Freshness


def two_sinks(fleet: Fleet, folder: Path) -> dict[str, Any]:
    """Options of a job that knows both sinks of a `TwoSinkDelivery`."""
    return {"writes": (parquet(fleet.folder), parquet(folder, "copy")), "clock": fleet.clock}


def ages_in(fleet: Fleet, sink: str) -> tuple[int, float | None]:
    """Return the number of records that the last job made visible in a sink, and the smallest age."""
    ages = fleet.report.ages.get(sink, Ages())
    return sum(ages.counts.values()), ages.quantile(0.01)


def test_slow_sink_is_less_fresh_than_a_fast_one(fleet: Fleet, tmp_path: Path) -> None:
    sinks = TwoSinkDelivery(fleet, tmp_path / "copy")
    sinks.slow = {"copy": timedelta(seconds=30)}
    fleet.run(delivery=sinks, **two_sinks(fleet, sinks.folder))
    (main, main_age), (copy, copy_age) = ages_in(fleet, "main"), ages_in(fleet, "copy")
    assert main_age is not None and copy_age is not None
    assert (main, copy) == (2 * SHARDS, 2 * SHARDS) and main_age < 30 <= copy_age


@pytest.mark.parametrize("down", sorted(TwoSinkDelivery.sinks))
def test_batch_after_an_outage_counts_with_its_full_age(fleet: Fleet, tmp_path: Path, down: str) -> None:
    sinks = TwoSinkDelivery(fleet, tmp_path / "copy")
    sinks.down = {down}
    [other] = set(sinks.sinks) - sinks.down
    fleet.run(delivery=sinks, **two_sinks(fleet, sinks.folder))
    (known, age), missing = ages_in(fleet, other), ages_in(fleet, down)
    assert age is not None and age < 600
    assert (known, missing) == (2 * SHARDS, (0, None))
    sinks.down = set()
    fleet.clock.ahead += timedelta(minutes=50)  # the sets have not expired
    fleet.run(delivery=sinks, **two_sinks(fleet, sinks.folder))
    delivered, age = ages_in(fleet, down)
    assert age is not None and age >= 3000
    assert (delivered, ages_in(fleet, other)) == (2 * SHARDS, (0, None)), "the other sink has them already"


def test_rejected_batch_counts_again_in_each_sink(fleet: Fleet, tmp_path: Path) -> None:
    sinks = TwoSinkDelivery(fleet, tmp_path / "copy")
    sinks.down, sinks.outage = {"copy"}, DeliveryError("a bad value")
    fleet.run(up_again(sinks), delivery=sinks, **two_sinks(fleet, sinks.folder))
    assert (ages_in(fleet, "main")[0], ages_in(fleet, "copy")[0]) == (4 * SHARDS, 2 * SHARDS)


@pytest.mark.parametrize("freshness", [None, 1.0])
def test_only_a_target_ends_landings_at_the_newest_record(
    fleet: Fleet, freshness: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    landings: list[bool] = []

    def land(client: Any, options: ShardLandingOptions, plan: ShardReadPlan) -> LandedShardRow:
        landings.append(options.ends_at_newest)
        return land_shard(client, options, plan)

    monkeypatch.setattr("tests.support.fleet.land_shard", land)
    fleet.run(freshness=freshness)
    assert landings and set(landings) == {freshness is not None}


def test_job_with_a_target_delivers_each_record_once(fleet: Fleet) -> None:
    def send_more(phase: str) -> None:
        if phase == "recorded" and len(fleet.stream.sent) < 4 * SHARDS:
            fleet.stream.send(SHARDS)

    summary = fleet.run(send_more, freshness=1, until_caught_up=False, max_idle_rounds=1)
    assert summary.records_delivered == len(fleet.stream.sent) == 4 * SHARDS
    assert fleet.delivered() == Counter(fleet.stream.sent)
