"""A thread renews the leases of a worker."""

from __future__ import annotations

import threading
from datetime import timedelta

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.held_leases import LeaseRenewer
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.waiting import until


def a_coordinator() -> SourceCoordinator:
    coordinator = SourceCoordinator(
        InMemoryStore(),
        "clicks",
        "owner",
        ownership_timeout=timedelta(seconds=1.2),
        safety_margin=timedelta(seconds=0.1),
    )
    coordinator.initialize()
    coordinator.create_partitions({"x": {}})
    coordinator.leases.acquire(1)
    return coordinator


def test_leases_outlive_their_timeout_while_renewed() -> None:
    coordinator = a_coordinator()
    with LeaseRenewer(coordinator.leases):
        until(lambda: coordinator.leases.held["x"].version >= 5)
        assert coordinator.leases.owns("x")


def test_failing_store_does_not_end_renewal() -> None:
    coordinator = a_coordinator()
    renew, failures = coordinator.leases.renew_due, iter([StoreUnavailableError("away"), RuntimeError("surprise")])

    def fail_twice() -> None:
        for failure in failures:
            raise failure
        renew()

    coordinator.leases.renew_due = fail_twice  # type: ignore[method-assign]
    with LeaseRenewer(coordinator.leases):
        until(lambda: coordinator.leases.held["x"].version >= 2)


def test_leaving_the_block_ends_the_thread() -> None:
    with LeaseRenewer(a_coordinator().leases):
        assert any(thread.name == "lease-renewal" for thread in threading.enumerate())
    assert not any(thread.name == "lease-renewal" for thread in threading.enumerate())
