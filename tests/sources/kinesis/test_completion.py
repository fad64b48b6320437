"""A shard's end: its children appear in the transaction that completes the last of their parents."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.completion import complete_shard
from airflow_provider_coordination.sources.kinesis.leases import partition_key
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, ShardProgress
from airflow_provider_coordination.stores.in_memory import InMemoryStore


def key(shard: str) -> str:
    return partition_key("s", 1, shard)


def child(name: str, *parents: str) -> ChildShard:
    return ChildShard(shard_id=name, parent_shard_ids=parents, starting_hash_key="0", ending_hash_key="9")


def progress(shard: str, *children: ChildShard) -> ShardProgress:
    return ShardProgress(
        stream="s",
        shard_id=shard,
        parent_shard_ids=(),
        starting_hash_key="0",
        ending_hash_key="9",
        children=children,
        end_of_shard=True,
    )


def an_owner(store: InMemoryStore, name: str = "a") -> SourceCoordinator:
    coordinator = SourceCoordinator(store, "clicks", name)
    coordinator.initialize()
    return coordinator


def holding(store: InMemoryStore, *shards: str, owner: str = "a") -> SourceCoordinator:
    coordinator = an_owner(store, owner)
    coordinator.create_partitions({key(shard): {} for shard in shards})
    coordinator.acquire(len(shards))
    return coordinator


def status(coordinator: SourceCoordinator, shard: str) -> PartitionStatus | None:
    partition = coordinator.get(key(shard))
    return partition and partition.status


def test_a_split_creates_both_children_at_trim_horizon() -> None:
    a = holding(InMemoryStore(), "p")
    created = complete_shard(a, key("p"), progress("p", child("c1", "p"), child("c2", "p")))
    assert created == [key("c1"), key("c2")]
    assert status(a, "p") is PartitionStatus.COMPLETED
    first = a.get(key("c1"))
    assert first is not None and first.status is PartitionStatus.UNASSIGNED
    assert ShardProgress.from_mapping(first.progress).checkpoint == "TRIM_HORIZON"


def test_a_child_that_exists_is_left_alone() -> None:
    store = InMemoryStore()
    a = holding(store, "p")
    a.create_partitions({key("c1"): {"already": "there"}})
    complete_shard(a, key("p"), progress("p", child("c1", "p")))
    existing = a.get(key("c1"))
    assert existing is not None and existing.progress == {"already": "there"}


def test_a_merge_child_waits_for_its_second_parent() -> None:
    a = holding(InMemoryStore(), "left", "right")
    merged = child("merged", "left", "right")
    assert complete_shard(a, key("left"), progress("left", merged)) == []
    assert status(a, "left") is PartitionStatus.COMPLETED and status(a, "merged") is None
    assert complete_shard(a, key("right"), progress("right", merged)) == [key("merged")]
    assert status(a, "merged") is PartitionStatus.UNASSIGNED


def test_a_merge_child_whose_other_parent_has_no_partition_is_left_to_shard_sync() -> None:
    a = holding(InMemoryStore(), "left")
    assert complete_shard(a, key("left"), progress("left", child("merged", "left", "unseen"))) == []
    assert status(a, "left") is PartitionStatus.COMPLETED and status(a, "merged") is None


class FinishesTheOtherParentFirst(InMemoryStore):
    """The other parent is completed by its own owner in the instant before this transaction."""

    other: SourceCoordinator | None = None

    def transact(self, **changes: Any) -> list[Partition]:
        if self.other is not None:
            other, self.other = self.other, None
            complete_shard(other, key("right"), progress("right", child("merged", "left", "right")))
        return super().transact(**changes)


def test_two_parents_that_finish_in_the_same_moment_do_not_lose_their_child() -> None:
    store = FinishesTheOtherParentFirst()
    a, b = holding(store, "left"), holding(store, "right", owner="b")
    store.other = b
    assert complete_shard(a, key("left"), progress("left", child("merged", "left", "right"))) == [key("merged")]
    assert {status(a, shard) for shard in ("left", "right")} == {PartitionStatus.COMPLETED}
    assert status(a, "merged") is PartitionStatus.UNASSIGNED


def test_a_shard_whose_lease_is_lost_is_not_completed() -> None:
    store = InMemoryStore()
    a = holding(store, "p")
    an_owner(store, "operator").give_up_owner("a")
    an_owner(store, "b").acquire(1)
    with pytest.raises(PartitionNotOwnedError):
        complete_shard(a, key("p"), progress("p", child("c", "p")))
    assert status(a, "c") is None
