"""What the store holds, as the routes tell it."""

from __future__ import annotations

from datetime import datetime

from airflow_provider_coordination.coordination.history import Transition
from airflow_provider_coordination.coordination.owner import task_of
from airflow_provider_coordination.coordination.partition import AWAITING_SUFFIX, Partition
from airflow_provider_coordination.coordination.partition_state import state_of
from airflow_provider_coordination.sources.inspection import inspected, kind_for_people
from airflow_provider_coordination.ui.models.partitions import PartitionRow, TransitionFacts
from airflow_provider_coordination.ui.models.values import Owner


def owner_of(name: str) -> Owner:
    """Return an owner with the task that it stands for, or stood for before it began to wait for acknowledgments."""
    task = task_of(name.removesuffix(AWAITING_SUFFIX))
    if task is None:
        return Owner(name=name)
    return Owner(name=name, host=name.partition(":")[0], **task._asdict())


def known_owner(name: str | None) -> Owner | None:
    """Return an owner; None for nobody."""
    return None if name is None else owner_of(name)


def row_of(partition: Partition, now: datetime) -> PartitionRow:
    """Return a partition at a glance.

    :param now: the present instant (aware).
    """
    told, kind = inspected(partition, now), kind_for_people(partition)
    return PartitionRow(
        partition_key=partition.partition_key,
        status=partition.status.value,
        state=state_of(partition, now).value,
        owner=known_owner(partition.owner),
        held_since=partition.held_since,
        leased_until=partition.ownership_timeout,
        reopen_at=None if partition.is_parked else partition.reopen_at,
        since=partition.priority,
        version=partition.version,
        attempts=partition.attempts,
        closed_count=partition.closed_count,
        last_error=partition.last_error,
        kind=told.kind,
        has_positions=kind is not None and kind.has_positions,
        position=told.position,
        lag=told.lag,
        items_done=told.items_done,
        items=told.items,
        landed_batches=told.landed_batches,
        landed_records=told.landed_records,
        is_readable=told.is_readable,
    )


def transition_facts(transition: Transition) -> TransitionFacts:
    """Return a transition."""
    return TransitionFacts(
        at=transition.at,
        status=None if transition.status is None else transition.status.value,
        owner=known_owner(transition.owner),
        until=transition.until,
        former_status=transition.former_status.value,
        former_owner=known_owner(transition.former_owner),
        former_until=transition.former_until,
        kind=transition.kind,
        reason=transition.reason,
        by=transition.by,
    )
