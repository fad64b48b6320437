"""What a kind of source is: a folder here with a module `kind`, or a class of another package.

A kind is cheap to import. Its methods import what they need of the network, pyarrow or Spark when they are called. It
names what belongs to Spark or to the UI as `module:attribute`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from airflow_provider_coordination.aws import AwsClients, AwsSettings, Permission, aws_client
from airflow_provider_coordination.coordination.acknowledgment import BatchLedger
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, ProgressError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.landed import (
    START,
    LandedBatches,
    LandedProgress,
    ProgressFormatError,
    instant_of,
    integer_of,
    objects_in,
    text_of,
)
from airflow_provider_coordination.sources.peek import Peek
from airflow_provider_coordination.sources.questions import Question
from airflow_provider_coordination.sources.reset_targets import Reread, ResetAction, ResetPlan, ResetStep, Target


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """The limits of a source. None means unknown, or no limit.

    :param partitions: the number of partitions that receive data at present.
    :param retention: how long it keeps its data.
    :param read_bytes_per_second: the maximum rate at which a partition can be read.
    :param is_shared: whether all readers of a partition share that limit.
    :param written_bytes_per_second: the maximum rate at which a partition can be written.
    :param reads_per_second: the maximum number of requests that a job sends to a partition; 0 if data is pushed to it.
    """

    partitions: int | None = None
    retention: timedelta | None = None
    read_bytes_per_second: float | None = None
    is_shared: bool = False
    written_bytes_per_second: float | None = None
    reads_per_second: float | None = None


@dataclass(frozen=True)
class RangeRepair:
    """A range of a partition that is read again.

    :param step: what is done.
    :param text: what happens, in a sentence without its period.
    """

    step: ResetStep
    text: str


READER = "reader"
"""The setting of a kind that brings only a reader of items: `module:class`; `reader_settings` are the reader's own."""
Settings = Mapping[str, Any]
"""A kind's own settings, a JSON object; it may hold secrets."""
Finder = Callable[[SourceCoordinator], Supplier]
"""Returns the supplier that finds a source's partitions, for a coordinator of the source."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A summary of a partition's progress.

    :param kind: the kind of source; None if the progress does not name one.
    :param position: the position up to which everything is delivered, as the source writes it; None if that is the
        start, or unknown.
    :param lag: the seconds since which no new record has been delivered; None if that is unknown, the source has no
        such value, or everything is delivered.
    :param items_done: the number of items that are done; None if the partition has no items.
    :param items: the number of items; None if it has none.
    :param landed_batches: the number of batches that are written and not delivered.
    :param landed_records: the number of records in these batches.
    :param throughput: bytes of user data a second; None if unknown.
    :param is_readable: whether the whole progress could be read.
    """

    kind: str | None = None
    position: str | None = None
    lag: float | None = None
    items_done: int | None = None
    items: int | None = None
    landed_batches: int = 0
    landed_records: int = 0
    throughput: float | None = None
    is_readable: bool = True


@dataclass(frozen=True)
class Hold:
    """What holds the watermark of a source.

    :param name: the partition, or the part of the source that has no partition yet.
    :param until: everything of it that arrived before this instant (aware) is delivered; None if unknown.
    :param reason: why nothing later is delivered.
    :param is_parked: whether only a user makes it continue.
    """

    name: str
    until: datetime | None
    reason: str
    is_parked: bool = False


@dataclass(frozen=True)
class DatasetName:
    """The name of a dataset in OpenLineage's form.

    :param namespace: its location: a scheme and the host that serves it.
    :param name: its name in the namespace.
    """

    namespace: str
    name: str


