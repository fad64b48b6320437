"""What a supervisor does next: a pure function of what it remembers and what it sees.

A decision is what the supervisor is going to remember, and what it is going to do. It is written before it is acted
upon; a supervisor whose write is refused forgets the decision. Whoever dies between the two leaves a plan that the next
look finds: a job that was planned and never submitted, or one that was to be asked to end and was not.

How a job ended is read from its item alone, and counted by the write that removes it from the supervision: once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.coordination.job_reports import RecordCounts
from airflow_provider_coordination.coordination.jobs import RETENTION, Job, JobState
from airflow_provider_coordination.coordination.storable import storable
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
from airflow_provider_coordination.supervisor.scaling import (
    configured_count,
    first_judged_at,
    scale,
    window_of,
)
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.states import DetailedState, ErrorEvent
from airflow_provider_coordination.supervisor.supervision import (
    CHANGES_KEPT,
    SupervisedJob,
    Supervision,
    TaskCountChange,
)

LONGEST_BACKOFF = timedelta(minutes=10)
"""The longest wait after failures before another job is started."""
SUBMIT_TIMEOUT = timedelta(minutes=2)
"""A planned job that nobody has submitted by then never will be: the turn that planned it stopped."""
TRANSITION = timedelta(minutes=2)
"""How long there must be too many jobs before some are asked to end: a reshard takes a while. As in Druid."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a supervisor does next.

    :param supervision: what it remembers; to be written before anything is done.
    :param actions: what it does, in this order.
    :param wanted: how many jobs there should be; None if that is not known.
    :param reason: why, in a sentence.
    :param next_due: when to look again because of what is known now (aware); None if nothing will be due.
    """

    supervision: Supervision
    actions: tuple[Action, ...] = ()
    wanted: int | None = None
    reason: str = ""
    next_due: datetime | None = None


def decide(memory: Supervision, seen: Observation, new_owner: Callable[[], str]) -> Decision:
    """Decide what a supervisor does next.

    :param memory: what it remembers.
    :param seen: what it sees.
    :param new_owner: names the owner of a job that is to be started, another one at each call.
    """
    memory = _noted(memory, seen)
    plan = _Plan(memory, seen, new_owner)
    plan.end_overdue()
    plan.stop_strays()
    wanted, reason = wanted_jobs(plan.memory, seen)
    if memory.terminated_at is not None or seen.is_suspended:
        plan.stop_all(reason)
    elif wanted is not None:
        plan.reach(wanted)
    plan.look_for_partitions()
    plan.settle()
    return Decision(
        supervision=plan.memory,
        actions=tuple(plan.actions),
        wanted=wanted,
        reason=reason,
        next_due=plan.next_due(),
    )


def wanted_jobs(memory: Supervision, seen: Observation) -> tuple[int | None, str]:
    """Return how many jobs there should be, and why; None if nobody can say, so that everything stays as it is."""
    if memory.terminated_at is not None:
        return 0, "the supervisor is terminated"
    if seen.is_suspended:
        return 0, "the source is suspended"
    if seen.settings is None:
        return None, "there is no spec that can be read"
    if seen.partitions is None:
        return None, "nothing is known of the partitions"
    count = task_count(memory, seen.settings)
    if count > seen.partitions.readable:
        return seen.partitions.readable, f"{seen.partitions.readable} partitions can be read"
    if memory.task_count is not None and seen.settings.auto_scale is not None:
        return count, "as scaling wants"
    return count, "as the spec says"


def task_count(memory: Supervision, settings: SuperviseSettings) -> int:
    """Return how many jobs there should be if there are enough partitions."""
    scaling = settings.auto_scale
    if scaling is None:
        return settings.task_count
    if memory.task_count is None:
        return configured_count(scaling, settings.task_count)
    return min(max(memory.task_count, scaling.task_count_min), scaling.task_count_max)


def run_ended(memory: Supervision, seen: Observation, errors: Sequence[ErrorEvent] = ()) -> Supervision:
    """Return the memory of a supervisor whose run has ended: a look, and what followed from it.

    :param errors: what went wrong in what followed; what went wrong in the look is known already.
    """
    if not memory.spec_version:
        return replace(memory, looked_at=seen.at)
    health = memory.health
    for error in (*seen.errors, *errors):
        health = health.noting(error)
    well = not seen.errors and not errors
    health = health.run_ended(well=well, steady=_steady(memory, seen))
    open_partitions = memory.open_partitions if seen.open_partitions is None else seen.open_partitions
    return replace(memory, health=health, looked_at=seen.at, open_partitions=open_partitions)


def backoff(period: timedelta, failures: int) -> timedelta:
    """Return how long to wait after this many failures in a row before another job is started."""
    return min(period * 2 ** min(failures - 1, 16), LONGEST_BACKOFF) if failures else timedelta(0)


# What is noted: nothing of it needs anything done.


def _noted(memory: Supervision, seen: Observation) -> Supervision:
    memory = _with_ended(memory, seen)
    if seen.settings is not None and memory.started_at is None:
        memory = replace(memory, started_at=seen.at)
    began = [
        replace(job, began_at=seen.at) if job.began_at is None and _is_running(job, seen) else job
        for job in memory.jobs
    ]
    return _counted(replace(memory, jobs=tuple(began)), seen)


def _with_ended(memory: Supervision, seen: Observation) -> Supervision:
    """Return it without the jobs that have ended, each of which is counted."""
    ended = [job for job in memory.jobs if _state(job, seen) is JobState.ENDED]
    ended.sort(key=lambda job: seen.jobs[job.owner].since)
    health, start_after, totals = memory.health, memory.start_after, RecordCounts.from_mapping(memory.totals)
    for job in ended:
        known = seen.jobs[job.owner]
        if known.report is not None:
            totals += known.report.totals
        well, error = _how_it_ended(known)
        if well is None:
            continue
        health = health.job_ended(well=well)
        period = timedelta(0) if seen.settings is None else seen.settings.period
        if not well:
            event = ErrorEvent(at=seen.at, error_class=_class_in(error), message=storable(error), owner=job.owner)
            health = health.noting(event)
            start_after = seen.at + backoff(period, health.failed_jobs)
        elif job.is_ending:
            start_after = None
        else:  # one that found nothing to do, and ended at once, is not started again and again
            start_after = job.planned_at + period
    left = tuple(job for job in memory.jobs if job not in ended)
    return replace(memory, jobs=left, health=health, start_after=start_after, totals=totals.to_mapping())


def _how_it_ended(known: Job) -> tuple[bool | None, str]:
    """Return whether a job ended well, None for one that was withdrawn before it began, and its error."""
    outcome = known.outcome or {}
    code, error = outcome.get("exit_code"), outcome.get("error")
    if code == 0:
        return True, ""
    if code is None and error is None:
        return None, ""
    return False, str(error or f"the job ended with exit code {code}")


def _class_in(error: str) -> str:
    """Return the class of an error that is written before a colon, as logs write it."""
    name = error.partition(":")[0].rpartition(".")[2]
    return name if name.isidentifier() and name[:1].isupper() else "JobFailed"


def _counted(memory: Supervision, seen: Observation) -> Supervision:
    """Return it with the number of jobs that there are to be, and every change of that with its reason."""
    if seen.settings is None:
        return memory
    count = task_count(memory, seen.settings)
    if memory.planned_count not in (None, count):
        reason = f"version {memory.spec_version} of the spec"
        change = TaskCountChange(at=seen.at, before=memory.planned_count or 0, after=count, reason=reason)
        memory = _with_change(memory, change)
    memory = _scaled(memory, seen)
    return replace(memory, planned_count=task_count(memory, seen.settings))


def _scaled(memory: Supervision, seen: Observation) -> Supervision:
    """Return it with the number of jobs that the lag asks for, if a decision is due."""
    settings = None if seen.settings is None else seen.settings.auto_scale
    if seen.settings is None or settings is None or memory.started_at is None:
        return memory
    if seen.is_suspended or seen.partitions is None or not seen.partitions.readable:
        return memory
    judged_at = memory.scale_judged_at
    is_due = judged_at is None or seen.at - judged_at >= settings.scale_action_period
    if not is_due or seen.at < first_judged_at(settings, memory.started_at):
        return memory
    points = [point for point in seen.lag if memory.lag_since is None or point.at > memory.lag_since]
    count = task_count(memory, seen.settings)
    scaling = scale(
        settings,
        count,
        window_of(settings, points, seen.at),
        partitions=seen.partitions.readable,
        now=seen.at,
        ending=sum(job.is_ending for job in memory.jobs),
        changed_at=memory.scaled_at,
    )
    memory = replace(memory, scale_judged_at=seen.at)
    if scaling.count != count:
        memory = replace(memory, task_count=scaling.count, scaled_at=seen.at, lag_since=seen.at)
    if not scaling.reason:
        return memory
    return _with_change(memory, TaskCountChange(at=seen.at, before=count, after=scaling.count, reason=scaling.reason))


def _with_change(memory: Supervision, change: TaskCountChange) -> Supervision:
    """Return it with a change, or refusal, noted; of refusals one after another, the last one is kept."""
    changes = memory.task_count_changes
    if change.is_refusal and changes and changes[-1].is_refusal and changes[-1].before == change.before:
        changes = changes[:-1]
    return replace(memory, task_count_changes=(*changes, change)[-CHANGES_KEPT:])


# What is done


class _Plan:
    """A decision while it is made."""

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
                self._end(job, EndKind.GIVEN_UP, _why_given_up(known))
            elif job.is_ending and not _is_running(job, self.seen):
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
            if not _is_running(job, self.seen) and job.spec_version in self.seen.outdated:
                self._stop(job, "the spec was changed before it began")
        for successor, old in self._successions():
            if _is_running(successor, self.seen):
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

    def settle(self) -> None:
        """Note the state that this decision leads to."""
        memory = self.memory
        asked_at = memory.handover_requested_at
        if asked_at is not None and all(
            job.is_ending or job.began_at is None or job.began_at >= asked_at for job in memory.jobs
        ):
            memory = replace(memory, handover_requested_at=None)
        if memory.terminated_at is not None:
            proposed = DetailedState.STOPPING if memory.jobs else DetailedState.TERMINATED
        elif any(isinstance(action, LookForPartitions) for action in self.actions):
            proposed = DetailedState.CONNECTING_TO_STREAM
        elif any(isinstance(action, StartJob) for action in self.actions):
            proposed = DetailedState.CREATING_TASKS
        elif self.seen.partitions is None or self.seen.partitions.is_empty:
            proposed = DetailedState.DISCOVERING_INITIAL_TASKS
        else:
            proposed = _steady(memory, self.seen)
        if not memory.spec_version:
            return
        self.memory = replace(memory, health=memory.health.proposing(proposed))

    def next_due(self) -> datetime | None:
        """Return when something will be due, as far as that is known now."""
        settings, memory = self.seen.settings, self.memory
        due: list[datetime | None] = [memory.start_after]
        for job in memory.jobs:
            known = self.seen.jobs.get(job.owner)
            due.append(job.planned_at + SUBMIT_TIMEOUT if known is None else known.given_up_at(self.seen.safety_margin))
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
        if _is_running(job, self.seen):
            self.actions.append(RequestStop(owner=job.owner, reason=reason))
        else:
            self._end(stopped, EndKind.WITHDRAWN, reason)

    def _end(self, job: SupervisedJob, kind: EndKind, reason: str) -> None:
        self._over.add(job.owner)
        self.actions.append(EndJob(owner=job.owner, kind=kind, reason=reason))

    def _is_late(self, known: Job) -> bool:
        at = known.given_up_at(self.seen.safety_margin)
        return at is not None and at <= self._at

    def _ends_by(self, job: SupervisedJob) -> datetime:
        settings = self.seen.settings or SuperviseSettings()
        asked_at = job.stop_requested_at
        return _NEVER if asked_at is None else asked_at + settings.completion_timeout

    def _is_done(self) -> bool:
        """Return whether what there is to read is read: it was looked for, found and completed."""
        partitions = self.seen.partitions
        was_looked = self.memory.synced_at is not None and not self.memory.health.failed_runs
        return was_looked and partitions is not None and not partitions.is_empty


_NEVER = datetime.max.replace(tzinfo=UTC)


def _state(job: SupervisedJob, seen: Observation) -> JobState | None:
    known = seen.jobs.get(job.owner)
    return None if known is None else known.state


def _is_running(job: SupervisedJob, seen: Observation) -> bool:
    return _state(job, seen) is JobState.RUNNING


def _steady(memory: Supervision, seen: Observation) -> DetailedState:
    if memory.terminated_at is not None:
        return DetailedState.STOPPING if memory.jobs else DetailedState.TERMINATED
    return DetailedState.SUSPENDED if seen.is_suspended else DetailedState.RUNNING


def _why_given_up(known: Job) -> str:
    if known.state is JobState.RUNNING:
        return f"the job vanished: it gave no sign of life since its lease ran out at {known.since:%H:%M:%S} UTC"
    by = "in time" if known.start_by is None else f"by {known.start_by:%Y-%m-%d %H:%M:%S} UTC"
    return f"the job did not begin {by}; see whether the cluster has room for it"
