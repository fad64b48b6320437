"""The part of an index that a source's names select: all of it, or what the filters and routings of aliases leave.

OpenSearch itself computes it, as for a search with the same names. If a name selects the index itself, all of it is
selected. Otherwise it is what any of its aliases selects.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from airflow_provider_coordination.sources.items import ItemGoneError
from airflow_provider_coordination.sources.opensearch.client import OpenSearchClient, index_path
from airflow_provider_coordination.sources.opensearch.settings import OpenSearchIndices


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
