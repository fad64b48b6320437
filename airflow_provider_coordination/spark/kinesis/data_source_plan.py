"""The plan of a read by the data source: the shards and their ranges, fixed before anything is read.

Spark plans each query on a frame again. The plan fixes "now" at the creation of the frame, so every query and every
retried task reads the same records.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.sources.kinesis.bounds import beginning_at, trimmed_part
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.fan_out import ensure_consumer
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, Position, at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import ShardRange
from airflow_provider_coordination.sources.kinesis.reader import DATE_RESOLUTION
from airflow_provider_coordination.sources.kinesis.shards import (
    Shard,
    StreamDescription,
    describe_stream,
    shard_listing,
)
from airflow_provider_coordination.spark.kinesis.data_source_options import FORMAT, ReadOptions, ShardNumbers
from airflow_provider_coordination.spark.slots import distribute

log = logging.getLogger(__name__)

MAX_END_AHEAD = timedelta(days=1)
"""How far in the future a read may end; it waits until then."""
MAX_SHARDS_PER_TASK = 64
"""About the number of shards that one processor can read at Kinesis' maximum rate per shard."""


@dataclass(frozen=True, kw_only=True)
class PlannedShardRange:
    """The part of one shard to read.

    :param stream: the name of the stream.
    :param shard_id: the shard.
    :param hash_keys: the hash keys of the shard.
    :param start: where reading starts, and what is known of the records before.
    :param until: read records that arrived before this instant (aware).
    :param end: the sequence number of the last Kinesis record; None if `until` defines the end.
    :param consumer_arn: read by enhanced fan-out as this consumer; None polls.
    :param reads_children: whether to read the child shards as well that were created after the read was planned.
    """

    stream: str
    shard_id: str
    hash_keys: HashKeyRange
    start: BatchStart
    until: datetime
    end: str | None = None
    consumer_arn: str | None = None
    reads_children: bool = False

    @property
    def stop(self) -> Position:
        """The position where reading ends."""
        return Position(timestamp=self.until) if self.end is None else Position(sequence_number=self.end)

    def child(self, child: ShardRange) -> PlannedShardRange:
        """Return the range of a child shard."""
        hash_keys = HashKeyRange(int(child.starting_hash_key), int(child.ending_hash_key))
        return replace(self, shard_id=child.shard_id, hash_keys=hash_keys)


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """The plan of a read by the data source.

    :param tasks: the shards that each task reads.
    :param listed: the shards of each stream that were known when the read was planned.
    """

    tasks: Sequence[Sequence[PlannedShardRange]]
    listed: Mapping[str, frozenset[str]]


def read_plan(
    options: ReadOptions, client: KinesisClient, started_at: datetime, clock: Clock, processors: int
) -> ReadPlan:
    """Return the plan of a read.

    :param options: the options of the read.
    :param client: as `kinesis_client` returns it.
    :param started_at: when the read began (aware), by the local clock.
    :param clock: the local clock.
    :param processors: the number of worthwhile tasks, used if the options do not limit the shards per task.
    :raises ConfigurationError: if an option does not fit the current streams.
    :raises CoordinationError: if a stream cannot be described.
    """
    streams, begins = [], []
    for name in options.streams:
        asked_at = clock.now()
        streams.append(describe_stream(client, name))
        begins.append(_after(started_at, streams[-1], asked_at, clock.now()))
    begun = max(begins)
    if options.end is not None and options.end > begun + MAX_END_AHEAD:
        raise ConfigurationError(
            f"{FORMAT}: option 'endingPosition' is {options.end.isoformat()}, but the read began at "
            f"{begun.isoformat()}: it waits for its end, so give an end at most {MAX_END_AHEAD.days * 24} hours ahead"
        )
    end = options.end or begun
    start = begun if options.start == LATEST else options.start
    if isinstance(start, datetime) and start >= end:
        raise ConfigurationError(
            f"{FORMAT}: option 'initialPosition' is {start.isoformat()}, but the read ends at {end.isoformat()}: begin "
            "earlier, or give an endingPosition after it"
        )
    ranges: list[PlannedShardRange] = []
    listed: dict[str, frozenset[str]] = {}
    for stream in streams:
        planning = _StreamPlan(options, client, stream, None if isinstance(start, str) else start, end, clock)
        listed[stream.name] = frozenset(planning.shards)
        ranges += planning.ranges()
    each_task = options.shards_per_task or min(MAX_SHARDS_PER_TASK, math.ceil(len(ranges) / processors))
    tasks = distribute(ranges, math.ceil(len(ranges) / each_task)) if ranges else []
    return ReadPlan(tasks=tasks, listed=listed)


