"""The scenarios of the Kinesis Client Library's own tests about sharing leases.

Each test names its scenario and says it in a sentence. Where this project does something else on purpose, the test
holds for that, and says why. Two differences run through all of them. Here every worker decides for itself, from the
same snapshot and without chance, where that library's newer versions have a leader; and a lease ends by the instant
that is stored with it, a safety margin apart for its owner and for others, where that library's workers watch for how
long a counter stands still.
"""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.balance import (
    BY_COUNT,
    BY_THROUGHPUT,
    BalancePlan,
    Lease,
    Member,
    Rules,
    plan,
)
from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError, StoreUnavailableError
from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet, keys
from tests.coordination.jobs import LOOK, Job
from tests.coordination.unreliable_store import NOT_MADE

COUNT = Rules(balance_by=BY_COUNT, force_after_seconds=3 * TIMEOUT)
LOAD = Rules(balance_by=BY_THROUGHPUT, force_after_seconds=3 * TIMEOUT)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def held_by(**counts: int) -> list[Lease]:
    return [Lease(key=f"{o}-{n}", owner=None if o == "free" else o) for o, c in counts.items() for n in range(c)]


def loads(**given: list[float]) -> list[Lease]:
    return [
        Lease(key=f"{o}-{n}", owner=None if o == "free" else o, throughput=t)
        for o, throughputs in given.items()
        for n, t in enumerate(throughputs)
    ]


def of(*owners: str) -> list[Member]:
    return [Member(owner=owner) for owner in owners]


# Shard end


def test_29_lost_lease_cancels_its_handover(
    fleet: Fleet,
) -> None:
    """There, the old owner assigns the lease even then. Here its write is refused: whoever has the lease keeps it."""
    giver = Job(fleet, "giver")
    giver.coordinator.create_partitions({"x": {}, "y": {}})
    giver.round()
    taker = Job(fleet, "taker")
    taker.round()
    fleet.clock.advance(LOOK)
    giver.balancer.renew_due()
    [asked] = giver.balancer.leaving
    stored = fleet.stored(asked)
    fleet.store.store.transact(update=[stored.acquired("a third", stored.priority)])
    assert not giver.balancer.hand_over([asked])
    assert asked not in giver.held and giver.balancer.leaving == {}
    assert fleet.stored(asked).owner == "a third"


# Taker and renewer


def test_39_lease_of_another_worker_is_kept_until_expiry(fleet: Fleet) -> None:
    """The same outcome by another way: by the stored instant and the margin, not by watching a counter."""
    fleet.working("bar", "x")
    me = Job(fleet, "me")
    assert me.round() == []
    fleet.clock.advance(TIMEOUT + MARGIN - 1)
    assert me.round() == []
    fleet.clock.advance(1)
    assert me.round() == ["x"]


def test_41_worker_takes_its_own_expired_lease(fleet: Fleet) -> None:
    """Nobody took it, so it is this worker's again, by renewal as by acquisition; the fencing token does not fall."""
    me = fleet.working("me", "x", "y")
    token = me.leases.fencing_token("x")
    fleet.clock.advance(TIMEOUT + MARGIN)
    assert not me.leases.owns("x")
    assert keys(me.leases.acquire(1)) == ["x"] and me.leases.owns("x")
    me.leases.renew_due()
    assert me.leases.owns("y") and me.leases.fencing_token("x") > token


