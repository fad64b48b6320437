"""The protocols of a source as a DAG or a spec describes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Protocol, TypeVar, runtime_checkable

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.settings import Described, Limits, text_value
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


def connected(described: Any, connections: ConnectionResolver) -> Connected:
    """Return a source whose kind has a supplier.

    :param described: the resolved description, with its connections.
    :param connections: resolves what its supplier opens.
    """
    reads = ReadsSettings(kind=described.kind, settings=described.to_mapping())

    def supplier(coordinator: SourceCoordinator) -> Supplier:
        return reads.source_kind().supplier(described, coordinator, connections)

    return Connected(reads=reads, supplier=supplier)


class Reads(Protocol):
    """A source as a DAG describes it.

    Airflow renders its templates in place, so it must not be frozen. Its `repr` is part of the serialized DAG and of
    the rendered templates, so it must be the same each time the file is parsed.
    """

    @property
    def template_fields(self) -> Sequence[str]:
        """The attributes that Airflow renders."""
        ...

    @property
    def is_endless(self) -> bool:
        """Whether its partitions have no end, as with streams.

        Jobs then share the partitions that other jobs hold, and a job itself applies an interval. Finite partitions are
        restricted to an interval when they are created.
        """
        ...

    @property
    def kind(self) -> str:
        """The kind of source, such as `s3`."""
        ...

    @property
    def default_source(self) -> str:
        """The source's name if the DAG gives none, once templates are rendered."""
        ...

    def connect(self, connections: ConnectionResolver) -> Connected:
        """Resolve the connections, in a task.

        :param connections: resolves what the source names.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        ...


@runtime_checkable
class Located(Protocol):
    """A source that describes the location it reads from; see `SourceClaim`.

    DAGs with another location cannot share the source. For other sources the kind derives the location from their
    settings; see `SourceKind.location`.
    """

    @property
    def reads_from(self) -> Mapping[str, Any]:
        """What decides which data is read, such as a table's name, once templates are rendered; JSON, no secret.

        It holds no bounds, such as those of an interval: they differ between runs of one DAG.
        """
        ...


@runtime_checkable
class Parted(Protocol):
    """A source of named parts, such as streams, each of which can be reset as a whole."""

    @property
    def parts(self) -> Sequence[str]:
        """The names of the parts, once templates are rendered."""
        ...


@runtime_checkable
class Synced(Protocol):
    """A source whose jobs keep its partitions in sync after a first sync. Other sources have a supplier instead."""

    def sync(self, coordinator: SourceCoordinator, connections: ConnectionResolver) -> object:
        """Create the partitions that the source needs; the result is specific to the source.

        :param coordinator: an initialized coordinator of the source, for the process that syncs.
        :param connections: resolves what the source names.
        :raises ConfigurationError: for an error that only a user can fix.
        :raises SourceError: if the source does not respond.
        """
        ...


@runtime_checkable
class Bounded(Protocol):
    """A source that can be read by intervals."""

    def within(self, start: datetime, end: datetime) -> Reads:
        """Return the part of the source from `start` (aware, UTC) on and before `end`.

        :raises ConfigurationError: if the source has bounds of its own.
        """
        ...


@runtime_checkable
class Deduplicated(Protocol):
    """A source whose intervals can leave out what another source delivers."""

    def beside(
        self, other: SourceCoordinator, coordinator: SourceCoordinator, start: datetime, end: datetime
    ) -> Reads | None:
        """Return the part of an interval, as `Bounded.within` does, that another source does not deliver.

        :param other: the coordinator of the other source, for example of live ingestion.
        :param coordinator: the coordinator of the interval.
        :param start: the interval's first instant (aware, UTC).
        :param end: the first instant after the interval.
        :returns: None if the other source delivers all of the interval.
        :raises ConfigurationError: if the two cannot be separated, or the other source reads something else.
        """
        ...


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


Interval = Annotated[timedelta | None, Limits(above=timedelta(0))]
Count = Annotated[int | None, Limits(minimum=1)]


class Reread(Described):
    """A source that may be read again.

    :param interval: how long after its delivery a partition is read again; None for never.
    :param count: how often it is read in total; None for no limit. Only with `interval`.
    """

    interval: Interval
    count: Count

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
