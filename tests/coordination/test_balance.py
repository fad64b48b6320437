"""The assignment of leases: computed alike by every worker from a snapshot, stable after bounded moves."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.balance import (
    BY_COUNT,
    BY_THROUGHPUT,
    HYSTERESIS,
    BalancePlan,
    Lease,
    Member,
    Move,
    Rules,
    fair_shares,
    plan,
)
from tests.support.depth import examples

COUNT = Rules(balance_by=BY_COUNT, force_after_seconds=180)
THROUGHPUT = Rules(balance_by=BY_THROUGHPUT, force_after_seconds=180)


def members(*owners: str, **limits: int) -> list[Member]:
    return [Member(owner=owner) for owner in owners] + [Member(owner=o, max_leases=n) for o, n in limits.items()]


def leases(**counts: int) -> list[Lease]:
    """Leases of each owner; those of `free` have no owner."""
    return [
        Lease(key=f"{owner}-{n:02}", owner=None if owner == "free" else owner)
        for owner, count in counts.items()
        for n in range(count)
    ]


def loaded(**throughputs: list[float | None]) -> list[Lease]:
    return [
        Lease(key=f"{owner}-{n}", owner=None if owner == "free" else owner, throughput=throughput)
        for owner, given in throughputs.items()
        for n, throughput in enumerate(given)
    ]


def moves(found: BalancePlan) -> list[tuple[str, str]]:
    return [(move.giver, move.key) for move in found.requests]


# Shares


@pytest.mark.parametrize(
    ("count", "limits", "share"),
    [
        (0, [None], [0]),
        (7, [None], [7]),
        (7, [None, None], [3.5, 3.5]),
        (2, [None] * 5, [0.4] * 5),
        (10, [None, 1], [9, 1]),
        (10, [None, None, 2], [4, 4, 2]),
        (10, [None, 6], [5, 5]),
        (10, [3, 2], [3, 2]),
        (10, [3, 2, None], [3, 2, 5]),
    ],
)
def test_fair_share_is_an_even_part_after_limits(count: int, limits: list[int | None], share: list[float]) -> None:
    fleet = [Member(owner=str(number), max_leases=limit) for number, limit in enumerate(limits)]
    assert [float(each) for each in fair_shares(count, fleet)] == share


def test_worker_takes_free_leases_up_to_its_share() -> None:
    assert plan("a", leases(a=1, free=9), members("a", "b"), [], COUNT).acquire == 4


def test_expected_workers_count_before_they_register() -> None:
    rules = replace(COUNT, expected_workers=3)
    assert plan("a", leases(free=9), members("a"), [], rules).acquire == 3
    assert plan("a", leases(free=9), members(*"abcd"), [], rules).acquire == 3


def test_expected_workers_count_by_throughput_after_present_ones() -> None:
    rules = replace(THROUGHPUT, expected_workers=2)
    assert plan("a", loaded(free=[1, 1, 1]), members("a"), [], rules).acquire == 2


def test_limit_is_respected_and_others_take_the_rest() -> None:
    existing = leases(free=10)
    fleet = members("b", a=2)
    assert plan("a", existing, fleet, [], COUNT).acquire == 2
    assert plan("b", existing, fleet, [], COUNT).acquire == 8


@pytest.mark.parametrize("rules", [COUNT, THROUGHPUT], ids=lambda rules: rules.balance_by)
def test_long_free_leases_are_taken_beyond_share_within_limit(
    rules: Rules,
) -> None:
    free = [Lease(key=f"free-{n}", free_seconds=180.0 + n) for n in range(4)]  # the first one is not old enough
    existing = [*leases(a=5), *free]
    assert plan("a", existing, members("a", "b"), [], rules).acquire == 3
    assert plan("a", existing, members("b", a=6), [], rules).acquire == 1
    assert plan("a", existing, members("b", a=5), [], rules).acquire == 0


def test_unaskable_worker_counts_as_one_and_is_left_alone() -> None:
    old = Member(owner="old", hands_over=False)
    assert plan("a", leases(old=2, free=2), [*members("a"), old], [], COUNT).acquire == 2
    assert plan("a", leases(old=4), [*members("a"), old], [], COUNT) == BalancePlan(acquire=2)


def test_leases_of_a_gone_owner_count_in_the_total_only() -> None:
    assert plan("a", leases(a=1, gone=3), members("a", "b"), [], COUNT) == BalancePlan(acquire=1)


# Moves, by count


def test_free_leases_prevent_requests() -> None:
    assert plan("a", leases(b=4, free=1), members("a", "b"), [], COUNT).requests == ()


def test_worker_asks_the_most_loaded_for_its_first_lease() -> None:
    existing = leases(a=1, b=3, c=4)
    assert moves(plan("a", existing, members("a", "b", "c"), [], COUNT)) == [("c", "c-00")]


def test_tie_is_broken_by_name() -> None:
    existing = leases(b=3, c=3)
    fleet = members("d", "c", "b", "a")
    assert moves(plan("a", existing, fleet, [], COUNT)) == [("b", "b-00")]
    assert moves(plan("d", existing, fleet, [], COUNT)) == [("c", "c-00")]


def test_difference_of_one_is_even() -> None:
    assert plan("a", leases(a=1, b=2), members("a", "b"), [], COUNT).requests == ()


def test_worker_limits_its_concurrent_requests() -> None:
    existing, fleet = leases(b=10), members("a", "b")
    assert len(plan("a", existing, fleet, [], COUNT).requests) == 1
    asked = [Move(key="b-03", giver="b", taker="a")]
    assert plan("a", existing, fleet, asked, COUNT).requests == ()
    assert len(plan("a", existing, fleet, asked, replace(COUNT, max_leases_to_steal=3)).requests) == 2
    assert len(plan("a", existing, fleet, [], replace(COUNT, max_leases_to_steal=99)).requests) == 5


def test_worker_at_its_limit_makes_no_request() -> None:
    assert plan("a", leases(a=1, b=9), members("b", a=1), [], COUNT).requests == ()


def test_worker_that_reached_its_limit_stops_asking() -> None:
    asked = [Move(key="b-00", giver="b", taker="a")]
    assert plan("a", leases(a=1, b=9), members("b", a=2), asked, COUNT).obsolete == frozenset()
    assert plan("a", leases(a=2, b=9), members("b", a=2), asked, COUNT).obsolete == {"b-00"}


def test_leases_requested_by_others_count_as_theirs() -> None:
    existing, fleet = leases(a=1, b=3, c=1), members("a", "b", "c")
    assert moves(plan("a", existing, fleet, [], COUNT)) == [("b", "b-00")]
    assert plan("a", existing, fleet, [Move(key="b-02", giver="b", taker="c")], COUNT).requests == ()


def test_two_requests_for_one_difference_are_resolved_alike() -> None:
    existing, fleet = leases(a=1, b=3, c=1), members("a", "b", "c")
    asked = [Move(key="b-00", giver="b", taker="c"), Move(key="b-01", giver="b", taker="a")]
    assert plan("c", existing, fleet, asked, COUNT).obsolete == frozenset()
    assert plan("a", existing, fleet, asked, COUNT).obsolete == {"b-01"}


def test_two_requests_for_one_lease_are_resolved_alike() -> None:
    existing, fleet = leases(b=9), members("a", "b", "c")
    asked = [Move(key="b-00", giver="b", taker="a"), Move(key="b-00", giver="b", taker="c")]
    assert plan("a", existing, fleet, asked, COUNT) == BalancePlan(acquire=2)
    of_c = plan("c", existing, fleet, asked, COUNT)
    assert of_c.obsolete == {"b-00"} and moves(of_c) == [("b", "b-01")]


@pytest.mark.parametrize("now_there", [leases(a=3, b=3), leases(b=1), leases(b=0)], ids=["even", "one", "gone"])
def test_useless_request_is_dropped(now_there: list[Lease]) -> None:
    asked = [Move(key="b-00", giver="b", taker="a")]
    assert plan("a", now_there, members("a", "b"), asked, COUNT).obsolete == {"b-00"}


# Moves, by throughput


def test_throughput_balances_loads_instead_of_counts() -> None:
    existing = loaded(a=[50, 50], b=[10] * 10)
    assert plan("a", existing, members("a", "b"), [], THROUGHPUT) == BalancePlan()
    assert moves(plan("a", existing, members("a", "b"), [], COUNT)) == [("b", "b-0")]


def test_lease_that_balances_best_moves() -> None:
    existing = loaded(a=[100], b=[10, 90, 110, 20])
    assert moves(plan("a", existing, members("a", "b"), [], THROUGHPUT)) == [("b", "b-1")]


def test_reversible_move_is_not_made() -> None:
    assert plan("a", loaded(a=[], b=[1000, 0]), members("a", "b"), [], THROUGHPUT).requests == ()


@pytest.mark.parametrize(("more", "moved"), [(20.0, False), (21.0, False), (22.0, True)])
def test_move_must_gain_a_tenth_of_the_average(more: float, moved: bool) -> None:
    existing = loaded(a=[100, 100], b=[100, 100, more / 2, more / 2])
    assert bool(plan("a", existing, members("a", "b"), [], THROUGHPUT).requests) == moved
    assert HYSTERESIS == 0.1


def test_next_worker_is_asked_if_the_most_loaded_cannot_help() -> None:
    existing = loaded(a=[], b=[1000], c=[400, 300])
    assert moves(plan("a", existing, members("a", "b", "c"), [], THROUGHPUT)) == [("c", "c-0")]


def test_unmeasured_lease_counts_with_the_mean() -> None:
    existing = loaded(a=[30], b=[None, None, None])
    assert moves(plan("a", existing, members("a", "b"), [], THROUGHPUT)) == [("b", "b-0")]


def test_free_leases_go_to_the_least_loaded() -> None:
    existing = loaded(a=[90], b=[10], free=[None, None])
    fleet = members("a", "b")
    assert plan("a", existing, fleet, [], THROUGHPUT).acquire == 0
    assert plan("b", existing, fleet, [], THROUGHPUT).acquire == 2


@pytest.mark.parametrize("value", [None, 0.0, math.nan, math.inf, -1.0, 1e300])
def test_leases_count_as_one_without_usable_measurements(value: float | None) -> None:
    existing = [replace(lease, throughput=value) for lease in leases(b=9)]
    fleet = members("a", "b", "c")
    assert moves(plan("a", existing, fleet, [], THROUGHPUT)) == [("b", "b-00")]
    free = [replace(lease, owner=None) for lease in existing]
    assert [plan(me, free, fleet, [], THROUGHPUT).acquire for me in "abc"] == [3, 3, 3]


def test_impossible_throughput_is_ignored() -> None:
    existing = loaded(a=[100], b=[100, math.nan, -5.0])
    assert moves(plan("a", existing, members("a", "b"), [], THROUGHPUT)) == [("b", "b-0")]


# Whatever the snapshot


owners = st.sampled_from("abcd")
limits = st.one_of(st.none(), st.integers(1, 8))
slots = st.one_of(st.none(), st.integers(1, 40))
fleets = st.dictionaries(owners, st.tuples(limits, slots), min_size=1).map(
    lambda found: [Member(owner=owner, max_leases=limit, slots=size) for owner, (limit, size) in found.items()]
)
held = st.lists(st.tuples(st.one_of(st.none(), st.sampled_from("abcdx")), st.one_of(st.none(), st.floats(0, 1e6))))
rules_of = st.builds(
    lambda rules, at_once: replace(rules, max_leases_to_steal=at_once),
    st.sampled_from([COUNT, THROUGHPUT]),
    st.integers(1, 3),
)


def settle(stands: dict[str, Lease], fleet: list[Member], rules: Rules, order: random.Random) -> Counter[str]:
    """Let the workers make rounds in any order until nothing moves. Return how often each lease moved."""
    limits = {member.owner: member.max_leases for member in fleet}
    before = {owner: sum(lease.owner == owner for lease in stands.values()) for owner in limits}
    moved: Counter[str] = Counter()
    quiet = 0
    while quiet < 2:
        quiet += 1
        for me in order.sample(sorted(limits), len(limits)):
            snapshot = list(stands.values())
            todo = plan(me, snapshot, fleet, [], rules)
            shuffled = order.sample(snapshot, len(snapshot)) if rules.balance_by == BY_COUNT else snapshot
            assert plan(me, shuffled, order.sample(fleet, len(fleet)), [], rules) == todo, "deterministic"
            free = [lease.key for lease in snapshot if lease.owner is None]
            assert todo.acquire == 0 or not todo.requests or not free
            for key in free[: todo.acquire]:
                stands[key] = replace(stands[key], owner=me, free_seconds=0)
                quiet = 0
            for move in todo.requests:
                assert stands[move.key].owner == move.giver != me == move.taker
                stands[move.key] = replace(stands[move.key], owner=me)
                moved[move.key] += 1
                quiet = 0
            counts = Counter(lease.owner for lease in stands.values())
            assert limits[me] is None or counts[me] <= max(limits[me] or 0, before[me])
        for key, lease in stands.items():  # what nobody took is old after a while
            if lease.owner is None:
                stands[key] = replace(lease, free_seconds=200)
        assert moved.total() <= len(stands) * len(fleet), "it never settles"
    return moved


def check_shares(stands: dict[str, Lease], fleet: list[Member]) -> None:
    """Check that every worker holds its share, rounded down or up, and that the shares are all leases.

    If all workers have limits, more leases may exist; then nobody holds less than its share.
    """
    counts = Counter(lease.owner for lease in stands.values())
    shares = fair_shares(len(stands), fleet)
    is_all = sum(shares) == len(stands)
    assert is_all or all(member.max_leases is not None for member in fleet)
    for member, share in zip(fleet, shares, strict=True):
        assert math.floor(share) <= counts[member.owner] <= (math.ceil(share) if is_all else math.inf)


@settings(max_examples=examples(150))
@given(fleet=fleets, existing=held, rules=rules_of, seed=st.integers())
@example(  # one that has its part asks for no more, although another one has far more
    fleet=members("a", "b", "c"), existing=[(None, None)] * 14, rules=replace(COUNT, max_leases_to_steal=1), seed=0
)
@example(  # 10 leases are 4, 3 and 3: the one that already has more keeps the fourth
    fleet=members("a", "b", "c"), existing=[(None, None)] * 10, rules=replace(COUNT, max_leases_to_steal=1), seed=14
)
@example(  # one that is full may not count on what others have yet to take from it
    fleet=members(b=3, c=5, d=5),
    existing=[(None, None), ("a", 9.152), (None, 4.015), (None, 0.171), ("a", 1.0), (None, 8.795)],
    rules=replace(THROUGHPUT, max_leases_to_steal=2),
    seed=386,
)
def test_rounds_in_any_order_settle_after_few_moves(
    fleet: list[Member], existing: list[tuple[str | None, float | None]], rules: Rules, seed: int
) -> None:
    order, owners = random.Random(seed), {member.owner for member in fleet}
    # Those of x, who is dead, are free by and by.
    stands = {
        f"k{n:02}": Lease(
            key=f"k{n:02}", owner=o if o in owners else None, throughput=t, free_seconds=order.choice([0, 200])
        )
        for n, (o, t) in enumerate(existing)
    }
    moved = settle(stands, fleet, rules, order)
    if rules.balance_by == BY_COUNT:
        assert all(times <= 1 for times in moved.values()), "nothing goes to and fro"
        check_shares(stands, fleet)
    counts = Counter(lease.owner for lease in stands.values())
    room = [each for each in fleet if each.max_leases is None or counts[each.owner] < each.max_leases]
    assert None not in counts or not room, "what is free is taken by whoever may"


# Workers of unequal size


def sized(**sizes: int | None) -> list[Member]:
    return [Member(owner=owner, slots=slots) for owner, slots in sizes.items()]


def held_by(stands: dict[str, Lease]) -> dict[str | None, int]:
    return dict(Counter(lease.owner for lease in stands.values()))


@pytest.mark.parametrize("rules", [COUNT, THROUGHPUT], ids=lambda rules: rules.balance_by)
@pytest.mark.parametrize(
    ("fleet", "expected"),
    [
        (sized(a=2, b=4), {"a": 4, "b": 8}),
        (sized(a=8, b=16, c=24), {"a": 2, "b": 4, "c": 6}),
        (sized(a=5, b=5), {"a": 6, "b": 6}),
        (sized(a=None, b=None), {"a": 6, "b": 6}),
        (sized(a=2, b=4, old=None), {"a": 3, "b": 5, "old": 4}),  # 2.7, 5.3 and the mean
        ([*sized(a=1), Member(owner="b", slots=9, max_leases=2)], {"a": 10, "b": 2}),
    ],
    ids=["twice", "three sizes", "equal", "unknown", "mixed versions", "limited"],
)
def test_shares_are_proportional_to_slots(rules: Rules, fleet: list[Member], expected: dict[str, int]) -> None:
    stands = {f"k{n:02}": Lease(key=f"k{n:02}", throughput=100.0) for n in range(12)}
    settle(stands, fleet, rules, random.Random(1))
    assert held_by(stands) == expected


@settings(max_examples=examples(60))
@given(
    before=fleets,
    resized=st.dictionaries(owners, slots),
    count=st.integers(0, 40),
    by_throughput=st.booleans(),
    seed=st.integers(),
)
def test_share_follows_capacity_that_grows_or_shrinks(
    before: list[Member], resized: dict[str, int | None], count: int, by_throughput: bool, seed: int
) -> None:
    order, rules = random.Random(seed), THROUGHPUT if by_throughput else COUNT
    stands = {f"k{n:02}": Lease(key=f"k{n:02}", throughput=order.random(), free_seconds=200) for n in range(count)}
    settle(stands, before, rules, order)
    after = [replace(member, slots=resized.get(member.owner, member.slots)) for member in before]
    moved = settle(stands, after, rules, order)
    if not by_throughput:
        assert all(times <= 1 for times in moved.values())
        check_shares(stands, after)
    assert settle(stands, after, rules, order).total() == 0, "a steady state is stable"


def test_throughput_per_slot_is_balanced() -> None:
    existing = loaded(a=[40, 40], b=[10, 30, 40])
    assert moves(plan("a", existing, sized(a=1, b=1), [], THROUGHPUT)) == []
    assert moves(plan("a", existing, sized(a=3, b=1), [], THROUGHPUT)) == [("b", "b-2")]


def test_expected_worker_has_the_mean_capacity() -> None:
    rules = replace(COUNT, expected_workers=3)
    assert plan("a", leases(free=12), sized(a=6, b=2), [], rules).acquire == 6


def test_large_worker_requests_an_eighth_of_its_own_share() -> None:
    existing, fleet = leases(b=96), sized(a=3, b=1)
    assert len(plan("a", existing, fleet, [], replace(COUNT, max_leases_to_steal=None)).requests) == 9