class SourceKind:
    """A kind of source; a subclass overrides what differs.

    The defaults fit partitions whose progress is a `LandedProgress` and which can only be reset to their start.

    :param name: the name by which partitions, settings and claims refer to this kind.
    """

    progress_class: type[LandedProgress] = LandedProgress
    """The class of its partitions' progress."""
    has_positions = False
    """Whether its partitions can be read from a position other than their start."""
    reading: str = ""
    """`module:attribute` of the class that reads it in a Spark job; see `spark/reading.py`."""
    reads: str | None = None
    """`module:attribute` of the class with which a DAG or a spec describes what is read; None if there is none."""
    questions: Sequence[Question] = ()
    """What a user is asked for a first spec; empty if its spec is written by hand."""
    pages: str | None = None
    """`module:attribute` of its additions to the UI: a `KindPages`; see `ui/bodies.py`."""
    settles_after: timedelta | None = None
    """How long after its arrival a record can be read at the latest; None if records have no time of arrival."""
    watermark_statuses: Collection[PartitionStatus] = ()
    """The statuses of the partitions that its watermark depends on; empty if it has no watermark."""
    loss_remedy = "Reset the partitions to a position that exists"
    """What a user does about a partition that lost data stops; a sentence without its period."""
    import_commands: str | None = None
    """`module:attribute` of the function that adds its commands to the typer application `import`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def supplier(self, described: Any, coordinator: SourceCoordinator, connections: ConnectionResolver) -> Supplier:
        """Return the supplier that finds a source's partitions.

        :param described: what is read, with its connections resolved; an object of `reads`.
        :param coordinator: of the source, initialized.
        :param connections: resolves what the supplier opens itself.
        :raises ConfigurationError: if the kind has none.
        """
        raise ConfigurationError(f"a source of kind {self.name!r} has no supplier; give its partitions")

    # Stored progress

    def progress(self, mapping: Mapping[str, Any]) -> LandedProgress:
        """Return the progress that a partition stores.

        :raises ProgressFormatError: if it is not a progress of this kind.
        """
        return self.progress_class.from_mapping(mapping)

    @property
    def batches(self) -> BatchLedger:
        """The ledger of its partitions' batches."""
        return LandedBatches(self.progress_class)

    # Rebuilding partitions from tables after their store is lost

    def rebuilt(
        self, partition_key: str, progress: Any, others: Mapping[str, LandedProgress]
    ) -> Mapping[str, LandedProgress]:
        """Return the progress after what is delivered, by key: of this partition and of partitions it created.

        Partitions that it created are included only if the tables do not know them.

        :param progress: as far as the tables record it.
        :param others: the progress of all partitions that the tables know, by key.
        """
        return {partition_key: progress}

    def rebuilt_state(self, known: Mapping[str, Any], starts: Collection[str]) -> Mapping[str, Any]:
        """Return the state for the source's supplier; empty if the supplier needs none.

        :param known: the progress of all partitions that tables know, by key.
        :param starts: the positions at which their batches begin.
        """
        return {}

    def claims_of(self, progress: Any) -> Sequence[str]:
        """Return the names that a partition's supplier claims for it."""
        return ()

    def is_before(self, position: str, other: str) -> bool | None:
        """Return whether a position of a partition is before another one of it; None if nothing shows it."""
        return None

    def is_initial(self, position: str) -> bool:
        """Return whether a position follows no record, so that a partition is there before its first one."""
        return position == START

    # What users see; none of these raises, whatever is stored

    def inspect(self, partition: Partition, now: datetime) -> Inspection:
        """Return a summary of a partition's progress.

        :param now: the present instant (aware).
        """
        progress = partition.progress
        checkpoint = text_of(progress.get("checkpoint"))
        landed = objects_in(progress, "landed")
        return Inspection(
            kind=self.name,
            position=checkpoint or None,
            landed_batches=len(landed),
            landed_records=sum(integer_of(batch.get("records")) or 0 for batch in landed),
            is_readable=checkpoint is not None and isinstance(progress.get("landed", []), list),
        )

    def lost(self, progress: Mapping[str, Any]) -> list[str]:
        """Return the ranges of a partition that were lost before they were read, each as a sentence."""
        return []

    def lost_ranges(self, progress: Mapping[str, Any]) -> Iterator[tuple[datetime | None, datetime | None, str]]:
        """Yield what was lost: from and until which arrival (aware, None if unknown), and the range as a sentence."""
        return iter(())

    def open_loss(self, progress: Mapping[str, Any]) -> str | None:
        """Return the lost range where reading stopped, as a sentence; None if reading continues or nothing is lost."""
        return None

    def delivered_until(self, partition: Partition) -> datetime | None:
        """Return the instant (aware) up to which an unfinished partition is read and delivered; None if unknown."""
        return instant_of(partition.progress.get("delivered_until"))

    def removed_until(self, partition_keys: Iterable[str], state: Mapping[str, Any]) -> Mapping[str, datetime]:
        """Return when the supplier last removed finished partitions (aware), by key; without those that it keeps.

        :param state: the state of the source's supplier.
        :raises SourceError: if the state cannot be read.
        """
        return {}

    def holds(self, partitions: Sequence[Partition], state: Mapping[str, Any]) -> Iterator[Hold]:
        """Yield what holds the watermark beside unfinished partitions: what has no partition yet.

        :param partitions: the partitions of the source with `watermark_statuses`.
        :param state: the state of the source's supplier, read before the partitions.
        """
        return iter(())

    def unreadable_items(self, progress: Mapping[str, Any]) -> list[tuple[int | None, str]]:
        """Return the items of a partition that could not be read: the index of each, from 0, and the reason."""
        return []

    def facts(self, progress: Mapping[str, Any]) -> Iterator[tuple[str, str | datetime | None]]:
        """Yield further facts about a partition for users: a label and its value."""
        epoch = progress.get("epoch")
        if isinstance(epoch, int):
            yield "epoch", str(epoch)

    def stream_of(self, partition_key: str) -> str | None:
        """Return the endless stream that a partition belongs to, for reports about its checkpoints.

        None if the kind's partitions end.
        """
        return None

    # Resetting positions

    def group_of(self, partition: Partition) -> str | None:
        """Return the partition's group: a part of the source that can be reset as a whole, such as a stream."""
        return None

    def named_group(self, name: str) -> tuple[str, Settings]:
        """Return the group that a user names, and the settings of its source that the name implies.

        :param name: the name, such as the ARN of a stream.
        """
        return name, {}

    def short_name(self, partition: Partition) -> str | None:
        """Return a shorter name that users know a partition by, such as a shard's id; None if there is none."""
        return None

    def check_target(self, target: Target) -> None:
        """Check that its partitions can be read from a target.

        :raises ConfigurationError: if the target's position is not a position of this kind.
        """

    def restarted(self, partition: Partition, target: Target, *, epoch: int = 0) -> Mapping[str, Any]:
        """Return the progress with which a partition is read from a target on.

        :param epoch: the lowest epoch that the progress may get.
        :raises ProgressError: if the stored progress cannot be read, or the partition has no such position.
        """
        raise ProgressError(
            f"partition {partition.partition_key!r}: kind {self.name!r} cannot be reset to {target.name!r}; give the "
            "progress to start from"
        )

    def reread(self, partition: Partition, target: Target) -> Reread:
        """Return what a reset to a target reads again of a partition; it does not raise, whatever is stored."""
        progress = partition.progress
        until = text_of(progress.get("checkpoint"))
        nothing = until == START or not progress
        return Reread(
            partition_key=partition.partition_key,
            until=until or START,
            span=timedelta(0) if nothing else None,
            bytes=0 if nothing else None,
        )

    def check_progress(self, partition: Partition, progress: Mapping[str, Any]) -> None:
        """Check that a partition can start from a progress that a user gives.

        :raises ProgressError: if it is not a progress of this partition.
        """
        key = repr(partition.partition_key)
        try:
            kind = self.progress(progress).kind
        except ProgressFormatError as error:
            raise ProgressError(
                f"partition {key}: the given progress is not a progress of kind {self.name!r}: "
                f"{error.__cause__ or error}"
            ) from None
        if kind != self.name:
            raise ProgressError(
                f"partition {key} is of kind {self.name!r}, but the given progress is of kind {kind!r}; give a "
                f"progress of kind {self.name!r}"
            )

    def plan_repair(self, partition: Partition, after: str | None, until: str, target: Target) -> RangeRepair:
        """Plan to read one range of a partition again, without the rest.

        :param partition: as it was read.
        :param after: the position after which the range begins; None for the start of the partition.
        :param until: the position of its end.
        :param target: when the repair was requested.
        :raises ProgressError: if the kind cannot read a range, or a position does not fit.
        """
        raise ProgressError(
            f"partition {partition.partition_key!r}: kind {self.name!r} cannot read a range alone; reset the partition"
        )

    def service(self, settings: Settings, clients: AwsClients = aws_client) -> Any:
        """Return the client with which the source is queried.

        :param settings: how to reach the source, as far as that is known.
        :param clients: makes the clients of AWS services; a process that watches many sources shares them.
        :raises ConfigurationError: if they are wrong.
        """
        return settings

    def sample(self, service: Any, settings: Settings) -> Sequence[bytes]:
        """Return a few payloads that a job with these settings would read; empty if the kind has none.

        :param service: as `service` returns it.
        :raises ConfigurationError: if the settings name a source that does not exist.
        :raises SourceError: if the source is unavailable.
        """
        return ()

    def peek(self, service: Any, settings: Settings, peek: Peek, finder: Finder) -> None:
        """Read a few records that a job with these settings would read, without a store and without Spark.

        It changes nothing in the source: no message of a queue is received, no export is started.

        :param service: as `service` returns it.
        :param settings: those of a job.
        :param peek: receives the records.
        :param finder: returns the supplier of the source, for a coordinator.
        :raises ConfigurationError: if the kind cannot do it, or the settings are wrong, or access is denied.
        :raises SourceError: if the source is unavailable.
        """
        raise ConfigurationError(
            f"a source of kind {self.name!r} cannot be previewed: only its Spark jobs read it; run a job, and look at "
            "what it delivers"
        )

    @property
    def has_preview(self) -> bool:
        """Whether `peek` can read records."""
        return type(self).peek is not SourceKind.peek

    def plan_partitions(self, partitions: Sequence[Partition], target: Target, access: Access | None) -> ResetPlan:
        """Plan to reset exactly these partitions.

        :param partitions: as they were read.
        :param access: returns the client of the source, made when it is needed; None to plan without the source.
        :raises ConfigurationError: if they have no such position.
        :raises ProgressError: if a stored progress cannot be read, or a partition has no such position.
        """

        def progress(partition: Partition) -> Mapping[str, Any]:
            return self.restarted(partition, target)

        for partition in partitions:
            progress(partition)
        steps = [
            ResetStep(action=ResetAction.RESET, partition=each, progress=progress, group=self.group_of(each))
            for each in partitions
        ]
        return ResetPlan(target=target, steps=tuple(steps), left={})

    def plan_group(
        self, group: str | None, partitions: Sequence[Partition], target: Target, access: Access
    ) -> ResetPlan:
        """Plan to read a whole group again. The group None holds the partitions without one. See `plan_partitions`."""
        return self.plan_partitions(partitions, target, access)

    # What a supervisor queries

    def open_partitions(self, service: Any, settings: Settings) -> int | None:
        """Query the number of partitions that can still receive data; None if the kind does not know.

        :param service: as `service` returns it.
        :param settings: of the source.
        :raises ConfigurationError: if the source does not exist, or denies access.
        :raises SourceError: if the source is unavailable.
        """
        return None

    def unread_lag(self, service: Any, partition: Partition) -> timedelta | None:
        """Return how long the oldest unread record of a partition without a reader has waited; None if unknown.

        :param service: as `service` returns it.
        """
        return None

    def confirmed_progress(self, service: Any, partition: Partition) -> Mapping[str, Any] | None:
        """Return the progress of a partition without a reader, if it is read and delivered up to now.

        A supervisor writes it while the source is idle, so that no position grows older than the source keeps data.

        :param service: as `service` returns it.
        :returns: None if there is more to read, or that is unknown.
        """
        return None

    @property
    def knows_lag(self) -> bool:
        """Whether it knows the lag of a partition that no job reads."""
        return type(self).unread_lag is not SourceKind.unread_lag

    # What an installation needs

    def permissions(
        self, what: str, access: Callable[[str], AwsSettings]
    ) -> tuple[AwsSettings, Sequence[Permission]] | None:
        """Return the AWS permissions that reading needs, and the settings to check them with; None if there are none.

        :param what: the source, as a user names it on the command line.
        :param access: returns the settings for an AWS service, by boto3's name of it.
        :raises ConfigurationError: if `what` does not name a source of this kind.
        """
        return None

    # What a job reads

    def check(self, settings: Settings) -> None:
        """Check the settings of a job, without any call to the source or to Spark.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """

    def ends(self, settings: Settings) -> bool:
        """Return whether the partitions that a job with these settings reads ever end."""
        return False

    def capacity(self, settings: Settings, *, ask: bool) -> Capacity:
        """Return how much a job with these settings can read from the source.

        :param settings: those of a job; they may be incomplete if the source is not queried.
        :param ask: query the source for its size.
        :raises SourceError: if the source is unavailable.
        :raises ConfigurationError: if it denies access.
        """
        return Capacity()

    def location(self, settings: Settings) -> dict[str, Any]:
        """Return the settings that identify the data. DAGs that differ in them cannot share a source.

        They contain no secret, and nothing that may differ between two runs of a DAG.
        """
        return {}

    def left(self, before: Settings, now: Settings) -> Sequence[str]:
        """Return what a change of the location leaves, such as `bucket 'in'`; empty if it may be changed.

        The partitions of a source and the state of its supplier are about what it read before, so a change that leaves
        it is refused. Other changes, such as another prefix in the same bucket, are a warning.

        :param before: the location before; see `location` and `Reads.reads_from`.
        :param now: the location now.
        """
        return ()

    def datasets(self, settings: Settings) -> Iterable[DatasetName]:
        """Return the datasets that a job with these settings reads, under their OpenLineage names."""
        return ()


