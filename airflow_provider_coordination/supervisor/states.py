"""The states of a supervisor, and how it comes to them: by what its looks at the source and its jobs came to.

The states, the thresholds and the order of the rules are those of Druid's supervisor state manager. Two of its flaws
are not: what was ever unhealthy is forgotten once the supervisor has recovered from it, and a supervisor that recovered
from trouble of one sort does not wait for proof of the other.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from airflow_provider_coordination.coordination.error_events import ErrorEvent

UNHEALTHY_AFTER = 3
"""So many failed runs, or jobs, in a row make a supervisor unhealthy."""
HEALTHY_AFTER = 3
"""So many good ones in a row make it healthy again."""
EVENTS_KEPT = 10


class SupervisorState(StrEnum):
    """How a supervisor is."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    STOPPING = "STOPPING"
    """It was terminated, and its jobs deliver what they have read."""
    TERMINATED = "TERMINATED"
    """It was terminated, or what it had to read is read, and no job is left."""
    UNHEALTHY_SUPERVISOR = "UNHEALTHY_SUPERVISOR"
    UNHEALTHY_TASKS = "UNHEALTHY_TASKS"


class DetailedState(StrEnum):
    """How a supervisor is, in more detail: what it does at first, and what makes it unhealthy."""

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
    NOT_SUPERVISED = "NOT_SUPERVISED"
    """Nobody has supervised for minutes: its DAG is paused or gone, or Airflow does not run. No supervisor notes it."""
    DAG_PAUSED = "DAG_PAUSED"
    """The same, where Airflow was asked, and the DAG is paused."""
    UNHEALTHY_SUPERVISOR = "UNHEALTHY_SUPERVISOR"
    UNHEALTHY_TASKS = "UNHEALTHY_TASKS"

    @property
    def basic(self) -> SupervisorState:
        """The state that it is a detail of."""
        if self in FIRST_RUN_ONLY:
            return SupervisorState.RUNNING
        if self in UNHEALTHY_IN_DETAIL:
            return SupervisorState.UNHEALTHY_SUPERVISOR
        if self is DetailedState.DAG_PAUSED:
            return SupervisorState.SUSPENDED
        return SupervisorState(self.value)

    @property
    def is_healthy(self) -> bool:
        """Whether nobody has to do anything about it."""
        return self.basic not in (SupervisorState.UNHEALTHY_SUPERVISOR, SupervisorState.UNHEALTHY_TASKS)


FIRST_RUN_ONLY = frozenset(
    {DetailedState.CONNECTING_TO_STREAM, DetailedState.DISCOVERING_INITIAL_TASKS, DetailedState.CREATING_TASKS}
)
"""What it is only as long as no run has succeeded."""
UNHEALTHY_IN_DETAIL = frozenset(
    {
        DetailedState.UNABLE_TO_CONNECT_TO_STREAM,
        DetailedState.LOST_CONTACT_WITH_STREAM,
        DetailedState.NOT_SUPERVISED,
    }
)
"""What makes a supervisor itself unhealthy, other than failed runs."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """What a supervisor remembers of its runs and jobs, and the state that follows.

    A run is one look at the source and what follows from it.

    :param state: the state.
    :param has_succeeded: whether a run ever succeeded.
    :param failed_runs: how many runs failed in a row; 0 if the last one succeeded.
    :param successful_runs: how many succeeded in a row.
    :param failed_jobs: how many jobs failed in a row.
    :param successful_jobs: how many succeeded in a row.
    :param runs_were_unhealthy: whether failed runs made it unhealthy, and it has not recovered.
    :param jobs_were_unhealthy: whether failed jobs made it unhealthy, and it has not recovered.
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

    def noting(self, error: ErrorEvent) -> Health:
        """Return it with one more error."""
        return replace(self, errors=(*self.errors, error)[-EVENTS_KEPT:])

    def job_ended(self, *, well: bool) -> Health:
        """Return it with one more job that ended, well or not; `proposing` finds the state."""
        if well:
            return replace(self, failed_jobs=0, successful_jobs=self.successful_jobs + 1)
        return replace(self, failed_jobs=self.failed_jobs + 1, successful_jobs=0)

    def run_ended(self, *, well: bool, steady: DetailedState) -> Health:
        """Return it with one more run that ended, well or not.

        :param steady: what a healthy supervisor is now: RUNNING, or SUSPENDED.
        """
        if well:
            counted = replace(self, has_succeeded=True, failed_runs=0, successful_runs=self.successful_runs + 1)
        else:
            counted = replace(self, failed_runs=self.failed_runs + 1, successful_runs=0)
        return counted.proposing(steady)

    def proposing(self, proposed: DetailedState) -> Health:
        """Return it in the state that is proposed, or in the one that it has to be in."""
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
        if proposed in FIRST_RUN_ONLY and self.has_succeeded:
            return recovered if self.state.is_healthy else replace(recovered, state=DetailedState.RUNNING)
        return replace(recovered, state=proposed)

    def restarted(self) -> Health:
        """Return that of a supervisor that begins anew, after it was terminated; its errors stay."""
        return Health(errors=self.errors)

    def cannot_read(self, failing: Collection[str]) -> bool:
        """Return whether a job could not read a partition because of the source, and none has read it since.

        :param failing: the partitions on which work failed the last time.
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

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return {
            "state": self.state.value,
            "has_succeeded": self.has_succeeded,
            "failed_runs": self.failed_runs,
            "successful_runs": self.successful_runs,
            "failed_jobs": self.failed_jobs,
            "successful_jobs": self.successful_jobs,
            "runs_were_unhealthy": self.runs_were_unhealthy,
            "jobs_were_unhealthy": self.jobs_were_unhealthy,
            "errors": [error.to_mapping() for error in self.errors],
        }

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> Health:
        """Return it from a JSON object; what that does not say is as at first."""
        errors = (ErrorEvent.from_mapping(each) for each in mapping.get("errors", ()) if isinstance(each, Mapping))
        state = mapping.get("state")
        return cls(
            state=DetailedState(state) if state in tuple(DetailedState) else DetailedState.PENDING,
            has_succeeded=mapping.get("has_succeeded") is True,
            failed_runs=_count(mapping, "failed_runs"),
            successful_runs=_count(mapping, "successful_runs"),
            failed_jobs=_count(mapping, "failed_jobs"),
            successful_jobs=_count(mapping, "successful_jobs"),
            runs_were_unhealthy=mapping.get("runs_were_unhealthy") is True,
            jobs_were_unhealthy=mapping.get("jobs_were_unhealthy") is True,
            errors=tuple(error for error in errors if error is not None),
        )


def _count(mapping: Mapping[str, Any], name: str) -> int:
    value = mapping.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
