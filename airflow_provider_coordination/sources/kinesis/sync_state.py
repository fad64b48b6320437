"""The state of shard sync in the source's global state.

For each stream it has the position where the stream started, the time of the last listing, and the hole that the audit
observes. A missing lease that is found years later starts at that position too, so that nothing is skipped. The state
takes a few hundred bytes for each stream, and nothing for each shard.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinesis.audit import HoleTracker
from airflow_provider_coordination.sources.kinesis.positions import parse_position
from airflow_provider_coordination.sources.kinesis.shard_leases import StreamKey


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
    :raises ValueError: if `began` is not a position.
    """

    stream: str
    creation_epoch: int
    began: str
    listed_at: datetime | None = None
    hole: str | None = None
    sights: int = 0
    bounds: str | None = None

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
