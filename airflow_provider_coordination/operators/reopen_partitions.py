"""Task that reopens CLOSED partitions when they are due, or at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import Context, PokeReturnValue
from airflow.triggers.base import BaseTrigger

from airflow_provider_coordination.airflow_names import conf
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionNotFoundError,
    PartitionStatusError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
    parse_instant,
)
from airflow_provider_coordination.coordination.partition_actions import apply_to_each
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import (
    administration_of,
    bool_value,
    existing_partition,
    failing_when_misconfigured,
    optional_names,
    owner_of_try,
)
from airflow_provider_coordination.links import LeasesLink
from airflow_provider_coordination.triggers.deferral import DeferrableSensor
from airflow_provider_coordination.triggers.partitions import PartitionsReopenedTrigger

KEYS_SHOWN = 5
TOGETHER = timedelta(seconds=5)
"""The task waits for partitions together if they reopen within this time of the first one."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What a task waits for.

    :param reopens_at: when the last of the partitions reopens (aware).
    :param partitions: the number of partitions.
    :param partition_keys: the keys of the first of them.
    """

    reopens_at: datetime
    partitions: int
    partition_keys: Sequence[str]


class ReopenPartitionsOperator(DeferrableSensor):
    """Reopens the CLOSED partitions of a source that are due, and waits until some are due.

    Without this task a due partition is only noticed when a job acquires partitions. This task ends when there is work,
    so that a job can follow it. If no partition is due, it waits for the partitions that reopen next. With
    `partition_keys` it waits until none of these is CLOSED. If no CLOSED partition reopens on its own, it does not
    wait. While the source is suspended, it reopens partitions and waits until a worker can acquire them.

    Returns the number of partitions `reopened`, the first of them as `partition_keys`, the number that are still
    `closed`, and the instant of the `next_reopening`, if there is one.

    :param source: the source's name. (templated)
    :param partition_keys: wait only for these partitions. Others that are due are also reopened. (templated)
    :param wait: wait if no partition is due. (templated)
    :param force: reopen partitions at once, before they are due and even if they are parked, and forget their failures;
        all CLOSED partitions if `partition_keys` is not given. (templated)
    :param coordination_conn_id: the connection of type `coordination`. (templated)
    :param deferrable: wait in the triggerer instead of on a worker.
    """

    template_fields: Sequence[str] = ("source", "partition_keys", "wait", "force", "coordination_conn_id")
    ui_color = "#f5e6cc"
    operator_extra_links = (LeasesLink(),)

    def __init__(
        self,
        *,
        source: str,
        partition_keys: str | Sequence[str] | None = None,
        wait: bool | str = True,
        force: bool | str = False,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(deferrable=deferrable, **kwargs)
        self.source = source
        self.partition_keys = partition_keys
        self.wait = wait
        self.force = force
        self.coordination_conn_id = coordination_conn_id
        self._waiting: Waiting | None = None

    def poke(self, context: Context) -> PokeReturnValue:
        """Reopen the partitions that are due.

        :raises AirflowFailException: for an error that only a user can fix: a setting is wrong, a partition does not
            exist, or a partition that the task waits for is parked.
        :raises StoreUnavailableError: if the store does not respond.
        """
        with failing_when_misconfigured():
            keys = optional_names("partition_keys", self.partition_keys)
            wait, force = bool_value("wait", self.wait), bool_value("force", self.force)
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(self.source, owner_of_try(context))
            with closing(coordinator.store):
                selected = None if keys is None else [existing_partition(coordinator.view, key) for key in keys]
                if force:
                    reopened = reopen_now(administration_of(coordinator.view, context), coordinator.view, selected)
                    return self._done(coordinator.view, len(reopened), reopened)
                return self._reopen_due(coordinator, keys, wait)

    @override
    def trigger(self, context: Context, deadline: str) -> BaseTrigger:
        assert self._waiting is not None
        return PartitionsReopenedTrigger(
            source=self.source,
            reopens_at=format_instant(self._waiting.reopens_at),
            partitions=self._waiting.partitions,
            partition_keys=self._waiting.partition_keys,
            coordination_conn_id=self.coordination_conn_id,
            deadline=deadline,
        )

    @override
    def resumed(self, event: dict[str, Any]) -> None:
        self._waiting = Waiting(
            reopens_at=parse_instant(event["reopens_at"]),
            partitions=event["partitions"],
            partition_keys=event["partition_keys"],
        )

    def _reopen_due(self, coordinator: SourceCoordinator, keys: Sequence[str] | None, wait: bool) -> PokeReturnValue:
        reopened = [key for key in coordinator.reopen_due() if keys is None or key in keys]
        left = closed_partitions(coordinator.view, keys)
        is_suspended = wait and coordinator.view.suspension() is not None
        if self._waiting is not None:  # others may have reopened them since
            due = [partition for partition in left if partition.priority <= self._waiting.reopens_at]
            if not due:
                if is_suspended:
                    return PokeReturnValue(is_done=False)
                return self._done(coordinator.view, self._waiting.partitions, self._waiting.partition_keys)
        waited_for = together(left) if keys is None else left
        if is_suspended and reopened and not (keys and waited_for):
            self._waiting = Waiting(
                reopens_at=coordinator.clock.now(), partitions=len(reopened), partition_keys=reopened[:KEYS_SHOWN]
            )
            return PokeReturnValue(is_done=False)
        if not wait or not waited_for or (keys is None and reopened):
            return self._done(coordinator.view, len(reopened), reopened)
        if parked := [partition.partition_key for partition in waited_for if partition.is_parked]:
            raise ConfigurationError(
                f"source {self.source!r}: partition {parked[0]!r} is parked and never reopens on its own; fix the "
                "cause of its last error, then reopen it with force=True or `airflow-coordination reopen`"
            )
        self._waiting = Waiting(
            reopens_at=max(partition.priority for partition in waited_for),
            partitions=len(reopened) + len(waited_for),
            partition_keys=[*reopened, *(partition.partition_key for partition in waited_for)][:KEYS_SHOWN],
        )
        self.log.info(
            "source %s: waiting until %d partitions reopen, by %s: %s",
            self.source, len(waited_for), self._waiting.reopens_at, ", ".join(p.partition_key for p in waited_for[:5]),
        )  # fmt: skip
        return PokeReturnValue(is_done=False)

    def _done(self, view: SourceView, reopened: int, keys: Sequence[str]) -> PokeReturnValue:
        next_reopening = view.next_reopening()
        summary = {
            "source": self.source,
            "reopened": reopened,
            "partition_keys": list(keys[:KEYS_SHOWN]),
            "closed": view.count_by_status()[PartitionStatus.CLOSED],
            "next_reopening": None if next_reopening is None else next_reopening.isoformat(),
        }
        self.log.info("source %s: %d partitions reopened: %s", self.source, reopened, summary)
        return PokeReturnValue(is_done=True, xcom_value=summary)


def reopen_now(administration: Administration, view: SourceView, selected: Sequence[Partition] | None) -> list[str]:
    """Reopen partitions before they are due, even if they are parked; return their keys.

    :param administration: the administration of the source's partitions.
    :param selected: the partitions, as read; None for all that are CLOSED. Partitions in other statuses are skipped.
    """
    closed = view.partitions(PartitionStatus.CLOSED) if selected is None else selected
    keys = [partition.partition_key for partition in closed if partition.status is PartitionStatus.CLOSED]
    reopened = []
    for key, result in apply_to_each(keys, administration.reopen, (PartitionStatusError, PartitionNotFoundError)):
        if isinstance(result, StoreUnavailableError):
            raise result
        if isinstance(result, Partition):  # otherwise, a worker acquired it first
            reopened.append(key)
    return reopened


def closed_partitions(view: SourceView, keys: Sequence[str] | None) -> list[Partition]:
    """Return the CLOSED partitions in reopening order: those with these keys, or the first page of all."""
    if keys is None:
        return view.store.query(view.source_identifier, PartitionStatus.CLOSED)
    found = [view.get(key) for key in keys]
    closed = [p for p in found if p is not None and p.status is PartitionStatus.CLOSED]
    return sorted(closed, key=lambda partition: partition.priority)


def together(closed: Sequence[Partition]) -> list[Partition]:
    """Return the CLOSED partitions that reopen together with the first one; the argument is in reopening order."""
    return [p for p in closed if not p.is_parked and p.priority <= closed[0].priority + TOGETHER]
