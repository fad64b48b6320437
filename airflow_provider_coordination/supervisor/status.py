"""The status of a supervisor: one JSON object, computed only from the store.

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

from airflow_provider_coordination.coordination.errors import CoordinationError, SupervisorNotFoundError
from airflow_provider_coordination.coordination.job_reports import COUNTED, WINDOWS, ErrorEvent, JobReport, RecordCounts
from airflow_provider_coordination.coordination.jobs import Job, Jobs, JobState
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus, format_instant
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.sources.inspection import open_loss
from airflow_provider_coordination.spark.job_settings import BadRecordSettings
from airflow_provider_coordination.supervisor.decisions import Decision, decide
from airflow_provider_coordination.supervisor.observation import (
    MAX_REPORT_AGE,
    LagReading,
    LagSeries,
    Observation,
    PartitionCounts,
)
from airflow_provider_coordination.supervisor.observer import is_readable
from airflow_provider_coordination.supervisor.settings import SuperviseSettings
from airflow_provider_coordination.supervisor.spec import IngestionSpec, SpecChange, change_between
from airflow_provider_coordination.supervisor.spec_values import without_secrets
from airflow_provider_coordination.supervisor.states import DetailedState
from airflow_provider_coordination.supervisor.store import StoredSupervision, SupervisionStore
from airflow_provider_coordination.supervisor.supervision import SpecVersion, SupervisedJob, Supervision
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
VANISHED = "VANISHED"
"""The state of a job that did not start in time, or whose lease has expired."""


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """The stored state of a supervisor and its source.

    :param source: the source.
    :param at: when it was read (aware).
    :param safety_margin: by how much the clocks of machines may differ.
    :param supervision: the supervisor's own state, and its lease.
    :param latest: the latest version of the spec, which may be a termination; None if it is unreadable.
    :param spec: the current spec, or the last before a termination, as written; None if it is unreadable.
    :param settings: how the source is supervised; None if the spec cannot be read by this version of the package.
    :param bad_records: what happens to bad records; None if the spec cannot be read.
    :param at_least_once: the names of its sinks that may receive a batch more than once.
    :param job_log_url: the template of the URL of a job's log, with `{application_id}`; None if there is none.
    :param problem: why the spec cannot be read; empty if it can.
    :param outdated: the versions of the spec whose jobs differ from those of the current version.
    :param suspension: the suspension of the source; None if it is not suspended.
    :param jobs: the jobs of the supervisor in the store, by owner.
    :param partitions: the numbers of partitions by status.
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
    spec: Mapping[str, Any] | None = None
    settings: SuperviseSettings | None = None
    bad_records: BadRecordSettings | None = None
    at_least_once: Sequence[str] = ()
    job_log_url: str | None = None
    problem: str = ""
    outdated: frozenset[int] = frozenset()
    suspension: Suspension | None = None
    jobs: Mapping[str, Job] = field(default_factory=dict)
    partitions: Mapping[PartitionStatus, int] = field(default_factory=dict)
    unfinished: Sequence[Partition] = ()
    parked: Sequence[Partition] = ()
    lag: LagSeries = field(default_factory=LagSeries)
    dag_is_paused: bool | None = None

    @property
    def memory(self) -> Supervision:
        """The supervisor's own state."""
        return self.supervision.supervision


