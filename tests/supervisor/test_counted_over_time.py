"""What jobs count goes into the series of the lag, so that throughput and bad records can be seen over time."""

from __future__ import annotations

from datetime import timedelta

from airflow_provider_coordination.coordination.job_reports import JobReport, RecordCounts
from airflow_provider_coordination.supervisor.lag import LagReading, LagSeries
from tests.supervisor.world import SparkJob, World

MINUTE = timedelta(minutes=1)


def report(world: World, job: SparkJob, **totals: int) -> None:
    assert job.record is not None
    job.record.note(report=JobReport(at=world.clock.now(), totals=RecordCounts(**totals)).to_text())


def test_a_point_has_what_all_jobs_had_counted_by_then_those_that_have_ended_too() -> None:
    world = World("S0", "S1")
    world.submit(task_count=2)
    world.turn()
    first, second = world.begin()
    report(world, first, processed=10, unparseable=1)
    report(world, second, processed=5, processed_bytes=70)
    world.clock.advance(60)
    world.turn()
    first.end()
    world.turn()
    report(world, second, processed=8, processed_bytes=90)
    world.clock.advance(60)
    world.turn()

    counted = [point.counted for point in world.store.lag().points[-2:]]

    assert counted == [
        RecordCounts(processed=15, processed_bytes=70, unparseable=1),
        RecordCounts(processed=18, processed_bytes=90, unparseable=1),
    ]


def test_what_was_counted_survives_being_stored_and_thinned() -> None:
    series = LagSeries()
    at = World().clock.now()
    for minute in range(60):
        counted = RecordCounts(processed=minute, thrown_away=2 * minute)
        series = series.with_reading(LagReading(at=at + minute * MINUTE, counted=counted))
    read = LagSeries.from_mapping(series.to_mapping())

    assert read.points == series.points
    assert all(point.counted.processed == (point.at - at) / MINUTE for point in read.points)
    assert read.points[-1].counted.thrown_away == 118
