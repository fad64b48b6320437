"""The example DAG of a source that reopens: it imports without services, is woken, and finishes."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.triggers.partitions import PartitionsAvailableTrigger
from tests.airflow.conftest import REPOSITORY, run_dag
from tests.support.airflow_dags import DagBag

SOURCE = "reopening_source"


@pytest.fixture(scope="module")
def dags() -> Any:
    bag = DagBag(str(REPOSITORY / "dags" / "reopening_source.py"))
    assert bag.import_errors == {}
    return bag.dags


@pytest.fixture
def source(coordination: SourceCoordinator, store_url: str) -> SourceCoordinator:
    coordinator = SourceCoordinator(open_store(StoreSettings.from_url(store_url)), SOURCE, "test")
    coordinator.initialize()
    return coordinator


def test_run_sleeps_between_the_scans(dags: Any) -> None:
    dag = dags["reopening_source"]
    order = [task.task_id for task in dag.topological_sort()]
    assert order == ["find_locations", "scan", "wake", "scan_again", "done"]
    assert {dag.get_task(name).deferrable for name in ("wake", "done")} == {True}


def test_other_dag_is_started_by_a_doorbell(dags: Any) -> None:
    [asset] = dags["reopening_source_on_work"].timetable.asset_condition.objects
    [watcher] = asset.watchers
    assert isinstance(watcher.trigger, PartitionsAvailableTrigger)
    assert (watcher.trigger.source, watcher.trigger.interval, watcher.trigger.deadline) == (SOURCE, 60.0, None)


@pytest.mark.integration  # needs no server, but Airflow's own database, and so seconds
def test_run_finishes_every_location(dags: Any, database: None, source: SourceCoordinator) -> None:
    done = run_dag(dags["reopening_source"], closed_seconds=3)

    assert done.state == "success"
    instances = {ti.task_id: ti for ti in done.get_task_instances()}
    woken = instances["wake"].xcom_pull(task_ids="wake")
    assert (woken["reopened"], woken["closed"]) == (3, 0)
    assert instances["done"].xcom_pull(task_ids="done")["COMPLETED"] == 3
    assert {partition.progress["scans"] for partition in source.view.partitions()} == {2}
