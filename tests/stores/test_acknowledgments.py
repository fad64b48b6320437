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
from airflow_provider_coordination.sources.batches import SourceBatches
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.support.batches import HOUR, a_batch, a_child, a_shard, begin_delivery, end_shard, shard_key
from tests.support.clock import ManualClock

X = shard_key("x")


class Office:
    """The owner `a` of a shard, and anybody else."""

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
def office(store: CoordinationStore) -> Office:
    return Office(store)


def at_once(acts: Sequence[Callable[[], Any]]) -> list[Any]:
    """Do all of it at the same time, each in a thread of its own; return what they returned."""
    ready = Barrier(len(acts))

    def act(each: Callable[[], Any]) -> Any:
        ready.wait()
        return each()

    with ThreadPoolExecutor(len(acts)) as pool:
        return list(pool.map(act, acts))


def test_set_reads_back_unchanged(office: Office) -> None:
    office.begin(TRIM_HORIZON, "5", "sink", "ü", run="dag/run", batch={"records": 7}, sinks=["sink"])
    [found] = office.mine.view.pending()
    assert found == office.sets("b").view.get(found.set_id)
    assert (found.references, found.run, found.batch, found.sinks) == (
        {"sink": 1, "ü": 1}, "dag/run", {"records": 7}, ("sink",),
    )  # fmt: skip
    assert office.mine.view.next_expiry() == found.expires_at == office.clock.now() + HOUR
    assert office.progress.landed[0].acknowledgment_set == found.set_id


def test_end_of_a_set_moves_its_partition(office: Office) -> None:
    first = office.begin(TRIM_HORIZON, "5", "sink", "check")
    second = office.begin("5", "9", "sink")
    others = office.sets("others")
    others.release(second, "sink", positive=True)
    assert office.mine.release(first, "sink", positive=True)[1] is ReleaseEffect.RELEASED
    assert others.release(first, "sink", positive=True)[1] is ReleaseEffect.DUPLICATE
    assert office.progress.checkpoint == TRIM_HORIZON
    others.release(first, "check", positive=True)
    assert (office.progress.checkpoint, office.progress.landed) == ("9", ())
    assert [s.set_id for s in others.view.ended_since(office.clock.now())] == sorted([first, second])
    assert list(others.view.pending()) == []


def test_rejected_batch_is_redelivered_despite_a_late_release(office: Office) -> None:
    first = office.begin(TRIM_HORIZON, "5", "sink", "check")
    others = office.sets("others")
    others.release(first, "check", positive=False, reason="no \0 rows ü")
    assert office.stored().status is PartitionStatus.UNASSIGNED and office.stored().attempts == 1
    before = office.stored()
    ended, effect = others.release(first, "sink", positive=True)
    assert (ended.state, ended.reason, effect) == (
        AcknowledgmentState.REJECTED, "check: no \0 rows ü", ReleaseEffect.LATE,
    )  # fmt: skip
    assert office.stored() == before


def test_end_of_a_shard_creates_its_children_with_the_set(office: Office) -> None:
    last = office.begin(TRIM_HORIZON, "5", "sink")
    end_shard(office.a, X, a_child("c1", "x"), a_child("c2", "x"))
    assert office.a.view.get(shard_key("c1")) is None
    office.sets("others").release(last, "sink", positive=True)
    assert office.stored().status is PartitionStatus.COMPLETED
    assert [office.stored(shard_key(c)).status for c in ("c1", "c2")] == [PartitionStatus.UNASSIGNED] * 2


def test_overdue_sets_end_and_old_ones_are_purged(office: Office) -> None:
    office.begin(TRIM_HORIZON, "5", "sink", timeout=timedelta(seconds=30))
    later = office.begin("5", "9", "sink")
    office.clock.advance(30)
    watcher = office.sets("watcher")
    assert [s.state for s in watcher.expire_overdue()] == [AcknowledgmentState.EXPIRED]
    assert [s.set_id for s in watcher.view.pending()] == [later]
    assert office.stored().attempts == 1
    office.clock.advance(86400)
    assert watcher.purge() == 1 and len(watcher.expire_overdue()) == 1


def test_extension_lengthens_the_waiting_lease(office: Office) -> None:
    first = office.begin(TRIM_HORIZON, "5", "sink")
    office.a.leases.await_acknowledgment(X, HOUR)
    office.clock.advance(1000)
    longer = office.sets("others").extend(first, HOUR)
    assert office.stored().is_awaiting and office.stored().ownership_timeout == longer.expires_at
    office.sets("others").release(first, "sink", positive=True)
    assert office.stored().status is PartitionStatus.UNASSIGNED


