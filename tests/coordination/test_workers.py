"""The registry counts live workers, and drops deregistered and dead ones at once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination import workers
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.workers import REMOVED_AFTER_TIMEOUTS, LeaseRequest, Worker
from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE, Fault

FAMILY = "test|clicks|WORKER"


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def live(of: SourceCoordinator) -> list[str]:
    return sorted(worker.owner for worker in of.workers.live())


def items(fleet: Fleet) -> list[Partition]:
    return [p for status in PartitionStatus for p in fleet.store.store.query(FAMILY, status)]


def test_registered_worker_is_seen_by_others(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    lease_request = LeaseRequest(key="x", giver="b", since=fleet.clock.now())
    a.workers.register(max_leases=3, slots=8, lease_requests=[lease_request])
    [seen] = b.workers.live()
    assert (seen.owner, seen.max_leases, seen.slots, seen.lease_requests) == ("a", 3, 8, (lease_request,))
    assert seen.started_at == fleet.clock.now()
    assert seen.requests_lease("x", "b") and not seen.requests_lease("x", "c") and not seen.requests_lease("y", "b")


def test_worker_counts_until_registration_and_margin_expire(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.clock.advance(TIMEOUT + MARGIN - 1)
    assert live(b) == ["a"] and b.workers.item_of("a") is not None
    fleet.clock.advance(1)
    assert live(b) == [] and b.workers.item_of("a") is None


def test_registration_is_renewed_like_a_lease(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    for _ in range(10):
        fleet.clock.advance(TIMEOUT / 2)
        a.workers.renew_due()
    assert live(b) == ["a"]


def test_unchanged_registration_writes_nothing(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.workers.register(max_leases=3)
    fleet.store.calls.clear()
    a.workers.register(max_leases=3)
    assert fleet.store.calls == []


def test_deregistered_worker_does_not_count(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    a.workers.deregister()
    assert live(b) == [] == items(fleet)
    a.workers.deregister()  # once more does no harm


@pytest.mark.parametrize("passes", [TIMEOUT - MARGIN, 3 * TIMEOUT])
def test_deregistration_removes_an_expired_registration(fleet: Fleet, passes: int) -> None:
    a = fleet.owner("a")
    a.workers.register()
    fleet.clock.advance(passes)
    a.workers.deregister()
    assert items(fleet) == []


def test_deregistration_removes_an_unanswered_registration(fleet: Fleet) -> None:
    a = fleet.owner("a")
    fleet.store.fault = NOT_ANSWERED
    with pytest.raises(StoreUnavailableError):
        a.workers.register()
    a.workers.deregister()
    assert items(fleet) == []


def test_given_up_owner_does_not_count(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    a.workers.register()
    assert b.give_up_owner("a") == ["x"]
    assert live(b) == [] == items(fleet)


def test_leases_are_given_up_before_the_registration(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    a.workers.register()
    fleet.store.fault = Fault(before=lambda: seen.append(live(b)))
    seen: list[list[str]] = []
    b.give_up_owner("a")
    assert seen == [["a"]]


def test_owner_renewed_during_its_give_up_is_removed(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.clock.advance(TIMEOUT / 2)
    fleet.store.fault = Fault(before=a.workers.renew_due)
    b.give_up_owner("a")
    assert items(fleet) == []


def test_worker_taken_for_dead_registers_again(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register(max_leases=3)
    b.give_up_owner("a")
    fleet.clock.advance(TIMEOUT / 2)
    a.workers.renew_due()  # finds out
    a.workers.register(max_leases=3)
    assert live(b) == ["a"]


def test_worker_that_slept_past_its_expiry_is_registered_again(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.lease_passes()
    assert live(b) == []
    a.workers.register()
    assert live(b) == ["a"]


def test_long_dead_worker_is_removed_by_any_reader(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.clock.advance((1 + REMOVED_AFTER_TIMEOUTS) * TIMEOUT)
    assert live(b) == [] and len(items(fleet)) == 1
    fleet.clock.advance(1)
    assert live(b) == [] == items(fleet)


def test_worker_returning_during_its_removal_stays(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.clock.advance((2 + REMOVED_AFTER_TIMEOUTS) * TIMEOUT)
    fleet.store.fault = Fault(before=a.workers.register)
    live(b)
    assert live(b) == ["a"]


@pytest.mark.parametrize("fault", [NOT_MADE, NOT_ANSWERED], ids=["not made", "not answered"])
def test_registration_with_a_lost_response_is_made_once(fleet: Fleet, fault: Fault) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    fleet.store.fault = fault
    with pytest.raises(StoreUnavailableError):
        a.workers.register(max_leases=2)
    a.workers.register(max_leases=2)
    assert live(b) == ["a"] and a.workers.is_registered and len(items(fleet)) == 1


@pytest.mark.parametrize("fault", [NOT_MADE, NOT_ANSWERED], ids=["not made", "not answered"])
@pytest.mark.parametrize("last", [4, 2], ids=["something new", "what it said before"])
def test_last_registration_wins_after_a_lost_response(fleet: Fleet, fault: Fault, last: int) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register(max_leases=2)
    fleet.store.fault = fault
    with pytest.raises(StoreUnavailableError):
        a.workers.register(max_leases=3)
    a.workers.register(max_leases=last)
    assert [worker.max_leases for worker in b.workers.live()] == [last]


def test_worker_with_an_unreadable_registration_counts(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    [item] = items(fleet)
    odd = {
        "max_leases": "many",
        "started_at": 5,
        "lease_requests": {"x": 1, "y": {"from": 2}, "z": {"from": "b", "since": "?"}},
    }
    fleet.store.store.transact(update=[item.with_progress(odd)])
    assert b.workers.live() == [Worker(owner="a", registered_until=item.priority)]


def test_worker_with_an_unstorable_name_registers_under_a_digest(fleet: Fleet) -> None:
    a, b = fleet.owner("ä" * 600), fleet.owner("b")
    a.workers.register()
    assert live(b) == ["ä" * 600] and len(items(fleet)[0].partition_key) == 64
    b.give_up_owner("ä" * 600)
    assert live(b) == []


def test_workers_are_not_partitions(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    a.workers.register()
    assert [p.partition_key for p in a.view.partitions()] == ["x"]
    assert sum(a.view.count_by_status().values()) == 1
    fleet.clock.advance(timedelta(days=1).total_seconds())
    assert [p.partition_key for p in fleet.owner("b").leases.acquire(9)] == ["x"]


def test_deregistration_removes_a_changed_registration(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.workers.register()
    [item] = items(fleet)
    fleet.store.store.transact(update=[item])
    with pytest.raises(PartitionUpdateError):
        fleet.store.store.delete(item)
    a.workers.deregister()
    assert items(fleet) == []


def test_workers_beyond_one_page_are_seen(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PAGE", 2)
    for name in "abcd":
        fleet.owner(name).workers.register()
    assert live(fleet.owner("e")) == ["a", "b", "c", "d"]
