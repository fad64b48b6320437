"""Reading several shards at the same time, as Arrow batches of user records in the order of each shard.

Each shard has a thread, which waits nearly all the time. Memory for batches that are read but not yet consumed is
bounded.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from queue import SimpleQueue

import pyarrow as pa

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.kinesis.batch_reading import (
    BatchReading,
    BatchStart,
    DataLostError,
    ShardPage,
    ShardPart,
)
from airflow_provider_coordination.sources.kinesis.bounds import beginning_at, trimmed_part
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, ShardNotFoundError
from airflow_provider_coordination.sources.kinesis.fan_out import ensure_consumer, shard_pages
from airflow_provider_coordination.sources.kinesis.pacing import RetryBudget
from airflow_provider_coordination.sources.kinesis.positions import LATEST, TRIM_HORIZON, Position, at_timestamp
from airflow_provider_coordination.sources.kinesis.progress import SETTLING, ShardRange
from airflow_provider_coordination.sources.kinesis.reader import DATE_RESOLUTION, PageMemory
from airflow_provider_coordination.sources.kinesis.shards import (
    Shard,
    StreamDescription,
    describe_stream,
    shard_listing,
)
from airflow_provider_coordination.sources.kinesis.user_records import user_records
from airflow_provider_coordination.spark.job_settings import MIN_SLOT_MEMORY_BYTES as PAGE_BYTES
from airflow_provider_coordination.spark.kinesis.data_source_options import FORMAT, ReadOptions, ShardNumbers
from airflow_provider_coordination.spark.slot_memory import Share, SlotMemory
from airflow_provider_coordination.spark.slots import distribute

MAX_END_AHEAD = timedelta(days=1)
"""How far in the future a read may end; it waits until then."""
MAX_SHARDS_PER_TASK = 64
"""About the number of shards that one processor can read at Kinesis' maximum rate per shard."""


@dataclass(frozen=True, kw_only=True)
class PlannedShardRange(ShardPart):
    """The part of one shard to read, see also `ShardPart`.

    :param until: read records that arrived before this instant (aware), unless there is an `end`.
    :param reads_children: whether to read the child shards as well that were created after the read was planned.
    """

    until: datetime
    reads_children: bool = False

    @property
    def stop(self) -> Position:
        """The position where reading ends."""
        return Position(timestamp=self.until) if self.end is None else Position(sequence_number=self.end)

    def child(self, child: ShardRange) -> PlannedShardRange:
        """Return the range of a child shard."""
        return replace(self, shard_id=child.shard_id, hash_keys=child.hash_keys)


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
        streams.append(describe_stream(client, options.stream_arn or name))
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
        self._options, self._stream, self._start, self._end, self._clock = options, stream, start, end, clock
        kept = None
        if start is not None and not (options.shard_ids or options.ranges):
            kept = {"Type": "FROM_TIMESTAMP", "Timestamp": min(start, stream.described_at or clock.now())}
        self.shards: Mapping[str, Shard] = {
            shard.shard_id: shard for shard in shard_listing(client, stream.address, shard_filter=kept).shards
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
            stream_arn=self._options.stream_arn,
            shard_id=shard.shard_id,
            hash_keys=shard.hash_keys,
            start=start,
            until=self._end,
            consumer_arn=self._consumer_arn,
        )

    def _part_of_shard(self, shard: Shard, wanted: ShardNumbers) -> PlannedShardRange:
        for field, number in (("start", wanted.start), ("end", wanted.end)):
            if number is not None and not shard.may_have(number):
                raise ConfigurationError(
                    f"{FORMAT}: option 'shardRanges' has {number} as {field!r} of shard {shard.shard_id!r}, whose "
                    f"sequence numbers begin at {shard.numbers}; give one of these"
                )
        rest = replace(self._whole_shard(shard), end=wanted.end)
        if wanted.start is None:
            return rest
        position, since = beginning_at(self._stream, self.shards, shard, wanted.start, self._clock.now())
        return replace(rest, start=replace(rest.start, position=position, delivered_until=since))


log = logging.getLogger(__name__)

