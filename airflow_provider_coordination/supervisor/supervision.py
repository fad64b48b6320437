"""The state that a supervisor keeps in the store, its JSON format, and the health that follows from its runs and jobs.

The items are in the family `…|SUPERVISOR` of the source, together with its suspension: one for the supervision, one per
version of the spec, and one for the lag. None is ever COMPLETED, so none expires.

The supervision is leased by the running supervisor, and every change is conditional on the version that was read. A
turn first writes its plan and then carries it out; a turn whose write is refused does nothing. So of two supervisors or
two turns, only one acts.

The states, the thresholds and the order of the rules are those of Druid's supervisor state manager, without two of its
flaws: an unhealthy state is forgotten after recovery, and recovery of the runs does not depend on the jobs, or vice
versa.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.coordination.json_values import Stored
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.stores.redaction import HIDDEN
from airflow_provider_coordination.supervisor.settings import HealthRules
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.spec_values import without_secrets


class SupervisorState(StrEnum):
    """The state of a supervisor."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    IDLE = "IDLE"
    """Everything is read and nothing arrives, so no job runs."""
    SUSPENDED = "SUSPENDED"
    STOPPING = "STOPPING"
    """Terminated, while its jobs deliver what they have read."""
    TERMINATED = "TERMINATED"
    """Terminated by a user or because everything is read; no job is left."""
    UNHEALTHY_SUPERVISOR = "UNHEALTHY_SUPERVISOR"
    UNHEALTHY_TASKS = "UNHEALTHY_TASKS"


class DetailedState(StrEnum):
    """The detailed state of a supervisor: its phase of the first run, and the cause of an unhealthy state."""

    PENDING = "PENDING"
    CONNECTING_TO_STREAM = "CONNECTING_TO_STREAM"
    DISCOVERING_INITIAL_TASKS = "DISCOVERING_INITIAL_TASKS"
    CREATING_TASKS = "CREATING_TASKS"
    RUNNING = "RUNNING"
    IDLE = "IDLE"
    SUSPENDED = "SUSPENDED"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"
    UNABLE_TO_CONNECT_TO_STREAM = "UNABLE_TO_CONNECT_TO_STREAM"
    LOST_CONTACT_WITH_STREAM = "LOST_CONTACT_WITH_STREAM"
    PARTITIONS_PARKED = "PARTITIONS_PARKED"
    """Partitions are parked, so that no job reads them until a user acts. Never recorded by a supervisor."""
    NOT_SUPERVISED = "NOT_SUPERVISED"
    """Not supervised for minutes: the DAG is paused or missing, or Airflow is down. Never recorded by a supervisor."""
    DAG_PAUSED = "DAG_PAUSED"
    """Not supervised because the DAG is paused, according to Airflow."""
    UNHEALTHY_SUPERVISOR = "UNHEALTHY_SUPERVISOR"
    UNHEALTHY_TASKS = "UNHEALTHY_TASKS"

    @property
    def basic(self) -> SupervisorState:
        """The basic state that this is a detail of."""
        if self in FIRST_RUN_ONLY:
            return SupervisorState.RUNNING
        if self in UNHEALTHY_IN_DETAIL:
            return SupervisorState.UNHEALTHY_SUPERVISOR
        if self is DetailedState.DAG_PAUSED:
            return SupervisorState.SUSPENDED
        return SupervisorState(self.value)

    @property
    def is_healthy(self) -> bool:
        """Whether no action by a user is needed."""
        return self.basic not in (SupervisorState.UNHEALTHY_SUPERVISOR, SupervisorState.UNHEALTHY_TASKS)


FIRST_RUN_ONLY = frozenset(
    {DetailedState.CONNECTING_TO_STREAM, DetailedState.DISCOVERING_INITIAL_TASKS, DetailedState.CREATING_TASKS}
)
"""States that only exist until the first run has succeeded."""
STEADY = frozenset({DetailedState.RUNNING, DetailedState.IDLE, DetailedState.SUSPENDED})
"""States that last."""
UNHEALTHY_IN_DETAIL = frozenset(
    {
        DetailedState.UNABLE_TO_CONNECT_TO_STREAM,
        DetailedState.LOST_CONTACT_WITH_STREAM,
        DetailedState.PARTITIONS_PARKED,
        DetailedState.NOT_SUPERVISED,
    }
)
"""Causes of an unhealthy supervisor other than failed runs."""


