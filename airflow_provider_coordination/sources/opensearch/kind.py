"""Indices of OpenSearch as a kind of source."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.source_kind import DatasetName, Settings, host_of

if TYPE_CHECKING:
    from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
    from airflow_provider_coordination.coordination.supplier import Supplier
    from airflow_provider_coordination.sources.connections import ConnectionResolver
    from airflow_provider_coordination.sources.opensearch.settings import OpenSearchIndices


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    host = host_of(next(iter(settings["cluster"]["hosts"]), None)) or "opensearch"
    return (DatasetName(f"opensearch://{host}", pattern) for pattern in settings["indices"])


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the names of indices that no name matches now; a wider or a narrower pattern leaves nothing."""
    patterns = now.get("indices", ())
    for name in before.get("indices", ()):
        if not any(fnmatchcase(name, pattern) or fnmatchcase(pattern, name) for pattern in patterns):
            yield f"index {name!r}"


def _supplier(
    described: OpenSearchIndices, coordinator: SourceCoordinator, connections: ConnectionResolver
) -> Supplier:
    from airflow_provider_coordination.sources.opensearch.supplier import SliceSupplier

    return SliceSupplier(described, coordinator.view)


KIND = ItemKind(
    "opensearch",
    "airflow_provider_coordination.sources.opensearch.reader:SliceReader",
    _datasets,
    reads="airflow_provider_coordination.sources.opensearch.settings:OpenSearchIndices",
    left=_left,
    supplier=_supplier,
)
