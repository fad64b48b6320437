"""Trigger that follows a job that was submitted without waiting for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_coordination.hooks.coordination import CoordinationHook
from airflow_provider_coordination.hooks.job_termination import end_local_processes
from airflow_provider_coordination.triggers.conditions import JobOver
from airflow_provider_coordination.triggers.events import classpath, event, first_event
from airflow_provider_coordination.triggers.watchers import watchers


class JobTrigger(BaseTrigger):
    """Fires when a job has ended, vanished, or did not begin in time, whatever cluster manager runs it.

    If a user ends the task, the job is stopped. If its driver runs on the triggerer's machine, its processes are killed
    and its leases are released at once. A job elsewhere receives a stop request through the store.

    :param source: the source's name.
    :param owner: the owner of the job's leases.
    :param coordination_conn_id: the connection of type `coordination`.
    :param log: the path of the job's output on the machine that submitted it; None if it runs in a cluster.
    :param deadline: an instant that the event passes to the task; None if there is no deadline.
    """

    def __init__(
        self,
        *,
        source: str,
        owner: str,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        log: str | None = None,
        deadline: str | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.source = source
        self.owner = owner
        self.coordination_conn_id = coordination_conn_id
        self.job_log = log
        self.deadline = deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments of this trigger."""
        return classpath(self), {
            "source": self.source,
            "owner": self.owner,
            "coordination_conn_id": self.coordination_conn_id,
            "log": self.job_log,
            "deadline": self.deadline,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: `ended`, `overdue`, or `error` with a message."""
        payload = await first_event(
            self,
            self.coordination_conn_id,
            self.source,
            JobOver(self.owner),
            owner=self.owner,
            log=self.job_log,
            deadline=self.deadline,
        )
        yield event({**payload, "source": self.source})

    async def on_kill(self) -> None:
        """Stop the job: no task waits for it any more."""
        await watchers().finish(self._stop())

    async def _stop(self) -> None:
        # Kill the processes first: that needs no store.
        was_killed = await asyncio.to_thread(end_local_processes, self.job_log)
        reason = "its task was ended or cleared in Airflow while it was deferred"
        await watchers().stop_job(self.coordination_conn_id, self.source, self.owner, reason, was_killed=was_killed)
