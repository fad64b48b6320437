"""The slices of indices: dividing an index into them, and reading one through views from any sequence number on.

A view is a slice's content at one moment, page by page, in the order of its sequence numbers. A slice lies in one
shard, where each version of a document has its own sequence number. So a sequence number is a position that outlives
the view: another process can read on after it in another view, even days later.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from airflow_provider_coordination.coordination.errors import ConfigurationError, CoordinationError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.sources.item_kind import ItemSupplier
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemReader,
    ItemUnreadableError,
    ReadPage,
    SourceUnavailableError,
)
from airflow_provider_coordination.sources.opensearch.client import (
    WHOLE,
    Index,
    IndexPart,
    OpenSearchClient,
    ViewLostError,
    find_indices,
    index_path,
    select_indices,
    selected_part,
)
from airflow_provider_coordination.sources.opensearch.kind import MAX_SLICES, POINT_IN_TIME, SCROLL, OpenSearchIndices

log = logging.getLogger(__name__)

KEEP_ALIVE = "5m"
"""How long the server keeps a view after the last page was requested."""
HAS_POINT_IN_TIME = (2, 4)
"""The first version of OpenSearch with the present form of points in time."""
ORDER = [{"_seq_no": "asc"}]
FIRST_PAGE_DOCUMENTS = 100
"""How many documents the first page has: their size is not known yet."""
PAGE_BYTES = 4 * 2**20
"""The greatest size of later pages, if documents are as large as the previous ones."""


@dataclass(frozen=True, kw_only=True)
class Document:
    """A document.

    :param id: its name in the index.
    :param seq_no: its sequence number.
    :param source: the indexed document, as JSON, with exactly the server's bytes.
    """

    id: str
    seq_no: int
    source: str


@dataclass(frozen=True, kw_only=True)
class Response:
    """A page of a search.

    :param documents: in order.
    :param scroll: the id with which a scroll continues.
    """

    documents: list[Document]
    scroll: str = ""


class Views:
    """Reads slices in views.

    :param client: of the cluster.
    :param settings: of the source.
    """

    def __init__(self, client: OpenSearchClient, settings: OpenSearchIndices) -> None:
        self._client = client
        self._settings = settings
        self._parse = _response_parser()
        self._lock = threading.Lock()
        self._has_points_in_time: bool | None = None

    def pages(self, item: Item, after: int, part: IndexPart = WHOLE) -> Generator[list[Document]]:
        """Yield the documents of a slice in one view, page by page; close the generator to close the view.

        :param item: the slice.
        :param after: read only documents after this sequence number; -1 for all.
        :param part: the part of the index that is read.
        :raises ViewLostError: if the view no longer exists.
        """
        filters: list[Any] = [{"range": {"_seq_no": {"gt": after}}}]
        filters += [query for query in (part.filter, self._settings.query) if query is not None]
        body = {"query": {"bool": {"filter": filters}}, "sort": ORDER}
        return self._in_point_in_time(item, body) if self.has_point_in_time() else self._in_scroll(item, body)

    def _in_point_in_time(self, item: Item, body: dict[str, Any]) -> Generator[list[Document]]:
        """Yield pages of a point in time of the slice's shard."""
        page: list[Document] = []
        opened = self._client.json(
            "POST",
            index_path(item["index"]) + "/_search/point_in_time",
            about=about(item),
            parameters={
                "keep_alive": KEEP_ALIVE,
                "preference": f"_shards:{shard_of(item)}",
                "allow_partial_pit_creation": "false",
            },
        )
        body |= {"pit": {"id": opened["pit_id"], "keep_alive": KEEP_ALIVE}, "track_total_hits": False}
        if item["slices"] > 1:
            # The server counts these slices over all shards: number n is in shard n modulo the number of shards.
            body["slice"] = {"id": item["slice"], "max": item["slices"]}
        try:
            while True:
                body["size"] = self._page_documents(page)
                page = self.search(
                    "/_search", about(item), body, repeat=True, allow_partial_search_results="false"
                ).documents
                yield page
                if len(page) < body["size"]:
                    return
                body["search_after"] = [page[-1].seq_no]
        finally:
            self._forget("/_search/point_in_time", {"pit_id": [opened["pit_id"]]})

    def _in_scroll(self, item: Item, body: dict[str, Any]) -> Generator[list[Document]]:
        """Yield pages of a scroll over the slice's shard, for servers without points in time."""
        size = body["size"] = self._page_documents([])
        a_shard = item["slices"] // item["shards"]
        if a_shard > 1:
            # In a search of one shard, the server counts slices within that shard.
            body["slice"] = {"id": item["slice"] // item["shards"], "max": a_shard}
        response = self.search(
            index_path(item["index"]) + "/_search",
            about(item),
            body,
            repeat=True,
            scroll=KEEP_ALIVE,
            preference=f"_shards:{shard_of(item)}",
            allow_partial_search_results="false",
        )
        name = response.scroll
        try:
            while True:
                yield response.documents
                if len(response.documents) < size:
                    return
                # A repeated request could skip a page: without a response, another view is opened instead.
                body = {"scroll": KEEP_ALIVE, "scroll_id": name}
                response = self.search("/_search/scroll", about(item), body, repeat=False)
                name = response.scroll or name
        finally:
            if name:
                self._forget("/_search/scroll", {"scroll_id": [name]})

    def search(self, path: str, about: str, body: Mapping[str, Any], *, repeat: bool, **parameters: str) -> Response:
        """Search, and parse the response.

        :raises SourceUnavailableError: if the search timed out, or failed on a shard.
        """
        response = self._parse(
            self._client.send("POST", path, about=about, parameters=parameters, body=body, repeat=repeat)
        )
        if response.timed_out or response.shards.failed:
            why = "timed out" if response.timed_out else f"failed on {response.shards.failed} shards"
            raise SourceUnavailableError(f"{about}: the search {why}; check the health of the cluster")
        documents = []
        for hit in response.hits.hits:
            if not (source := bytes(hit.source).decode()):
                raise ItemUnreadableError(
                    f"{about}: document {hit.id!r} has no _source, since its mapping does not store it; enable _source "
                    "and index again"
                )
            documents.append(Document(id=hit.id, seq_no=hit.sort[0], source=source))
        return Response(documents=documents, scroll=response.scroll_id)

    def _page_documents(self, before: list[Document]) -> int:
        """Return how many documents to request, by the size of those in the previous page."""
        if not before:
            return min(FIRST_PAGE_DOCUMENTS, self._settings.page_documents)
        each = max(1, sum(len(document.source) for document in before) // len(before))
        return max(1, min(PAGE_BYTES // each, self._settings.page_documents))

    def _forget(self, path: str, body: Mapping[str, Any]) -> None:
        """Close a view on the server; otherwise the server does that a little later."""
        with suppress(CoordinationError):
            self._client.send("DELETE", path, about="closing a view", body=body, repeat=False)

    def has_point_in_time(self) -> bool:
        """Return whether views are points in time; the server is asked once, unless the settings say it."""
        # Not a `cached_property`: up to Python 3.11, its one lock serves all clusters, and one cluster may be down.
        with self._lock:
            if self._has_points_in_time is None:
                self._has_points_in_time = self._detect_points_in_time()
            return self._has_points_in_time

    def _detect_points_in_time(self) -> bool:
        if self._settings.context is not None:
            return self._settings.context == POINT_IN_TIME
        version = self._client.json("GET", "/", about="its version").get("version", {})
        number = tuple(int(part) for part in str(version.get("number", "0")).split(".")[:2] if part.isdigit())
        has = version.get("distribution") == "opensearch" and number >= HAS_POINT_IN_TIME
        log.debug("OpenSearch %s is read with %s", version.get("number"), POINT_IN_TIME if has else SCROLL)
        return has


def shard_of(item: Item) -> int:
    """Return the shard that a slice lies in, as the server counts slices."""
    return int(item["slice"]) % int(item["shards"])


def about(item: Item) -> str:
    """Return the description of a slice, for messages."""
    return f"index {item['index']!r}, slice {item['slice']} of {item['slices']}"


def _response_parser() -> Any:
    """Return a parser of search responses that does not change the documents: their numbers stay as they are."""
    try:
        import msgspec
    except ImportError:
        raise ConfigurationError(
            "reading OpenSearch needs msgspec, which is not installed; install it where Spark's workers run"
        ) from None

    hit = msgspec.defstruct(
        "Hit",
        [("id", str), ("sort", list[int], []), ("source", msgspec.Raw, msgspec.Raw(b""))],
        rename={"id": "_id", "source": "_source"},
    )
    hits = msgspec.defstruct("Hits", [("hits", list.__class_getitem__(hit))])
    shards = msgspec.defstruct("Shards", [("failed", int, 0)])
    response = msgspec.defstruct(
        "Response",
        [("hits", hits), ("shards", shards), ("timed_out", bool, False), ("scroll_id", str, "")],
        rename={"shards": "_shards", "scroll_id": "_scroll_id"},
    )
    decoder: Any = msgspec.json.Decoder(response)

    def parse(body: bytes) -> Any:
        try:
            return decoder.decode(body)
        except ValueError as error:
            raise SourceUnavailableError(f"OpenSearch: the response to a search cannot be read: {error}") from None

    return parse


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
