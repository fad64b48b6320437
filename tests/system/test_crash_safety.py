"""A Spark driver is killed at every critical point, and each event is delivered exactly once."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.spark_job import MakePipeline, Pipeline

TRANSFORM = "tests.support.transforms:keep_data"


def a_pipeline_with_a_split(make_pipeline: MakePipeline) -> Pipeline:
    pipeline = make_pipeline(2)
    pipeline.send(20)
    pipeline.sync()
    pipeline.split_a_shard()
    pipeline.send(20)
    return pipeline


@pytest.mark.only_deep
@pytest.mark.parametrize(
    ("transform", "deaths"),
    [
        pytest.param(None, ["landed:1", "recorded:1", "delivering:2", "delivered:1"], id="published"),
        pytest.param(TRANSFORM, ["delivering:2", "delivered:1"], id="transformed"),
    ],
)
def test_events_are_delivered_once_despite_dead_drivers(
    make_pipeline: MakePipeline, transform: str | None, deaths: list[str]
) -> None:
    pipeline = a_pipeline_with_a_split(make_pipeline)
    for crash_at in deaths:
        crashed = pipeline.crash(crash_at, transform=transform)
        assert crashed.process.returncode != 0
        assert "coordination-summary" not in crashed.output
        # Batches are delivered side by side, so one of the shards may be finished when the driver dies with another.
        assert pipeline.statuses()[PartitionStatus.ASSIGNED] >= 1, "the dead driver still holds its leases"
        pipeline.coordinator().give_up_owner(crashed.settings.owner)  # what the operator does at once
        pipeline.send(20)

    good = pipeline.run(transform=transform)

    assert good.process.returncode == 0, good.output
    pipeline.assert_exactly_once()
    assert pipeline.landed_files() == [], "what the dead drivers landed is delivered or swept"
    assert pipeline.statuses() == {
        PartitionStatus.COMPLETED: 1,
        PartitionStatus.UNASSIGNED: 3,
        PartitionStatus.ASSIGNED: 0,
        PartitionStatus.CLOSED: 0,
    }
    for crash_at, next_one in zip(deaths, pipeline.jobs[1:], strict=True):
        assert "batches landed and not delivered=1" in next_one.output or crash_at == "landed:1", crash_at
