"""Partitions are found on every kind of store: an overtaken try creates none, and the next one all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.supplier import Page

KEYS = [f"p{number:03}" for number in range(150)]
"""More than a transaction of DynamoDB holds."""


def a_try(store: CoordinationStore, number: int) -> SourceCoordinator:
    owner = f"host:dag:run:find:-1:{number}:0a1b2c3d"
    coordinator = SourceCoordinator(store, "clicks", owner, ownership_timeout=timedelta(hours=1))
    coordinator.initialize()
    return coordinator


def test_next_try_takes_over_from_a_live_one(store: CoordinationStore) -> None:
    first, second = a_try(store, 1), a_try(store, 2)

    def lost_race(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"first": {}}, {"until": "first"})
        assert second.supply(lambda state: [Page({key: {**state} for key in KEYS}, {"by": 2})]) == KEYS
        yield Page({"second": {}, "third": {}}, {"by": 1})

    assert first.supply(lost_race) == ["first"]
    found = {partition.partition_key: partition.progress for partition in second.view.partitions()}
    assert found == {"first": {}, **{key: {"until": "first"} for key in KEYS}}
    assert second.view.supplier_state() == {"by": 2}


def test_missing_partitions_alone_are_created(store: CoordinationStore) -> None:
    worker = a_try(store, 1)
    worker.create_partitions({key: {"first": True} for key in KEYS[::3]})
    assert worker.supply(lambda state: [Page({key: {} for key in KEYS})]) == [k for k in KEYS if k not in KEYS[::3]]
    assert worker.supply(lambda state: [Page({key: {} for key in KEYS})]) == []
    stored = {partition.partition_key: partition.progress for partition in worker.view.partitions()}
    assert stored == {key: {"first": True} if key in KEYS[::3] else {} for key in KEYS}


def test_supplier_leases_of_a_dead_owner_are_released(store: CoordinationStore) -> None:
    dead, other = a_try(store, 2), a_try(store, 1)

    def killed(state: Mapping[str, Any]) -> Iterator[Page]:
        assert other.supply(lambda state: [Page({"a": {}})]) is None
        other.give_up_owner(dead.owner)
        assert other.supply(lambda state: [Page({"a": {}})]) == ["a"]
        yield Page({"b": {}})

    assert dead.supply(killed) == []
