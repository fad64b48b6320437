"""The indices of a cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from airflow_provider_coordination.sources.items import ItemGoneError
from airflow_provider_coordination.sources.opensearch.client import OpenSearchClient, index_path
from airflow_provider_coordination.sources.opensearch.settings import OpenSearchIndices

STREAM_INDEX = ".ds-"
"""The prefix of the names of a data stream's indices."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """An index.

    :param name: its name.
    :param uuid: distinguishes it from other indices of the same name.
    :param shards: the number of primary shards, which never changes.
    :param bytes: the size of the primary shards.
    :param is_open: whether it can be read.
    """

    name: str
    uuid: str
    shards: int
    bytes: int
    is_open: bool


def select_indices(client: OpenSearchClient, settings: OpenSearchIndices) -> Iterator[Index]:
    """Yield the indices that the settings select, each once.

    Hidden indices and system indices are only selected by a name that begins with a dot.

    :raises SourceUnavailableError: if the cluster is unavailable.
    :raises ConfigurationError: if the cluster denies access.
    """
    seen: set[str] = set()
    for pattern in settings.indices:
        for index in find_indices(client, pattern):
            wanted = not index.name.startswith(".") or index.name.startswith(STREAM_INDEX) or pattern.startswith(".")
            excluded = any(fnmatchcase(index.name, out) for out in settings.exclude)
            if wanted and not excluded and index.name not in seen:
                seen.add(index.name)
                yield index


def find_indices(client: OpenSearchClient, pattern: str) -> list[Index]:
    """Return the indices of a name, an alias, a data stream or a pattern; empty if there is none."""
    parameters = {
        "format": "json",
        "bytes": "b",
        "h": "index,uuid,pri,pri.store.size,status",
        "expand_wildcards": "open,closed,hidden" if pattern.startswith(".") else "open,closed",
    }
    path = f"/_cat/indices{index_path(pattern)}"
    try:
        rows = client.json("GET", path, about=f"indices {pattern!r}", parameters=parameters)
    except ItemGoneError:
        return []
    return [
        Index(
            name=row["index"],
            uuid=row["uuid"],
            shards=int(row["pri"] or 1),
            bytes=int(row["pri.store.size"] or 0),
            is_open=row["status"] == "open",
        )
        for row in rows
    ]


@dataclass(frozen=True, kw_only=True)
class IndexPart:
    """A part of an index.

    :param filter: a query that its documents match; None for all.
    :param shards: the numbers of the shards that hold them; None for all.
    """

    filter: dict[str, Any] | None = None
    shards: frozenset[int] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole index."""
        return self.filter is None and self.shards is None


WHOLE = IndexPart()


def selected_part(client: OpenSearchClient, settings: OpenSearchIndices, name: str, shards: int) -> IndexPart | None:
    """Return the part of an open index that the settings select now.

    :param name: the index.
    :param shards: its number of shards.
    :returns: None if no name of the settings selects the index any more.
    :raises SourceUnavailableError: if the cluster is unavailable.
    """
    if any(_matches(pattern, name) for pattern in settings.indices):
        return WHOLE
    parameters = {"ignore_unavailable": "true", "expand_wildcards": "open,hidden"}
    path = index_path(",".join(settings.indices)) + "/_search_shards"
    try:
        response = client.json("GET", path, about=f"aliases of index {name!r}", parameters=parameters)
    except ItemGoneError:
        return None
    if name not in response["indices"]:
        return None
    routed = frozenset(copy["shard"] for copies in response["shards"] for copy in copies if copy["index"] == name)
    return IndexPart(filter=response["indices"][name].get("filter"), shards=None if len(routed) == shards else routed)


def _matches(pattern: str, name: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) is not None
