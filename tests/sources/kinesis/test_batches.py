"""Batches of shards advance the checkpoint, and the end of a shard completes its partition.

A finished shard's children appear in the transaction that completes the last of their parents.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON, at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import ProgressFormatError, ShardBatches, ShardProgress
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.batches import HOUR, a_batch, a_child, a_shard, an_end, begin_delivery, end_shard
from tests.support.batches import shard_key as key

LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


def an_owner(store: CoordinationStore, name: str = "a") -> SourceCoordinator:
    coordinator = SourceCoordinator(store, "clicks", name)
    coordinator.initialize()
    return coordinator


def holding(store: InMemoryStore, *shards: str, owner: str = "a") -> SourceCoordinator:
    coordinator = an_owner(store, owner)
    coordinator.create_partitions({key(shard): a_shard(shard).to_mapping() for shard in shards})
    coordinator.leases.acquire(len(shards))
    return coordinator


def status(coordinator: SourceCoordinator, shard: str) -> PartitionStatus | None:
    partition = coordinator.view.get(key(shard))
    return None if partition is None else partition.status


def progress(coordinator: SourceCoordinator, shard: str) -> ShardProgress:
    partition = coordinator.view.get(key(shard))
    assert partition is not None
    return ShardProgress.from_mapping(partition.progress)


def acknowledge(coordinator: SourceCoordinator, set_id: str, *, positive: bool = True) -> None:
    sets = AcknowledgmentSets(coordinator, SourceBatches())
    sets.release(set_id, "sink", positive=positive, reason=None if positive else "disk full")


def test_checkpoint_advances_over_contiguous_acknowledgments() -> None:
    a = holding(InMemoryStore(), "p")
    first = begin_delivery(a, key("p"), a_batch(TRIM_HORIZON, "5"), ["sink"])
    second = begin_delivery(a, key("p"), a_batch("5", "9"), ["sink"])
    acknowledge(a, second.set_id)
    assert progress(a, "p").checkpoint == TRIM_HORIZON
    acknowledge(a, first.set_id)
    assert (progress(a, "p").checkpoint, progress(a, "p").landed) == ("9", ())


def test_rejected_batch_holds_the_checkpoint_and_later_acknowledgments() -> None:
    a = holding(InMemoryStore(), "p")
    first = begin_delivery(a, key("p"), a_batch(TRIM_HORIZON, "5"), ["sink"])
    second = begin_delivery(a, key("p"), a_batch("5", "9"), ["sink"])
    acknowledge(a, first.set_id, positive=False)
    assert status(a, "p") is PartitionStatus.UNASSIGNED and a.leases.held == {}
    acknowledge(a, second.set_id)
    assert progress(a, "p").checkpoint == TRIM_HORIZON
    a.leases.acquire(1)
    again = AcknowledgmentSets(a, ShardBatches()).begin(key("p"), "batch-to-5", ["sink"], timeout=HOUR)
    acknowledge(a, again.set_id)
    assert (progress(a, "p").checkpoint, progress(a, "p").landed) == ("9", ())
    assert a.leases.leased(key("p")).attempts == 0


def test_acknowledgment_after_a_gap_keeps_the_failure_count() -> None:
    a = holding(InMemoryStore(), "p")
    first = begin_delivery(a, key("p"), a_batch(TRIM_HORIZON, "5"), ["sink"])
    second = begin_delivery(a, key("p"), a_batch("5", "9"), ["sink"])
    acknowledge(a, first.set_id, positive=False)
    a.leases.acquire(1)
    acknowledge(a, second.set_id)
    assert a.leases.leased(key("p")).attempts == 1


def test_split_creates_both_children_at_trim_horizon() -> None:
    a = holding(InMemoryStore(), "p")
    end_shard(a, key("p"), a_child("c1", "p"), a_child("c2", "p"))
    assert status(a, "p") is PartitionStatus.COMPLETED
    for name in ("c1", "c2"):
        assert status(a, name) is PartitionStatus.UNASSIGNED
        assert progress(a, name).checkpoint == TRIM_HORIZON


def reset(coordinator: SourceCoordinator, shard: str, position: str, epoch: int) -> None:
    coordinator.leases.checkpoint(
        key(shard), progress(coordinator, shard).restarted(position, epoch=epoch).to_mapping()
    )


@pytest.mark.parametrize(("records", "start"), [(10, TRIM_HORIZON), (0, at_timestamp(LONG_AGO))])
def test_children_inherit_epoch_and_instant_of_their_parent(records: int, start: str) -> None:
    a = holding(InMemoryStore(), "p")
    reset(a, "p", at_timestamp(LONG_AGO), epoch=7)
    if records:
        last = a_batch(at_timestamp(LONG_AGO), "5", is_last=True)
        begin_delivery(a, key("p"), last, children=(a_child("c", "p"),))
    else:
        end_shard(a, key("p"), a_child("c", "p"))
    assert status(a, "p") is PartitionStatus.COMPLETED
    assert (progress(a, "c").checkpoint, progress(a, "c").epoch) == (start, 7)


@pytest.mark.parametrize("first", ["p", "q"])
def test_merge_child_takes_the_later_epoch(first: str) -> None:
    a = holding(InMemoryStore(), "p", "q")
    reset(a, "p", TRIM_HORIZON, epoch=7)
    for parent in (first, "q" if first == "p" else "p"):
        end_shard(a, key(parent), a_child("c", "p", "q"))
    assert progress(a, "c").epoch == 7


def test_last_acknowledged_batch_finishes_the_shard() -> None:
    a = holding(InMemoryStore(), "p")
    last = begin_delivery(a, key("p"), a_batch(TRIM_HORIZON, "5"), ["sink"])
    end_shard(a, key("p"), a_child("c", "p"))
    assert status(a, "p") is PartitionStatus.ASSIGNED and status(a, "c") is None
    acknowledge(an_owner(a.store, "somebody else"), last.set_id)
    assert status(a, "p") is PartitionStatus.COMPLETED and status(a, "c") is PartitionStatus.UNASSIGNED


def test_existing_child_is_left_alone() -> None:
    store = InMemoryStore()
    a = holding(store, "p")
    a.create_partitions({key("c1"): {"already": "there"}})
    end_shard(a, key("p"), a_child("c1", "p"))
    existing = a.view.get(key("c1"))
    assert existing is not None and existing.progress == {"already": "there"}


def test_second_parent_creates_the_merge_child_once() -> None:
    a = holding(InMemoryStore(), "left", "right")
    merged = a_child("merged", "left", "right")
    end_shard(a, key("left"), merged)
    assert status(a, "left") is PartitionStatus.COMPLETED and status(a, "merged") is None
    end_shard(a, key("right"), merged)
    assert status(a, "merged") is PartitionStatus.UNASSIGNED


def test_merge_child_without_other_parent_is_left_to_shard_sync() -> None:
    a = holding(InMemoryStore(), "left")
    end_shard(a, key("left"), a_child("merged", "left", "unseen"))
    assert status(a, "left") is PartitionStatus.COMPLETED and status(a, "merged") is None


class CompetingStore(InMemoryStore):
    """Before the next transaction somebody else does something."""

    first: Any = None

    def transact(self, **changes: Any) -> list[Partition]:
        if self.first is not None:
            first, self.first = self.first, None
            first()
        return super().transact(**changes)


@pytest.mark.parametrize("ends", ["with the release of its last batch", "without anything to release"])
def test_parents_finishing_simultaneously_keep_their_child(ends: str) -> None:
    store = CompetingStore()
    a, b = holding(store, "left"), holding(store, "right", owner="b")
    merged = a_child("merged", "left", "right")
    if ends == "without anything to release":
        store.first = lambda: end_shard(b, key("right"), merged)
        end_shard(a, key("left"), merged)
    else:
        left = begin_delivery(a, key("left"), an_end(a_shard("left")), ["sink"], children=(merged,))
        right = begin_delivery(b, key("right"), an_end(a_shard("right")), ["sink"], children=(merged,))
        store.first = lambda: acknowledge(b, right.set_id)
        acknowledge(an_owner(store, "a check"), left.set_id)
    assert {status(a, shard) for shard in ("left", "right")} == {PartitionStatus.COMPLETED}
    assert status(a, "merged") is PartitionStatus.UNASSIGNED


def test_renewed_parent_does_not_block_the_other() -> None:
    store = CompetingStore()
    a, b = holding(store, "left"), holding(store, "right", owner="b")
    times = iter(range(10))

    def renew() -> None:
        b.leases.renew(key("right"))
        if next(times, None) is not None:
            store.first = renew

    store.first = renew
    end_shard(a, key("left"), a_child("merged", "left", "right"))
    assert status(a, "left") is PartitionStatus.COMPLETED and status(a, "merged") is None


def test_shard_with_a_lost_lease_is_not_finished() -> None:
    store = InMemoryStore()
    a = holding(store, "p")
    an_owner(store, "operator").give_up_owner("a")
    an_owner(store, "b").leases.acquire(1)
    with pytest.raises(PartitionNotOwnedError):
        end_shard(a, key("p"), a_child("c", "p"))
    assert status(a, "c") is None and list(AcknowledgmentSets(a).view.ended_since(LONG_AGO)) == []


def test_partition_that_is_no_shard_is_refused() -> None:
    with pytest.raises(ProgressFormatError, match="stored progress"):
        ShardBatches().set_of({"object": "a.csv"}, "batch")
    with pytest.raises(ProgressFormatError, match="stored progress"):
        ShardBatches().in_delivery({}, "batch", "a set")


def test_batches_are_distinguished_by_partition_progress() -> None:
    a = holding(InMemoryStore(), "p")
    a.create_partitions({"a.csv": {"object": "a.csv"}})
    a.leases.acquire(1)
    sets = AcknowledgmentSets(a, SourceBatches())
    whole = sets.begin("a.csv", "a.csv", ["sink"], timeout=HOUR)
    shard = begin_delivery(a, key("p"), a_batch(TRIM_HORIZON, "5"), ["sink"])
    acknowledge(a, whole.set_id)
    acknowledge(a, shard.set_id)
    assert sets.view.get(whole.set_id).state is sets.view.get(shard.set_id).state is AcknowledgmentState.ACKNOWLEDGED
    finished = a.view.get("a.csv")
    assert finished is not None
    assert (finished.status, finished.progress) == (PartitionStatus.COMPLETED, {"object": "a.csv"})
    assert (status(a, "p"), progress(a, "p").checkpoint) == (PartitionStatus.ASSIGNED, "5")


def test_rejected_object_is_retried_with_its_progress() -> None:
    a = an_owner(InMemoryStore())
    a.create_partitions({"a.csv": {"object": "a.csv"}})
    a.leases.acquire(1)
    made = AcknowledgmentSets(a, SourceBatches()).begin("a.csv", "a.csv", ["sink"], timeout=HOUR)
    acknowledge(a, made.set_id, positive=False)
    [again] = a.leases.acquire(1)
    assert (again.progress, again.attempts) == ({"object": "a.csv"}, 1)
