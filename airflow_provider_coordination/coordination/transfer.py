"""Imports partitions from elsewhere into a store. Existing partitions are compared and never overwritten.

Repeating an import changes nothing, because only absent partitions are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions


class TransferState(StrEnum):
    """The comparison of an imported partition with the store."""

    NEW = "new"
    """The store does not contain the partition."""
    PRESENT = "present"
    """The store contains the same partition, possibly leased."""
    CONFLICT = "conflict"
    """The store contains it with other progress, or completed, or parked. It is not changed."""


@dataclass(frozen=True)
class Transfer:
    """A partition to import into a store.

    :param partition: the partition to create.
    :param existing: the stored partition; None if there is none.
    """

    partition: Partition
    existing: Partition | None = None

    @property
    def state(self) -> TransferState:
        """The result of the comparison."""
        if self.existing is None:
            return TransferState.NEW
        return TransferState.PRESENT if _is_same(self.partition, self.existing) else TransferState.CONFLICT


def compare(store: CoordinationStore, partitions: Sequence[Partition]) -> list[Transfer]:
    """Return the partitions, each one with the stored partition of the same key."""
    families = sorted({partition.source_identifier for partition in partitions})
    stored = {_name(p): p for family in families for p in all_partitions(store, family)}
    return [Transfer(partition, stored.get(_name(partition))) for partition in partitions]


def write(store: CoordinationStore, transfers: Iterable[Transfer]) -> list[Transfer]:
    """Create the new partitions; return those that were created by others in the interim, with the stored partition.

    Unfinished partitions are written before completed ones.
    """
    new = [transfer for transfer in transfers if transfer.state is TransferState.NEW]
    new.sort(key=lambda transfer: transfer.partition.status is PartitionStatus.COMPLETED)
    existing = []
    for family in sorted({transfer.partition.source_identifier for transfer in new}):
        wanted = [transfer.partition for transfer in new if transfer.partition.source_identifier == family]
        created = set(store.create(wanted))
        existing += [partition for partition in wanted if partition.partition_key not in created]
    return [Transfer(p, store.get(*_name(p))) for p in existing]


def _name(partition: Partition) -> tuple[str, str]:
    return (partition.source_identifier, partition.partition_key)


def _is_same(imported: Partition, existing: Partition) -> bool:
    finished = [p.status is PartitionStatus.COMPLETED for p in (imported, existing)]
    return all(finished) or (not any(finished) and _lasting(imported) == _lasting(existing))


def _lasting(partition: Partition) -> tuple[object, ...]:
    """Return the values that leases and waiting do not change."""
    return (partition.progress, partition.unreadable_progress, partition.closed_count, partition.is_parked)
