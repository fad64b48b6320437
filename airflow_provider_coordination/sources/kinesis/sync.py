"""Shard sync: creates the partitions of streams' shards, and keeps partitions and shards in step.

One worker of the fleet at a time runs it, as a supplier under the source's global state. Every write is conditional on
what was read, and creating an existing partition is no error. So it may run at any time, twice, and beside jobs. It
does not change partitions that a job holds. An error of one stream does not stop the others.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.partition import UNFINISHED, PartitionStatus
from airflow_provider_coordination.coordination.supplier import SUPPLIER_WAIT_TIMEOUT, Page
from airflow_provider_coordination.sources.kinesis.bounds import (
    CLOCK_DIFFERENCE,
    Bounds,
    StartPosition,
    bounded_shards,
    check_kept,
    check_unchanged,
    first_shards,
    resolve_start,
)
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, StreamNotFoundError
from airflow_provider_coordination.sources.kinesis.lease_changes import (
    CHILDREN_STARTED,
    EXPIRED,
    LeaseChanges,
    expired_finished,
    removable,
    vanished,
)
from airflow_provider_coordination.sources.kinesis.leases import (
    CONFIDENCE,
    HoleTracker,
    ShardLease,
    StreamKey,
    children_of_open_shards,
    covers_every_hash_key,
    first_progress,
    hole_between,
    leases_by_stream,
    leases_to_create,
)
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON
from airflow_provider_coordination.sources.kinesis.progress import ShardKey, ShardProgress, partition_key
from airflow_provider_coordination.sources.kinesis.shards import (
    ShardListing,
    StreamDescription,
    describe_stream,
    is_gone,
    shard_listing,
)
from airflow_provider_coordination.sources.kinesis.stream_names import check_account, stream_name, stream_of
from airflow_provider_coordination.sources.kinesis.sync_state import (
    ShardSyncMetric,
    ShardSyncSummary,
    StreamState,
    StreamSync,
    SyncState,
)

log = logging.getLogger(__name__)

FULL_LISTING_INTERVAL = timedelta(minutes=30)
"""How often a job lists shards although all hash keys are read: for cleanup, and to detect shards that are gone."""
KEEP_COMPLETED = timedelta(hours=1)
"""How long finished partitions are kept at least: other processes may still read their status."""
READY_WITHIN_SECONDS = 60.0

NOTHING_TO_DO = "every hash key is read, and the shards were listed not long ago"
WITHIN_BOUNDS = "the shards within the bounds are known"
TAKEN_OVER = "another worker took over the sync before it was complete"
SUSPENDED = "the source is {}"
EXPIRED_UNREAD = "shard sync: the shard expired before its end was read"


@dataclass
class ShardSync:
    """Keeps the partitions of a source in step with the shards of its streams.

    :param client: as `kinesis_client` returns it.
    :param coordinator: of the source, initialized.
    :param initial_position: where a stream that is new to the source starts: `TRIM_HORIZON`, `LATEST` or
        `AT_TIMESTAMP:<instant>`, see `positions.at_timestamp`.
    :param on_data_loss: what happens to a partition whose shard is gone before it was read: `"fail"` parks it;
        otherwise the gap is recorded, the partition completed, and its children follow.
    :param keep_completed: how long finished partitions are kept at least.
    :param bounds: the part of the streams that is read; None for everything from the initial position on. The shards
        within bounds are listed once. Their children are created as their parents end.
    :param full_listing_interval: how often shards are listed even if nothing seems to have changed.
    :param history: returns the partitions that are read before the shards of a stream; None if there are none.
    :param sleep: waits that many seconds.
    """

    client: KinesisClient
    coordinator: SourceCoordinator
    _: KW_ONLY
    initial_position: str = TRIM_HORIZON
    on_data_loss: str = "fail"
    keep_completed: timedelta = KEEP_COMPLETED
    bounds: Bounds | None = None
    full_listing_interval: timedelta = FULL_LISTING_INTERVAL
    history: Callable[[StreamDescription], Iterable[Page]] | None = None
    sleep: Callable[[float], None] = time.sleep

    def run(
        self, streams: Sequence[str], *, forced: bool, existing: Collection[str] | None = None
    ) -> ShardSyncSummary | None:
        """Sync once.

        A forced run is what a task does. The named streams are all streams of the source, and their shards are listed.
        The run waits for another worker's sync. If a stream cannot be synced, it raises once the others are done.

        A job runs it unforced from time to time. It then syncs only if something may have changed, and logs and counts
        errors. It ignores streams that are not named, and streams that no forced run has synced yet.

        :param streams: the names or ARNs of the source's streams.
        :param existing: the names of all streams that exist, if `streams` were found among them. Others of the source
            are deleted, and not put aside. None if no stream was searched for.
        :returns: the result; None if the run is not forced and another worker is running a sync, or the source is
            suspended.
        :raises StreamNotFoundError: forced, if a stream does not exist and never existed in this source.
        :raises ConfigurationError: forced, if the user must fix something.
        :raises SupplierBusyError: forced, if another worker is still running a sync after the wait.
        :raises SourceError: forced, if a stream cannot be listed; always, if the global state cannot be read.
        :raises StoreUnavailableError: if the store is unavailable.
        """
        names = [stream_name(stream) for stream in streams]
        if not forced and not self._may_have_changed(names):
            self.coordinator.events.count(ShardSyncMetric.SKIPPED)
            return ShardSyncSummary(self.coordinator.source, skipped=NOTHING_TO_DO)
        if self._is_within_bounds(names):
            # Its shards are known and their children follow them. Finished partitions must stay finished.
            return ShardSyncSummary(self.coordinator.source, skipped=WITHIN_BOUNDS)
        run = _Run(self, streams, forced=forced, existing=existing)
        created = self.coordinator.supply(
            run.pages, wait_timeout=SUPPLIER_WAIT_TIMEOUT if forced else None, sleep=self.sleep
        )
        if created is None:
            self.coordinator.events.count(ShardSyncMetric.SKIPPED)
            if not forced:
                return None
            return ShardSyncSummary(self.coordinator.source, skipped=self.interruption("the source was suspended"))
        run.note_created(created)
        summary = run.summary()
        summary.report(self.coordinator.events.count)
        if forced and run.errors:
            raise run.errors[0]
        return summary

    def _is_within_bounds(self, streams: Sequence[str]) -> bool:
        """Return whether the sync within the bounds is complete, and no child of a lost shard must be read."""
        if self.bounds is None or not self._state().has_listed(streams, self.bounds.name):
            return False
        closed = self.coordinator.view.partitions(PartitionStatus.CLOSED)
        return self.on_data_loss == "fail" or not any(partition.is_parked for partition in closed)

    def _state(self) -> SyncState:
        return SyncState.from_mapping(self.coordinator.view.supplier_state())

    def interruption(self, otherwise: str) -> str:
        """Return why a sync was not completed: the source's suspension, or another reason."""
        suspension = self.coordinator.view.suspension()
        return otherwise if suspension is None else SUSPENDED.format(suspension)

    def listing_due(self, known: StreamState, now: datetime) -> bool:
        """Return whether the shards of a stream must be listed even if no hash key is missing."""
        return known.listed_at is None or now - known.listed_at >= self.full_listing_interval

    def _may_have_changed(self, streams: Sequence[str]) -> bool:
        """Return whether a sync may find a change; this makes no call to Kinesis."""
        state = self._state()
        # A forced run sets where a stream that is new to the source starts.
        latest = (state.latest(stream) for stream in streams)
        known = [each for each in latest if each is not None and each.bounds is None]
        now = self.coordinator.clock.now()
        if any(each.hole is not None or self.listing_due(each, now) for each in known):
            return True
        keys = [each.key for each in known]
        # Finished partitions are read only if the others do not cover every hash key.
        leases = leases_by_stream(self.coordinator.view.partitions(*UNFINISHED))
        if all(covers_every_hash_key(leases.get(key, {})) for key in keys):
            return False
        leases = leases_by_stream(self.coordinator.view.partitions())
        return any(hole_between(leases.get(key, {})) is not None for key in keys)


