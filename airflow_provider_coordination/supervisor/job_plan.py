"""How many jobs read a source by its lag, and which jobs start, stop or are ended to reach the number. Pure functions.

Scaling has the window semantics of Druid's lag-based autoscaler. Every point of the window counts for more jobs, for
fewer jobs, or for neither. More has priority. Hysteresis: between the two thresholds nothing changes, nor within
`min_trigger_scale_action_frequency` after a change. An incomplete window changes nothing: after a pause or a change, a
few points are not enough.

Unlike in Druid, a point counts for more jobs by the time that its unread records take to be read. That is its lag if
the jobs read as much as arrives, less if they catch up, and more if they fall behind.

Each decision for another number empties the window, also a refused one, and so does whatever starts or stops a job. In
Druid, a refused decision keeps the points, because there a few new points would suffice for the next decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from fractions import Fraction

from airflow_provider_coordination.coordination.jobs import RETENTION, Job, JobState
from airflow_provider_coordination.coordination.texts import storable
from airflow_provider_coordination.supervisor.backlog import ReadingPace
from airflow_provider_coordination.supervisor.observation import LagPoint, Observation
from airflow_provider_coordination.supervisor.settings import AVERAGE, SUM, AutoScaleSettings, SuperviseSettings
from airflow_provider_coordination.supervisor.supervision import SupervisedJob, Supervision


class EndKind(StrEnum):
    """Why the supervisor itself ends a job."""

    WITHDRAWN = "withdrawn"
    """The job has not started and is no longer needed."""
    GIVEN_UP = "given up"
    """The job did not start in time, was never submitted, or stopped responding."""
    FORCED = "forced"
    """The job was requested to stop and did not end in time."""


@dataclass(frozen=True, kw_only=True)
class StartJob:
    """Submit a job."""

    job: SupervisedJob

    def __str__(self) -> str:
        """Return the action as a log message."""
        replaces = f" replaces={self.job.replaces}" if self.job.replaces else ""
        return f"starts a job: owner={self.job.owner} spec_version={self.job.spec_version}{replaces}"


@dataclass(frozen=True, kw_only=True)
class RequestStop:
    """Request a job to stop: it delivers what it has read and ends."""

    owner: str
    reason: str

    def __str__(self) -> str:
        """Return the action as a log message."""
        return f"requests a job to stop: owner={self.owner}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class EndJob:
    """End a job that does not end on its own, and release its leases."""

    owner: str
    kind: EndKind
    reason: str

    def __str__(self) -> str:
        """Return the action as a log message."""
        return f"ends a job ({self.kind}): owner={self.owner}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class DiscoverPartitions:
    """Discover new partitions of the source."""

    def __str__(self) -> str:
        """Return the action as a log message."""
        return "discovers partitions"


@dataclass(frozen=True, kw_only=True)
class Terminate:
    """Terminate the supervisor: everything is read."""

    reason: str

    def __str__(self) -> str:
        """Return the action as a log message."""
        return f"terminates: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class ConfirmPositions:
    """Write that the partitions of an idle source are read up to now."""

    def __str__(self) -> str:
        """Return the action as a log message."""
        return "confirms that everything is read"


Action = StartJob | RequestStop | EndJob | DiscoverPartitions | ConfirmPositions | Terminate


MIN_FILL = Fraction(2, 3)
"""The fraction of points at which a window is complete: a restart or slow polls may miss some."""


@dataclass(frozen=True, kw_only=True)
class ScalingDecision:
    """A decision about the number of jobs.

    :param count: the new number of jobs.
    :param reason: the reason, in a sentence; empty if the lag requires no change.
    :param is_decided: whether a complete window required another number, even if that was refused.
    """

    count: int
    reason: str = ""
    is_decided: bool = False


def configured_count(settings: AutoScaleSettings, task_count: int) -> int:
    """Return the number of jobs before scaling changes it.

    :param task_count: the spec's `task_count`.
    """
    start = task_count if settings.task_count_start is None else settings.task_count_start
    return min(max(start, settings.task_count_min), settings.task_count_max)


def first_decision_at(settings: AutoScaleSettings, started_at: datetime) -> datetime:
    """Return when the first decision is due and the window is full (aware)."""
    return started_at + settings.scale_action_start_delay + settings.lag_collection_range


def window_of(settings: AutoScaleSettings, points: Sequence[LagPoint], now: datetime) -> list[LagPoint]:
    """Return the points of the window: one more than the range has intervals."""
    size = _size(settings)
    # Points are later than their interval by the duration of a poll.
    since = now - settings.lag_collection_range - settings.lag_collection_interval
    return [point for point in points if since < point.at <= now][-size:]


def _size(settings: AutoScaleSettings) -> int:
    return settings.lag_collection_range // settings.lag_collection_interval + 1


def scale(
    settings: AutoScaleSettings,
    count: int,
    window: Sequence[LagPoint],
    *,
    partitions: int,
    now: datetime,
    ending: int = 0,
    changed_at: datetime | None = None,
) -> ScalingDecision:
    """Decide the number of jobs.

    The result is within `task_count_min` and `task_count_max`, unless fewer partitions than that can be read. Then the
    number is not changed.

    :param count: the number of jobs that can work now: at most `partitions`.
    :param window: the points of the window.
    :param partitions: the number of readable partitions, which limits the number of jobs.
    :param now: the present instant (aware).
    :param ending: the number of jobs that still deliver what they have read; nothing changes during that time.
    :param changed_at: the last change of the number (aware); None if there was none.
    """
    change, why = _requested_change(settings, window)
    if not change:
        return ScalingDecision(count=count)
    size = _size(settings)
    if len(window) < MIN_FILL * size:
        return ScalingDecision(
            count=count, reason=f"{why}; not changed: the window is incomplete: {len(window)} of {size} points"
        )
    refusal = _refusal(settings, count, change, partitions=partitions, now=now, ending=ending, changed_at=changed_at)
    if refusal:
        return ScalingDecision(count=count, reason=f"{why}; not changed: {refusal}", is_decided=True)
    if change > 0:
        changed = min(count + settings.scale_out_step, settings.task_count_max, partitions)
    else:
        changed = max(count - settings.scale_in_step, min(settings.task_count_min, partitions))
    return ScalingDecision(count=changed, reason=why, is_decided=True)


def _refusal(
    settings: AutoScaleSettings,
    count: int,
    change: int,
    *,
    partitions: int,
    now: datetime,
    ending: int,
    changed_at: datetime | None,
) -> str:
    """Return why a required change of the number of jobs is not made; empty if it is made."""
    if ending:
        return f"{ending} jobs still deliver what they have read"
    frequency = settings.min_trigger_scale_action_frequency
    if changed_at is not None and now - changed_at < frequency:
        return f"the last change was recent, wait {_shown(changed_at + frequency - now)} more"
    max_count, min_count = min(settings.task_count_max, partitions), min(settings.task_count_min, partitions)
    if change > 0 and count >= max_count:
        return _bound(settings.task_count_max, max_count, "maximum")
    if change < 0 and count <= min_count:
        return _bound(settings.task_count_min, min_count, "minimum")
    return ""


def _requested_change(settings: AutoScaleSettings, window: Sequence[LagPoint]) -> tuple[int, str]:
    """Return whether the window requires more jobs (1), fewer (-1) or neither (0), and why."""
    if not window:
        return 0, ""
    pace, known = ReadingPace.of(window), [(_lag(point, settings.lag_aggregate), point.slots) for point in window]
    lags = [(lag, pace.reading_time(lag, slots) if pace else lag) for lag, slots in known if lag is not None]
    beyond = sum(time >= settings.scale_out_threshold for _, time in lags)
    within = sum(max(lag, time) <= settings.scale_in_threshold for lag, time in lags)
    if beyond / len(window) >= settings.trigger_scale_out_fraction:
        least = _shown(settings.scale_out_threshold)
        what = f"a lag of at least {least}" if pace is None else f"records for at least {least}, at {pace}"
        return 1, f"{beyond} of {len(window)} points have {what}"
    if within / len(window) >= settings.trigger_scale_in_fraction:
        return -1, f"{within} of {len(window)} points have a lag of at most {_shown(settings.scale_in_threshold)}"
    return 0, ""


def _lag(point: LagPoint, aggregate: str) -> timedelta | None:
    if aggregate == SUM:
        milliseconds = point.sum_ms if point.count else None
    elif aggregate == AVERAGE:
        milliseconds = point.average_ms
    else:
        milliseconds = point.oldest_ms
    return None if milliseconds is None else timedelta(milliseconds=milliseconds)


def _bound(configured: int, bound: int, which: str) -> str:
    if bound < configured:
        return f"only {bound} partitions can be read"
    return f"{bound} jobs are the {which} that 'auto_scale' allows"


def _shown(duration: timedelta) -> str:
    return f"{duration.total_seconds():g} s"


SUBMIT_TIMEOUT = timedelta(minutes=2)
"""After this time, a planned job that was not submitted is given up: the turn that planned it died."""
CONFIRM_EVERY = timedelta(hours=6)
"""How often the positions of an idle source are confirmed. Every stream keeps its records for a day or longer."""
TRANSITION = timedelta(minutes=2)
"""How long there must be too many jobs before some are stopped, because a reshard takes time. As in Druid."""
HANDOVER_TIMEOUT = timedelta(minutes=1)
"""How long a job may take to hand its partitions over to its successor and end; then it is requested to stop."""
_NEVER = datetime.max.replace(tzinfo=UTC)


class JobPlan:
    """The plan for the jobs of a supervisor while it is being decided: its new state and its actions.

    :param memory: the stored state of the supervisor.
    :param observation: the observation of the source.
    :param new_owner: returns the owner for a new job; a different one at each call.
    """

    def __init__(self, memory: Supervision, observation: Observation, new_owner: Callable[[], str]) -> None:
        self.memory = memory
        self.observation = observation
        self.actions: list[Action] = []
        self._new_owner = new_owner
        self._at = observation.at
        self._ended: set[str] = set()  # the owners of jobs that this decision ends

    def end_overdue(self) -> None:
        """End jobs that do not end on their own: they vanished, never started, or exceeded their stop timeout."""
        for job in self.memory.jobs:
            known = self.observation.jobs.get(job.owner)
            if known is None and (job.began_at is not None or self._at >= job.planned_at + RETENTION):
                self._end(
                    job,
                    EndKind.WITHDRAWN,
                    "the store no longer knows the job: the source was not supervised for a long time",
                )
            elif known is None and self._at >= job.planned_at + SUBMIT_TIMEOUT:
                self._end(job, EndKind.GIVEN_UP, "it was never submitted: the turn that planned it died")
            elif known is not None and self._is_late(known):
                self._end(job, EndKind.GIVEN_UP, self._why_given_up(known))
            elif job.is_ending and not self.observation.has_begun(job.owner):
                self._end(job, EndKind.WITHDRAWN, job.stop_reason)
            elif self._ends_by(job) <= self._at:
                self._end(job, EndKind.FORCED, f"it was requested to stop and did not end in time: {job.stop_reason}")
            elif (
                job.is_ending and known is not None and known.stop is None
            ):  # the turn died before it requested the stop
                self.actions.append(RequestStop(owner=job.owner, reason=job.stop_reason))

    def stop_orphans(self) -> None:
        """Request jobs to stop that the supervisor does not know, because its state was deleted."""
        for owner in sorted(self.observation.orphans):
            self.actions.append(RequestStop(owner=owner, reason="the supervisor does not know this job"))

    def stop_all(self, reason: str) -> None:
        """Request every job to stop."""
        for job in self._continuing_jobs():
            self._stop(job, reason)

    def reach_count(self, wanted: int) -> None:
        """Plan the changes to reach a number of reading jobs, and the handovers that are due."""
        for job in self._continuing_jobs():
            if not self._is_reading(job) and job.spec_version in self.observation.outdated:
                self._stop(job, "the spec was changed before it started")
        for successor, old in self._successions():
            due = self._taken_over_by(successor)
            if self._is_reading(successor) and due is not None and due <= self._at:
                self._stop(old, f"{successor.owner} takes over")
        self._shrink(wanted)
        self._hand_over(wanted)
        if self._may_start():
            for _ in range(wanted - len(self._slots())):
                self._start()

    def discover_partitions(self) -> None:
        """Plan the discovery of new partitions, if the supervisor must do it and it is due."""
        observation, memory = self.observation, self.memory
        if (
            observation.settings is None
            or observation.is_suspended
            or memory.terminated_at is not None
            or observation.partitions is None
        ):
            return
        has_nothing = not observation.partitions.unfinished
        if has_nothing and observation.settings.terminate_when_done and self._is_done():
            self.actions.append(Terminate(reason="all partitions are read and 'terminate_when_done' is set"))
            return
        is_due = memory.synced_at is None or self._at - memory.synced_at >= observation.settings.period
        if (has_nothing or observation.must_discover_partitions) and is_due and observation.has_news is not False:
            self.memory = replace(memory, synced_at=self._at)
            self.actions.insert(0, DiscoverPartitions())

    def confirm_positions(self) -> None:
        """Plan to write that everything is read, if the source has been idle for long."""
        idle, observation = self.memory.idle, self.observation
        is_unreachable = bool(observation.errors or self.memory.health.failed_runs)
        if idle is None or self.memory.jobs or observation.is_suspended or is_unreachable:
            return
        if self._at >= idle.confirmed_at + CONFIRM_EVERY:
            self.actions.append(ConfirmPositions())

    def next_due(self) -> datetime | None:
        """Return when something will be due, as far as it is known now."""
        settings, memory = self.observation.settings, self.memory
        due: list[datetime | None] = [memory.start_after]
        for job in memory.jobs:
            known = self.observation.jobs.get(job.owner)
            due.append(job.planned_at + SUBMIT_TIMEOUT if known is None else self._given_up_at(known))
            if job.is_ending:
                due.append(self._ends_by(job))
            elif settings is not None and job.began_at is not None:
                due.append(job.began_at + settings.task_duration)
        due += [self._taken_over_by(successor) for successor, _ in self._successions()]
        if settings is not None:
            due.append(None if memory.started_at is None else memory.started_at + settings.start_delay)
            due.append(None if memory.polled_at is None else memory.polled_at + settings.period)
            due.append(None if memory.surplus_since is None else memory.surplus_since + TRANSITION)
        return min((instant for instant in due if instant is not None and instant > self._at), default=None)

    # Parts

    def _continuing_jobs(self) -> list[SupervisedJob]:
        """Return the jobs that continue, the oldest first."""
        continuing = [job for job in self.memory.jobs if not job.is_ending and job.owner not in self._ended]
        return sorted(continuing, key=lambda job: (job.began_at or job.planned_at, job.owner))

    def _successions(self) -> list[tuple[SupervisedJob, SupervisedJob]]:
        """Return the pairs of a successor and the job that it replaces."""
        by_owner = {job.owner: job for job in self._continuing_jobs()}
        return [(job, by_owner[job.replaces]) for job in by_owner.values() if job.replaces in by_owner]

    def _slots(self) -> list[tuple[SupervisedJob, ...]]:
        """Return the continuing jobs; a job that is being replaced is grouped with its successor."""
        successors = {old.owner: successor for successor, old in self._successions()}
        taking_over = {successor.owner for successor in successors.values()}
        return [
            (job, successors[job.owner]) if job.owner in successors else (job,)
            for job in self._continuing_jobs()
            if job.owner not in taking_over
        ]

    def _hand_over(self, wanted: int) -> None:
        """Start successors of jobs that reached their duration, are outdated, or were requested to hand over."""
        settings = self.observation.settings
        if settings is None or not self._may_start():
            return
        asked_at = self.memory.handover_requested_at
        ending = sum(job.is_ending for job in self.memory.jobs) + len(self._successions())
        limit = settings.stop_task_count or wanted
        for slot in self._slots():
            job = slot[0]
            if len(slot) > 1 or job.began_at is None:
                continue
            if job.spec_version in self.observation.outdated:
                self._start(replaces=job.owner)
                continue
            was_asked = asked_at is not None and job.began_at < asked_at
            is_over = self._at - job.began_at >= settings.task_duration
            if was_asked or (is_over and ending < limit):
                self._start(replaces=job.owner)
                ending += 1

    def _shrink(self, wanted: int) -> None:
        """Stop surplus jobs once the surplus has lasted for `TRANSITION`; jobs that do not read yet come first."""
        surplus = len(self._slots()) - wanted
        if surplus <= 0:
            self.memory = replace(self.memory, surplus_since=None)
            return
        since = self.memory.surplus_since or self._at
        if self._at - since < TRANSITION:
            self.memory = replace(self.memory, surplus_since=since)
            return
        self.memory = replace(self.memory, surplus_since=None)
        slots = sorted(self._slots(), key=lambda slot: slot[0].began_at is not None)
        for slot in slots[:surplus]:
            for job in slot:
                self._stop(job, f"only {wanted} jobs are needed")

    def _may_start(self) -> bool:
        settings, memory = self.observation.settings, self.memory
        if settings is None or memory.started_at is None or self._at < memory.started_at + settings.start_delay:
            return False
        if any(isinstance(action, EndJob) and action.kind is EndKind.GIVEN_UP for action in self.actions):
            return False  # giving up is a failure: the backoff is known only after it is counted
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
        if self.observation.has_begun(job.owner):
            self.actions.append(RequestStop(owner=job.owner, reason=reason))
        else:
            self._end(stopped, EndKind.WITHDRAWN, reason)

    def _end(self, job: SupervisedJob, kind: EndKind, reason: str) -> None:
        self._ended.add(job.owner)
        self.actions.append(EndJob(owner=job.owner, kind=kind, reason=reason))

    def _is_reading(self, job: SupervisedJob) -> bool:
        return self.observation.state_of(job.owner) is JobState.RUNNING

    def _is_late(self, known: Job) -> bool:
        at = self._given_up_at(known)
        return at is not None and at <= self._at

    def _given_up_at(self, known: Job) -> datetime | None:
        """Return when a job is given up (aware). A job that has started must also begin to read in time."""
        at = known.given_up_at(self.observation.safety_margin)
        if known.state is JobState.STARTING and at is not None and known.start_by is not None:
            return min(at, known.start_by)
        return at

    def _why_given_up(self, known: Job) -> str:
        ran_out_at = known.given_up_at(self.observation.safety_margin)
        if known.has_begun and ran_out_at is not None and ran_out_at <= self._at:
            since = f"{known.since:%Y-%m-%d %H:%M:%S} UTC"
            return f"the job vanished: it has not responded since its lease expired at {since}; read its log"
        by = "in time" if known.start_by is None else f"by {known.start_by:%Y-%m-%d %H:%M:%S} UTC"
        start = "start to read" if known.has_begun else "start"
        return f"the job did not {start} {by}; check whether the cluster has free resources"

    def _taken_over_by(self, successor: SupervisedJob) -> datetime | None:
        """Return when the job that a successor replaces must have ended on its own (aware)."""
        return None if successor.began_at is None else successor.began_at + HANDOVER_TIMEOUT

    def _ends_by(self, job: SupervisedJob) -> datetime:
        settings = self.observation.settings or SuperviseSettings()
        asked_at = job.stop_requested_at
        return _NEVER if asked_at is None else asked_at + settings.completion_timeout

    def _is_done(self) -> bool:
        """Return whether everything is read: partitions were discovered, and all are completed."""
        partitions = self.observation.partitions
        was_discovered = self.memory.synced_at is not None and not self.memory.health.failed_runs
        return was_discovered and partitions is not None and not partitions.is_empty
