"""The registry: who is there counts, who says goodbye or is known to be dead does not, at once."""

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


def test_a_worker_that_registers_is_seen_by_others_with_what_it_says(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    lease_request = LeaseRequest(key="x", giver="b", since=fleet.clock.now())
    a.workers.register(max_leases=3, lease_requests=[lease_request])
    [seen] = b.workers.live()
    assert (seen.owner, seen.max_leases, seen.lease_requests) == ("a", 3, (lease_request,))
    assert seen.started_at == fleet.clock.now()
    assert seen.requests_lease("x", "b") and not seen.requests_lease("x", "c") and not seen.requests_lease("y", "b")


def test_a_worker_counts_until_its_registration_and_the_margin_have_passed(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.clock.advance(TIMEOUT + MARGIN - 1)
    assert live(b) == ["a"] and b.workers.item_of("a") is not None
    fleet.clock.advance(1)
    assert live(b) == [] and b.workers.item_of("a") is None


def test_a_registration_is_renewed_like_a_lease(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    for _ in range(10):
        fleet.clock.advance(TIMEOUT / 2)
        a.workers.renew_due()
    assert live(b) == ["a"]


def test_saying_the_same_again_writes_nothing(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.workers.register(max_leases=3)
    fleet.store.calls.clear()
    a.workers.register(max_leases=3)
    assert fleet.store.calls == []


def test_who_says_goodbye_counts_no_more_at_once(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    a.workers.deregister()
    assert live(b) == [] == items(fleet)
    a.workers.deregister()  # once more does no harm


@pytest.mark.parametrize("passes", [TIMEOUT - MARGIN, 3 * TIMEOUT])
def test_who_says_goodbye_after_its_registration_ran_out_is_removed_as_well(fleet: Fleet, passes: int) -> None:
    a = fleet.owner("a")
    a.workers.register()
    fleet.clock.advance(passes)
    a.workers.deregister()
    assert items(fleet) == []


def test_who_says_goodbye_although_its_registration_was_not_answered_is_removed_as_well(fleet: Fleet) -> None:
    a = fleet.owner("a")
    fleet.store.fault = NOT_ANSWERED
    with pytest.raises(StoreUnavailableError):
        a.workers.register()
    a.workers.deregister()
    assert items(fleet) == []


def test_an_owner_that_is_given_up_counts_no_more_at_once(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    a.workers.register()
    assert b.give_up_owner("a") == ["x"]
    assert live(b) == [] == items(fleet)


def test_its_leases_are_free_before_an_owner_that_is_given_up_counts_no_more(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    a.workers.register()
    fleet.store.fault = Fault(before=lambda: seen.append(live(b)))
    seen: list[list[str]] = []
    b.give_up_owner("a")
    assert seen == [["a"]]


def test_an_owner_that_is_given_up_and_renewed_in_between_is_removed_all_the_same(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.clock.advance(TIMEOUT / 2)
    fleet.store.fault = Fault(before=a.workers.renew_due)
    b.give_up_owner("a")
    assert items(fleet) == []


def test_a_worker_that_was_taken_for_dead_registers_again(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register(max_leases=3)
    b.give_up_owner("a")
    fleet.clock.advance(TIMEOUT / 2)
    a.workers.renew_due()  # finds out
    a.workers.register(max_leases=3)
    assert live(b) == ["a"]


def test_a_worker_that_slept_longer_than_its_registration_is_there_again(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.lease_passes()
    assert live(b) == []
    a.workers.register()
    assert live(b) == ["a"]


def test_who_is_dead_for_long_is_removed_by_whoever_looks_and_not_before(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.clock.advance((1 + REMOVED_AFTER_TIMEOUTS) * TIMEOUT)
    assert live(b) == [] and len(items(fleet)) == 1
    fleet.clock.advance(1)
    assert live(b) == [] == items(fleet)


def test_a_dead_worker_that_comes_back_in_the_moment_of_its_removal_stays(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register()
    fleet.clock.advance((2 + REMOVED_AFTER_TIMEOUTS) * TIMEOUT)
    fleet.store.fault = Fault(before=a.workers.register)
    live(b)
    assert live(b) == ["a"]


@pytest.mark.parametrize("fault", [NOT_MADE, NOT_ANSWERED], ids=["not made", "not answered"])
def test_a_registration_whose_answer_was_lost_is_made_once(fleet: Fleet, fault: Fault) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    fleet.store.fault = fault
    with pytest.raises(StoreUnavailableError):
        a.workers.register(max_leases=2)
    a.workers.register(max_leases=2)
    assert live(b) == ["a"] and a.workers.is_registered and len(items(fleet)) == 1


@pytest.mark.parametrize("fault", [NOT_MADE, NOT_ANSWERED], ids=["not made", "not answered"])
@pytest.mark.parametrize("last", [4, 2], ids=["something new", "what it said before"])
def test_what_a_worker_says_last_is_what_stands_also_after_a_lost_answer(fleet: Fleet, fault: Fault, last: int) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    a.workers.register(max_leases=2)
    fleet.store.fault = fault
    with pytest.raises(StoreUnavailableError):
        a.workers.register(max_leases=3)
    a.workers.register(max_leases=last)
    assert [worker.max_leases for worker in b.workers.live()] == [last]


def test_a_worker_that_says_what_nobody_understands_is_a_worker_all_the_same(fleet: Fleet) -> None:
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


def test_a_worker_with_a_name_that_no_store_takes_as_a_key_registers_under_a_digest(fleet: Fleet) -> None:
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


def test_a_registration_of_another_version_is_left_alone_where_a_write_is_refused(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.workers.register()
    [item] = items(fleet)
    fleet.store.store.transact(update=[item])
    with pytest.raises(PartitionUpdateError):
        fleet.store.store.delete(item)
    a.workers.deregister()
    assert items(fleet) == []


def test_more_workers_than_a_page_holds_are_all_seen(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "PAGE", 2)
    for name in "abcd":
        fleet.owner(name).workers.register()
    assert live(fleet.owner("e")) == ["a", "b", "c", "d"]
