"""The status of a supervisor, computed only from the store.

It is correct even if no supervisor is running: job reports, leases and the lease of the supervision are read from the
store at each request, and correct the state that the supervisor last recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from urllib.parse import quote

from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.job_reports import (
    COUNTED,
    WINDOWS,
    ErrorEvent,
    JobReport,
    RecordCounts,
    freshness_problem_of,
)
from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.sources.kinds import open_loss
from airflow_provider_coordination.supervisor.decisions import Decision, decide
from airflow_provider_coordination.supervisor.facts import (
    VANISHED,
    JobStats,
    JobStatus,
    LagStatus,
    SupervisorStats,
    SupervisorStatus,
    TaskCount,
    Termination,
)
from airflow_provider_coordination.supervisor.observation import (
    MAX_REPORT_AGE,
    REVIEWED_EVERY,
    LagReading,
    LagSeries,
    Observation,
    PartitionCounts,
)
from airflow_provider_coordination.supervisor.observer import is_readable, is_undelivered
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec, SpecChange, change_between
from airflow_provider_coordination.supervisor.store import StoredSupervision, SupervisionStore
from airflow_provider_coordination.supervisor.supervision import DetailedState, SpecVersion, SupervisedJob, Supervision
from airflow_provider_coordination.supervisor.turn import task_of

MAX_PARTITIONS = 20_000
"""The maximum number of unfinished partitions that are read."""
MAX_JOBS = 1_000
PARKED_SHOWN = 5
"""The maximum number of parked partitions that a status lists as errors."""
UNSUPERVISED_AFTER = timedelta(minutes=2)
"""How long a supervision may be without a lease: between two runs of its DAG it has none for seconds."""
RATES_FRESH = timedelta(minutes=1)
"""Rates in older reports are ignored: the job has stopped working."""


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """The stored state of a supervisor and its source.

    :param source: the source.
    :param at: when it was read (aware).
    :param safety_margin: by how much the clocks of machines may differ.
    :param supervision: the supervisor's own state, and its lease.
    :param latest: the latest version of the spec, which may be a termination; None if it is unreadable.
    :param written: the current spec, or the last before a termination, as written; None if it is unreadable.
    :param spec: the same spec as this version of the package reads it; None if it cannot.
    :param problem: why the spec cannot be read; empty if it can.
    :param outdated: the versions of the spec whose jobs differ from those of the current version.
    :param suspension: the suspension of the source; None if it is not suspended.
    :param jobs: the jobs of the supervisor in the store, by owner.
    :param counts: the numbers of partitions by status.
    :param unfinished: the partitions that are not COMPLETED, up to `MAX_PARTITIONS`.
    :param parked: the first partitions that are parked.
    :param lag: the lag as the supervisor recorded it.
    :param dag_is_paused: whether the supervising DAG is paused; None if unknown.
    """

    source: str
    at: datetime
    safety_margin: timedelta
    supervision: StoredSupervision
    latest: SpecVersion | None = None
    written: Mapping[str, Any] | None = None
    spec: IngestionSpec | None = None
    problem: str = ""
    outdated: frozenset[int] = frozenset()
    suspension: Suspension | None = None
    jobs: Mapping[str, Job] = field(default_factory=dict)
    counts: Mapping[PartitionStatus, int] = field(default_factory=dict)
    unfinished: Sequence[Partition] = ()
    parked: Sequence[Partition] = ()
    lag: LagSeries = field(default_factory=LagSeries)
    dag_is_paused: bool | None = None

    @property
    def settings(self) -> SuperviseSettings | None:
        """How the source is supervised; None if the spec cannot be read."""
        return None if self.spec is None else self.spec.supervise

    @property
    def memory(self) -> Supervision:
        """The supervisor's own state."""
        return self.supervision.supervision


