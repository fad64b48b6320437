"""The example DAGs of a source that reopens, under a whole Airflow: one waits for it, it starts the other one."""

from __future__ import annotations

from collections.abc import Callable

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus
from tests.support.standalone import Standalone

SLEEPING, WOKEN = "reopening_source", "reopening_source_on_work"


def test_run_waits_for_reopening_and_new_work_triggers_another_dag(
    airflow: Standalone, look: Callable[[str], SourceCoordinator]
) -> None:
    source = look(SLEEPING)
    run_id = airflow.trigger(SLEEPING, {"closed_seconds": 15})
    airflow.until("it sleeps", lambda: airflow.task_state(SLEEPING, run_id, "wake") == "deferred")
    assert airflow.wait_for_run(SLEEPING, run_id) == "success"
    assert airflow.xcom(SLEEPING, run_id, "wake")["reopened"] == 3
    assert {partition.progress["scans"] for partition in source.view.partitions()} == {2}
    assert source.view.count_by_status()[PartitionStatus.COMPLETED] == 3

    source.create_partitions({"shed": {"scans": 0}})
    airflow.watch_for(WOKEN)

    def is_scanned() -> bool:
        shed = source.view.get("shed")
        return shed is not None and shed.progress["scans"] == 1

    airflow.until("it is scanned", is_scanned)
