"""Detached jobs: how they are followed and stopped, and what they leave behind.

Such a job is an item of the family `…|JOB` under its owner's name. Its submitter writes the item, UNASSIGNED. The job
leases it while it runs, ASSIGNED, notes in it when it starts to read, and stores its outcome in it, COMPLETED. So any
process on any machine can distinguish a job that never began, that reads, that ended, or whose lease expired, which
means that it vanished. A stop is requested in the item; the job sees it at its next heartbeat.

Airflow's Spark provider follows jobs by the interface of each cluster manager, if there is one. The store is the same
for all of them.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, SettingsTakenError
from airflow_provider_coordination.coordination.job_reports import REPORT_INTERVAL, JobReport
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    format_instant,
    new_partition,
    read_instant,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import all_partitions, latest_completed
from airflow_provider_coordination.coordination.workers import item_key

log = logging.getLogger(__name__)

FAMILY = "JOB"
HEARTBEAT = timedelta(seconds=5)
"""The maximum time between two reads of its item, and so the longest time until a job notices a stop request."""
RETENTION = timedelta(days=1)
"""How long a job's outcome is kept, and the item of a job that never stored one."""
PURGED_AT_A_TIME = 100

Change = Callable[[Partition], Partition]


class JobState(StrEnum):
    """The state of a job."""

    SUBMITTED = "SUBMITTED"
    """It was submitted to a cluster manager, and has not begun."""
    STARTING = "STARTING"
    """It has begun and starts its Spark session. It acquires no leases yet."""
    RUNNING = "RUNNING"
    """It acquires leases and reads. As while STARTING, its lease shows whether it is alive."""
    ENDED = "ENDED"
    """It has an outcome."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as it is stored.

    :param owner: the owner of its leases.
    :param state: its state.
    :param since: when it was submitted, when its lease ends, or when it ended (aware), depending on the state.
    :param submitted_at: when it was submitted (aware); None if unknown.
    :param task: what it works for, such as an Airflow task of one run; all tries of a task share it.
    :param digest: the digest of its settings, salted with the owner; equal digests mean equal settings.
    :param start_by: when a job that has not begun is given up (aware); None if unknown.
    :param log: the path of its output on the machine that submitted it; None if it goes elsewhere.
    :param application_id: its Spark application id; None if unknown.
    :param cluster_id: the id by which the cluster manager ends it; None for a driver that runs beside its spark-submit,
        or if the cluster manager returned none.
    :param settings: the location of its settings until it has begun, in its submitter's format; None for a file beside
        its output.
    :param datasets: what it reads and writes, in its submitter's format; None if unknown.
    :param was_started: whether a driver has begun it.
    :param ui_url: the URL of its Spark UI while it runs; None if unknown.
    :param stop: the reason of the stop request; None if there is none.
    :param report: its latest job report; None if it has not reported yet.
    :param outcome: its outcome, a JSON object; None if it has not ended.
    :param is_reported: whether the outcome was reported to its task.
    """

    owner: str
    state: JobState
    since: datetime
    submitted_at: datetime | None = None
    task: str = ""
    digest: str = ""
    start_by: datetime | None = None
    log: str | None = None
    application_id: str | None = None
    cluster_id: str | None = None
    settings: str | None = None
    datasets: str | None = None
    was_started: bool = False
    ui_url: str | None = None
    stop: str | None = None
    report: JobReport | None = None
    outcome: Mapping[str, Any] | None = None
    is_reported: bool = False

    @classmethod
    def of(cls, item: Partition) -> Job:
        """Return the job from its item. Values of unexpected types are ignored."""
        progress = item.progress
        outcome = progress.get("outcome")
        return cls(
            owner=_text(progress, "owner") or item.owner or item.partition_key,
            state=_state_of(item),
            since=item.priority,
            submitted_at=read_instant(progress.get("submitted_at")),
            task=_text(progress, "task") or "",
            digest=_text(progress, "digest") or "",
            start_by=read_instant(progress.get("start_by")),
            log=_text(progress, "log"),
            application_id=_text(progress, "application_id"),
            cluster_id=_text(progress, "cluster_id"),
            settings=_text(progress, "settings"),
            datasets=_text(progress, "datasets"),
            was_started="driver" in progress,
            ui_url=_text(progress, "ui_url"),
            stop=_text(progress, "stop"),
            report=JobReport.from_text(progress.get("report")),
            outcome=outcome if isinstance(outcome, Mapping) else None,
            is_reported=progress.get("reported") is True,
        )

    @property
    def has_begun(self) -> bool:
        """Whether it has a process as far as the store knows: it has begun and has not ended."""
        return self.state in (JobState.STARTING, JobState.RUNNING)

    def given_up_at(self, safety_margin: timedelta) -> datetime | None:
        """Return when it counts as late or vanished (aware); None if it has ended, or may wait."""
        if self.has_begun:
            return self.since + safety_margin
        return self.start_by if self.state is JobState.SUBMITTED else None