def read_status(view: SourceView, is_paused: Callable[[str], bool | None] | None = None) -> SupervisorStatus | None:
    """Return the status of a source's supervisor; None if the source has none.

    :param view: an initialized view of the source.
    :param is_paused: returns whether a DAG is paused, or None if it does not exist; None if Airflow is not available.
    """
    stored = read_stored_state(view)
    if stored is None:
        return None
    dag_id = stored.memory.dag_id
    return status_of(replace(stored, dag_is_paused=is_paused(dag_id) if is_paused and dag_id else None))


def read_stored_state(view: SourceView) -> StoredState | None:
    """Read the stored state of a supervisor; None if the source has none."""
    store = SupervisionStore(view)
    supervision = store.get()
    if supervision is None or not supervision.supervision.spec_version:
        return None
    memory = supervision.supervision
    latest = store.spec(memory.spec_version)
    ruling = store.spec(memory.spec_version - 1) if latest is not None and latest.is_termination else latest
    spec, problem = _read_spec(ruling)
    return StoredState(
        source=view.source,
        at=view.clock.now(),
        safety_margin=view.safety_margin,
        supervision=supervision,
        latest=latest,
        written=None if ruling is None else ruling.spec,
        spec=spec,
        problem=problem,
        outdated=frozenset() if spec is None else frozenset(_outdated(store, memory, spec)),
        suspension=view.suspensions.get(),
        jobs=_jobs(view, memory),
        counts=view.count_by_status(),
        unfinished=_unfinished(view),
        parked=list(islice(view.parked(), PARKED_SHOWN)),
        lag=store.lag(),
    )


def _unfinished(view: SourceView) -> list[Partition]:
    """Return the unfinished partitions, each once, as it was met last: its status may change during the walk."""
    return list({each.partition_key: each for each in islice(view.partitions(*UNFINISHED), MAX_PARTITIONS)}.values())


def _read_spec(version: SpecVersion | None) -> tuple[IngestionSpec | None, str]:
    """Return a spec, or the reason why it cannot be read."""
    if version is None or version.spec is None:
        return None, "the stored spec is unreadable; submit it again"
    try:
        return IngestionSpec.read(version.spec), ""
    except CoordinationError as error:
        return None, f"version {version.version} of the spec cannot be read: {error}"


def _outdated(store: SupervisionStore, memory: Supervision, spec: IngestionSpec) -> Iterable[int]:
    """Yield the versions of the spec whose jobs differ from those of the current version."""
    for number in {job.spec_version for job in memory.jobs} - {memory.spec_version}:
        old, _ = _read_spec(store.spec(number))
        if change_between(old, spec) is SpecChange.JOBS:
            yield number


def _jobs(view: SourceView, memory: Supervision) -> dict[str, Job]:
    """Return the supervisor's jobs from the store: those in its state, and others that work for it."""
    known, task = Jobs(view), task_of(view.source)
    jobs = {job.owner: job for job in islice(known.unfinished(), MAX_JOBS) if job.task == task}
    for job in memory.jobs:
        if job.owner not in jobs and (ended := known.get(job.owner)) is not None:
            jobs[job.owner] = ended
    return jobs


def status_of(stored: StoredState) -> SupervisorStatus:
    """Return the status of a supervisor: a pure function of the stored state."""
    memory = stored.memory
    decision = _decision(stored)
    reading, lag_at = _lag_reading(stored)
    jobs = _job_rows(stored, {} if reading is None else reading.partitions)
    state = _state(stored, jobs)
    return SupervisorStatus(
        source=stored.source,
        dag_id=memory.dag_id,
        dag_is_paused=stored.dag_is_paused,
        kind=_kind(stored),
        generated_at=stored.at,
        state=state.basic.value,
        detailed_state=state.value,
        healthy=state.is_healthy,
        suspended=stored.suspension,
        terminated=None
        if memory.terminated_at is None
        else Termination(at=memory.terminated_at, reason=memory.termination_reason),
        spec_version=memory.spec_version,
        spec_by="" if stored.latest is None else stored.latest.by,
        spec_at=None if stored.latest is None else stored.latest.submitted_at,
        at_least_once=() if stored.spec is None else tuple(stored.spec.at_least_once),
        started_at=memory.started_at,
        polled_at=memory.polled_at,
        is_supervised=stored.supervision.is_supervised(stored.at),
        supervised_until=stored.supervision.leased_until,
        task_count=_task_count(stored, decision),
        partitions={
            "open": sum(stored.counts.get(status, 0) for status in UNFINISHED),
            **{status.value: stored.counts.get(status, 0) for status in PartitionStatus},
        },
        jobs=jobs,
        lag=_lag(stored, reading, lag_at),
        lag_series=stored.lag.points,
        stats=stats_of(stored),
        errors=_errors(stored, decision),
        freshness_problem=freshness_problem_of(_live_reports(stored)) or None,
        needs_turn=bool(decision.actions),
    )


