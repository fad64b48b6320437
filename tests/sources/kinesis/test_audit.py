"""The audit of hash ranges separates holes from other gaps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.leases import (
    HoleTracker,
    ShardLease,
    first_hole,
    hole_between,
    holes_between,
    leases_to_create,
)
from airflow_provider_coordination.sources.kinesis.shards import MAX_HASH_KEY, Shard
from tests.support.batches import NOON
from tests.support.depth import examples
from tests.support.shard_graphs import GRAPH_A
from tests.support.shard_leases import a_lease

MAX = MAX_HASH_KEY
UNASSIGNED, ASSIGNED, CLOSED, COMPLETED = PartitionStatus


def lease(shard: Shard, status: PartitionStatus = UNASSIGNED) -> ShardLease:
    return a_lease(shard, completed_at=NOON if status is COMPLETED else None)


def leases(done: str = "", unfinished: str = "") -> dict[str, ShardLease]:
    by_name = {shard.shard_id: shard for shard in GRAPH_A}
    return {name: lease(by_name[name], COMPLETED) for name in done.split()} | {
        name: lease(by_name[name]) for name in unfinished.split()
    }


@pytest.mark.parametrize(
    ("ranges", "hole"),
    [
        ([], (0, MAX)),
        ([(0, MAX)], None),
        ([(1, MAX)], (0, 0)),
        ([(0, MAX - 1)], (MAX, MAX)),
        ([(0, 5), (7, MAX)], (6, 6)),
        ([(0, 5), (6, 6), (7, MAX)], None),
        ([(0, 9), (3, 4), (10, MAX)], None),
        ([(0, MAX), (3, 4)], None),
    ],
)
def test_first_unread_range_is_found(ranges: list[tuple[int, int]], hole: tuple[int, int] | None) -> None:
    assert first_hole([HashKeyRange(*ends) for ends in ranges]) == (hole and HashKeyRange(*hole))


@given(st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)).map(sorted), max_size=8))
def test_hole_is_the_first_uncovered_hash_range(ends: list[list[int]]) -> None:
    width = (MAX + 1) // 16
    ranges = [HashKeyRange(first * width, (last + 1) * width - 1) for first, last in ends]
    held = {key for first, last in ends for key in range(first, last + 1)}
    missing = [key for key in range(16) if key not in held]
    hole = first_hole(ranges)

    if not missing:
        assert hole is None
    else:
        after = next((key for key in range(missing[0], 16) if key in held), 16)
        assert hole == HashKeyRange(missing[0] * width, after * width - 1)


def test_parents_and_children_together_cover_a_stream() -> None:
    assert hole_between(leases(done="0 1 2 3 5 6 7", unfinished="4 8 9 10")) is None
    assert hole_between(leases(done="0 1", unfinished="2 3 4 5 6")) is None


def test_finished_shard_with_missing_children_is_a_hole() -> None:
    assert hole_between(leases(done="5", unfinished="0 1 2 3 4 9"), GRAPH_A) == HashKeyRange(
        int(GRAPH_A[10].starting_hash_key), MAX
    )


def test_child_waiting_for_its_other_parent_is_no_hole() -> None:
    assert hole_between(leases(done="0", unfinished="1 2 3 4 5"), GRAPH_A) is None
    assert hole_between(leases(done="0 1 6", unfinished="2 3 4 5"), GRAPH_A) is None
    assert hole_between(leases(done="0 1", unfinished="2 3 4 5"), GRAPH_A) is not None


def test_missing_other_parent_is_its_own_hole() -> None:
    first = GRAPH_A[0]

    assert hole_between(leases(done="1", unfinished="2 3 4 5"), GRAPH_A) == HashKeyRange(0, int(first.ending_hash_key))


def test_leases_alone_show_every_hole() -> None:
    def keys_of(number: int) -> HashKeyRange:
        return HashKeyRange(int(GRAPH_A[number].starting_hash_key), int(GRAPH_A[number].ending_hash_key))

    assert holes_between(leases(unfinished="0 1 2 3 4 5")) == []
    assert holes_between(leases(unfinished="0 2 4")) == [keys_of(1), keys_of(3), keys_of(5)]
    assert holes_between(leases(done="5", unfinished="0 1 2 3 4")) == [keys_of(5)]


def test_leases_alone_show_no_hole_without_unread_known_ranges() -> None:
    assert holes_between(leases(done="0 1")) == []
    assert holes_between({}) == []
    unknown = leases(unfinished="0 2")
    unknown["2"] = replace(unknown["2"], progress=None)
    assert holes_between(unknown) == []


@given(st.sets(st.sampled_from([shard.shard_id for shard in GRAPH_A])))
@settings(max_examples=examples(30))
def test_due_leases_leave_no_hole(finished: set[str]) -> None:
    """Whatever is finished in whichever order: once the due leases are there, every hash key is read."""
    statuses: dict[str, PartitionStatus] = {}
    while due := leases_to_create(GRAPH_A, statuses):
        # An open shard never finishes.
        statuses |= {new.shard.shard_id: UNASSIGNED for new in due}
        statuses |= {
            new.shard.shard_id: COMPLETED for new in due if new.shard.shard_id in finished and not new.shard.is_open
        }
    by_name = {shard.shard_id: shard for shard in GRAPH_A}

    assert hole_between({name: lease(by_name[name], status) for name, status in statuses.items()}, GRAPH_A) is None


def test_hole_is_certain_from_its_third_sighting() -> None:
    tracker, sights = HoleTracker(), []
    for _ in range(4):
        tracker = tracker.after_check(HashKeyRange(3, 5))
        sights.append(tracker.is_certain)

    assert sights == [False, False, True, True]
