"""Documents are read from a real OpenSearch node that loses views and closes indices."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import islice
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import (
    Item,
    ItemGoneError,
    ItemUnreadableError,
    PartitionProgress,
    ReadPage,
    SourceUnavailableError,
)
from airflow_provider_coordination.sources.kinds import get_kind
from airflow_provider_coordination.sources.opensearch.kind import OpenSearchCluster, OpenSearchIndices
from airflow_provider_coordination.sources.opensearch.slices import RECORD_SCHEMA, SliceReader, SliceSupplier
from airflow_provider_coordination.sources.peek import Peek, PeekLimits
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.opensearch_server import OpenSearchServer

pytestmark = pytest.mark.integration

CONTEXTS = ("point_in_time", "scroll")


def settings(server: OpenSearchServer, index: str, **changes: Any) -> OpenSearchIndices:
    cluster = OpenSearchCluster(hosts=(server.url,))
    return OpenSearchIndices(**{"indices": (index,), "page_documents": 10, "cluster": cluster, **changes})


def items(settings: OpenSearchIndices, coordinator: SourceCoordinator | None = None) -> list[Item]:
    """Return the slices that the supplier makes of the indices."""
    coordinator = coordinator or new_coordinator()
    pages = SliceSupplier(settings, coordinator)({})
    return [progress["items"][0] for page in pages for progress in page.partitions.values()]


def new_coordinator() -> SourceCoordinator:
    coordinator = SourceCoordinator(InMemoryStore(), "search", "test")
    coordinator.initialize()
    return coordinator


def ids(pages: Iterator[ReadPage] | list[ReadPage]) -> list[str]:
    return [name for page in pages for name in page.records.column("id").to_pylist()]


def documents(count: int) -> dict[str, Any]:
    return {str(n): {"n": n} for n in range(count)}


def one_slice(server: OpenSearchServer, index: str, count: int = 60, **changes: Any) -> tuple[OpenSearchIndices, Item]:
    """Create an index of some documents that is one slice; return how it is read, and the slice."""
    server.create_index(index)
    server.index(index, documents(count))
    chosen = settings(server, index, **changes)
    [item] = items(chosen)
    return chosen, item


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(("shards", "slices", "cut"), [(1, None, 1), (3, None, 3), (2, 5, 6), (3, 2, 3)])
def test_slices_cover_an_index_without_overlap(
    opensearch: OpenSearchServer, opensearch_index: str, context: str, shards: int, slices: int | None, cut: int
) -> None:
    opensearch.create_index(opensearch_index, shards)
    opensearch.index(opensearch_index, documents(200))
    chosen = settings(opensearch, opensearch_index, context=context, slices=slices)
    found = items(chosen)
    read = Counter(name for item in found for name in ids(SliceReader(chosen).read(item, "")))
    assert len(found) == cut and read == Counter(list(documents(200)))


def test_document_is_read_byte_by_byte(opensearch: OpenSearchServer, opensearch_index: str) -> None:
    source = '{"price": 1.00000000000000000000000000001, "id": 12345678901234567890123, "t":"\\u00e9 é 😀"}'
    opensearch.create_index(opensearch_index, **{"mapping.total_fields.limit": 0})
    opensearch.ask("PUT", f"/{opensearch_index}/_mapping", {"enabled": True, "dynamic": False})
    opensearch.index(opensearch_index, {"a": source})
    chosen = settings(opensearch, opensearch_index)
    [page] = SliceReader(chosen).read(items(chosen)[0], "")
    assert page.records.schema == RECORD_SCHEMA
    assert page.records.to_pylist() == [{"index": opensearch_index, "id": "a", "seq_no": 0, "data": source}]


@pytest.mark.parametrize("context", CONTEXTS)
def test_reading_resumes_at_any_page_position(
    opensearch: OpenSearchServer, opensearch_index: str, context: str
) -> None:
    chosen, item = one_slice(opensearch, opensearch_index, context=context)
    pages = list(SliceReader(chosen).read(item, ""))
    whole = ids(pages)
    assert len(pages) > 3
    for n, page in enumerate(pages):
        rest = ids(SliceReader(chosen).read(item, page.position))
        assert ids(pages[: n + 1]) + rest == whole


def test_writes_between_two_views_are_read_without_loss(opensearch: OpenSearchServer, opensearch_index: str) -> None:
    chosen, item = one_slice(opensearch, opensearch_index, 20)
    [first] = islice(SliceReader(chosen).read(item, ""), 1)
    opensearch.index(opensearch_index, {"0": {"n": 1000}, "19": {"n": 1019}, "new": {"n": 1}})
    rest = list(SliceReader(chosen).read(item, first.position))
    assert ids([first]) == [str(n) for n in range(10)]
    assert ids(rest) == [*(str(n) for n in range(10, 19)), "0", "19", "new"]
    written = [text for page in rest for text in page.records.column("data").to_pylist()][-3:]
    assert written == ['{"n": 1000}', '{"n": 1019}', '{"n": 1}']


@pytest.mark.parametrize("context", CONTEXTS)
def test_expired_view_is_replaced_without_loss_or_duplicates(
    opensearch: OpenSearchServer, opensearch_index: str, context: str
) -> None:
    chosen, item = one_slice(opensearch, opensearch_index, context=context)
    read = []
    for page in SliceReader(chosen).read(item, ""):
        read += ids([page])
        forget_views(opensearch)
    assert read == list(documents(60))


@pytest.mark.parametrize("context", CONTEXTS)
def test_no_view_stays_open_after_a_slice(opensearch: OpenSearchServer, opensearch_index: str, context: str) -> None:
    chosen, item = one_slice(opensearch, opensearch_index, context=context)
    list(SliceReader(chosen).read(item, ""))
    left = SliceReader(chosen).read(item, "")
    next(left)
    assert opensearch.open_views() == 1
    del left
    assert opensearch.open_views() == 0


@pytest.mark.parametrize("context", CONTEXTS)
def test_index_closed_while_reading_resumes_once_open(
    opensearch: OpenSearchServer, opensearch_index: str, context: str
) -> None:
    chosen, item = one_slice(opensearch, opensearch_index, context=context)
    reading = SliceReader(chosen).read(item, "")
    first = next(reading)
    opensearch.ask("POST", f"/{opensearch_index}/_close")
    with pytest.raises(ItemUnreadableError, match=rf"index '{opensearch_index}', slice 0 of 1: .*closed; open it, or"):
        list(reading)
    opensearch.ask("POST", f"/{opensearch_index}/_open?wait_for_active_shards=1")
    assert ids([first]) + ids(SliceReader(chosen).read(item, first.position)) == list(documents(60))


@pytest.mark.parametrize("context", CONTEXTS)
def test_index_deleted_while_reading_is_gone(opensearch: OpenSearchServer, opensearch_index: str, context: str) -> None:
    chosen, item = one_slice(opensearch, opensearch_index, context=context)
    reading = SliceReader(chosen).read(item, "")
    next(reading)
    opensearch.ask("DELETE", f"/{opensearch_index}")
    with pytest.raises(ItemGoneError):
        list(reading)


def test_recreated_index_is_another_one(opensearch: OpenSearchServer, opensearch_index: str) -> None:
    opensearch.create_index(opensearch_index)
    chosen = settings(opensearch, opensearch_index)
    [item] = items(chosen)
    opensearch.ask("DELETE", f"/{opensearch_index}")
    opensearch.create_index(opensearch_index)
    with pytest.raises(ItemGoneError, match="the index was deleted"):
        list(SliceReader(chosen).read(item, ""))
    assert items(chosen)[0]["uuid"] != item["uuid"]


def test_only_documents_matching_the_query_are_read(opensearch: OpenSearchServer, opensearch_index: str) -> None:
    opensearch.create_index(opensearch_index)
    opensearch.index(opensearch_index, documents(60))
    chosen = settings(opensearch, opensearch_index, query={"range": {"n": {"gte": 25}}})
    assert ids(SliceReader(chosen).read(items(chosen)[0], "")) == [str(n) for n in range(25, 60)]


def test_refused_query_is_a_configuration_error(opensearch: OpenSearchServer, opensearch_index: str) -> None:
    opensearch.create_index(opensearch_index)
    chosen = settings(opensearch, opensearch_index, query={"no_such": {}})
    with pytest.raises(ConfigurationError, match="no_such"):
        list(SliceReader(chosen).read(items(chosen)[0], ""))


def test_server_without_free_views_is_temporarily_unavailable(
    opensearch: OpenSearchServer, opensearch_index: str
) -> None:
    chosen, item = one_slice(opensearch, opensearch_index, 1)
    reader = SliceReader(chosen, sleep=lambda seconds: None)
    with cluster_setting(opensearch, "search.max_open_pit_context", 0), pytest.raises(SourceUnavailableError):
        list(reader.read(item, ""))


def test_pattern_skips_system_hidden_closed_and_excluded_indices(
    opensearch: OpenSearchServer, opensearch_index: str
) -> None:
    for name in ("a", "b", "out-1", "closed"):
        opensearch.create_index(f"{opensearch_index}-{name}")
    opensearch.create_index(f"{opensearch_index}-hidden", hidden=True)
    opensearch.ask("POST", f"/{opensearch_index}-closed/_close")
    chosen = settings(opensearch, f"{opensearch_index}-*", exclude=(f"{opensearch_index}-out-*",))
    assert sorted(item["index"] for item in items(chosen)) == [f"{opensearch_index}-a", f"{opensearch_index}-b"]


def test_run_finds_new_indices_and_keeps_known_slices(opensearch: OpenSearchServer, opensearch_index: str) -> None:
    coordinator = new_coordinator()
    opensearch.create_index(f"{opensearch_index}-old")
    first = settings(opensearch, f"{opensearch_index}-*", slices=2)
    assert coordinator.supply(SliceSupplier(first, coordinator)) is not None
    opensearch.create_index(f"{opensearch_index}-new")
    more = settings(opensearch, f"{opensearch_index}-*", slices=4)
    created = coordinator.supply(SliceSupplier(more, coordinator))
    assert sorted(str(key).split("/")[0] for key in created or []) == [f"{opensearch_index}-new"] * 4


def test_slice_read_at_an_interval_restarts_count_times(opensearch: OpenSearchServer, opensearch_index: str) -> None:
    opensearch.create_index(opensearch_index)
    chosen = settings(opensearch, opensearch_index, interval=timedelta(minutes=1), count=3)
    [page] = SliceSupplier(chosen, new_coordinator())({})
    [progress] = map(PartitionProgress.from_mapping, page.partitions.values())
    assert (progress.reread_seconds, progress.reads_left) == (60.0, 2)


def test_index_that_does_not_exist_yet_is_no_error(opensearch: OpenSearchServer) -> None:
    assert items(settings(opensearch, "nobody-made-this")) == []


def forget_views(server: OpenSearchServer) -> None:
    """Let the server forget every view, as it does when they expire."""
    server.ask("DELETE", "/_search/point_in_time/_all")
    server.ask("DELETE", "/_search/scroll/_all")


@contextmanager
def cluster_setting(server: OpenSearchServer, name: str, value: object) -> Iterator[None]:
    server.ask("PUT", "/_cluster/settings", {"transient": {name: value}})
    try:
        yield
    finally:
        server.ask("PUT", "/_cluster/settings", {"transient": {name: None}})


TENANTS = {str(n): {"n": n, "tenant": "ab"[n % 2]} for n in range(20)}


def alias(server: OpenSearchServer, index: str, name: str, **given: Any) -> None:
    """Add an index to an alias."""
    server.ask("POST", "/_aliases", {"actions": [{"add": {"index": index, "alias": name, **given}}]})


def of_tenant(tenant: str) -> dict[str, Any]:
    return {"term": {"tenant.keyword": tenant}}


def tenants_of(chosen: OpenSearchIndices) -> Counter[str]:
    """Return the number of documents of each tenant that are read."""
    pages = [page for item in items(chosen) for page in SliceReader(chosen).read(item, "")]
    texts = [json.loads(text) for page in pages for text in page.records.column("data").to_pylist()]
    assert len({text["n"] for text in texts}) == len(texts), "each document is read once"
    return Counter(text["tenant"] for text in texts)


@pytest.fixture
def tenants(opensearch: OpenSearchServer, opensearch_index: str) -> str:
    """An index of two shards with documents of two tenants, and an alias of each tenant: its name, `-a` and `-b`."""
    opensearch.create_index(opensearch_index, 2)
    opensearch.index(opensearch_index, TENANTS)
    for tenant in "ab":
        alias(opensearch, opensearch_index, f"alias-{opensearch_index}-{tenant}", filter=of_tenant(tenant))
    return opensearch_index


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize(
    ("names", "read"),
    [
        (("alias-{}-a",), {"a": 10}),
        (("alias-{}-a", "alias-{}-b"), {"a": 10, "b": 10}),
        (("alias-{}-*",), {"a": 10, "b": 10}),
        (("alias-{}-a*",), {"a": 10}),
        (("alias-{}-a", "{}"), {"a": 10, "b": 10}),
        (("alias-{}-a", "{}*"), {"a": 10, "b": 10}),
    ],
)
def test_alias_filter_limits_the_documents(
    opensearch: OpenSearchServer, tenants: str, context: str, names: tuple[str, ...], read: dict[str, int]
) -> None:
    named = tuple(name.format(tenants) for name in names)
    chosen = settings(opensearch, tenants, indices=named, context=context, slices=4)
    assert tenants_of(chosen) == read


def test_alias_without_a_filter_selects_all(opensearch: OpenSearchServer, tenants: str) -> None:
    alias(opensearch, tenants, f"alias-{tenants}-all")
    chosen = settings(opensearch, tenants, indices=(f"alias-{tenants}-a", f"alias-{tenants}-all"))
    assert tenants_of(chosen) == {"a": 10, "b": 10}


def test_query_applies_within_an_alias(opensearch: OpenSearchServer, tenants: str) -> None:
    chosen = settings(opensearch, f"alias-{tenants}-a", query={"range": {"n": {"lt": 10}}})
    assert tenants_of(chosen) == {"a": 5}


def test_each_index_of_an_alias_has_its_own_filter(opensearch: OpenSearchServer, tenants: str) -> None:
    opensearch.create_index(f"{tenants}-2")
    opensearch.index(f"{tenants}-2", {key: {**each, "n": each["n"] + 100} for key, each in TENANTS.items()})
    alias(opensearch, tenants, f"written-{tenants}", filter=of_tenant("a"))
    alias(opensearch, f"{tenants}-2", f"written-{tenants}", filter={"range": {"n": {"lt": 103}}}, is_write_index=True)
    assert tenants_of(settings(opensearch, f"written-{tenants}")) == {"a": 12, "b": 1}


@pytest.mark.parametrize("context", CONTEXTS)
def test_alias_with_routing_limits_the_shards(
    opensearch: OpenSearchServer, opensearch_index: str, context: str
) -> None:
    opensearch.create_index(opensearch_index, 5)
    for number in range(30):
        place = f"/{opensearch_index}/_doc/{number}?routing={number % 10}&refresh=true"
        opensearch.ask("PUT", place, {"n": number, "tenant": str(number % 10)})
    alias(opensearch, opensearch_index, f"alias-{opensearch_index}", search_routing="1,7")
    found = opensearch.ask("GET", f"/alias-{opensearch_index}/_search?size=100")["hits"]["hits"]
    read = tenants_of(settings(opensearch, f"alias-{opensearch_index}", context=context))
    assert read == Counter(hit["_source"]["tenant"] for hit in found) and {"1", "7"} <= set(read) and len(read) < 10


def test_changed_alias_applies_from_then_on(opensearch: OpenSearchServer, tenants: str) -> None:
    chosen = settings(opensearch, f"alias-{tenants}-a")
    found = items(chosen)
    alias(opensearch, tenants, f"alias-{tenants}-a", filter={"term": {"n": 4}})
    assert [name for item in found for name in ids(SliceReader(chosen).read(item, ""))] == ["4"]
    opensearch.ask("DELETE", f"/{tenants}/_alias/alias-{tenants}-a")
    with pytest.raises(ItemUnreadableError, match="no alias of the source selects it any more; add"):
        list(SliceReader(chosen).read(found[0], ""))


def test_index_that_left_its_alias_is_read_to_the_end(opensearch: OpenSearchServer, tenants: str) -> None:
    alias(opensearch, tenants, f"all-{tenants}")
    chosen = settings(opensearch, f"all-{tenants}")
    found = items(chosen)
    opensearch.ask("DELETE", f"/{tenants}/_alias/all-{tenants}")
    assert len([name for item in found for name in ids(SliceReader(chosen).read(item, ""))]) == 20


def test_data_stream_is_read_beside_an_alias(opensearch: OpenSearchServer, tenants: str) -> None:
    stream = f"stream-{tenants}"
    opensearch.ask(
        "PUT", f"/_index_template/{stream}", {"index_patterns": [stream], "data_stream": {}, "priority": 500}
    )
    try:
        for number, tenant in enumerate("aab"):
            body = {"@timestamp": "2024-05-06T07:08:09Z", "n": 100 + number, "tenant": tenant}
            opensearch.ask("POST", f"/{stream}/_doc?refresh=true", body)
        assert tenants_of(settings(opensearch, stream)) == {"a": 2, "b": 1}
        assert tenants_of(settings(opensearch, "", indices=(f"alias-{tenants}-a", stream))) == {"a": 12, "b": 1}
    finally:
        opensearch.ask("DELETE", f"/_data_stream/{stream}")
        opensearch.ask("DELETE", f"/_index_template/{stream}")


def test_preview_reads_few_documents(opensearch: OpenSearchServer, opensearch_index: str) -> None:
    chosen, _ = one_slice(opensearch, opensearch_index)
    peek, kind, own = Peek(PeekLimits(records=3)), get_kind("opensearch"), chosen.to_mapping()
    kind.peek(kind.service(own), own, peek, lambda coordinator: SliceSupplier(chosen, coordinator))
    assert len(peek.records) == 3
    assert list(peek.columns) == ["_origin", *RECORD_SCHEMA.names]
