"""Sinks: where batches go. Each kind has one module; other packages register kinds by entry points of `GROUP`.

A sink accepts each batch once, by its id. It prepares batches where no reader sees them, commits them, and can list the
batches that it has. It concludes only from a durable object that was written last, never from a missing one.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, ClassVar

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.job_reports import SinkReport
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.registry import Registry
from airflow_provider_coordination.field_hints import Limits, format_duration
from airflow_provider_coordination.settings import Described, FieldError
from airflow_provider_coordination.spark.access import Access
from airflow_provider_coordination.spark.delivery import Attempt, Delivery, MissingColumnError
from airflow_provider_coordination.spark.outages import translating_outages
from airflow_provider_coordination.spark.sink_settings import DEAD_LETTER

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from airflow_provider_coordination.spark.delivered_batches import TableHistory
    from airflow_provider_coordination.spark.ledger import IsOfSource, SinkContents
    from airflow_provider_coordination.spark.refused_rows import RefusedRows
    from airflow_provider_coordination.spark.sink_settings import SinkSettings


TABLE_COMMIT_INTERVAL = timedelta(seconds=2.5)
"""24 commits a minute, so that half of the records can be visible within two seconds."""
SHORTEST_RETENTION = timedelta(hours=1)
GROUP = "airflow_provider_coordination.sinks"


@dataclass(frozen=True, kw_only=True)
class Maintenance(Described):
    """The maintenance to do.

    :param compact: whether to compact small files.
    :param retention: the minimum age of versions or snapshots that are removed, and of unreferenced files; above the
        longest delivery.
    :param target_file_bytes: the approximate size of compacted files.
    :param is_dry_run: whether to report only, and change nothing.
    """

    compact: bool = True
    retention: timedelta = timedelta(days=7)
    target_file_bytes: Annotated[int, Limits(minimum=1)] = 128 * 1024 * 1024
    is_dry_run: bool = False

    @override
    def check_together(self) -> None:
        if self.retention < SHORTEST_RETENTION:
            raise self.invalid(
                "retention",
                f"must be at least {format_duration(SHORTEST_RETENTION)}, and above the longest delivery",
            )


@dataclass(frozen=True, kw_only=True)
class MaintenanceResult:
    """What was done, or would be done.

    :param files_compacted: the number of files that were compacted.
    :param snapshots_expired: the number of snapshots that were expired.
    :param files_removed: the number of unreferenced files that were removed.
    :param bytes_removed: their size in bytes.
    """

    files_compacted: int = 0
    snapshots_expired: int = 0
    files_removed: int = 0
    bytes_removed: int = 0


class Rows(ABC):
    """The rows of some batches that a sink is to write."""

    schema: pa.Schema
    """The columns of the rows."""

    @abstractmethod
    def count(self, batch_id: str) -> int:
        """Return the number of rows of a batch."""

    @abstractmethod
    def write(self, batch_ids: Collection[str], folder: str) -> Mapping[str, int]:
        """Write the rows of these batches, and no others, as Parquet to a folder on the filesystem of `Sink.scratch`.

        The rows of a batch can be written once. Threads may write different batches at the same time.

        :returns: the files with their sizes in bytes. If the sink separates batches, one file for each batch, or for
            each file that batches share; otherwise one for each partition that `Sink.repartition` makes.
        """


class Sink(ABC):
    """Accepts batches: any number at a time, of any partitions, each batch once.

    The calls come in this order: `committed`, `prepare`, a check in the store that the job still owns the batches,
    `commit`, `discard`. After a crash between two calls, or within one, `sweep` follows under the next lease, and then
    all the calls for the same batches. A previous owner may make any of these calls at any time.
    """

    name: str
    """The name of the sink."""
    where: str | None
    """Which records go to the sink, as a SQL predicate; None for all."""
    separates_batches: ClassVar[bool]
    """Whether the sink needs a file for each batch; see also `shares_files`. If not, files may mix batches."""

    @property
    @abstractmethod
    def location(self) -> str:
        """The location of the sink, for display; see `SinkSettings.location`."""

    @property
    @abstractmethod
    def access(self) -> Access:
        """How to reach the sink's files and the prepared files; known after `check`."""

    @abstractmethod
    def check(self) -> None:
        """Check that the sink can be written to, before any record is read.

        :raises ConfigurationError: naming the user's field, the value, the reason and the remedy.
        :raises SinkUnavailableError: if the sink is unavailable at present; a later try may succeed.
        """

    @abstractmethod
    def committed(self, attempts: Sequence[Attempt]) -> set[str]:
        """Return the ids of the batches that the sink already has, including rejected deliveries."""

    @abstractmethod
    def repartition(self, rows: DataFrame) -> DataFrame:
        """Return the rows of some batches in as many Spark partitions as the sink needs files."""

    @abstractmethod
    def scratch(self, attempts: Sequence[Attempt]) -> str:
        """Return a folder for the intermediate files of a delivery of these batches.

        The sink also prepares its own files there. `sweep` removes what a crash leaves.
        """

    @abstractmethod
    def prepare(self, attempts: Sequence[Attempt], rows: Rows) -> None:
        """Write the data that `commit` publishes. It replaces what the same attempts prepared before.

        Readers cannot see it yet. A batch without rows is recorded as empty.

        :raises Exception: on any failure; nothing is visible then.
        """

    @abstractmethod
    def commit(self, attempts: Sequence[Attempt]) -> None:
        """Publish the prepared data, each batch as a whole, in one commit if the sink supports that.

        Batches that the sink already has are skipped. A batch that is delivered again because it was rejected replaces
        the previous rows. If the call raises, other batches of the call may be committed.

        :raises DeliveryError: if the prepared data is incomplete, or another delivery wrote it.
        :raises MissingFileError: if the prepared data is gone, as it is for a previous owner of the partition.
        """

    @abstractmethod
    def discard(self, attempts: Sequence[Attempt]) -> None:
        """Remove the remaining files that these attempts prepared."""

    @abstractmethod
    def sweep(self, tokens: Mapping[str, int]) -> None:
        """Remove the files that previous owners of partitions prepared; see `Delivery.sweep`."""

    # What only some sinks do

    refused_rows: RefusedRows | None = None
    """Where the sink puts the rows that it refuses, so that it can take the rest of their batch; None if such a row
    fails its batch. A sink that has rows to refuse keeps them there before it commits, and publishes them afterwards.
    """
    refuses_rows: ClassVar[bool] = False
    """Whether the sink uses `refused_rows`."""

    def committed_under(self, attempts: Sequence[Attempt]) -> Mapping[str, int]:
        """Return the fencing tokens of the leases under which batches were committed, by batch id.

        Only of sinks that refuse rows. A batch that is not in, or whose lease is not known, is left out.
        """
        raise NotImplementedError

    shares_files: ClassVar[bool] = False
    """Whether a sink that separates batches writes those with the same `Attempt.shared_file` to one file.

    It never accepts a batch twice that is recorded with a shared file. Either the file holds the batch's rows, or
    `prepare` makes sure that the file can never appear.
    """

    def shared_bytes(self, attempt: Attempt) -> int:
        """Return the limit of landed bytes for the batches that share a file with this one; 0 if it must not share."""
        return 0

    @property
    def required_columns(self) -> Mapping[str, Sequence[str]]:
        """The columns that the rows must have, by what names them, such as `'merge_on'`; known after `check`."""
        return {}

    accepts_landed_files: ClassVar[bool] = False
    """Whether the sink accepts landed files unchanged. If no step reads the records, no byte is read again."""

    def check_landing_path(self, landing_path: str) -> None:  # noqa: B027 (any path will do)
        """Check that the sink can accept landed files from a path, if it accepts any.

        :raises ConfigurationError: if it cannot.
        """

    def landed_delivery(self, *, keep: bool) -> Delivery:
        """Return the delivery of landed files to this sink alone.

        :param keep: whether a landed file may be needed again, because other parties acknowledge the batch too.
        :raises NotImplementedError: if the sink accepts none.
        """
        raise NotImplementedError

    def restore_landed_file(self, attempt: Attempt) -> bool:
        """Restore a landed file that the sink published unchanged; return whether it was restored.

        The published file is as good as the landed one. A job may die before the batch is acknowledged, and the next
        job may need the records for a transform or another sink.
        """
        return False

    def history(self) -> TableHistory | None:
        """Return the commits of a table: which batches they added, and how far their partitions were delivered.

        :returns: None if the commits of such a sink do not record it.
        :raises CoordinationError: if there is no such table, or it cannot be read.
        """
        return None

    def contents(self, wanted: IsOfSource, *, reads_rows: bool) -> SinkContents | None:
        """Return what the sink has of its batches, for an audit.

        :param wanted: the sources whose batches are wanted.
        :param reads_rows: whether to read the rows, and count those of each batch.
        :returns: None if such a sink keeps no record of its batches.
        :raises CoordinationError: if the sink is gone, or its record cannot be read.
        """
        return None

    def maintain(self, wanted: Maintenance) -> MaintenanceResult | None:
        """Maintain a table, while other writers may use it.

        :returns: None if such a sink needs no maintenance.
        :raises ConfigurationError: if there is no such table.
        :raises CoordinationError: if other writers changed it repeatedly.
        """
        return None


