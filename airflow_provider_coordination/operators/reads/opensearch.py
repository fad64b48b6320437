"""OpenSearch as a source, as a DAG describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.supplier import Supplier
from airflow_provider_coordination.hooks.opensearch import opensearch_cluster
from airflow_provider_coordination.operators.template_values import int_value, names_value, seconds_value, text_value
from airflow_provider_coordination.settings import write_settings
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.opensearch.settings import OpenSearchSettings
from airflow_provider_coordination.sources.reads import Connected, ConnectionResolver


@dataclass
class OpenSearchIndices:
    """Indices of an OpenSearch cluster, for the `reads` of operators.

    :param indices: a name, or a list of names, of indices, aliases and data streams; `*` matches any characters.
        Hidden indices, and indices whose names begin with a dot, are left out unless the given name also begins with a
        dot. (templated)
    :param exclude: names of indices to leave out, with the same wildcard. (templated)
    :param slices: the minimum number of slices of an index; by default one for each shard. (templated)
    :param query: read only documents that match this query, in OpenSearch's query DSL; all by default. (templated)
    :param page_documents: the maximum number of documents in a request. (templated)
    :param context: how to keep a consistent view of a slice while it is read: `"point_in_time"` or `"scroll"`; by
        default what the server supports. (templated)
    :param interval: read each slice again this long after its delivery; timedelta or seconds. (templated)
    :param count: how many times the indices are read in total; no limit by default. Only with `interval`. (templated)
    :param opensearch_conn_id: the connection to the cluster. (templated)
    :param source: the source's name if the operator sets none; `opensearch-<indices>` by default. (templated)
    """

    template_fields: ClassVar[Sequence[str]] = (
        "indices",
        "exclude",
        "slices",
        "query",
        "page_documents",
        "context",
        "interval",
        "count",
        "opensearch_conn_id",
        "source",
    )
    is_endless: ClassVar[bool] = False
    kind: ClassVar[str] = "opensearch"

    indices: str | Sequence[str]
    _: KW_ONLY
    exclude: str | Sequence[str] = ()
    slices: int | str | None = None
    query: Mapping[str, Any] | None = None
    page_documents: int | str = 1000
    context: str | None = None
    interval: timedelta | float | str | None = None
    count: int | str | None = None
    opensearch_conn_id: str = "opensearch_default"
    source: str | None = None

    @property
    def default_source(self) -> str:
        """See `Reads.default_source`."""
        return text_value(self.source) or f"opensearch-{','.join(_names('indices', self.indices))}"

    @property
    def reads_from(self) -> Mapping[str, Any]:
        """See `Located.reads_from`."""
        return {"opensearch_conn_id": self.opensearch_conn_id, "indices": sorted(_names("indices", self.indices))}

    def check(self) -> None:
        """Check every value that can be checked without a connection.

        :raises ConfigurationError: naming the field, the value and the remedy.
        """
        self._settings({"hosts": ("https://localhost",)})

    def connect(self, connections: ConnectionResolver) -> Connected:
        """See `Reads.connect`."""
        settings = self._settings(opensearch_cluster(self.opensearch_conn_id))
        reads = ReadsSettings(kind=self.kind, settings=write_settings(settings))
        return Connected(reads=reads, supplier=partial(_slices, settings))

    def _settings(self, cluster: Mapping[str, Any]) -> OpenSearchSettings:
        """Return the checked settings.

        :param cluster: the settings of the client.
        """
        if self.query is not None and not isinstance(self.query, Mapping):
            raise ConfigurationError(f"field 'query' must be a mapping, in OpenSearch's query DSL; got {self.query!r}")
        return OpenSearchSettings(
            **cluster,
            indices=_names("indices", self.indices),
            exclude=_names("exclude", self.exclude) if self.exclude else (),
            slices=int_value("slices", self.slices),
            query=None if self.query is None else dict(self.query),
            page_documents=int_value("page_documents", self.page_documents) or 0,
            context=text_value(self.context),
            interval_seconds=seconds_value("interval", self.interval),
            count=int_value("count", self.count),
        )


def _slices(settings: OpenSearchSettings, coordinator: SourceCoordinator) -> Supplier:
    from airflow_provider_coordination.sources.opensearch.supplier import SliceSupplier

    return SliceSupplier(settings, coordinator.view)


def _names(field: str, value: str | Sequence[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else names_value(field, value, instead="a name")
