"""A scan finds each object once, also one that is uploaded again."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.items import PartitionProgress, SourceUnavailableError
from airflow_provider_coordination.sources.s3 import scan
from airflow_provider_coordination.sources.s3.listing import PAGE_OBJECTS, PAGES_AHEAD, S3Listing
from airflow_provider_coordination.sources.s3.objects import ListedObject
from airflow_provider_coordination.sources.s3.scan import GATHERED_OBJECTS, S3Scan
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.stepped_store import ProcessKilled, SteppedStore, killed
from tests.sources.s3.scans import MODIFIED, PATH, Bucket, Scans, flat, found, later, names_in


@pytest.fixture
def unbounded_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans wait for no further page before they create partitions. Pages come from a thread, faster or slower."""
    monkeypatch.setattr(scan, "GATHERED_SECONDS", 0.0)


def test_objects_become_partitions_of_items(caplog: pytest.LogCaptureFixture) -> None:
    scans = Scans(Bucket("a", "b"))
    assert scans.run() == [["a", "b"]]
    [partition] = scans.partitions()
    assert partition.partition_key.startswith("s3://bucket/in/a+1@")
    progress = PartitionProgress.from_mapping(partition.progress)
    assert progress.kind == "s3"
    assert progress.items[0] == {
        "uri": "s3://bucket/in/a",
        "size": 10,
        "version": '"1"',
        "modified": "2025-12-31T12:00:00.000000Z",
    }


def test_known_objects_are_not_found_again() -> None:
    scans = Scans(Bucket("a", "b"))
    scans.run()
    assert scans.run() == []
    scans.bucket.put(found("c"))
    assert scans.run() == [["c"]]


def test_object_uploaded_again_is_found_again() -> None:
    scans = Scans(Bucket("a", "b"))
    scans.run()
    scans.bucket.put(found("b", version='"2"', modified=later(60)))
    assert scans.run() == [["b"]]


def test_object_is_found_at_any_reported_age() -> None:
    """There what is older than the last scan is passed over, such as an upload in parts that began before it."""
    scans = Scans(Bucket("a"))
    scans.run()
    scans.clock.advance(3600)
    scans.bucket.put(found("b", modified=later(-86400)))
    assert scans.run() == [["b"]]


def test_overlapping_paths_give_each_object_once() -> None:
    scans = Scans(Bucket("a", "b"))
    scans.settings = replace(scans.settings, paths=(PATH, f"{PATH}a"))
    assert flat(scans.run()) == ["a", "b"]


def test_listing_pages_make_few_partitions_of_new_objects() -> None:
    scans = Scans(Bucket(*(f"{n:03}" for n in range(100)), page_objects=10), max_objects=50)
    assert [len(packed) for packed in scans.run()] == [50, 50]
    scans.bucket.put(*(found(f"{n:03}+") for n in range(0, 100, 20)))
    assert len(scans.run()) == 1


def test_jobs_can_begin_during_a_long_listing() -> None:
    scans = Scans(Bucket(*"abcdef", page_objects=1))
    waiting = []

    def passes(number: int) -> None:
        scans.clock.advance(11)
        waiting.append(len(scans.partitions()))

    scans.bucket.before_page = passes
    packed = scans.run()
    assert (flat(packed), len(packed) > 1) == ([*"abcdef"], True)
    assert waiting[-1] >= 1


class EndlessListing:
    """A client of S3 whose listings return a number of objects.

    :param most_kept: how many found objects there were in this process at most, whenever a page was asked for.
    """

    def __init__(self, objects: int) -> None:
        self._objects = objects
        self.most_kept = 0

    def list_objects_v2(self, **request: Any) -> Mapping[str, Any]:
        self.most_kept = max(self.most_kept, sum(type(each) is ListedObject for each in gc.get_objects()))
        start = int(request.get("ContinuationToken", 0))
        stop = min(start + 1000, self._objects)
        return {
            "Contents": [
                {"Key": f"in/{n:09}.json", "Size": 100, "ETag": f'"{n:032x}"', "LastModified": MODIFIED}
                for n in range(start, stop)
            ],
            "IsTruncated": stop < self._objects,
            "NextContinuationToken": str(stop),
        }


@pytest.mark.integration
def test_scan_keeps_only_a_few_pages_in_memory() -> None:
    client = EndlessListing(10_000)
    scans = Scans(Bucket())
    worker = scans.worker()
    created = worker.supply(S3Scan(scans.settings, worker, list_path=lambda path: S3Listing(client, path)))
    assert len({name for key in created or [] for name in names_in(worker.view.get(key))}) == 10_000
    # Beside what is packed: in hand, the next ones, and last.
    assert client.most_kept <= GATHERED_OBJECTS + (PAGES_AHEAD + 2) * PAGE_OBJECTS


