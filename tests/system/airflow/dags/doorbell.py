"""A run starts whenever there is work, and does it."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

from airflow.sdk import DAG, Asset, AssetWatcher, get_current_context, task

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import owner_of_try
from airflow_provider_coordination.triggers.partitions import PartitionsAvailableTrigger

SOURCE = "doorbell"
WORK = Asset(
    name="doorbell_work",
    uri="x-coordination://doorbell/work",
    watchers=[AssetWatcher(name="doorbell_work", trigger=PartitionsAvailableTrigger(source=SOURCE, interval=5))],
)

with DAG(
    dag_id="doorbell",
    schedule=[WORK],
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    max_active_runs=1,
    is_paused_upon_creation=False,
):

    @task
    def work() -> None:
        """Complete what there is."""
        coordinator = CoordinationHook().coordinator(SOURCE, owner_of_try(get_current_context()))
        with closing(coordinator.store):
            for partition in coordinator.leases.acquire(10):
                coordinator.leases.complete(partition.partition_key)

    work()
