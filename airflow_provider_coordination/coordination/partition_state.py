"""The state of a partition at an instant, in one word for people: its status, and what the time makes of that."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus


class PartitionState(StrEnum):
    """What a partition is doing now."""

    WAITING = "waiting"
    """UNASSIGNED, and anybody may take it."""
    DELAYED = "delayed"
    """UNASSIGNED, and nobody may take it yet."""
    HELD = "held"
    """ASSIGNED to a worker, whose lease runs."""
    EXPIRED = "expired"
    """ASSIGNED, and the lease has run out."""
    AWAITING = "awaiting"
    """ASSIGNED to nobody's process: its batches wait for their acknowledgment."""
    RESTING = "resting"
    """CLOSED for a time."""
    DUE = "due"
    """CLOSED, and its time is up: anybody may take it."""
    PARKED = "parked"
    """CLOSED until a person reopens it."""
    COMPLETED = "completed"
    """COMPLETED."""


def state_of(partition: Partition, now: datetime) -> PartitionState:
    """Return the state of a partition.

    :param now: the present instant (aware), as if all clocks were one.
    """
    is_over = partition.priority <= now
    match partition.status:
        case PartitionStatus.UNASSIGNED:
            return PartitionState.WAITING if is_over else PartitionState.DELAYED
        case PartitionStatus.ASSIGNED:
            if is_over:
                return PartitionState.EXPIRED
            return PartitionState.AWAITING if partition.is_awaiting else PartitionState.HELD
        case PartitionStatus.CLOSED:
            if partition.is_parked:
                return PartitionState.PARKED
            return PartitionState.DUE if is_over else PartitionState.RESTING
        case PartitionStatus.COMPLETED:
            return PartitionState.COMPLETED
