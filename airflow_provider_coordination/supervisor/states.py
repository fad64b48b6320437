"""The states of a supervisor, which follow from the results of its runs and its jobs.

The states, the thresholds and the order of the rules are those of Druid's supervisor state manager, without two of its
flaws: an unhealthy state is forgotten after recovery, and recovery of the runs does not depend on the jobs, or vice
versa.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.coordination.json_values import Stored
from airflow_provider_coordination.coordination.override import override

UNHEALTHY_AFTER = 3
"""The number of consecutive failed runs or jobs that makes a supervisor unhealthy."""
HEALTHY_AFTER = 3
"""The number of consecutive successes that makes it healthy again."""
EVENTS_KEPT = 10


class SupervisorState(StrEnum):
    """The state of a supervisor."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
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

    def with_error(self, error: ErrorEvent) -> Health:
        """Return the health with one more error."""
        return replace(self, errors=(*self.errors, error)[-EVENTS_KEPT:])

    def job_ended(self, *, succeeded: bool) -> Health:
        """Return the health with one more ended job; `with_state` then computes the state."""
        if succeeded:
            return replace(self, failed_jobs=0, successful_jobs=self.successful_jobs + 1)
        return replace(self, failed_jobs=self.failed_jobs + 1, successful_jobs=0)

    def run_ended(self, *, succeeded: bool, steady: DetailedState) -> Health:
        """Return the health with one more ended run.

        :param steady: the state of the supervisor if it is healthy: RUNNING or SUSPENDED.
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
        if self.failed_runs >= UNHEALTHY_AFTER:
            return replace(self, state=self._unhealthy_supervisor, runs_were_unhealthy=True)
        if self.failed_jobs >= UNHEALTHY_AFTER:
            return replace(self, state=DetailedState.UNHEALTHY_TASKS, jobs_were_unhealthy=True)
        recovered = replace(
            self,
            runs_were_unhealthy=self.runs_were_unhealthy and self.successful_runs < HEALTHY_AFTER,
            jobs_were_unhealthy=self.jobs_were_unhealthy and self.successful_jobs < HEALTHY_AFTER,
        )
        if recovered.runs_were_unhealthy:
            is_of_runs = self.state.basic is SupervisorState.UNHEALTHY_SUPERVISOR
            return recovered if is_of_runs else replace(recovered, state=self._unhealthy_supervisor)
        if recovered.jobs_were_unhealthy:
            return replace(recovered, state=DetailedState.UNHEALTHY_TASKS)
        if proposed in (DetailedState.RUNNING, DetailedState.SUSPENDED) and not self.has_succeeded:
            return recovered
        if proposed in (DetailedState.PENDING, *FIRST_RUN_ONLY) and self.has_succeeded:
            return recovered if self.state.is_healthy else replace(recovered, state=DetailedState.RUNNING)
        return replace(recovered, state=proposed)

    def restarted(self) -> Health:
        """Return the health of a supervisor that starts again after a termination; its errors are kept."""
        return Health(errors=self.errors)

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
