"""A write happened and its answer did not arrive, or the store was away: what an owner makes of that."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    PartitionNotOwnedError,
    ProgressChangedError,
    StoreUnavailableError,
)
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
    unanswered(fleet, lambda: a.save_progress("x", {"n": 1}))
    a.renew("x")
    assert a.held["x"].progress == {"n": 1}
    assert a.save_progress("x", {"n": 2}) == fleet.stored()
    assert a.owns("x")


def test_progress_made_from_an_older_one_than_the_stored_is_refused_and_the_lease_kept(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.save_progress("x", {"n": 1}))
    with pytest.raises(ProgressChangedError, match="goes on from the stored progress"):
        a.save_progress("x", {"m": 1})
    assert a.owns("x")
    assert a.held["x"].progress == {"n": 1}


def test_repeating_a_completion_whose_answer_was_lost_finds_it_done(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.complete("x", {"n": 1}))
    done = fleet.stored()
    a.complete("x", {"n": 1})
    assert fleet.stored() == done and done.status is PartitionStatus.COMPLETED
    assert a.held == {}


def test_repeating_a_deletion_whose_answer_was_lost_finds_it_done(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.delete("x"))
    a.delete("x")
    assert a.held == {} and a.get("x") is None


GIVING_BACK: dict[str, Callable[[SourceCoordinator], object]] = {
    "complete": lambda a: a.complete("x"),
    "close": lambda a: a.close("x", seconds(30)),
    "fail": lambda a: a.fail("x", "boom"),
    "give_up": lambda a: a.give_up("x"),
    "delete": lambda a: a.delete("x"),
    "await": lambda a: a.await_acknowledgment("x", timedelta(hours=2)),
}


@pytest.mark.parametrize("fault", [NOT_ANSWERED, NOT_MADE], ids=["made", "not made"])
@pytest.mark.parametrize("gives_back", GIVING_BACK.values(), ids=GIVING_BACK)
def test_an_owner_stops_believing_in_what_it_may_have_given_back(
    fleet: Fleet, gives_back: Callable[[SourceCoordinator], object], fault: Fault
) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: gives_back(a), fault)
    assert not a.owns("x")


def test_an_owner_stops_believing_when_a_refusal_cannot_be_looked_into(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    given_up = fleet.stored().given_up(fleet.clock.now())

    def made_once_already() -> None:  # inside the store, where its answer was lost: the second time it is refused
        fleet.store.store.transact(update=[given_up])
        fleet.store.away = True

    unanswered(fleet, lambda: a.give_up("x"), Fault(before=made_once_already))
    assert not a.owns("x")


def test_an_owner_that_could_not_give_back_believes_again_once_it_has_renewed(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.give_up("x"), NOT_MADE)
    a.renew_due()
    assert a.owns("x")
    a.save_progress("x", {"n": 1})


def test_an_owner_that_did_give_back_finds_out_at_the_next_renewal(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.give_up("x"))
    b = fleet.owner("b")
    assert keys(b.acquire(1)) == ["x"]
    a.renew_due()
    assert a.held == {} and b.owns("x")


def test_a_refused_completion_leaves_no_doubt(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    seen = fleet.working("b", "y").held["y"]
    fleet.store.store.transact(update=[seen])
    with pytest.raises(Exception, match="no longer holds version"):
        a.complete("x", unchanged=[seen])
    assert a.owns("x")


def test_the_lease_of_a_lost_answer_is_trusted_to_its_stored_end(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.clock.advance(30)
    unanswered(fleet, lambda: a.renew("x"))
    a.renew("x")
    assert fleet.stored() == a.held["x"]
    fleet.clock.advance(TIMEOUT - MARGIN - 1)
    assert a.owns("x")
    fleet.clock.advance(1)
    assert not a.owns("x")


def test_leaving_a_partition_to_wait_when_the_answer_was_lost_finds_it_waiting(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.await_acknowledgment("x", timedelta(hours=2)))
    waiting = fleet.stored()
    assert a.await_acknowledgment("x", timedelta(hours=2)) == waiting == fleet.stored()
    assert a.held == {}


def test_recovery_leaves_to_wait_what_was_left_to_wait(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.await_acknowledgment("x", timedelta(hours=2)))
    waiting = fleet.stored()
    a.recover()
    assert a.held == {} and fleet.stored() == waiting


def test_a_lease_runs_from_when_it_was_asked_for_and_not_from_when_the_answer_came(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    fleet.store.fault = Fault(after=lambda: fleet.clock.advance(50))
    a.acquire(1)
    fleet.clock.advance(TIMEOUT - MARGIN - 50 - 1)
    assert a.owns("x")
    fleet.clock.advance(1)
    assert not a.owns("x")


def test_a_wall_clock_that_is_set_back_before_the_answer_comes_does_not_prolong_trust(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    fleet.store.fault = Fault(after=lambda: fleet.clock.set_wall_clock_back(3600))
    a.acquire(1)
    fleet.clock.advance(TIMEOUT - MARGIN)
    assert not a.owns("x")


@pytest.mark.parametrize("act", ["renew", "save_progress"])
def test_a_wall_clock_that_was_set_back_prolongs_no_trust_at_the_next_write(fleet: Fleet, act: str) -> None:
    a = fleet.working("a", "x")
    fleet.clock.set_wall_clock_back(3600)
    fleet.clock.advance(30)
    a.renew("x") if act == "renew" else a.save_progress("x", {})
    fleet.clock.advance(TIMEOUT - MARGIN - 30)
    assert not a.owns("x")


# Recovery


def test_recovery_takes_up_an_acquisition_whose_answer_was_lost(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}, "y": {}})
    unanswered(fleet, lambda: a.acquire(2))
    assert a.held == {}
    a.recover()
    assert list(a.held) == ["x", "y"] and a.owns("x") and a.owns("y")
    assert a.fencing_token("x") < fleet.stored("x").version
    a.save_progress("x", {"n": 1})


def test_recovery_forgets_what_others_took_and_what_is_gone(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x", "y", "z"), fleet.owner("b")
    fleet.store.store.delete(fleet.stored("y"))
    b.give_up_owner("a")
    taken = keys(b.acquire(1))
    a.recover()
    assert taken == ["x"] and a.held == {} and b.owns("x")


def test_recovery_trusts_again_what_ran_out_and_nobody_took(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.clock.advance(1000)
    assert not a.owns("x")
    a.recover()
    assert a.owns("x")
    assert fleet.stored().ownership_timeout == fleet.clock.now() + seconds(TIMEOUT)


def test_recovery_goes_on_from_the_stored_progress(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    unanswered(fleet, lambda: a.save_progress("x", {"n": 1}))
    a.recover()
    assert a.leased("x").progress == {"n": 1}
    a.save_progress("x", {"n": 2})


def test_recovery_does_not_forget_a_lease_that_a_listing_does_not_show_yet(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    fleet.store.query = nothing_yet  # type: ignore[method-assign]
    a.recover()
    assert a.owns("x")


def nothing_yet(*_: object, **__: object) -> list[Partition]:
    return []


def test_recovery_that_fails_on_the_way_can_be_repeated(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}, "y": {}})
    unanswered(fleet, lambda: a.acquire(2))
    unanswered(fleet, a.recover)
    a.recover()
    assert a.owns("x") and a.owns("y")


def test_an_owner_that_lost_a_partition_and_took_it_again_unawares_has_the_larger_fencing_token(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x"), fleet.owner("b")
    fleet.lease_passes()
    b.acquire(1)
    between = b.fencing_token("x")
    b.give_up("x")
    unanswered(fleet, lambda: a.acquire(1))
    a.recover()
    assert a.fencing_token("x") > between


def test_an_owner_that_lost_a_partition_and_takes_it_again_has_the_larger_fencing_token(fleet: Fleet) -> None:
    a, b = fleet.working("a", "x", clock=ManualClock()), fleet.owner("b")
    fleet.lease_passes()
    b.acquire(1)
    between = b.fencing_token("x")
    b.give_up("x", after=-seconds(1000))
    assert "x" in a.held  # it has not noticed
    [again] = a.acquire(1)
    assert a.fencing_token("x") == again.version > between


# A partition that is deleted and created again


@pytest.mark.parametrize("writes", range(5))
def test_an_owner_of_a_deleted_partition_cannot_write_the_one_created_again(fleet: Fleet, writes: int) -> None:
    a = fleet.working("a", "x", clock=ManualClock())  # its own clock stands still: it believes for ever
    a.save_progress("x", {"by": "a"})
    fleet.store.store.delete(fleet.stored())
    fleet.clock.advance(1)
    b = fleet.working("b", "x")
    for _ in range(writes):
        b.save_progress("x", {"by": "b"})
    with pytest.raises(PartitionNotOwnedError, match="owner b"):
        a.save_progress("x", {"by": "a"})
    assert fleet.stored() == b.held["x"]


def test_a_partition_created_again_has_larger_fencing_tokens(fleet: Fleet) -> None:
    a = fleet.working("a", "x")
    for n in range(10):
        a.save_progress("x", {"n": n})
    last = fleet.stored().version
    a.delete("x")
    fleet.clock.advance(0.001)
    assert fleet.working("b", "x").fencing_token("x") > last


def test_an_earlier_write_that_left_the_same_partition_does_not_pass_for_one_that_had_more_to_write(
    fleet: Fleet,
) -> None:
    a = fleet.working("a", "x")
    a.create_partitions({"y": {}})
    unanswered(fleet, lambda: a.renew("x"))
    seen, other = a.current("x"), a.get("y")
    assert seen is not None and other is not None
    a.settle(seen, a.renewed, update=[other.with_progress({"n": 1})])  # in the same instant: the same lease
    written = a.get("y")
    assert written is not None and written.progress == {"n": 1}
