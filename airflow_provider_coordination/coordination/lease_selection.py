"""Selects the leases of a source that a user wants to end: by keys, owner, run of a DAG, or expiry.

The command `release` and `ReleasePartitionsOperator` both use it, and both end leases by `Administration.release`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from airflow_provider_coordination.coordination.owner import task_of
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, format_instant
from airflow_provider_coordination.coordination.store import CoordinationStore, all_partitions
from airflow_provider_coordination.coordination.supplier import FAMILY as GLOBAL_STATE_FAMILY
from airflow_provider_coordination.coordination.supplier import GLOBAL_STATE_KEY


@dataclass(frozen=True, kw_only=True)
class LeaseSelection:
    """The conditions for the selected leases. A lease must meet all that are given.

    :param owner: the owner of the lease.
    :param dag_id: the DAG of the task that holds it, in any try.
    :param run_id: the run of that task.
    :param task_id: the id of that task.
    :param expired_by: the lease had ended by this instant (aware).
    """

    owner: str | None = None
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    expired_by: datetime | None = None

    def mismatch(self, partition: Partition) -> str | None:
        """Return why this partition is not selected; None if it is."""
        if partition.status is not PartitionStatus.ASSIGNED:
            return f"it is {partition.status}: it has no owner"
        # A partition that waits for acknowledgments keeps its last owner's name, and that task may have succeeded.
        task = None if partition.is_awaiting else task_of(partition.owner or "")
        found = (None, None, None) if task is None else (task.dag_id, task.run_id, task.task_id)
        required = (self.dag_id, self.run_id, self.task_id)
        is_of_task = all(value in (None, actual) for value, actual in zip(required, found, strict=True))
        if self.owner not in (None, partition.owner) or not is_of_task:
            return f"{partition.owner} holds it"
        if self.expired_by is not None and not has_expired(partition, self.expired_by):
            return f"its lease runs until {format_instant(partition.priority)}"
        return None


def selected_leases(store: CoordinationStore, source_identifier: str, selection: LeaseSelection) -> Iterator[Partition]:
    """Yield the selected leases of a source: its partitions, the earliest end first, then its supplier.

    :param source_identifier: the family of the source's partitions; the supplier's lease is in another family.
    """
    supplying = store.get(f"{source_identifier.rpartition('|')[0]}|{GLOBAL_STATE_FAMILY}", GLOBAL_STATE_KEY)
    leased = all_partitions(store, source_identifier, PartitionStatus.ASSIGNED)
    for lease in (*leased, *([] if supplying is None else [supplying])):
        if selection.mismatch(lease) is None:
            yield lease


def has_expired(partition: Partition, expired_by: datetime) -> bool:
    """Return whether a lease had ended by this instant, which is the current time minus the clock difference."""
    return partition.status is PartitionStatus.ASSIGNED and partition.priority <= expired_by
