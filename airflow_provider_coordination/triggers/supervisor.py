"""Triggers that wait until a supervisor must start or end something, or until a job has ended."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.partition import format_instant, parse_instant
from airflow_provider_coordination.hooks.coordination import ConnectionSettings, CoordinationHook
from airflow_provider_coordination.hooks.job_termination import end_local_processes
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.triggers.conditions import JobOver, TurnNeeded
from airflow_provider_coordination.triggers.deferral import Settling, classpath, error_payload, event, first_event
from airflow_provider_coordination.triggers.watchers import WatchError, read_connection, watchers


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


OVER = "over"
"""The time of the run is over."""
EDITED = "edited"
"""The spec file was edited, appeared or disappeared."""
FILE_POLL_SECONDS = 3.0
MISSING = ""


class SupervisorTrigger(BaseTrigger):
    """Fires when a supervisor must start or end something, its spec file was edited, or the time of its run is over.

    While it waits it polls the source as the supervisor does, records health and lag, and keeps the supervisor's lease.
    If a user ends the task, the jobs are not affected: the next run continues with them.

    :param source: the source's name.
    :param owner: the owner of the supervisor's lease; see `Claimant`.
    :param dag_id: the DAG that supervises.
    :param run_at: when its run began, an instant.
    :param try_number: the try of its task.
    :param coordination_conn_id: the connection of type `coordination`.
    :param until: when the time of the run is over, an instant; None if it has no end.
    :param spec_file: the file of the spec; None if there is none. If the triggerer cannot read the file, an edit waits
        for the next turn.
    :param file_mark: the mark of the file at the last read; see `mark_of`.
    """

    def __init__(
        self,
        *,
        source: str,
        owner: str,
        dag_id: str,
        run_at: str,
        try_number: int = 1,
        coordination_conn_id: str = CoordinationHook.default_conn_name,
        until: str | None = None,
        spec_file: str | None = None,
        file_mark: str = MISSING,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.source = source
        self.owner = owner
        self.dag_id = dag_id
        self.run_at = run_at
        self.try_number = try_number
        self.coordination_conn_id = coordination_conn_id
        self.until = until
        self.spec_file = spec_file
        self.file_mark = file_mark

    @classmethod
    def of(
        cls,
        claimant: Claimant,
        source: str,
        *,
        coordination_conn_id: str,
        until: datetime | None,
        spec_file: str | None,
        file_mark: str,
    ) -> SupervisorTrigger:
        """Return the trigger of a supervisor; see the class for the parameters."""
        return cls(
            source=source,
            owner=claimant.owner,
            dag_id=claimant.dag_id,
            run_at=format_instant(claimant.run_at),
            try_number=claimant.try_number,
            coordination_conn_id=coordination_conn_id,
            until=None if until is None else format_instant(until),
            spec_file=spec_file,
            file_mark=file_mark,
        )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments of this trigger."""
        return classpath(self), {
            "source": self.source,
            "owner": self.owner,
            "dag_id": self.dag_id,
            "run_at": self.run_at,
            "try_number": self.try_number,
            "coordination_conn_id": self.coordination_conn_id,
            "until": self.until,
            "spec_file": self.spec_file,
            "file_mark": self.file_mark,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: `turn`, `elsewhere`, `edited`, `over`, or `error` with a message."""
        settling = Settling(self)
        subscription = watchers().subscribe(self.coordination_conn_id, self.source, TurnNeeded(self._claimant))
        waits = [asyncio.ensure_future(subscription.met())]
        if self.spec_file is not None:
            waits.append(asyncio.ensure_future(self._edited(self.spec_file)))
        if self.until is not None:
            waits.append(asyncio.ensure_future(_over(parse_instant(self.until))))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            payload = {"status": done.pop().result()}
        except WatchError as error:
            payload = error_payload(error)
        finally:
            for each in waits:
                each.cancel()
            watchers().unsubscribe(self.coordination_conn_id, subscription)
        await settling.over()
        passed_on = {"source": self.source, "coordination_conn_id": self.coordination_conn_id}
        yield event({**payload, **passed_on, "file_mark": self.file_mark})

    async def _edited(self, spec_file: str) -> str:
        """Return once the spec file differs from the last read; record that it is gone from its folder.

        The DAG of a file from a folder disappears with it, so that no turn could record this.
        """
        while (mark := await asyncio.to_thread(mark_of, spec_file)) == self.file_mark:
            await asyncio.sleep(FILE_POLL_SECONDS)
        if mark == MISSING and await asyncio.to_thread(Path(spec_file).parent.is_dir):
            await self._record_missing(spec_file)
        self.file_mark = mark
        return EDITED

    async def _record_missing(self, spec_file: str) -> None:
        error = ConfigurationError(
            f"file {spec_file!r} is gone, and the stored spec stays in effect; restore the file, or terminate the "
            "supervisor: the DAG of a file from a folder disappears, and its jobs end on their own"
        )
        with suppress(CoordinationError):  # the next turn records it, if there is one
            settings = await read_connection(self.coordination_conn_id)
            await asyncio.to_thread(self._record, settings, error)

    def _record(self, settings: ConnectionSettings, error: ConfigurationError) -> None:
        coordinator = settings.coordinator(self.source, self.owner)
        with closing(coordinator.store):
            SupervisionStore(coordinator.view).record_error(self._claimant, error)

    @property
    def _claimant(self) -> Claimant:
        return Claimant(
            owner=self.owner, dag_id=self.dag_id, run_at=parse_instant(self.run_at), try_number=self.try_number
        )


async def _over(until: datetime) -> str:
    """Return once the time of a run is over."""
    await asyncio.sleep(max(0.0, (until - datetime.now(UTC)).total_seconds()))
    return OVER


def mark_of(spec_file: str) -> str:
    """Return a text that changes when a file does; empty if the file does not exist or cannot be read here."""
    with suppress(OSError):
        return hashlib.sha256(Path(spec_file).read_bytes()).hexdigest()
    return MISSING
