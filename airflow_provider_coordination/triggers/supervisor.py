"""Triggers that wait until a supervisor must start or end something, or until a job has ended."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import parse_instant
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.hooks.job_resources import end_local_processes
from airflow_provider_coordination.supervisor.store import SupervisionStore
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.triggers.conditions import Condition, JobOver, TurnNeeded
from airflow_provider_coordination.triggers.deferral import Settling, SourceTrigger, error_payload, event
from airflow_provider_coordination.triggers.watchers import WatchError, read_connection, watchers


class JobTrigger(SourceTrigger):
    """Fires when a job has ended, vanished, or did not begin in time, whatever cluster manager runs it.

    If a user ends the task, the job is stopped. If its driver runs on the triggerer's machine, its processes are killed
    and its leases are released at once. A job elsewhere receives a stop request through the store.

    :param owner: the owner of the job's leases.
    :param job_log: the path of the job's output on the machine that submitted it; None if it runs in a cluster.

    The other parameters are those of `SourceTrigger`. The status of the event is `ended` or `overdue`.
    """

    def __init__(self, *, owner: str, job_log: str | None = None, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.owner = owner
        self.job_log = job_log

    @override
    def condition(self) -> Condition:
        return JobOver(self.owner)

    @override
    def passed_on(self) -> Mapping[str, Any]:
        return {**super().passed_on(), "source": self.source, "owner": self.owner, "log": self.job_log}

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


class SupervisorTrigger(SourceTrigger):
    """Fires when a supervisor must start or end something, its spec file was edited, or the time of its run is over.

    While it waits it polls the source as the supervisor does, records health and lag, and keeps the supervisor's lease.
    If a user ends the task, the jobs are not affected: the next run continues with them.

    :param claimant: the supervisor, as `Claimant.to_mapping` writes it.
    :param until: when the time of the run is over, an instant; None if it has no end.
    :param spec_file: the file of the spec; None if there is none. If the triggerer cannot read the file, an edit waits
        for the next turn.
    :param file_mark: the mark of the file at the last read; see `mark_of`.

    The other parameters are those of `SourceTrigger`.
    """

    def __init__(
        self,
        *,
        claimant: Mapping[str, Any],
        until: str | None = None,
        spec_file: str | None = None,
        file_mark: str = MISSING,
        **arguments: Any,
    ) -> None:
        super().__init__(**arguments)
        self.claimant = dict(claimant)
        self.until = until
        self.spec_file = spec_file
        self.file_mark = file_mark

    @override
    def condition(self) -> Condition:
        return TurnNeeded(self._claimant)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: `turn`, `elsewhere`, `edited`, `over`, or `error` with a message."""
        settling = Settling(self)
        subscription = watchers().subscribe(self.coordination_conn_id, self.source, self.condition())
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
        coordinator = settings.coordinator(self.source, self._claimant.owner)
        with closing(coordinator.store):
            SupervisionStore(coordinator.view).record_error(self._claimant, error)

    @property
    def _claimant(self) -> Claimant:
        claimant = Claimant.from_mapping(self.claimant)
        assert claimant is not None
        return claimant


async def _over(until: datetime) -> str:
    """Return once the time of a run is over."""
    await asyncio.sleep(max(0.0, (until - datetime.now(UTC)).total_seconds()))
    return OVER


def mark_of(spec_file: str) -> str:
    """Return a text that changes when a file does; empty if the file does not exist or cannot be read here."""
    with suppress(OSError):
        return hashlib.sha256(Path(spec_file).read_bytes()).hexdigest()
    return MISSING
