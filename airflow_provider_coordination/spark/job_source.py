"""The seam between a Spark job and the kind of source that it reads: what is asked of it before there is a session."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.sources.kinds import ReadsSettings, imported
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.layout import RecordLayout
from airflow_provider_coordination.spark.reading import MakeReading


class JobSource(Protocol):
    """What one job reads. Its class is made of `ReadsSettings`; `SourceKind.reading` names it."""

    @property
    def name(self) -> str:
        """What the log calls it, such as `streams clicks`."""
        ...

    @property
    def layout(self) -> RecordLayout:
        """The columns of its landed records."""
        ...

    @property
    def default_leases(self) -> int | None:
        """How many leases a job has at most, where the user gives no number; None for no limit."""
        ...

    @property
    def stop_at(self) -> datetime | None:
        """The instant (aware) up to which the job reads; None if it has no such bound."""
        ...

    @property
    def is_bounded(self) -> bool:
        """Whether the job ends once no partition is left to it, as every partition comes to an end."""
        ...

    @property
    def worker_imports(self) -> Sequence[str]:
        """The modules that its landing needs in Python workers."""
        ...

    def opened(self, coordinator: SourceCoordinator) -> Callable[[JobSpark], MakeReading]:
        """Check what is to be read, before Spark is started; return what makes the reading of it with Spark.

        :param coordinator: of the source.
        :raises ConfigurationError: if a setting cannot work.
        :raises CoordinationError: if the source does not answer.
        """
        ...


def job_source(reads: ReadsSettings) -> JobSource:
    """Return what a job reads.

    :raises ConfigurationError: if its kind is not known, cannot be imported, or has no reading.
    """
    kind = reads.found()
    make: Callable[[ReadsSettings], JobSource] = imported(kind.reading, f"kind of source {reads.kind!r}: its reading")
    return make(reads)
