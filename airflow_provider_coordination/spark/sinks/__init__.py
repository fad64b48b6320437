"""Sinks: where batches go. One module a kind; others register theirs by entry points of the group `GROUP`.

A sink takes each batch once, by its id. It prepares batches where nobody looks, commits them, and can list those that
it has. What it concludes, it concludes from something durable that was written last, never from what is missing.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.registry import Registry
from airflow_provider_coordination.coordination.sink_reports import SinkReport
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import Attempt, Delivery
from airflow_provider_coordination.spark.outages import calling

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from airflow_provider_coordination.spark.settings import SinkSettings

GROUP = "airflow_provider_coordination.sinks"


class Rows(Protocol):
    """The rows that a sink is to take of some batches."""

    @property
    def schema(self) -> pa.Schema:
        """Their columns."""
        ...

    def count(self, batch_id: str) -> int:
        """Return how many there are of a batch."""
        ...

    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        """Write those of some of the batches, and no others, to a folder on the filesystem of `Sink.scratch`, as
        Parquet. A batch's rows can be had once. Threads may ask for those of different batches at the same time.

        :returns: the files with their sizes in bytes, as many as `Sink.arrange` makes partitions; one for each batch,
            or for each file that batches share, where the sink takes batches apart.
        """
        ...


class Sink(Protocol):
    """Takes batches, any number at a time and of any partitions, each batch once.

    The calls are, in this order: `taken`, `prepare`, then the store is asked whether the batches are still this job's
    to deliver, `commit`, `discard`. A crash between any two of them, or within one, is followed by `sweep` under the
    next lease, and by all of them for the same batches. A former owner may make any of these calls at any time.
    """

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def where(self) -> str | None:
        """Which records go there, as a SQL predicate; None for all."""
        ...

    @property
    def location(self) -> str:
        """Where it is, for people; see `SinkSettings.location`."""
        ...

    @property
    def access(self) -> Access:
        """How its files are reached, and those that are prepared for it; known once it was checked."""
        ...

    def check(self) -> None:
        """Check that it can be written, before anything is read.

        :raises ConfigurationError: naming the user's field, the value, the reason and the remedy.
        """
        ...

    def taken(self, attempts: Sequence[Attempt]) -> set[str]:
        """Return the ids of the batches that are in already, also of those whose delivery was rejected afterwards."""
        ...

    @property
    def is_apart(self) -> bool:
        """Whether it takes the rows of each batch from a file of their own, see also `SharesFiles`. If not, the rows of
        several are arranged."""
        ...

    def arrange(self, rows: DataFrame) -> DataFrame:
        """Return the rows of some batches in as many Spark partitions as the sink wants files."""
        ...

    def scratch(self, attempts: Sequence[Attempt]) -> str:
        """Return a folder for what the delivery of these batches makes on the way.

        It is where the sink's own files are prepared: what is left there by a crash goes by `sweep`.
        """
        ...

    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        """Write what is to become visible, in place of what the same attempts prepared before; nobody can see it yet.

        A batch without rows is prepared as such.

        :raises Exception: whatever goes wrong; nothing is visible then.
        """
        ...

    def commit(self, attempts: Sequence[Attempt]) -> None:
        """Make what is prepared visible, each batch whole, in one commit where the sink has such a thing.

        Batches that are in already are passed over; those that are delivered again because they were rejected replace
        what is there. Where it raises, other batches of the call may be in.

        :raises DeliveryError: if what was prepared is not whole, or somebody else's.
        :raises MissingFileError: if it is gone, as it is for a former owner of the partition.
        """
        ...

    def discard(self, attempts: Sequence[Attempt]) -> None:
        """Remove what is left of what these attempts prepared."""
        ...

    def sweep(self, tokens: Mapping[str, int]) -> None:
        """Remove what former owners of partitions prepared; see `Delivery.sweep`."""
        ...


@runtime_checkable
class SharesFiles(Protocol):
    """A sink that takes batches apart, and those of the same `Attempt.shared_file` in one file.

    It never takes a batch twice that is recorded with such a file: the file holds the batch's rows, or it is made sure
    in `prepare` that it will never be there.
    """

    def shared_bytes(self, attempt: Attempt) -> int:
        """Return how many landed bytes the batches of a file have at most that this one is in; 0 if it has to have a
        file of its own."""
        ...


@runtime_checkable
class TakesLanded(Protocol):
    """A sink that can take landed files as they are: where nothing looks into the records, no byte is read again."""

    def check_landing(self, landing_path: str) -> None:
        """Check that it can take landed files from there.

        :raises ConfigurationError: if it cannot.
        """
        ...

    def taking_landed(self, *, keep: bool) -> Delivery:
        """Return the delivery of landed files to this sink alone.

        :param keep: whether a landed file may be needed again, since others acknowledge the batch too.
        """
        ...

    def restore_landed(self, attempt: Attempt) -> bool:
        """Bring a landed file back that the sink took as it was; return whether it did.

        What was published is as good as what was landed: a job may have died before that was acknowledged, and the next
        one may need the records for a transform or another sink.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class SinkKind:
    """A kind of sink, as the registry knows it.

    :param make: makes a sink of its settings; raises `ConfigurationError` naming the user's field.
    :param modules: those that it imports beside what every job has.
    :param requirement: what installs them, such as `airflow-provider-coordination[delta]`.
    :param writes: `module:attribute` of the class by which a DAG and a spec describe it; None if there is none.
    :param is_exactly_once: whether it takes each batch once; at least once if not, which summaries and statuses show.
    """

    make: Callable[[SinkSettings], Sink]
    modules: Sequence[str] = ()
    requirement: str = ""
    writes: str | None = None
    is_exactly_once: bool = True

    def check(self, name: str) -> None:
        """Check that its modules are installed.

        :param name: the kind's.
        :raises ConfigurationError: naming the first that is missing, and what to install.
        """
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                raise ConfigurationError(
                    f"kind of sink {name!r} needs the module {module!r}, which is not installed where the job runs; "
                    f"install {self.requirement}"
                )