@dataclass(frozen=True, kw_only=True)
class Health(Stored):
    """The results of a supervisor's runs and jobs, and the state that follows from them.

    A run is one observation of the source and the actions that follow from it.

    :param state: the state.
    :param has_succeeded: whether a run ever succeeded.
    :param failed_runs: the number of consecutive failed runs; 0 if the last one succeeded.
    :param successful_runs: the number of consecutive successful runs.
    :param failed_jobs: the number of consecutive failed jobs.
    :param successful_jobs: the number of consecutive successful jobs.
    :param runs_were_unhealthy: whether failed runs made the supervisor unhealthy and it has not recovered.
    :param jobs_were_unhealthy: whether failed jobs made the supervisor unhealthy and it has not recovered.
    :param errors: the latest errors, the latest last.
    :param rules: when results change the state.
    """

    state: DetailedState = DetailedState.PENDING
    has_succeeded: bool = False
    failed_runs: int = 0
    successful_runs: int = 0
    failed_jobs: int = 0
    successful_jobs: int = 0
    runs_were_unhealthy: bool = False
    jobs_were_unhealthy: bool = False
    errors: tuple[ErrorEvent, ...] = ()
    rules: HealthRules = field(default_factory=HealthRules)

    def under(self, rules: HealthRules) -> Health:
        """Return the health under other rules; they apply from the next result on."""
        return self if rules == self.rules else replace(self, rules=rules, errors=self.errors[-rules.errors_kept :])

    def with_error(self, error: ErrorEvent) -> Health:
        """Return the health with one more error."""
        return replace(self, errors=(*self.errors, error)[-self.rules.errors_kept :])

    def job_ended(self, *, succeeded: bool) -> Health:
        """Return the health with one more ended job; `with_state` then computes the state."""
        if succeeded:
            return replace(self, failed_jobs=0, successful_jobs=self.successful_jobs + 1)
        return replace(self, failed_jobs=self.failed_jobs + 1, successful_jobs=0)

    def run_ended(self, *, succeeded: bool, steady: DetailedState) -> Health:
        """Return the health with one more ended run.

        :param steady: the state of the supervisor if it is healthy, one of `STEADY`.
        """
        if succeeded:
            counted = replace(self, has_succeeded=True, failed_runs=0, successful_runs=self.successful_runs + 1)
        else:
            counted = replace(self, failed_runs=self.failed_runs + 1, successful_runs=0)
        return counted.with_state(steady)

    def with_state(self, proposed: DetailedState) -> Health:
        """Return the health in the proposed state, unless the results of runs and jobs require another one."""
        if self.state in (DetailedState.STOPPING, DetailedState.TERMINATED) and proposed not in (
            DetailedState.STOPPING,
            DetailedState.TERMINATED,
        ):
            return self
        if proposed in (DetailedState.STOPPING, DetailedState.TERMINATED):
            return replace(self, state=proposed)
        if self.failed_runs >= self.rules.unhealthy_after:
            return replace(self, state=self._unhealthy_supervisor, runs_were_unhealthy=True)
        if self.failed_jobs >= self.rules.jobs_unhealthy_after:
            return replace(self, state=DetailedState.UNHEALTHY_TASKS, jobs_were_unhealthy=True)
        recovered = replace(
            self,
            runs_were_unhealthy=self.runs_were_unhealthy and self.successful_runs < self.rules.healthy_after,
            jobs_were_unhealthy=self.jobs_were_unhealthy and self.successful_jobs < self.rules.jobs_healthy_after,
        )
        if recovered.runs_were_unhealthy:
            is_of_runs = self.state.basic is SupervisorState.UNHEALTHY_SUPERVISOR
            return recovered if is_of_runs else replace(recovered, state=self._unhealthy_supervisor)
        if recovered.jobs_were_unhealthy:
            return replace(recovered, state=DetailedState.UNHEALTHY_TASKS)
        if proposed in STEADY and not self.has_succeeded:
            return recovered
        if proposed in (DetailedState.PENDING, *FIRST_RUN_ONLY) and self.has_succeeded:
            return recovered if self.state.is_healthy else replace(recovered, state=DetailedState.RUNNING)
        return replace(recovered, state=proposed)

    def restarted(self) -> Health:
        """Return the health of a supervisor that starts again after a termination; its errors are kept."""
        return Health(errors=self.errors, rules=self.rules)

    def cannot_read(self, failing: Collection[str]) -> bool:
        """Return whether a job failed to read a partition because of the source, and no job has read it since.

        :param failing: the partitions whose last attempt failed.
        """
        return any(error.is_stream_error and error.partition in failing for error in self.errors)

    @property
    def _unhealthy_supervisor(self) -> DetailedState:
        of_runs = [error for error in self.errors if error.is_stream_error or error.owner is None]
        if not of_runs or not of_runs[-1].is_stream_error:
            return DetailedState.UNHEALTHY_SUPERVISOR
        if self.has_succeeded:
            return DetailedState.LOST_CONTACT_WITH_STREAM
        return DetailedState.UNABLE_TO_CONNECT_TO_STREAM

    @override
    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Health:
        return super().from_mapping(mapping) or cls()


