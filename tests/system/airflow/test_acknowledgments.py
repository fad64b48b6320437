"""Acknowledgments and triggers under a whole Airflow, with a real Spark job where data is delivered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pyarrow.parquet as pq
import pytest

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState, item_of
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.batches import SourceBatches
from demo.airflow_home import task_log
from tests.support.spark_job import Pipeline
from tests.support.standalone import Standalone

CONFIRMED = "confirmed_ingestion"
CHECKED = "acknowledged_delivery"
DOORBELL = "doorbell"


def is_deferred(airflow: Standalone, run_id: str) -> bool:
    state = airflow.task_state(CONFIRMED, run_id, "wait")
    assert state not in ("success", "failed", "upstream_failed"), airflow.task_instances(CONFIRMED, run_id)
    return state == "deferred"


def run(airflow: Standalone, dag_id: str, conf: dict[str, Any]) -> tuple[str, str]:
    """Run a DAG to its end; return the run and its state."""
    run_id = airflow.trigger(dag_id, conf)
    airflow.until("the run ends", lambda: airflow.state(dag_id, run_id) in ("success", "failed"), 300)
    return run_id, airflow.state(dag_id, run_id)


def let_expire(source: SourceCoordinator, sets: AcknowledgmentSets) -> None:
    """Let the time of the only set that waits be up."""
    [waiting] = sets.view.pending()
    overdue = replace(waiting, expires_at=source.clock.now())
    source.store.transact(update=[item_of(overdue, sets.view.source_identifier)])


def test_set_expiring_during_deferral_ends_despite_a_dead_triggerer(
    airflow: Standalone, pipeline: Pipeline, look: Callable[[str], SourceCoordinator]
) -> None:
    pipeline.send(20)
    conf = {"stream": pipeline.stream, "output_path": str(pipeline.output), "timeout_seconds": 3600}

    unconfirmed = airflow.trigger(CONFIRMED, conf | {"confirm": False})
    airflow.until("the wait is deferred", lambda: is_deferred(airflow, unconfirmed))
    source = look(pipeline.stream)
    sets = AcknowledgmentSets(source, SourceBatches())
    with airflow.without("triggerer"):
        let_expire(source, sets)
    airflow.until("the wait ends", lambda: airflow.task_state(CONFIRMED, unconfirmed, "wait") == "failed")

    [expired] = sets.view.ended_since(source.clock.now() - timedelta(hours=1))
    assert expired.state is AcknowledgmentState.EXPIRED
    assert expired.ended_at is not None and expired.ended_at >= expired.expires_at
    [available] = source.view.partitions()
    assert (available.status, available.attempts) == (PartitionStatus.UNASSIGNED, 1)
    [wait] = [t for t in airflow.task_instances(CONFIRMED, unconfirmed) if t["task_id"] == "wait"]
    assert "EXPIRED" in task_log(airflow.home, wait, 200)

    confirmed, state = run(airflow, CONFIRMED, conf | {"confirm": True})
    assert state == "success"
    assert airflow.xcom(CONFIRMED, confirmed, "ingest")["records_landed"] == 0, "it was landed before"
    assert not list(sets.view.pending())
    [done] = source.view.partitions()
    assert (done.status, done.attempts, done.progress["landed"]) == (PartitionStatus.UNASSIGNED, 0, [])
    assert pipeline.delivered() == Counter(pipeline.sent)


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
