"""Single writes through leases; each raises its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import result_or_raise
from airflow_provider_coordination.coordination.leases import Change, LeaseChange
from airflow_provider_coordination.coordination.partition import Partition


def give(coordinator: SourceCoordinator, key: str, to: str, *, unchanged: Sequence[Partition] = ()) -> Partition:
    """Hand a partition over; return it as written."""
    [written] = coordinator.leases.give_each([key], to, unchanged=unchanged).values()
    return result_or_raise(written)


def settle(
    coordinator: SourceCoordinator, seen: Partition, change: Change, *, requires_trust: bool = False, **others: Any
) -> Partition:
    """Write a change of a partition with other items; return it as written."""
    wanted = LeaseChange(
        partition_key=seen.partition_key,
        change=change,
        requires_trust=requires_trust,
        seen=None if requires_trust else seen,
        **others,
    )
    [written] = coordinator.leases.change_each([wanted])
    return result_or_raise(written)
