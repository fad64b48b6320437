"""What coordination costs on DynamoDB is counted, not timed, so that its aims are asserted here."""

from __future__ import annotations

import json

import pytest

from benchmarks import store_cost
from benchmarks.store_cost import MODEL, OURS, PHASES, WAYS, Bill, Table, history_life, least_life, live, total
from tests.support.dynamodb_local import DynamoDbLocal

pytestmark = pytest.mark.integration

PARTITIONS = 160


def life_of(way: str, server: DynamoDbLocal, *, workers: int, partitions: int = PARTITIONS, seed: int = 0) -> Bill:
    bill = live(WAYS[way], Table(server), workers=workers, partitions=partitions, seed=seed)
    return {phase: bill[phase].divided_by(partitions) for phase in PHASES}


@pytest.fixture(scope="module")
def competing(dynamodb: DynamoDbLocal) -> dict[str, Bill]:
    return {way: life_of(way, dynamodb, workers=8) for way in (MODEL, OURS)}


def test_eight_workers_make_at_most_half_of_data_preppers_requests(competing: dict[str, Bill]) -> None:
    requests = {way: total(bill.values()).requests for way, bill in competing.items()}

    assert requests[OURS] <= 0.5 * requests[MODEL]


def test_eight_workers_acquire_with_at_most_half_of_data_preppers_requests(competing: dict[str, Bill]) -> None:
    assert competing[OURS]["acquire"].requests <= 0.5 * competing[MODEL]["acquire"].requests


def test_eight_workers_use_at_most_a_fifth_more_capacity_than_the_least(competing: dict[str, Bill]) -> None:
    least = total(least_life(store_cost.AT_A_TIME).values())

    assert total(competing[OURS].values()).units <= 1.2 * least.units


def test_a_worker_alone_pays_the_least_and_a_look_whether_the_source_is_suspended(dynamodb: DynamoDbLocal) -> None:
    least = least_life(store_cost.AT_A_TIME)
    least["acquire"].add(store_cost.LOOK.divided_by(40))  # all of it takes less than five seconds

    assert life_of(OURS, dynamodb, workers=1, partitions=40) == least


def test_the_model_alone_reads_before_each_write(dynamodb: DynamoDbLocal) -> None:
    requests = {phase: cost.requests for phase, cost in life_of(MODEL, dynamodb, workers=1, partitions=20).items()}

    assert requests == {"create": 2, "acquire": 3, "checkpoint": 2, "complete": 2}


@pytest.mark.parametrize("way", [MODEL, OURS])
def test_the_same_order_of_workers_costs_the_same(way: str, dynamodb: DynamoDbLocal) -> None:
    first, second = (life_of(way, dynamodb, workers=4, partitions=40) for _ in range(2))

    assert first == second


def test_the_history_costs_a_job_at_most_one_more_write_in_ten_its_deletion_included(dynamodb: DynamoDbLocal) -> None:
    off, on = (
        history_life(dynamodb, partitions=100, at_a_time=store_cost.AT_A_TIME, saves=2, history=history)
        for history in (False, True)
    )

    assert off.writes == 5 * 100  # created, acquired, saved twice, completed
    assert off.writes < on.writes <= 1.1 * off.writes
    assert off.write_units < on.write_units <= 1.1 * off.write_units


def test_it_ends_with_a_line_of_figures(dynamodb: DynamoDbLocal, capsys: pytest.CaptureFixture[str]) -> None:
    store_cost.main(
        ["--partitions", "8", "--orders", "1"]
    )  # on a server of its own; the one here tells that it can be had

    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures.keys() == {
        "requests_per_partition",
        "requests_to_data_prepper",
        "capacity_to_least",
        "empty_poll_to_data_prepper",
        "with_history_to_without",
    }
