"""The slices of indices: dividing an index into them, and reading one from any sequence number on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.item_kind import ItemSupplier
from airflow_provider_coordination.sources.items import Item, ItemGoneError, ItemReader, ItemUnreadableError, ReadPage
from airflow_provider_coordination.sources.opensearch.client import (
    WHOLE,
    Index,
    IndexPart,
    OpenSearchClient,
    ViewLostError,
    find_indices,
    select_indices,
    selected_part,
)
from airflow_provider_coordination.sources.opensearch.kind import MAX_SLICES, OpenSearchIndices
from airflow_provider_coordination.sources.opensearch.views import Document, Views, about, shard_of

log = logging.getLogger(__name__)


class SliceSupplier(ItemSupplier[OpenSearchIndices]):
    """Makes a partition of each slice of each index; a `Supplier`.

    Each run finds new indices. A known index keeps its first number of slices, even if `slices` changes, since only
    those together are the whole index. An index that was deleted and created again is another index.
    """

    @override
    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        client, count = OpenSearchClient(self._settings.cluster), 0
        for index in select_indices(client, self._settings):
            if not index.is_open:
                log.warning("index %s is closed, and is left out until it is open", index.name)
                continue
            count += 1
            slices = self._slices(index)
            part = selected_part(client, self._settings, index.name, index.shards)
            item: dict[str, Any] = {"index": index.name, "uuid": index.uuid, "shards": index.shards}
            if part is not None and not part.is_whole:
                item["is_part"] = True
            size = index.bytes // slices
            cut = [{**item, "slice": number, "slices": slices, "size": size} for number in range(slices)]
            rereads = self._settings.rereads
            yield Page({_key(index, each["slice"]): self.first_progress(each, **rereads) for each in cut})
        if not count:
            log.warning("no index matches %s", ", ".join(map(repr, self._settings.indices)))

    def _slices(self, index: Index) -> int:
        """Return the number of slices of an index, from its existing partitions, or as a multiple of its shards.

        With a multiple of the shards, each slice lies in one shard.
        """
        if first := self.items_of(_key(index, 0)):
            return int(first[0]["slices"])
        a_shard = -(-(self._settings.slices or 1) // index.shards)
        return index.shards * min(a_shard, max(1, MAX_SLICES // index.shards))


def _key(index: Index, number: int) -> str:
    return f"{index.name}/{index.uuid}/{number}"


RECORD_SCHEMA = pa.schema(
    [
        pa.field("index", pa.string()),
        pa.field("id", pa.string()),
        pa.field("seq_no", pa.int64()),
        pa.field("data", pa.string()),
    ]
)
"""`data` is the document's `_source`, the server's unchanged JSON."""
READS_AT_ONCE = 32
"""How many slices a job reads at the same time: a server keeps a view for each, and about 300 views in total."""
EVERYTHING = -1
"""The sequence number before the first one."""


class SliceReader(ItemReader):
    """Reads slices.

    A position is the sequence number of the last document that was read. Each call reads its own view, which the server
    keeps as a point in time or a scroll: the content of the slice at the start of the call. A view that expires, or is
    lost with its node, is replaced by another one after the last page. So a document that exists all the time is read
    once. A document that is written while its slice is read in several views may be read before and after the write.

    :param settings: of the source.
    :param sleep: waits that many seconds.
    """

    reads_at_once: int | None = READS_AT_ONCE

    def __init__(self, settings: OpenSearchIndices, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings = settings
        self._sleep = sleep

    @classmethod
    @override
    def from_mapping(cls, settings: Mapping[str, Any]) -> SliceReader:
        return cls(OpenSearchIndices.from_mapping(settings))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle without the client."""
        return SliceReader, (self._settings, self._sleep)

    @cached_property
    def client(self) -> OpenSearchClient:
        """The client of the cluster."""
        return OpenSearchClient(self._settings.cluster, self._sleep)

    @cached_property
    def _views(self) -> Views:
        return Views(self.client, self._settings)

    @override
    def columns(self, spark: object) -> pa.Schema:
        return RECORD_SCHEMA

    @override
    def origin(self, item: Item) -> str:
        return f"{item['index']}/{item['slice']} of {item['slices']}"

    @override
    def read(self, item: Item, position: str) -> Iterator[ReadPage]:
        after, lost = _sequence_number(position), False
        while True:
            self._check_index(item)
            part = self._part_of(item)
            if part.shards is not None and shard_of(item) not in part.shards:
                return
            try:
                with closing(self._views.pages(item, after, part)) as pages:
                    for page in pages:
                        if page:
                            after, lost = page[-1].seq_no, False
                            yield ReadPage(_records(item, page), str(after))
                return
            except ViewLostError as error:
                if lost:  # twice without a page in between: the server does not keep views
                    raise
                lost = True
                log.info("%s; opening another view after sequence number %d", error, after)

    def _part_of(self, item: Item) -> IndexPart:
        """Return the part of the index that is read, by the present filters and routings of its aliases.

        An index that left an alias without a filter is read to its end, as after a rollover.
        """
        part = selected_part(self.client, self._settings, item["index"], item["shards"])
        if part is None and item.get("is_part"):
            raise ItemUnreadableError(
                f"{about(item)}: no alias of the source selects it any more; add the index to an alias "
                "again, or remove its partitions"
            )
        return part or WHOLE

    def _check_index(self, item: Item) -> None:
        """Check that the index is the one that was divided into slices, and is open."""
        indices = [index for index in find_indices(self.client, item["index"]) if index.uuid == item["uuid"]]
        if not indices:
            raise ItemGoneError(f"{about(item)}: the index was deleted")
        if not indices[0].is_open:
            raise ItemUnreadableError(
                f"{about(item)}: the index is closed; open it, or exclude it and remove its partitions"
            )


def _sequence_number(position: str) -> int:
    if not position:
        return EVERYTHING
    try:
        return int(position)
    except ValueError:
        raise ItemUnreadableError(
            f"position {position!r} is not a sequence number; reset the partition to read it from its start"
        ) from None


def _records(item: Item, page: list[Document]) -> pa.Table:
    columns = [
        [item["index"]] * len(page),
        [document.id for document in page],
        [document.seq_no for document in page],
        [document.source for document in page],
    ]
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, RECORD_SCHEMA, strict=True)],
        schema=RECORD_SCHEMA,
    )
