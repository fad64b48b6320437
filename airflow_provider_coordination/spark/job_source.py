"""The interface between a Spark job and its kind of source, as far as it is used before Spark starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.registry import import_attribute
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.layout import RecordLayout
from airflow_provider_coordination.spark.reading import MakeReading

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class JobSource(Protocol):
    """The source of one job. The class is constructed with `ReadsSettings`; `SourceKind.reading` names it."""

    @property
    def name(self) -> str:
        """The name of the source in the log, such as `streams clicks`."""
        ...

    @property
    def layout(self) -> RecordLayout:
        """The columns of the landed records."""
        ...

    @property
    def default_leases(self) -> int | None:
        """The maximum number of leases of a job if the user gives none; None for no limit."""
        ...

    @property
    def stop_at(self) -> datetime | None:
        """The instant (aware) up to which the job reads; None if it has no such bound."""
        ...

    @property
    def is_bounded(self) -> bool:
        """Whether every partition comes to an end, so that the job ends once no partition is left for it."""
        ...

    @property
    def worker_imports(self) -> Sequence[str]:
        """The modules that landing needs in Python workers."""
        ...

    def columns(self, spark: JobSpark) -> StructType | None:
        """Return the columns of landed records, with Spark's types, as far as they are known before anything is read.

        :returns: None if they are not known.
        """
        ...

    def opened(self, coordinator: SourceCoordinator) -> Callable[[JobSpark], MakeReading]:
        """Check the source before Spark starts; return a function that makes its reading with Spark.

        :param coordinator: the source's coordinator.
        :raises ConfigurationError: if a setting cannot work.
        :raises CoordinationError: if the source is unavailable.
        """
        ...


def job_source(reads: ReadsSettings) -> JobSource:
    """Return the source that a job reads.

    :raises ConfigurationError: if its kind is unknown, cannot be imported, or has no reading.
    """
    kind = reads.source_kind()
    make: Callable[[ReadsSettings], JobSource] = import_attribute(
        kind.reading, f"kind of source {reads.kind!r}: its reading"
    )
    return make(reads)
