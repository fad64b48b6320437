"""What is read of OpenSearch: what a DAG or a spec says, and what the supplier and the reader use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.settings import CONNECTED, Limits, Texts, text_value
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.opensearch.cluster import OpenSearchCluster, cluster_of
from airflow_provider_coordination.sources.reads import Connected, Count, Interval, Located, Reads, Reread, connected

POINT_IN_TIME = "point_in_time"
SCROLL = "scroll"
MAX_SLICES = 1024
"""The maximum number of slices of an index, unless its settings have another limit."""
MAX_PAGE_DOCUMENTS = 10_000
"""The maximum number of documents that a search returns, unless the index's settings have another limit."""


@dataclass
class OpenSearchIndices(Reread, Reads, Located):
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
    :param interval: read each slice again this long after its delivery. (templated)
    :param count: how many times the indices are read in total; no limit by default. Only with `interval`. (templated)
    :param opensearch_conn_id: the connection to the cluster. (templated)
    :param source: the source's name if the operator sets none; `opensearch-<indices>` by default. (templated)
    """

    is_endless: ClassVar[bool] = False
    kind: ClassVar[str] = "opensearch"

    indices: Annotated[Texts, Limits(min_items=1)]
    _: KW_ONLY
    exclude: Texts = ()
    slices: Annotated[int | None, Limits(minimum=1, maximum=MAX_SLICES)] = None
    query: Mapping[str, Any] | None = None
    page_documents: Annotated[int, Limits(minimum=1, maximum=MAX_PAGE_DOCUMENTS)] = 1000
    context: Annotated[str | None, Limits(one_of=(POINT_IN_TIME, SCROLL))] = None
    interval: Interval = None
    count: Count = None
    opensearch_conn_id: str = "opensearch_default"
    source: str | None = None
    cluster: OpenSearchCluster = field(default_factory=OpenSearchCluster, repr=False, metadata=CONNECTED)

    @property
    @override
    def default_source(self) -> str:
        return text_value(self.source) or f"opensearch-{','.join(self.listed('indices'))}"

    @property
    @override
    def reads_from(self) -> Mapping[str, Any]:
        return {"opensearch_conn_id": self.opensearch_conn_id, "indices": sorted(self.listed("indices"))}

    @override
    def connect(self, connections: ConnectionResolver) -> Connected:
        indices = self.resolved()
        indices.cluster = cluster_of(indices.opensearch_conn_id, connections)
        return connected(indices, connections)

    @override
    def check_together(self) -> None:
        super().check_together()
        for field_name in ("indices", "exclude"):
            for name in getattr(self, field_name):
                if not name or "," in name or name.startswith("-"):
                    raise self.invalid(
                        field_name,
                        "must be one name or pattern each, such as 'logs-*'; use 'exclude' to leave some out",
                    )