KEY = "SUPERVISION"
SPEC_KEY = "SPEC:{version:06d}"
LAG_KEY = "LAG"
CHANGES_KEPT = 50


@dataclass(frozen=True, kw_only=True)
class SupervisedJob(Stored):
    """A job of a supervisor.

    :param owner: the owner of its leases; the key of its item in the family `…|JOB`.
    :param spec_version: the version of the spec that it works with.
    :param planned_at: when it was planned (aware); it is submitted right after that.
    :param began_at: when it was first observed to read (aware); None if not yet.
    :param replaces: the owner of the job that is stopped once this one reads; None if there is none.
    :param stop_requested_at: when it was requested to stop (aware); None if it was not.
    :param stop_reason: the reason of the stop.
    :param errors_noted: the number of its reported errors that are recorded.
    """

    owner: str
    spec_version: int
    planned_at: datetime
    began_at: datetime | None = None
    replaces: str | None = None
    stop_requested_at: datetime | None = None
    stop_reason: str = ""
    errors_noted: int = 0

    @property
    def is_ending(self) -> bool:
        """Whether it was requested to stop."""
        return self.stop_requested_at is not None


@dataclass(frozen=True, kw_only=True)
class TaskCountChange(Stored):
    """A change of the number of jobs, or a refused change.

    :param at: when (aware).
    :param before: the number before.
    :param after: the number after; the same as before if the change was refused.
    :param reason: the reason, in a sentence.
    """

    at: datetime
    before: int
    after: int
    reason: str

    @property
    def is_refusal(self) -> bool:
        """Whether the number stayed as it was."""
        return self.before == self.after


@dataclass(frozen=True, kw_only=True)
class Idleness(Stored):
    """An idle source.

    :param since: since when it is idle (aware).
    :param spec_version: the latest version of the spec then.
    :param open_partitions: the number of its open shards, or of its other units, then; None if unknown.
    :param confirmed_at: when its positions were last known to be read up to then (aware).
    """

    since: datetime
    spec_version: int
    open_partitions: int | None
    confirmed_at: datetime


@dataclass(frozen=True, kw_only=True)
class Supervision(Stored):
    """The state of a supervisor, beside its spec.

    :param dag_id: the supervising DAG; empty if there was none yet.
    :param spec_version: the latest version of the spec, which may be a termination; 0 if there is none. Jobs may still
        work with an earlier one.
    :param file_digest: the digest of the last version that came from a file; None if none did.
    :param started_at: when supervision started, or started again after a termination (aware); None before that.
    :param polled_at: when the source was last observed (aware).
    :param health: its health state, and the results it follows from.
    :param jobs: its jobs that have not ended, as far as it knows.
    :param task_count: the number of jobs set by scaling; None to use the spec's number.
    :param planned_count: the last planned number of jobs; None before the first plan.
    :param scaled_at: when scaling last changed the number of jobs (aware).
    :param scale_evaluated_at: when scaling last evaluated the lag (aware).
    :param lag_since: scaling ignores lag before this instant (aware): scaling decided, or jobs, positions or the spec
        changed then.
    :param task_count_changes: the latest changes and refusals, the latest last.
    :param handover_requested_at: when a handover of all jobs was requested (aware); None if no request is open.
    :param start_after: no job starts before this instant (aware): the backoff after failures.
    :param idle: since when the source is idle, and what it was like then; None if it is not.
    :param active_since: when it was last found to be no longer idle (aware); None if it never was.
    :param surplus_since: since when there are more jobs than wanted (aware); None if there are not.
    :param synced_at: when the supervisor last discovered partitions itself (aware); None if it never did.
    :param open_partitions: the last known number of open shards of the source, or of its other units; None if unknown.
    :param terminated_at: when it was terminated (aware); None if it was not.
    :param termination_reason: the reason, in a sentence.
    :param totals: the record counts of ended jobs, by name.
    """

    dag_id: str = ""
    spec_version: int = 0
    file_digest: str | None = None
    started_at: datetime | None = None
    polled_at: datetime | None = None
    health: Health = field(default_factory=Health)
    jobs: tuple[SupervisedJob, ...] = ()
    task_count: int | None = None
    planned_count: int | None = None
    scaled_at: datetime | None = None
    scale_evaluated_at: datetime | None = None
    lag_since: datetime | None = None
    task_count_changes: tuple[TaskCountChange, ...] = ()
    handover_requested_at: datetime | None = None
    start_after: datetime | None = None
    idle: Idleness | None = None
    active_since: datetime | None = None
    surplus_since: datetime | None = None
    synced_at: datetime | None = None
    open_partitions: int | None = None
    terminated_at: datetime | None = None
    termination_reason: str = ""
    totals: Mapping[str, int] = field(default_factory=dict)

    def with_change(self, change: TaskCountChange) -> Supervision:
        """Return the state with a change or refusal added. Of consecutive refusals, only the last is kept."""
        changes = self.task_count_changes
        if change.is_refusal and changes and changes[-1].is_refusal:
            changes = changes[:-1]
        return replace(self, task_count_changes=(*changes, change)[-CHANGES_KEPT:])

    @override
    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Supervision:
        return super().from_mapping(mapping) or cls()


