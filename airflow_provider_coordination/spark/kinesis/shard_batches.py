"""Reading several shards at the same time, as Arrow batches of user records in the order of each shard.

Each shard has a thread, which waits nearly all the time. Memory for batches that are read but not yet consumed is
bounded.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue

import pyarrow as pa

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.kinesis.batch_reading import SETTLING, BatchReading, DataLostError, ShardPage
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, ShardNotFoundError
from airflow_provider_coordination.sources.kinesis.fan_out import shard_pages
from airflow_provider_coordination.sources.kinesis.reader import PageMemory, RetryBudget
from airflow_provider_coordination.sources.kinesis.user_records import user_records
from airflow_provider_coordination.spark.job_settings import MIN_SLOT_MEMORY_BYTES as PAGE_BYTES
from airflow_provider_coordination.spark.kinesis.data_source_plan import PlannedShardRange
from airflow_provider_coordination.spark.slot_memory import Share, SlotMemory

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
        pages = shard_pages(
            reading.client,
            each.consumer_arn,
            each.stream,
            each.shard_id,
            each.start.position,
            inclusive=inclusive,
            retry=retry,
            page_records=reading.page_records,
            room=self._room,
        )
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
