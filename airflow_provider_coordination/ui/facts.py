"""Conversion of stored objects to the models of the routes."""

from __future__ import annotations

from datetime import datetime

from airflow_provider_coordination.coordination.history import Transition
from airflow_provider_coordination.coordination.owner import task_of
from airflow_provider_coordination.coordination.partition import AWAITING_SUFFIX, Partition
from airflow_provider_coordination.coordination.partition_state import state_of
from airflow_provider_coordination.sources.inspection import inspect_partition, known_kind
from airflow_provider_coordination.ui.models.partitions import PartitionRow, TransitionFacts
from airflow_provider_coordination.ui.models.values import Owner


def owner_of(name: str) -> Owner:
    """Return an owner with its task. The owner of a partition that awaits acknowledgment keeps the task of its job."""
    task = task_of(name.removesuffix(AWAITING_SUFFIX))
    if task is None:
        return Owner(name=name)
    return Owner(name=name, host=name.partition(":")[0], **task._asdict())


def known_owner(name: str | None) -> Owner | None:
    """Return an owner; None if there is none."""
    return None if name is None else owner_of(name)


def row_of(partition: Partition, now: datetime) -> PartitionRow:
    """Return the summary of a partition.

    :param partition: the partition.
    :param now: the current time (aware).
    """
    facts, kind = inspect_partition(partition, now), known_kind(partition)
    return PartitionRow(
        partition_key=partition.partition_key,
        status=partition.status.value,
        state=state_of(partition, now).value,
        owner=known_owner(partition.owner),
        held_since=partition.held_since,
        leased_until=partition.ownership_timeout,
        reopen_at=None if partition.is_parked else partition.reopen_at,
        priority=partition.priority,
        version=partition.version,
        attempts=partition.attempts,
        closed_count=partition.closed_count,
        last_error=partition.last_error,
        kind=facts.kind,
        has_positions=kind is not None and kind.has_positions,
        position=facts.position,
        lag=facts.lag,
        items_done=facts.items_done,
        items=facts.items,
        landed_batches=facts.landed_batches,
        landed_records=facts.landed_records,
        is_readable=facts.is_readable,
    )


def transition_facts(transition: Transition) -> TransitionFacts:
    """Return a transition."""
    return TransitionFacts(
        at=transition.at,
        status=None if transition.status is None else transition.status.value,
        owner=known_owner(transition.owner),
        until=transition.until,
        previous_status=transition.previous_status.value,
        previous_owner=known_owner(transition.previous_owner),
        previous_until=transition.previous_until,
        kind=transition.kind,
        reason=transition.reason,
        by=transition.by,
    )
