"""The actions of a supervisor, as values: a decision lists them, and a turn carries them out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_coordination.supervisor.supervision import SupervisedJob


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


Action = StartJob | RequestStop | EndJob | DiscoverPartitions | Terminate
