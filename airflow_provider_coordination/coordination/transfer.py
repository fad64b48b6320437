"""Bringing partitions from elsewhere into a store: what is there already is compared, and never overwritten.

Repeating it changes nothing: only what is absent is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions


class TransferState(StrEnum):
    """How a partition that is brought and what the store holds compare."""

    NEW = "new"
    """The store has no such partition."""
    PRESENT = "present"
    """The store has it as it is brought, leased perhaps."""
    CONFLICT = "conflict"
    """The store has it with another progress, or finished, or parked: it stays as it is."""


@dataclass(frozen=True)
class Transfer:
    """A partition that is brought into a store.

    :param partition: as it is to be created.
    :param existing: what the store holds; None if nothing.
    """

    partition: Partition
    existing: Partition | None = None

    @property
    def state(self) -> TransferState:
        """How the two compare."""
        if self.existing is None:
            return TransferState.NEW
        return TransferState.PRESENT if _is_same(self.partition, self.existing) else TransferState.CONFLICT


def compare(store: CoordinationStore, partitions: Sequence[Partition]) -> list[Transfer]:
    """Return the partitions, each with what the store holds under its name."""
    families = sorted({partition.source_identifier for partition in partitions})
    stored = {_name(p): p for family in families for p in all_partitions(store, family)}
    return [Transfer(partition, stored.get(_name(partition))) for partition in partitions]


def write(store: CoordinationStore, transfers: Iterable[Transfer]) -> list[Transfer]:
    """Create what is new; return those that turned out to exist all the same, with what the store holds.

    What can be worked on is written before what is finished.
    """
    new = [transfer for transfer in transfers if transfer.state is TransferState.NEW]
    new.sort(key=lambda transfer: transfer.partition.status is PartitionStatus.COMPLETED)
    overtaken = []
    for family in sorted({transfer.partition.source_identifier for transfer in new}):
        wanted = [transfer.partition for transfer in new if transfer.partition.source_identifier == family]
        created = set(store.create(wanted))
        overtaken += [partition for partition in wanted if partition.partition_key not in created]
    return [Transfer(p, store.get(*_name(p))) for p in overtaken]


def _name(partition: Partition) -> tuple[str, str]:
    return (partition.source_identifier, partition.partition_key)


def _is_same(brought: Partition, existing: Partition) -> bool:
    finished = [p.status is PartitionStatus.COMPLETED for p in (brought, existing)]
    return all(finished) or (not any(finished) and _lasting(brought) == _lasting(existing))


def _lasting(partition: Partition) -> tuple[object, ...]:
    """Return what neither an owner that comes and goes nor waiting changes."""
    return (partition.progress, partition.unreadable_progress, partition.closed_count, partition.is_parked)
