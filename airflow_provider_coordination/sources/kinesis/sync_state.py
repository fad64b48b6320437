"""What shard sync remembers from run to run, in the source's global state.

Of each stream: where it began, so that a gap found years later is filled from there and nothing is skipped; when it was
listed; and the hole that the audit watches. A few hundred bytes for each stream, and nothing for each shard.
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
    """What is remembered of a stream.

    :param stream: its name.
    :param creation_epoch: when it was created, in whole seconds since 1970.
    :param began: the position that its first leases began at.
    :param listed_at: when all its shards were listed last (aware); None if they never were.
    :param hole: the hash keys that nobody reads, as the audit saw them last; None for none.
    :param sights: how often in a row it saw this hole.
    :param bounds: what is read of it, see `Bounds.name`; None if it is read without bounds.
    :raises ValueError: if `began` is no position.
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
        """Which stream it is."""
        return StreamKey(self.stream, self.creation_epoch)

    @property
    def tracker(self) -> HoleTracker:
        """The hole as the audit tracks it."""
        return HoleTracker(self.hole, self.sights)

    def watching(self, tracker: HoleTracker) -> StreamState:
        """Return it with what the audit saw."""
        return replace(self, hole=tracker.hole, sights=tracker.sights)


@dataclass(frozen=True, kw_only=True)
class SyncState:
    """What is remembered of a source.

    :param streams: its streams, those before included while leases of them are left.
    :param named: the names of its streams, as the last sync that was given them all had them.
    """

    streams: tuple[StreamState, ...] = ()
    named: tuple[str, ...] = field(default=())

    def of(self, key: StreamKey) -> StreamState | None:
        """Return what is remembered of a stream; None for nothing."""
        return next((state for state in self.streams if state.key == key), None)

    def latest(self, stream: str) -> StreamState | None:
        """Return what is remembered of the youngest stream of a name; None for nothing."""
        known = (state for state in self.streams if state.stream == stream)
        return max(known, key=lambda state: state.creation_epoch, default=None)

    def having(self, state: StreamState) -> SyncState:
        """Return it with this of a stream, instead of what was remembered of it."""
        others = tuple(known for known in self.streams if known.key != state.key)
        return replace(self, streams=(*others, state))

    def without_forgotten(self, leased: Collection[StreamKey]) -> SyncState:
        """Return it without streams that are not named and have no leases left, and without the earlier of a name."""
        kept = (
            state
            for state in self.streams
            if state.key in leased or (state.stream in self.named and state == self.latest(state.stream))
        )
        return replace(self, streams=tuple(kept))

    def to_mapping(self) -> dict[str, Any]:
        """Return it as the JSON object that the global state holds."""
        return write_settings(self)

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any]) -> SyncState:
        """Return what the global state holds; nothing is remembered if that is empty.

        :raises SourceError: if it is something else: it was written by hand, by another system or by a newer version.
        """
        try:
            return read_settings(cls, "global state of the shard sync", mapping)
        except (ConfigurationError, ValueError) as error:
            raise SourceError(
                f"{error}; it was written by hand, by another system or by a newer version of this package: restore "
                "it, or upgrade"
            ) from error
