"""The examples of a source that rests, under a whole Airflow: one waits for it, the other one is started by it."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.standalone import Standalone

SLEEPING, WOKEN = "reopening_source", "reopening_source_on_work"


def test_a_run_sleeps_until_its_partitions_reopen_and_work_that_appears_later_starts_the_other_dag(
    airflow: Standalone, look: Callable[[str], SourceCoordinator]
) -> None:
    source = look(SLEEPING)
    run_id = airflow.trigger(SLEEPING, {"closed_seconds": 15})
    airflow.until("it sleeps", lambda: airflow.task_state(SLEEPING, run_id, "wake") == "deferred")
    assert airflow.wait_for_run(SLEEPING, run_id) == "success"
    assert airflow.xcom(SLEEPING, run_id, "wake")["reopened"] == 3
    assert {partition.progress["looks"] for partition in source.view.partitions()} == {2}
    assert source.view.count_by_status()[PartitionStatus.COMPLETED] == 3

    source.create_partitions({"shed": {"looks": 0}})
    airflow.watch_for(WOKEN)

    def is_looked_at() -> bool:
        shed = source.view.get("shed")
        return shed is not None and shed.progress["looks"] == 1

    airflow.until("it is looked at", is_looked_at)
