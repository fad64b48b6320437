"""Owners that share a store, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.held_leases import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.source_view import GLOBAL_STATE_KEY
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.unreliable_store import UnreliableStore
from tests.support.clock import ManualClock

TIMEOUT, MARGIN = int(DEFAULT_OWNERSHIP_TIMEOUT.total_seconds()), int(DEFAULT_SAFETY_MARGIN.total_seconds())
GLOBAL_FAMILY = "test|clicks|GLOBAL_STATE"


class Fleet:
    """Owners that share a store and, unless they are given one of their own, a clock."""

    def __init__(self, store: CoordinationStore | None = None) -> None:
        self.store = UnreliableStore(store or InMemoryStore())
        self.clock = ManualClock()

    def owner(self, name: str, clock: ManualClock | None = None, **options: Any) -> SourceCoordinator:
        coordinator = SourceCoordinator(self.store, "clicks", name, prefix="test", clock=clock or self.clock, **options)
        coordinator.initialize()
        return coordinator

    def working(self, name: str, *keys: str, **options: Any) -> SourceCoordinator:
        """An owner that holds these new partitions."""
        coordinator = self.owner(name, **options)
        coordinator.create_partitions({key: {} for key in keys})
        coordinator.leases.acquire(len(keys))
        assert list(coordinator.leases.held) == sorted(keys)
        return coordinator

    def stored(self, key: str = "x") -> Partition:
        """A partition as the store holds it."""
        found = self.store.store.get("test|clicks|PARTITION", key)
        assert found is not None
        return found

    def global_state(self) -> Partition:
        """The item that says who runs a supplier, as the store holds it."""
        found = self.store.store.get(GLOBAL_FAMILY, GLOBAL_STATE_KEY)
        assert found is not None
        return found

    def set_global_state(self, progress: Mapping[str, Any]) -> None:
        """Leave a state for the next supplier."""
        self.store.store.transact(update=[self.global_state().with_progress(progress)])

    def lease_passes(self) -> None:
        """Let a lease of now run out, for its owner and for others."""
        self.clock.advance(TIMEOUT + MARGIN)


def keys(partitions: Sequence[Partition]) -> list[str]:
    return [p.partition_key for p in partitions]


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)
