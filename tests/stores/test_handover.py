"""Handover in every kind of store: at every moment, exactly one owner holds the partition."""

from __future__ import annotations

from airflow_provider_coordination.coordination.balancer import Balancer
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.store import CoordinationStore


def a_worker(store: CoordinationStore, owner: str) -> tuple[SourceCoordinator, Balancer]:
    coordinator = SourceCoordinator(store, "clicks", owner)
    coordinator.initialize()
    return coordinator, Balancer(coordinator)


def test_later_worker_receives_its_share(store: CoordinationStore) -> None:
    (a, first), (b, second) = a_worker(store, "a"), a_worker(store, "b")
    a.create_partitions({"x": {"n": 1}, "y": {"n": 2}})
    assert len(first.rebalance()) == 2
    assert second.rebalance() == [] and second.is_waiting
    first.rebalance()
    [key] = first.leaving
    token = a.leases.fencing_token(key)
    assert first.hand_over([key])
    assert [p.partition_key for p in second.rebalance()] == [key]
    assert b.leases.owns(key) and not a.leases.owns(key) and b.leases.fencing_token(key) > token
    b.leases.checkpoint(key, {"n": 3})
    second.leave()
    b.leases.give_up_all()
    assert [p.partition_key for p in first.rebalance()] == [key] and a.leases.leased(key).progress == {"n": 3}
    assert [worker.owner for worker in a.workers.live()] == ["a"]


def test_dead_worker_is_removed_with_its_leases(store: CoordinationStore) -> None:
    (a, first), (_, second) = a_worker(store, "a"), a_worker(store, "b")
    a.create_partitions({"x": {}})
    second.rebalance()
    first.rebalance()
    a.give_up_owner("b")
    assert len(first.rebalance()) == 1 and [worker.owner for worker in a.workers.live()] == ["a"]
