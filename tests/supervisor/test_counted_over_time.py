"""Counts of jobs enter the series of the lag and show throughput and bad records over time."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_coordination.coordination.job_reports import JobReport, RecordCounts
from airflow_provider_coordination.supervisor.observation import LagReading, LagSeries
from tests.supervisor.source_simulation import SourceSimulation, SparkJob

MINUTE = timedelta(minutes=1)


def report(simulation: SourceSimulation, job: SparkJob, **totals: int) -> None:
    assert job.record is not None
    job.record.note(report=JobReport(at=simulation.clock.now(), totals=RecordCounts(**totals)).to_text())


def test_point_includes_counts_of_all_jobs_and_ended_ones() -> None:
    simulation = SourceSimulation("S0", "S1")
    simulation.submit(task_count=2)
    simulation.turn()
    first, second = simulation.begin()
    report(simulation, first, processed=10, unparseable=1)
    report(simulation, second, processed=5, processed_bytes=70)
    simulation.clock.advance(60)
    simulation.turn()
    first.end()
    simulation.turn()
    report(simulation, second, processed=8, processed_bytes=90)
    simulation.clock.advance(60)
    simulation.turn()

    counted = [point.counted for point in simulation.store.lag().points[-2:]]

    assert counted == [
        RecordCounts(processed=15, processed_bytes=70, unparseable=1),
        RecordCounts(processed=18, processed_bytes=90, unparseable=1),
    ]


SCALING = {
    "task_count_min": 4, "task_count_max": 9, "lag_collection_interval": 10, "lag_collection_range": 30,
    "scale_action_start_delay": 0, "scale_action_period": 10, "scale_out_threshold": 60, "scale_in_threshold": 1,
    "min_trigger_scale_action_frequency": 300,
}  # fmt: skip


def go_on(simulation: SourceSimulation, seconds: int, *, lag_ms: int) -> None:
    """Let time pass while every partition lags as much, whoever reads it."""
    simulation.stream.lag_ms = dict.fromkeys(simulation.stream.shards, lag_ms)
    for _ in range(seconds // 10):
        for job in simulation.begin():
            job.report(**dict.fromkeys(job.coordinator.leases.held, lag_ms))
        simulation.go_on(10)


def test_minimum_above_the_partitions_delays_no_scaling() -> None:
    simulation = SourceSimulation("S0", "S1", "S2")
    simulation.submit(task_count=4, auto_scale=SCALING)
    simulation.turn()
    go_on(simulation, 700, lag_ms=0)
    assert len(simulation.running) == 3
    [refusal] = simulation.supervision().task_count_changes
    assert (refusal.before, refusal.after, simulation.supervision().scaled_at) == (3, 3, None)
    assert refusal.reason.endswith("not changed: only 3 partitions can be read")

    simulation.stream.shards += ["S3", "S4", "S5"]
    simulation.stream.discover_partitions()
    go_on(simulation, 60, lag_ms=90_000)
    assert [(c.before, c.after) for c in simulation.supervision().task_count_changes if not c.is_refusal] == [(4, 6)]
    assert len(simulation.running) == 6


def test_count_above_the_partitions_scales_from_running_jobs() -> None:
    simulation = SourceSimulation("S0", "S1", "S2")
    simulation.submit(task_count=9, auto_scale={**SCALING, "task_count_min": 1})
    simulation.turn()
    go_on(simulation, 60, lag_ms=0)
    changes = simulation.supervision().task_count_changes
    assert [(c.before, c.after) for c in changes if not c.is_refusal] == [(3, 2)]


def test_window_shorter_than_the_start_of_a_turn_scales() -> None:
    simulation = SourceSimulation("S0", "S1", "S2")
    window = {"lag_collection_interval": 1, "lag_collection_range": 5, "scale_action_period": 1}
    simulation.submit(task_count=1, auto_scale={**SCALING, **window, "task_count_min": 1})
    simulation.turn()
    [first] = simulation.begin()
    first.coordinator.leases.give_up_all()
    first.is_reading = False
    simulation.stream.lag_ms = dict.fromkeys(simulation.stream.shards, 90_000)
    for _ in range(8):
        simulation.clock.advance(1)
        if simulation.supervisor.poll().needs_turn:
            simulation.clock.advance(8)  # a worker starts
            simulation.turn()
    assert simulation.supervision().task_count == 3
    assert len(simulation.running) == 3


def test_counts_survive_storing_and_thinning() -> None:
    series = LagSeries()
    at = SourceSimulation().clock.now()
    for minute in range(60):
        counted = RecordCounts(processed=minute, thrown_away=2 * minute)
        series = series.with_reading(
            LagReading(at=at + minute * MINUTE, counted=counted, freshness_ms=minute, watermark_ms=7)
        )
    read = LagSeries.from_mapping(series.to_mapping())

    assert read.points == series.points
    assert all(point.counted.processed == (point.at - at) / MINUTE for point in read.points)
    assert (read.points[-1].counted.thrown_away, read.points[-1].freshness_ms) == (118, 59)
    assert read.points[-1].watermark_ms == 7
