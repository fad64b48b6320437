"""Balancing in single rounds with one clock, until each worker has a fair share."""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.balancer import LEASE_REQUEST_BYTES, MAX_LEASE_REQUESTS_BYTES
from airflow_provider_coordination.coordination.errors import PartitionNotOwnedError, StoreUnavailableError
from airflow_provider_coordination.coordination.metrics import WORKERS, CoordinationMetric
from airflow_provider_coordination.coordination.suspension import CACHE_SECONDS
from tests.coordination.fleet import MARGIN, TIMEOUT, Fleet, seconds
from tests.coordination.jobs import HANDOVER, LOOK, Job, rounds
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE, Fault
from tests.support.clock import ManualClock
from tests.support.depth import examples


@pytest.fixture
def fleet() -> Fleet:
    fleet = Fleet()
    fleet.owner("sync").create_partitions({f"p{n}": {} for n in range(4)})
    return fleet


def asked(fleet: Fleet, taker: str = "b", **options: Any) -> tuple[Job, Job]:
    """A worker that holds everything, and another one that has asked it for p0."""
    a, b = Job(fleet, "a"), Job(fleet, taker, **{"max_leases_to_steal": 1, **options})
    assert a.round() == ["p0", "p1", "p2", "p3"]
    assert b.round() == []
    assert b.balancer.is_waiting
    return a, b


# Handing over


def test_worker_without_free_leases_is_handed_its_share(fleet: Fleet) -> None:
    a, b = asked(fleet)
    assert a.round() == [] and a.held == ["p1", "p2", "p3"]
    assert b.round() == ["p0"] and b.balancer.is_waiting, "it asks for the next one at once"
    rounds([b, a], 4)
    assert (a.held, b.held) == (["p2", "p3"], ["p0", "p1"])
    assert b.count(CoordinationMetric.HANDOVERS_REQUESTED) == a.count(CoordinationMetric.HANDOVERS_GIVEN) == 2
    assert b.count(CoordinationMetric.HANDOVERS_FORCED) == 0


def test_small_share_is_handed_over_at_once(fleet: Fleet) -> None:
    a, b = asked(fleet, max_leases_to_steal=None)
    a.round()
    assert b.round() == ["p0", "p1"] and not b.balancer.is_waiting


