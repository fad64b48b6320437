"""Which jobs are started, asked to end, or ended, so that the wanted number reads without a gap. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.coordination.jobs import RETENTION, Job, JobState
from airflow_provider_coordination.coordination.storable_text import storable
from airflow_provider_coordination.supervisor.actions import (
    Action,
    EndJob,
    EndKind,
    LookForPartitions,
    RequestStop,
    StartJob,
    Terminate,
)
from airflow_provider_coordination.supervisor.observation import Observation
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.supervision import SupervisedJob, Supervision

SUBMIT_TIMEOUT = timedelta(minutes=2)
"""A planned job that nobody has submitted by then never will be: the turn that planned it stopped."""
TRANSITION = timedelta(minutes=2)
"""How long there must be too many jobs before some are asked to end: a reshard takes a while. As in Druid."""
_NEVER = datetime.max.replace(tzinfo=UTC)


class JobPlan:
    """What is done about the jobs of a supervisor, while that is decided: what it remembers of them, and the actions.

    :param memory: what the supervisor remembers.
    :param seen: what it sees.
    :param new_owner: names the owner of a job that is to be started, another one at each call.
    """

    def __init__(self, memory: Supervision, seen: Observation, new_owner: Callable[[], str]) -> None:
        self.memory = memory
        self.seen = seen
        self.actions: list[Action] = []
        self._new_owner = new_owner
        self._at = seen.at
        self._over: set[str] = set()  # jobs that are ended by this decision

    def end_overdue(self) -> None:
        """End what will not end by itself: what vanished, never began, or was asked to end long ago."""
        for job in self.memory.jobs:
            known = self.seen.jobs.get(job.owner)
            if known is None and (job.began_at is not None or self._at >= job.planned_at + RETENTION):
                self._end(job, EndKind.WITHDRAWN, "nothing is known of it any more: nobody supervised for long")
            elif known is None and self._at >= job.planned_at + SUBMIT_TIMEOUT:
                self._end(job, EndKind.GIVEN_UP, "it was never submitted: the turn that planned it stopped")
            elif known is not None and self._is_late(known):
                self._end(job, EndKind.GIVEN_UP, self._why_given_up(known))
            elif job.is_ending and not self.seen.has_begun(job.owner):
                self._end(job, EndKind.WITHDRAWN, job.stop_reason)
            elif self._ends_by(job) <= self._at:
                self._end(job, EndKind.FORCED, f"it was asked to end and did not in time: {job.stop_reason}")
            elif job.is_ending and known is not None and known.stop is None:  # the turn stopped before it asked
                self.actions.append(RequestStop(owner=job.owner, reason=job.stop_reason))

    def stop_strays(self) -> None:
        """Ask jobs to end that are not remembered: somebody deleted what was."""
        for owner in sorted(self.seen.strays):
            self.actions.append(RequestStop(owner=owner, reason="the supervisor does not know it"))

    def stop_all(self, reason: str) -> None:
        """Ask every job to end."""
        for job in self._standing():
            self._stop(job, reason)

    def reach(self, wanted: int) -> None:
        """Reach this number of jobs that read; let those hand over that have to."""
        for job in self._standing():
            if not self._is_reading(job) and job.spec_version in self.seen.outdated:
                self._stop(job, "the spec was changed before it began")
        for successor, old in self._successions():
            if self._is_reading(successor):
                self._stop(old, f"{successor.owner} takes over")
        self._shrink(wanted)
        self._hand_over(wanted)
        if self._may_start():
            for _ in range(wanted - len(self._slots())):
                self._start()

    def look_for_partitions(self) -> None:
        """Have the source looked at for new partitions, where nobody else does."""
        seen, memory = self.seen, self.memory
        if seen.settings is None or seen.is_suspended or memory.terminated_at is not None or seen.partitions is None:
            return
        has_nothing = not seen.partitions.unfinished
        if has_nothing and seen.settings.terminate_when_done and self._is_done():
            self.actions.append(Terminate(reason="every partition is read: 'terminate_when_done'"))
            return
        is_due = memory.synced_at is None or self._at - memory.synced_at >= seen.settings.period
        if (has_nothing or seen.looks_for_partitions) and is_due:
            self.memory = replace(memory, synced_at=self._at)
            self.actions.insert(0, LookForPartitions())

    def next_due(self) -> datetime | None:
        """Return when something will be due, as far as that is known now."""
        settings, memory = self.seen.settings, self.memory
        due: list[datetime | None] = [memory.start_after]
        for job in memory.jobs:
            known = self.seen.jobs.get(job.owner)
            due.append(job.planned_at + SUBMIT_TIMEOUT if known is None else self._given_up_at(known))
            if job.is_ending:
                due.append(self._ends_by(job))
            elif settings is not None and job.began_at is not None:
                due.append(job.began_at + settings.task_duration)
        if settings is not None:
            due.append(None if memory.started_at is None else memory.started_at + settings.start_delay)
            due.append(None if memory.looked_at is None else memory.looked_at + settings.period)
            due.append(None if memory.surplus_since is None else memory.surplus_since + TRANSITION)
        return min((instant for instant in due if instant is not None and instant > self._at), default=None)

    # Parts

    def _standing(self) -> list[SupervisedJob]:
        """Return the jobs that are to go on, the oldest first."""
        standing = [job for job in self.memory.jobs if not job.is_ending and job.owner not in self._over]
        return sorted(standing, key=lambda job: (job.began_at or job.planned_at, job.owner))

    def _successions(self) -> list[tuple[SupervisedJob, SupervisedJob]]:
        """Return each job that is to take over from another one, with that one."""
        by_owner = {job.owner: job for job in self._standing()}
        return [(job, by_owner[job.replaces]) for job in by_owner.values() if job.replaces in by_owner]

    def _slots(self) -> list[tuple[SupervisedJob, ...]]:
        """Return the jobs that go on; one that another is to take over from stands together with that one."""
        successors = {old.owner: successor for successor, old in self._successions()}
        taking_over = {successor.owner for successor in successors.values()}
        return [
            (job, successors[job.owner]) if job.owner in successors else (job,)
            for job in self._standing()
            if job.owner not in taking_over
        ]

    def _hand_over(self, wanted: int) -> None:
        """Start successors of the jobs that have run for long enough, are outdated, or were asked to hand over."""
        settings = self.seen.settings
        if settings is None or not self._may_start():
            return
        asked_at = self.memory.handover_requested_at
        ending = sum(job.is_ending for job in self.memory.jobs) + len(self._successions())
        limit = settings.stop_task_count or wanted
        for slot in self._slots():
            job = slot[0]
            if len(slot) > 1 or job.began_at is None:
                continue
            if job.spec_version in self.seen.outdated:
                self._start(replaces=job.owner)
                continue
            was_asked = asked_at is not None and job.began_at < asked_at
            is_over = self._at - job.began_at >= settings.task_duration
            if was_asked or (is_over and ending < limit):
                self._start(replaces=job.owner)
                ending += 1

    def _shrink(self, wanted: int) -> None:
        """Ask the jobs to end that are too many, once they have been for a while: those first that matter least."""
        surplus = len(self._slots()) - wanted
        if surplus <= 0:
            self.memory = replace(self.memory, surplus_since=None)
            return
        since = self.memory.surplus_since or self._at
        if self._at - since < TRANSITION and self.memory.scaled_at != self._at:
            self.memory = replace(self.memory, surplus_since=since)
            return
        self.memory = replace(self.memory, surplus_since=None)
        slots = sorted(self._slots(), key=lambda slot: slot[0].began_at is not None)
        for slot in slots[:surplus]:
            for job in slot:
                self._stop(job, f"{wanted} jobs are enough")

    def _may_start(self) -> bool:
        settings, memory = self.seen.settings, self.memory
        if settings is None or memory.started_at is None or self._at < memory.started_at + settings.start_delay:
            return False
        if any(isinstance(action, EndJob) and action.kind is EndKind.GIVEN_UP for action in self.actions):
            return False  # that is a failure: once it is counted, it is known how long to wait
        return memory.start_after is None or self._at >= memory.start_after

    def _start(self, replaces: str | None = None) -> None:
        memory = self.memory
        job = SupervisedJob(
            owner=self._new_owner(), spec_version=memory.spec_version, planned_at=self._at, replaces=replaces
        )
        self.memory = replace(memory, jobs=(*memory.jobs, job))
        self.actions.append(StartJob(job=job))

    def _stop(self, job: SupervisedJob, reason: str) -> None:
        stopped = replace(job, stop_requested_at=self._at, stop_reason=storable(reason))
        self.memory = replace(
            self.memory, jobs=tuple(stopped if each.owner == job.owner else each for each in self.memory.jobs)
        )
        if self.seen.has_begun(job.owner):
            self.actions.append(RequestStop(owner=job.owner, reason=reason))
        else:
            self._end(stopped, EndKind.WITHDRAWN, reason)

    def _end(self, job: SupervisedJob, kind: EndKind, reason: str) -> None:
        self._over.add(job.owner)
        self.actions.append(EndJob(owner=job.owner, kind=kind, reason=reason))

    def _is_reading(self, job: SupervisedJob) -> bool:
        return self.seen.state_of(job.owner) is JobState.RUNNING

    def _is_late(self, known: Job) -> bool:
        at = self._given_up_at(known)
        return at is not None and at <= self._at

    def _given_up_at(self, known: Job) -> datetime | None:
        """Return when a job is given up (aware): one that has begun has to read in time as well."""
        at = known.given_up_at(self.seen.safety_margin)
        if known.state is JobState.STARTING and at is not None and known.start_by is not None:
            return min(at, known.start_by)
        return at

    def _why_given_up(self, known: Job) -> str:
        ran_out_at = known.given_up_at(self.seen.safety_margin)
        if known.has_begun and ran_out_at is not None and ran_out_at <= self._at:
            return f"the job vanished: it gave no sign of life since its lease ran out at {known.since:%H:%M:%S} UTC"
        by = "in time" if known.start_by is None else f"by {known.start_by:%Y-%m-%d %H:%M:%S} UTC"
        begins = "begin to read" if known.has_begun else "begin"
        return f"the job did not {begins} {by}; see whether the cluster has room for it"

    def _ends_by(self, job: SupervisedJob) -> datetime:
        settings = self.seen.settings or SuperviseSettings()
        asked_at = job.stop_requested_at
        return _NEVER if asked_at is None else asked_at + settings.completion_timeout

    def _is_done(self) -> bool:
        """Return whether what there is to read is read: it was looked for, found and completed."""
        partitions = self.seen.partitions
        was_looked = self.memory.synced_at is not None and not self.memory.health.failed_runs
        return was_looked and partitions is not None and not partitions.is_empty
