"""Acknowledgment sets in every kind of store: they end once, even if several processes release them at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise
from threading import Barrier
from typing import Any

import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState, ReleaseEffect
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.metrics import MetricTotals
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.support.batches import HOUR, a_batch, a_child, a_shard, begin_delivery, end_shard, shard_key
from tests.support.clock import ManualClock

X = shard_key("x")


class SharedSource:
    """The owner `a` of a shard, and other processes."""

    def __init__(self, store: CoordinationStore) -> None:
        self.store = store
        self.clock = ManualClock()
        self.totals = MetricTotals()
        self.mine = self.sets("a")
        self.a = self.mine.coordinator
        self.a.create_partitions({X: a_shard("x").to_mapping()})
        self.a.leases.acquire(1)

    def sets(self, name: str) -> AcknowledgmentSets:
        coordinator = SourceCoordinator(self.store, "clicks", name, clock=self.clock, metrics=self.totals)
        coordinator.initialize()
        return AcknowledgmentSets(coordinator, SourceBatches())

    def begin(self, start: str, end: str, *handles: str, **options: Any) -> str:
        return begin_delivery(self.a, X, a_batch(start, end), handles, **options).set_id

    def stored(self, key: str = X) -> Partition:
        found = self.a.view.get(key)
        assert found is not None
        return found

    @property
    def progress(self) -> ShardProgress:
        return ShardProgress.from_mapping(self.stored().progress)

    def count(self, name: str) -> float:
        return self.totals.totals.get(f"coordination.{name}", 0)


@pytest.fixture
def source(store: CoordinationStore) -> SharedSource:
    return SharedSource(store)


def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do all of it at the same time, each in a thread of its own; return what they returned."""
    ready = Barrier(len(acts))

    def act(each: Callable[[], Any]) -> Any:
        ready.wait()
        return each()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(act, acts))


def test_set_reads_back_unchanged(source: SharedSource) -> None:
    source.begin(TRIM_HORIZON, "5", "sink", "ü", run="dag/run", batch={"records": 7}, sinks=["sink"])
    [found] = source.mine.view.pending()
    assert found == source.sets("b").view.get(found.set_id)
    assert (found.references, found.run, found.batch, found.sinks) == (
        {"sink": 1, "ü": 1}, "dag/run", {"records": 7}, ("sink",),
    )  # fmt: skip
    assert source.mine.view.next_expiry() == found.expires_at == source.clock.now() + HOUR
    assert source.progress.landed[0].acknowledgment_set == found.set_id


def test_end_of_a_set_moves_its_partition(source: SharedSource) -> None:
    first = source.begin(TRIM_HORIZON, "5", "sink", "check")
    second = source.begin("5", "9", "sink")
    others = source.sets("others")
    others.release(second, "sink", positive=True)
    assert source.mine.release(first, "sink", positive=True)[1] is ReleaseEffect.RELEASED
    assert others.release(first, "sink", positive=True)[1] is ReleaseEffect.DUPLICATE
    assert source.progress.checkpoint == TRIM_HORIZON
    others.release(first, "check", positive=True)
    assert (source.progress.checkpoint, source.progress.landed) == ("9", ())
    assert [s.set_id for s in others.view.ended_since(source.clock.now())] == sorted([first, second])
    assert list(others.view.pending()) == []


def test_rejected_batch_is_redelivered_despite_a_late_release(source: SharedSource) -> None:
    first = source.begin(TRIM_HORIZON, "5", "sink", "check")
    others = source.sets("others")
    others.release(first, "check", positive=False, reason="no \0 rows ü")
    assert source.stored().status is PartitionStatus.UNASSIGNED and source.stored().attempts == 1
    before = source.stored()
    ended, effect = others.release(first, "sink", positive=True)
    assert (ended.state, ended.reason, effect) == (
        AcknowledgmentState.REJECTED, "check: no \0 rows ü", ReleaseEffect.LATE,
    )  # fmt: skip
    assert source.stored() == before


def test_end_of_a_shard_creates_its_children_with_the_set(source: SharedSource) -> None:
    last = source.begin(TRIM_HORIZON, "5", "sink")
    end_shard(source.a, X, a_child("c1", "x"), a_child("c2", "x"))
    assert source.a.view.get(shard_key("c1")) is None
    source.sets("others").release(last, "sink", positive=True)
    assert source.stored().status is PartitionStatus.COMPLETED
    assert [source.stored(shard_key(c)).status for c in ("c1", "c2")] == [PartitionStatus.UNASSIGNED] * 2


def test_overdue_sets_end_and_old_ones_are_purged(source: SharedSource) -> None:
    source.begin(TRIM_HORIZON, "5", "sink", timeout=timedelta(seconds=30))
    later = source.begin("5", "9", "sink")
    source.clock.advance(30)
    watcher = source.sets("watcher")
    assert [s.state for s in watcher.expire_overdue()] == [AcknowledgmentState.EXPIRED]
    assert [s.set_id for s in watcher.view.pending()] == [later]
    assert source.stored().attempts == 1
    source.clock.advance(86400)
    assert watcher.purge() == 1 and len(watcher.expire_overdue()) == 1