def read_status(view: SourceView, is_paused: Callable[[str], bool | None] | None = None) -> dict[str, Any] | None:
    """Return the status of a source's supervisor as a JSON object; None if the source has none.

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
        spec=None if ruling is None else ruling.spec,
        settings=None if spec is None else spec.supervise,
        bad_records=None if spec is None else spec.ingestion.bad_records,
        at_least_once=() if spec is None else spec.at_least_once,
        job_log_url=None if spec is None else spec.tuning.job_log_url,
        problem=problem,
        outdated=frozenset() if spec is None else frozenset(_outdated(store, memory, spec)),
        suspension=view.suspensions.get(),
        jobs=_jobs(view, memory),
        partitions=view.count_by_status(),
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


def status_of(stored: StoredState) -> dict[str, Any]:
    """Return the status of a supervisor as a JSON object: a pure function of the stored state."""
    memory = stored.memory
    decision = _decision(stored)
    reading, lag_at = _lag_reading(stored)
    jobs = _job_rows(stored, {} if reading is None else reading.partitions)
    state = _state(stored, jobs)
    return {
        "source": stored.source,
        "dag_id": memory.dag_id,
        "dag_is_paused": stored.dag_is_paused,
        "kind": _kind(stored),
        "generated_at": format_instant(stored.at),
        "state": state.basic.value,
        "detailed_state": state.value,
        "healthy": state.is_healthy,
        "suspended": None if stored.suspension is None else suspension_mapping(stored.suspension),
        "terminated": None
        if memory.terminated_at is None
        else {"at": format_instant(memory.terminated_at), "reason": memory.termination_reason},
        "spec_version": memory.spec_version,
        "spec_by": "" if stored.latest is None else stored.latest.by,
        "spec_at": None if stored.latest is None else format_instant(stored.latest.submitted_at),
        "at_least_once": list(stored.at_least_once),
        "started_at": _format_instant(memory.started_at),
        "polled_at": _format_instant(memory.polled_at),
        "is_supervised": stored.supervision.is_supervised(stored.at),
        "supervised_until": _format_instant(stored.supervision.leased_until),
        "task_count": _task_count(stored, decision),
        "partitions": {
            "open": sum(stored.partitions.get(status, 0) for status in UNFINISHED),
            **{status.value: stored.partitions.get(status, 0) for status in PartitionStatus},
        },
        "jobs": jobs,
        "lag": _lag(stored, reading, lag_at),
        "lag_series": [
            {
                "at": format_instant(point.at),
                "oldest_ms": point.oldest_ms,
                "sum_ms": point.sum_ms,
                "counted": point.counted.to_mapping(),
            }
            for point in stored.lag.points
        ],
        "stats": _stats(stored),
        "errors": _errors(stored, decision),
        "needs_turn": bool(decision.actions),
    }


def suspension_mapping(suspension: Suspension) -> dict[str, Any]:
    """Return a suspension as a JSON object."""
    return {"since": format_instant(suspension.since), "by": suspension.by, "reason": suspension.reason}


# The state


def _state(stored: StoredState, jobs: list[dict[str, Any]]) -> DetailedState:
    """Return the state that the supervisor recorded, corrected by later changes."""
    memory, recorded = stored.memory, stored.memory.health.state
    if memory.terminated_at is not None:
        works = any(job["state"] != VANISHED for job in jobs)
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
        is_empty=not any(stored.partitions.values()),
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


def _task_count(stored: StoredState, decision: Decision) -> dict[str, Any]:
    settings = stored.settings
    scaling = None if settings is None else settings.auto_scale
    return {
        "wanted": decision.wanted,
        "configured": None if settings is None else settings.task_count,
        "min": None if scaling is None else scaling.task_count_min,
        "max": None if scaling is None else scaling.task_count_max,
        "reason": decision.reason,
        "changes": [change.to_mapping() for change in stored.memory.task_count_changes],
    }


# Jobs


def _job_rows(stored: StoredState, lags: Mapping[str, int | None]) -> list[dict[str, Any]]:
    """Return the jobs that have not ended: those in the supervisor's state, and others that work for it.

    :param lags: the lag of each unfinished partition in milliseconds, by key.
    """
    remembered = {job.owner: job for job in stored.memory.jobs}
    rows = []
    for owner in {**remembered, **stored.jobs}:
        known = stored.jobs.get(owner)
        if known is None or known.state is not JobState.ENDED:
            rows.append(_job_row(stored, owner, remembered.get(owner), known, lags))
    return rows


def _job_row(
    stored: StoredState, owner: str, planned: SupervisedJob | None, known: Job | None, lags: Mapping[str, int | None]
) -> dict[str, Any]:
    """Return a job that has not ended.

    :param planned: the job in the supervisor's state; None if it is not there.
    :param known: the job in the store; None if it is planned and about to be submitted.
    """
    leased = [each.partition_key for each in stored.unfinished if each.owner == owner and not each.is_awaiting]
    stop_reason = planned.stop_reason if planned is not None and planned.is_ending else None
    if known is not None and known.stop is not None:
        stop_reason = known.stop
    planned_at = planned.planned_at if planned is not None else known and known.submitted_at
    return {
        "owner": owner,
        "state": _job_state(stored, known, is_ending=stop_reason is not None),
        "spec_version": None if planned is None else planned.spec_version,
        "planned_at": _format_instant(planned_at or None),
        "started_at": None if planned is None else _format_instant(planned.began_at),
        "remaining_seconds": _remaining(stored, planned),
        "application_id": None if known is None else known.application_id,
        "log": None if known is None else _log_of(stored, known),
        "partitions": len(leased),
        "lag_ms": max([lag for key in leased if (lag := lags.get(key)) is not None], default=None),
        "stop_reason": stop_reason,
        "is_outdated": planned is not None and planned.spec_version in stored.outdated,
    }


def _log_of(stored: StoredState, known: Job) -> str | None:
    """Return the URL of a job's log if the spec has a template for it, else its path where it was submitted."""
    if not stored.job_log_url or not known.application_id:
        return known.log
    return stored.job_log_url.replace("{application_id}", quote(known.application_id, safe=""))


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


