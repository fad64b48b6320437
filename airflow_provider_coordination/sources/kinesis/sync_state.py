"""The state of shard sync in the source's global state, and the summary of a sync.

For each stream it has the position where the stream started, the time of the last listing, and the hole that the audit
observes. A missing lease that is found years later starts at that position too, so that nothing is skipped. The state
takes a few hundred bytes for each stream, and nothing for each shard.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from itertools import islice
from typing import Any

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinesis.bounds import EARLIEST
from airflow_provider_coordination.sources.kinesis.leases import HoleTracker, StreamKey
from airflow_provider_coordination.sources.kinesis.positions import TRIM_HORIZON, parse_position
from airflow_provider_coordination.sources.kinesis.shards import Shard

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StreamState:
    """The state of one stream.

    :param stream: its name.
    :param creation_epoch: when it was created, in whole seconds since 1970.
    :param began: the position at which its first leases started.
    :param listed_at: when all its shards were last listed (aware); None if they never were.
    :param hole: the uncovered hash keys that the audit found last; None if it found none.
    :param sights: how many times in a row it found this hole.
    :param bounds: the bounds of the read, see `Bounds.name`; None if it is read without bounds.
    :param account: the account that owns it; None if the service did not return it.
    :raises ValueError: if `began` is not a position.
    """

    stream: str
    creation_epoch: int
    began: str
    listed_at: datetime | None = None
    hole: str | None = None
    sights: int = 0
    bounds: str | None = None
    account: str | None = None

    def __post_init__(self) -> None:
        parse_position(self.began)

    @property
    def key(self) -> StreamKey:
        """The key of the stream."""
        return StreamKey(self.stream, self.creation_epoch)

    @property
    def tracker(self) -> HoleTracker:
        """The tracker of the stream's hole."""
        return HoleTracker(self.hole, self.sights)

    def with_tracker(self, tracker: HoleTracker) -> StreamState:
        """Return the state with a new tracker of the hole."""
        return replace(self, hole=tracker.hole, sights=tracker.sights)


@dataclass(frozen=True, kw_only=True)
class SyncState:
    """The state of a source.

    :param streams: its streams, including earlier ones as long as they have leases.
    :param named: the names of its streams at the last sync that was given all of them.
    """

    streams: tuple[StreamState, ...] = ()
    named: tuple[str, ...] = field(default=())

    def of(self, key: StreamKey) -> StreamState | None:
        """Return the state of a stream; None if there is none."""
        return next((state for state in self.streams if state.key == key), None)

    def latest(self, stream: str) -> StreamState | None:
        """Return the state of the youngest stream of a name; None if there is none."""
        known = (state for state in self.streams if state.stream == stream)
        return max(known, key=lambda state: state.creation_epoch, default=None)

    def listed_at(self, stream: str, *, since: int) -> datetime | None:
        """Return when the streams of a name were last listed (aware); None if they never were.

        :param since: only streams that were created at this time, in whole seconds since 1970, or later.
        """
        known = (each for each in self.streams if each.stream == stream and each.creation_epoch >= since)
        return max((each.listed_at for each in known if each.listed_at is not None), default=None)

    def has_listed(self, streams: Iterable[str], bounds: str) -> bool:
        """Return whether a sync of each of these streams within the bounds of this name is complete."""
        known = map(self.latest, streams)
        return all(each is not None and each.bounds == bounds and each.listed_at is not None for each in known)

    def with_stream(self, state: StreamState) -> SyncState:
        """Return the state with a stream added or replaced."""
        others = tuple(known for known in self.streams if known.key != state.key)
        return replace(self, streams=(*others, state))

    def without_forgotten(self, leased: Collection[StreamKey]) -> SyncState:
        """Return the state without streams that have no leases and are not named, or are earlier ones of a name."""
        kept = (
            state
            for state in self.streams
            if state.key in leased or (state.stream in self.named and state == self.latest(state.stream))
        )
        return replace(self, streams=tuple(kept))

    def to_mapping(self) -> dict[str, Any]:
        """Return the state as the JSON object that is stored."""
        return write_settings(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> SyncState:
        """Parse the stored global state, which may be empty.

        :raises SourceError: if it was written by hand, by another system or by a newer version.
        """
        try:
            return read_settings(cls, "global state of the shard sync", mapping)
        except (ConfigurationError, ValueError) as error:
            raise SourceError(
                f"{error}; it was written by hand, by another system or by a newer version of this package; restore "
                "it, or upgrade"
            ) from error


def began_at(other: SourceCoordinator, streams: Sequence[str]) -> datetime:
    """Return the instant from which a source reads all of these streams; `EARLIEST` if it reads all that they keep.

    :param other: the coordinator of that source.
    :raises ConfigurationError: if the source has not started one of them, or started them at different instants.
    """
    state = SyncState.from_mapping(other.view.supplier_state())
    what = f"field 'deduplicate_against': source {other.source!r}"
    began: dict[str, datetime] = {}
    for stream in streams:
        known = state.latest(stream)
        if known is None:
            raise ConfigurationError(
                f"{what} has not started stream {stream!r}, so its start is not known; run its shard sync first, "
                "or name the source that reads the stream"
            )
        began[stream] = parse_position(known.began).timestamp or EARLIEST
    instants = set(began.values())
    if len(instants) > 1:
        begun = ", ".join(
            f"{name!r} at {at.isoformat() if at > EARLIEST else TRIM_HORIZON}" for name, at in began.items()
        )
        raise ConfigurationError(
            f"{what} did not start the streams at one instant, but {begun}; give each stream its own interval"
        )
    return instants.pop()


MAX_LISTED = 100
"""How many entries of each list a summary contains as JSON; the counts cover all."""


class ShardSyncMetric(StrEnum):
    """The metrics of shard syncs, each with the tags `source` and `store`."""

    SYNCS = "coordination.shard_syncs"
    """A shard sync was completed."""
    SKIPPED = "coordination.shard_syncs_skipped"
    """A shard sync was not run: nothing could have changed, or another worker was running it."""
    FAILURES = "coordination.shard_sync_failures"
    """A stream could not be synced."""
    LEASES_CREATED = "coordination.shard_leases_created"
    LEASES_REMOVED = "coordination.shard_leases_removed"
    """The lease of a finished shard was deleted."""
    HOLES = "coordination.hash_range_holes"
    """The audit confirmed a range of hash keys that no partition covers."""


@dataclass
class StreamSync:
    """The result of a shard sync for one stream.

    :param stream: the stream's name.
    :param creation_epoch: when it was created, in whole seconds since 1970; None if that is not known.
    :param shards: the number of listed shards; None if they were not listed.
    :param open_shards: the number of open shards among them.
    :param existing: the number of partitions of this stream before the sync.
    :param began: the position at which the stream's first partitions started.
    :param created: the keys of the partitions that it created.
    :param removed: the partitions that it deleted, each with the reason.
    :param lost: the partitions whose shard was gone before it was read, each with the range; new losses only.
    :param parked: the partitions that it parked until a user decides.
    :param ended: the partitions that it completed after a loss.
    :param reopened: the partitions that an earlier sync parked and that it made available again.
    :param held: the partitions that it would have parked, completed or deleted, but that a job holds.
    :param waiting: the shards that wait for a consistent listing: their parent is listed as open.
    :param hole: what no partition covers: the first range of hash keys, as `first-last`, or the `children of` a shard;
        None if there is nothing.
    :param error: why the stream could not be synced; None if it could.
    """

    stream: str
    creation_epoch: int | None = None
    shards: int | None = None
    open_shards: int | None = None
    existing: int = 0
    began: str | None = None
    created: list[str] = field(default_factory=list)
    removed: dict[str, str] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)
    parked: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    reopened: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    hole: str | None = None
    error: str | None = None

    def note_listing(self, shards: Collection[Shard]) -> None:
        """Record how many shards are listed."""
        self.shards, self.open_shards = len(shards), sum(shard.is_open for shard in shards)

    @property
    def counts(self) -> dict[str, int]:
        """The length of each list that is not empty."""
        lists = {name: value for name, value in asdict(self).items() if isinstance(value, list | dict)}
        return {name: len(value) for name, value in lists.items() if value}


