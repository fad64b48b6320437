"""Where a stream begins that is new to its source, and which shards took records there.

`LATEST` becomes the instant at which it was asked for, by the clock of the service, and that instant is remembered: a
lease that is found missing later begins there too, so that nothing since is skipped. The Kinesis Client Library stores
`LATEST` itself, which skips whatever arrives until somebody reads.
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
"""The service tells the time in whole seconds."""
CREATION_SECONDS = timedelta(seconds=60)
"""A stream may say that it was created so long before its first shards were."""
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Beginning:
    """Where a stream begins.

    :param position: for the decision which leases to create: a position, or `LATEST` as long as it is not known since
        when.
    :param began: the position that new leases begin at, and that is remembered.
    """

    position: str
    began: str


def check_initial_position(position: str) -> None:
    """Check that a source can begin at a position.

    :raises ConfigurationError: if it is none of a stream, but of a shard, or before 1970.
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
            f"{field}, a sequence number, which is a position of one shard: give {TRIM_HORIZON}, {LATEST} or an instant"
        )
    if parsed.timestamp is not None and parsed.timestamp < EARLIEST:
        raise ConfigurationError(f"{field}, which is before 1970: give {TRIM_HORIZON} for the earliest record")


def resolved(
    position: str, described: StreamDescription, *, listed_at: datetime | None, is_known: bool, now: datetime
) -> Beginning:
    """Return where a stream begins.

    :param position: as configured, or as it is remembered.
    :param listed_at: when its shards were listed, by the service's clock (aware).
    :param is_known: whether the position is remembered, and was checked when it was new.
    :param now: by the own clock (aware).
    :raises ConfigurationError: if it is an instant that is yet to come.
    """
    if position == LATEST:
        # Never later than the own clock says: Kinesis refuses an instant that is yet to come.
        return Beginning(LATEST, at_timestamp(min(listed_at or now, now)))
    instant = parse_position(position).timestamp
    if instant is None or is_known:
        return Beginning(position, position)
    service_now = described.described_at + DATE_ACCURACY if described.described_at is not None else now
    if instant > service_now:
        raise ConfigurationError(
            f"stream '{described.name}': field 'initial_position' is {position!r}, which is yet to come: it is "
            f"{service_now:%Y-%m-%dT%H:%M:%SZ}; give an earlier instant, or {LATEST}"
        )
    if instant < service_now - timedelta(hours=described.retention_hours):
        log.warning(
            "stream %s keeps records for %d hours, and not since %s: it is read from its earliest record",
            described.name, described.retention_hours, position,
        )  # fmt: skip
        return Beginning(TRIM_HORIZON, TRIM_HORIZON)
    return Beginning(position, position)


def first_shards(
    client: KinesisClient,
    described: StreamDescription,
    position: str,
    *,
    is_known: bool,
    now: datetime,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[ShardListing, Beginning]:
    """List the shards that took records at a position, which the service picks, and return where they begin.

    :param client: as `kinesis_client` returns it.
    :param described: the stream.
    :param position: see `resolved`, as the others.
    :param sleep: waits that many seconds.
    :raises IncompleteListingError: if the listing stays incomplete.
    :raises ConfigurationError: if the position is an instant that is yet to come.
    """
    beginning = resolved(position, described, listed_at=None, is_known=is_known, now=now)
    shard_filter = _filter(beginning.position, described, now)
    try:
        listing = complete_listing(client, described.name, shard_filter=shard_filter, sleep=sleep)
    except IncompleteListingError:
        at = shard_filter.get("Timestamp") or described.described_at or now
        if shard_filter["Type"] == "AT_LATEST" or not _is_near_creation(at, described):
            raise
        # At that instant the stream had no shard yet. Those that it was created with hold everything since.
        listing = complete_listing(client, described.name, shard_filter={"Type": "FROM_TRIM_HORIZON"}, sleep=sleep)
    return listing, resolved(beginning.position, described, listed_at=listing.listed_at, is_known=is_known, now=now)


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
