"""Owners handle writes whose response is lost, and stores that are unavailable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    PartitionNotFoundError,
    PartitionNotOwnedError,
    ProgressChangedError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.leases import LeaseChange
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet, keys, seconds
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE, Fault
from tests.support.clock import ManualClock
from tests.support.lease_writes import settle


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def unanswered(fleet: Fleet, call: Callable[[], object], fault: Fault = NOT_ANSWERED) -> None:
    fleet.store.fault = fault
    with pytest.raises(StoreUnavailableError, match="connection reset"):
        call()
    fleet.store.away = False


def test_write_with_a_lost_response_keeps_the_lease(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.save_progress("x", {"n": 1}))
    a.leases.renew("x")
    assert a.leases.held["x"].progress == {"n": 1}
    assert a.leases.save_progress("x", {"n": 2}) == fleet.stored()
    assert a.leases.owns("x")


def test_stale_progress_is_refused_and_the_lease_kept(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.save_progress("x", {"n": 1}))
    with pytest.raises(ProgressChangedError, match="continues from the stored progress"):
        a.leases.save_progress("x", {"m": 1})
    assert a.leases.owns("x")
    assert a.leases.held["x"].progress == {"n": 1}


def test_repeated_completion_after_a_lost_response_is_done(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.complete("x", {"n": 1}))
    done = fleet.stored()
    a.leases.complete("x", {"n": 1})
    assert fleet.stored() == done and done.status is PartitionStatus.COMPLETED
    assert a.leases.held == {}


def test_repeated_deletion_after_a_lost_response_is_done(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.delete("x"))
    a.leases.delete("x")
    assert a.leases.held == {} and a.view.get("x") is None


GIVING_BACK: dict[str, Callable[[SourceCoordinator], object]] = {
    "complete": lambda a: a.leases.complete("x"),
    "close": lambda a: a.leases.close("x", seconds(30)),
    "fail": lambda a: a.leases.fail("x", "boom"),
    "give_up": lambda a: a.leases.give_up("x"),
    "delete": lambda a: a.leases.delete("x"),
    "await": lambda a: a.leases.await_acknowledgment("x", timedelta(hours=2)),
}


@pytest.mark.parametrize("fault", [NOT_ANSWERED, NOT_MADE], ids=["made", "not made"])
@pytest.mark.parametrize("gives_back", GIVING_BACK.values(), ids=GIVING_BACK)
def test_owner_distrusts_a_possibly_returned_lease(
    fleet: Fleet, gives_back: Callable[[SourceCoordinator], object], fault: Fault
) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: gives_back(a), fault)
    assert not a.leases.owns("x")


def test_owner_distrusts_after_an_unverifiable_refusal(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    given_up = fleet.stored().given_up(fleet.clock.now())

    def made_once_already() -> None:  # inside the store, where its answer was lost: the second time it is refused
        fleet.store.store.transact(update=[given_up])
        fleet.store.away = True

    unanswered(fleet, lambda: a.leases.give_up("x"), Fault(before=made_once_already))
    assert not a.leases.owns("x")


def test_failed_give_back_is_trusted_again_after_renewal(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.give_up("x"), NOT_MADE)
    a.leases.renew_due()
    assert a.leases.owns("x")
    a.leases.save_progress("x", {"n": 1})


def test_successful_give_back_is_found_at_the_next_renewal(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.give_up("x"))
    b = fleet.owner("b")
    assert keys(b.leases.acquire(1)) == ["x"]
    a.leases.renew_due()
    assert a.leases.held == {} and b.leases.owns("x")


def test_refused_completion_leaves_no_doubt(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    seen = fleet.working("b", "y").leases.held["y"]
    fleet.store.store.transact(update=[seen])
    with pytest.raises(Exception, match="no longer holds version"):
        a.leases.complete("x", unchanged=[seen])
    assert a.leases.owns("x")


def test_unanswered_lease_is_trusted_to_its_stored_end(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.clock.advance(30)
    unanswered(fleet, lambda: a.leases.renew("x"))
    a.leases.renew("x")
    assert fleet.stored() == a.leases.held["x"]
    fleet.clock.advance(TIMEOUT - MARGIN - 1)
    assert a.leases.owns("x")
    fleet.clock.advance(1)
    assert not a.leases.owns("x")


def test_repeated_await_after_a_lost_response_is_done(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.await_acknowledgment("x", timedelta(hours=2)))
    waiting = fleet.stored()
    assert a.leases.await_acknowledgment("x", timedelta(hours=2)) == waiting == fleet.stored()
    assert a.leases.held == {}


def test_recovery_leaves_awaiting_partitions_waiting(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.await_acknowledgment("x", timedelta(hours=2)))
    waiting = fleet.stored()
    a.leases.recover()
    assert a.leases.held == {} and fleet.stored() == waiting


def test_lease_runs_from_its_request_and_not_its_response(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    fleet.store.fault = Fault(after=lambda: fleet.clock.advance(50))
    a.leases.acquire(1)
    fleet.clock.advance(TIMEOUT - MARGIN - 50 - 1)
    assert a.leases.owns("x")
    fleet.clock.advance(1)
    assert not a.leases.owns("x")


def test_wall_clock_set_back_before_response_prolongs_no_trust(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    fleet.store.fault = Fault(after=lambda: fleet.clock.set_wall_clock_back(3600))
    a.leases.acquire(1)
    fleet.clock.advance(TIMEOUT - MARGIN)
    assert not a.leases.owns("x")


@pytest.mark.parametrize("act", ["renew", "save_progress"])
def test_wall_clock_set_back_before_write_prolongs_no_trust(fleet: Fleet, act: str) -> None:
    a = fleet.working("a", "x")
    fleet.clock.set_wall_clock_back(3600)
    fleet.clock.advance(30)
    a.leases.renew("x") if act == "renew" else a.leases.save_progress("x", {})
    fleet.clock.advance(TIMEOUT - MARGIN - 30)
    assert not a.leases.owns("x")


# Recovery


def test_recovery_adopts_an_unanswered_acquisition(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}, "y": {}})
    unanswered(fleet, lambda: a.leases.acquire(2))
    assert a.leases.held == {}
    a.leases.recover()
    assert list(a.leases.held) == ["x", "y"] and a.leases.owns("x") and a.leases.owns("y")
    assert a.leases.fencing_token("x") < fleet.stored("x").version
    a.leases.save_progress("x", {"n": 1})


def test_recovery_forgets_taken_and_deleted_partitions(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x", "y", "z"), fleet.owner("b")
    fleet.store.store.delete(fleet.stored("y"))
    b.give_up_owner("a")
    taken = keys(b.leases.acquire(1))
    a.leases.recover()
    assert taken == ["x"] and a.leases.held == {} and b.leases.owns("x")


def test_recovery_trusts_expired_leases_that_are_still_free(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.clock.advance(1000)
    assert not a.leases.owns("x")
    a.leases.recover()
    assert a.leases.owns("x")
    assert fleet.stored().ownership_timeout == fleet.clock.now() + seconds(TIMEOUT)


def test_recovery_continues_from_the_stored_progress(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.save_progress("x", {"n": 1}))
    a.leases.recover()
    assert a.leases.leased("x").progress == {"n": 1}
    a.leases.save_progress("x", {"n": 2})


def test_recovery_keeps_a_lease_missing_from_a_stale_listing(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.store.query = nothing_yet  # type: ignore[method-assign]
    a.leases.recover()
    assert a.leases.owns("x")


def nothing_yet(*_: object, **__: object) -> list[Partition]:
    return []


def test_failed_recovery_can_be_repeated(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}, "y": {}})
    unanswered(fleet, lambda: a.leases.acquire(2))
    unanswered(fleet, a.leases.recover)
    a.leases.recover()
    assert a.leases.owns("x") and a.leases.owns("y")


def test_unnoticed_reacquisition_has_the_larger_fencing_token(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    fleet.lease_passes()
    b.leases.acquire(1)
    between = b.leases.fencing_token("x")
    b.leases.give_up("x")
    unanswered(fleet, lambda: a.leases.acquire(1))
    a.leases.recover()
    assert a.leases.fencing_token("x") > between


def test_reacquisition_has_the_larger_fencing_token(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x", clock=ManualClock()), fleet.owner("b")
    fleet.lease_passes()
    b.leases.acquire(1)
    between = b.leases.fencing_token("x")
    b.leases.give_up("x", after=-seconds(1000))
    assert "x" in a.leases.held  # it has not noticed
    [again] = a.leases.acquire(1)
    assert a.leases.fencing_token("x") == again.version > between


# A partition that is deleted and created again


@pytest.mark.parametrize("writes", range(5))
def test_owner_of_a_deleted_partition_cannot_write_its_successor(fleet: Fleet, writes: int) -> None:
    a = fleet.working("a", "x", clock=ManualClock())  # its own clock stands still: it believes forever
    a.leases.save_progress("x", {"by": "a"})
    fleet.store.store.delete(fleet.stored())
    fleet.clock.advance(1)
    b = fleet.working("b", "x")
    for _ in range(writes):
        b.leases.save_progress("x", {"by": "b"})
    with pytest.raises(PartitionNotOwnedError, match="owner b"):
        a.leases.save_progress("x", {"by": "a"})
    assert fleet.stored() == b.leases.held["x"]


def test_recreated_partition_has_larger_fencing_tokens(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    for n in range(10):
        a.leases.save_progress("x", {"n": n})
    last = fleet.stored().version
    a.leases.delete("x")
    fleet.clock.advance(0.001)
    assert fleet.working("b", "x").leases.fencing_token("x") > last


def test_earlier_write_is_not_taken_for_a_larger_one(
    fleet: Fleet,
) -> None:
    a = fleet.working("a", "x")
    a.create_partitions({"y": {}})
    unanswered(fleet, lambda: a.leases.renew("x"))
    seen, other = a.leases.current("x"), a.view.get("y")
    assert seen is not None and other is not None
    # In the same instant: the same lease.
    settle(a, seen, a.leases.renewed, update=[other.with_progress({"n": 1})])
    written = a.view.get("y")
    assert written is not None and written.progress == {"n": 1}


# Several partitions at once


def progressed(key: str, **progress: int) -> LeaseChange:
    return LeaseChange(partition_key=key, change=lambda p: p.with_progress(progress))


def test_unanswered_joint_changes_each_find_their_write(fleet: Fleet) -> None:
    a = fleet.working("a", "x", "y", "z")
    fleet.store.fault = NOT_ANSWERED
    results = a.leases.change_each([progressed(key, n=1) for key in "xyz"])
    assert [type(result) for result in results] == [StoreUnavailableError] * 3
    for key in "xyz":
        a.leases.renew(key)
        assert a.leases.held[key].progress == {"n": 1}
        assert a.leases.save_progress(key, {"n": 2}) == fleet.stored(key)


def test_joint_changes_retried_by_the_store_find_their_writes(fleet: Fleet) -> None:
    a = fleet.working("a", "x", "y", "z")
    writes = [p.with_progress({"n": 1}) for p in a.leases.held.values()]
    sets = [a.view.new(f"set-{key}", {}) for key in "xyz"]
    changes = [replace(progressed(key, n=1), new=[each]) for key, each in zip("xyz", sets, strict=True)]
    fleet.store.fault = Fault(before=lambda: fleet.store.store.transact(update=writes, new=sets))
    assert a.leases.change_each(changes) == [fleet.stored(key) for key in "xyz"]
    assert all(a.leases.held[key] == fleet.stored(key) for key in "xyz")
    assert [p.version for p in a.leases.held.values()] == [p.version + 1 for p in writes], "it is written once"


def test_lost_lease_or_progress_stops_no_other_change(fleet: Fleet) -> None:
    a = fleet.working("a", "w", "x", "y", "z")
    lost, changed = fleet.stored("x"), fleet.stored("y")
    now = fleet.clock.now()
    fleet.store.store.transact(update=[lost.acquired("b", now, now), changed.with_progress({"by": "another"})])
    results = a.leases.change_each([progressed(key, n=1) for key in "wxyz"])
    assert results[0] == fleet.stored("w") and results[3] == fleet.stored("z")
    assert isinstance(results[1], PartitionNotOwnedError) and isinstance(results[2], ProgressChangedError)
    assert sorted(a.leases.held) == ["w", "y", "z"]
    assert a.leases.save_progress("y", {"n": 1}) == fleet.stored("y")


@pytest.mark.parametrize("fault", [NOT_ANSWERED, NOT_MADE], ids=["made", "not made"])
def test_owner_distrusts_all_leases_possibly_given_back(fleet: Fleet, fault: Fault) -> None:
    a = fleet.working("a", "x", "y")
    now = fleet.clock.now()
    fleet.store.fault = fault
    a.leases.change_each([LeaseChange(partition_key=key, change=lambda p: p.given_up(now)) for key in "xy"])
    assert not a.leases.owns("x") and not a.leases.owns("y")


def test_missing_or_expired_lease_is_refused_without_a_request(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.lease_passes()
    fleet.store.calls.clear()
    results = a.leases.change_each([progressed("x", n=1), progressed("elsewhere", n=1)])
    assert all(isinstance(result, PartitionNotOwnedError) for result in results)
    assert fleet.store.calls == []


def test_partitions_are_reread_together_despite_a_lost_one(fleet: Fleet) -> None:
    a = fleet.working("a", "w", "x", "y", "z")
    lost, gone = fleet.stored("x"), fleet.stored("y")
    now = fleet.clock.now()
    fleet.store.store.transact(update=[lost.acquired("b", now, now), fleet.stored("z").with_progress({"n": 1})])
    fleet.store.store.delete(gone)
    fleet.store.calls.clear()
    found = a.leases.refresh_each(["w", "x", "y", "z", "elsewhere"])
    assert fleet.store.calls == ["get_many"]
    assert found["w"] == fleet.stored("w") and found["z"] == fleet.stored("z") == a.leases.held["z"]
    assert isinstance(found["x"], PartitionNotOwnedError) and isinstance(found["elsewhere"], PartitionNotOwnedError)
    assert isinstance(found["y"], PartitionNotFoundError)
    assert sorted(a.leases.held) == ["w", "z"]


def test_partitions_that_cannot_be_reread_stay_held(fleet: Fleet) -> None:
    a = fleet.working("a", "x", "y")
    fleet.store.away = True
    found = a.leases.refresh_each(["x", "y"])
    assert all(isinstance(each, StoreUnavailableError) for each in found.values())
    assert sorted(a.leases.held) == ["x", "y"]
