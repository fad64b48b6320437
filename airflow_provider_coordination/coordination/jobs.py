"""Jobs that nobody waits for beside them: how they are followed and stopped, and what they leave behind.

Such a job is an item of the family `…|JOB` under its owner's name. Whoever submits it writes the item, UNASSIGNED; the
job leases it while it runs, ASSIGNED, notes in it when it begins to read, and leaves its outcome in it, COMPLETED. So
whoever comes back, on whatever machine, knows of a job that never began, that reads, that ended, or whose lease ran
out: it vanished. A stop is asked for in the item; the job sees it at its next heartbeat.

Airflow's Spark provider follows jobs by each cluster manager's own interface, where there is one; the store is the same
for all.
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
from airflow_provider_coordination.coordination.store import all_partitions, completed_last
from airflow_provider_coordination.coordination.workers import item_key

log = logging.getLogger(__name__)

FAMILY = "JOB"
HEARTBEAT = timedelta(seconds=5)
"""How often a job looks at its item at least: so long it may take until it finds out that it shall stop."""
RETENTION = timedelta(days=1)
"""How long the outcome of a job is kept, and the item of one that never left any."""
PURGED_AT_A_TIME = 100

Change = Callable[[Partition], Partition]


class JobState(StrEnum):
    """Where a job stands."""

    SUBMITTED = "SUBMITTED"
    """It was handed to a cluster manager, and has not begun."""
    STARTING = "STARTING"
    """It has begun, and brings its Spark session up: it takes no leases yet."""
    RUNNING = "RUNNING"
    """It takes leases and reads. Whether it lives, its lease shows, as while it is STARTING."""
    ENDED = "ENDED"
    """It has an outcome."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job as the store knows it.

    :param owner: the owner of its leases.
    :param state: where it stands.
    :param since: when it was submitted, until when its lease runs, or when it ended (aware).
    :param submitted_at: when it was submitted (aware); None if it does not say.
    :param task: what it works for, such as an Airflow task of one run; tries of one task share it.
    :param digest: of its settings; equal digests mean equal orders. Salted with the owner.
    :param start_by: a job that has not begun by then is given up (aware); None if it does not say.
    :param log: where its output is, on the machine that submitted it; None if it goes elsewhere.
    :param application_id: Spark's name of it; None if not known.
    :param cluster_id: what the cluster manager that it was handed to ends it by; None for a driver beside its
        spark-submit, or if the cluster manager did not say.
    :param settings: where its settings lie until it has begun, as its submitter names the place; None for a file beside
        its output.
    :param was_taken: whether a driver has begun it, whatever became of it.
    :param ui_url: where its Spark UI is while it runs; None if not known.
    :param stop: why it was asked to stop; None if it was not.
    :param report: what it last reported of itself; None if it has not yet.
    :param outcome: how it ended, a JSON object; None if it has not.
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
    was_taken: bool = False
    ui_url: str | None = None
    stop: str | None = None
    report: JobReport | None = None
    outcome: Mapping[str, Any] | None = None
    is_reported: bool = False

    @classmethod
    def of(cls, item: Partition) -> Job:
        """Return the job that an item is about. What it says in another form than expected is passed over."""
        said = item.progress
        outcome = said.get("outcome")
        return cls(
            owner=_text(said, "owner") or item.owner or item.partition_key,
            state=_state_of(item),
            since=item.priority,
            submitted_at=read_instant(said.get("submitted_at")),
            task=_text(said, "task") or "",
            digest=_text(said, "digest") or "",
            start_by=read_instant(said.get("start_by")),
            log=_text(said, "log"),
            application_id=_text(said, "application_id"),
            cluster_id=_text(said, "cluster_id"),
            settings=_text(said, "settings"),
            was_taken="driver" in said,
            ui_url=_text(said, "ui_url"),
            stop=_text(said, "stop"),
            report=JobReport.from_text(said.get("report")),
            outcome=outcome if isinstance(outcome, Mapping) else None,
            is_reported=said.get("reported") is True,
        )

    @property
    def has_begun(self) -> bool:
        """Whether there is a process of it, as far as the store knows: it has begun, and has not ended."""
        return self.state in (JobState.STARTING, JobState.RUNNING)

    def given_up_at(self, safety_margin: timedelta) -> datetime | None:
        """Return the instant (aware) from which it counts as late or vanished; None if it has ended, or may wait."""
        if self.has_begun:
            return self.since + safety_margin
        return self.start_by if self.state is JobState.SUBMITTED else None


