"""What the operators ask of each kind of source."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.operators.template_values import text_value
from airflow_provider_coordination.sources.kinds import ReadsSettings

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Connected:
    """A source, its Airflow connections resolved.

    :param reads: what a Spark job is given of it.
    :param supplier: makes what finds its partitions, for a coordinator of the source.
    """

    reads: ReadsSettings
    supplier: Callable[[SourceCoordinator], Supplier]


class Reads(Protocol):
    """A source as a DAG describes it.

    Airflow renders its templates in place: it must not be frozen. Its text, by `repr`,
    is in the serialized DAG and in the rendered templates: it has to be the same each time the file is parsed.
    """

    @property
    def template_fields(self) -> Sequence[str]:
        """The attributes that Airflow renders."""
        ...

    @property
    def is_endless(self) -> bool:
        """Whether its partitions have no end: jobs share those that others hold, and a job itself bounds an interval.

        Partitions that come to an end are cut to an interval when they are created.
        """
        ...

    @property
    def kind(self) -> str:
        """The kind of source, such as `s3`."""
        ...

    @property
    def default_source(self) -> str:
        """The source's name where the DAG gives none, once templates are rendered."""
        ...

    def connect(self, default_region: str | None = None) -> Connected:
        """Resolve the connections, in a task.

        :param default_region: the AWS region where nothing else names one.
        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        ...


@runtime_checkable
class Located(Protocol):
    """A source that says where it reads from: DAGs that say otherwise cannot share it; see `SourceClaim`.

    Of others their kind says so, by their settings; see `SourceKind.location`.
    """

    @property
    def reads_from(self) -> Mapping[str, Any]:
        """What decides which data is meant, such as a table's name, once templates are rendered; JSON, no secret.

        No bounds, such as those of an interval: they differ between runs of one DAG.
        """
        ...


@runtime_checkable
class Parted(Protocol):
    """A source of parts that can be reset each as a whole, such as streams."""

    @property
    def parts(self) -> Sequence[str]:
        """What they are called, once templates are rendered."""
        ...


@runtime_checkable
class Created(Protocol):
    """A source whose partitions an operator of its own creates, instead of `CreatePartitionsOperator`."""

    def creating(self, **arguments: Any) -> BaseOperator:
        """Return that operator, for `coordinated_ingestion`.

        :param arguments: `source`, `interval`, `deduplicate_against` and `coordination_conn_id`.
        """
        ...


@runtime_checkable
class Synced(Protocol):
    """A source whose jobs keep its partitions in step with it, once it was synced; of others a supplier finds them."""

    def sync(self, coordinator: SourceCoordinator, default_region: str | None = None) -> object:
        """Create the partitions that the source calls for; what it returns is its own.

        :param coordinator: of the source, initialized, for whoever syncs.
        :param default_region: the AWS region where nothing else names one.
        :raises ConfigurationError: if only a person can put things right.
        :raises SourceError: if the source does not answer.
        """
        ...


@runtime_checkable
class Bounded(Protocol):
    """A source that can be read an interval at a time."""

    def within(self, start: datetime, end: datetime) -> Reads:
        """Return what there is of it from an instant on (aware, UTC) until before another.

        :raises ConfigurationError: if it has bounds of its own.
        """
        ...


@runtime_checkable
class Deduplicated(Protocol):
    """A source of which an interval can leave out what another source delivers."""

    def beside(
        self, other: SourceCoordinator, coordinator: SourceCoordinator, start: datetime, end: datetime
    ) -> Reads | None:
        """Return what there is of an interval, as `Bounded.within` does, without what another source delivers.

        :param other: of the other source, for example that of live ingestion.
        :param coordinator: of the interval.
        :param start: the interval's first instant (aware, UTC).
        :param end: the first instant after it.
        :returns: None if the other source delivers all of it.
        :raises ConfigurationError: if the two cannot be kept apart, or the other source reads something else.
        """
        ...


def source_of(source: str | None, reads: Reads | None) -> str:
    """Return the name of a task's source: the one that it is given, or else what `reads` calls it.

    :raises ConfigurationError: if nothing names it.
    """
    name = text_value(source) or (reads.default_source if reads is not None else None)
    if name is None:
        raise ConfigurationError("field 'source' is missing; name the source")
    return name


def own_copy(given: R) -> R:
    """Return a copy for one try of one task: templates are rendered in place, and others render theirs.

    :param given: one object, or a list of them.
    """
    return [copy(each) for each in given] if isinstance(given, list | tuple) else copy(given)  # type: ignore[return-value]
