"""A source as a DAG or a spec describes it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import format_instant
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.field_hints import Limits
from airflow_provider_coordination.settings import CONNECTED, Described, text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.kinds import ReadsSettings

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Connected:
    """A source, with its Airflow connections resolved.

    :param reads: the source settings of a Spark job.
    :param supplier: returns the supplier that finds the source's partitions, for a coordinator of the source.
    """

    reads: ReadsSettings
    supplier: Callable[[SourceCoordinator], Supplier]


class Reads(ABC):
    """A source as a DAG describes it; your own class inherits this one.

    Airflow renders its templates in place, so it must not be frozen. Its `repr` is part of the serialized DAG and of
    the rendered templates, so it must be the same each time the file is parsed.
    """

    is_endless: ClassVar[bool] = False
    """Whether its partitions have no end, as with streams.

    Jobs then share the partitions that other jobs hold, and a job itself applies an interval. Finite partitions are
    restricted to an interval when they are created.
    """
    is_synced: ClassVar[bool] = False
    """Whether its jobs keep its partitions in sync after a first `sync`. Other sources have a supplier instead."""

    if TYPE_CHECKING:  # at run time, a dataclass would take the property for the default value of its field

        @property
        def kind(self) -> str:
            """The kind of source, such as `s3`."""

    @property
    @abstractmethod
    def template_fields(self) -> Sequence[str]:
        """The attributes that Airflow renders."""

    @property
    @abstractmethod
    def default_source(self) -> str:
        """The source's name if the DAG gives none, once templates are rendered."""

    @abstractmethod
    def connect(self, connections: ConnectionResolver) -> Connected:
        """Resolve the connections, in a task.

        :param connections: resolves what the source names.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """

    @property
    def reads_from(self) -> Mapping[str, Any]:
        """What decides which data is read, such as a table's name, once templates are rendered; JSON, no secret.

        DAGs with another location cannot share the source; see `SourceClaim`. It holds no bounds, such as those of an
        interval: they differ between runs of one DAG. What it lacks, the kind derives from the settings; see
        `SourceKind.location`.
        """
        return {}

    @property
    def parts(self) -> Sequence[str]:
        """The names of its parts, such as streams, each of which can be reset as a whole; rendered."""
        return ()

    def sync(self, coordinator: SourceCoordinator, connections: ConnectionResolver) -> object:
        """Create the partitions that a source needs which `is_synced`; the result is specific to the source.

        :param coordinator: an initialized coordinator of the source, for the process that syncs.
        :param connections: resolves what the source names.
        :raises ConfigurationError: for an error that only a user can fix.
        :raises SourceError: if the source does not respond.
        """
        raise NotImplementedError(f"a source of kind {self.kind!r} has a supplier")

    def news_query(self, connections: ConnectionResolver) -> Callable[[], bool] | None:
        """Return what queries whether the supplier may find new partitions, at a lower cost; None if nothing does.

        :param connections: resolves what the source names.
        :raises ConfigurationError: for an error that only a user can fix.
        """
        return None

    def within(self, start: datetime, end: datetime) -> Reads:
        """Return the part of the source from `start` (aware, UTC) on and before `end`.

        :raises ConfigurationError: if it cannot be read by intervals, or has its own bounds.
        """
        raise ConfigurationError(
            f"field 'interval' is '{format_instant(start)}/{format_instant(end)}', but a source of kind {self.kind!r} "
            "cannot be read by time; remove the field, or implement the method 'within' of 'reads'"
        )

    def beside(
        self, other: SourceCoordinator, coordinator: SourceCoordinator, start: datetime, end: datetime
    ) -> Reads | None:
        """Return the part of an interval, as `within` does, that another source does not deliver.

        :param other: the coordinator of the other source, for example of live ingestion.
        :param coordinator: the coordinator of the interval.
        :param start: the interval's first instant (aware, UTC).
        :param end: the first instant after the interval.
        :returns: None if the other source delivers all of the interval.
        :raises ConfigurationError: if the two cannot be separated, or the other source reads something else.
        """
        raise ConfigurationError(
            f"field 'deduplicate_against' is {other.source!r}, but a source of kind {self.kind!r} cannot determine "
            "what another source delivers; remove the field, or implement the method 'beside' of 'reads'"
        )


@dataclass(kw_only=True)
class DescribedReads(Described, Reads):
    """A source whose description is also what its job reads, once the fields of its connections are set.

    :param source: the source's name if the operator sets none. (templated)
    """

    source: str | None = None

    @property
    @override
    def default_source(self) -> str:
        return text_value(self.source) or self.own_name

    @property
    @abstractmethod
    def own_name(self) -> str:
        """The source's name if neither the operator nor the description gives one."""

    @override
    def connect(self, connections: ConnectionResolver) -> Connected:
        described = self.resolved()
        described.set_connections(connections)
        reads = ReadsSettings(kind=self.kind, settings=described.to_mapping())

        def supplier(coordinator: SourceCoordinator) -> Supplier:
            return reads.source_kind().supplier(described, coordinator, connections)

        return Connected(reads=reads, supplier=supplier)

    @abstractmethod
    def set_connections(self, connections: ConnectionResolver) -> None:
        """Set the fields of the connections; the others have the types of their fields.

        :raises ConfigurationError: naming the connection or the field, and the remedy.
        """


@dataclass(kw_only=True)
class AwsReads(DescribedReads):
    """A source in AWS.

    :param aws_conn_id: the AWS connection; None for the AWS default credential chain. (templated)
    :param region_name: the AWS region; overrides the region of the AWS connection, which overrides the region of the
        coordination connection. (templated)
    """

    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None
    aws: AwsSettings = field(default_factory=AwsSettings, repr=False, metadata=CONNECTED)

    @override
    def set_connections(self, connections: ConnectionResolver) -> None:
        self.aws = connections.aws(self.aws_conn_id, self.region_name, self.kind)


@dataclass(kw_only=True)
class RereadReads(DescribedReads):
    """A source that may be read again.

    :param interval: read each partition again this long after its delivery. (templated)
    :param count: how many times the source is read in total; no limit by default. Only with `interval`. (templated)
    """

    interval: Annotated[timedelta | None, Limits(above=timedelta(0))] = None
    count: Annotated[int | None, Limits(minimum=1)] = None

    @property
    def rereads(self) -> dict[str, Any]:
        """The fields of a partition's first progress, `reread_seconds` and `reads_left`."""
        return {
            "reread_seconds": None if self.interval is None else self.interval.total_seconds(),
            "reads_left": None if self.count is None else self.count - 1,
        }

    @override
    def check_together(self) -> None:
        if self.count is not None and self.count > 1 and self.interval is None:
            raise self.invalid("count", "needs 'interval', the time until the next read")


def source_of(source: str | None, reads: Reads | None) -> str:
    """Return the name of a task's source: the given name, or else the name that `reads` provides.

    :raises ConfigurationError: if neither names the source.
    """
    name = text_value(source) or (reads.default_source if reads is not None else None)
    if name is None:
        raise ConfigurationError("field 'source' is missing: give it, or give 'reads', which names the source")
    return name


def own_copy(value: R) -> R:
    """Return a copy for one try of one task: templates are rendered in place, and other tasks render their own.

    :param value: one object, or a list of objects.
    """
    if isinstance(value, list | tuple):
        return [copy(each) for each in value]  # type: ignore[return-value]
    return copy(value)