class Jobs:
    """The jobs of one source that are followed through the store.

    Every write is conditional, and repeated from what is stored where somebody else wrote in between.

    :param view: of the source, initialized.
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
    ) -> bool:
        """Write down a job that is about to be submitted; `Job` says what the parameters are.

        :returns: whether it may be submitted; False if somebody has given it up before.
        """
        now = self._clock.now()
        said = {
            "owner": owner,
            "submitted_at": format_instant(now),
            "task": task,
            "digest": digest,
            "start_by": format_instant(start_by),
            "log": log,
            **({} if settings is None else {"settings": settings}),
        }
        item = new_partition(self.source_identifier, item_key(owner), now).with_progress(said)
        if self._store.create([item]):
            return True
        stored = self._store.get(self.source_identifier, item.partition_key)
        return stored is None or stored.status is not PartitionStatus.COMPLETED

    def note_submitted(self, owner: str, cluster_id: str) -> None:
        """Note by what the cluster manager ends a job that it has accepted."""
        self._change(owner, lambda item: item.with_progress({**item.progress, "cluster_id": cluster_id}))

    def get(self, owner: str) -> Job | None:
        """Return a job as the store knows it now; None if it does not know it."""
        item = self._store.get(self.source_identifier, item_key(owner))
        return None if item is None else Job.of(item)

    def unfinished(self) -> list[Job]:
        """Return the jobs that have no outcome."""
        return self._jobs(PartitionStatus.UNASSIGNED, PartitionStatus.ASSIGNED)

    def of_task(self, task: str) -> list[Job]:
        """Return the jobs of a task, the first that was submitted first."""
        found = [job for job in self._jobs() if job.task == task]
        return sorted(found, key=lambda job: job.submitted_at or job.since)

    def request_stop(self, owner: str, reason: str) -> bool:
        """Ask a job to stop; one that has not begun will not begin.

        :returns: whether there was something to stop.
        """
        return self._change(owner, lambda item: item.with_progress({**item.progress, "stop": reason}))

    def end(self, owner: str, outcome: Mapping[str, Any]) -> bool:
        """Write down how a job ended that cannot do so itself; what it still writes is refused from here on.

        :returns: whether it had no outcome before.
        """
        return self._change(owner, lambda item: _ended(item, outcome, self._clock.now()))

    def give_up(self, owner: str, task: str, outcome: Mapping[str, Any]) -> bool:
        """Write down how a job ended that perhaps nobody has written down before: if it is submitted later, it ends.

        :param task: what it was to work for.
        :returns: whether it had no outcome before.
        """
        now = self._clock.now()
        item = new_partition(self.source_identifier, item_key(owner), now)
        item = _ended(item.with_progress({"owner": owner, "task": task}), outcome, now)
        return bool(self._store.create([item])) or self.end(owner, outcome)

    def note_reported(self, owner: str) -> None:
        """Note that the outcome of a job was reported to its task."""
        self._change(owner, lambda item: item.with_progress({**item.progress, "reported": True}), is_ended=True)

    def purge(self) -> None:
        """Delete what is older than `RETENTION`, a bounded number at a time."""
        latest = self._clock.now() - RETENTION
        for status in PartitionStatus:
            for item in self._store.query(self.source_identifier, status, limit=PURGED_AT_A_TIME):
                if item.priority > latest:
                    break
                with suppress(PartitionUpdateError):  # somebody else purges too
                    self._store.delete(item)

    def ended_last(self, limit: int) -> list[Job]:
        """Return the jobs that ended last, the latest first.

        :param limit: how many at most.
        """
        browsed = next(completed_last(self._store, self.source_identifier, limit))
        return [Job.of(item) for item in browsed.partitions]

    def _jobs(self, *statuses: PartitionStatus) -> list[Job]:
        """Return the jobs of these statuses, of all by default: each once, as it was found last.

        Statuses are read in the order in which a job has them. One that goes on at the same time is found twice.
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
    """A job's own item: it leases it while it runs, and leaves its outcome in it.

    `renew_due` is called by a `LeaseRenewer`, which makes the heartbeat: a twelfth of the ownership timeout, and
    `HEARTBEAT` at most.

    :param coordinator: of the source, initialized, for the job's owner.
    :param when_stopped: called once with the reason, when the job is asked to stop; from the thread that finds out.
    :param report: returns what the job reports of itself; None as long as it has nothing to report.
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
        """How long the item's lease runs without a heartbeat."""
        return self._leases.ownership_timeout

    def begin(self) -> None:
        """Lease the item, written or not, for this driver alone; one that was given up, or asked to stop, is stopped.

        :raises SettingsTakenError: if another driver has begun under the same owner, whatever became of it.
        """
        while not self._is_stopped:
            now = self._clock.now()
            item = self._store.get(self._family, self._key)
            if item is None:  # submitted by hand
                made = new_partition(self._family, self._key, now).with_progress({"owner": self._owner})
                self._store.create([self._taken(made, now)])
                continue
            if item.progress.get("driver", self._driver) != self._driver:
                raise SettingsTakenError(
                    f"the settings of job {self._owner!r} have served another driver, and serve one: end what begins "
                    "drivers again, such as retries of the cluster manager, and run the task again, which submits a "
                    "job of its own"
                )
            if item.status is PartitionStatus.COMPLETED:
                self._stop("it was given up before it began")
                return
            if item.owner != self._owner:
                try:
                    self._store.transact(update=[self._taken(item, now)])
                except PartitionUpdateError:  # it was asked to stop in between, or another driver took it
                    continue
            if self._leases.adopt(self._key) is not None:
                self._look()
                return

    def _taken(self, item: Partition, now: datetime) -> Partition:
        said = {**item.progress, "driver": self._driver}
        return item.with_progress(said).acquired(self._owner, now + self.ownership_timeout)

    def note(self, **said: Any) -> None:
        """Write something down that others want to know, such as `application_id`."""
        self._write(lambda item: self._leases.renewed(item.with_progress({**item.progress, **said})))

    def reads(self) -> None:
        """Note that the job takes leases from now on."""
        self.note(reads_since=format_instant(self._clock.now()))

    def renew_due(self) -> None:
        """Look whether the job is asked to stop, write its report if it is time to, and renew the item's lease.

        A report renews the lease as well. One that cannot be written is made anew at the next heartbeat.
        """
        if not self._is_stopped:
            self._look()
        now = self._clock.monotonic()
        if self._reported_at is None or now - self._reported_at >= REPORT_INTERVAL.total_seconds():
            report = self._report()
            if report is not None:
                self.note(report=report.to_text())
                self._reported_at = now
        self._leases.renew_due()

    def end(self, outcome: Mapping[str, Any]) -> bool:
        """Leave the outcome, and the last report.

        :returns: whether it is there; False if somebody else wrote one before.
        """
        report = self._report()
        last = {} if report is None else {"report": report.to_last_text()}
        now = self._clock.now()
        return self._write(lambda item: _ended(item.with_progress({**item.progress, **last}), outcome, now))

    def _write(self, change: Change) -> bool:
        while self._leases.holds(self._key):
            with suppress(*LOST):  # it is lost, or somebody asked for a stop in between: then once more
                self._leases.change(self._key, change, needs_trust=False)
                return True
        return False

    def _look(self) -> None:
        try:
            stop = self._leases.refresh(self._key).progress.get("stop")
        except LOST:
            self._stop("it was taken for dead")
        else:
            if isinstance(stop, str):
                self._stop(stop)

    def _stop(self, why: str) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            log.warning("the job is told to stop: %s", why)
            self._when_stopped(why)


def _ended(item: Partition, outcome: Mapping[str, Any], at: datetime) -> Partition:
    return item.with_progress({**item.progress, "outcome": dict(outcome)}).completed(at)


def _state_of(item: Partition) -> JobState:
    if item.status is PartitionStatus.COMPLETED:
        return JobState.ENDED
    if item.status is not PartitionStatus.ASSIGNED:
        return JobState.SUBMITTED
    return JobState.STARTING if read_instant(item.progress.get("reads_since")) is None else JobState.RUNNING


def _text(said: Mapping[str, Any], name: str) -> str | None:
    value = said.get(name)
    return value if isinstance(value, str) else None