@dataclass(frozen=True, kw_only=True)
class Claimant(Stored):
    """A process that supervises or wants to: one try of the task of a DAG run, wherever its turns run.

    :param owner: the owner of the lease; unique to this try, and the same in all of its turns.
    :param dag_id: the DAG.
    :param run_at: the start of the DAG run (aware); a later run of the same DAG takes over from an earlier one.
    :param try_number: the try of its task; a later one takes over from an earlier one.
    """

    owner: str
    dag_id: str
    run_at: datetime
    try_number: int = 1

    def succeeds(self, other: Claimant) -> bool:
        """Return whether it may take over from another one at once: it has the same DAG, and is no earlier try."""
        return self.dag_id == other.dag_id and (self.run_at, self.try_number) >= (other.run_at, other.try_number)


@dataclass(frozen=True, kw_only=True)
class SpecVersion(Stored):
    """A version of a spec, as it was submitted.

    :param version: its number, starting at 1.
    :param spec: the spec as it was written, a JSON object; None for a termination.
    :param submitted_at: when it was submitted (aware).
    :param by: the user who submitted it; empty if unknown.
    :param reason: the user's reason; empty if none was given.
    :param file_digest: the digest of its file; None if it did not come from a file.
    """

    version: int
    spec: Mapping[str, Any] | None
    submitted_at: datetime
    by: str = ""
    reason: str = ""
    file_digest: str | None = None

    @property
    def is_termination(self) -> bool:
        """Whether it ends supervision."""
        return self.spec is None


def readable_spec(version: SpecVersion | None) -> IngestionSpec | None:
    """Return a spec; None if there is none or this version of the package cannot read it."""
    if version is None or version.spec is None:
        return None
    try:
        return IngestionSpec.read(version.spec)
    except ConfigurationError:
        return None


def restore_hidden(value: Any, previous: Any, path: str = "") -> Any:
    """Return a submitted spec with its hidden secrets restored from the stored spec.

    :param value: the submitted value at this path.
    :param previous: the stored value at this path.
    :raises ConfigurationError: if a hidden value is not stored.
    """
    if isinstance(value, dict):
        known = previous if isinstance(previous, dict) else {}
        return {
            name: restore_hidden(each, known.get(name), f"{path}.{name}" if path else str(name))
            for name, each in value.items()
        }
    if isinstance(value, list):
        known_items = previous if isinstance(previous, list) and len(previous) == len(value) else [None] * len(value)
        return [
            restore_hidden(each, known, f"{path}.{number}")
            for number, (each, known) in enumerate(zip(value, known_items, strict=True))
        ]
    if not isinstance(value, str) or HIDDEN not in value:
        return value
    if isinstance(previous, str) and value in (without_secrets(previous), without_secrets(previous, is_secret=True)):
        return previous
    raise ConfigurationError(
        f"spec: field {path!r} is hidden as {value!r}, but no value is stored; write the value, or use a connection"
    )
