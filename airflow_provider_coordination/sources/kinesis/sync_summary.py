"""The result of a shard sync, and its metrics."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

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
    :param hole: the first range of hash keys that no partition covers, as `first-last`; None if there is none.
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

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a small JSON object: of each list the first `MAX_LISTED` entries, and the `counts` of all."""
        return {
            "source": self.source,
            "streams": [_shortened(asdict(stream)) | {"counts": stream.counts} for stream in self.streams],
            "put_aside": self.put_aside[:MAX_LISTED],
            "skipped": self.skipped,
        }


def _shortened(values: dict[str, Any]) -> dict[str, Any]:
    return {name: _first_of(value) for name, value in values.items()}


def _first_of(value: Any) -> Any:
    match value:
        case list():
            return value[:MAX_LISTED]
        case dict():
            return dict(list(value.items())[:MAX_LISTED])
    return value
