"""A supervisor at work over a real store: what it starts, ends, notes and survives."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.supervisor.states import DetailedState
from tests.supervisor.world import World


@pytest.fixture
def world() -> World:
    return World("S0", "S1")


def test_the_first_turn_finds_the_shards_and_starts_the_jobs(world: World) -> None:
    world.submit(task_count=2)
    turn = world.turn()
    assert [type(action).__name__ for action in turn.actions] == ["LookForPartitions", "StartJob", "StartJob"]
    assert world.state is DetailedState.RUNNING
    assert [job.round(1) for job in world.begin()] == [["S0"], ["S1"]]
    assert not world.supervisor.look().needs_turn
