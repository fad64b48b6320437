"""The observation of a source, as a value: the input of a decision, together with the supervisor's stored state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.error_events import ErrorEvent
from airflow_provider_coordination.coordination.jobs import Job, JobState
from airflow_provider_coordination.supervisor.lag import LagPoint
from airflow_provider_coordination.supervisor.settings import SuperviseSettings


@dataclass(frozen=True, kw_only=True)
class PartitionCounts:
    """The numbers of partitions of a source.

    :param readable: partitions that a job can read now or within a period.
    :param unfinished: partitions that are not COMPLETED, including those parked or waiting for acknowledgment.
    :param is_empty: whether the source has no partitions at all.
    """

    readable: int = 0
    unfinished: int = 0
    is_empty: bool = True


@dataclass(frozen=True, kw_only=True)
class Observation:
    """The observation of a source.

    :param at: the instant of the observation (aware).
    :param settings: how the source is supervised; None if the supervisor is terminated, or has no current spec that can
        be read.
    :param outdated: the versions of the spec whose jobs differ from those of the current version.
    :param is_suspended: whether the source is suspended.
    :param partitions: the numbers of partitions; None if unknown.
    :param jobs: the jobs of the supervisor as recorded in the store, by owner.
    :param orphans: the owners of jobs that are missing in the supervisor's state and were not requested to stop.
    :param safety_margin: by how much the clocks of machines may differ.
    :param lag: the latest points of the lag, the oldest first.
    :param failing: the keys of unfinished partitions whose last attempt failed, without progress since.
    :param open_partitions: the number of open shards of the source, or of its other units; None if unknown.
    :param must_discover_partitions: whether only the supervisor discovers new partitions, as for objects and tables.
    :param is_full: whether everything was observed and not only jobs: a full observation counts for the health.
    :param errors: the errors of the observation.
    """

    at: datetime
    settings: SuperviseSettings | None
    outdated: frozenset[int] = frozenset()
    is_suspended: bool = False
    partitions: PartitionCounts | None = None
    jobs: Mapping[str, Job] = field(default_factory=dict)
    orphans: frozenset[str] = frozenset()
    safety_margin: timedelta = timedelta(0)
    lag: Sequence[LagPoint] = ()
    failing: frozenset[str] = frozenset()
    open_partitions: int | None = None
    must_discover_partitions: bool = False
    is_full: bool = True
    errors: tuple[ErrorEvent, ...] = ()

    def state_of(self, owner: str) -> JobState | None:
        """Return the state of a job; None if the store does not know it."""
        known = self.jobs.get(owner)
        return None if known is None else known.state

    def has_begun(self, owner: str) -> bool:
        """Return whether the process of a job has started, as far as the store knows."""
        known = self.jobs.get(owner)
        return known is not None and known.has_begun
