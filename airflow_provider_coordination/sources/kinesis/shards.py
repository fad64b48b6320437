"""Streams and their shards, as DescribeStreamSummary and ListShards return them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from airflow_provider_coordination.aws import response_time
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.sources.kinesis.client import (
    IncompleteListingError,
    KinesisClient,
    ShardNotFoundError,
    StreamNotFoundError,
    StreamNotReadyError,
    kinesis_errors,
)
from airflow_provider_coordination.sources.kinesis.progress import KIND, ShardRange, hash_key_texts
from airflow_provider_coordination.sources.kinesis.stream_names import account_of, naming, stream_name, within_quota

log = logging.getLogger(__name__)

STATUS_POLL_SECONDS = 1.0
COMPLETE_LISTING_TRIES = 3
COMPLETE_LISTING_PAUSE_SECONDS = 1.0
MIN_RETENTION = timedelta(hours=24)
"""The shortest retention of a stream."""
MAX_HASH_KEY = 2**128 - 1


@dataclass(frozen=True)
class Shard(ShardRange):
    """One shard of a stream, as it is listed; see also `ShardRange`.

    :param starting_sequence_number: where it starts, a decimal number.
    :param ending_sequence_number: where it ends; None as long as it is open.
    """

    starting_sequence_number: str
    ending_sequence_number: str | None

    @property
    def is_open(self) -> bool:
        """Whether records can still arrive."""
        return self.ending_sequence_number is None

    def may_have(self, number: str) -> bool:
        """Return whether a sequence number is in its range."""
        last = self.ending_sequence_number
        return int(number) >= int(self.starting_sequence_number) and (last is None or int(number) <= int(last))

    @property
    def numbers(self) -> str:
        """Its range of sequence numbers, as text that follows `begin at`."""
        last = self.ending_sequence_number
        return self.starting_sequence_number + (f" and end at {last}" if last else "")

    @classmethod
    def from_api(cls, shard: Mapping[str, Any]) -> Shard:
        """Return the shard that an entry of ListShards describes."""
        parents = (shard.get("ParentShardId"), shard.get("AdjacentParentShardId"))
        first_key, last_key = hash_key_texts(shard)
        return cls(
            shard_id=shard["ShardId"],
            parent_shard_ids=tuple(parent for parent in parents if parent),
            starting_hash_key=first_key,
            ending_hash_key=last_key,
            starting_sequence_number=shard["SequenceNumberRange"]["StartingSequenceNumber"],
            ending_sequence_number=shard["SequenceNumberRange"].get("EndingSequenceNumber"),
        )


@dataclass(frozen=True)
class StreamDescription:
    """A stream that can be read.

    :param name: its name.
    :param creation_epoch: when it was created, in whole seconds since 1970; distinguishes it from earlier and
        later streams of the same name.
    :param open_shards: the number of open shards; None if only a listing has it.
    :param retention_hours: how long it keeps records, in hours.
    :param described_at: the time of the response by the service's clock (aware, UTC); None if unknown.
    :param arn: its ARN; empty if the service did not return it.
    :param address: how calls name it: its name, or its ARN if the user gave that or the name does not identify it.
    :param kind: the kind of source.
    :param ended: why it receives no more records, in a sentence with the remedy; None if it does. The last shards of
        such a stream have no children.
    :param earlier: the ARNs of earlier streams of this name that can still be read, by creation epoch.
    """

    name: str
    creation_epoch: int
    open_shards: int | None
    retention_hours: int
    described_at: datetime | None = field(default=None, compare=False)
    arn: str = field(default="", compare=False)
    address: str = field(default="", compare=False)
    kind: str = field(default=KIND, compare=False)
    ended: str | None = field(default=None, compare=False)
    earlier: Mapping[int, str] = field(default_factory=dict, compare=False)

    @property
    def account(self) -> str | None:
        """The account that owns it; None if unknown."""
        return account_of(self.arn)

    @property
    def retention(self) -> timedelta:
        """How long it keeps records."""
        return timedelta(hours=self.retention_hours)

    @property
    def created_at(self) -> datetime:
        """When it was created (aware)."""
        return datetime.fromtimestamp(self.creation_epoch, UTC)

    def check_new(self, *, is_known: bool) -> None:
        """Check that a stream which is new to a source receives records.

        :param is_known: whether the source reads it already; then it is read to its end, and that is logged.
        :raises StreamNotFoundError: if it does not.
        """
        if self.ended is not None and not is_known:
            raise StreamNotFoundError(self.ended)
        if self.ended is not None:
            log.warning("stream %s is read to its end: %s", self.name, self.ended)

    def kept_since(self, now: datetime) -> datetime:
        """Return the instant (aware) from which it still has every record.

        :param now: by the local clock (aware), if the service's is not known.
        """
        return (self.described_at or now) - self.retention


def describe_stream(
    client: KinesisClient,
    stream: str,
    *,
    ready_within_seconds: float = 60.0,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> StreamDescription:
    """Describe a stream; wait for a stream that is being created.

    :param client: as `kinesis_client` returns it.
    :param stream: the name or ARN of the stream.
    :param ready_within_seconds: how long to wait at most until it can be read.
    :param clock: measures the wait.
    :param sleep: waits that many seconds.
    :raises StreamNotFoundError: if the stream does not exist, or is being deleted.
    :raises StreamNotReadyError: if it is still being created after that time.
    """
    clock = clock or SystemClock()
    give_up_at = clock.monotonic() + ready_within_seconds
    while True:
        with kinesis_errors(client, stream):
            response = client.describe_stream_summary(**naming(stream))
        summary = response["StreamDescriptionSummary"]
        status = summary["StreamStatus"]
        if status in ("ACTIVE", "UPDATING"):
            return StreamDescription(
                name=stream_name(stream),
                creation_epoch=int(summary["StreamCreationTimestamp"].timestamp()),
                open_shards=summary.get("OpenShardCount"),
                retention_hours=summary["RetentionPeriodHours"],
                described_at=response_time(response),
                arn=summary.get("StreamARN", ""),
                address=summary.get("Address", stream),
                kind=summary.get("Kind", KIND),
                ended=summary.get("Ended"),
                earlier=summary.get("EarlierStreams", {}),
            )
        if status == "DELETING":
            raise StreamNotFoundError(f"stream '{stream}' is being deleted; name another stream, or create it again")
        if clock.monotonic() >= give_up_at:
            raise StreamNotReadyError(
                f"stream '{stream}' is {status} after {ready_within_seconds:g} s; try again when it is ACTIVE"
            )
        sleep(STATUS_POLL_SECONDS)


@dataclass(frozen=True)
class ShardListing:
    """A listing by ListShards.

    :param shards: in the order of the listing.
    :param listed_at: when it began, by the clock of the service (aware, UTC, whole seconds); None if unknown.
    """

    shards: Sequence[Shard]
    listed_at: datetime | None = None


def open_shards(client: KinesisClient, stream: str) -> int:
    """Return the number of open shards of a stream.

    :param client: as `kinesis_client` returns it.
    :param stream: the name or ARN of the stream.
    :raises SourceError: if the service is unavailable.
    :raises ConfigurationError: if the stream does not exist, or access is denied.
    """
    described = describe_stream(client, stream, ready_within_seconds=0)
    if described.open_shards is not None:
        return described.open_shards
    return sum(shard.is_open for shard in list_shards(client, described.address))


def list_shards(
    client: KinesisClient,
    stream: str,
    *,
    shard_filter: Mapping[str, Any] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[Shard]:
    """Return the shards of a stream; see `shard_listing`."""
    return list(shard_listing(client, stream, shard_filter=shard_filter, sleep=sleep).shards)


def shard_listing(
    client: KinesisClient,
    stream: str,
    *,
    shard_filter: Mapping[str, Any] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> ShardListing:
    """List all shards of a stream.

    If the quota of ListShards is exceeded, it waits, as the Kinesis Client Library does.

    :param client: as `kinesis_client` returns it.
    :param stream: the name or ARN of the stream.
    :param shard_filter: a ShardFilter as in the Kinesis API; by default every shard that is still listed,
        including closed ones.
    :param sleep: waits that many seconds.
    :raises StreamNotFoundError: if the stream does not exist.
    :raises StreamNotReadyError: if it is being created.
    :raises QuotaExceededError: if the quota stays exceeded for `QUOTA_TRIES` calls.
    """
    request: dict[str, Any] = naming(stream)
    if shard_filter:
        request["ShardFilter"] = dict(shard_filter)
    shards: list[Shard] = []
    listed_at: datetime | None = None
    while True:
        page = within_quota(partial(client.list_shards, **request), client, stream, sleep)
        listed_at = listed_at or response_time(page)
        shards.extend(map(Shard.from_api, page["Shards"]))
        if not page.get("NextToken"):
            return ShardListing(shards, listed_at)
        # The token stands for the stream and the filter; the API rejects them beside it.
        request = {"NextToken": page["NextToken"]}


def complete_listing(
    client: KinesisClient,
    stream: str,
    *,
    shard_filter: Mapping[str, Any],
    sleep: Callable[[float], None] = time.sleep,
) -> ShardListing:
    """List the shards that received records at one instant: together they cover every hash key exactly once.

    While a stream is resharded, a listing may contain both a parent and its child; then only the parent counts.

    :param client: as `kinesis_client` returns it.
    :param stream: the name or ARN of the stream.
    :param shard_filter: a ShardFilter that names one instant.
    :param sleep: waits that many seconds.
    :raises IncompleteListingError: if `COMPLETE_LISTING_TRIES` listings in a row miss hash keys, or cover some twice.
    """
    fault = ""
    for attempt in range(COMPLETE_LISTING_TRIES):
        if attempt:
            sleep(COMPLETE_LISTING_PAUSE_SECONDS)
        listing = shard_listing(client, stream, shard_filter=shard_filter, sleep=sleep)
        listed = {shard.shard_id for shard in listing.shards}
        oldest = [shard for shard in listing.shards if listed.isdisjoint(shard.parent_shard_ids)]
        fault = hash_range_fault(oldest)
        if not fault:
            return ShardListing(oldest, listing.listed_at)
        log.warning("stream %s: the listing of its shards is not complete: %s", stream, fault)
    raise IncompleteListingError(
        f"stream '{stream}': {COMPLETE_LISTING_TRIES} listings of its shards in a row were not complete: {fault}; "
        "is it being resharded? Try again"
    )


def is_gone(client: KinesisClient, stream: str, shard_id: str) -> bool:
    """Return whether the service reports that a shard does not exist, whatever a listing contains."""
    try:
        with kinesis_errors(client, stream, shard_id):
            client.get_shard_iterator(**naming(stream), ShardId=shard_id, ShardIteratorType="TRIM_HORIZON")
    except ShardNotFoundError:
        return True
    except (SourceError, ConfigurationError) as error:
        log.warning(
            "stream %s shard %s is not listed, and the check whether it is gone failed: %s", stream, shard_id, error
        )
    return False


def hash_range_fault(shards: Sequence[Shard]) -> str:
    """Return the problem if the shards do not cover every hash key exactly once; empty if they do, or have none."""
    if not shards:
        return "no shard is listed"
    if not any(shard.starting_hash_key for shard in shards):
        return ""
    expected, before = 0, "the first hash key"
    for start, end, name in sorted(
        (int(shard.starting_hash_key), int(shard.ending_hash_key), shard.shard_id) for shard in shards
    ):
        if start > expected:
            return f"no shard covers the hash keys {expected} to {start - 1}, between {before} and {name}"
        if start < expected or end < start:
            return f"the hash range {start} to {end} of {name} overlaps the one of {before}"
        expected, before = end + 1, name
    if expected != MAX_HASH_KEY + 1:
        return f"the last hash range, of {before}, ends at {expected - 1} and not at {MAX_HASH_KEY}"
    return ""
