"""The scan: finds objects that are not in a partition yet, and packs them into partitions.

It is a supplier, so one worker of the fleet runs it at a time, and jobs can read every page of partitions at once.
An object is identified by its claim, made of its URI and version, and not by its modification time. So objects that
were uploaded in parts or copied with an old time are found too, and an object that is uploaded again is found again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from airflow_provider_coordination.coordination.claims import Claims
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, format_instant
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.connections import ConnectionResolver
from airflow_provider_coordination.sources.item_kind import ItemSupplier
from airflow_provider_coordination.sources.items import PartitionProgress
from airflow_provider_coordination.sources.landed import ProgressFormatError
from airflow_provider_coordination.sources.s3.kind import S3Objects
from airflow_provider_coordination.sources.s3.listing import Listing, ahead, listing_of
from airflow_provider_coordination.sources.s3.objects import ListedObject, delete_delivered, s3_client
from airflow_provider_coordination.sources.s3.selection import Globs, PackingLimits, pack, partition_key

log = logging.getLogger(__name__)

GATHERED_OBJECTS = 2000
"""How many new objects are packed together: enough for even packs, and few enough for memory."""
CONTINUE_WITHIN = timedelta(hours=6)
"""How long after its start an interrupted scan is continued; later, a new scan starts."""
DELETIONS_FAILED = 10
"""After this many partitions whose objects cannot be deleted, a scan stops deleting: all may be locked."""
CLOCKS_DIFFER_BY = timedelta(hours=1)
"""The greatest difference between the clocks of S3 and of a scan that is assumed when objects are forgotten."""
FORGOTTEN_AT_ONCE = 20_000
"""How many objects a scan forgets at most; the next scan forgets the rest."""
GATHERED_SECONDS = 10.0
"""How long new objects wait at most while the listing continues, so that jobs can start."""


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """The progress of an interrupted scan.

    :param began: when it started (aware).
    :param path: the path that it was listing; the paths before it are done.
    :param after: where its listing continues.
    :param as_of: see `Listing.as_of`; the earliest of the paths so far.
    """

    began: datetime
    path: str
    after: str
    as_of: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class ScanState:
    """The state of scans in the source's global state.

    :param scans: the number of finished scans.
    :param last_scan: when the last finished scan started (aware); None if there was none.
    :param unfinished: the interrupted scan; None if there is none.
    :param as_of: every object that arrived before this instant (aware) was found by the last finished scan, by the
        clock of S3; None if that is not known, as for files elsewhere.
    """

    scans: int = 0
    last_scan: datetime | None = None
    unfinished: Unfinished | None = None
    as_of: datetime | None = None

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> ScanState:
        """Return the state that a source stores, empty at first.

        :raises FieldError: if it is none.
        """
        return read_settings(cls, "state of the scan", state)


class S3Scan(ItemSupplier[S3Objects]):
    """Finds objects and yields partitions of them; a `Supplier`.

    :param settings: of the source.
    :param coordinator: of the source, initialized.
    :param list_path: returns the listing of a path.
    """

    def __init__(
        self,
        settings: S3Objects,
        coordinator: SourceCoordinator,
        connections: ConnectionResolver | None = None,
        *,
        list_path: Callable[[str], Listing] | None = None,
    ) -> None:
        settings.check()
        super().__init__(settings, coordinator, connections)
        self._claims = coordinator.claims
        self._clock = coordinator.clock
        self._list_path = list_path or (lambda path: listing_of(path, settings.aws))
        self._limits = PackingLimits(
            max_objects=settings.max_objects, max_bytes=settings.max_bytes, room=self._claims.room
        )

    @override
    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        """Scan once, if a scan is due.

        :param state: a `ScanState`, empty at first.
        :raises ConfigurationError: if a bucket or folder does not exist, or access is denied; raised once the other
            paths are scanned.
        :raises SourceUnavailableError: if the storage is unavailable; the next scan continues where this one was.
        """
        before = ScanState.of(state)
        if self._settings.delete_on_success:
            self.finish_deletions()
        unfinished = before.unfinished
        if unfinished is not None and self._can_continue(unfinished):
            log.info("scan continues: source=%s after=%r", self._coordinator.source, unfinished.after)
        elif self._is_due(before):
            unfinished = Unfinished(began=self._clock.now(), path=self._settings.paths[0], after="")
        else:
            return
        yield from self._scan(before, unfinished)

    def is_done(self, stored: Mapping[str, Any]) -> bool:
        """Return whether a scan that started after the end of the window has found everything in it.

        Always false with `delete_on_success`: a scan also finishes deletions that a job did not reach.

        :param stored: a `ScanState`, empty at first.
        """
        state, end = ScanState.of(stored), self._settings.end_time
        if end is None or state.last_scan is None or state.unfinished is not None or self._settings.delete_on_success:
            return False
        return state.last_scan >= end

    def _is_due(self, state: ScanState) -> bool:
        settings, source = self._settings, self._coordinator.source
        if settings.count is not None and state.scans >= settings.count:
            log.info("no scan: source=%s scans=%d of %d", source, state.scans, settings.count)
            return False
        if settings.interval is not None and state.last_scan is not None:
            due = state.last_scan + settings.interval
            if self._clock.now() < due:
                log.info("no scan: source=%s next=%s", source, due.isoformat())
                return False
        return True

    def _can_continue(self, unfinished: Unfinished) -> bool:
        """Return whether an interrupted scan is continued.

        It is not continued forever: new objects before the position where it continues are only found by the next
        scan.
        """
        return unfinished.path in self._settings.paths and self._clock.now() - unfinished.began < CONTINUE_WITHIN

    def _scan(self, before: ScanState, at: Unfinished) -> Iterator[Page]:
        paths, wrong = self._settings.paths, None
        for path in paths[paths.index(at.path) :]:
            start = at if path == at.path else replace(at, path=path, after="")
            try:
                at = yield from self._scan_path(before, start)
            except ConfigurationError as error:  # the other paths must not wait until the user has fixed this one
                log.error("path %s cannot be scanned: %s", path, error)
                wrong = wrong or error
        if wrong is not None:
            yield Page({}, write_settings(replace(before, unfinished=None)))
            raise wrong
        yield Page({}, write_settings(ScanState(scans=before.scans + 1, last_scan=at.began, as_of=at.as_of)))
        if self._settings.forget_after is not None:
            self._forget(at.began - self._settings.forget_after)

    def _forget(self, before: datetime) -> None:
        """Forget the objects that were modified before an instant: all objects that old have been found by now."""
        forgotten = self._claims.forget(before, claimed_before=before - CLOCKS_DIFFER_BY, limit=FORGOTTEN_AT_ONCE)
        log.info(
            "objects forgotten: source=%s modified_before=%s objects=%d",
            self._coordinator.source, before.isoformat(), forgotten,
        )  # fmt: skip

    def _window(self, began: datetime) -> Window:
        """Return the window of modification times that a scan selects.

        :raises ConfigurationError: if the window is an interval, and objects in it may be forgotten.
        """
        window, forgotten = Window.of(self._settings, began), self._claims.forgotten_before()
        if forgotten is None or (window.start is not None and window.start >= forgotten):
            return window
        if self._settings.end_time is not None:
            raise ConfigurationError(
                f"source {self._coordinator.source!r}: objects modified before {forgotten.isoformat()} are forgotten, "
                "and may have been delivered; start the interval then, or deliver it without 'deduplicate_against'"
            )
        return replace(window, start=forgotten)

    def _scan_path(self, before: ScanState, at: Unfinished) -> Generator[Page, None, Unfinished]:
        """Yield the new objects at a path; return how far the scan is then."""
        listing, is_first = self._list_path(at.path), at.path == self._settings.paths[0] and not at.after
        gathering = _Gathering(Selection(self._settings, listing, self._window(at.began)), self._limits)
        since = self._clock.monotonic()
        listed = taken = new = 0
        for page in ahead(listing.pages(at.after)):
            candidates = {each.name: each for each in page.found if gathering.selection.takes(each)}
            unclaimed = [candidates[name] for name in self._claims.unclaimed(list(candidates))]
            new += gathering.add(still_new(self._claims, unclaimed))
            listed += len(page.found)
            taken += len(candidates)
            at = replace(at, after=page.after, as_of=listing.as_of if is_first else _earliest(at, listing))
            if not gathering:
                since = self._clock.monotonic()
            elif len(gathering) >= GATHERED_OBJECTS or self._clock.monotonic() - since >= GATHERED_SECONDS:
                yield gathering.packed(replace(before, unfinished=at))
                since = self._clock.monotonic()
        if gathering:
            yield gathering.packed(replace(before, unfinished=at))
        log.info(
            "path scanned: source=%s path=%s listed=%d taken=%d new=%d",
            self._coordinator.source, at.path, listed, taken, new,
        )  # fmt: skip
        return replace(at, as_of=listing.as_of if is_first else _earliest(at, listing))

    # Objects that are delivered and not deleted yet

    def finish_deletions(self) -> None:
        """Delete delivered objects, and remove their claims and partitions: a later upload is a new object.

        A job has already deleted the objects, unless it was interrupted. The objects are deleted first, then the
        claims, and the partition last, so that the next scan does what is left. An object that was uploaded again is
        not the one that was read, so it is kept.
        """
        failed = 0
        for partition in self._coordinator.view.partitions(PartitionStatus.COMPLETED):
            try:
                items = self._delivered_items(partition)
                delete_delivered(items, lambda: s3_client(self._settings.aws))
            except ProgressFormatError as error:
                log.warning(
                    "partition %s: its objects are not deleted: %s; delete them yourself if they are not needed",
                    partition.partition_key,
                    error,
                )
                continue
            except (ConfigurationError, SourceError) as error:
                log.error("delivered objects could not be deleted; the next scan tries again: %s", error)
                failed += 1
                if failed == DELETIONS_FAILED:
                    return
                continue
            self._claims.release(ListedObject.from_item(item).name for item in items)
            self._coordinator.leases.remove(partition)

    def _delivered_items(self, partition: Partition) -> Sequence[Mapping[str, Any]]:
        """Return the items of a finished partition that were read; the others have partitions of their own."""
        progress = PartitionProgress.from_mapping(partition.progress)
        if progress.kind != S3Objects.kind:
            raise ProgressFormatError(f"its progress is of kind {progress.kind!r}, not {S3Objects.kind!r}")
        return progress.items_read


def still_new(claims: Claims, objects: Sequence[ListedObject]) -> Iterator[ListedObject]:
    """Return the unclaimed objects without those that a source with the same claims has just forgotten."""
    forgotten = claims.forgotten_before() if objects else None
    return (each for each in objects if forgotten is None or each.modified >= forgotten)


def _earliest(at: Unfinished, listing: Listing) -> datetime | None:
    """Return the earlier instant of the paths so far and of another; None if one of them is not known."""
    return None if at.as_of is None or listing.as_of is None else min(at.as_of, listing.as_of)


class _Gathering:
    """Collects the new objects of one path for a page of partitions."""

    def __init__(self, selection: Selection, limits: PackingLimits) -> None:
        self.selection = selection
        self._limits = limits
        self._found: dict[str, ListedObject] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, objects: Iterator[ListedObject]) -> int:
        before = len(self._found)
        self._found.update((each.name, each) for each in objects)
        return len(self._found) - before

    def packed(self, state: ScanState) -> Page:
        """Return everything as a page, and clear the collection."""
        found, self._found = self._found, {}
        return page_of(((each, self.selection.group(each)) for each in found.values()), self._limits, state)


def page_of(found: Iterable[tuple[ListedObject, str]], limits: PackingLimits, state: ScanState | None = None) -> Page:
    """Return a page of partitions that claim new objects.

    :param found: the objects, each with its group: only objects of one group share a partition.
    :param limits: the limits of a partition.
    :param state: the state of scans after it; None keeps the stored state.
    """
    groups: dict[str, list[ListedObject]] = {}
    for each, group in found:
        groups.setdefault(group, []).append(each)
    partitions, claims, written = {}, {}, cache(format_instant)  # many have the same second
    for objects in groups.values():
        for packed in pack(objects, limits):
            key = partition_key(packed)
            items = tuple(each.to_item(written) for each in packed)
            partitions[key] = PartitionProgress(kind=S3Objects.kind, items=items).to_mapping()
            claims[key] = [each.name for each in packed]
    return Page(partitions, state=None if state is None else write_settings(state), claims=claims)


@dataclass(frozen=True)
class Window:
    """The modification times that are selected: at `start` or later, before `end`; adjacent windows share no object.

    :param start: aware; None for no bound.
    :param end: aware; None for no bound.
    """

    start: datetime | None = None
    end: datetime | None = None

    @classmethod
    def of(cls, settings: S3Objects, began: datetime) -> Window:
        """Return the window of a scan.

        :param began: when the scan started; `range` is counted back from it.
        """
        return cls(began - settings.range if settings.range else settings.start_time, settings.end_time)

    def holds(self, instant: datetime) -> bool:
        """Return whether the window contains an instant."""
        return (self.start is None or instant >= self.start) and (self.end is None or instant < self.end)


class Selection:
    """Selects the objects of one path for a scan.

    :param settings: of the source.
    :param listing: of the path.
    :param window: of the scan.
    """

    def __init__(self, settings: S3Objects, listing: Listing, window: Window) -> None:
        self._include = Globs(settings.include) if settings.include else None
        self._exclude = Globs(settings.exclude) if settings.exclude else None
        self._suffixes = settings.exclude_suffixes
        self._hidden = settings.hidden
        self._marker = f"/{settings.wait_for}" if settings.wait_for else None
        self._folder_depth = settings.folder_depth
        self._by_folder = settings.wait_for is not None
        self._listing = listing
        self._window = window

    @property
    def start(self) -> str:
        """The prefix of the URIs of all objects of the path."""
        return self._listing.start

    def takes(self, listed: ListedObject) -> bool:
        """Return whether an object of the path is selected."""
        if not self._window.holds(listed.modified):
            return False
        uri = listed.uri
        if not self._hidden and _is_hidden(uri[len(self._listing.start) :]):
            return False
        if self._marker is not None and uri.endswith(self._marker):
            return False
        if self._suffixes and uri.endswith(self._suffixes):
            return False
        if self._include is None and self._exclude is None:
            return True
        name = uri[len(self._listing.base) :]
        if self._include is not None and not self._include.match(name):
            return False
        return self._exclude is None or not self._exclude.match(name)

    def group(self, listed: ListedObject) -> str:
        """Return the folder whose objects may share a partition with an object; empty for all."""
        if self._by_folder:
            return listed.folder
        if self._folder_depth is None:
            return ""
        folders = listed.uri[len(self._listing.base) :].split("/")[:-1]
        return self._listing.base + "/".join(folders[: self._folder_depth])


def _is_hidden(below: str) -> bool:
    """Return whether a name, or one of its folders, begins with `_` or `.`; Hive's `_partition=value` is not hidden.

    :param below: the part of the URI below the path.
    """
    if "_" not in below and below.find(".") == below.rfind(".") and "/." not in below and not below.startswith("."):
        return False  # the usual case: no underscore, and the only dot is before the ending
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in below.split("/"))