@dataclass(frozen=True, kw_only=True)
class SinkKind:
    """A kind of sink, as the registry knows it.

    :param make: creates a sink from its settings; raises `ConfigurationError` naming the user's field.
    :param modules: the modules that the sink imports in addition to those of every job.
    :param requirement: the requirement that installs them, such as `airflow-provider-coordination[delta]`.
    :param writes: `module:attribute` of the class by which a DAG and a spec describe the sink; None if there is none.
    :param is_exactly_once: whether the sink accepts each batch once. If not, delivery is at least once, and summaries
        and statuses show that.
    :param commit_interval: the shortest time between two commits that a job with a target of freshness makes: each
        commit of a table adds a version and files, which readers and maintenance go through.
    """

    make: Callable[[SinkSettings], Sink]
    modules: Sequence[str] = ()
    requirement: str = ""
    writes: str | None = None
    is_exactly_once: bool = True
    commit_interval: timedelta = timedelta(0)

    def check(self, name: str) -> None:
        """Check that the modules of the kind are installed.

        :param name: the name of the kind.
        :raises ConfigurationError: naming the first missing module, and what to install.
        """
        for module in self.modules:
            if importlib.util.find_spec(module) is None:
                raise ConfigurationError(
                    f"kind of sink {name!r} needs the module {module!r}, which is not installed where the job runs; "
                    f"install {self.requirement}"
                )


