"""The number of slots follows Spark's configuration and the results of earlier rounds."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from airflow_provider_coordination.spark.kinesis.landing import slots_needed
from airflow_provider_coordination.spark.slots import (
    GROWING_SECONDS,
    SETTLED_SECONDS,
    STARTING_SECONDS,
    Allocation,
    Growth,
    lasting_slots,
    planned_slots,
)
from tests.support.read_plans import read_plans

DYNAMIC = {"spark.dynamicAllocation.enabled": "true"}
LATER = STARTING_SECONDS + 1


@pytest.mark.parametrize(
    ("master", "conf", "expected"),
    [
        ("local[4]", {"spark.executor.instances": "3", **DYNAMIC}, Allocation()),
        ("yarn", {}, Allocation(initial=2)),
        ("yarn", {"spark.executor.instances": "3", "spark.executor.cores": "4"}, Allocation(initial=12)),
        ("yarn", {"spark.executor.instances": "3", "spark.cores.max": "1"}, Allocation(initial=3)),
        ("k8s://api", {"spark.executor.cores": "4", "spark.task.cpus": "2"}, Allocation(initial=4)),
        ("spark://m:7077", {}, Allocation()),
        ("spark://m:7077", {"spark.cores.max": "6"}, Allocation(initial=6)),
        ("spark://m:7077", {"spark.cores.max": "7", "spark.executor.cores": "2"}, Allocation(initial=6)),
        ("yarn", DYNAMIC, Allocation(is_dynamic=True)),
        (
            "yarn",
            {**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "6", "spark.executor.cores": "4"},
            Allocation(is_dynamic=True, maximum=24),
        ),
        (
            "yarn",
            {**DYNAMIC, "spark.dynamicAllocation.minExecutors": "2", "spark.dynamicAllocation.initialExecutors": "3"},
            Allocation(is_dynamic=True, initial=3),
        ),
        (
            "spark://m:7077",
            {
                **DYNAMIC,
                "spark.dynamicAllocation.maxExecutors": "6",
                "spark.dynamicAllocation.minExecutors": "5",
                "spark.executor.cores": "2",
                "spark.cores.max": "8",
            },
            Allocation(is_dynamic=True, initial=8, maximum=8),
        ),
        ("spark://m:7077", {**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "6"}, Allocation(is_dynamic=True)),
    ],
)
def test_allocation_is_read_from_the_configuration(master: str, conf: dict[str, str], expected: Allocation) -> None:
    assert Allocation.of({"spark.master": master, **conf}) == expected


def planned(allocation: Allocation, needed: int, registered: int, at: float, growth: Growth | None = None) -> int:
    return planned_slots(allocation, growth or Growth(started_at=0.0), needed=needed, registered=registered, now=at)[0]


@pytest.mark.parametrize(
    ("initial", "registered", "at", "slots"),
    [(6, 2, 0.0, 6), (6, 6, 0.0, 6), (0, 2, 0.0, 2), (6, 2, LATER, 2), (6, 5, LATER, 5), (6, 8, 0.0, 8)],
)
def test_static_job_counts_starting_executors_then_registered_ones(
    initial: int, registered: int, at: float, slots: int
) -> None:
    assert planned(Allocation(initial=initial), 64, registered, at) == slots


@pytest.mark.parametrize(
    ("most", "needed", "registered", "slots"),
    [
        (24, 64, 2, 4),  # twice as many as there are
        (24, 64, 16, 24),
        (24, 64, 24, 24),
        (24, 3, 2, 3),  # no more than the work needs
        (24, 3, 24, 3),
        (24, 1, 24, 1),
        (None, 64, 48, 64),
        (1, 64, 1, 1),
    ],
)
def test_dynamic_job_requests_executors_step_by_step(
    most: int | None, needed: int, registered: int, slots: int
) -> None:
    assert planned(Allocation(is_dynamic=True, maximum=most), needed, registered, LATER) == slots


def rounds(registered_at: dict[float, int], needed: int = 64, most: int | None = 24) -> dict[float, int]:
    """Return the number of slots of rounds that begin at these times, with this number of slots registered."""
    growth, found = Growth(started_at=-math.inf), {}
    for now, registered in registered_at.items():
        found[now], growth = planned_slots(
            Allocation(is_dynamic=True, maximum=most), growth, needed=needed, registered=registered, now=now
        )
    return found


def test_dynamic_job_grows_as_executors_come() -> None:
    assert rounds({0: 1, 10: 2, 20: 4, 30: 8, 40: 16, 50: 24}) == {0: 2, 10: 4, 20: 8, 30: 16, 40: 24, 50: 24}


def test_dynamic_job_without_new_executors_asks_much_later() -> None:
    again = GROWING_SECONDS + SETTLED_SECONDS
    found = rounds({0: 4, GROWING_SECONDS - 1: 4, GROWING_SECONDS: 4, again - 1: 4, again: 4})
    assert list(found.values()) == [8, 8, 4, 4, 8]


def test_late_executors_are_used_and_more_requested_at_once() -> None:
    found = rounds({0: 4, GROWING_SECONDS: 4, GROWING_SECONDS + 10: 6, GROWING_SECONDS + 20: 12})
    assert list(found.values()) == [8, 4, 12, 24]


def test_lost_executors_are_excluded_and_requested_again() -> None:
    assert rounds({0: 24, 10: 8, 20: 8, 30: 16, 40: 24}) == {0: 24, 10: 16, 20: 16, 30: 24, 40: 24}


@pytest.mark.parametrize(
    ("throughputs", "needed"),
    [([None] * 64, 17), ([None], 1), ([0.0] * 64, 1), ([10_000.0] * 1000, 3), ([4 * 2**20] * 64, 33)],
)
def test_slots_follow_measured_or_possible_shard_throughput(throughputs: list[float | None], needed: int) -> None:
    [plan] = read_plans(1)
    assert slots_needed([replace(plan, throughput=each) for each in throughputs]) == needed


def test_empty_shards_need_no_slot_each() -> None:
    assert slots_needed([replace(plan, iterator="i") for plan in read_plans(64)]) == 1


# Slots for the balance among workers


def lasting(allocation: Allocation, *registered: tuple[float, int], growth: Growth | None = None) -> list[int | None]:
    """Return the number at each of these instants, with as many tasks on executors then."""
    found, growth = [], growth or Growth(started_at=0.0)
    for now, tasks in registered:
        slots, growth = lasting_slots(allocation, growth, registered=tasks, now=now)
        found.append(slots)
    return found


def test_lasting_slots_are_the_tasks_of_the_executors() -> None:
    assert lasting(Allocation(), (0, 2), (10, 6), (500, 6)) == [2, 6, 6]


def test_lasting_slots_include_executors_that_start() -> None:
    assert lasting(Allocation(initial=12), (0, 1), (59, 4), (61, 12)) == [12, 12, 12]
    assert lasting(Allocation(initial=12), (0, 1), (60, 4), (119, 4), (120, 4)) == [12, 12, 12, 4]


def test_lasting_slots_keep_a_lost_executor_for_a_minute() -> None:
    replaced = [(100.0, 8), (110.0, 6), (150.0, 8), (160.0, 6), (219.0, 6)]
    assert lasting(Allocation(), *replaced) == [8] * 5
    assert lasting(Allocation(), *replaced, (220.0, 6), (230.0, 4), (231.0, 9)) == [8] * 5 + [6, 6, 9]


def test_lasting_slots_of_dynamic_allocation_ignore_the_present_work() -> None:
    dynamic = Allocation(is_dynamic=True, initial=2, maximum=24)
    assert lasting(dynamic, (0, 2), (500, 20), (900, 1)) == [24, 24, 24]
    assert lasting(Allocation(is_dynamic=True), (0, 2)) == [None]


def test_lasting_slots_are_those_a_full_cluster_gave() -> None:
    dynamic, growth = Allocation(is_dynamic=True, initial=2, maximum=24), Growth(started_at=0.0)
    for now in (LATER, LATER + GROWING_SECONDS):
        _, growth = planned_slots(dynamic, growth, needed=20, registered=4, now=now)
    since = LATER + GROWING_SECONDS
    settled = [(since, 4), (since + 100, 1), (since + 200, 6), (since + SETTLED_SECONDS, 1)]
    assert lasting(dynamic, *settled, growth=growth) == [4, 4, 6, 24]