ATTEMPTS = 30
"""How often in a row a throttled or unavailable shard is tried: for about two minutes."""
STOP_CHECK_SECONDS = 0.5

COLUMNS: Mapping[str, tuple[pa.DataType, str]] = {
    "partitionKey": (pa.string(), "STRING"),
    "data": (pa.binary(), "BINARY"),
    "stream": (pa.string(), "STRING"),
    "shardId": (pa.string(), "STRING"),
    "sequenceNumber": (pa.string(), "STRING"),
    "approximateArrivalTimestamp": (pa.timestamp("us", tz="UTC"), "TIMESTAMP"),
    "subSequenceNumber": (pa.int64(), "BIGINT"),
}
"""The columns of the data source, each with its types in Arrow and in Spark."""
_SCHEMA = pa.schema([(name, arrow) for name, (arrow, _) in COLUMNS.items()])


@dataclass(frozen=True, kw_only=True)
class ShardReadSettings:
    """How to read shards.

    :param client: as `reading_client` returns it.
    :param listed: the planned shards of each stream; other shards are read after their parent.
    :param page_records: the number of records per request.
    :param memory_bytes: the limit of held data.
    :param reads_on: whether lost records are only logged.
    :param clock: measures time.
    :param sleep: waits for a number of seconds; None for a real wait, which ends when the consumer stops.
    """

    client: KinesisClient
    listed: Mapping[str, frozenset[str]]
    page_records: int
    memory_bytes: int
    reads_on: bool = False
    clock: Clock | None = None
    sleep: Callable[[float], None] | None = None


def shard_batches(ranges: Sequence[PlannedShardRange], reading: ShardReadSettings) -> Generator[pa.RecordBatch]:
    """Yield batches of user records, those of each shard in order, until every range is read.

    :param ranges: the parts of shards to read.
    :param reading: how to read them.
    :raises CoordinationError: if a shard cannot be read to its end.
    :raises SourceError: if records are lost, and reading must not continue.
    """
    memory = SlotMemory(reading.memory_bytes)
    results: SimpleQueue[pa.RecordBatch | _Read] = SimpleQueue()
    stopped = threading.Event()
    waiting = 0

    def begin(each: PlannedShardRange) -> None:
        task = partial(_read, each, reading, memory, results, stopped)
        threading.Thread(target=task, name=each.shard_id, daemon=True).start()

    try:
        for each in ranges:
            begin(each)
            waiting += 1
        while waiting:
            result = results.get()
            if isinstance(result, pa.RecordBatch):
                yield result
                memory.let_go(result.nbytes)
                continue
            if result.error is not None:
                raise result.error
            waiting += len(result.children) - 1
            for follower in result.children:
                begin(follower)
    finally:
        stopped.set()


@dataclass(frozen=True)
class _Read:
    """The end of a range.

    :param children: the ranges to read next.
    :param error: why the range could not be read.
    """

    children: Sequence[PlannedShardRange] = ()
    error: Exception | None = None


class _StoppedError(Exception):
    """The consumer of batches has stopped."""


class _Room(Share, PageMemory):
    """The memory that the next page of a shard needs; see `PageMemory`."""

    def __init__(self, memory: SlotMemory, stopped: threading.Event) -> None:
        super().__init__(memory, PAGE_BYTES)
        self._stopped = stopped

    @override
    def hold(self) -> None:
        while not self.hold_within(STOP_CHECK_SECONDS):
            if self._stopped.is_set():
                raise _StoppedError


def _read(
    each: PlannedShardRange,
    reading: ShardReadSettings,
    memory: SlotMemory,
    results: SimpleQueue[pa.RecordBatch | _Read],
    stopped: threading.Event,
) -> None:
    """Put the batches of a range into the queue, and then its end."""
    room = _Room(memory, stopped)
    batches = _Range(each, reading, room, stopped)
    try:
        for batch in batches.read():
            if batch.num_rows:
                memory.let_go(room.hand_over(), for_those=batch.nbytes)
                results.put(batch)
            room.let_go()
        results.put(_Read(batches.children))
    except _StoppedError:
        pass
    except Exception as error:
        results.put(_Read(error=error))
    finally:
        room.let_go()


