"""Reopening CLOSED partitions as a task: when their time has come, or at once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from airflow.sdk import Context, PokeReturnValue, conf
from airflow.triggers.base import BaseTrigger

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionNotFoundError,
    PartitionStatusError,
)
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
    parse_instant,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.task_try import failing_when_misconfigured, owner_of_try
from airflow_provider_coordination.links.leases import LeasesLink
from airflow_provider_coordination.operators.partition_names import by_hand, named_partition, some_names
from airflow_provider_coordination.operators.template_values import yes_or_no_value
from airflow_provider_coordination.sensors.deferrable import DeferrableSensor
from airflow_provider_coordination.triggers.partitions import PartitionsReopenedTrigger

KEYS_SHOWN = 5
TOGETHER = timedelta(seconds=5)
"""Partitions that reopen within so long of each other are waited for together."""


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """What a task waits for.

    :param reopens_at: by when all of it reopens (aware).
    :param partitions: how many partitions that is.
    :param partition_keys: the first of them.
    """

    reopens_at: datetime
    partitions: int
    partition_keys: Sequence[str]


class ReopenPartitionsOperator(DeferrableSensor):
    """Makes the CLOSED partitions of a source available whose time has come, and waits for that if need be.

    Without it a CLOSED partition whose time has come is noticed when a job happens to acquire; this task ends when
    there is work, so that the job can come after it. If nothing is due, it waits for the partitions that reopen next;
    with `partition_keys`, until none of these is CLOSED. If no partition is CLOSED that reopens by itself, it does not
    wait. While the source is suspended partitions are reopened, and it waits until somebody can take them.

    Returns how many partitions are `reopened`, the first of them as `partition_keys`, how many are still `closed`, and
    the instant of the `next_reopening`, if there is one.

    :param source: the source's name. (templated)
    :param partition_keys: only these; others that are due are made available, too, and not waited for. (templated)
    :param wait: wait if nothing is due. (templated)
    :param force: reopen at once, before their time and if they are parked, and forget their failures; all that are
        CLOSED if `partition_keys` are not given. (templated)
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
        """Reopen what is due, once.

        :raises AirflowFailException: if only a person can put things right: a setting is wrong, there is no such
            partition, or one that is waited for is parked.
        :raises StoreUnavailableError: if the store does not answer.
        """
        with failing_when_misconfigured():
            keys = some_names("partition_keys", self.partition_keys)
            wait, force = yes_or_no_value("wait", self.wait), yes_or_no_value("force", self.force)
            coordinator = CoordinationHook(self.coordination_conn_id).coordinator(self.source, owner_of_try(context))
            with closing(coordinator.store):
                chosen = None if keys is None else [named_partition(coordinator.view, key) for key in keys]
                if force:
                    reopened = reopen_now(by_hand(coordinator.view, context), coordinator.view, chosen)
                    return self._done(coordinator.view, len(reopened), reopened)
                return self._reopen_due(coordinator, keys, wait)

    def trigger(self, context: Context, deadline: str) -> BaseTrigger:
        """See `DeferrableSensor.trigger`."""
        assert self._waiting is not None
        return PartitionsReopenedTrigger(
            source=self.source,
            reopens_at=format_instant(self._waiting.reopens_at),
            partitions=self._waiting.partitions,
            partition_keys=self._waiting.partition_keys,
            coordination_conn_id=self.coordination_conn_id,
            deadline=deadline,
        )

    def resumed(self, event: dict[str, Any]) -> None:
        """See `DeferrableSensor.resumed`."""
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
                f"source {self.source!r}: partition {parked[0]!r} is parked and never reopens by itself; mend what its "
                "last error says, then reopen it with force=True or `airflow-coordination reopen`"
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


def reopen_now(administration: Administration, view: SourceView, chosen: Sequence[Partition] | None) -> list[str]:
    """Reopen partitions before their time, and if they are parked; return the keys.

    :param administration: of the source's partitions.
    :param chosen: which, as they were read; None for all that are CLOSED. Those that are not CLOSED are passed over.
    """
    reopened = []
    for partition in list(view.partitions(PartitionStatus.CLOSED)) if chosen is None else chosen:
        if partition.status is PartitionStatus.CLOSED:
            try:
                administration.reopen(partition.partition_key)
            except (PartitionStatusError, PartitionNotFoundError):
                continue  # a worker was faster
            reopened.append(partition.partition_key)
    return reopened


def closed_partitions(view: SourceView, keys: Sequence[str] | None) -> list[Partition]:
    """Return the CLOSED partitions in the order of their reopening: of these keys, or the first page of all."""
    if keys is None:
        return view.store.query(view.source_identifier, PartitionStatus.CLOSED)
    found = [view.get(key) for key in keys]
    closed = [p for p in found if p is not None and p.status is PartitionStatus.CLOSED]
    return sorted(closed, key=lambda partition: partition.priority)


def together(closed: Sequence[Partition]) -> list[Partition]:
    """Return those of the CLOSED partitions, in the order of their reopening, that reopen with the first one."""
    return [p for p in closed if not p.is_parked and p.priority <= closed[0].priority + TOGETHER]
