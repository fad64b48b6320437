"""Objects are forgotten by age, and none is taken a second time."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.s3 import scan
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.scan import S3Scan
from tests.coordination.stepped_store import ProcessKilled, SteppedStore, killed
from tests.sources.s3.scans import PATH, Bucket, Scans, found, names_in

DAY = 24 * 3600.0
HOUR = 3600.0


def claimed(scans: Scans) -> int:
    return len(scans.store.query(scans.worker().view.family("CLAIM"), PartitionStatus.COMPLETED, limit=100))


def upload(scans: Scans, *names: str) -> None:
    scans.bucket.put(*(found(name, modified=scans.clock.now()) for name in names))


def delivered(scans: Scans) -> list[str]:
    return sorted(name for partition in scans.partitions() for name in names_in(partition))


@pytest.fixture
def scans() -> Scans:
    """A source that remembers objects for a day, with two that were found two days ago, and one from this hour."""
    scans = Scans(Bucket(), forget_after=timedelta(seconds=DAY))
    upload(scans, "a", "b")
    assert scans.run() == [["a", "b"]]
    scans.clock.advance(2 * DAY)
    upload(scans, "c")
    return scans


def test_old_objects_are_forgotten_and_not_found_again(scans: Scans) -> None:
    assert claimed(scans) == 2
    assert scans.run() == [["c"]]
    assert claimed(scans) == 1
    assert scans.run() == []
    scans.clock.advance(DAY + 2 * HOUR)
    assert scans.run() == [] and claimed(scans) == 0 and scans.run() == []


def test_object_uploaded_between_scans_is_found_at_any_age(scans: Scans) -> None:
    scans.clock.advance(10 * DAY)
    assert scans.run() == [["c"]]


def test_forgotten_objects_stay_unfound_without_the_setting(scans: Scans) -> None:
    scans.run()
    scans.settings = S3Objects(paths=(PATH,))
    assert scans.run() == []


def test_claim_slightly_older_than_its_object_is_kept(scans: Scans) -> None:
    scans.clock.advance(-2 * DAY + DAY + HOUR)
    scans.run()
    assert claimed(scans) == 3


def test_incomplete_scan_forgets_nothing(scans: Scans) -> None:
    def denied(page: int) -> None:
        raise ConfigurationError("access denied")

    scans.bucket.before_page = denied
    with pytest.raises(ConfigurationError, match="access denied"):
        scans.run()
    assert claimed(scans) == 2


def test_scan_forgets_a_limited_number(scans: Scans, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "FORGOTTEN_AT_ONCE", 1)
    scans.run()
    assert claimed(scans) == 2
    scans.run()
    assert claimed(scans) == 1 and delivered(scans) == ["a", "b", "c"]


@pytest.mark.parametrize("at", range(30))
def test_killed_scan_finds_each_object_once(at: int, scans: Scans) -> None:
    worker = scans.worker("killed", SteppedStore(scans.store, at=at, before=killed))
    try:
        scans.run(worker)
    except ProcessKilled:
        scans.lease_passes()
    scans.run()
    scans.run()
    assert delivered(scans) == ["a", "b", "c"] and claimed(scans) == 1


@pytest.mark.parametrize("at", range(30))
def test_source_sharing_claims_selects_no_forgotten_objects(at: int, scans: Scans) -> None:
    other = scans.worker()
    other = type(other)(
        SteppedStore(scans.store, at=at, before=scans.run), "interval", "b", prefix="test", clock=scans.clock
    )
    other.initialize()
    try:
        other.share_claims("objects")
        created = other.supply(S3Scan(S3Objects(paths=(PATH,)), other, list_path=lambda path: scans.bucket))
    except ConfigurationError:  # it was to share what it has by now
        created = []
    scans.run()
    taken = [name for key in created or () for name in names_in(other.view.get(key))]
    assert sorted([*delivered(scans), *taken]) == ["a", "b", "c"]


def test_interval_beginning_in_the_forgotten_time_is_refused(scans: Scans) -> None:
    scans.run()
    now = scans.clock.now()
    scans.settings = S3Objects(paths=(PATH,), start_time=now - timedelta(days=5), end_time=now)
    with pytest.raises(ConfigurationError, match="are forgotten, and may have been delivered; start the interval then"):
        scans.run()
    scans.settings = S3Objects(paths=(PATH,), start_time=now - timedelta(hours=20), end_time=now)
    assert scans.run() == []
