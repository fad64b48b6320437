"""What indices a cluster has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from airflow_provider_coordination.sources.items import ItemGoneError
from airflow_provider_coordination.sources.opensearch.client import OpenSearchClient, index_path
from airflow_provider_coordination.sources.opensearch.settings import OpenSearchSettings

STREAM_INDEX = ".ds-"
"""What the names of the indices begin with that a data stream consists of."""


@dataclass(frozen=True, kw_only=True)
class Index:
    """An index.

    :param name: its name.
    :param uuid: tells it from another of that name.
    :param shards: how many primary shards it has, for as long as it lives.
    :param bytes: how large they are.
    :param is_open: whether it can be read.
    """

    name: str
    uuid: str
    shards: int
    bytes: int
    is_open: bool


def indices_of(client: OpenSearchClient, settings: OpenSearchSettings) -> Iterator[Index]:
    """Yield the indices that settings ask for, each once; hidden ones and those of the system only where they are
    asked for by a name that begins with a dot.

    :raises SourceUnavailableError: if the cluster does not answer.
    :raises ConfigurationError: if it does not let us ask.
    """
    seen: set[str] = set()
    for pattern in settings.indices:
        for index in indices_named(client, pattern):
            wanted = not index.name.startswith(".") or index.name.startswith(STREAM_INDEX) or pattern.startswith(".")
            excluded = any(fnmatchcase(index.name, out) for out in settings.exclude)
            if wanted and not excluded and index.name not in seen:
                seen.add(index.name)
                yield index


def indices_named(client: OpenSearchClient, pattern: str) -> list[Index]:
    """Return the indices that a name, an alias, a data stream or a pattern stands for; none if there is none."""
    parameters = {
        "format": "json",
        "bytes": "b",
        "h": "index,uuid,pri,pri.store.size,status",
        "expand_wildcards": "open,closed,hidden" if pattern.startswith(".") else "open,closed",
    }
    path = f"/_cat/indices{index_path(pattern)}"
    try:
        found = client.json("GET", path, about=f"indices {pattern!r}", parameters=parameters)
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
        for row in found
    ]