def _lag(stored: StoredState, reading: LagReading | None, at: datetime | None) -> dict[str, Any]:
    unknown = LagReading(
        at=stored.at, partitions={each.partition_key: None for each in stored.unfinished}, is_in_contact=False
    )
    shown = reading or unknown
    point = shown.point
    return {
        "at": _format_instant(at),
        "oldest_ms": point.oldest_ms,
        "sum_ms": point.sum_ms,
        "average_ms": point.average_ms,
        "unknown": point.unknown,
        "partitions": shown.partitions,
    }


def _live_reports(stored: StoredState) -> list[JobReport]:
    """Return the reports of the jobs that work."""
    alive = [job.report for job in stored.jobs.values() if _is_alive(stored, job)]
    return [report for report in alive if report is not None]


def _lag_lifetime(stored: StoredState) -> timedelta:
    """Return how long the recorded lag counts as known: a poll may come late, but two do not fail to come."""
    settings = stored.settings or SuperviseSettings()
    scaling = settings.auto_scale
    interval = settings.period if scaling is None else scaling.lag_collection_interval
    return max(MAX_REPORT_AGE, 2 * interval)


def _stats(stored: StoredState) -> dict[str, Any]:
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
        jobs[job.owner] = {"totals": job.report.totals.to_mapping(), "rates": own}
        for window, rate in own.items():
            rates[window] = {name: round(rates[window][name] + rate[name], 3) for name in COUNTED}
    return {"totals": totals.to_mapping(), "rates": rates, "jobs": jobs}


def _rates(rate: object) -> dict[str, float]:
    known = rate if isinstance(rate, Mapping) else {}
    return {name: float(value) if isinstance(value := known.get(name), int | float) else 0.0 for name in COUNTED}


def _errors(stored: StoredState, decision: Decision) -> list[dict[str, Any]]:
    """Return the errors, the latest first. A spec that cannot be read, and parked partitions, are current errors."""
    recorded = list(reversed(decision.supervision.health.errors))
    if stored.memory.terminated_at is not None:
        return [error.to_mapping() for error in recorded]
    current = [_parked_error(partition, recorded, stored.at) for partition in stored.parked]
    if stored.problem:
        current.insert(0, ErrorEvent(at=stored.at, error_class="ConfigurationError", message=stored.problem))
    shown = {error.partition for error in current if error.partition is not None}
    return [error.to_mapping() for error in (*current, *(each for each in recorded if each.partition not in shown))]


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


def read_parse_errors(view: SourceView) -> dict[str, Any]:
    """Return the bad records of a supervisor as a JSON object.

    :returns: `count`, the number of bad records that all jobs found; `dead_letter_path`, the folder where they are, or
        None if a bad record fails its batch; and as `errors` those that jobs listed in the last day, the latest first,
        with `at`, `stage`, `error`, the fields that identify the record, and the job's `owner`.
    :raises SupervisorNotFoundError: if the source has no supervisor.
    """
    stored = read_stored_state(view)
    if stored is None:
        raise SupervisorNotFoundError(no_supervisor(view.source))
    totals = _stats(stored)["totals"]
    path = None if stored.bad_records is None else stored.bad_records.dead_letter_path
    errors = [
        {**error, "owner": job.owner}
        for job in Jobs(view).of_task(task_of(view.source))
        if job.report is not None
        for error in job.report.parse_errors
    ]
    return {
        "source": view.source,
        "count": totals["unparseable"] + totals["processed_with_error"],
        "dead_letter_path": without_secrets(path),
        "errors": sorted(errors, key=lambda error: str(error.get("at") or ""), reverse=True),
    }


def no_supervisor(source: str) -> str:
    """Return the error message for a source without a supervisor."""
    return f"source {source!r} has no supervisor; check the name, or submit a spec to create one"


def _kind(stored: StoredState) -> str | None:
    reads = None if stored.spec is None else stored.spec.get("reads")
    return next(iter(reads), None) if isinstance(reads, Mapping) else None


def _format_instant(instant: datetime | None) -> str | None:
    return None if instant is None else format_instant(instant)
