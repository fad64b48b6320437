"""The cost of coordination on DynamoDB is counted, not timed, so these tests assert its aims."""

from __future__ import annotations

import json

import pytest

from benchmarks import store_cost
from benchmarks.store_cost import (
    ENHANCED,
    LEASE_BASED,
    ONE,
    OURS,
    PHASES,
    SLOW,
    WAYS,
    WORKERS,
    Bill,
    Table,
    history_life,
    least_life,
    live,
    total,
)
from tests.support.dynamodb_server import DynamoDbServer

pytestmark = pytest.mark.integration

PARTITIONS = 400


def life_of(way: str, server: DynamoDbServer, *, workers: int, partitions: int = PARTITIONS, seed: int = 0) -> Bill:
    bill = live(WAYS[way], Table(server), workers=workers, partitions=partitions, seed=seed)
    return {phase: bill[phase].divided_by(partitions) for phase in PHASES}


@pytest.fixture(scope="module")
def bills(dynamodb: DynamoDbServer) -> dict[str, Bill]:
    return {way: life_of(way, dynamodb, workers=WORKERS) for way in (ENHANCED, OURS)}


def test_eight_workers_make_half_the_requests_of_the_enhanced_coordinator(bills: dict[str, Bill]) -> None:
    requests = {way: total(bill.values()).requests for way, bill in bills.items()}

    assert requests[OURS] <= 0.5 * requests[ENHANCED]


def test_eight_workers_acquire_with_half_the_requests(
    bills: dict[str, Bill],
) -> None:
    assert bills[OURS]["acquire"].requests <= 0.5 * bills[ENHANCED]["acquire"].requests


def test_eight_workers_use_less_capacity_than_the_enhanced_coordinator(bills: dict[str, Bill]) -> None:
    units = {way: total(bill.values()).units for way, bill in bills.items()}

    assert units[OURS] <= 0.81 * units[ENHANCED]


def test_eight_workers_stay_near_the_minimum_capacity(bills: dict[str, Bill]) -> None:
    least = total(least_life(store_cost.AT_A_TIME).values())

    assert total(bills[OURS].values()).units <= 1.2 * least.units


@pytest.mark.parametrize(("way", "at_a_time"), [(ONE, 1), (OURS, store_cost.AT_A_TIME)])
def test_single_worker_pays_the_minimum_and_its_checks(way: str, at_a_time: int, dynamodb: DynamoDbServer) -> None:
    least = least_life(at_a_time)
    least["acquire"].add(store_cost.CHECKS.divided_by(40))  # all of it takes less than five seconds

    assert life_of(way, dynamodb, workers=1, partitions=40) == least


def test_slow_worker_checks_at_each_acquisition(dynamodb: DynamoDbServer) -> None:
    least = least_life(1)
    least["acquire"].add(store_cost.CHECKS)

    assert life_of(SLOW, dynamodb, workers=1, partitions=10) == least


def test_single_worker_makes_no_more_requests_than_the_enhanced_coordinator(
    dynamodb: DynamoDbServer,
) -> None:
    ours, theirs = (
        total(life_of(way, dynamodb, workers=1, partitions=40).values()).requests for way in (ONE, ENHANCED)
    )

    assert ours <= theirs


def test_lease_based_model_alone_reads_before_each_write(dynamodb: DynamoDbServer) -> None:
    bill = life_of(LEASE_BASED, dynamodb, workers=1, partitions=20)

    assert {phase: cost.requests for phase, cost in bill.items()} == {
        "create": 2,
        "acquire": 3,
        "checkpoint": 2,
        "complete": 2,
    }


def test_enhanced_model_alone_writes_without_reading(dynamodb: DynamoDbServer) -> None:
    bill = life_of(ENHANCED, dynamodb, workers=1, partitions=20)

    assert {phase: cost.requests for phase, cost in bill.items()} == {
        "create": 1,
        "acquire": 3,
        "checkpoint": 1,
        "complete": 1,
    }


@pytest.mark.only_deep
@pytest.mark.parametrize("way", [LEASE_BASED, ENHANCED, OURS])
def test_same_order_of_workers_costs_the_same(way: str, dynamodb: DynamoDbServer) -> None:
    first, second = (life_of(way, dynamodb, workers=4, partitions=40) for _ in range(2))

    assert first == second


def test_history_adds_at_most_a_tenth_of_writes(dynamodb: DynamoDbServer) -> None:
    off, on = (
        history_life(dynamodb, partitions=100, at_a_time=store_cost.AT_A_TIME, saves=2, history=history)
        for history in (False, True)
    )

    assert off.writes == 5 * 100  # created, acquired, saved twice, completed
    assert off.writes < on.writes <= 1.1 * off.writes
    assert off.write_units < on.write_units <= 1.1 * off.write_units


@pytest.mark.only_deep
def test_last_line_is_json(dynamodb: DynamoDbServer, capsys: pytest.CaptureFixture[str]) -> None:
    # It starts its own server; the fixture skips this test if there is none.
    store_cost.main(["--partitions", "8", "--orders", "1"])

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures.keys() == {
        "to_enhanced",
        "to_lease_based",
        "requests_per_partition",
        "capacity_to_least",
        "empty_poll_to_lease_based",
        "with_history_to_without",
    }
