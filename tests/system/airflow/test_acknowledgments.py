"""Acknowledgments and triggers under a whole Airflow, with a real Spark job where data is delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone

CHECKED = "acknowledged_delivery"
DOORBELL = "doorbell"


def run(airflow: Standalone, dag_id: str, conf: dict[str, Any]) -> tuple[str, str]:
    """Run a DAG to its end; return the run and its state."""
    run_id = airflow.trigger(dag_id, conf)
    airflow.until("the run ends", lambda: airflow.state(dag_id, run_id) in ("success", "failed"), 300)
    return run_id, airflow.state(dag_id, run_id)


@pytest.mark.only_deep
def test_rejected_batch_is_redelivered_and_replaced(
    airflow: Standalone, pipeline: Pipeline, look: Callable[[str], SourceCoordinator]
) -> None:
    pipeline.send(20)
    pipeline.output = pipeline.folder / "out" / "staging"
    conf = {"stream": pipeline.stream, "output_path": str(pipeline.output.parent)}

    _, state = run(airflow, CHECKED, conf | {"required_field": "missing"})
    assert state == "failed"
    [rejected] = look(f"{pipeline.stream}-checked").view.partitions()
    assert rejected.attempts == 1 and "has no field 'missing'" in str(rejected.last_error)
    [staged] = pipeline.output.glob("*.parquet")
    pq.write_table(pq.read_table(staged).slice(1), staged)  # nobody's word is good for this file any more

    _, state = run(airflow, CHECKED, conf | {"required_field": "id"})
    assert state == "success"
    assert pipeline.delivered() == Counter(pipeline.sent)
    [accepted] = look(f"{pipeline.stream}-checked").view.partitions()
    assert (accepted.status, accepted.attempts, accepted.progress["landed"]) == (PartitionStatus.UNASSIGNED, 0, [])


@pytest.mark.only_deep
def test_run_starts_with_new_work_and_again_after_reopening(
    airflow: Standalone, look: Callable[[str], SourceCoordinator]
) -> None:
    source = look(DOORBELL)

    def are_completed(count: int) -> bool:
        return source.view.count_by_status()[PartitionStatus.COMPLETED] == count

    source.create_partitions({"at once": {}})
    airflow.until("the first partition is worked on", lambda: are_completed(1))
    with_reopening = source.clock.now() + timedelta(seconds=8)
    source.store.create([source.view.new("later", {}).resting(with_reopening)])
    airflow.until("the second one reopens", lambda: are_completed(2))
