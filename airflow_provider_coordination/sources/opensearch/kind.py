"""Indices of OpenSearch as a kind of source."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from airflow_provider_coordination.sources.dataset_names import host_of
from airflow_provider_coordination.sources.item_kind import ItemKind
from airflow_provider_coordination.sources.kinds import DatasetName, Settings


def _datasets(settings: Settings) -> Iterable[DatasetName]:
    host = host_of(next(iter(settings["hosts"]), None)) or "opensearch"
    return (DatasetName(f"opensearch://{host}", pattern) for pattern in settings["indices"])


def _left(before: Settings, now: Settings) -> Iterable[str]:
    """Return the names of indices that no name matches now; a wider or a narrower pattern leaves nothing."""
    patterns = now.get("indices", ())
    for name in before.get("indices", ()):
        if not any(fnmatchcase(name, pattern) or fnmatchcase(pattern, name) for pattern in patterns):
            yield f"index {name!r}"


KIND = ItemKind(
    "opensearch",
    "airflow_provider_coordination.sources.opensearch.reader:SliceReader",
    _datasets,
    reads="airflow_provider_coordination.operators.reads.opensearch:OpenSearchIndices",
    left=_left,
)
