"""The status of supervisors, and the versions of their specs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from airflow_provider_coordination.ui.models.sources import SuspensionFacts


class TerminationFacts(BaseModel):
    """The termination of a supervisor."""

    at: datetime
    reason: str


class TaskCountChangeFacts(BaseModel):
    """A change of the number of jobs. `after` equals `before` if the change was refused."""

    at: datetime
    before: int
    after: int
    reason: str


class TaskCountFacts(BaseModel):
    """How many jobs a supervisor wants, and why. `min` and `max` are the limits of its scaling, and null without it."""

    wanted: int | None
    configured: int | None
    min: int | None
    max: int | None
    reason: str
    changes: list[TaskCountChangeFacts]


class SupervisedJobFacts(BaseModel):
    """A job of a supervisor that has not ended."""

    owner: str
    state: Literal["SUBMITTED", "STARTING", "RUNNING", "ENDING", "VANISHED"]
    spec_version: int | None
    planned_at: datetime | None
    started_at: datetime | None
    remaining_seconds: int | None
    application_id: str | None
    log: str | None
    partitions: int
    lag_ms: int | None
    stop_reason: str | None
    is_outdated: bool


class LagPointFacts(BaseModel):
    """The lag of a source at an instant, in milliseconds; null if unknown. The counters of all jobs at that time."""

    at: datetime
    oldest_ms: int | None
    sum_ms: int | None
    counted: dict[str, int]


class LagFacts(BaseModel):
    """The lag of a source and its unfinished partitions, in milliseconds; null if it is unknown."""

    at: datetime | None
    oldest_ms: int | None
    sum_ms: int | None
    average_ms: int | None
    unknown: int
    partitions: dict[str, int | None]


class SupervisorErrorFacts(BaseModel):
    """An error. `partition` and `owner` are where it occurred, if that is known."""

    at: datetime
    error_class: str
    message: str
    partition: str | None
    owner: str | None
    is_stream_error: bool


class JobStats(BaseModel):
    """The counters of a job since its start, and their rates per second, by window."""

    totals: dict[str, int]
    rates: dict[str, dict[str, float]]


class SupervisorStats(JobStats):
    """The counters of all jobs; `totals` includes jobs that have ended. `jobs` are by owner."""

    jobs: dict[str, JobStats]


class SupervisorStatus(BaseModel):
    """The status of a supervisor."""

    source: str
    dag_id: str
    dag_is_paused: bool | None
    kind: str | None
    generated_at: datetime
    state: str
    detailed_state: str
    healthy: bool
    suspended: SuspensionFacts | None
    terminated: TerminationFacts | None
    spec_version: int
    spec_by: str
    spec_at: datetime | None
    at_least_once: list[str]
    started_at: datetime | None
    polled_at: datetime | None
    is_supervised: bool
    supervised_until: datetime | None
    task_count: TaskCountFacts
    partitions: dict[str, int]
    jobs: list[SupervisedJobFacts]
    lag: LagFacts
    lag_series: list[LagPointFacts]
    stats: SupervisorStats
    errors: list[SupervisorErrorFacts]
    needs_turn: bool


class SupervisorList(BaseModel):
    """The status of supervisors, by source. `lag_series`, and `partitions` of their `lag`, are empty."""

    as_of: datetime
    supervisors: list[SupervisorStatus]


class SupervisorHealth(BaseModel):
    """Whether a supervisor is healthy."""

    source: str
    healthy: bool
    state: str
    detailed_state: str


class SourceStats(SupervisorStats):
    """The counters of a supervisor's jobs."""

    source: str
    generated_at: datetime


class ParseErrors(BaseModel):
    """The number of bad records, where they are, and those that jobs listed last, the latest first.

    `dead_letter_path` is null if a bad record fails its batch. The fields of the `errors` differ.
    """

    source: str
    count: int
    dead_letter_path: str | None
    errors: list[dict[str, Any]]


class SpecFacts(BaseModel):
    """A version of a spec. `spec` is null for a termination. Secrets are hidden."""

    version: int
    at: datetime
    by: str
    reason: str
    is_termination: bool
    is_from_file: bool
    change: Literal["NONE", "COSMETIC", "SUPERVISION", "JOBS"] | None
    spec: dict[str, Any] | None


class SpecDetail(SpecFacts):
    """A version of a spec with every default, as `effective`, or the reason why it cannot be read, as `problem`."""

    effective: dict[str, Any] | None
    problem: str


class SpecHistory(BaseModel):
    """The latest versions of a spec, the latest first."""

    source: str
    versions: list[SpecFacts]
