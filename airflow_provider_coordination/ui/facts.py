"""What the routes return about partitions and their owners."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime

from pydantic import field_serializer

from airflow_provider_coordination.coordination.history import Holding, Transition
from airflow_provider_coordination.coordination.owner import task_of
from airflow_provider_coordination.coordination.partition import AWAITING_SUFFIX, Partition, PartitionFacts
from airflow_provider_coordination.coordination.partition_actions import actions_for
from airflow_provider_coordination.coordination.partition_state import state_of
from airflow_provider_coordination.sources.kinds import inspect_partition, known_kind
from airflow_provider_coordination.sources.source_kind import Inspection


@dataclass(frozen=True, kw_only=True)
class Owner:
    """The owner of a lease. All fields but `name` are null if the owner is not a task."""

    name: str
    host: str | None = None
    dag_id: str | None = None
    run_id: str | None = None
    task_id: str | None = None
    map_index: int | None = None
    try_number: int | None = None


def owner_of(name: str) -> Owner:
    """Return an owner with its task. The owner of a partition that awaits acknowledgment keeps the task of its job."""
    task = task_of(name.removesuffix(AWAITING_SUFFIX))
    if task is None:
        return Owner(name=name)
    return Owner(name=name, host=name.partition(":")[0], **task._asdict())


def known_owner(name: str | None) -> Owner | None:
    """Return an owner; None if there is none."""
    return None if name is None else owner_of(name)


@dataclass(frozen=True, kw_only=True)
class PartitionRow(PartitionFacts, Inspection):
    """The summary of a partition.

    :param state: its state now.
    :param leased_until: when its lease ends (aware); None unless it is leased.
    :param has_positions: whether it can be reset to another position than its start.
    :param actions: the names of the actions that apply to it now.
    """

    state: str
    leased_until: datetime | None
    has_positions: bool
    actions: list[str]

    @field_serializer("owner")
    def _owner(self, name: str | None) -> Owner | None:
        return known_owner(name)


def row_of(partition: Partition, now: datetime) -> PartitionRow:
    """Return the summary of a partition.

    :param partition: the partition.
    :param now: the current time (aware).
    """
    kind = known_kind(partition)
    facts = {each.name: getattr(partition, each.name) for each in fields(PartitionFacts)}
    return PartitionRow(
        **facts | {"reopen_at": None if partition.is_parked else partition.reopen_at},
        **vars(inspect_partition(partition, now)),
        state=state_of(partition, now).value,
        leased_until=partition.ownership_timeout,
        has_positions=kind is not None and kind.has_positions,
        actions=actions_for(partition, now),
    )


@dataclass(frozen=True, kw_only=True)
class TransitionFacts(Transition):
    """A change of a partition's status or owner. `status` is null if the partition was deleted."""

    @field_serializer("owner", "previous_owner")
    def _owner(self, name: str | None) -> Owner | None:
        return known_owner(name)


@dataclass(frozen=True, kw_only=True)
class HoldingFacts(Holding):
    """A time during which one owner held a partition. `began_at` is null if the history no longer has it."""

    @field_serializer("owner")
    def _owner(self, name: str) -> Owner:
        return owner_of(name)