def test_extension_lengthens_the_waiting_lease(source: SharedSource) -> None:
    first = source.begin(TRIM_HORIZON, "5", "sink")
    source.a.leases.await_acknowledgment(X, HOUR)
    source.clock.advance(1000)
    longer = source.sets("others").extend(first, HOUR)
    assert source.stored().is_awaiting and source.stored().ownership_timeout == longer.expires_at
    source.sets("others").release(first, "sink", positive=True)
    assert source.stored().status is PartitionStatus.UNASSIGNED


# Many at once


def test_handles_may_be_released_concurrently_and_repeatedly(source: SharedSource) -> None:
    handles = [f"sink-{n}" for n in range(12)]
    set_id = source.begin(TRIM_HORIZON, "5", *handles)
    version = source.stored().version
    acts = [lambda h=h: source.sets(f"of {h}").release(set_id, h, positive=True)[1] for h in handles]
    effects = at_once([*acts, *acts[:4]])
    assert (effects.count(ReleaseEffect.RELEASED), effects.count(ReleaseEffect.DUPLICATE)) == (12, 4)
    assert source.mine.view.get(set_id).state is AcknowledgmentState.ACKNOWLEDGED
    assert (source.progress.checkpoint, source.stored().version) == ("5", version + 1)
    assert source.count("acknowledgment_sets_acknowledged") == 1


@pytest.mark.parametrize("turn", range(3))
def test_set_ended_concurrently_moves_its_partition_once(source: SharedSource, turn: int) -> None:
    set_id = source.begin(TRIM_HORIZON, "5", "sink")
    version = source.stored().version
    others = [source.sets(f"others-{n}") for n in range(6)]
    released = at_once(
        [
            *(lambda s=s: attempted(s, set_id, positive=True) for s in others[:3]),
            *(lambda s=s: attempted(s, set_id, positive=False) for s in others[3:]),
            lambda: source.mine.cancel(set_id, "the job stops"),
        ]
    )
    ended, partition = source.mine.view.get(set_id), source.stored()
    acknowledged, rejected, cancelled = (
        ended.state is state
        for state in (
            AcknowledgmentState.ACKNOWLEDGED,
            AcknowledgmentState.REJECTED,
            AcknowledgmentState.CANCELLED,
        )
    )
    assert partition.version == version + 1, "moved once"
    assert released.count(ReleaseEffect.RELEASED) == acknowledged + rejected
    assert (partition.attempts, source.progress.checkpoint) == (rejected, "5" if acknowledged else TRIM_HORIZON)
    assert [source.count(f"acknowledgment_sets_{n}") for n in ("acknowledged", "rejected", "cancelled")] == [
        acknowledged, rejected, cancelled,
    ]  # fmt: skip


def attempted(sets: AcknowledgmentSets, set_id: str, *, positive: bool) -> ReleaseEffect:
    return sets.release(set_id, "sink", positive=positive, release_id=sets.coordinator.owner, reason="no")[1]


def test_concurrently_acknowledged_batches_all_move_the_checkpoint(source: SharedSource) -> None:
    ends = [TRIM_HORIZON, *map(str, range(1, 9))]
    made = [source.begin(start, end, "sink") for start, end in pairwise(ends)]
    version = source.stored().version
    at_once([lambda i=i: source.sets(f"of {i}").release(i, "sink", positive=True) for i in made])
    assert (source.progress.checkpoint, source.progress.landed) == ("8", ())
    assert source.stored().version == version + len(made)


def test_two_parents_finishing_at_once_leave_one_child(source: SharedSource) -> None:
    for turn in range(4):
        left, right = f"left-{turn}", f"right-{turn}"
        merged = a_child(f"merged-{turn}", left, right)
        owners = [source.sets(name).coordinator for name in (left, right)]
        for owner in owners:
            owner.create_partitions({shard_key(owner.owner): a_shard(owner.owner).to_mapping()})
            owner.leases.acquire(1)
        at_once([lambda o=o, c=merged: end_shard(o, shard_key(o.owner), c) for o in owners])
        assert [source.stored(shard_key(name)).status for name in (left, right)] == [PartitionStatus.COMPLETED] * 2
        child = source.stored(shard_key(f"merged-{turn}"))
        assert child.status is PartitionStatus.UNASSIGNED
        source.store.delete(child)


def test_several_watchers_end_each_overdue_set_once(source: SharedSource) -> None:
    ends = [TRIM_HORIZON, *map(str, range(1, 7))]
    made = [source.begin(start, end, "sink") for start, end in pairwise(ends)]
    source.clock.advance(3600)
    watchers = [source.sets(f"watcher-{n}") for n in range(4)]
    ended = [s.set_id for found in at_once([w.expire_overdue for w in watchers]) for s in found]
    assert sorted(ended) == sorted(made)
    assert source.stored().attempts == 1 and all(b.redeliver for b in source.progress.landed)
    assert source.count("acknowledgment_sets_expired") == len(made)


def test_renewals_do_not_keep_a_set_from_ending(source: SharedSource) -> None:
    set_id = source.begin(TRIM_HORIZON, "5", *(f"sink-{n}" for n in range(4)))

    def renew() -> None:
        for _ in range(20):
            source.a.leases.renew(X)

    def release(handle: str) -> None:
        source.sets(f"of {handle}").release(set_id, handle, positive=True)

    at_once([renew, *(lambda n=n: release(f"sink-{n}") for n in range(4))])
    assert source.progress.checkpoint == "5" and source.a.leases.owns(X)