Access = Callable[[SourceKind], Any]
"""Returns the client for a source of a kind, as `SourceKind.service` makes it."""


HADOOP_SCHEMES = {"s3a": "s3", "s3n": "s3"}
"""Hadoop's names for the scheme of S3."""


def file_dataset(path: str) -> DatasetName:
    """Return the name of a folder or file: `s3://bucket` and the key, or `file` and the path.

    :param path: a path, or a URI of S3, HDFS or another filesystem.
    """
    parts = urlsplit(path)
    if not parts.scheme or parts.scheme == "file":
        return DatasetName("file", parts.path.rstrip("/") or "/")
    scheme = HADOOP_SCHEMES.get(parts.scheme, parts.scheme)
    # The user part of a URI may include a password.
    namespace = f"{scheme}://{parts.netloc.rpartition('@')[2]}"
    name = parts.path.rstrip("/") if scheme in ("hdfs", "viewfs") else parts.path.strip("/")
    return DatasetName(namespace, name or "/")


def host_of(url: str | None) -> str | None:
    """Return the host of a URL, with its port; None without a URL."""
    return urlsplit(url).netloc.rpartition("@")[2] if url else None


def aws_host(service: str, aws: Mapping[str, Any]) -> str:
    """Return the host of an AWS service.

    :param service: the service's name in its host name.
    :param aws: the AWS settings, as a JSON object.
    """
    region = aws.get("region")
    given = host_of(aws.get("endpoint_url"))
    return given or (f"{service}.{region}.amazonaws.com" if region else f"{service}.amazonaws.com")
