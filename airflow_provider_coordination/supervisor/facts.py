"""What users see of a supervisor. These values are the JSON of commands, XComs and HTTP, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.job_reports import ErrorEvent, RecordCounts
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.supervisor.observation import LagPoint
from airflow_provider_coordination.supervisor.supervision import TaskCountChange

VANISHED = "VANISHED"
"""The state of a job that did not start in time, or whose lease has expired."""


@dataclass(frozen=True, kw_only=True)
class Termination:
    """The termination of a supervisor."""

    at: datetime
    reason: str


@dataclass(frozen=True, kw_only=True)
class TaskCount:
    """How many jobs a supervisor wants, and why. `min` and `max` are the limits of its scaling, and None without it."""

    wanted: int | None
    configured: int | None
    min: int | None
    max: int | None
    reason: str
    changes: tuple[TaskCountChange, ...]


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job of a supervisor that has not ended.

    :param owner: the owner of its leases.
    :param state: a `JobState`, `ENDING` if it was requested to stop, or `VANISHED`.
    :param spec_version: the version of the spec that it works with; None if unknown.
    :param planned_at: when it was planned or submitted (aware).
    :param started_at: when it was first observed to read (aware).
    :param remaining_seconds: how long it still reads, or until it is ended by force; None if unknown.
    :param application_id: its Spark application id.
    :param log: the URL of its log, or the path where it was submitted.
    :param partitions: the number of partitions that it reads.
    :param slots: how many Spark tasks it runs at the same time; None if unknown.
    :param lag_ms: the largest known lag of these partitions, in milliseconds.
    :param stop_reason: why it stops; None if it does not.
    :param is_outdated: whether the current spec needs another job.
    """

    owner: str
    state: str
    spec_version: int | None
    planned_at: datetime | None
    started_at: datetime | None
    remaining_seconds: int | None
    application_id: str | None
    log: str | None
    partitions: int
    slots: int | None
    lag_ms: int | None
    stop_reason: str | None
    is_outdated: bool


@dataclass(frozen=True, kw_only=True)
class LagStatus:
    """The lag of a source and its unfinished partitions, in milliseconds; None if it is unknown."""

    at: datetime | None
    oldest_ms: int | None
    sum_ms: int | None
    average_ms: int | None
    unknown: int
    partitions: Mapping[str, int | None]


@dataclass(frozen=True, kw_only=True)
class JobStats:
    """The counters of a job since its start, and their rates per second, by window."""

    totals: RecordCounts
    rates: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, kw_only=True)
class SupervisorStats(JobStats):
    """The counters of all jobs; `totals` includes jobs that have ended. `jobs` are by owner."""

    jobs: Mapping[str, JobStats]


@dataclass(frozen=True, kw_only=True)
class SourceStats(SupervisorStats):
    """The counters of a supervisor's jobs."""

    source: str
    generated_at: datetime


@dataclass(frozen=True, kw_only=True)
class SupervisorHealth:
    """Whether a supervisor is healthy: no user needs to act."""

    source: str
    healthy: bool
    state: str
    detailed_state: str


@dataclass(frozen=True, kw_only=True)
class SupervisorRuns(SupervisorHealth):
    """Who runs a supervisor, and until when it counts as supervised; instants are aware."""

    dag_id: str
    dag_is_paused: bool | None
    started_at: datetime | None
    polled_at: datetime | None
    is_supervised: bool
    supervised_until: datetime | None


@dataclass(frozen=True, kw_only=True)
class SupervisorStatus(SupervisorRuns):
    """The status of a supervisor.

    :param kind: the kind of source; None if its spec is unreadable.
    :param generated_at: when the store was read (aware).
    :param suspended: the suspension of the source; None if it is not suspended.
    :param terminated: its termination; None if it is not terminated.
    :param spec_version: the latest version of the spec, which may be a termination.
    :param spec_by: who submitted it; empty if unknown.
    :param spec_at: when it was submitted (aware).
    :param at_least_once: the names of its sinks that may receive a batch more than once.
    :param task_count: how many jobs it wants, and why.
    :param partitions: the numbers of partitions by status, and those that are not COMPLETED as `open`.
    :param jobs: its jobs that have not ended.
    :param lag: the lag of the source now.
    :param lag_series: the lag over time, the oldest first.
    :param stats: the counters of its jobs.
    :param errors: the errors, the latest first.
    :param freshness_problem: why the sinks cannot be as fresh as the target, with the remedy; None if they can, or if
        there is no target.
    :param needs_turn: whether the supervisor has something to do.
    """

    kind: str | None
    generated_at: datetime
    suspended: Suspension | None
    terminated: Termination | None
    spec_version: int
    spec_by: str
    spec_at: datetime | None
    at_least_once: tuple[str, ...]
    task_count: TaskCount
    partitions: Mapping[str, int]
    jobs: tuple[JobStatus, ...]
    lag: LagStatus
    lag_series: tuple[LagPoint, ...]
    stats: SupervisorStats
    errors: tuple[ErrorEvent, ...]
    freshness_problem: str | None
    needs_turn: bool

    def without_partitions(self) -> SupervisorStatus:
        """Return it without the lag of each partition, as one of many."""
        return replace(self, lag=replace(self.lag, partitions={}))

    @property
    def health(self) -> SupervisorHealth:
        """Whether it is healthy, without the rest."""
        return SupervisorHealth(
            source=self.source, healthy=self.healthy, state=self.state, detailed_state=self.detailed_state
        )

    @property
    def source_stats(self) -> SourceStats:
        """The counters of its jobs, without the rest."""
        return SourceStats(source=self.source, generated_at=self.generated_at, **vars(self.stats))


@dataclass(frozen=True, kw_only=True)
class ParseErrors:
    """The bad records of a supervisor.

    :param source: the source.
    :param count: the number of bad records that all jobs found.
    :param dead_letter_path: the folder where they are; None if a bad record fails its batch.
    :param errors: those that jobs listed in the last day, the latest first, with `at`, `stage`, `error`, the fields
        that identify the record, and the job's `owner`.
    """

    source: str
    count: int
    dead_letter_path: str | None
    errors: list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class SpecFacts:
    """A version of a spec without secrets.

    :param version: its number.
    :param at: when it was submitted (aware).
    :param by: the user who submitted it; empty if unknown.
    :param reason: the user's reason.
    :param is_termination: whether it ends supervision.
    :param is_from_file: whether it came from a file.
    :param change: the name of its `SpecChange`; None if it is a termination or unknown.
    :param spec: the spec as it was written; None for a termination.
    """

    version: int
    at: datetime
    by: str
    reason: str
    is_termination: bool
    is_from_file: bool
    change: str | None
    spec: Mapping[str, Any] | None


@dataclass(frozen=True, kw_only=True)
class SpecDetail(SpecFacts):
    """A version of a spec with every default, as `effective`, or the reason why it cannot be read, as `problem`."""

    effective: Mapping[str, Any] | None
    problem: str
