"""Where a partition stands at an instant, in one word for people: a status, and what the time makes of it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus


class Standing(StrEnum):
    """What is the matter with a partition now."""

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


def standing_of(partition: Partition, now: datetime) -> Standing:
    """Return where a partition stands.

    :param now: the present instant (aware), as if all clocks were one.
    """
    is_over = partition.priority <= now
    match partition.status:
        case PartitionStatus.UNASSIGNED:
            return Standing.WAITING if is_over else Standing.DELAYED
        case PartitionStatus.ASSIGNED:
            if is_over:
                return Standing.EXPIRED
            return Standing.AWAITING if partition.is_awaiting else Standing.HELD
        case PartitionStatus.CLOSED:
            if partition.is_parked:
                return Standing.PARKED
            return Standing.DUE if is_over else Standing.RESTING
        case PartitionStatus.COMPLETED:
            return Standing.COMPLETED