# What is taken


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({}, ["2026/b.json", "2026/raw/a.csv", "2026/raw/b.csv.tmp", "dt=_x/c.csv", "top.csv"]),
        ({"include": ("*.csv",)}, ["2026/raw/a.csv", "dt=_x/c.csv", "top.csv"]),
        ({"include": ("2026/**",), "exclude": ("*.json",)}, ["2026/raw/a.csv", "2026/raw/b.csv.tmp"]),
        ({"exclude_suffixes": (".tmp", ".json")}, ["2026/raw/a.csv", "dt=_x/c.csv", "top.csv"]),
        (
            {"hidden": True, "include": ("*.csv", "_SUCCESS")},
            [".hidden/x.csv", "2026/_SUCCESS", "2026/raw/a.csv", "_tmp/x.csv", "dt=_x/c.csv", "top.csv"],
        ),
        (
            {"wait_for": "b.json", "exclude": ("*.tmp",)},
            ["2026/raw/a.csv", "dt=_x/c.csv", "top.csv"],
        ),
    ],
)
def test_globs_suffixes_and_hidden_files_filter_objects(settings: dict[str, Any], taken: list[str]) -> None:
    names = ["2026/_SUCCESS", "2026/raw/a.csv", "2026/raw/b.csv.tmp", "2026/b.json", "_tmp/x.csv", ".hidden/x.csv"]
    assert sorted(flat(Scans(Bucket(*names, "dt=_x/c.csv", "top.csv"), **settings).run())) == taken


def test_adjacent_windows_neither_overlap_nor_skip() -> None:
    bucket = Bucket()
    bucket.put(*(found(f"{n}", modified=later(n)) for n in range(6)))
    first, second = (
        Scans(bucket, start_time=later(start), end_time=later(end)).run() for start, end in ((0, 3), (3, 6))
    )
    assert (flat(first), flat(second)) == (["0", "1", "2"], ["3", "4", "5"])


def test_window_excludes_its_end_to_the_microsecond() -> None:
    bucket = Bucket("a")
    assert Scans(bucket, end_time=MODIFIED).run() == []
    assert Scans(bucket, end_time=MODIFIED + timedelta(microseconds=1)).run() == [["a"]]


def test_window_is_done_after_a_whole_scan_past_its_end() -> None:
    scans = Scans(Bucket(), end_time=later(86400))
    worker = scans.worker()

    def is_done(**settings: Any) -> bool:
        return S3Scan(replace(scans.settings, **settings), worker).is_done(worker.view.supplier_state())

    assert not is_done()
    scans.clock.advance((later(86400) - scans.clock.now()).total_seconds() - 1)
    scans.run()
    assert not is_done(), "it began before the end"
    scans.clock.advance(1)
    scans.run()
    assert is_done()
    assert not is_done(end_time=None) and not is_done(end_time=later(90000))
    assert not is_done(delete_on_success=True), "a scan also finishes deletions"
    scans.bucket.put(*(found(f"{n}") for n in range(GATHERED_OBJECTS + 1)))
    cut_off = S3Scan(scans.settings, worker, list_path=lambda path: scans.bucket)(worker.view.supplier_state())
    state = next(iter(cut_off)).state
    assert state is not None
    assert not S3Scan(scans.settings, worker).is_done(state)


def test_range_counts_from_the_start_of_each_scan() -> None:
    """There it is from the start of the process, so that a range of an hour grows day by day."""
    bucket = Bucket()
    scans = Scans(bucket, range=timedelta(minutes=1))
    now = scans.clock.now()
    bucket.put(found("old", modified=now - timedelta(seconds=61)), found("a", modified=now - timedelta(seconds=60)))
    assert scans.run() == [["a"]]
    scans.clock.advance(60)
    bucket.put(found("b", modified=now), found("late", modified=now - timedelta(seconds=1)))
    assert scans.run() == [["b"]]


# How it is packed


def test_folders_share_no_partition_on_request() -> None:
    names = ["a/1", "a/x/2", "b/3", "top", "b/y/z/4"]
    assert Scans(Bucket(*names), folder_depth=1).run() == [["a/1", "a/x/2"], ["b/3", "b/y/z/4"], ["top"]]
    assert Scans(Bucket(*names), folder_depth=2).run() == [["a/1"], ["a/x/2"], ["b/3"], ["b/y/z/4"], ["top"]]


def test_waiting_objects_share_partitions_only_within_folders() -> None:
    scans = Scans(Bucket("a/1", "a/2", "a/x/3"), wait_for="_SUCCESS")
    assert scans.run() == [["a/1", "a/2"], ["a/x/3"]]


def test_partitions_respect_their_maximum_size() -> None:
    bucket = Bucket()
    bucket.put(*(found(f"{n}", size=40) for n in range(5)), found("large", size=500))
    sizes = sorted(sum(int(i["size"]) for i in p.progress["items"]) for p in _run(Scans(bucket, max_bytes=100)))
    assert sizes == [40, 80, 80, 500]


def _run(scans: Scans) -> list[Any]:
    scans.run()
    return scans.partitions()


# When it scans


def test_scan_waits_for_its_interval() -> None:
    scans = Scans(Bucket("a"), interval=timedelta(minutes=1))
    assert scans.run() == [["a"]]
    scans.bucket.put(found("b"))
    scans.clock.advance(59)
    assert scans.run() == []
    scans.clock.advance(1)
    assert scans.run() == [["b"]]