class _Range:
    """A range while it is read."""

    def __init__(
        self, each: PlannedShardRange, reading: ShardReadSettings, room: _Room, stopped: threading.Event
    ) -> None:
        self._range = each
        self._reading = reading
        self._room = room
        self._stopped = stopped
        self.children: Sequence[PlannedShardRange] = ()

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the range; some have no rows.

        :raises SourceError: if records are lost, or the range cannot be read to its end.
        """
        each = self._range
        try:
            yield from self._pages()
        except DataLostError as error:
            raise SourceError(
                f"stream '{each.stream}' shard '{each.shard_id}': data was gone before it was read: {error}; begin "
                "later, or read the remaining records with failOnDataLoss=false"
            ) from error
        except ShardNotFoundError as error:
            if not self._reading.reads_on:
                raise SourceError(f"{error}; read the remaining records with failOnDataLoss=false") from error
            log.error("data loss: %s", error)

    def _pages(self) -> Iterator[pa.RecordBatch]:
        each = self._range
        clock = self._reading.clock or SystemClock()
        retry = RetryBudget(attempts=ATTEMPTS, clock=clock, sleep=self._reading.sleep or self._sleep)
        inclusive = each.start.is_inclusive(clock.now())
        batch = BatchReading(each.start, inclusive=inclusive, stop=each.stop, reads_on=self._reading.reads_on)
        with closing(self._shard(retry, inclusive=inclusive)) as pages:
            while not (batch.at_stop or batch.end_of_shard):
                for records in batch.of(pages):
                    if self._stopped.is_set():
                        raise _StoppedError
                    yield self._renamed(user_records(records, each.hash_keys).columns)
                self._check_end(batch)
        if batch.gap is not None:
            log.error("data loss: stream %s shard %s: %s", each.stream, each.shard_id, batch.gap)
        listed = self._reading.listed.get(each.stream, frozenset())
        if each.reads_children:
            # A merged shard has two parents; only one of them reads it.
            self.children = [
                each.child(child)
                for child in batch.children
                if child.shard_id not in listed and each.shard_id == min(child.parent_shard_ids)
            ]

    def _check_end(self, batch: BatchReading) -> None:
        """Check that the record at which the range ends may still arrive."""
        each = self._range
        if each.end is None or batch.at_stop or batch.end_of_shard or batch.read_until is None:
            return
        if batch.read_until - SETTLING >= each.until:
            raise SourceError(
                f"stream '{each.stream}' shard '{each.shard_id}': option 'shardRanges' ends at {each.end}, but the "
                "shard has no record with this number or a greater one yet: give an existing number, or leave the end "
                "out"
            )

    def _shard(self, retry: RetryBudget, *, inclusive: bool) -> Generator[ShardPage]:
        each, reading = self._range, self._reading
        polling = {"page_records": reading.page_records, "room": self._room}
        pages = shard_pages(reading.client, each, inclusive=inclusive, retry=retry, **polling)
        return pages if each.consumer_arn is None else self._within_memory(pages)

    def _within_memory(self, sent: Generator[ShardPage]) -> Generator[ShardPage]:
        """Request the next page of a shard once there is memory for it."""
        with closing(sent):
            while True:
                self._room.hold()
                page = next(sent, None)
                if page is None:
                    return
                yield page

    def _sleep(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise _StoppedError

    def _renamed(self, users: pa.RecordBatch) -> pa.RecordBatch:
        columns = {
            "partitionKey": users.column("partition_key"),
            "data": users.column("data"),
            "stream": pa.repeat(self._range.stream, users.num_rows),
            "shardId": pa.repeat(self._range.shard_id, users.num_rows),
            "sequenceNumber": users.column("sequence_number"),
            "approximateArrivalTimestamp": users.column("approximate_arrival_timestamp"),
            "subSequenceNumber": users.column("sub_sequence_number"),
        }
        return pa.RecordBatch.from_arrays([columns[name] for name in COLUMNS], schema=_SCHEMA)
