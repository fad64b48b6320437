"""A source whose partitions are closed for an hour after each look, and a DAG that is woken when they reopen.

Runnable as it stands with one connection, `coordination_default` (type coordination). A tiny source of three places is
looked at a number of times, and rests in between: as a scan of a bucket, or of a table that is read again and again.

`reopening_source` waits within its run: `wake` is deferred until the triggerer has reopened the partitions. Meanwhile
it needs no worker. `reopening_source_on_work` waits for nothing: once it is unpaused, the triggerer starts a run of it
whenever there is work. Both may be at it at once: leases share the partitions out, and who comes late finds nothing.
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
PLACES = ("attic", "cellar", "garden")
LOOKS = 2
"""How often each place is looked at."""
AT_A_TIME = 10

log = logging.getLogger(__name__)

PARAMS = {
    "closed_seconds": Param(
        3600, type="number", exclusiveMinimum=0, description="How long a partition is closed after a look."
    ),
}


@task
def find_places() -> list[str]:
    """Create a partition for each place, as a supplier does; those that exist are left as they are."""
    coordinator = CoordinationHook().coordinator(SOURCE, owner_of_try(get_current_context()))
    with closing(coordinator.store):
        return coordinator.create_partitions({place: {"looks": 0} for place in PLACES})


@task
def look(closed_seconds: float | str) -> dict[str, Any]:
    """Look at each place that is available, then close it for a while; the last look completes it."""
    coordinator = CoordinationHook().coordinator(SOURCE, owner_of_try(get_current_context()))
    with closing(coordinator.store):
        acquired = coordinator.leases.acquire(AT_A_TIME)
        for partition in acquired:
            key, looks = partition.partition_key, partition.progress.get("looks", 0) + 1
            log.info("look %d at %s", looks, key)
            coordinator.leases.checkpoint(key, {"looks": looks})
            coordinator.leases.close(key, timedelta(seconds=float(closed_seconds)), max_closed_count=LOOKS)
        counts = {str(status): count for status, count in coordinator.view.count_by_status().items()}
    return {"looked_at": [partition.partition_key for partition in acquired], "partitions": counts}


with DAG(
    dag_id="reopening_source",
    description="Partitions are closed for an hour; the run sleeps until they reopen",
    schedule=None,
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    doc_md=__doc__,
    tags=["coordination", "triggers"],
    params=PARAMS,
):
    first_look = look.override(task_id="look")("{{ params.closed_seconds }}")
    wake = ReopenPartitionsOperator(task_id="wake", source=SOURCE, deferrable=True, timeout=timedelta(days=1))
    second_look = look.override(task_id="look_again")("{{ params.closed_seconds }}")
    done = PartitionsCompletedSensor(task_id="done", source=SOURCE, deferrable=True, timeout=timedelta(minutes=15))

    find_places() >> first_look >> wake >> second_look >> done

# A doorbell: an event says that there is work, at most one a minute, and the run acquires what there is.
WORK = Asset(
    name="reopening_source_work",
    uri="x-coordination://reopening_source/work",
    watchers=[AssetWatcher(name="reopening_source_work", trigger=PartitionsAvailableTrigger(source=SOURCE))],
)

with DAG(
    dag_id="reopening_source_on_work",
    description="A run whenever partitions of the source can be worked on",
    schedule=[WORK],
    start_date=datetime(2026, 1, 1),  # noqa: DTZ001 - Airflow reads it in its own time zone
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    doc_md=__doc__,
    tags=["coordination", "triggers"],
    params=PARAMS,
):
    look("{{ params.closed_seconds }}")
