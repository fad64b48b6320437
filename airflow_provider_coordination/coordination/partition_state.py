"""The state of a partition at a point in time, as one word for display: its status combined with the time."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus


class PartitionState(StrEnum):
    """The current state of a partition."""

    WAITING = "waiting"
    """UNASSIGNED and available to any owner."""
    DELAYED = "delayed"
    """UNASSIGNED but not available yet."""
    HELD = "held"
    """ASSIGNED to a worker whose lease has not ended."""
    EXPIRED = "expired"
    """ASSIGNED, but the lease has ended."""
    AWAITING = "awaiting"
    """ASSIGNED without a process: its batches wait for acknowledgment."""
    RESTING = "resting"
    """CLOSED until a later time."""
    DUE = "due"
    """CLOSED but due: available to any owner."""
    PARKED = "parked"
    """CLOSED until a user reopens it."""
    COMPLETED = "completed"
    """COMPLETED."""


def state_of(partition: Partition, now: datetime) -> PartitionState:
    """Return the state of a partition.

    :param now: the current time (aware), assuming that all clocks agree.
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
