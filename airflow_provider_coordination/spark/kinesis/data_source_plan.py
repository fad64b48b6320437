"""Which part of which shards a read of the data source consists of; fixed before anything is read.

Spark plans each query on a frame anew. What "now" means was fixed when the frame was made, so every query reads the
same, and so does a task that is tried again.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from airflow_provider_coordination.coordination.clock import Clock
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.sources.kinesis.bounds import beginning_at, trimmed_part
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.fan_out import ensure_consumer
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, Position, at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import ChildShard
from airflow_provider_coordination.sources.kinesis.reader import DATE_RESOLUTION
from airflow_provider_coordination.sources.kinesis.shards import (
    Shard,
    StreamDescription,
    describe_stream,
    shard_listing,
)
from airflow_provider_coordination.spark.kinesis.data_source_options import FORMAT, ReadOptions, ShardNumbers
from airflow_provider_coordination.spark.slots import dealt

log = logging.getLogger(__name__)

FARTHEST_END = timedelta(days=1)
"""How far ahead a read may end: it waits for that."""
MOST_SHARDS_PER_TASK = 64
"""About as many as one processor can read at the rate that Kinesis allows each."""


@dataclass(frozen=True, kw_only=True)
class ShardRange:
    """What is read of one shard.

    :param stream: the stream's name.
    :param shard_id: the shard.
    :param hash_keys: those that it takes.
    :param start: where reading begins, and what is known of the records before.
    :param until: read what arrived before this instant (aware).
    :param end: the sequence number of the last Kinesis record; None where `until` says where it ends.
    :param consumer_arn: read by enhanced fan-out as this consumer; None polls.
    :param followed: whether shards are read too in which it continues after the read was planned.
    """

    stream: str
    shard_id: str
    hash_keys: HashKeyRange
    start: BatchStart
    until: datetime
    end: str | None = None
    consumer_arn: str | None = None
    followed: bool = False

    @property
    def stop(self) -> Position:
        """Where reading ends."""
        return Position(timestamp=self.until) if self.end is None else Position(sequence_number=self.end)

    def child(self, child: ChildShard) -> ShardRange:
        """Return what is read of a shard in which it continues."""
        hash_keys = HashKeyRange(int(child.starting_hash_key), int(child.ending_hash_key))
        return replace(self, shard_id=child.shard_id, hash_keys=hash_keys)


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """A read of the data source.

    :param tasks: the shards that each task reads.
    :param listed: the shards of each stream that were known when it was planned.
    """

    tasks: Sequence[Sequence[ShardRange]]
    listed: Mapping[str, frozenset[str]]


def read_plan(
    options: ReadOptions, client: KinesisClient, begun_at: datetime, clock: Clock, processors: int
) -> ReadPlan:
    """Return what is to be read.

    :param options: of the read.
    :param client: as `kinesis_client` returns it.
    :param begun_at: when the read began (aware), by our own clock.
    :param clock: the same one.
    :param processors: how many tasks are worth it, where the options do not say how many shards each has.
    :raises ConfigurationError: if an option does not fit the streams as they are.
    :raises CoordinationError: if a stream cannot be described.
    """
    streams, begins = [], []
    for name in options.streams:
        asked_at = clock.now()
        streams.append(describe_stream(client, name))
        begins.append(_after(begun_at, streams[-1], asked_at, clock.now()))
    begun = max(begins)
    if options.end is not None and options.end > begun + FARTHEST_END:
        raise ConfigurationError(
            f"{FORMAT}: option 'endingPosition' is {options.end.isoformat()}, and the read began at "
            f"{begun.isoformat()}: it waits for its end, so give one no more than {FARTHEST_END.days * 24} hours ahead"
        )
    end = options.end or begun
    start = begun if options.start == LATEST else options.start
    if isinstance(start, datetime) and start >= end:
        raise ConfigurationError(
            f"{FORMAT}: option 'initialPosition' is {start.isoformat()}, and the read ends at {end.isoformat()}: begin "
            "earlier, or give an endingPosition after it"
        )
    ranges: list[ShardRange] = []
    listed: dict[str, frozenset[str]] = {}
    for stream in streams:
        planning = _Planning(options, client, stream, None if isinstance(start, str) else start, end, clock)
        listed[stream.name] = frozenset(planning.shards)
        ranges += planning.ranges()
    each_task = options.shards_per_task or min(MOST_SHARDS_PER_TASK, math.ceil(len(ranges) / processors))
    tasks = dealt(ranges, math.ceil(len(ranges) / each_task)) if ranges else []
    return ReadPlan(tasks=tasks, listed=listed)


def _after(begun_at: datetime, stream: StreamDescription, asked_at: datetime, answered_at: datetime) -> datetime:
    """Return an instant by the service's clock that lies after all that was in a stream when the read began.

    The service dates its answers in whole seconds. Where our own clock agrees with them it is right to the second.

    :param begun_at: when the read began (aware), by our own clock.
    :param stream: as the service described it.
    :param asked_at: when it was asked (aware), by our own clock.
    :param answered_at: when its answer was there (aware), by our own clock.
    """
    described_at = stream.described_at
    if described_at is None or asked_at - DATE_RESOLUTION < described_at <= answered_at:
        return begun_at + DATE_RESOLUTION
    return begun_at + (described_at - asked_at) + DATE_RESOLUTION


class _Planning:
    """What is read of one stream."""

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
                f"{FORMAT}: option 'streamARN' is {options.stream_arn!r}, and the credentials lead to {stream.arn!r}: "
                "give roleArn, or keys, of the account that the stream belongs to"
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

    def ranges(self) -> list[ShardRange]:
        """Return what is read of each shard."""
        if self._start is not None and (lost := trimmed_part(self._stream, self._start, self._end)):
            self._lose(f"{lost}, and option 'initialPosition' asks for it; begin later")
        if self._options.ranges:
            return [self._numbered(self._named("shardRanges", each.shard_id), each) for each in self._there()]
        if self._options.shard_ids:
            return [self._whole(self._named("shardIds", name)) for name in self._options.shard_ids]
        return [replace(self._whole(shard), followed=True) for shard in self.shards.values()]

    def _there(self) -> list[ShardNumbers]:
        """Return the ranges of shards that are still there, or reading on without the others."""
        there = []
        for each in self._options.ranges:
            if each.shard_id in self.shards:
                there.append(each)
            else:
                self._lose(
                    f"stream {self._stream.name!r} has no shard {each.shard_id!r}, which option 'shardRanges' names: "
                    "it expired with its records, or never was; correct its name, or leave it out"
                )
        return there

    def _named(self, option: str, shard_id: str) -> Shard:
        if shard_id not in self.shards:
            raise ConfigurationError(
                f"{FORMAT}: option '{option}' names shard {shard_id!r}, and stream {self._stream.name!r} has none: it "
                "expired with its records, or never was; correct its name, or leave it out"
            )
        return self.shards[shard_id]

    def _lose(self, lost: str) -> None:
        if self._options.fail_on_data_loss:
            raise ConfigurationError(f"{FORMAT}: {lost}, or read what is left by failOnDataLoss=false")
        log.error("data loss: %s", lost)

    def _whole(self, shard: Shard) -> ShardRange:
        created = datetime.fromtimestamp(self._stream.creation_epoch, UTC)
        start = BatchStart(
            position=TRIM_HORIZON if self._start is None else at_timestamp(self._start),
            # What arrived before the start is not asked for, and before the stream was created nothing did.
            delivered_until=None if self._start is None else max(self._start, created),
            retention=timedelta(hours=self._stream.retention_hours),
        )
        return ShardRange(
            stream=self._stream.name,
            shard_id=shard.shard_id,
            hash_keys=HashKeyRange(int(shard.starting_hash_key), int(shard.ending_hash_key)),
            start=start,
            until=self._end,
            consumer_arn=self._consumer_arn,
        )

    def _numbered(self, shard: Shard, wanted: ShardNumbers) -> ShardRange:
        first, last = int(shard.starting_sequence_number), int(shard.ending_sequence_number or 0)
        its = f"begin at {first}" + (f" and end at {last}" if last else "")
        for field, number in (("start", wanted.start), ("end", wanted.end)):
            if number is not None and (int(number) < first or (last and int(number) > last)):
                raise ConfigurationError(
                    f"{FORMAT}: option 'shardRanges' has {number} as {field!r} of shard {shard.shard_id!r}, whose "
                    f"sequence numbers {its}; give one of its own"
                )
        whole = replace(self._whole(shard), end=wanted.end)
        if wanted.start is None:
            return whole
        position, since = beginning_at(self._stream, self.shards, shard, wanted.start, self._clock.now())
        return replace(whole, start=replace(whole.start, position=position, delivered_until=since))
