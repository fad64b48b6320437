"""A write succeeded and its response was lost, or the store was unavailable: how an owner handles that."""

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
from airflow_provider_coordination.coordination.leases import LeaseChange, Leases
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet, keys, seconds
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE, Fault
from tests.support.clock import ManualClock


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def unanswered(fleet: Fleet, call: Callable[[], object], fault: Fault = NOT_ANSWERED) -> None:
    fleet.store.fault = fault
    with pytest.raises(StoreUnavailableError, match="connection reset"):
        call()
    fleet.store.away = False


def test_a_write_whose_answer_was_lost_does_not_lose_the_lease(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.save_progress("x", {"n": 1}))
    a.leases.renew("x")
    assert a.leases.held["x"].progress == {"n": 1}
    assert a.leases.save_progress("x", {"n": 2}) == fleet.stored()
    assert a.leases.owns("x")


def test_progress_made_from_an_older_one_than_the_stored_is_refused_and_the_lease_kept(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.save_progress("x", {"n": 1}))
    with pytest.raises(ProgressChangedError, match="continues from the stored progress"):
        a.leases.save_progress("x", {"m": 1})
    assert a.leases.owns("x")
    assert a.leases.held["x"].progress == {"n": 1}


def test_repeating_a_completion_whose_answer_was_lost_finds_it_done(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.complete("x", {"n": 1}))
    done = fleet.stored()
    a.leases.complete("x", {"n": 1})
    assert fleet.stored() == done and done.status is PartitionStatus.COMPLETED
    assert a.leases.held == {}


def test_repeating_a_deletion_whose_answer_was_lost_finds_it_done(fleet: Fleet) -> None:
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
def test_an_owner_stops_believing_in_what_it_may_have_given_back(
    fleet: Fleet, gives_back: Callable[[SourceCoordinator], object], fault: Fault
) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: gives_back(a), fault)
    assert not a.leases.owns("x")