def test_scan_count_is_limited() -> None:
    scans = Scans(Bucket("a"), count=2)
    scans.run()
    scans.bucket.put(found("b"))
    assert scans.run() == [["b"]]
    scans.bucket.put(found("c"))
    assert scans.run() == []


def test_empty_scan_counts() -> None:
    scans = Scans(Bucket(), count=1)
    scans.run()
    scans.bucket.put(found("a"))
    assert scans.run() == []


# Crashes


@pytest.mark.usefixtures("unbounded_scans")
def test_interrupted_scan_resumes() -> None:
    scans = Scans(Bucket(*(f"{n:02}" for n in range(30)), page_objects=10), count=1)

    def fails(number: int) -> None:
        if number == 2:
            raise SourceUnavailableError("no answer")

    scans.bucket.before_page = fails
    with pytest.raises(SourceUnavailableError, match="no answer"):
        scans.run()
    assert len(scans.partitions()) == 2
    scans.bucket.before_page = lambda number: None
    assert flat(scans.run()) == [f"{n:02}" for n in range(20, 30)]
    assert scans.bucket.began_after == ["", f"{PATH}19"]
    assert scans.run() == []  # it was one scan


@pytest.mark.parametrize(
    "change", [{"paths": ("s3://bucket/other/",)}, {"paths": (PATH,), "after_seconds": 6 * 3600}], ids=str
)
def test_unfinished_scan_is_forgotten_by_age_or_path(change: dict[str, Any]) -> None:
    scans = Scans(Bucket("a", "b", page_objects=1))

    def fails(number: int) -> None:
        scans.clock.advance(11)
        if number == 1:
            raise SourceUnavailableError("no answer")

    scans.bucket.before_page = fails
    with pytest.raises(SourceUnavailableError):
        scans.run()
    scans.bucket.before_page = lambda number: None
    scans.clock.advance(change.get("after_seconds", 0))
    scans.settings = replace(scans.settings, paths=change["paths"])
    scans.run()
    assert scans.bucket.began_after == ["", ""]


def test_wrong_path_does_not_block_scanning_of_others() -> None:
    scans = Scans(Bucket("a", page_objects=1), count=1)
    scans.settings = replace(scans.settings, paths=("s3://wrong/", PATH))

    def list_path(path: str) -> Bucket:
        if path == PATH or right:
            return scans.bucket
        raise ConfigurationError("s3://wrong/: its bucket does not exist")

    right = False
    worker = scans.worker()
    for name in ("b", "0"):
        with pytest.raises(ConfigurationError, match="its bucket does not exist"):
            worker.supply(S3Scan(scans.settings, worker, list_path=list_path))
        scans.bucket.put(found(name))
    assert sorted(flat([names_in(p) for p in scans.partitions()])) == ["a", "b"]
    right = True
    assert len(worker.supply(S3Scan(scans.settings, worker, list_path=list_path)) or []) == 1
    assert worker.supply(S3Scan(scans.settings, worker, list_path=list_path)) == []


SMALL = 4
"""So few items in a transaction leave room for one partition with its claims."""


@pytest.mark.usefixtures("unbounded_scans")
@pytest.mark.parametrize(("items", "at"), [*((SMALL, at) for at in range(2, 24, 3)), (1000, 8), (1000, 11)])
def test_killed_scan_neither_loses_nor_repeats_objects(items: int, at: int) -> None:
    names = [f"{n:02}" for n in range(12)]
    store = InMemoryStore()
    store.transaction_items = items
    scans = Scans(Bucket(*names, page_objects=4), store, max_objects=2)
    with pytest.raises(ProcessKilled):
        scans.run(scans.worker("killed", SteppedStore(scans.store, at=at, before=killed)))
    scans.lease_passes()
    scans.run()
    assert sorted(name for p in scans.partitions() for name in names_in(p)) == names


@pytest.mark.usefixtures("unbounded_scans")
@pytest.mark.parametrize("at", range(3, 21, 3))  # from where it has looked for a suspension, and for the lease
def test_overlapping_scans_find_each_object_once(at: int) -> None:
    names = [f"{n:02}" for n in range(12)]
    scans = Scans(Bucket(*names, page_objects=4), max_objects=3)

    def overtaken() -> None:
        scans.lease_passes()
        scans.bucket.put(found("00+"))
        scans.run(scans.worker("b"))

    scans.run(scans.worker("a", SteppedStore(scans.store, at=at, before=overtaken)))
    scans.lease_passes()
    scans.run(scans.worker("c"))
    assert sorted(name for p in scans.partitions() for name in names_in(p)) == sorted([*names, "00+"])


def test_unreadable_scan_state_is_refused() -> None:
    scans = Scans(Bucket("a"))
    worker = scans.worker()
    worker.supply(lambda state: [])
    [item] = scans.store.query(worker.view.family("GLOBAL_STATE"), PartitionStatus.UNASSIGNED)
    scans.store.transact(update=[item.with_progress({"scan_count": 1})])
    with pytest.raises(ConfigurationError, match="state of the scan: unknown field 'scan_count'"):
        scans.run()
