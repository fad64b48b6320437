"""Which leases of a source a person means to end: of some keys, an owner, a run of a DAG, or those that ran out.

The command `release` and `ReleasePartitionsOperator` both choose here, and both end leases by `Administration.release`.
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
class LeaseChoice:
    """What must be true of a lease that is meant; all that is given.

    :param owner: who holds it.
    :param dag_id: of which DAG the task is that holds it, in whatever try.
    :param run_id: of which run.
    :param task_id: which task.
    :param expired_by: its time was up by this instant (aware).
    """

    owner: str | None = None
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    expired_by: datetime | None = None

    def objection(self, partition: Partition) -> str | None:
        """Return why this partition is not meant; None if it is."""
        if partition.status is not PartitionStatus.ASSIGNED:
            return f"it is {partition.status}: nobody holds it"
        # What waits for acknowledgments is in its last owner's name, and that task may have ended well.
        task = None if partition.is_awaiting else task_of(partition.owner or "")
        found = (None, None, None) if task is None else (task.dag_id, task.run_id, task.task_id)
        asked = (self.dag_id, self.run_id, self.task_id)
        is_of_task = all(wanted in (None, has) for wanted, has in zip(asked, found, strict=True))
        if self.owner not in (None, partition.owner) or not is_of_task:
            return f"{partition.owner} holds it"
        if self.expired_by is not None and not has_run_out(partition, self.expired_by):
            return f"its lease runs until {format_instant(partition.priority)}"
        return None


def chosen_leases(store: CoordinationStore, source_identifier: str, choice: LeaseChoice) -> Iterator[Partition]:
    """Yield the leases of a source that are meant: of partitions, the one that ends first first, and of its supplier.

    :param source_identifier: the source's partitions; the supplier's lease is in another item family.
    """
    supplying = store.get(f"{source_identifier.rpartition('|')[0]}|{GLOBAL_STATE_FAMILY}", GLOBAL_STATE_KEY)
    leased = all_partitions(store, source_identifier, PartitionStatus.ASSIGNED)
    for lease in (*leased, *([] if supplying is None else [supplying])):
        if choice.objection(lease) is None:
            yield lease


def has_run_out(partition: Partition, expired_by: datetime) -> bool:
    """Tell whether a lease had ended by this instant: now, less by how much clocks may differ."""
    return partition.status is PartitionStatus.ASSIGNED and partition.priority <= expired_by