def test_handed_over_partition_changes_owner_at_once(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.coordinator.leases.checkpoint("p0", {"n": 7})
    a.round()
    assert fleet.stored("p0").owner == "b" and not a.coordinator.leases.owns("p0")
    fleet.clock.advance(TIMEOUT + MARGIN - 1)
    assert fleet.owner("c").leases.acquire(9) == []
    b.round()
    assert b.coordinator.leases.leased("p0").progress == {"n": 7}
    assert b.coordinator.leases.fencing_token("p0") > 0


def test_new_owner_has_a_larger_fencing_token(fleet: Fleet) -> None:
    a, b = asked(fleet)
    former = a.coordinator.leases.fencing_token("p0")
    a.coordinator.leases.checkpoint("p0", {"n": 7})
    a.round()
    b.round()
    assert b.coordinator.leases.fencing_token("p0") > former
    with pytest.raises(PartitionNotOwnedError):
        a.coordinator.leases.checkpoint("p0", {"n": 8})
    b.coordinator.leases.checkpoint("p0", {"n": 8})


def test_new_owner_trusts_the_remaining_time_of_the_lease(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.round()
    fleet.clock.advance(TIMEOUT - MARGIN - 1)
    b.round()
    assert b.coordinator.leases.owns("p0")
    fleet.clock.advance(1)
    assert not b.coordinator.leases.owns("p0")


def test_owner_past_the_deadline_hands_over_unfinished_work(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.slow = {"p0"}
    a.round()
    fleet.clock.advance(HANDOVER - 1)
    a.renew()
    assert a.held == ["p0", "p1", "p2", "p3"]
    fleet.clock.advance(1)
    a.renew()  # its renewal thread: the round goes on
    assert a.held == ["p1", "p2", "p3"] and a.balancer.was_handed_over("p0")
    assert b.round() == ["p0"] and b.count(CoordinationMetric.HANDOVERS_FORCED) == 0


def test_renewal_thread_notices_requests_during_a_long_round(fleet: Fleet) -> None:
    a, b = asked(fleet)
    for _ in range(8):
        fleet.clock.advance(5)
        for job in (a, b):
            job.renew()
    assert a.balancer.was_handed_over("p0") and not a.balancer.was_handed_over("p0")
    assert b.round() == ["p0"]


def test_unanswered_worker_takes_the_lease_after_its_deadline(fleet: Fleet) -> None:
    a, b = asked(fleet)
    for _ in range(HANDOVER + LOOK + MARGIN - 1):
        fleet.clock.advance(1)
        a.coordinator.leases.renew_due()  # it lives, and does not listen
        b.renew()
        assert b.round() == []
    fleet.clock.advance(1)
    assert b.round() == ["p0"] and b.count(CoordinationMetric.HANDOVERS_FORCED) == 1
    with pytest.raises(PartitionNotOwnedError):
        a.coordinator.leases.save_progress("p0", {"n": 1})
    assert fleet.stored("p0").progress == {} and b.coordinator.leases.owns("p0")


def test_deadlines_are_independent_of_wall_clocks(fleet: Fleet) -> None:
    clocks = {name: ManualClock() for name in "ab"}
    a, b = (Job(fleet, name, clock, max_leases_to_steal=1) for name, clock in clocks.items())
    a.round()
    b.round()
    a.slow = {"p0"}
    a.round()
    for clock in clocks.values():
        clock.advance(HANDOVER - 1)
        clock.set_wall_clock_back(-MARGIN if clock is clocks["a"] else 0)
    a.renew()
    assert "p0" in a.held
    for clock in clocks.values():
        clock.advance(1)
    a.renew()
    assert "p0" not in a.held and b.round() == ["p0"]


@pytest.mark.parametrize("skew", [-30, 30])
def test_handovers_survive_clocks_30_seconds_apart(skew: int) -> None:
    fleet = Fleet()
    fleet.owner("sync").create_partitions({f"p{n}": {} for n in range(4)})
    clocks = [ManualClock(), ManualClock()]
    clocks[1].set_wall_clock_back(-skew)
    jobs = [Job(fleet, name, clock) for name, clock in zip("ab", clocks, strict=True)]
    for _ in range(12):
        for job in jobs:
            job.renew()
            job.round()
        for clock in clocks:
            clock.advance(LOOK)
    assert [len(job.held) for job in jobs] == [2, 2]
    assert sorted(jobs[0].held + jobs[1].held) == ["p0", "p1", "p2", "p3"]
    assert all(fleet.stored(key).owner == job.name for job in jobs for key in job.held)


# Requests that come to nothing


def test_dead_requester_is_handed_nothing(fleet: Fleet) -> None:
    a, _ = asked(fleet)
    for _ in range(7):  # a round in which nobody looks who asks
        fleet.clock.advance(LOOK)
        a.coordinator.leases.renew_due()
    a.round()
    assert len(a.held) == 4 and a.balancer.leaving == {}


def test_deregistered_requester_is_handed_nothing(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.balancer.rebalance()
    assert a.balancer.leaving == {"p0": "b"}
    b.stop()
    assert a.balancer.hand_over(["p0"]) == []
    assert a.balancer.leaving == {} and len(a.held) == 4


def test_handover_during_deregistration_is_given_back(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.round()
    b.stop()
    assert fleet.stored("p0").owner is None


def test_requester_dying_after_handover_keeps_lease_until_expiry(fleet: Fleet) -> None:
    a, _ = asked(fleet)
    a.round()
    for _ in range(7):
        a.renew()
        assert "p0" not in a.round()
        fleet.clock.advance(9)
    fleet.clock.advance(MARGIN)
    assert a.round() == ["p0"]


def test_partition_given_back_since_is_acquired_normally(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.coordinator.leases.give_up("p0")
    fleet.clock.advance(LOOK)
    assert b.round() == ["p0"] and not b.balancer.is_waiting


def test_partition_completed_since_is_no_longer_requested(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.coordinator.leases.complete("p0")
    b.round()
    assert "p0" not in [
        lease_request.key for worker in a.coordinator.workers.live() for lease_request in worker.lease_requests
    ]


def test_partition_taken_by_another_worker_is_left_alone(fleet: Fleet) -> None:
    _, b = asked(fleet)
    fleet.owner("c").give_up_owner("a")
    fleet.owner("c").leases.acquire(1)
    fleet.clock.advance(200)
    b.balancer.rebalance()
    assert b.count(CoordinationMetric.HANDOVERS_FORCED) == 0


def test_useless_request_is_withdrawn(fleet: Fleet) -> None:
    a, b = asked(fleet)
    for key in ("p1", "p2", "p3"):
        a.coordinator.leases.complete(key)
    fleet.clock.advance(LOOK)
    b.round()
    assert not b.balancer.is_waiting
    a.round()
    assert a.balancer.leaving == {} and a.held == ["p0"]


def test_handover_after_a_withdrawn_request_is_adopted(fleet: Fleet) -> None:
    a, b = asked(fleet)
    for key in ("p1", "p2", "p3"):
        a.coordinator.leases.complete(key)
    a.round()  # in the moment before b changes its mind
    b.balancer._requests.clear()
    fleet.clock.advance(LOOK)
    b.round()
    assert b.held == ["p0"]


def test_first_of_two_requests_for_a_partition_wins(fleet: Fleet) -> None:
    a, b = asked(fleet)
    fleet.clock.advance(1)
    c = Job(fleet, "c")
    c.coordinator.workers.register(lease_requests=[next(iter(b.coordinator.workers.live()[1].lease_requests))])
    a.round()
    assert fleet.stored("p0").owner == "b"


def test_request_renewed_during_the_handover_is_granted(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.balancer.rebalance()
    fleet.clock.advance(TIMEOUT / 2)
    fleet.store.fault = Fault(before=b.renew)
    assert a.balancer.hand_over(["p0"]) == ["p0"]
    assert fleet.stored("p0").owner == "b"


def test_request_withdrawn_during_the_handover_is_not_granted(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.balancer.rebalance()
    fleet.store.fault = Fault(before=b.coordinator.workers.register)
    assert a.balancer.hand_over(["p0"]) == []
    assert fleet.stored("p0").owner == "a" and a.coordinator.leases.owns("p0")


@pytest.mark.parametrize("fault", [NOT_MADE, NOT_ANSWERED], ids=["not made", "not answered"])
def test_handover_with_a_lost_response_leaves_one_owner(fleet: Fleet, fault: Fault) -> None:
    a, b = asked(fleet)
    a.balancer.rebalance()
    fleet.store.fault = fault
    with pytest.raises(StoreUnavailableError):
        a.balancer.hand_over(["p0"])
    assert not a.coordinator.leases.owns("p0")
    a.coordinator.leases.recover()
    a.round()
    b.round()
    assert "p0" in b.held and "p0" not in a.held


# A suspended source


def test_leases_of_a_suspended_source_are_not_taken(fleet: Fleet) -> None:
    a, b = asked(fleet)
    rounds([a, b], 6)
    a.round()  # it has asked just now whether the source is suspended
    fleet.owner("person").view.suspensions.suspend()
    b.stop()
    assert a.round() == [] and len(a.held) == 2


def test_worker_makes_no_requests_once_the_source_is_suspended(fleet: Fleet) -> None:
    a, b = asked(fleet)
    fleet.owner("person").view.suspensions.suspend()
    fleet.clock.advance(CACHE_SECONDS)
    assert b.round() == [] and not b.balancer.is_waiting
    a.balancer.rebalance()
    assert a.balancer.leaving == {} and len(a.held) == 4


def test_lease_handed_over_before_suspension_can_be_given_back(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.round()
    fleet.owner("person").view.suspensions.suspend()
    fleet.clock.advance(CACHE_SECONDS)
    assert b.round() == ["p0"] and b.round() == []
    b.stop()
    assert fleet.stored("p0").owner is None


# Shares


def test_stopping_worker_leaves_its_share_to_others_at_once(fleet: Fleet) -> None:
    a, b = asked(fleet)
    rounds([a, b], 6)
    assert (len(a.held), len(b.held)) == (2, 2)
    b.stop()
    assert len(a.round()) == 2 and len(a.held) == 4


@pytest.mark.parametrize("by", ["count", "throughput"])
def test_leases_given_back_late_are_seen_next_round(fleet: Fleet, by: str) -> None:
    a, b = Job(fleet, "a", balance_by=by), Job(fleet, "b", balance_by=by)
    rounds([a, b], 6)
    b.balancer.leave()
    assert a.round() == []
    b.coordinator.leases.give_up_all()
    assert len(a.round()) == 2


def test_deregistered_worker_does_not_count_despite_its_leases(fleet: Fleet) -> None:
    a, b = asked(fleet)
    rounds([a, b], 6)
    b.balancer.leave()
    fleet.owner("sync").create_partitions({"p4": {}, "p5": {}})
    assert a.round() == ["p4", "p5"]


def test_expired_lease_is_taken_at_once(fleet: Fleet) -> None:
    fleet.owner("old").leases.acquire(4)
    a = Job(fleet, "a")
    fleet.clock.advance(TIMEOUT + MARGIN - 1)
    assert a.round() == []
    fleet.clock.advance(1)
    assert len(a.round()) == 4


def test_dead_worker_loses_its_share_when_leases_expire(fleet: Fleet) -> None:
    a, b = asked(fleet)
    rounds([a, b], 6)
    b.renew()
    died = max(fleet.stored(key).priority for key in b.held)
    while len(a.held) < 4:
        fleet.clock.advance(1)
        a.renew()
        a.round()
        assert fleet.clock.now() <= died + seconds(MARGIN), "in the moment in which they have run out"


def test_leases_given_back_by_airflow_are_taken_at_once(fleet: Fleet) -> None:
    a, b = asked(fleet)
    rounds([a, b], 6)
    fleet.owner("operator").give_up_owner(b.name)
    assert len(a.round()) == 2


def test_expected_workers_leave_room_for_each_other(fleet: Fleet) -> None:
    a = Job(fleet, "a", expected_workers=2)
    assert len(a.round()) == 2
    fleet.clock.advance(TIMEOUT - 1)
    a.renew()
    assert a.round() == []
    fleet.clock.advance(1)
    assert len(a.round()) == 2


def test_worker_with_twice_the_slots_gets_twice_as_many(fleet: Fleet) -> None:
    fleet.owner("sync").create_partitions({f"k{n}": {} for n in range(8)})
    small, large = Job(fleet, "a", count_slots=lambda: 4), Job(fleet, "b", count_slots=lambda: 8)
    rounds([small, large], 12)
    assert (len(small.held), len(large.held)) == (4, 8)
    requested = [job.count(CoordinationMetric.HANDOVERS_REQUESTED) for job in (small, large)]
    rounds([small, large], 12)
    assert [job.count(CoordinationMetric.HANDOVERS_REQUESTED) for job in (small, large)] == requested


def test_share_follows_slots_that_change(fleet: Fleet) -> None:
    fleet.owner("sync").create_partitions({f"k{n}": {} for n in range(8)})
    slots = {"a": 4, "b": 4}
    jobs = [Job(fleet, name, count_slots=lambda name=name: slots[name]) for name in slots]
    rounds(jobs, 12)
    assert [len(job.held) for job in jobs] == [6, 6]
    slots["a"] = 20
    rounds(jobs, 12)
    assert [len(job.held) for job in jobs] == [10, 2]
    slots["a"] = 2
    rounds(jobs, 20)
    assert [len(job.held) for job in jobs] == [4, 8]


def test_worker_of_unknown_slots_has_a_mean_share(fleet: Fleet) -> None:
    fleet.owner("sync").create_partitions({f"k{n}": {} for n in range(8)})
    jobs = [Job(fleet, "a", count_slots=lambda: 2), Job(fleet, "b", count_slots=lambda: 6), Job(fleet, "older")]
    rounds(jobs, 12)
    assert [len(job.held) for job in jobs] == [2, 6, 4]


def test_registered_worker_without_leases_counts(fleet: Fleet) -> None:
    idle, a = Job(fleet, "idle"), Job(fleet, "a")
    idle.coordinator.workers.register()
    assert len(a.round()) == 2


def test_older_owner_counts_and_is_not_asked(fleet: Fleet) -> None:
    old = fleet.owner("old")
    old.leases.acquire(4)
    a = Job(fleet, "a")
    assert a.round() == [] and not a.balancer.is_waiting
    old.leases.give_up_all()
    fleet.clock.advance(LOOK)
    assert len(a.round()) == 4


def test_limit_is_respected_despite_free_leases(fleet: Fleet) -> None:
    a = Job(fleet, "a", max_leases=3)
    rounds([a], 30)
    assert len(a.held) == 3


def test_untaken_leases_exceed_the_share_after_three_timeouts(fleet: Fleet) -> None:
    stuck, a = Job(fleet, "stuck"), Job(fleet, "a")
    stuck.coordinator.workers.register()
    assert len(a.round()) == 2
    for _ in range(17):
        fleet.clock.advance(LOOK)
        stuck.renew()
        a.renew()
        assert a.round() == []
    for _ in range(3):
        fleet.clock.advance(LOOK)
        stuck.renew()
        a.renew()
        a.round()
    assert len(a.held) == 4


def test_resting_parked_and_awaiting_partitions_do_not_count(fleet: Fleet) -> None:
    a = Job(fleet, "a")
    a.round()
    a.coordinator.leases.close("p0", timedelta(hours=1))
    a.coordinator.leases.await_acknowledgment("p1", timedelta(hours=1))
    b = Job(fleet, "b")
    rounds([b, a], 3)
    assert (len(a.held), len(b.held)) == (1, 1)
    rounds([b, a], 3)
    assert (len(a.held), len(b.held)) == (1, 1)


def test_owner_that_only_awaits_acknowledgments_is_no_worker(fleet: Fleet) -> None:
    ended = fleet.owner("ended")
    ended.leases.acquire(1)
    ended.leases.await_acknowledgment("p0", timedelta(hours=1))
    assert Job(fleet, "a").round() == ["p1", "p2", "p3"]


def test_completed_partitions_do_not_count(fleet: Fleet) -> None:
    a, b = Job(fleet, "a"), Job(fleet, "b")
    a.round()
    for key in ("p0", "p1", "p2"):
        a.coordinator.leases.complete(key)
    rounds([a, b], 4)
    assert (a.held, b.held) == (["p3"], []) and not b.balancer.is_waiting


def test_partitions_created_by_a_completion_are_seen_next_round(fleet: Fleet) -> None:
    a = Job(fleet, "a")
    a.round()
    a.coordinator.leases.complete("p0", create={"child-1": {}, "child-2": {}})
    assert a.round() == ["child-1", "child-2"]


def test_throughput_balance_shares_the_load(fleet: Fleet) -> None:
    a = Job(fleet, "a", balance_by="throughput")
    b = Job(fleet, "b", balance_by="throughput")
    a.round()
    for key, throughput in {"p0": 60.0, "p1": 20.0, "p2": 20.0, "p3": 20.0}.items():
        a.coordinator.leases.save_progress(key, {"throughput": throughput})
    rounds([b, a], 6)
    assert (a.held, b.held) == (["p1", "p2", "p3"], ["p0"])


def test_concurrent_requests_are_limited_and_stored_in_the_item(fleet: Fleet) -> None:
    owner = fleet.owner("sync")
    owner.create_partitions({f"{n:03}-{'k' * 900}": {} for n in range(90)})
    a, b = Job(fleet, "a"), Job(fleet, "b", max_leases_to_steal=1000)
    a.round()
    b.round()
    [worker] = [worker for worker in owner.workers.live() if worker.owner == "b"]
    assert len(worker.lease_requests) == MAX_LEASE_REQUESTS_BYTES // (904 + 1 + LEASE_REQUEST_BYTES)


# What it costs


def test_settled_round_reads_only_the_registry(fleet: Fleet) -> None:
    a, b = asked(fleet)
    rounds([a, b], 6)
    a.round()
    fleet.store.calls.clear()
    a.round()
    assert fleet.store.calls == ["query"]


def test_partitions_are_listed_six_times_per_ownership_timeout(fleet: Fleet) -> None:
    a = Job(fleet, "a")
    a.round()
    fleet.store.calls.clear()
    for _ in range(60):
        fleet.clock.advance(1)
        a.renew()
        a.round()
    listings = (fleet.store.calls.count("query") - 60) / 3  # one query for each status
    assert listings == 6


def test_number_of_workers_is_a_gauge(fleet: Fleet) -> None:
    a, b = asked(fleet)
    a.round()
    assert a.count(WORKERS) == b.count(WORKERS) == 2


# Whatever happens


seeds = st.integers(0, 2**32)
counts = st.integers(1, 12)
measures = st.sampled_from(["count", "throughput"])


@settings(max_examples=examples(10))
@given(seed=seeds, partitions=counts, by=measures)
def test_changing_workers_settle_evenly(seed: int, partitions: int, by: str) -> None:
    workers_come_and_go(seed, partitions, by)


@pytest.mark.integration
@settings(max_examples=examples(200))
@given(seed=seeds, partitions=counts, by=measures)
def test_changing_workers_settle_evenly_in_hundreds_of_runs(seed: int, partitions: int, by: str) -> None:
    workers_come_and_go(seed, partitions, by)


def workers_come_and_go(seed: int, partitions: int, by: str) -> None:
    chance = random.Random(seed)
    fleet = Fleet()
    names = {f"p{n:02}": {"throughput": 10.0} for n in range(partitions)}
    fleet.owner("sync").create_partitions(names)
    born = 0
    jobs: list[Job] = []
    for _ in range(40):
        fleet.clock.advance(chance.choice([1, 2, 5, 10]))
        act = chance.randrange(12)
        if act == 0 and len(jobs) < 4:
            jobs.append(Job(fleet, f"job-{born}", balance_by=by))
            born += 1
        elif act == 1 and jobs:
            jobs.pop(chance.randrange(len(jobs))).stop()
        elif act == 2 and jobs:
            jobs.pop(chance.randrange(len(jobs)))  # killed, and nobody noticed
        elif act == 3 and jobs:
            fleet.owner("operator").give_up_owner(jobs.pop(chance.randrange(len(jobs))).name)
        elif act == 4 and jobs:
            chance.choice(jobs).slow = set(names)
        else:
            for job in chance.sample(jobs, chance.randrange(len(jobs) + 1)):
                job.renew()
                job.round()
        if not any(job.count(CoordinationMetric.HANDOVERS_FORCED) for job in jobs):
            believers = Counter(key for job in jobs for key in names if job.coordinator.leases.owns(key))
            assert all(count == 1 for count in believers.values())
    jobs = jobs or [Job(fleet, "last", balance_by=by)]
    for job in jobs:
        job.slow = set()
    rounds(jobs, 60, every=5)
    holds = sorted(len(job.held) for job in jobs)
    assert sum(holds) == partitions and holds[-1] - holds[0] <= 1
    moved = sum(job.count(CoordinationMetric.HANDOVERS_REQUESTED) for job in jobs)
    rounds(jobs, 10, every=5)
    assert moved == sum(job.count(CoordinationMetric.HANDOVERS_REQUESTED) for job in jobs), "and then nothing moves"
    owners = {key: fleet.stored(key).owner for key in names}
    assert all(owners[key] == job.name for job in jobs for key in job.held)