def _after(started_at: datetime, stream: StreamDescription, asked_at: datetime, responded_at: datetime) -> datetime:
    """Return an instant by the service's clock that is later than all records that existed when the read began.

    The service dates its responses in whole seconds. If the local clock agrees with them, it is right to the second.

    :param started_at: when the read began (aware), by the local clock.
    :param stream: as the service described it.
    :param asked_at: when the request was sent (aware), by the local clock.
    :param responded_at: when the response arrived (aware), by the local clock.
    """
    described_at = stream.described_at
    if described_at is None or asked_at - DATE_RESOLUTION < described_at <= responded_at:
        return started_at + DATE_RESOLUTION
    return started_at + (described_at - asked_at) + DATE_RESOLUTION


class _StreamPlan:
    """The plan of one stream's shards."""

    def __init__(
        self,
        options: ReadOptions,
        client: KinesisClient,
        stream: StreamDescription,
        start: datetime | None,
        end: datetime,
        clock: Clock,
    ) -> None:
        if options.stream_arn is not None and stream.arn and stream.arn != options.stream_arn:
            raise ConfigurationError(
                f"{FORMAT}: option 'streamARN' is {options.stream_arn!r}, but the credentials lead to {stream.arn!r}: "
                "give roleArn, or keys, of the account that owns the stream"
            )
        self._options, self._stream, self._start, self._end, self._clock = options, stream, start, end, clock
        kept = None
        if start is not None and not (options.shard_ids or options.ranges):
            kept = {"Type": "FROM_TIMESTAMP", "Timestamp": min(start, stream.described_at or clock.now())}
        self.shards: Mapping[str, Shard] = {
            shard.shard_id: shard for shard in shard_listing(client, stream.name, shard_filter=kept).shards
        }
        self._consumer_arn = None
        if options.consumer_name is not None:
            self._consumer_arn = ensure_consumer(client, stream.name, stream.arn, options.consumer_name)

    def ranges(self) -> list[PlannedShardRange]:
        """Return the ranges of all shards to read."""
        if self._start is not None and (lost := trimmed_part(self._stream, self._start, self._end)):
            self._handle_loss(f"{lost}, but option 'initialPosition' requests it; begin later")
        if self._options.ranges:
            return [
                self._part_of_shard(self._require_shard("shardRanges", each.shard_id), each)
                for each in self._existing_ranges()
            ]
        if self._options.shard_ids:
            return [self._whole_shard(self._require_shard("shardIds", name)) for name in self._options.shard_ids]
        return [replace(self._whole_shard(shard), reads_children=True) for shard in self.shards.values()]

    def _existing_ranges(self) -> list[ShardNumbers]:
        """Return the ranges whose shards still exist; missing shards are data loss."""
        there = []
        for each in self._options.ranges:
            if each.shard_id in self.shards:
                there.append(each)
            else:
                self._handle_loss(
                    f"stream {self._stream.name!r} has no shard {each.shard_id!r}, which option 'shardRanges' names: "
                    "it has expired with its records, or never existed; correct its name, or leave it out"
                )
        return there

    def _require_shard(self, option: str, shard_id: str) -> Shard:
        if shard_id not in self.shards:
            raise ConfigurationError(
                f"{FORMAT}: option '{option}' names shard {shard_id!r}, but stream {self._stream.name!r} has none: it "
                "has expired with its records, or never existed; correct its name, or leave it out"
            )
        return self.shards[shard_id]

    def _handle_loss(self, lost: str) -> None:
        if self._options.fail_on_data_loss:
            raise ConfigurationError(f"{FORMAT}: {lost}, or read the remaining records with failOnDataLoss=false")
        log.error("data loss: %s", lost)

    def _whole_shard(self, shard: Shard) -> PlannedShardRange:
        start = BatchStart(
            position=TRIM_HORIZON if self._start is None else at_timestamp(self._start),
            # Records that arrived before the start are not requested. Before the stream was created, nothing arrived.
            delivered_until=None if self._start is None else max(self._start, self._stream.created_at),
            retention=self._stream.retention,
        )
        return PlannedShardRange(
            stream=self._stream.name,
            shard_id=shard.shard_id,
            hash_keys=HashKeyRange(int(shard.starting_hash_key), int(shard.ending_hash_key)),
            start=start,
            until=self._end,
            consumer_arn=self._consumer_arn,
        )

    def _part_of_shard(self, shard: Shard, wanted: ShardNumbers) -> PlannedShardRange:
        first, last = int(shard.starting_sequence_number), int(shard.ending_sequence_number or 0)
        its = f"begin at {first}" + (f" and end at {last}" if last else "")
        for field, number in (("start", wanted.start), ("end", wanted.end)):
            if number is not None and (int(number) < first or (last and int(number) > last)):
                raise ConfigurationError(
                    f"{FORMAT}: option 'shardRanges' has {number} as {field!r} of shard {shard.shard_id!r}, whose "
                    f"sequence numbers {its}; give one of these"
                )
        rest = replace(self._whole_shard(shard), end=wanted.end)
        if wanted.start is None:
            return rest
        position, since = beginning_at(self._stream, self.shards, shard, wanted.start, self._clock.now())
        return replace(rest, start=replace(rest.start, position=position, delivered_until=since))
