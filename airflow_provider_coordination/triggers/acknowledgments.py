"""Trigger that waits until acknowledgment sets have ended."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.triggers.conditions import SetsEnded
from airflow_provider_coordination.triggers.events import classpath, event, first_event
from airflow_provider_coordination.triggers.watchers import watchers


class AcknowledgmentTrigger(BaseTrigger):
    """Fires when none of the acknowledgment sets is pending; overdue sets end as expired while it waits.

    If a user ends the task, the leases of partitions that wait for the sets are released.

    :param source: the source's name.
    :param acknowledgment_sets: the ids of the sets; None for the sets of `run`.
    :param run: the Airflow run whose sets are selected, as `run_name` names it.
    :param coordination_conn_id: the connection of type `coordination`.
    :param deadline: an instant that the event passes to the task.
    """

    def __init__(
        self,
        *,
        source: str,
        acknowledgment_sets: Sequence[str] | None = None,
        run: str = "",
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        deadline: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.source = source
        self.acknowledgment_sets = None if acknowledgment_sets is None else list(acknowledgment_sets)
        self.run_name = run
        self.coordination_conn_id = coordination_conn_id
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments of this trigger."""
        return classpath(self), {
            "source": self.source,
            "acknowledgment_sets": self.acknowledgment_sets,
            "run": self.run_name,
            "coordination_conn_id": self.coordination_conn_id,
            "deadline": self.deadline,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: `ended`, or `error` with a message."""
        condition = SetsEnded(self.acknowledgment_sets, self.run_name)
        yield event(await first_event(self, self.coordination_conn_id, self.source, condition, deadline=self.deadline))

    async def on_kill(self) -> None:
        """Release the leases of partitions that wait for the sets: no task follows them any more."""
        keys = await watchers().finish(
            watchers().give_back(self.coordination_conn_id, self.source, self.acknowledgment_sets, self.run_name)
        )
        self.log.info("%d leases released: source=%s partitions=%s", len(keys), self.source, ", ".join(keys) or "none")