def test_an_owner_stops_believing_when_a_refusal_cannot_be_looked_into(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    given_up = fleet.stored().given_up(fleet.clock.now())

    def made_once_already() -> None:  # inside the store, where its answer was lost: the second time it is refused
        fleet.store.store.transact(update=[given_up])
        fleet.store.away = True

    unanswered(fleet, lambda: a.leases.give_up("x"), Fault(before=made_once_already))
    assert not a.leases.owns("x")


def test_an_owner_that_could_not_give_back_believes_again_once_it_has_renewed(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.give_up("x"), NOT_MADE)
    a.leases.renew_due()
    assert a.leases.owns("x")
    a.leases.save_progress("x", {"n": 1})


def test_an_owner_that_did_give_back_finds_out_at_the_next_renewal(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.give_up("x"))
    b = fleet.owner("b")
    assert keys(b.leases.acquire(1)) == ["x"]
    a.leases.renew_due()
    assert a.leases.held == {} and b.leases.owns("x")


def test_a_refused_completion_leaves_no_doubt(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    seen = fleet.working("b", "y").leases.held["y"]
    fleet.store.store.transact(update=[seen])
    with pytest.raises(Exception, match="no longer holds version"):
        a.leases.complete("x", unchanged=[seen])
    assert a.leases.owns("x")


def test_the_lease_of_a_lost_answer_is_trusted_to_its_stored_end(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.clock.advance(30)
    unanswered(fleet, lambda: a.leases.renew("x"))
    a.leases.renew("x")
    assert fleet.stored() == a.leases.held["x"]
    fleet.clock.advance(TIMEOUT - MARGIN - 1)
    assert a.leases.owns("x")
    fleet.clock.advance(1)
    assert not a.leases.owns("x")


def test_leaving_a_partition_to_wait_when_the_answer_was_lost_finds_it_waiting(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.await_acknowledgment("x", timedelta(hours=2)))
    waiting = fleet.stored()
    assert a.leases.await_acknowledgment("x", timedelta(hours=2)) == waiting == fleet.stored()
    assert a.leases.held == {}


def test_recovery_leaves_to_wait_what_was_left_to_wait(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.await_acknowledgment("x", timedelta(hours=2)))
    waiting = fleet.stored()
    a.leases.recover()
    assert a.leases.held == {} and fleet.stored() == waiting


def test_a_lease_runs_from_when_it_was_asked_for_and_not_from_when_the_answer_came(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    fleet.store.fault = Fault(after=lambda: fleet.clock.advance(50))
    a.leases.acquire(1)
    fleet.clock.advance(TIMEOUT - MARGIN - 50 - 1)
    assert a.leases.owns("x")
    fleet.clock.advance(1)
    assert not a.leases.owns("x")


def test_a_wall_clock_that_is_set_back_before_the_answer_comes_does_not_prolong_trust(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    fleet.store.fault = Fault(after=lambda: fleet.clock.set_wall_clock_back(3600))
    a.leases.acquire(1)
    fleet.clock.advance(TIMEOUT - MARGIN)
    assert not a.leases.owns("x")


@pytest.mark.parametrize("act", ["renew", "save_progress"])
def test_a_wall_clock_that_was_set_back_prolongs_no_trust_at_the_next_write(fleet: Fleet, act: str) -> None:
    a = fleet.working("a", "x")
    fleet.clock.set_wall_clock_back(3600)
    fleet.clock.advance(30)
    a.leases.renew("x") if act == "renew" else a.leases.save_progress("x", {})
    fleet.clock.advance(TIMEOUT - MARGIN - 30)
    assert not a.leases.owns("x")


# Recovery


def test_recovery_takes_up_an_acquisition_whose_answer_was_lost(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}, "y": {}})
    unanswered(fleet, lambda: a.leases.acquire(2))
    assert a.leases.held == {}
    a.leases.recover()
    assert list(a.leases.held) == ["x", "y"] and a.leases.owns("x") and a.leases.owns("y")
    assert a.leases.fencing_token("x") < fleet.stored("x").version
    a.leases.save_progress("x", {"n": 1})


def test_recovery_forgets_what_others_took_and_what_is_gone(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x", "y", "z"), fleet.owner("b")
    fleet.store.store.delete(fleet.stored("y"))
    b.give_up_owner("a")
    taken = keys(b.leases.acquire(1))
    a.leases.recover()
    assert taken == ["x"] and a.leases.held == {} and b.leases.owns("x")


def test_recovery_trusts_again_what_ran_out_and_nobody_took(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.clock.advance(1000)
    assert not a.leases.owns("x")
    a.leases.recover()
    assert a.leases.owns("x")
    assert fleet.stored().ownership_timeout == fleet.clock.now() + seconds(TIMEOUT)


def test_recovery_goes_on_from_the_stored_progress(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.leases.save_progress("x", {"n": 1}))
    a.leases.recover()
    assert a.leases.leased("x").progress == {"n": 1}
    a.leases.save_progress("x", {"n": 2})


def test_recovery_does_not_forget_a_lease_that_a_listing_does_not_show_yet(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.store.query = nothing_yet  # type: ignore[method-assign]
    a.leases.recover()
    assert a.leases.owns("x")


def nothing_yet(*_: object, **__: object) -> list[Partition]:
    return []


def test_recovery_that_fails_on_the_way_can_be_repeated(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}, "y": {}})
    unanswered(fleet, lambda: a.leases.acquire(2))
    unanswered(fleet, a.leases.recover)
    a.leases.recover()
    assert a.leases.owns("x") and a.leases.owns("y")


def test_an_owner_that_lost_a_partition_and_took_it_again_unawares_has_the_larger_fencing_token(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    fleet.lease_passes()
    b.leases.acquire(1)
    between = b.leases.fencing_token("x")
    b.leases.give_up("x")
    unanswered(fleet, lambda: a.leases.acquire(1))
    a.leases.recover()
    assert a.leases.fencing_token("x") > between


def test_an_owner_that_lost_a_partition_and_takes_it_again_has_the_larger_fencing_token(fleet: Fleet) -> None:
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
def test_an_owner_of_a_deleted_partition_cannot_write_the_one_created_again(fleet: Fleet, writes: int) -> None:
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


def test_a_partition_created_again_has_larger_fencing_tokens(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    for n in range(10):
        a.leases.save_progress("x", {"n": n})
    last = fleet.stored().version
    a.leases.delete("x")
    fleet.clock.advance(0.001)
    assert fleet.working("b", "x").leases.fencing_token("x") > last


def test_an_earlier_write_that_left_the_same_partition_does_not_pass_for_one_that_had_more_to_write(
    fleet: Fleet,
) -> None:
    a = fleet.working("a", "x")
    a.create_partitions({"y": {}})
    unanswered(fleet, lambda: a.leases.renew("x"))
    seen, other = a.settlement.current("x"), a.view.get("y")
    assert seen is not None and other is not None
    # In the same instant: the same lease.
    a.settlement.settle(seen, a.settlement.renewed, update=[other.with_progress({"n": 1})])
    written = a.view.get("y")
    assert written is not None and written.progress == {"n": 1}


# Several partitions at once


def progressed(key: str, **progress: int) -> LeaseChange:
    return LeaseChange(partition_key=key, change=lambda p: p.with_progress(progress))


def leases_of(a: SourceCoordinator) -> Leases:
    return a.leases._leases


def test_of_changes_that_went_together_without_an_answer_each_finds_its_own_write(fleet: Fleet) -> None:
    a = fleet.working("a", "x", "y", "z")
    fleet.store.fault = NOT_ANSWERED
    results = leases_of(a).change_each([progressed(key, n=1) for key in "xyz"])
    assert all(isinstance(result, StoreUnavailableError) for result in results)
    for key in "xyz":
        a.leases.renew(key)
        assert a.leases.held[key].progress == {"n": 1}
        assert a.leases.save_progress(key, {"n": 2}) == fleet.stored(key)


def test_of_changes_that_the_store_made_at_an_earlier_try_each_finds_its_own_write(fleet: Fleet) -> None:
    a = fleet.working("a", "x", "y", "z")
    writes = [p.with_progress({"n": 1}) for p in a.leases.held.values()]
    sets = [a.view.new(f"set-{key}", {}) for key in "xyz"]
    changes = [replace(progressed(key, n=1), new=[each]) for key, each in zip("xyz", sets, strict=True)]
    fleet.store.fault = Fault(before=lambda: fleet.store.store.transact(update=writes, new=sets))
    assert leases_of(a).change_each(changes) == [fleet.stored(key) for key in "xyz"]
    assert all(a.leases.held[key] == fleet.stored(key) for key in "xyz")
    assert [p.version for p in a.leases.held.values()] == [p.version + 1 for p in writes], "it is written once"


def test_one_that_lost_its_lease_or_whose_progress_changed_holds_no_other(fleet: Fleet) -> None:
    a = fleet.working("a", "w", "x", "y", "z")
    lost, changed = fleet.stored("x"), fleet.stored("y")
    now = fleet.clock.now()
    fleet.store.store.transact(update=[lost.acquired("b", now, now), changed.with_progress({"by": "another"})])
    results = leases_of(a).change_each([progressed(key, n=1) for key in "wxyz"])
    assert results[0] == fleet.stored("w") and results[3] == fleet.stored("z")
    assert isinstance(results[1], PartitionNotOwnedError) and isinstance(results[2], ProgressChangedError)
    assert sorted(a.leases.held) == ["w", "y", "z"]
    assert a.leases.save_progress("y", {"n": 1}) == fleet.stored("y")


@pytest.mark.parametrize("fault", [NOT_ANSWERED, NOT_MADE], ids=["made", "not made"])
def test_an_owner_stops_believing_in_all_that_it_may_have_given_back_together(fleet: Fleet, fault: Fault) -> None:
    a = fleet.working("a", "x", "y")
    now = fleet.clock.now()
    fleet.store.fault = fault
    leases_of(a).change_each([LeaseChange(partition_key=key, change=lambda p: p.given_up(now)) for key in "xy"])
    assert not a.leases.owns("x") and not a.leases.owns("y")


def test_a_lease_that_is_not_held_or_ran_out_is_refused_without_asking_the_store(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.lease_passes()
    fleet.store.calls.clear()
    results = leases_of(a).change_each([progressed("x", n=1), progressed("elsewhere", n=1)])
    assert all(isinstance(result, PartitionNotOwnedError) for result in results)
    assert fleet.store.calls == []


def test_partitions_are_read_again_together_and_one_that_is_lost_holds_no_other(fleet: Fleet) -> None:
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


def test_partitions_that_cannot_be_read_again_stay_held(fleet: Fleet) -> None:
    a = fleet.working("a", "x", "y")
    fleet.store.away = True
    found = a.leases.refresh_each(["x", "y"])
    assert all(isinstance(each, StoreUnavailableError) for each in found.values())
    assert sorted(a.leases.held) == ["x", "y"]
