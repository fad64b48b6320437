"""A source whose partitions are closed for an hour after each scan, and a DAG that is woken when they reopen.

It runs unchanged with one connection, `coordination_default` (type coordination). A tiny source of three locations is
scanned twice, with a pause in between, as a bucket or a table that is scanned repeatedly.

`reopening_source` waits within its run: `wake` is deferred until the triggerer has reopened the partitions. During that
time it needs no worker. `reopening_source_on_work` waits for nothing: once it is unpaused, the triggerer starts a run
whenever there is work. Both may run at the same time: leases divide the partitions, and a late run finds no work.
"""

from __future__ import annotations

import logging
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, Param, get_current_context, task

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import owner_of_try
from airflow_provider_coordination.operators.reopen_partitions import ReopenPartitionsOperator
from airflow_provider_coordination.sensors.partitions import PartitionsCompletedSensor
from airflow_provider_coordination.triggers.partitions import PartitionsAvailableTrigger

SOURCE = "reopening_source"
LOCATIONS = ("attic", "cellar", "garden")
SCANS = 2
"""How often each location is scanned."""
MAX_PARTITIONS = 10

log = logging.getLogger(__name__)

PARAMS = {
    "closed_seconds": Param(
        3600, type="number", exclusiveMinimum=0, description="How long a partition is closed after a scan."
    ),
}


@task
def find_locations() -> list[str]:
    """Create a partition for each location, as a supplier does; existing ones are left alone."""
    coordinator = CoordinationHook().coordinator(SOURCE, owner_of_try(get_current_context()))
    with closing(coordinator.store):
        return coordinator.create_partitions({location: {"scans": 0} for location in LOCATIONS})


@task
def scan(closed_seconds: float | str) -> dict[str, Any]:
    """Scan each available location, then close it for a while; the last scan completes it."""
    coordinator = CoordinationHook().coordinator(SOURCE, owner_of_try(get_current_context()))
    with closing(coordinator.store):
        acquired = coordinator.leases.acquire(MAX_PARTITIONS)
        for partition in acquired:
            key, scans = partition.partition_key, partition.progress.get("scans", 0) + 1
            log.info("scan %d of %s", scans, key)
            coordinator.leases.checkpoint(key, {"scans": scans})
            coordinator.leases.close(key, timedelta(seconds=float(closed_seconds)), max_closed_count=SCANS)
        counts = {str(status): count for status, count in coordinator.view.count_by_status().items()}
    return {"scanned": [partition.partition_key for partition in acquired], "partitions": counts}


with DAG(
    dag_id="reopening_source",
    description="Scan partitions, and sleep until they reopen an hour later",
    schedule=None,
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    doc_md=__doc__,
    tags=["coordination", "triggers"],
    params=PARAMS,
):
    first_scan = scan.override(task_id="scan")("{{ params.closed_seconds }}")
    wake = ReopenPartitionsOperator(task_id="wake", source=SOURCE, deferrable=True, timeout=timedelta(days=1))
    second_scan = scan.override(task_id="scan_again")("{{ params.closed_seconds }}")
    done = PartitionsCompletedSensor(task_id="done", source=SOURCE, deferrable=True, timeout=timedelta(minutes=15))

    find_locations() >> first_scan >> wake >> second_scan >> done

# A doorbell: at most once a minute, an event reports that there is work, and the run acquires it.
WORK = Asset(
    name="reopening_source_work",
    uri="x-coordination://reopening_source/work",
    watchers=[AssetWatcher(name="reopening_source_work", trigger=PartitionsAvailableTrigger(source=SOURCE))],
)

with DAG(
    dag_id="reopening_source_on_work",
    description="Run whenever partitions of the source are available",
    schedule=[WORK],
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    doc_md=__doc__,
    tags=["coordination", "triggers"],
    params=PARAMS,
):
    scan("{{ params.closed_seconds }}")