SINKS: Registry[SinkKind] = Registry(
    what="kind of sink", own="airflow_provider_coordination.spark.sinks.{name}:KIND", group=GROUP, seam=SinkKind
)


def make_sinks(settings: Iterable[SinkSettings]) -> list[Sink]:
    """Make sinks of their settings, in order.

    :raises ConfigurationError: if a kind is not known, cannot be imported or misses a module, or if its settings are
        wrong.
    """
    return [_make(each) for each in settings]


def at_least_once(settings: Iterable[SinkSettings]) -> list[str]:
    """Return the names of the sinks that may get a batch more than once.

    :raises ConfigurationError: if a kind is not known, or cannot be imported.
    """
    return [each.name for each in settings if not SINKS.load(each.kind, each.implementation).is_exactly_once]


def sink_reports(settings: Iterable[SinkSettings]) -> list[SinkReport]:
    """Return what a job reports of its sinks before it gave them a batch.

    :raises ConfigurationError: if a kind is not known, or cannot be imported.
    """
    every = list(settings)
    repeated = at_least_once(every)
    return [SinkReport(name=each.name, kind=each.kind, is_exactly_once=each.name not in repeated) for each in every]


def _make(settings: SinkSettings) -> Sink:
    kind = SINKS.load(settings.kind, settings.implementation)
    kind.check(settings.kind)
    return kind.make(settings)


def owed(sink: Sink, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return those attempts whose batch a sink has to take: it does not have it, or has a rejected delivery of it.

    :raises SinkAwayError: if it does not answer.
    """
    with calling(sink.name):
        taken = sink.taken([attempt for attempt in attempts if not attempt.batch.redeliver])
    return [attempt for attempt in attempts if attempt.batch_id not in taken]
