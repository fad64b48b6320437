"""Scaling never acts on lag from before an action. Each test does something in the middle of a window."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.supervision import TaskCountChange
from tests.supervisor.source_simulation import SourceSimulation, spec

SCALING = {
    "task_count_min": 1, "task_count_max": 4, "task_count_start": 2, "scale_out_step": 1,
    "lag_collection_interval": 10, "lag_collection_range": 60, "scale_action_start_delay": 0,
    "scale_action_period": 10, "min_trigger_scale_action_frequency": 0,
    "scale_out_threshold": 60, "trigger_scale_out_fraction": 0.5, "scale_in_threshold": 1,
}  # fmt: skip
NEUTRAL, OUT, IN = 30_000, 90_000, 0
FIRST_WINDOW = "5 of 5 points"
"""A window that was emptied is complete with two thirds of its seven points. One that was not has seven."""


def source(*shards: str, **scaling: Any) -> SourceSimulation:
    """Return a source with two jobs, a full window that requires nothing, and a bit of lag."""
    simulation = SourceSimulation(*(shards or ("S0", "S1", "S2", "S3", "S4", "S5")))
    simulation.submit(period=10, auto_scale={**SCALING, **scaling})
    simulation.turn()
    go_on(simulation, 120, NEUTRAL)
    go_on(simulation, 30, OUT)
    assert changes(simulation) == []
    assert len(simulation.running) == 2
    return simulation


def go_on(simulation: SourceSimulation, seconds: int, lag_ms: int) -> None:
    """Let time pass while every partition lags as much, whoever reads it."""
    simulation.stream.lag_ms = dict.fromkeys(simulation.stream.shards, lag_ms)
    for _ in range(seconds // 10):
        for job in simulation.running:
            if job.record is not None:
                job.report(**dict.fromkeys(job.coordinator.leases.held, lag_ms))
        simulation.go_on(10)


def changes(simulation: SourceSimulation) -> list[TaskCountChange]:
    """Return the changes of scaling."""
    all_changes = simulation.supervision().task_count_changes
    return [change for change in all_changes if not change.is_refusal and "points" in change.reason]


def test_lag_scales_after_half_a_window_without_an_action() -> None:
    simulation = source()
    go_on(simulation, 20, OUT)
    assert [change.reason[:13] for change in changes(simulation)] == ["4 of 7 points"]


def edit(simulation: SourceSimulation) -> None:
    simulation.submit(period=10, auto_scale={**SCALING, "scale_in_step": 2})


def hand_over(simulation: SourceSimulation) -> None:
    simulation.store.request_handover()
    go_on(simulation, 30, OUT)
    assert simulation.owners == ["job-3", "job-4"]


def suspend(simulation: SourceSimulation) -> None:
    simulation.suspend()
    go_on(simulation, 100, OUT)
    assert simulation.running == []
    simulation.resume()
    go_on(simulation, 20, OUT)


def suspend_briefly(simulation: SourceSimulation) -> None:
    simulation.suspend()
    go_on(simulation, 10, OUT)
    simulation.resume()
    go_on(simulation, 30, OUT)


def reset(simulation: SourceSimulation) -> None:
    simulation.store.record_reset()


def fail_and_start_again(simulation: SourceSimulation) -> None:
    simulation.running[0].end(1, "OutOfMemoryError: no")
    go_on(simulation, 20, OUT)
    simulation.cluster.refuses = RuntimeError("no room")
    go_on(simulation, 30, OUT)
    simulation.cluster.refuses = None
    while len([job for job in simulation.running if job.is_reading]) < 2:
        go_on(simulation, 10, OUT)
    go_on(simulation, 10, OUT)  # the supervisor sees that it reads


@pytest.mark.parametrize("act", [edit, hand_over, suspend, suspend_briefly, reset, fail_and_start_again])
def test_lag_before_an_action_is_ignored(act: Any) -> None:
    simulation = source()
    act(simulation)
    assert changes(simulation) == []
    go_on(simulation, 80, OUT)
    assert changes(simulation)[0].reason.startswith(FIRST_WINDOW)


def test_lag_before_waking_is_ignored() -> None:
    simulation = SourceSimulation("S0", "S1", "S2")
    scaling = {**SCALING, "task_count_min": 1, "task_count_start": 1}
    simulation.submit(period=10, idle_after=100, auto_scale=scaling)
    simulation.turn()
    go_on(simulation, 200, IN)
    assert simulation.supervision().idle is not None
    go_on(simulation, 100, OUT)
    assert changes(simulation)[0].reason.startswith(FIRST_WINDOW)


@pytest.mark.parametrize(("lag_ms", "after"), [(OUT, [3, 4]), (IN, [1])])
def test_lag_before_a_change_is_ignored(lag_ms: int, after: list[int]) -> None:
    simulation = source()
    go_on(simulation, 200, lag_ms)
    assert [change.after for change in changes(simulation)][: len(after)] == after
    assert all(change.reason.startswith(FIRST_WINDOW) for change in changes(simulation)[1:])


def test_lag_before_a_change_that_came_too_soon_is_ignored() -> None:
    simulation = source(min_trigger_scale_action_frequency=80)
    go_on(simulation, 180, OUT)
    first, second = changes(simulation)[:2]
    assert second.reason.startswith(FIRST_WINDOW)
    assert (second.at - first.at).total_seconds() > 100


def test_lag_before_a_change_beyond_the_bound_is_ignored() -> None:
    simulation = source("S0", "S1")
    go_on(simulation, 100, OUT)
    assert changes(simulation) == []
    refusal = simulation.supervision().task_count_changes[-1]
    assert refusal.reason.endswith("not changed: only 2 partitions can be read")
    simulation.stream.shards += ["S2", "S3"]
    simulation.stream.discover_partitions()
    go_on(simulation, 60, OUT)
    assert changes(simulation)[0].reason.startswith(FIRST_WINDOW)


@pytest.mark.parametrize(("gain", "is_scaled"), [(-50_000, False), (0, True)], ids=["catches up", "falls no further"])
def test_jobs_that_catch_up_need_no_further_ones(gain: int, is_scaled: bool) -> None:
    simulation = SourceSimulation("S0", "S1")
    simulation.submit(period=10, auto_scale={**SCALING, "task_count_start": 1, "scale_out_threshold": 100})
    simulation.turn()
    lag_ms = 560_000
    for number in range(10):
        for job in simulation.begin():
            lags = dict.fromkeys(simulation.stream.shards, lag_ms)
            job.report(processed_bytes=number * 1_000_000, slots=4, **lags)
        simulation.go_on(10)
        lag_ms = lag_ms + gain
    assert bool(changes(simulation)) is is_scaled
    if is_scaled:
        assert changes(simulation)[0].reason.endswith("records for at least 100 s, at 0.025 MB/s a slot")


def test_window_longer_than_a_job_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="task_duration' must be at least 'lag_collection_range' of"):
        IngestionSpec.read(spec(task_duration=30, auto_scale=SCALING))
