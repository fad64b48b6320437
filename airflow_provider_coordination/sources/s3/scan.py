"""The scan: finds objects that belong to no partition yet, and packs them into partitions.

It is a supplier, so one worker of the fleet runs it at a time, and every page of partitions can be worked on at once.
An object is known by its claim, its URI and version, and not by when it was modified: what was uploaded in parts, or
copied with an old time, is found all the same, and what is uploaded again is found again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, format_instant
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.landed import ProgressFormatError
from airflow_provider_coordination.sources.progress import PartitionProgress
from airflow_provider_coordination.sources.s3.deletion import Deletion
from airflow_provider_coordination.sources.s3.listing import Listing, ahead, listing_of
from airflow_provider_coordination.sources.s3.objects import Found
from airflow_provider_coordination.sources.s3.packing import Limits, pack, partition_key
from airflow_provider_coordination.sources.s3.selection import Selection, Window
from airflow_provider_coordination.sources.s3.settings import KIND, S3Settings

log = logging.getLogger(__name__)

GATHERED_OBJECTS = 2000
"""How many new objects are packed together: enough for even packs, and few enough to keep."""
GOES_ON_WITHIN = timedelta(hours=6)
"""How long after its beginning a scan that was cut off is gone on with; later, one begins anew."""
DELETIONS_FAILED = 10
"""After so many partitions whose objects cannot be deleted, a scan tries no others: one may be locked, or all."""
CLOCKS_DIFFER_BY = timedelta(hours=1)
"""How much earlier than it was modified, by the clock of S3, an object may be claimed by that of a scan at most."""
FORGOTTEN_AT_ONCE = 20_000
"""How many objects a scan forgets; what is left is forgotten by the next one."""
GATHERED_SECONDS = 10.0
"""How long the first of them waits at most while the listing goes on, so that jobs can begin."""


@dataclass(frozen=True, kw_only=True)
class Unfinished:
    """How far a scan came that was cut off.

    :param began: when it began (aware).
    :param path: the path that it was listing; those before it are done.
    :param after: where its listing goes on.
    """

    began: datetime
    path: str
    after: str


@dataclass(frozen=True, kw_only=True)
class ScanState:
    """What a scan remembers in the source's global state.

    :param scans: how many were finished.
    :param last_scan: when the last one began (aware); None if there was none.
    :param unfinished: the one that was cut off; None if none was.
    """

    scans: int = 0
    last_scan: datetime | None = None
    unfinished: Unfinished | None = None


class S3Scan:
    """Finds objects and yields partitions of them; a `Supplier`.

    :param settings: of the source.
    :param coordinator: of the source, initialized.
    :param list_path: makes what lists a path.
    """

    def __init__(
        self,
        settings: S3Settings,
        coordinator: SourceCoordinator,
        *,
        list_path: Callable[[str], Listing] | None = None,
    ) -> None:
        settings.check()
        self._settings = settings
        self._coordinator = coordinator
        self._claims = coordinator.claims
        self._clock = coordinator.clock
        self._list_path = list_path or (lambda path: listing_of(path, settings.aws))
        self._limits = Limits(max_objects=settings.max_objects, max_bytes=settings.max_bytes, room=self._claims.room)

    def __call__(self, state: Mapping[str, Any]) -> Iterator[Page]:
        """Scan once, if a scan is due.

        :param state: a `ScanState`, empty at first.
        :raises ConfigurationError: if there is no such bucket or folder, or access to it is denied; once the other
            paths are scanned.
        :raises SourceUnavailableError: if it does not answer; the next scan goes on where this one was.
        """
        before = read_settings(ScanState, "state of the scan", state)
        if self._settings.delete_on_success:
            self._finish_deletions()
        unfinished = before.unfinished
        if unfinished is not None and self._goes_on(unfinished):
            log.info("scan goes on: source=%s after=%r", self._coordinator.source, unfinished.after)
        elif self._is_due(before):
            unfinished = Unfinished(began=self._clock.now(), path=self._settings.paths[0], after="")
        else:
            return
        yield from self._scan(before, unfinished)

    def is_done(self, stored: Mapping[str, Any]) -> bool:
        """Return whether a scan that began after the end of the window has found what is in it.

        Never so for what is deleted on success: a scan also finishes deletions that a job did not get to.

        :param stored: a `ScanState`, empty at first.
        """
        state, end = read_settings(ScanState, "state of the scan", stored), self._settings.end_time
        if end is None or state.last_scan is None or state.unfinished is not None or self._settings.delete_on_success:
            return False
        return state.last_scan >= end

    def _is_due(self, state: ScanState) -> bool:
        settings, source = self._settings, self._coordinator.source
        if settings.count is not None and state.scans >= settings.count:
            log.info("no scan: source=%s scans=%d of %d", source, state.scans, settings.count)
            return False
        if settings.interval_seconds is not None and state.last_scan is not None:
            due = state.last_scan + timedelta(seconds=settings.interval_seconds)
            if self._clock.now() < due:
                log.info("no scan: source=%s next=%s", source, due.isoformat())
                return False
        return True

    def _goes_on(self, unfinished: Unfinished) -> bool:
        """Return whether a scan that was cut off is gone on with.

        Not for ever: what appeared meanwhile before the place where it goes on is found by the next one only.
        """
        return unfinished.path in self._settings.paths and self._clock.now() - unfinished.began < GOES_ON_WITHIN

    def _scan(self, before: ScanState, at: Unfinished) -> Iterator[Page]:
        paths, wrong = self._settings.paths, None
        for path in paths[paths.index(at.path) :]:
            start = at if path == at.path else replace(at, path=path, after="")
            try:
                yield from self._scan_path(before, start)
            except ConfigurationError as error:  # the other paths shall not wait until a person has put this one right
                log.error("path %s cannot be scanned: %s", path, error)
                wrong = wrong or error
        if wrong is not None:
            yield Page({}, write_settings(replace(before, unfinished=None)))
            raise wrong
        yield Page({}, write_settings(ScanState(scans=before.scans + 1, last_scan=at.began)))
        if self._settings.forget_after is not None:
            self._forget(at.began - self._settings.forget_after)

    def _forget(self, before: datetime) -> None:
        """Forget the objects that were modified before an instant: everything that old has been found by now."""
        forgotten = self._claims.forget(before, claimed_before=before - CLOCKS_DIFFER_BY, limit=FORGOTTEN_AT_ONCE)
        log.info(
            "objects forgotten: source=%s modified_before=%s objects=%d",
            self._coordinator.source, before.isoformat(), forgotten,
        )  # fmt: skip

    def _window(self, began: datetime) -> Window:
        """Return when objects have to have been modified that a scan takes.

        :raises ConfigurationError: if it is an interval, and objects in it may be forgotten.
        """
        window, forgotten = Window.of(self._settings, began), self._claims.forgotten_before()
        if forgotten is None or (window.start is not None and window.start >= forgotten):
            return window
        if self._settings.end_time is not None:
            raise ConfigurationError(
                f"source {self._coordinator.source!r}: objects modified before {forgotten.isoformat()} are forgotten, "
                "and may have been delivered; begin the interval then, or deliver it without 'deduplicate_against'"
            )
        return replace(window, start=forgotten)

    def _still_new(self, found: Sequence[Found]) -> Iterator[Found]:
        """Yield those of unclaimed objects that were not forgotten a moment ago, by a source that shares the claims."""
        forgotten = self._claims.forgotten_before() if found else None
        return (each for each in found if forgotten is None or each.modified >= forgotten)

    def _scan_path(self, before: ScanState, at: Unfinished) -> Iterator[Page]:
        listing = self._list_path(at.path)
        gathering = _Gathering(Selection(self._settings, listing, self._window(at.began)), self._limits)
        since = self._clock.monotonic()
        listed = taken = new = 0
        for page in ahead(listing.pages(at.after)):
            candidates = {each.name: each for each in page.found if gathering.selection.takes(each)}
            unclaimed = [candidates[name] for name in self._claims.unclaimed(list(candidates))]
            new += gathering.add(self._still_new(unclaimed))
            listed += len(page.found)
            taken += len(candidates)
            at = replace(at, after=page.after)
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

    # Objects that are delivered, and not deleted yet

    def _finish_deletions(self) -> None:
        """Delete what is delivered, and forget it with its partition: what is uploaded there later is new.

        A job has deleted the objects already, unless it was cut off. First the objects, then the claims, and the
        partition last, so that whatever is left is done the next time; an object that was uploaded meanwhile is not
        the one that was read, so it stays.
        """
        deletion = Deletion(self._settings)
        failed = 0
        for partition in self._coordinator.view.partitions(PartitionStatus.COMPLETED):
            try:
                items = self._delivered_items(partition)
                deletion.delivered(items)
            except ProgressFormatError as error:
                log.warning("partition %s: its objects are not deleted: %s", partition.partition_key, error)
                continue
            except (ConfigurationError, SourceError) as error:
                log.error("objects that are delivered are left to the next scan to delete: %s", error)
                failed += 1
                if failed == DELETIONS_FAILED:
                    return
                continue
            self._claims.release(Found.from_item(item).name for item in items)
            self._coordinator.settling.remove(partition)

    def _delivered_items(self, partition: Partition) -> Sequence[Mapping[str, Any]]:
        """Return the items of a finished partition that were read; the others are partitions of their own."""
        progress = PartitionProgress.from_mapping(partition.progress)
        if progress.kind != KIND:
            raise ProgressFormatError(f"it is of kind {progress.kind!r}")
        return progress.items_read


class _Gathering:
    """New objects of one path on their way into a page of partitions."""

    def __init__(self, selection: Selection, limits: Limits) -> None:
        self.selection = selection
        self._limits = limits
        self._found: dict[str, Found] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, found: Iterator[Found]) -> int:
        before = len(self._found)
        self._found.update((each.name, each) for each in found)
        return len(self._found) - before

    def packed(self, state: ScanState) -> Page:
        """Return everything as a page, and begin anew."""
        groups: dict[str, list[Found]] = {}
        for each in self._found.values():
            groups.setdefault(self.selection.group(each), []).append(each)
        self._found = {}
        partitions, claims, written = {}, {}, cache(format_instant)  # many have the same second
        for group in groups.values():
            for packed in pack(group, self._limits):
                key = partition_key(packed)
                items = tuple(each.to_item(written) for each in packed)
                partitions[key] = PartitionProgress(kind=KIND, items=items).to_mapping()
                claims[key] = [each.name for each in packed]
        return Page(partitions, state=write_settings(state), claims=claims)
