"""What a shard sync found and did, and what is counted of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

NAMED_AT_MOST = 100
"""So many partitions of a kind are named in a summary that travels; the counts are of all."""


class ShardSyncMetric(StrEnum):
    """What shard syncs count, each with the tags `source` and `store`."""

    SYNCS = "coordination.shard_syncs"
    """A shard sync ran to its end."""
    SKIPPED = "coordination.shard_syncs_skipped"
    """A shard sync was not run: nothing could have changed, or another worker was running it."""
    FAILURES = "coordination.shard_sync_failures"
    """A stream could not be synced."""
    LEASES_CREATED = "coordination.shard_leases_created"
    LEASES_REMOVED = "coordination.shard_leases_removed"
    """The lease of a shard that was worked off was deleted."""
    HOLES = "coordination.hash_range_holes"
    """The audit was certain of a range of hash keys that nobody reads."""


@dataclass
class StreamSync:
    """What a shard sync found and did for one stream.

    :param stream: the stream's name.
    :param creation_epoch: when it was created, in whole seconds since 1970; None if that is not known.
    :param shards: how many shards are listed; None if they were not listed.
    :param open_shards: how many of them take records.
    :param existing: how many partitions of this stream there were before.
    :param began: the position at which the stream's first partitions began.
    :param created: the keys of the partitions it created.
    :param removed: the partitions it deleted, each with the reason.
    :param lost: the partitions whose shard was gone before it was read, each with the range; new ones only.
    :param parked: the partitions it put aside until a person decides.
    :param ended: the partitions it finished behind a loss.
    :param reopened: the partitions it made available again that an earlier sync had put aside.
    :param held: partitions that it would have put aside, finished or deleted and that a job holds.
    :param waiting: shards that wait for a listing that makes sense: their parent is listed as open.
    :param hole: the first range of hash keys that nobody reads, as `first-last`; None if there is none.
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

    @property
    def counts(self) -> dict[str, int]:
        """How many partitions, or shards, each kind has, where it has any."""
        lists = {name: value for name, value in asdict(self).items() if isinstance(value, list | dict)}
        return {name: len(value) for name, value in lists.items() if value}


@dataclass
class ShardSyncSummary:
    """What a shard sync found and did.

    :param source: the source's name.
    :param streams: of each stream, in the order in which they were named.
    :param put_aside: partitions of streams that are no longer named, which it put aside.
    :param skipped: why it did nothing, or not all; None if it ran to its end.
    """

    source: str
    streams: list[StreamSync] = field(default_factory=list)
    put_aside: list[str] = field(default_factory=list)
    skipped: str | None = None

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a small JSON object: of each list the first `NAMED_AT_MOST` entries, and the `counts` of all."""
        return {
            "source": self.source,
            "streams": [_shortened(asdict(stream)) | {"counts": stream.counts} for stream in self.streams],
            "put_aside": self.put_aside[:NAMED_AT_MOST],
            "skipped": self.skipped,
        }


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _first_of(value) for name, value in values.items()}


def _first_of(value: Any) -> Any:
    match value:
        case list():
            return value[:NAMED_AT_MOST]
        case dict():
            return dict(list(value.items())[:NAMED_AT_MOST])
    return value