@dataclass
class ShardSyncSummary:
    """The result of a shard sync.

    :param source: the source's name.
    :param streams: the results of the streams, in the order in which they were named.
    :param put_aside: the partitions of streams that are no longer named, which it parked.
    :param skipped: why it did nothing, or not everything; None if it was completed.
    """

    source: str
    streams: list[StreamSync] = field(default_factory=list)
    put_aside: list[str] = field(default_factory=list)
    skipped: str | None = None

    def report(self, count: Callable[[ShardSyncMetric, int], None]) -> None:
        """Log what was done, and count it.

        :param count: increases a metric.
        """
        count(ShardSyncMetric.SYNCS, 1)
        for stream in self.streams:
            count(ShardSyncMetric.LEASES_CREATED, len(stream.created))
            count(ShardSyncMetric.LEASES_REMOVED, len(stream.removed))
            log.info(
                "shard sync: source=%s stream=%s epoch=%s shards=%s open=%s partitions_before=%d %s",
                self.source, stream.stream, stream.creation_epoch, stream.shards, stream.open_shards,
                stream.existing, " ".join(f"{name}={number}" for name, number in stream.counts.items()) or "no change",
            )  # fmt: skip
            for key, why in stream.removed.items():
                log.info("shard sync: removed partition=%s: %s", key, why)
            if stream.hole is not None:
                text = "shard sync: stream=%s: no partition reads the %s"
                if stream.hole[:1].isdigit():
                    text = "shard sync: stream=%s: no partition covers the hash keys %s"
                log.warning(text, stream.stream, stream.hole)
        if self.put_aside:
            log.warning(
                "shard sync: source=%s: parked %d partitions of streams that are no longer named: %s",
                self.source, len(self.put_aside), ", ".join(self.put_aside[:10]),
            )  # fmt: skip

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a small JSON object: of each list the first `MAX_LISTED` entries, and the `counts` of all."""
        return {
            "source": self.source,
            "streams": [_shortened(asdict(stream)) | {"counts": stream.counts} for stream in self.streams],
            "put_aside": self.put_aside[:MAX_LISTED],
            "skipped": self.skipped,
        }


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: type(value)(islice(value.items() if isinstance(value, dict) else value, MAX_LISTED))
        if isinstance(value, dict | list)
        else value
        for name, value in values.items()
    }
