"""Scans of a real S3 server find each object once, and report errors."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.items import SourceUnavailableError
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.listing import S3Listing, listing_of
from airflow_provider_coordination.sources.s3.objects import (
    BucketNotFoundError,
    DeletionError,
    ListedObject,
    ObjectAccessDeniedError,
    delete_delivered,
)
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.sources.s3.scan import S3Scan
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.s3_server import DENIED, OPEN_BUCKET, S3Server


@pytest.fixture
def put(s3: S3Server, s3_bucket: str) -> Callable[..., None]:
    client = s3.client()

    def put(*keys: str, body: bytes = b"content") -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: client.put_object(Bucket=s3_bucket, Key=key, Body=body), keys))

    return put


@pytest.fixture
def settings(s3: S3Server, s3_bucket: str) -> S3Objects:
    return S3Objects(paths=(f"s3://{s3_bucket}/in/",), aws=s3.settings)


@pytest.fixture
def worker() -> SourceCoordinator:
    made = SourceCoordinator(InMemoryStore(), "objects", "a")
    made.initialize()
    return made


def scan(worker: SourceCoordinator, settings: S3Objects) -> list[list[str]]:
    """Scan once; return the keys of the objects in each partition that was created."""
    created = worker.supply(S3Scan(settings, worker))
    assert created is not None
    packs = []
    for key in created:
        partition = worker.view.get(key)
        assert partition is not None
        packs.append([item["uri"].partition("/in/")[2] for item in partition.progress["items"]])
    return sorted(packs)


def test_listing_is_as_of_the_clock_of_the_server(put: Callable[..., None], settings: S3Objects) -> None:
    put("in/a")
    listing, began = listing_of(settings.paths[0], settings.aws), datetime.now(UTC)
    [page] = listing.pages()
    assert listing.as_of is not None
    # The header has whole seconds; the instant precedes the request.
    assert began - timedelta(seconds=2) <= listing.as_of <= datetime.now(UTC)
    assert page.found[0].modified <= datetime.now(UTC)


def listed(settings: S3Objects, s3: S3Server) -> list[ListedObject]:
    listing = S3Listing(s3.client(), settings.paths[0])
    return [each for page in listing.pages() for each in page.found]


def items(found: list[ListedObject]) -> list[dict[str, Any]]:
    return [each.to_item() for each in found]


KEYS = ["in/a b/ü+%41 & <x>.csv", "in/plain", "in/quote\"'.csv"]


def test_objects_with_any_name_are_found(
    worker: SourceCoordinator, settings: S3Objects, put: Callable[..., None], s3: S3Server
) -> None:
    put(*KEYS, "in/folder/", "inside", "other/x")
    [packed] = scan(worker, settings)
    assert sorted(packed) == sorted(key.removeprefix("in/") for key in KEYS)
    assert scan(worker, settings) == []
    [each] = [each for each in listed(settings, s3) if each.uri.endswith("/plain")]
    assert each.size == 7 and each.version == '"9a0364b9e99bb480dd25e1f0284c8555"'
    assert abs((each.modified - datetime.now(UTC)).total_seconds()) < 300


def test_object_uploaded_again_is_found_again(
    worker: SourceCoordinator, settings: S3Objects, put: Callable[..., None]
) -> None:
    put("in/a", "in/b")
    scan(worker, settings)
    put("in/b", body=b"other content")
    assert scan(worker, settings) == [["b"]]


def test_large_bucket_is_listed_whole_from_any_start(
    settings: S3Objects, put: Callable[..., None], s3: S3Server
) -> None:
    put(*(f"in/{n:04}" for n in range(1003)), body=b"")
    pages = list(S3Listing(s3.client(), settings.paths[0]).pages())
    assert [len(page.found) for page in pages] == [1000, 3]
    assert pages[0].after == "in/0999"
    rest = list(S3Listing(s3.client(), settings.paths[0]).pages("in/1000"))
    assert [each.uri[-4:] for page in rest for each in page.found] == ["1001", "1002"]


def test_missing_bucket_is_named(worker: SourceCoordinator, settings: S3Objects) -> None:
    wrong = replace(settings, paths=("s3://nowhere-at-all/in/",))
    with pytest.raises(BucketNotFoundError, match="s3://nowhere-at-all/in/: cannot list: its bucket does not exist"):
        scan(worker, wrong)


def test_bucket_without_access_is_named_with_the_missing_permission(
    worker: SourceCoordinator, settings: S3Objects, s3: S3Server, s3_bucket: str
) -> None:
    denied = replace(settings, aws=s3.settings_of(*DENIED))
    with pytest.raises(ObjectAccessDeniedError, match=rf"s3://{s3_bucket}/in/: .*allow s3:ListBucket on it"):
        scan(worker, denied)
    unknown = replace(settings, aws=s3.settings_of("nobody", "at-all"))
    with pytest.raises(ObjectAccessDeniedError, match="check the credentials"):
        scan(worker, unknown)


def test_unresponsive_server_is_a_temporary_error(worker: SourceCoordinator, settings: S3Objects) -> None:
    away = replace(settings, aws=replace(settings.aws, endpoint_url="http://127.0.0.1:1", max_attempts=1))
    with pytest.raises(SourceUnavailableError, match="cannot list: no valid response"):
        scan(worker, away)


def test_wrong_path_delays_other_paths_to_the_next_scan(
    worker: SourceCoordinator, settings: S3Objects, put: Callable[..., None]
) -> None:
    put("in/a")
    both = replace(settings, paths=(*settings.paths, "s3://nowhere-at-all/in/"))
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="nowhere-at-all"):
            scan(worker, both)
    assert len(list(worker.view.partitions())) == 1


def test_objects_wait_for_a_marker_in_their_folder(settings: S3Objects, put: Callable[..., None], s3: S3Server) -> None:
    put("in/day/a")
    waiting = replace(settings, wait_for="_SUCCESS")
    found = items(listed(settings, s3))
    wait = ObjectReader(waiting).waits_for(found)
    assert wait is not None and wait.reason.endswith("/in/day/_SUCCESS does not exist yet")
    put("in/day/_SUCCESS")
    assert ObjectReader(waiting).waits_for(found) is None
    with pytest.raises(ObjectAccessDeniedError, match="allow s3:GetObject and s3:ListBucket"):
        ObjectReader(replace(waiting, aws=s3.settings_of(*DENIED))).waits_for(found)


def test_delivered_objects_are_deleted_but_unread_ones_stay(
    settings: S3Objects, put: Callable[..., None], s3: S3Server
) -> None:
    put("in/a", "in/again", "in/gone", "in/earlier")
    found = listed(settings, s3)
    put("in/again", body=b"uploaded again")
    s3.client().delete_object(Bucket=settings.paths[0].split("/")[2], Key="in/gone")
    # The same content, at another time: it was not this one that was read.
    found = [replace(f, modified=f.modified.replace(year=2020)) if f.uri.endswith("earlier") else f for f in found]
    ObjectReader(replace(settings, delete_on_success=True)).delivered(items(found))
    assert [each.uri.rpartition("/")[2] for each in listed(settings, s3)] == ["again", "earlier"]


def test_object_uploaded_during_its_deletion_stays(settings: S3Objects, put: Callable[..., None], s3: S3Server) -> None:
    put("in/a")
    found = listed(settings, s3)
    client = s3.client()
    client.meta.events.register("before-call.s3.DeleteObject", lambda **_: put("in/a", body=b"uploaded again"))
    delete_delivered(items(found), lambda: client)
    assert [each.version for each in listed(settings, s3)] != [found[0].version]


def test_scan_continues_without_permission_to_delete(
    worker: SourceCoordinator, s3: S3Server, caplog: pytest.LogCaptureFixture
) -> None:
    client = s3.client()
    client.put_object(Bucket=OPEN_BUCKET, Key="delete/a", Body=b"1")
    settings = S3Objects(paths=(f"s3://{OPEN_BUCKET}/delete/",), aws=s3.settings_of(*DENIED), delete_on_success=True)
    scan(worker, settings)
    [partition] = worker.leases.acquire(1)
    worker.leases.complete(partition.partition_key, {**partition.progress, "is_ended": True})
    with pytest.raises(DeletionError, match=r"1 of 1 delivered objects .* allow s3:GetObject and s3:DeleteObject"):
        ObjectReader(settings).delivered(partition.progress["items"])
    client.put_object(Bucket=OPEN_BUCKET, Key="delete/b", Body=b"2")
    assert len(scan(worker, settings)) == 1
    assert "delivered objects could not be deleted" in caplog.text
    scan(worker, replace(settings, aws=s3.settings))
    left = client.list_objects_v2(Bucket=OPEN_BUCKET, Prefix="delete/")["Contents"]
    assert [each["Key"] for each in left] == ["delete/b"]
    assert worker.view.get(partition.partition_key) is None


def test_undeletable_object_does_not_stop_other_deletions(
    worker: SourceCoordinator, settings: S3Objects, put: Callable[..., None], s3: S3Server
) -> None:
    put("in/a", "in/b")
    settings = replace(settings, delete_on_success=True, max_objects=1)
    scan(worker, settings)
    first, second = worker.leases.acquire(2)
    [item] = first.progress["items"]
    elsewhere = {**first.progress, "items": [{**item, "uri": "hdfs://nowhere:1/a"}], "is_ended": True}
    worker.leases.complete(first.partition_key, elsewhere)
    worker.leases.complete(second.partition_key, {**second.progress, "is_ended": True})
    scan(worker, settings)
    assert worker.view.get(first.partition_key) is not None
    assert worker.view.get(second.partition_key) is None
    assert len(listed(settings, s3)) == 1