# The state


def _state(stored: StoredState, jobs: Sequence[JobStatus]) -> DetailedState:
    """Return the state that the supervisor recorded, corrected by later changes."""
    memory, recorded = stored.memory, stored.memory.health.state
    if memory.terminated_at is not None:
        works = any(job.state != VANISHED for job in jobs)
        return DetailedState.STOPPING if works else DetailedState.TERMINATED
    if not recorded.is_healthy:
        return recorded
    is_paused = stored.dag_is_paused is True
    is_suspended = is_paused or stored.suspension is not None
    if memory.started_at is not None and not is_suspended and is_abandoned(stored.supervision, stored.at):
        return DetailedState.NOT_SUPERVISED
    if stored.parked:
        return DetailedState.PARTITIONS_PARKED
    if is_suspended:
        return DetailedState.DAG_PAUSED if stored.suspension is None else DetailedState.SUSPENDED
    if recorded is DetailedState.SUSPENDED:  # it was resumed in between
        return DetailedState.RUNNING if memory.health.has_succeeded else DetailedState.PENDING
    return recorded


def is_abandoned(supervision: StoredSupervision, at: datetime) -> bool:
    """Return whether the source has not been supervised for a while, at an instant (aware)."""
    if supervision.is_supervised(at):
        return False
    # The priority is the instant of the release, or of the expiry of the lease.
    return at - supervision.item.priority > UNSUPERVISED_AFTER


# How many jobs


def _decision(stored: StoredState) -> Decision:
    """Return the next decision of a supervisor that knows only the stored state and does not query the source."""
    settings = stored.settings if stored.memory.terminated_at is None else None
    soon = stored.at + (timedelta(0) if settings is None else settings.period)
    remembered = {job.owner for job in stored.memory.jobs}
    counts = PartitionCounts(
        readable=sum(is_readable(partition, soon) for partition in stored.unfinished),
        unfinished=len(stored.unfinished),
        undelivered=sum(is_undelivered(partition, stored.at) for partition in stored.unfinished),
        is_empty=not any(stored.counts.values()),
    )
    observation = Observation(
        at=stored.at,
        settings=settings,
        outdated=stored.outdated,
        is_suspended=stored.suspension is not None,
        partitions=counts,
        jobs=stored.jobs,
        orphans=frozenset(
            owner
            for owner, job in stored.jobs.items()
            if owner not in remembered and job.stop is None and job.state is not JobState.ENDED
        ),
        safety_margin=stored.safety_margin,
        lag=stored.lag.points,
        open_partitions=stored.memory.open_partitions,
    )
    return decide(stored.memory, observation, lambda: "")


def _task_count(stored: StoredState, decision: Decision) -> TaskCount:
    settings = stored.settings
    scaling = None if settings is None else settings.auto_scale
    return TaskCount(
        wanted=decision.wanted,
        configured=None if settings is None else settings.task_count,
        min=None if scaling is None else scaling.task_count_min,
        max=None if scaling is None else scaling.task_count_max,
        reason=decision.reason,
        changes=stored.memory.task_count_changes,
    )


# Jobs


