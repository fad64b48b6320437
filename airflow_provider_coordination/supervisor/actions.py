"""What a supervisor can do, as values: a decision lists them, a turn carries them out."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from airflow_provider_coordination.supervisor.supervision import SupervisedJob


class EndKind(StrEnum):
    """Why the supervisor itself ends a job."""

    WITHDRAWN = "withdrawn"
    """It has not begun, and is not needed any more."""
    GIVEN_UP = "given up"
    """It did not begin in time, was never submitted, or gave no sign of life."""
    FORCED = "forced"
    """It was asked to end, and did not in time."""


@dataclass(frozen=True, kw_only=True)
class StartJob:
    """Submit a job."""

    job: SupervisedJob

    def __str__(self) -> str:
        """Say it in a line of a log."""
        replaces = f" replaces={self.job.replaces}" if self.job.replaces else ""
        return f"starts a job: owner={self.job.owner} spec_version={self.job.spec_version}{replaces}"


@dataclass(frozen=True, kw_only=True)
class RequestStop:
    """Ask a job to end: it delivers what it has read."""

    owner: str
    reason: str

    def __str__(self) -> str:
        """Say it in a line of a log."""
        return f"asks a job to end: owner={self.owner}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class EndJob:
    """End a job that cannot, or does not, end by itself, and give its leases back."""

    owner: str
    kind: EndKind
    reason: str

    def __str__(self) -> str:
        """Say it in a line of a log."""
        return f"ends a job, {self.kind}: owner={self.owner}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class LookForPartitions:
    """Look for new partitions at the source."""

    def __str__(self) -> str:
        """Say it in a line of a log."""
        return "looks for partitions"


@dataclass(frozen=True, kw_only=True)
class Terminate:
    """Terminate the supervisor: what it had to read is read."""

    reason: str

    def __str__(self) -> str:
        """Say it in a line of a log."""
        return f"terminates: {self.reason}"


Action = StartJob | RequestStop | EndJob | LookForPartitions | Terminate
