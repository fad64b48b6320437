"""Partitions whose delivered batch waits for an acknowledgment from outside the job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet, AcknowledgmentState, run_name
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PartitionStatus

RUN = run_name("dag", "run")
TIMEOUT = timedelta(hours=1)


def delivered(
    coordinator: SourceCoordinator,
    *keys: str,
    run: str = RUN,
    handles: Sequence[str] = ("downstream",),
    sinks: Sequence[str] = ("main",),
    timeout: timedelta = TIMEOUT,
) -> list[str]:
    """Create partitions and do what a job whose batches others acknowledge does with them; return the sets' ids."""
    coordinator.create_partitions({key: {} for key in keys})
    sets, made = AcknowledgmentSets(coordinator), []
    for partition in coordinator.leases.acquire(len(keys)):
        key = partition.partition_key
        begun = sets.begin(
            key, f"batch-of-{key}", [*sinks, *handles], sinks=sinks, timeout=timeout, run=run, batch={"records": 7}
        )
        for sink in sinks:
            sets.release(begun.set_id, sink, positive=True)
        coordinator.leases.await_acknowledgment(key, timeout)
        made.append(begun.set_id)
    return made


def the_set(coordinator: SourceCoordinator, set_id: str) -> AcknowledgmentSet:
    return AcknowledgmentSets(coordinator).view.get(set_id)


def state(coordinator: SourceCoordinator, set_id: str) -> AcknowledgmentState:
    return the_set(coordinator, set_id).state


def status(coordinator: SourceCoordinator, key: str) -> PartitionStatus:
    partition = coordinator.view.get(key)
    assert partition is not None
    return partition.status