def _job_rows(stored: StoredState, lags: Mapping[str, int | None]) -> tuple[JobStatus, ...]:
    """Return the jobs that have not ended: those in the supervisor's state, and others that work for it.

    :param lags: the lag of each unfinished partition in milliseconds, by key.
    """
    remembered = {job.owner: job for job in stored.memory.jobs}
    rows = []
    for owner in {**remembered, **stored.jobs}:
        known = stored.jobs.get(owner)
        if known is None or known.state is not JobState.ENDED:
            rows.append(_job_row(stored, owner, remembered.get(owner), known, lags))
    return tuple(rows)


def _job_row(
    stored: StoredState, owner: str, planned: SupervisedJob | None, known: Job | None, lags: Mapping[str, int | None]
) -> JobStatus:
    """Return a job that has not ended.

    :param planned: the job in the supervisor's state; None if it is not there.
    :param known: the job in the store; None if it is planned and about to be submitted.
    """
    leased = [each.partition_key for each in stored.unfinished if each.owner == owner and not each.is_awaiting]
    stop_reason = planned.stop_reason if planned is not None and planned.is_ending else None
    if known is not None and known.stop is not None:
        stop_reason = known.stop
    planned_at = None if known is None else known.submitted_at
    return JobStatus(
        owner=owner,
        state=_job_state(stored, known, is_ending=stop_reason is not None),
        spec_version=None if planned is None else planned.spec_version,
        planned_at=planned_at if planned is None else planned.planned_at,
        started_at=None if planned is None else planned.began_at,
        remaining_seconds=_remaining(stored, planned),
        application_id=None if known is None else known.application_id,
        log=None if known is None else _log_of(stored, known),
        partitions=len(leased),
        slots=None if known is None or known.report is None else known.report.slots,
        lag_ms=max([lag for key in leased if (lag := lags.get(key)) is not None], default=None),
        stop_reason=stop_reason,
        is_outdated=planned is not None and planned.spec_version in stored.outdated,
    )


def _log_of(stored: StoredState, known: Job) -> str | None:
    """Return the URL of a job's log if the spec has a template for it, else its path where it was submitted."""
    template = None if stored.spec is None else stored.spec.tuning.job_log_url
    if not template or not known.application_id:
        return known.log
    return template.replace("{application_id}", quote(known.application_id, safe=""))


def _job_state(stored: StoredState, known: Job | None, *, is_ending: bool) -> str:
    if known is None:
        return JobState.SUBMITTED.value
    given_up_at = known.given_up_at(stored.safety_margin)
    if given_up_at is not None and given_up_at <= stored.at:
        return VANISHED
    return "ENDING" if is_ending else known.state.value


def _is_alive(stored: StoredState, known: Job) -> bool:
    return known.state is not JobState.ENDED and _job_state(stored, known, is_ending=False) != VANISHED


def _remaining(stored: StoredState, job: SupervisedJob | None) -> int | None:
    """Return how many seconds a job still reads or, if it is stopping, until it is ended by force."""
    if job is None or stored.settings is None:
        return None
    if job.stop_requested_at is not None:
        until = job.stop_requested_at + stored.settings.completion_timeout
    elif job.began_at is not None:
        until = job.began_at + stored.settings.task_duration
    else:
        return None
    return max(0, int((until - stored.at).total_seconds()))


# Lag, statistics and errors


def _lag_reading(stored: StoredState) -> tuple[LagReading | None, datetime | None]:
    """Return the lag of each unfinished partition, as reported by live jobs or recorded by the supervisor.

    :returns: the reading, and when it was made; no reading if nothing recent is known.
    """
    recorded, reports = stored.lag.latest, _live_reports(stored)
    newer = [report for report in reports if recorded is None or report.at > recorded.at]
    at = max([report.at for report in newer], default=None if recorded is None else recorded.at)
    if at is None or stored.at - at > _lag_lifetime(stored):
        return None, at
    is_stale = recorded is None or stored.at - recorded.at > _lag_lifetime(stored)
    return LagReading.of(
        stored.unfinished,
        {} if recorded is None or is_stale else recorded.partitions,
        newer,
        at=stored.at,
        is_in_contact=recorded is None or is_stale or recorded.is_in_contact,
    ), at