class Jobs:
    """The jobs of one source that are followed through the store.

    Every write is conditional. If another process wrote in between, it is repeated with the stored item.

    :param view: the initialized view of the source.
    """

    def __init__(self, view: SourceView) -> None:
        self._store = view.store
        self._clock = view.clock
        self.source_identifier = view.family(FAMILY)
        self.safety_margin = view.safety_margin

    def submit(
        self,
        owner: str,
        *,
        task: str,
        digest: str,
        start_by: datetime,
        log: str | None = None,
        settings: str | None = None,
        datasets: str | None = None,
    ) -> bool:
        """Record a job that is about to be submitted; see `Job` for the parameters.

        :returns: whether it may be submitted; False if another process has already given it up.
        """
        now = self._clock.now()
        progress = {
            "owner": owner,
            "submitted_at": format_instant(now),
            "task": task,
            "digest": digest,
            "start_by": format_instant(start_by),
            "log": log,
            **({} if settings is None else {"settings": settings}),
            **({} if datasets is None else {"datasets": datasets}),
        }
        item = new_partition(self.source_identifier, item_key(owner), now).with_progress(progress)
        if self._store.create([item]):
            return True
        stored = self._store.get(self.source_identifier, item.partition_key)
        return stored is None or stored.status is not PartitionStatus.COMPLETED

    def note_submitted(self, owner: str, cluster_id: str) -> None:
        """Record the cluster manager's id of a job that it has accepted."""
        self._change(owner, lambda item: item.with_progress({**item.progress, "cluster_id": cluster_id}))

    def get(self, owner: str) -> Job | None:
        """Return a job as it is stored now; None if the store does not know it."""
        item = self._store.get(self.source_identifier, item_key(owner))
        return None if item is None else Job.of(item)

    def unfinished(self) -> list[Job]:
        """Return the jobs without an outcome."""
        return self._jobs(PartitionStatus.UNASSIGNED, PartitionStatus.ASSIGNED)

    def of_task(self, task: str) -> list[Job]:
        """Return the jobs of a task, in the order of their submission."""
        found = [job for job in self._jobs() if job.task == task]
        return sorted(found, key=lambda job: job.submitted_at or job.since)

    def request_stop(self, owner: str, reason: str) -> bool:
        """Request a job to stop; a job that has not begun will not begin.

        :returns: whether there was a job to stop.
        """
        return self._change(owner, lambda item: item.with_progress({**item.progress, "stop": reason}))

    def end(self, owner: str, outcome: Mapping[str, Any]) -> bool:
        """Record the outcome of a job that cannot do so itself. The store refuses the job's own writes from now on.

        :returns: whether it had no outcome before.
        """
        return self._change(owner, lambda item: _ended(item, outcome, self._clock.now()))

    def give_up(self, owner: str, task: str, outcome: Mapping[str, Any]) -> bool:
        """Record the outcome of a job that may not be recorded yet; if it is submitted later, it stops at once.

        :param task: the task that it was to work for.
        :returns: whether it had no outcome before.
        """
        now = self._clock.now()
        item = new_partition(self.source_identifier, item_key(owner), now)
        item = _ended(item.with_progress({"owner": owner, "task": task}), outcome, now)
        return bool(self._store.create([item])) or self.end(owner, outcome)

    def note_reported(self, owner: str) -> None:
        """Record that the outcome of a job was reported to its task."""
        self._change(owner, lambda item: item.with_progress({**item.progress, "reported": True}), is_ended=True)

    def purge(self) -> None:
        """Delete items older than `RETENTION`, a bounded number per call."""
        latest = self._clock.now() - RETENTION
        for status in PartitionStatus:
            for item in self._store.query(self.source_identifier, status, limit=PURGED_AT_A_TIME):
                if item.priority > latest:
                    break
                with suppress(PartitionUpdateError):  # another process purges as well
                    self._store.delete(item)

    def latest_ended(self, limit: int) -> list[Job]:
        """Return the jobs that ended last, the latest first.

        :param limit: the maximum number of jobs.
        """
        page = next(latest_completed(self._store, self.source_identifier, limit))
        return [Job.of(item) for item in page.partitions]

    def _jobs(self, *statuses: PartitionStatus) -> list[Job]:
        """Return the jobs with these statuses, all by default; each job once, as it was read last.

        The statuses are read in the order in which a job passes them, so a job that changes during the read occurs
        twice.
        """
        found = map(Job.of, all_partitions(self._store, self.source_identifier, *statuses))
        return list({job.owner: job for job in found}.values())

    def _change(self, owner: str, change: Change, *, is_ended: bool = False) -> bool:
        while (item := self._store.get(self.source_identifier, item_key(owner))) is not None:
            if (item.status is PartitionStatus.COMPLETED) is not is_ended:
                return False
            with suppress(PartitionUpdateError):  # it was renewed in between
                self._store.transact(update=[change(item)])
                return True
        return False


