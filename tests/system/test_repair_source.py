"""The example DAG for manual repairs of a source, unchanged, on PostgreSQL: leases, parked partitions, positions."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition
from airflow_provider_coordination.stores import StoreSettings, open_store
from tests.airflow.conftest import REPOSITORY, run_dag
from tests.support.airflow_dags import DagBag

MINUTE = timedelta(minutes=1)
Repair = Callable[..., dict[str, str]]


@pytest.fixture
def source(connect: Callable[..., None], postgres_url: str) -> SourceCoordinator:
    connect("coordination_default", "coordination", extra={"store": "sql", "url": postgres_url})
    coordinator = SourceCoordinator(open_store(StoreSettings.from_url(postgres_url)), "clicks", "test")
    coordinator.initialize()
    now = datetime.now(UTC)
    coordinator.create_partitions({key: {"rows": 7} for key in ("alive", "dead", "parked")})
    changes: dict[str, Callable[[Partition], Partition]] = {
        "alive": lambda partition: partition.acquired("host", now + 10 * MINUTE),
        "dead": lambda partition: partition.acquired("gone", now - MINUTE),
        "parked": lambda partition: partition.failed("no luck").resting(PARKED_UNTIL),
    }
    for key, change in changes.items():
        coordinator.store.transact(update=[change(partition_of(coordinator, key))])
    return coordinator


@pytest.fixture
def repair() -> Repair:
    dag = DagBag(os.fspath(REPOSITORY / "dags" / "repair_source.py")).dags["repair_source"]
    return lambda **params: {ti.task_id: str(ti.state) for ti in run_dag(dag, **params).get_task_instances()}


def partition_of(source: SourceCoordinator, key: str) -> Partition:
    partition = source.view.get(key)
    assert partition is not None
    return partition


def statuses(source: SourceCoordinator) -> dict[str, tuple[str, str | None]]:
    return {p.partition_key: (str(p.status), p.owner) for p in source.view.partitions()}


def test_running_lease_is_ended_only_on_request(source: SourceCoordinator, repair: Repair) -> None:
    without_params = repair()

    done, skipped = "success", "skipped"
    expected = {"release": done, "reopen": done, "is_reset_requested": done, "reset": skipped, "work_available": done}
    assert without_params == expected
    assert statuses(source) == {
        "alive": ("ASSIGNED", "host"), "dead": ("UNASSIGNED", None), "parked": ("CLOSED", None)
    }  # fmt: skip

    forced = repair(
        end_running_leases=True, partition_keys=["alive", "parked"], reopen_parked=True, reset_to="earliest"
    )
    assert forced == {**expected, "reset": done}
    assert statuses(source) == dict.fromkeys(("alive", "dead", "parked"), ("UNASSIGNED", None))
    assert [partition_of(source, key).progress for key in ("alive", "dead", "parked")] == [{}, {"rows": 7}, {}]