class _Run:
    """One run of a shard sync, as a supplier.

    :param sync: the shard sync with its settings.
    :param streams: see `ShardSync.run`, also for the other parameters.
    """

    def __init__(
        self, sync: ShardSync, streams: Sequence[str], *, forced: bool, existing: Collection[str] | None
    ) -> None:
        self._sync = sync
        self._coordinator = sync.coordinator
        self._streams = {stream_name(stream): stream for stream in streams}
        self._existing = existing
        self._forced = forced
        self._begin()

    def _begin(self) -> None:
        self.errors: list[Exception] = []
        self._results: dict[str, StreamSync] = {}
        self._put_aside: list[str] = []
        self._done = False
        self._state = SyncState()
        self._leases: dict[StreamKey, dict[str, ShardLease]] = {}

    def pages(self, stored: Mapping[str, Any]) -> Generator[Page]:
        """Sync stream after stream; see `Supplier`."""
        self._begin()
        self._state = SyncState.from_mapping(stored)
        # Leases are read before shards. A parent whose lease is completed or cleaned up in between still counts as
        # finished, since the later listing has its children.
        self._leases = leases_by_stream(self._coordinator.view.partitions())
        if self._existing is not None:
            gone = {key.stream for key in self._leases} - self._streams.keys() - set(self._existing)
            self._streams |= {name: name for name in sorted(gone)}
        for name in self._streams:
            self._results[name] = StreamSync(name)
            try:
                for page in self._sync_stream(name, self._results[name]):
                    stored = page.state or stored
                    yield page
            except (SourceError, ConfigurationError) as error:
                self._results[name].error = str(error)
                self.errors.append(error)
                self._coordinator.events.count(ShardSyncMetric.FAILURES)
                log.error("shard sync: stream %s could not be synced: %s", name, error)
        if self._forced:
            self._put_aside_unnamed()
        self._state = self._state.without_forgotten(self._leases.keys())
        if (state := self._state.to_mapping()) != stored:
            yield Page({}, state)
        self._done = True

    def note_created(self, created: Sequence[str]) -> None:
        """Sort the keys that the coordinator created by stream."""
        for key, stream in ((key, stream_of(key)) for key in created):
            self._results.setdefault(stream, StreamSync(stream)).created.append(key)

    def summary(self) -> ShardSyncSummary:
        """Return the result."""
        return ShardSyncSummary(
            self._coordinator.source,
            list(self._results.values()),
            self._put_aside,
            skipped=None if self._done else self._sync.interruption(TAKEN_OVER),
        )

    # One stream

    def _sync_stream(self, name: str, result: StreamSync) -> Generator[Page]:
        if not self._forced and self._only_watches(name, result):
            return
        changes = LeaseChanges(self._coordinator, result, on_data_loss=self._sync.on_data_loss)
        try:
            described = self._described(self._streams[name])
        except StreamNotFoundError as error:
            if not any(key.stream == name for key in self._leases):
                if self._existing is None:
                    raise
                log.info("shard sync: %s; it was deleted since it was found", error)
                return
            result.error = str(error)
            log.error("shard sync: %s", error)
            self._lose_previous(name, None, changes, "was deleted", until=self._coordinator.clock.now())
            return
        known = self._state.latest(name)
        check_account(self._coordinator.source, name, known.account if known else None, described.account)
        key = StreamKey(name, described.creation_epoch)
        result.creation_epoch = key.creation_epoch
        described.check_new(is_known=self._state.of(key) is not None)
        last = None if known is None or self._sync.bounds is not None else known.creation_epoch
        for epoch, address in sorted(described.earlier.items()):
            if (earlier := StreamKey(name, epoch)) in self._leases:
                yield from self._sync_known(earlier, self._described(address), changes, result)
            elif last is not None and (epoch > last or self._state.of(earlier) is not None):
                # It came and went since the last sync, or its first sync was interrupted.
                yield from self._sync_new(earlier, self._described(address), result, was_recreated=True)
        self._check_bounds(key, described)
        result.existing = len(self._leases.get(key, {}))
        was_recreated = self._lose_previous(
            name, key, changes, "was deleted and created again", until=described.created_at, kept=described.earlier
        )
        if self._sync.bounds is not None and self._sync.bounds.shards:
            yield from self._sync_given(key, described, self._sync.bounds, result)
        elif result.existing:
            yield from self._sync_known(key, described, changes, result)
        else:
            yield from self._sync_new(key, described, result, was_recreated=was_recreated)

    def _described(self, stream: str) -> StreamDescription:
        return describe_stream(
            self._sync.client, stream, ready_within_seconds=READY_WITHIN_SECONDS if self._forced else 0,
            clock=self._coordinator.clock, sleep=self._sync.sleep,
        )  # fmt: skip

    def _listing(self, described: StreamDescription) -> ShardListing:
        return shard_listing(self._sync.client, described.address, sleep=self._sync.sleep)

    def _only_watches(self, name: str, result: StreamSync) -> bool:
        """Record whether all hash keys are read; return whether that is all, so that no listing is needed."""
        known, now = self._state.latest(name), self._coordinator.clock.now()
        if known is not None and known.bounds is not None:
            return True
        if known is None:
            log.info("shard sync: stream %s is skipped until a shard sync task sets where it starts", name)
            return True
        leases = self._leases.get(known.key, {})
        if not leases or self._sync.listing_due(known, now):
            return False
        tracker = known.tracker.after_check(hole_between(leases))
        if tracker.is_certain:
            return False
        self._state = self._state.with_stream(known.with_tracker(tracker))
        result.creation_epoch, result.existing, result.began = known.creation_epoch, len(leases), known.began
        result.hole = tracker.hole
        return True

    def _sync_new(
        self, key: StreamKey, described: StreamDescription, result: StreamSync, *, was_recreated: bool
    ) -> Generator[Page]:
        """Create the first leases of a stream; a recreated stream is read from its earliest record."""
        known, now = self._state.of(key), self._coordinator.clock.now()
        initial = TRIM_HORIZON if was_recreated else self._sync.initial_position
        listing, beginning = first_shards(
            self._sync.client, described, initial if known is None else known.began, is_known=known is not None,
            now=now, sleep=self._sync.sleep,
        )  # fmt: skip
        history = self._sync.history
        if known is None:
            beginning = beginning if history is None else beginning.earlier(CLOCK_DIFFERENCE)
            # Stored before the leases: if only some of them are created now, the others start at the same position.
            self._state = self._state.with_stream(self._state_of(key, described, beginning.began))
            yield Page({}, self._state.to_mapping())
        if history is not None:  # before the leases, which wait for it
            yield from history(described)
        yield from self._create(key, described, listing, beginning, HoleTracker(), result)

    @property
    def _bounds(self) -> str | None:
        return None if self._sync.bounds is None else self._sync.bounds.name

    def _state_of(self, key: StreamKey, described: StreamDescription, began: str) -> StreamState:
        return StreamState(
            stream=key.stream,
            creation_epoch=key.creation_epoch,
            began=began,
            bounds=self._bounds,
            account=described.account,
        )

    def _check_bounds(self, key: StreamKey, described: StreamDescription) -> None:
        """Check that a stream has the same bounds as before, and still keeps the records within them."""
        known = self._state.of(key)
        if known is not None:
            check_unchanged(self._coordinator.source, key.stream, known.bounds, self._bounds)
        if known is None and self._sync.bounds is not None:
            check_kept(described, self._sync.bounds, self._sync.on_data_loss)

    def _sync_given(
        self, key: StreamKey, described: StreamDescription, bounds: Bounds, result: StreamSync
    ) -> Generator[Page]:
        """Create the leases of exactly the shards whose sequence numbers are given."""
        now, listing = self._coordinator.clock.now(), self._listing(described)
        first = bounded_shards(bounds, described, listing.shards, on_data_loss=self._sync.on_data_loss, now=now)
        result.note_listing(listing.shards)
        state = self._state_of(key, described, TRIM_HORIZON)
        # Stored before the leases: from now on, reading the source with other bounds is an error.
        self._state = self._state.with_stream(state)
        yield Page({}, self._state.to_mapping())
        self._state = self._state.with_stream(replace(state, listed_at=now))
        yield Page(self._added(key, first), self._state.to_mapping())

    def _sync_known(
        self, key: StreamKey, described: StreamDescription, changes: LeaseChanges, result: StreamSync
    ) -> Generator[Page]:
        """Create missing leases, handle lost shards, and remove leases that are no longer needed."""
        known, now = self._state.of(key), self._coordinator.clock.now()
        leases = self._leases[key]
        for name, lease in leases.items():
            leases[name] = changes.reopen(lease)
        listing = self._listing(described)
        listed = {shard.shard_id: shard for shard in listing.shards}
        for name, lease in leases.items():
            leases[name] = changes.fill_range(lease, listed.get(name))
        tracker = (known.tracker if known is not None else HoleTracker()).after_check(
            hole_between(leases, listing.shards) if described.ended is None else None
        )
        if tracker.sights == CONFIDENCE:
            self._coordinator.events.count(ShardSyncMetric.HOLES)
        beginning = resolve_start(
            known.began if known is not None else self._sync.initial_position,
            described,
            listed_at=listing.listed_at,
            is_known=known is not None,
            now=now,
        )
        service_now, retention = described.described_at or now, described.retention
        for lease in vanished(leases, listing.shards, now=service_now, retention=retention):
            name = lease.key.shard_id
            if is_gone(self._sync.client, described.address, name):
                until = service_now - retention
                leases[name] = changes.record_loss(lease, EXPIRED_UNREAD, until=until, shards=listing.shards)
        yield from self._create(key, described, listing, beginning, tracker, result)
        removed = changes.remove(
            removable(leases, listing.shards, completed_by=now - self._sync.keep_completed), CHILDREN_STARTED
        )
        left = {name: lease for name, lease in leases.items() if lease not in removed}
        expired = expired_finished(left, listing.shards, now=service_now, retention=retention)
        removed += changes.remove(expired, EXPIRED)
        for lease in removed:
            del leases[lease.key.shard_id]

    def _added(self, key: StreamKey, first: Mapping[str, ShardProgress]) -> dict[str, Mapping[str, Any]]:
        """Return new partitions for a page, after adding their leases to those that are known.

        :param first: the first progress of each shard.
        """
        leases = self._leases.setdefault(key, {})
        wanted: dict[str, Mapping[str, Any]] = {}
        for name, progress in first.items():
            shard = ShardKey(*key, name)
            wanted[partition_key(*shard)] = progress.to_mapping()
            partition = self._coordinator.view.new(partition_key(*shard), progress.to_mapping())
            leases.setdefault(name, ShardLease(shard, partition, progress))
        return wanted

    def _create(
        self,
        key: StreamKey,
        described: StreamDescription,
        listing: ShardListing,
        beginning: StartPosition,
        tracker: HoleTracker,
        result: StreamSync,
    ) -> Generator[Page]:
        leases = self._leases.setdefault(key, {})
        due = leases_to_create(
            listing.shards, {name: lease.partition.status for name, lease in leases.items()}, beginning.position
        )
        now = self._coordinator.clock.now()
        first = {
            lease.shard.shard_id: first_progress(described, lease, leases, beginning.began, self._sync.bounds, now)
            for lease in due
        }
        result.note_listing(listing.shards)
        result.began = beginning.began
        result.waiting = sorted(
            child.shard_id for child in children_of_open_shards(listing.shards) if child.shard_id not in leases
        )
        wanted = self._added(key, first)
        hole = hole_between(leases, listing.shards) if described.ended is None else None
        result.hole = None if hole is None else str(hole)
        state = replace(self._state_of(key, described, beginning.began), listed_at=now)
        self._state = self._state.with_stream(state.with_tracker(HoleTracker() if hole is None else tracker))
        yield Page(wanted, self._state.to_mapping())

    # Lost shards and streams

    def _lose_previous(
        self, name: str, present: StreamKey | None, changes: LeaseChanges, what: str, *, until: datetime, kept: Any = ()
    ) -> bool:
        """Handle the leases of earlier streams of this name; return whether there are any, or were.

        :param kept: the creation epochs of those that can still be read.
        """
        previous = [key for key in self._leases if key.stream == name and key != present]
        for key in previous:
            if key.creation_epoch in kept:
                continue
            leases = self._leases[key]
            for shard_id, lease in leases.items():
                unread = lease.progress is None or not lease.progress.is_ended
                if not lease.is_finished and unread:  # if everything is landed, it can still be delivered
                    reason = f"shard sync: its stream is gone: stream '{name}' {what}"
                    leases[shard_id] = changes.record_loss(lease, reason, until=until, stream_gone=True)
        return bool(previous) or any(state.stream == name and state.key != present for state in self._state.streams)

    def _put_aside_unnamed(self) -> None:
        """Park the unfinished partitions of streams that are no longer named: no job reads them, nothing is lost."""
        for key, leases in self._leases.items():
            if key.stream not in self._streams:
                changes = LeaseChanges(self._coordinator, StreamSync(key.stream), on_data_loss=self._sync.on_data_loss)
                self._put_aside += changes.put_aside(leases.values())
        self._state = replace(self._state, named=tuple(self._streams))