class JobRecord:
    """A job's own item, which the job leases while it runs and in which it stores its outcome.

    A `LeaseRenewer` calls `renew_due`, which is the heartbeat: every twelfth of the ownership timeout, and at least
    every `HEARTBEAT`.

    :param coordinator: the initialized coordinator of the source for the job's owner.
    :param when_stopped: called once with the reason when the job is requested to stop, in the thread that notices it.
    :param report: returns the current job report; None if there is nothing to report yet.
    """

    def __init__(
        self,
        coordinator: SourceCoordinator,
        when_stopped: Callable[[str], None] = lambda why: None,
        report: Callable[[], JobReport | None] = lambda: None,
    ) -> None:
        self._store = coordinator.store
        self._clock = coordinator.clock
        self._owner = coordinator.owner
        self._driver = secrets.token_hex(8)
        self._family = coordinator.view.family(FAMILY)
        self._key = item_key(coordinator.owner)
        self._when_stopped = when_stopped
        self._report = report
        self._reported_at: float | None = None
        self._is_stopped = False
        self._leases = coordinator.leases_in(self._family)

    @property
    def ownership_timeout(self) -> timedelta:
        """How long the item's lease lasts without a heartbeat."""
        return self._leases.ownership_timeout

    def begin(self) -> None:
        """Lease the item for this driver only, creating it if needed. If the job was given up or must stop, stop it.

        :raises SettingsTakenError: if another driver has already begun under the same owner.
        """
        while not self._is_stopped:
            now = self._clock.now()
            item = self._store.get(self._family, self._key)
            if item is None:  # submitted by hand
                new = new_partition(self._family, self._key, now).with_progress({"owner": self._owner})
                self._store.create([self._taken(new, now)])
                continue
            if item.progress.get("driver", self._driver) != self._driver:
                raise SettingsTakenError(
                    f"another driver has already used the settings of job {self._owner!r}, which can be used only "
                    "once: turn off whatever restarts drivers, such as retries of the cluster manager, and run the "
                    "task again, which submits a new job"
                )
            if item.status is PartitionStatus.COMPLETED:
                self._stop("it was given up before it began")
                return
            if item.owner != self._owner:
                try:
                    self._store.transact(update=[self._taken(item, now)])
                except PartitionUpdateError:  # a stop was requested in between, or another driver leased it
                    continue
            if self._leases.adopt(self._key) is not None:
                self._check_stop()
                return

    def _taken(self, item: Partition, now: datetime) -> Partition:
        progress = {**item.progress, "driver": self._driver}
        return item.with_progress(progress).acquired(self._owner, now + self.ownership_timeout)

    def note(self, **values: Any) -> None:
        """Record values for other processes, such as `application_id`."""
        self._write(lambda item: self._leases.renewed(item.with_progress({**item.progress, **values})))

    def note_reading(self) -> None:
        """Record that the job acquires leases from now on."""
        self.note(reads_since=format_instant(self._clock.now()))

    def renew_due(self) -> None:
        """Check for a stop request, write the job report if it is due, and renew the item's lease.

        A report renews the lease as well. If it cannot be written, a new one is made at the next heartbeat.
        """
        if not self._is_stopped:
            self._check_stop()
        now = self._clock.monotonic()
        if self._reported_at is None or now - self._reported_at >= REPORT_INTERVAL.total_seconds():
            report = self._report()
            if report is not None:
                self.note(report=report.to_text())
                self._reported_at = now
        self._leases.renew_due()

    def end(self, outcome: Mapping[str, Any]) -> bool:
        """Store the outcome and the last job report.

        :returns: whether it is stored; False if another process stored an outcome before.
        """
        report = self._report()
        last = {} if report is None else {"report": report.to_last_text()}
        now = self._clock.now()
        return self._write(lambda item: _ended(item.with_progress({**item.progress, **last}), outcome, now))

    def _write(self, change: Change) -> bool:
        while self._leases.holds(self._key):
            with suppress(*LOST):  # the lease is lost, or a stop was requested in between: then try again
                self._leases.change(self._key, change, requires_trust=False)
                return True
        return False

    def _check_stop(self) -> None:
        try:
            stop = self._leases.refresh(self._key).progress.get("stop")
        except LOST:
            self._stop("it was considered dead")
        else:
            if isinstance(stop, str):
                self._stop(stop)

    def _stop(self, why: str) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            log.warning("the job is requested to stop: %s", why)
            self._when_stopped(why)


def _ended(item: Partition, outcome: Mapping[str, Any], at: datetime) -> Partition:
    return item.with_progress({**item.progress, "outcome": dict(outcome)}).completed(at)


def _state_of(item: Partition) -> JobState:
    if item.status is PartitionStatus.COMPLETED:
        return JobState.ENDED
    if item.status is not PartitionStatus.ASSIGNED:
        return JobState.SUBMITTED
    return JobState.STARTING if read_instant(item.progress.get("reads_since")) is None else JobState.RUNNING


def _text(progress: Mapping[str, Any], name: str) -> str | None:
    value = progress.get(name)
    return value if isinstance(value, str) else None
