"""Scans of listings that tests make up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.listing import ListedPage
from airflow_provider_coordination.sources.s3.objects import ListedObject
from airflow_provider_coordination.sources.s3.scan import S3Scan
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.clock import ManualClock

MODIFIED = datetime(2025, 12, 31, 12, tzinfo=UTC)
PATH = "s3://bucket/in/"


def found(name: str, *, size: int = 10, version: str = '"1"', modified: datetime = MODIFIED) -> ListedObject:
    """An object below `PATH`."""
    return ListedObject(uri=PATH + name, size=size, version=version, modified=modified)


class Bucket:
    """What is at `PATH`; a `Listing` of it, which shows the time if it has a clock.

    :param page_objects: how many are listed at a time.
    """

    start = base = PATH
    clock: ManualClock | None = None
    as_of: datetime | None = None

    def __init__(self, *names: str, page_objects: int = 1000) -> None:
        self.objects: dict[str, ListedObject] = {}
        self.page_objects = page_objects
        self.began_after: list[str] = []
        self.before_page: Callable[[int], object] = lambda number: None
        for name in names:
            self.put(found(name))

    def put(self, *objects: ListedObject) -> None:
        self.objects.update((each.uri, each) for each in objects)

    def pages(self, after: str = "") -> Iterator[ListedPage]:
        self.began_after.append(after)
        self.as_of = self.as_of or (self.clock and self.clock.now())
        listed = [each for uri, each in sorted(self.objects.items()) if uri > after]
        for number, start in enumerate(range(0, len(listed), self.page_objects)):
            self.before_page(number)
            page = listed[start : start + self.page_objects]
            yield ListedPage(page, page[-1].uri)


class Scans:
    """A source of a bucket, scanned by workers that share a store and a clock."""

    def __init__(self, bucket: Bucket, store: CoordinationStore | None = None, **settings: Any) -> None:
        self.bucket = bucket
        self.store = store or InMemoryStore()
        self.clock = ManualClock()
        self.settings = S3Objects(paths=(PATH,), **settings)

    def worker(self, name: str = "a", store: Any = None) -> SourceCoordinator:
        coordinator = SourceCoordinator(store or self.store, "objects", name, prefix="test", clock=self.clock)
        coordinator.initialize()
        return coordinator

    def run(self, worker: SourceCoordinator | None = None) -> list[list[str]]:
        """Scan once; return the names in each partition that was created, sorted."""
        coordinator = worker or self.worker()
        self.bucket.as_of = None
        created = coordinator.supply(S3Scan(self.settings, coordinator, list_path=lambda path: self.bucket))
        assert created is not None
        return sorted(names_in(coordinator.view.get(key)) for key in created)

    def partitions(self) -> list[Partition]:
        return list(self.worker().view.partitions())

    def lease_passes(self) -> None:
        self.clock.advance(3600)


def names_in(partition: Partition | None) -> list[str]:
    """The names of the objects in a partition, below `PATH`."""
    assert partition is not None
    return [item["uri"].removeprefix(PATH) for item in partition.progress["items"]]


def flat(packs: Sequence[Sequence[str]]) -> list[str]:
    return [name for pack in packs for name in pack]


def later(seconds: float) -> datetime:
    return MODIFIED + timedelta(seconds=seconds)
