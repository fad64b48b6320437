"""Files of a local folder are listed, waited for and deleted like objects."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.listing import PAGES_AHEAD, FilesystemListing, ListedPage, ahead
from airflow_provider_coordination.sources.s3.objects import BucketNotFoundError, ListedObject
from airflow_provider_coordination.sources.s3.reader import ObjectReader
from airflow_provider_coordination.sources.s3.scan import S3Scan
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_SECONDS


def files(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")


def listed(path: Path | str) -> list[ListedObject]:
    return [each for page in FilesystemListing(str(path)).pages() for each in page.found]


def coordinator() -> SourceCoordinator:
    made = SourceCoordinator(InMemoryStore(), "files", "a", clock=ManualClock())
    made.initialize()
    return made


def finished(worker: SourceCoordinator, key: str, **changes: object) -> Partition:
    """Deliver a partition without reading it."""
    [partition] = [p for p in worker.leases.acquire(100) if p.partition_key == key]
    worker.leases.complete(key, {**partition.progress, "is_ended": True, **changes})
    found = worker.view.get(key)
    assert found is not None
    return found


def items(found: list[ListedObject]) -> list[dict[str, object]]:
    return [each.to_item() for each in found]


# Listing


def test_files_are_listed_in_order_by_folder(tmp_path: Path) -> None:
    files(tmp_path, "b.csv", "a.csv", "z/y/c.csv", "z/a.csv")
    (tmp_path / "empty").mkdir()
    found = listed(tmp_path)
    assert [each.uri.removeprefix(f"{tmp_path}/") for each in found] == ["a.csv", "b.csv", "z/a.csv", "z/y/c.csv"]
    assert found[0].size == len("content of a.csv")
    assert abs(found[0].modified - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.parametrize("name", ["with space+%41.csv", "ümläut.csv", "#hash?x.csv"])
def test_file_name_is_taken_literally(tmp_path: Path, name: str) -> None:
    files(tmp_path, name)
    for path in (str(tmp_path), f"file://{tmp_path}", str(tmp_path / name)):
        assert [each.uri for each in listed(path)] == [f"{tmp_path}/{name}"]


def test_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(BucketNotFoundError, match=rf"{tmp_path}/nowhere does not exist; check 'paths'"):
        listed(tmp_path / "nowhere")


def test_unreachable_filesystem_is_a_settings_error() -> None:
    with pytest.raises(ConfigurationError, match="'paths': 'ftp://host/in' cannot be reached"):
        FilesystemListing("ftp://host/in")


def test_folder_removed_during_listing_is_skipped(tmp_path: Path) -> None:
    files(tmp_path, "a.csv", "gone/b.csv", "stays/c.csv")
    pages = FilesystemListing(str(tmp_path)).pages()
    next(pages)
    (tmp_path / "gone/b.csv").unlink()
    (tmp_path / "gone").rmdir()
    assert [each.uri for page in pages for each in page.found] == [f"{tmp_path}/stays/c.csv"]


def test_folder_of_many_files_gives_many_pages(tmp_path: Path) -> None:
    for number in range(1001):
        (tmp_path / f"{number:04}").touch()
    assert [len(page.found) for page in FilesystemListing(str(tmp_path)).pages()] == [1000, 1]


def test_listing_prefetches_two_pages() -> None:
    asked: list[int] = []
    fetched = threading.Event()

    def pages() -> Iterator[ListedPage]:
        for number in range(9):
            asked.append(number)
            if number == PAGES_AHEAD + 1:
                fetched.set()
            yield ListedPage([], str(number))

    reading = ahead(pages())
    next(reading)
    next(reading)
    assert fetched.wait(PATIENCE_SECONDS)
    reading.close()  # type: ignore[attr-defined]  # waits for what is being fetched
    assert asked == [0, 1, 2, 3]


def test_listing_error_is_raised_in_place_of_its_page() -> None:
    def pages() -> Iterator[ListedPage]:
        yield ListedPage([], "0")
        raise ConfigurationError("access denied")

    reading = ahead(pages())
    assert next(reading).after == "0"
    with pytest.raises(ConfigurationError, match="access denied"):
        next(reading)


def test_rewritten_file_is_found_again(tmp_path: Path) -> None:
    files(tmp_path, "a.csv", "b.csv")
    worker, settings = coordinator(), S3Objects(paths=(str(tmp_path),))
    assert len(worker.supply(S3Scan(settings, worker)) or []) == 1
    os.utime(tmp_path / "b.csv", ns=(10**18, 10**18))
    [created] = worker.supply(S3Scan(settings, worker)) or []
    assert "b.csv@" in created


# Waiting


def test_files_wait_for_an_object_in_their_folder(tmp_path: Path) -> None:
    files(tmp_path, "day/a.csv")
    conditions = ObjectReader(
        S3Objects(paths=(str(tmp_path),), wait_for="_SUCCESS", wait_delay=timedelta(minutes=1), wait_retries=3)
    )
    waiting = conditions.waits_for(items(listed(tmp_path)))
    assert waiting is not None
    assert waiting.reason == f"{tmp_path}/day/_SUCCESS does not exist yet"
    assert (waiting.retry_after, waiting.max_retries) == (timedelta(minutes=1), 3)
    files(tmp_path, "_SUCCESS")
    assert conditions.waits_for(items(listed(tmp_path / "day"))) is not None
    files(tmp_path, "day/_SUCCESS")
    assert conditions.waits_for(items(listed(tmp_path / "day"))) is None


def test_files_do_not_wait_without_a_condition(tmp_path: Path) -> None:
    files(tmp_path, "a.csv")
    assert ObjectReader(S3Objects(paths=(str(tmp_path),))).waits_for(items(listed(tmp_path))) is None


# Deleting


def test_delivered_files_are_deleted_unless_replaced(tmp_path: Path) -> None:
    files(tmp_path, "a.csv", "b.csv", "gone.csv")
    found = items(listed(tmp_path))
    (tmp_path / "b.csv").write_text("written again")
    (tmp_path / "gone.csv").unlink()
    ObjectReader(S3Objects(paths=(str(tmp_path),), delete_on_success=True)).delivered(found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.csv"]


def test_files_are_kept_by_default(tmp_path: Path) -> None:
    files(tmp_path, "a.csv")
    ObjectReader(S3Objects(paths=(str(tmp_path),))).delivered(items(listed(tmp_path)))
    assert (tmp_path / "a.csv").exists()


def test_scan_deletes_leftovers_of_a_job_and_forgets_them(tmp_path: Path) -> None:
    files(tmp_path, "a.csv")
    worker, settings = coordinator(), S3Objects(paths=(str(tmp_path),), delete_on_success=True)
    [key] = worker.supply(S3Scan(settings, worker)) or []
    [found] = listed(tmp_path)
    assert worker.supply(S3Scan(settings, worker)) == []
    assert (tmp_path / "a.csv").exists()  # it is not delivered yet
    finished(worker, key)
    assert worker.supply(S3Scan(settings, worker)) == []
    assert not (tmp_path / "a.csv").exists()
    assert worker.view.get(key) is None
    assert worker.claims.unclaimed([found.name]) == [found.name]
    files(tmp_path, "a.csv")
    assert len(worker.supply(S3Scan(settings, worker)) or []) == 1


def test_unreadable_files_are_not_deleted(tmp_path: Path) -> None:
    files(tmp_path, "a.csv", "damaged.csv")
    worker, settings = coordinator(), S3Objects(paths=(str(tmp_path),), delete_on_success=True)
    [key] = worker.supply(S3Scan(settings, worker)) or []
    finished(worker, key, failed=[{"item": 1, "reason": "damaged", "within": ""}])
    assert worker.supply(S3Scan(settings, worker)) == []
    assert [path.name for path in tmp_path.iterdir()] == ["damaged.csv"]
    assert worker.view.get(key) is None
    assert worker.supply(S3Scan(settings, worker)) == []  # it belongs to a partition of its own


def test_partitions_that_are_no_files_are_left_alone(tmp_path: Path) -> None:
    files(tmp_path, "a.csv")
    worker, settings = coordinator(), S3Objects(paths=(str(tmp_path),), delete_on_success=True)
    worker.create_partitions({"other": PartitionProgress(kind="jdbc", items=({"uri": "x"},)).to_mapping()})
    finished(worker, "other")
    worker.supply(S3Scan(settings, worker))
    assert worker.view.get("other") is not None
