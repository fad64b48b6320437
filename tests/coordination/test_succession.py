"""A worker that replaces another one takes over all of its leases, and counts in its place."""

from __future__ import annotations

import pytest

from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet
from tests.coordination.jobs import LOOK, Job, rounds

SHARDS = [f"p{n}" for n in range(6)]


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.owner("sync").create_partitions({key: {} for key in SHARDS})
    return fleet


def test_successor_gets_all_leases_in_one_round(fleet: Fleet) -> None:
    old = Job(fleet, "old")
    assert old.round() == SHARDS
    new = Job(fleet, "new", replaces="old")
    assert new.round() == [] and new.balancer.is_waiting
    old.round()
    assert old.held == [] and old.balancer.successor == "new"
    new.round()
    assert new.held == SHARDS and not new.balancer.is_waiting


def test_predecessor_keeps_all_leases_until_its_successor_registers(fleet: Fleet) -> None:
    old = Job(fleet, "old")
    old.round()
    Job(fleet, "new", replaces="old")
    rounds([old], 3)
    assert old.held == SHARDS and old.balancer.successor is None


def test_predecessor_acquires_nothing_once_it_is_replaced(fleet: Fleet) -> None:
    old, new = Job(fleet, "old"), Job(fleet, "new", replaces="old")
    old.round()
    new.round()
    old.round()
    fleet.owner("sync").create_partitions({"q": {}})
    fleet.clock.advance(LOOK)
    assert old.round() == [] and old.held == []
    assert new.round() == ["q"]


def test_leases_of_other_workers_do_not_move_at_a_succession(fleet: Fleet) -> None:
    old, other = Job(fleet, "old", expected_workers=2), Job(fleet, "other", expected_workers=2)
    rounds([old, other], 3)
    assert len(old.held) == len(other.held) == 3
    before, kept = old.held, other.held
    new = Job(fleet, "new", expected_workers=2, replaces="old")
    for _ in range(4):
        rounds([new, other, old], 1)
        assert other.held == kept and not other.balancer.is_waiting
    assert new.held == before
    old.stop()
    rounds([new, other], 3)
    assert (new.held, other.held) == (before, kept)


def test_successor_of_a_successor_gets_the_leases(fleet: Fleet) -> None:
    old = Job(fleet, "old")
    old.round()
    second, third = Job(fleet, "second", replaces="old"), Job(fleet, "third", replaces="second")
    third.round()
    second.round()
    rounds([old, second, third], 2, every=1)
    assert third.held == SHARDS and old.held == second.held == []


def test_first_of_two_successors_gets_the_leases(fleet: Fleet) -> None:
    old = Job(fleet, "old")
    old.round()
    first = Job(fleet, "z", replaces="old")
    fleet.clock.advance(1)
    later = Job(fleet, "a", replaces="old")
    later.round()
    first.round()
    old.round()
    first.round()
    assert first.held == SHARDS and later.held == []


def test_leases_of_a_dead_predecessor_are_acquired_once_they_expire(fleet: Fleet) -> None:
    old, new = Job(fleet, "old"), Job(fleet, "new", replaces="old")
    old.round()
    new.round()
    old.balancer.rebalance()
    assert old.balancer.hand_over(SHARDS[:2]) == SHARDS[:2]  # then it dies
    new.round()
    assert new.held == SHARDS[:2]
    rounds([new], (TIMEOUT + MARGIN) // LOOK + 2)
    assert new.held == SHARDS and not new.balancer.is_waiting


def test_successor_that_dies_while_it_waits_delays_nobody(fleet: Fleet) -> None:
    old = Job(fleet, "old")
    old.round()
    dead = Job(fleet, "dead", replaces="old")
    dead.balancer._register()
    dead.stop()
    rounds([old], 2)
    assert old.held == SHARDS and old.balancer.successor is None


def test_registration_that_replaces_itself_has_no_successor(fleet: Fleet) -> None:
    job = Job(fleet, "old", replaces="old")
    rounds([job], 2)
    assert job.held == SHARDS and job.balancer.successor is None


@pytest.mark.parametrize(("settings", "is_first"), [("same", False), ("other", True)])
def test_partition_is_delivered_first_for_a_worker_that_delivers_otherwise(
    fleet: Fleet, settings: str, is_first: bool
) -> None:
    old = Job(fleet, "old", delivers="same")
    old.round()
    Job(fleet, "new", replaces="old", delivers=settings).round()
    old.balancer.rebalance()
    assert [old.balancer.delivers_first(key) for key in SHARDS] == [is_first] * len(SHARDS)


def test_slow_predecessor_hands_over_within_the_handover_timeout(fleet: Fleet) -> None:
    old, new = Job(fleet, "old"), Job(fleet, "new", replaces="old")
    old.round()
    new.round()
    old.slow = set(SHARDS)
    for _ in range(5):  # its round takes long; only its renewal thread works
        fleet.clock.advance(LOOK)
        old.renew()
        new.renew()
        new.round()
    assert new.held == SHARDS and old.held == []
