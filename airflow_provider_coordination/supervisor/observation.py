"""What a supervisor sees when it looks, as a value: all that a decision is made of, beside what it remembers."""

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
    """How many partitions a source has.

    :param readable: those that a job can read now, or within a period.
    :param unfinished: those that are not COMPLETED, parked ones and those that wait for acknowledgments included.
    :param is_empty: whether there is none at all, COMPLETED or not.
    """

    readable: int = 0
    unfinished: int = 0
    is_empty: bool = True


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a supervisor sees when it looks.

    :param at: when it looked (aware).
    :param settings: how the source is supervised; None if the supervisor is terminated, there is no spec, or the one
        that rules cannot be read.
    :param outdated: versions of the spec whose jobs have another thing to do than the one that rules.
    :param is_suspended: whether the source is suspended.
    :param partitions: how many there are; None if that is not known.
    :param jobs: the jobs of the supervisor as the store knows them, by owner.
    :param strays: owners of jobs of the supervisor that it does not remember, and that nobody has asked to end.
    :param safety_margin: how far clocks of machines may differ.
    :param lag: the latest points of the lag, the oldest first.
    :param failing: keys of unfinished partitions on which work failed the last time: nobody got further since.
    :param open_partitions: how many open shards the source has, or whatever it consists of; None if that is unknown.
    :param looks_for_partitions: whether nobody but the supervisor looks for new partitions, as with objects or tables.
    :param is_run: whether everything was looked at, and not jobs alone: such looks count for the supervisor's health.
    :param errors: what went wrong in looking.
    """

    at: datetime
    settings: SuperviseSettings | None
    outdated: frozenset[int] = frozenset()
    is_suspended: bool = False
    partitions: PartitionCounts | None = None
    jobs: Mapping[str, Job] = field(default_factory=dict)
    strays: frozenset[str] = frozenset()
    safety_margin: timedelta = timedelta(0)
    lag: Sequence[LagPoint] = ()
    failing: frozenset[str] = frozenset()
    open_partitions: int | None = None
    looks_for_partitions: bool = False
    is_run: bool = True
    errors: tuple[ErrorEvent, ...] = ()

    def state_of(self, owner: str) -> JobState | None:
        """Return where a job stands; None if the store does not know it."""
        known = self.jobs.get(owner)
        return None if known is None else known.state

    def has_begun(self, owner: str) -> bool:
        """Return whether there is a process of a job, as far as the store knows."""
        known = self.jobs.get(owner)
        return known is not None and known.has_begun
