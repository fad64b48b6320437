"""A Spark driver is killed at every point where it could matter, and each event is still delivered exactly once."""

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


@pytest.mark.parametrize(
    ("crash_at", "transform"),
    [
        ("landed:1", None),
        ("recorded:1", None),
        ("delivering:2", None),
        ("delivered:1", None),
        ("delivering:2", TRANSFORM),
        ("delivered:1", TRANSFORM),
    ],
    ids=lambda value: "transformed" if value == TRANSFORM else value or "published",
)
def test_each_event_is_delivered_once_although_the_driver_died(
    make_pipeline: MakePipeline, crash_at: str, transform: str | None
) -> None:
    pipeline = a_pipeline_with_a_split(make_pipeline)
    crashed = pipeline.crash(crash_at, transform=transform)
    assert crashed.process.returncode != 0
    assert "coordination-summary" not in crashed.output
    # Batches are delivered side by side, so one of the two shards may be finished when the driver dies with the other.
    assert pipeline.statuses()[PartitionStatus.ASSIGNED] >= 1, "the dead driver still holds its leases"

    pipeline.coordinator().give_up_owner(crashed.settings.owner)  # what the operator does at once
    good = pipeline.run(transform=transform)

    assert good.process.returncode == 0, good.output
    pipeline.assert_exactly_once()
    assert pipeline.landed_files() == [], "what the dead driver landed is delivered or swept"
    assert pipeline.statuses() == {
        PartitionStatus.COMPLETED: 1,
        PartitionStatus.UNASSIGNED: 3,
        PartitionStatus.ASSIGNED: 0,
        PartitionStatus.CLOSED: 0,
    }
    assert "batches landed and not delivered=1" in good.output or crash_at == "landed:1"