# Many at once


def test_handles_may_be_released_concurrently_and_repeatedly(office: Office) -> None:
    handles = [f"sink-{n}" for n in range(12)]
    set_id = office.begin(TRIM_HORIZON, "5", *handles)
    version = office.stored().version
    acts = [lambda h=h: office.sets(f"of {h}").release(set_id, h, positive=True)[1] for h in handles]
    effects = at_once([*acts, *acts[:4]])
    assert (effects.count(ReleaseEffect.RELEASED), effects.count(ReleaseEffect.DUPLICATE)) == (12, 4)
    assert office.mine.view.get(set_id).state is AcknowledgmentState.ACKNOWLEDGED
    assert (office.progress.checkpoint, office.stored().version) == ("5", version + 1)
    assert office.count("acknowledgment_sets_acknowledged") == 1


@pytest.mark.parametrize("turn", range(3))
def test_set_ended_concurrently_moves_its_partition_once(office: Office, turn: int) -> None:
    set_id = office.begin(TRIM_HORIZON, "5", "sink")
    version = office.stored().version
    others = [office.sets(f"others-{n}") for n in range(6)]
    released = at_once(
        [
            *(lambda s=s: attempted(s, set_id, positive=True) for s in others[:3]),
            *(lambda s=s: attempted(s, set_id, positive=False) for s in others[3:]),
            lambda: office.mine.cancel(set_id, "the job stops"),
        ]
    )
    ended, partition = office.mine.view.get(set_id), office.stored()
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
    assert (partition.attempts, office.progress.checkpoint) == (rejected, "5" if acknowledged else TRIM_HORIZON)
    assert [office.count(f"acknowledgment_sets_{n}") for n in ("acknowledged", "rejected", "cancelled")] == [
        acknowledged, rejected, cancelled,
    ]  # fmt: skip


def attempted(sets: AcknowledgmentSets, set_id: str, *, positive: bool) -> ReleaseEffect:
    return sets.release(set_id, "sink", positive=positive, release_id=sets.coordinator.owner, reason="no")[1]


def test_concurrently_acknowledged_batches_all_move_the_checkpoint(office: Office) -> None:
    ends = [TRIM_HORIZON, *map(str, range(1, 9))]
    made = [office.begin(start, end, "sink") for start, end in pairwise(ends)]
    version = office.stored().version
    at_once([lambda i=i: office.sets(f"of {i}").release(i, "sink", positive=True) for i in made])
    assert (office.progress.checkpoint, office.progress.landed) == ("8", ())
    assert office.stored().version == version + len(made)


def test_two_parents_finishing_at_once_leave_one_child(office: Office) -> None:
    for turn in range(4):
        left, right = f"left-{turn}", f"right-{turn}"
        merged = a_child(f"merged-{turn}", left, right)
        owners = [office.sets(name).coordinator for name in (left, right)]
        for owner in owners:
            owner.create_partitions({shard_key(owner.owner): a_shard(owner.owner).to_mapping()})
            owner.leases.acquire(1)
        at_once([lambda o=o, c=merged: end_shard(o, shard_key(o.owner), c) for o in owners])
        assert [office.stored(shard_key(name)).status for name in (left, right)] == [PartitionStatus.COMPLETED] * 2
        child = office.stored(shard_key(f"merged-{turn}"))
        assert child.status is PartitionStatus.UNASSIGNED
        office.store.delete(child)


def test_several_watchers_end_each_overdue_set_once(office: Office) -> None:
    ends = [TRIM_HORIZON, *map(str, range(1, 7))]
    made = [office.begin(start, end, "sink") for start, end in pairwise(ends)]
    office.clock.advance(3600)
    watchers = [office.sets(f"watcher-{n}") for n in range(4)]
    ended = [s.set_id for found in at_once([w.expire_overdue for w in watchers]) for s in found]
    assert sorted(ended) == sorted(made)
    assert office.stored().attempts == 1 and all(b.redeliver for b in office.progress.landed)
    assert office.count("acknowledgment_sets_expired") == len(made)


def test_renewals_do_not_keep_a_set_from_ending(office: Office) -> None:
    set_id = office.begin(TRIM_HORIZON, "5", *(f"sink-{n}" for n in range(4)))

    def renew() -> None:
        for _ in range(20):
            office.a.leases.renew(X)

    def release(handle: str) -> None:
        office.sets(f"of {handle}").release(set_id, handle, positive=True)

    at_once([renew, *(lambda n=n: release(f"sink-{n}") for n in range(4))])
    assert office.progress.checkpoint == "5" and office.a.leases.owns(X)