def test_42_never_owned_leases_are_shared_fairly(fleet: Fleet) -> None:
    """There, a lease that nobody owned counts as very old at once, so the first worker that looks takes all three.

    Here it is as old as this worker has seen it free: the share of two is kept, the other worker takes the third, and
    only what is left for three lease lengths goes to whoever may hold more.
    """
    bar = fleet.working("bar", "w")
    bar.create_partitions({key: {} for key in "xyz"})
    me = Job(fleet, "me")
    assert me.round() == ["x", "y"]
    for _ in range(3 * TIMEOUT // LOOK):
        fleet.clock.advance(LOOK)
        me.renew()
        bar.leases.renew_due()
        assert me.round() == []
    fleet.clock.advance(LOOK)
    me.renew()
    bar.leases.renew_due()
    assert me.round() == ["z"]


def test_44_difference_of_one_moves_no_lease(fleet: Fleet) -> None:
    fleet.owner("sync").create_partitions({f"x{n}": {} for n in range(5)})
    others = [Job(fleet, name, max_leases=2) for name in ("bar", "baz")]
    assert [len(other.round()) for other in others] == [2, 2]
    me = Job(fleet, "me")
    assert len(me.round()) == 1
    for _ in range(3):
        fleet.clock.advance(LOOK)
        assert me.round() == [] and not me.balancer.is_waiting


def test_46_only_the_free_lease_is_taken(fleet: Fleet) -> None:
    bar = Job(fleet, "bar")
    bar.coordinator.create_partitions({key: {} for key in "abc"})
    bar.round()
    bar.coordinator.create_partitions({"x": {}})
    me = Job(fleet, "me")
    assert me.round() == ["x"]
    assert not me.balancer.is_waiting, "nothing is asked for in the same round"


def test_47_free_lease_is_old_only_beyond_the_limit() -> None:
    free = [Lease(key=f"k{n}", free_seconds=seconds) for n, seconds in enumerate([0.0, 180.0, 180.1])]
    mine = [Lease(key=f"m{n}", owner="me") for n in range(3)]
    assert plan("me", [*mine, *free], of("bar", "me"), [], COUNT).acquire == 1


def test_49_requested_lease_is_renewed_until_handed_over(fleet: Fleet) -> None:
    """There, the next owner is written into the lease, so that the owner's renewal is refused once and repeated.

    Here the request is the asking worker's own item: the owner's writes go on undisturbed until it hands over itself.
    """
    me = Job(fleet, "me")
    me.coordinator.create_partitions({"x": {}, "y": {}})
    me.round()
    following = Job(fleet, "next")
    following.round()
    assert me.balancer.rebalance() == [] and me.balancer.leaving == {"x": "next"}
    for _ in range(3):
        me.coordinator.leases.renew("x")
    me.coordinator.leases.checkpoint("x", {"n": 1})
    held = me.coordinator.leases.held["x"]
    assert me.balancer.hand_over(["x"])
    with pytest.raises(PartitionNotOwnedError):
        me.coordinator.leases.renew("x")
    assert following.round() == ["x"]
    assert following.coordinator.leases.fencing_token("x") == held.version + 1
    assert following.coordinator.leases.leased("x").progress == {"n": 1}


def test_51_unwritten_checkpoint_is_not_kept_in_memory(fleet: Fleet) -> None:
    me = fleet.working("me", "x")
    me.leases.checkpoint("x", {"checkpoint": "TRIM_HORIZON"})
    before = me.leases.held["x"]
    fleet.store.fault = NOT_MADE
    with pytest.raises(StoreUnavailableError):
        me.leases.checkpoint("x", {"checkpoint": "LATEST"})
    assert me.leases.held["x"] == before == fleet.stored()


# What a leader assigns there. Here nobody leads, so that nobody has to be elected, and the load that counts is the
# throughput itself: a worker's processor says little about a Spark job, whose work is done by its executors.


def test_52_free_leases_go_to_the_least_loaded_worker() -> None:
    there, both = loads(hot=[90], cool=[50], free=[10]), of("hot", "cool")
    assert plan("cool", there, both, [], LOAD).acquire == 1
    assert plan("hot", there, both, [], LOAD).acquire == 0


def test_54_balancing_moves_the_lease_that_evens_load_best() -> None:
    """There, the load is the processor's, so that a worker with 3,000 may be given more; here it has more already.

    Where the leases of a worker are all larger than what it should lose, there the smallest moves, if it may overshoot.
    Here it moves if that makes the difference smaller, whichever fits best, so nothing is ever moved back.
    """
    there = loads(donor=[300, 299, 301], taker=[3000])
    assert plan("taker", there, of("donor", "taker"), [], LOAD) == BalancePlan()
    assert plan("donor", there, of("donor", "taker"), [], LOAD) == BalancePlan()
    there = loads(donor=[300, 299, 301], taker=[650])
    [move] = plan("taker", loads(donor=[300, 299, 301], taker=[500]), of("donor", "taker"), [], LOAD).requests
    assert move.key == "donor-1", "200 would be even; 299 comes nearest"
    assert plan("taker", there, of("donor", "taker"), [], LOAD).requests == ()


def test_56_single_lease_moves_only_if_load_evens_out() -> None:
    """There, one lease moves because the other worker then has exactly the average. Here it moves for what it gains."""
    [move] = plan("taker", loads(donor=[50, 20], taker=[30]), of("donor", "taker"), [], LOAD).requests
    assert move.key == "donor-1", "both have the average then, and that is allowed"
    assert plan("taker", loads(donor=[50], taker=[]), of("donor", "taker"), [], LOAD).requests == ()


def test_57_lease_expiring_while_requested_is_taken_at_once(fleet: Fleet) -> None:
    dying = Job(fleet, "dying")
    dying.coordinator.create_partitions({"x": {}, "y": {}})
    dying.round()
    fleet.clock.advance(TIMEOUT + MARGIN - 1)
    dying.balancer.renew_due()  # the worker is there, but its leases run out
    fresh = Job(fleet, "fresh")
    assert fresh.round() == [] and fresh.balancer.is_waiting
    fleet.clock.advance(1)
    assert "x" in fresh.round()


def test_59_failing_worker_does_not_block_others(fleet: Fleet) -> None:
    """There, a leader that fails three times gives its place up. Here each worker's failure is its own."""
    failing, other = Job(fleet, "failing"), Job(fleet, "other")
    other.coordinator.create_partitions({"x": {}, "y": {}})
    for _ in range(3):
        fleet.store.away = True
        with pytest.raises(StoreUnavailableError):
            failing.round()
        fleet.store.away = False
        other.renew()
        other.round()
        fleet.clock.advance(LOOK)
    assert other.held == ["x", "y"]