SINKS: Registry[SinkKind] = Registry(
    what="kind of sink", own="airflow_provider_coordination.spark.sinks.{name}:KIND", group=GROUP, interface=SinkKind
)


def make_sinks(settings: Iterable[SinkSettings]) -> list[Sink]:
    """Create sinks from their settings, in order.

    :raises ConfigurationError: if a kind is unknown, cannot be imported or lacks a module, or if its settings are
        wrong.
    """
    return [_make(each) for each in settings]


def at_least_once_sinks(settings: Iterable[SinkSettings]) -> list[str]:
    """Return the names of the sinks that may receive a batch more than once.

    :raises ConfigurationError: if a kind is unknown or cannot be imported.
    """
    return [each.name for each in settings if not SINKS.load(each.kind, each.implementation).is_exactly_once]


def commit_interval_of(settings: Iterable[SinkSettings]) -> timedelta:
    """Return the shortest time between two commits that all of some sinks bear.

    :raises ConfigurationError: if a kind is unknown or cannot be imported.
    """
    return max((SINKS.load(each.kind, each.implementation).commit_interval for each in settings), default=timedelta(0))


def check_freshness(freshness: timedelta | None, settings: Iterable[SinkSettings]) -> None:
    """Check that sinks can be as fresh as the settings of rounds ask for, as far as that is known without a commit.

    :param freshness: the target; None for none.
    :raises ConfigurationError: naming the field, the value, the sink and the remedy.
    """
    if freshness is None:
        return
    for sink in settings:
        interval = commit_interval_of([sink])
        if freshness <= interval:
            raise FieldError(
                "RoundSettings",
                "freshness",
                f"must be above {format_duration(interval)}, the shortest time between commits to {sink}; got "
                f"{format_duration(freshness)}; raise it, or write to a sink of another kind",
            )


def sink_reports(settings: Iterable[SinkSettings]) -> list[SinkReport]:
    """Return the report of a job about its sinks, before it delivered a batch to them.

    :raises ConfigurationError: if a kind is unknown or cannot be imported.
    """
    every = list(settings)
    repeated = at_least_once_sinks(every)
    return [SinkReport(name=each.name, kind=each.kind, is_exactly_once=each.name not in repeated) for each in every]


def _make(settings: SinkSettings) -> Sink:
    kind = SINKS.load(settings.kind, settings.implementation)
    kind.check(settings.kind)
    return kind.make(settings)


def check_required_columns(sinks: Iterable[Sink], columns: Sequence[str]) -> None:
    """Check that rows have the columns that the settings of sinks name.

    :param columns: the names of the rows' columns.
    :raises MissingColumnError: naming the sink, its field, the missing column and the nearest one.
    """
    for sink in sinks:
        for what, names in sink.required_columns.items():
            for name in names:
                if name not in columns and name.partition(".")[0] not in columns:
                    near = get_close_matches(name, columns, n=1)
                    remedy = f"did you mean {near[0]!r}?" if near else "name one of them, or let the transform add it"
                    raise MissingColumnError(
                        f"field 'writes', sink {sink.name!r}: {what} names column {name!r}, which the rows do not "
                        f"have; their columns are {', '.join(columns)}; {remedy}"
                    )


def routed_sinks(sinks: Sequence[Sink]) -> list[Sink]:
    """Return the sinks that rows are routed to, in order: all except the dead-letter sink."""
    return [sink for sink in sinks if sink.name != DEAD_LETTER]


def owed(sink: Sink, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts that a sink must still commit: it lacks the batch, or the batch was rejected.

    :raises SinkUnavailableError: if the sink is unavailable.
    """
    with translating_outages(sink.name):
        taken = sink.committed([attempt for attempt in attempts if not attempt.batch.redeliver])
    return [attempt for attempt in attempts if attempt.batch_id not in taken]
