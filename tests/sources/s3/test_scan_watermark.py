"""The watermark of objects in S3: everything that arrived before it is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.s3 import scan
from airflow_provider_coordination.sources.s3.listing import S3Listing
from airflow_provider_coordination.sources.s3.scan import S3Scan
from airflow_provider_coordination.sources.watermarks import Watermark, watermark_of
from tests.sources.s3.scans import PATH, Bucket, Scans, found, names_in

OTHER = "s3://other/in/"
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


class TimedScans(Scans):
    """A source whose bucket shows the time, and whose objects arrive a second after they were modified."""

    def __init__(self, *names: str, **settings: Any) -> None:
        super().__init__(Bucket(page_objects=2), **settings)
        self.bucket.clock = self.clock
        self.arrivals: dict[str, datetime] = {}
        self.upload(*names)

    def upload(self, *names: str) -> None:
        for name in names:
            self.bucket.put(found(name, modified=self.clock.now() - timedelta(seconds=1)))
            self.arrivals[name] = self.clock.now()

    def scan(self) -> datetime:
        """Scan once; return when that began."""
        self.clock.advance(60)
        began = self.clock.now()
        self.run()
        return began

    def deliver(self, *names: str) -> list[str]:
        """Complete the partitions that hold one of these objects, or all; return the names of their objects."""
        worker, delivered = self.worker("job"), []
        for partition in worker.leases.acquire(1000):
            held = names_in(partition)
            if not names or set(names) & set(held):
                progress = {**partition.progress, "checkpoint": str(len(held)), "is_ended": True}
                worker.leases.complete(partition.partition_key, progress)
                delivered += held
        worker.leases.give_up_all()
        return delivered

    @property
    def watermark(self) -> Watermark:
        watermark = watermark_of(self.worker().view)
        assert watermark is not None
        return watermark


def test_last_finished_scan_is_the_watermark_once_all_is_delivered() -> None:
    scans = TimedScans("a")
    began = scans.scan()
    scans.deliver()
    watermark = scans.watermark
    assert watermark.until == began
    assert str(watermark).endswith("held by the next scan: it finds what arrived later")
    assert scans.scan() == scans.watermark.until


def test_undelivered_object_holds_the_watermark() -> None:
    scans = TimedScans("a")
    scans.scan()
    scans.upload("b")
    modified = scans.clock.now() - timedelta(seconds=1)
    scans.scan()
    scans.deliver("a")
    watermark = scans.watermark
    assert watermark.until == modified
    assert watermark.held_by[0].reason == "no job reads it"


def test_parked_partition_of_objects_is_named() -> None:
    scans = TimedScans("a")
    scans.scan()
    worker = scans.worker()
    [partition] = worker.view.partitions()
    Administration(worker.store, worker.view.source_identifier).park(partition.partition_key)
    parked = scans.watermark.parked_before(scans.clock.now())
    assert parked is not None and parked.name == partition.partition_key


def test_unread_item_of_a_partition_holds_the_watermark() -> None:
    scans = TimedScans("a", "b")
    scans.clock.advance(60)
    scans.upload("c")
    scans.scan()
    worker = scans.worker()
    partition = next(p for p in worker.leases.acquire(10) if "c" in names_in(p))
    failed = [{"item": names_in(partition).index("a"), "reason": "damaged"}]
    worker.leases.save_progress(partition.partition_key, {**partition.progress, "checkpoint": "3", "failed": failed})
    assert scans.watermark.until == scans.arrivals["a"] - timedelta(seconds=1)


def test_interrupted_scan_continues_as_of_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "GATHERED_SECONDS", 0.0)  # a page of objects waits for no other
    scans = TimedScans("a", "b", "c", "d")
    scans.bucket.before_page = lambda number: number and 1 / 0
    with pytest.raises(ZeroDivisionError):
        scans.scan()
    assert scans.watermark.until is None
    began = scans.clock.now()
    scans.bucket.before_page = lambda number: None
    scans.scan()
    scans.deliver()
    assert scans.watermark.until == began


@pytest.mark.parametrize("has_clock", [True, False])
def test_watermark_is_the_earliest_of_the_paths(has_clock: bool) -> None:
    scans = TimedScans("a")
    scans.settings.paths = (PATH, OTHER)
    other = Bucket()
    other.as_of = scans.clock.now() - timedelta(hours=1) if has_clock else None
    worker = scans.worker()
    worker.supply(S3Scan(scans.settings, worker, list_path=lambda path: scans.bucket if path == PATH else other))
    scans.deliver()
    assert scans.watermark.until == other.as_of


def test_source_that_was_never_scanned_has_no_watermark_yet() -> None:
    scans = TimedScans()
    progress = PartitionProgress(kind="s3", items=(found("a").to_item(),)).to_mapping()
    scans.worker().create_partitions({"by hand": progress})
    watermark = scans.watermark
    assert watermark.until is None and "nothing was scanned" in str(watermark)


def test_scan_during_the_reading_moves_no_watermark_too_far(monkeypatch: pytest.MonkeyPatch) -> None:
    scans, read_state = TimedScans("a"), SourceView.supplier_state
    scans.scan()
    scans.deliver()

    def scans_first(view: SourceView) -> Mapping[str, Any]:
        monkeypatch.undo()
        scans.upload("b")
        scans.scan()
        return read_state(view)

    monkeypatch.setattr(SourceView, "supplier_state", scans_first)
    until = scans.watermark.until
    assert until is not None and until <= scans.arrivals["b"]


class DatedPages:
    """An S3 client whose two pages are dated a second apart."""

    def list_objects_v2(self, **request: Any) -> dict[str, Any]:
        is_first = "ContinuationToken" not in request
        date = f"Mon, 05 Jan 2026 12:00:0{int(not is_first)} GMT"
        return {
            "Contents": [{"Key": f"in/{is_first}", "Size": 1, "ETag": '"1"', "LastModified": NOON}],
            "IsTruncated": is_first,
            "NextContinuationToken": "2",
            "ResponseMetadata": {"HTTPHeaders": {"date": date}},
        }


def test_listing_is_as_of_its_first_request() -> None:
    listing = S3Listing(DatedPages(), PATH)
    as_of = [listing.as_of for _ in listing.pages()]
    assert len(as_of) == 2 and as_of[0] == as_of[1]
    assert listing.as_of is not None and NOON - timedelta(minutes=1) < listing.as_of <= NOON


STEPS = st.one_of(
    st.tuples(st.just("upload"), st.sampled_from("abcdefgh")),
    st.tuples(st.just("deliver"), st.sampled_from("abcdefgh")),
    st.tuples(st.just("scan"), st.sampled_from(["", *"abcdefgh"])),
    st.tuples(st.just("fail"), st.just("")),
)


@given(st.lists(STEPS, max_size=25))
def test_watermark_never_overtakes_an_object(steps: list[tuple[str, str]]) -> None:
    scans, versions = TimedScans(max_objects=2), 0
    delivered: set[str] = set()
    for step, name in steps:
        scans.clock.advance(7)
        if step == "upload":
            versions += 1
            scans.upload(f"{name}{versions}")
        elif step == "deliver":
            names = [each for each in scans.arrivals if each.startswith(name)]
            delivered.update(scans.deliver(*names) if names else ())
        elif step == "fail":
            scans.bucket.before_page = lambda number: number and 1 / 0
            with suppress(ZeroDivisionError):
                scans.scan()
        else:
            # An object arrives while the listing is under way, before or after where it is.
            scans.bucket.before_page = lambda number, name=name: name and scans.upload(f"{name}x{number}")
            scans.scan()
        scans.bucket.before_page = lambda number: None
        watermark = watermark_of(scans.worker().view)
        if watermark is not None and watermark.until is not None:
            early = {each for each, at in scans.arrivals.items() if at < watermark.until}
            assert early <= delivered, watermark
