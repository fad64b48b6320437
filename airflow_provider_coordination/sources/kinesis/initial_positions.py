"""Where a stream that is new to its source starts, and which shards received records at that position.

`LATEST` becomes the instant of the request, by the clock of the service, and that instant is stored. A lease that is
found missing later starts there too, so that nothing is skipped. The Kinesis Client Library stores `LATEST` itself,
which skips everything that arrives until a worker reads the shard.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.errors import IncompleteListingError
from airflow_provider_coordination.sources.kinesis.positions import (
    LATEST,
    TRIM_HORIZON,
    at_timestamp,
    parse_position,
)
from airflow_provider_coordination.sources.kinesis.shards import (
    ShardListing,
    StreamDescription,
    complete_listing,
)

log = logging.getLogger(__name__)

DATE_ACCURACY = timedelta(seconds=1)
"""The service reports the time in whole seconds."""
CREATION_SECONDS = timedelta(seconds=60)
"""The creation time of a stream may be this much earlier than the creation time of its first shards."""
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class StartPosition:
    """Where a stream starts.

    :param position: the position that decides which leases are created; `LATEST` until its instant is known.
    :param began: the position at which new leases start, and which is stored.
    """

    position: str
    began: str


def check_initial_position(position: str) -> None:
    """Check that a source can start at a position.

    :raises ConfigurationError: if it is a position of one shard and not of a stream, or before 1970.
    """
    field = f"field 'initial_position' is {position!r}"
    if position == LATEST:
        return
    try:
        parsed = parse_position(position)
    except ValueError as error:
        raise ConfigurationError(f"{field}: {error}; give {TRIM_HORIZON}, {LATEST} or an instant") from None
    if parsed.sequence_number is not None:
        raise ConfigurationError(
            f"{field}, a sequence number, which is a position of one shard; give {TRIM_HORIZON}, {LATEST} or an instant"
        )
    if parsed.timestamp is not None and parsed.timestamp < EARLIEST:
        raise ConfigurationError(f"{field}, which is before 1970; give {TRIM_HORIZON} for the earliest record")


def resolve_start(
    position: str, described: StreamDescription, *, listed_at: datetime | None, is_known: bool, now: datetime
) -> StartPosition:
    """Return where a stream starts.

    :param position: as configured, or as stored.
    :param listed_at: when its shards were listed, by the service's clock (aware).
    :param is_known: whether the position is a stored one, which was checked when it was new.
    :param now: by the local clock (aware).
    :raises ConfigurationError: if it is an instant in the future.
    """
    if position == LATEST:
        # Never later than the local clock: Kinesis rejects an instant in the future.
        return StartPosition(LATEST, at_timestamp(min(listed_at or now, now)))
    instant = parse_position(position).timestamp
    if instant is None or is_known:
        return StartPosition(position, position)
    service_now = described.described_at + DATE_ACCURACY if described.described_at is not None else now
    if instant > service_now:
        raise ConfigurationError(
            f"stream '{described.name}': field 'initial_position' is {position!r}, which is in the future: now is "
            f"{service_now:%Y-%m-%dT%H:%M:%SZ}; give an earlier instant, or {LATEST}"
        )
    if instant < service_now - timedelta(hours=described.retention_hours):
        log.warning(
            "stream %s keeps records for %d hours only, and not since %s: it is read from its earliest record",
            described.name, described.retention_hours, position,
        )  # fmt: skip
        return StartPosition(TRIM_HORIZON, TRIM_HORIZON)
    return StartPosition(position, position)


def first_shards(
    client: KinesisClient,
    described: StreamDescription,
    position: str,
    *,
    is_known: bool,
    now: datetime,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[ShardListing, StartPosition]:
    """List the shards that received records at a position, as the service selects them, and return where they start.

    :param client: as `kinesis_client` returns it.
    :param described: the stream.
    :param position: see `resolve_start`, also for the other parameters.
    :param sleep: waits that many seconds.
    :raises IncompleteListingError: if the listing stays incomplete.
    :raises ConfigurationError: if the position is an instant in the future.
    """
    start = resolve_start(position, described, listed_at=None, is_known=is_known, now=now)
    shard_filter = _filter(start.position, described, now)
    try:
        listing = complete_listing(client, described.name, shard_filter=shard_filter, sleep=sleep)
    except IncompleteListingError:
        at = shard_filter.get("Timestamp") or described.described_at or now
        if shard_filter["Type"] == "AT_LATEST" or not _is_near_creation(at, described):
            raise
        # At that instant the stream had no shard yet. The shards that it was created with hold everything since.
        listing = complete_listing(client, described.name, shard_filter={"Type": "FROM_TRIM_HORIZON"}, sleep=sleep)
    return listing, resolve_start(start.position, described, listed_at=listing.listed_at, is_known=is_known, now=now)


def _filter(position: str, described: StreamDescription, now: datetime) -> dict[str, Any]:
    if position == LATEST:
        return {"Type": "AT_LATEST"}
    instant = parse_position(position).timestamp
    kept_since = (described.described_at or now) - timedelta(hours=described.retention_hours)
    created = datetime.fromtimestamp(described.creation_epoch, UTC)
    if instant is None or instant <= max(kept_since, created):
        return {"Type": "AT_TRIM_HORIZON"}
    return {"Type": "AT_TIMESTAMP", "Timestamp": instant}


def _is_near_creation(instant: datetime, described: StreamDescription) -> bool:
    return instant - datetime.fromtimestamp(described.creation_epoch, UTC) <= CREATION_SECONDS
