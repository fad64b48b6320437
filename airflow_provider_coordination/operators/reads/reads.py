"""What the operators ask of each kind of source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.sources.readers import ReaderSettings


@dataclass(frozen=True, kw_only=True)
class Connected:
    """A source, its Airflow connections resolved.

    :param reader: what reads it in a Spark job.
    :param supplier: makes what finds its partitions, for a coordinator of the source.
    """

    reader: ReaderSettings
    supplier: Callable[[SourceCoordinator], Supplier]


class Reads(Protocol):
    """A source as a DAG describes it. Airflow renders the attributes that `template_fields` names."""

    template_fields: Sequence[str]

    @property
    def kind(self) -> str:
        """The kind of source, such as `s3`."""
        ...

    @property
    def default_source(self) -> str:
        """The source's name where the DAG gives none, once templates are rendered."""
        ...

    def connect(self) -> Connected:
        """Resolve the connections, in a task.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        ...
