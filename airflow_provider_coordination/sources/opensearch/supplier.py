"""Dividing indices into slices."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.opensearch.client import OpenSearchClient
from airflow_provider_coordination.sources.opensearch.indices import Index, select_indices, selected_part
from airflow_provider_coordination.sources.opensearch.settings import MAX_SLICES, OpenSearchIndices
from airflow_provider_coordination.sources.progress import PartitionProgress

log = logging.getLogger(__name__)

KIND = "opensearch"


class SliceSupplier:
    """Makes a partition of each slice of each index; a `Supplier`.

    Each run finds new indices. A known index keeps its first number of slices, even if `slices` changes, since only
    those together are the whole index. An index that was deleted and created again is another index.

    :param settings: of the source.
    :param view: of the source.
    """

    def __init__(self, settings: OpenSearchIndices, view: SourceView) -> None:
        self._settings = settings
        self._view = view
        self._client = OpenSearchClient(settings.cluster)

    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        """Yield the slices, an index at a time.

        :raises ConfigurationError: if the cluster denies access.
        :raises SourceUnavailableError: if the cluster is unavailable.
        """
        count = 0
        for index in select_indices(self._client, self._settings):
            if not index.is_open:
                log.warning("index %s is closed, and is left out until it is open", index.name)
                continue
            count += 1
            slices = self._slices(index)
            part = selected_part(self._client, self._settings, index.name, index.shards)
            item: dict[str, Any] = {"index": index.name, "uuid": index.uuid, "shards": index.shards}
            if part is not None and not part.is_whole:
                item["is_part"] = True
            size = index.bytes // slices
            cut = [{**item, "slice": number, "slices": slices, "size": size} for number in range(slices)]
            yield Page({_key(index, each["slice"]): self._progress(each) for each in cut})
        if not count:
            log.warning("no index matches %s", ", ".join(map(repr, self._settings.indices)))

    def _slices(self, index: Index) -> int:
        """Return the number of slices of an index, from its existing partitions, or as a multiple of its shards.

        With a multiple of the shards, each slice lies in one shard.
        """
        first = self._view.get(_key(index, 0))
        if first is not None:
            return int(PartitionProgress.from_mapping(first.progress).items[0]["slices"])
        a_shard = -(-(self._settings.slices or 1) // index.shards)
        return index.shards * min(a_shard, max(1, MAX_SLICES // index.shards))

    def _progress(self, item: dict[str, Any]) -> dict[str, Any]:
        return PartitionProgress(
            kind=KIND,
            items=(item,),
            reread_seconds=self._settings.reread_seconds,
            reads_left=self._settings.reads_left,
        ).to_mapping()


def _key(index: Index, number: int) -> str:
    return f"{index.name}/{index.uuid}/{number}"