def _lag(stored: StoredState, reading: LagReading | None, at: datetime | None) -> LagStatus:
    unknown = {each.partition_key: None for each in stored.unfinished}
    shown = reading or LagReading(at=stored.at, partitions=unknown, is_in_contact=False)
    point = shown.point
    return LagStatus(
        at=at,
        oldest_ms=point.oldest_ms,
        sum_ms=point.sum_ms,
        average_ms=point.average_ms,
        unknown=point.unknown,
        partitions=shown.partitions,
    )


def _live_reports(stored: StoredState) -> list[JobReport]:
    """Return the reports of the jobs that work."""
    alive = [job.report for job in stored.jobs.values() if _is_alive(stored, job)]
    return [report for report in alive if report is not None]


def _lag_lifetime(stored: StoredState) -> timedelta:
    """Return how long the recorded lag counts as known: a poll may come late, but two do not fail to come."""
    interval = (stored.settings or SuperviseSettings()).lag_interval
    return max(MAX_REPORT_AGE, 2 * (interval if stored.memory.idle is None else max(interval, REVIEWED_EVERY)))


def stats_of(stored: StoredState) -> SupervisorStats:
    """Return the record counts of all jobs including ended ones, and the rates per second of running jobs."""
    totals = RecordCounts.from_mapping(stored.memory.totals)
    rates = {window: dict.fromkeys(COUNTED, 0.0) for window in WINDOWS}
    jobs = {}
    for job in stored.jobs.values():
        if job.report is None:
            continue
        totals += job.report.totals
        if not _is_alive(stored, job):
            continue
        is_fresh = stored.at - job.report.at < RATES_FRESH
        own = {window: _rates(job.report.rates.get(window) if is_fresh else None) for window in WINDOWS}
        jobs[job.owner] = JobStats(totals=job.report.totals, rates=own)
        for window, rate in own.items():
            rates[window] = {name: round(rates[window][name] + rate[name], 3) for name in COUNTED}
    return SupervisorStats(totals=totals, rates=rates, jobs=jobs)


def _rates(rate: object) -> dict[str, float]:
    known = rate if isinstance(rate, Mapping) else {}
    return {name: float(value) if isinstance(value := known.get(name), int | float) else 0.0 for name in COUNTED}


def _errors(stored: StoredState, decision: Decision) -> tuple[ErrorEvent, ...]:
    """Return the errors, the latest first. A spec that cannot be read, and parked partitions, are current errors."""
    recorded = list(reversed(decision.supervision.health.errors))
    if stored.memory.terminated_at is not None:
        return tuple(recorded)
    current = [_parked_error(partition, recorded, stored.at) for partition in stored.parked]
    if stored.problem:
        current.insert(
            0,
            ErrorEvent(at=stored.at, error_class="ConfigurationError", message=stored.problem),
        )
    shown = {error.partition for error in current if error.partition is not None}
    return (*current, *(each for each in recorded if each.partition not in shown))


def _parked_error(partition: Partition, recorded: Sequence[ErrorEvent], now: datetime) -> ErrorEvent:
    """Return the error of a parked partition, with the instant and the class of its latest recorded error.

    :param recorded: the recorded errors, the latest first.
    """
    key = partition.partition_key
    known = next((error for error in recorded if error.partition == key), None)
    if (lost := open_loss(partition)) is not None:
        loss, remedy = lost
        message = f"partition {key!r} is parked, data is gone: {loss}. {remedy}"
    else:
        reason = partition.last_error or "a user parked it"
        message = f"partition {key!r} is parked, and no job reads it: {reason}; fix the cause, then reopen it"
    return ErrorEvent(
        at=now if known is None else known.at,
        error_class="PartitionParked" if known is None else known.error_class,
        message=message,
        partition=key,
        owner=None if known is None else known.owner,
        is_stream_error=known is not None and known.is_stream_error,
    )


def _kind(stored: StoredState) -> str | None:
    reads = None if stored.written is None else stored.written.get("reads")
    return next(iter(reads), None) if isinstance(reads, Mapping) else None
