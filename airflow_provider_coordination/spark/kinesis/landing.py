"""Landing, on executors: slots read shards and write Parquet files themselves.

Record bytes go from Kinesis into Arrow and from there into a file, all within one Python worker; the driver and the
JVM see one manifest row for each shard. Measurements behind this shape: writing Parquet in the worker is about three
times as fast as handing batches to the JVM.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.sources.kinesis.aggregation import HashKeyRange
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchReading, BatchStart, DataLostError
from airflow_provider_coordination.sources.kinesis.client import KinesisClient
from airflow_provider_coordination.sources.kinesis.errors import KinesisUnavailableError, ShardNotFoundError
from airflow_provider_coordination.sources.kinesis.fan_out import subscribe_shard
from airflow_provider_coordination.sources.kinesis.pacing import (
    READ_BYTES_PER_SECOND,
    READ_INTERVAL_SECONDS,
    Patience,
    Taken,
    moved,
)
from airflow_provider_coordination.sources.kinesis.pages import ShardPage
from airflow_provider_coordination.sources.kinesis.positions import Position, parse_position
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, Gap, new_batch_id
from airflow_provider_coordination.sources.kinesis.reader import read_shard, shared_reading_client
from airflow_provider_coordination.sources.kinesis.user_records import user_records
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.kinesis.landed_shard import LandedShard, NoRoomError, PageRoom
from airflow_provider_coordination.spark.landed_row import Failure, LandedRow, not_written
from airflow_provider_coordination.spark.shared_locations import SharedPlaces
from airflow_provider_coordination.spark.slot_count import SlotCount
from airflow_provider_coordination.spark.slot_memory import LEAST_ROW_GROUP_BYTES, ROW_GROUP_BYTES, SlotMemory
from airflow_provider_coordination.spark.slots import dealt, land_in_slots

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

HIGHEST_HASH_KEY = str(2**128 - 1)
LEAST_SIZE = 10_000.0
"""What a shard costs its slot that gives nothing, as bytes a second of one that does."""
SLOT_BYTES_PER_SECOND = 4 * READ_BYTES_PER_SECOND
"""How much a slot should have to read: less than a core lands, which has to transform it as well."""


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """What to read of one shard.

    :param source_identifier: the partition's item family.
    :param partition_key: the partition.
    :param fencing_token: of its lease.
    :param stream: the stream's name.
    :param shard_id: the shard.
    :param start: the position to read after.
    :param starting_hash_key: the first hash key of the shard, a decimal number.
    :param ending_hash_key: the last one.
    :param delivered_until: nothing that arrived by this instant (aware) is missing; None if unknown.
    :param retention_seconds: how long the stream keeps records; None if unknown.
    :param consumer_arn: read by enhanced fan-out as this consumer; None polls.
    :param end: the position at which the partition ends; None if it ends with the shard.
    :param iterator: Kinesis' own, which goes on at the start; None if none is known.
    :param throughput: how many bytes a second it gave in the rounds before; None if it was not read yet.
    :param taken: what the rounds before read of it; counts from now on.
    """

    source_identifier: str
    partition_key: str
    fencing_token: int
    stream: str
    shard_id: str
    start: str
    starting_hash_key: str = "0"
    ending_hash_key: str = HIGHEST_HASH_KEY
    delivered_until: datetime | None = None
    retention_seconds: float | None = None
    consumer_arn: str | None = None
    end: str | None = None
    iterator: str | None = None
    throughput: float | None = None
    taken: Taken = ()


@dataclass(frozen=True, kw_only=True)
class LandingOptions:
    """What holds for every shard of a round.

    :param kinesis: how to reach Kinesis.
    :param root: where landed files go.
    :param access: how that place is reached.
    :param seconds: how long a shard is read.
    :param max_bytes: read no further page once a shard gave this many bytes.
    :param slot_memory_bytes: how much of what it reads a slot holds at most.
    :param leave_slot: whether a slot is left to a delivery that goes on meanwhile.
    :param filter_by_hash_range: drop user records of an aggregate whose hash key is not of their shard.
    :param on_data_loss: `"fail"` lands nothing behind a gap, `"reset"` reads on.
    :param stop_at: land no record that arrived at this instant (aware) or later.
    """

    kinesis: AwsSettings
    root: str
    seconds: float
    max_bytes: int
    slot_memory_bytes: int
    leave_slot: bool = False
    filter_by_hash_range: bool = True
    on_data_loss: str = "fail"
    stop_at: datetime | None = None
    access: Access = DEFAULT_ACCESS


@dataclass(frozen=True, kw_only=True)
class Landed(LandedRow):
    """What was read of a shard, or why not; its records are user records, and its positions those of whole records.

    :param children: the shards that follow it, where this is its end.
    :param millis_behind_latest: what the service said of the last page.
    :param at_stop: whether everything before `LandingOptions.stop_at` is read, and more may follow later.
    :param filtered: user records that were dropped because they belong to another shard.
    :param throttled: reads that were refused although this job kept to what a shard allows: others read it too.
    :param gap: what was lost before the first record; with `error`, what stands in the way.
    :param next_iterator: Kinesis' own, which goes on at the end; None if none is known.
    :param taken: what was read of the shard; counts from the end on.
    :param memory_bytes: how much the slot held at most, of all its shards.
    """

    children: tuple[ChildShard, ...] = ()
    millis_behind_latest: int | None = None
    at_stop: bool = False
    filtered: int = 0
    throttled: int = 0
    gap: Gap | None = None
    next_iterator: str | None = None
    taken: Taken = ()
    memory_bytes: int = 0


def land(
    context: SparkContext,
    plans: Sequence[ReadPlan],
    options: LandingOptions,
    places: SharedPlaces | None = None,
    count: SlotCount | None = None,
) -> list[Landed]:
    """Read every shard of `plans` on the executors; return one row for each.

    :param places: `options.root` and others, if executors are to be asked whether they share them.
    :param count: says how many slots land, from what it knows of earlier rounds; None if there was none.
    :raises ConfigurationError: if they do not.
    :raises Exception: what Spark raises if a task fails as often as it may; nothing is recorded then, so nothing is
        lost.
    """
    slots = (count or SlotCount(context)).of_round(slots_needed(plans), leave_slot=options.leave_slot)
    landed = land_in_slots(context, dealt(plans, slots, _size), partial(_land_slot, options), Landed, places)
    warn_of(landed)
    return landed


def slots_needed(plans: Sequence[ReadPlan]) -> int:
    """Return how many slots the shards of a round would use."""
    return max(1, min(len(plans), math.ceil(sum(map(_size, plans)) / SLOT_BYTES_PER_SECOND)))


def _size(plan: ReadPlan) -> float:
    """Return how much a shard is expected to give: one that was not read yet, as much as it can."""
    unknown = 0 if plan.iterator is not None else READ_BYTES_PER_SECOND  # one that was read gave nothing
    return LEAST_SIZE + (unknown if plan.throughput is None else plan.throughput)


def warn_of(rows: Iterable[Landed]) -> None:
    """Log what a person should know of the rows of a round, whatever becomes of them."""
    for row in rows:
        if row.filtered:
            log.warning(
                "partition %s: %d user records in aggregated records belong to another shard by their hash key and are "
                "left out; filter_by_hash_range=False keeps them",
                row.partition_key, row.filtered,
            )  # fmt: skip
        if row.throttled:
            log.warning(
                "partition %s: %d reads were throttled although this job keeps to %d reads and %d MiB a second: others "
                "read the shard too. Give this job or them a consumer_name (enhanced fan-out), or let them read less",
                row.partition_key, row.throttled, 1 / READ_INTERVAL_SECONDS, READ_BYTES_PER_SECOND // 2**20,
            )  # fmt: skip


def _land_slot(options: LandingOptions, plans: Sequence[ReadPlan]) -> list[Landed]:
    """Read all shards of a slot at the same time, each by a thread of its own: they wait nearly all the time."""
    memory = SlotMemory(options.slot_memory_bytes)
    shared = min(ROW_GROUP_BYTES, max(LEAST_ROW_GROUP_BYTES, options.slot_memory_bytes // (2 * len(plans))))
    rows = partial(land_shard, shared_reading_client(options.kinesis), options, memory=memory, row_group_bytes=shared)
    with ThreadPoolExecutor(len(plans)) as pool:
        landed = list(pool.map(rows, plans))
    return [replace(row, memory_bytes=memory.largest) for row in landed]


def land_shard(
    client: KinesisClient,
    options: LandingOptions,
    plan: ReadPlan,
    *,
    memory: SlotMemory | None = None,
    row_group_bytes: int = ROW_GROUP_BYTES,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Landed:
    """Read one shard for a while and write what it gave to one file.

    An error becomes part of the row: one shard never stops the others. What was read before an error is landed; the
    next round meets the error again.

    :param client: as `reading_client` returns it.
    :param memory: of the slot; by default it has one of its own.
    :param row_group_bytes: how much of the shard is held until it is written.
    :param clock: measures how long to read.
    :param sleep: waits that many seconds.
    """
    clock = clock or SystemClock()
    try:
        memory = memory or SlotMemory(options.slot_memory_bytes)
        with LandedShard(plan, options, memory, row_group_bytes) as landed:
            return _land_shard(client, options, plan, landed, clock, sleep)
    except DataLostError as error:
        # The source answers: only a person, or `on_data_loss`, decides about what it does not hold any more.
        failure = Failure(type(error).__name__)
        return _lost(
            plan, error.gap, failure, "read on with `airflow-coordination reset` to earliest, or on_data_loss='reset'"
        )
    except ShardNotFoundError as error:
        gap = Gap(
            after=plan.start,
            before=None,
            since=plan.delivered_until,
            until=None,
            found_at=clock.now(),
            reason=str(error),
        )
        return _lost(
            plan,
            gap,
            Failure.of(error),
            "a shard sync with on_data_loss='reset' finishes it and goes on with what follows",
        )
    except CoordinationError as error:
        passing = isinstance(error, KinesisUnavailableError)
        failure = Failure(type(error).__name__, is_of_source=True)  # refused access is a wrong configuration as well
        return Landed(partition_key=plan.partition_key, error=str(error), passing=passing, failure=failure)
    except OSError as error:
        return Landed(
            partition_key=plan.partition_key,
            error=not_written(options.root, error),
            passing=True,
            failure=Failure.of(error),
        )


def _lost(plan: ReadPlan, gap: Gap, failure: Failure, remedy: str) -> Landed:
    return Landed(
        partition_key=plan.partition_key,
        gap=gap,
        failure=failure,
        error=f"stream '{plan.stream}' shard '{plan.shard_id}': data was gone before it was read: {gap}; "
        f"once that is understood, {remedy}",
    )


def _land_shard(
    client: KinesisClient,
    options: LandingOptions,
    plan: ReadPlan,
    landed: LandedShard,
    clock: Clock,
    sleep: Callable[[float], None],
) -> Landed:
    begun = clock.monotonic()
    patience = Patience(until=begun + options.seconds, attempts=options.kinesis.max_attempts, clock=clock, sleep=sleep)
    start = BatchStart(
        position=plan.start,
        delivered_until=plan.delivered_until,
        retention=None if plan.retention_seconds is None else timedelta(seconds=plan.retention_seconds),
    )
    inclusive = start.is_inclusive(clock.now())
    stop = Position(timestamp=options.stop_at) if options.stop_at is not None else None
    reading = BatchReading(
        start,
        inclusive=inclusive,
        stop=parse_position(plan.end) if plan.end is not None else stop,
        reads_on=options.on_data_loss == "reset",
    )
    if reading.begins_at_stop:
        return _nothing_left(plan)
    hash_keys = None
    if options.filter_by_hash_range:
        hash_keys = HashKeyRange(int(plan.starting_hash_key), int(plan.ending_hash_key))
    filtered = 0
    room = PageRoom(landed, patience)
    with closing(_pages(client, plan, patience, room, inclusive=inclusive)) as pages:
        try:
            for records in reading.of(pages):
                if records:
                    users = user_records(records, hash_keys, after=None if landed.records else reading.after)
                    filtered += users.filtered
                    landed.add(users.columns, in_place_of=room.hand_over())
                room.let_go()
                if landed.bytes >= options.max_bytes or patience.is_over():
                    break
        except NoRoomError:
            log.info("shard %s: the round ended before there was room for a page", plan.shard_id)
        except CoordinationError as error:
            if reading.end == plan.start:
                raise
            log.warning("what was read is landed, and the rest left to the next round: %s", error)
    seconds = clock.monotonic() - begun
    file, file_bytes = landed.close()
    return Landed(
        partition_key=plan.partition_key,
        batch_id=landed.batch_id,
        start=plan.start,
        end=reading.end,
        file=file,
        file_bytes=file_bytes,
        records=landed.records,
        bytes=landed.data_bytes,
        is_last=reading.end_of_shard or (reading.at_stop and plan.end is not None),
        children=reading.children,
        read_until=reading.read_until,
        millis_behind_latest=reading.millis_behind_latest,
        last_arrival=landed.last_arrival,
        at_stop=reading.at_stop and plan.end is None,
        filtered=filtered,
        throttled=reading.throttled,
        seconds=seconds,
        gap=reading.gap,
        next_iterator=reading.next_iterator,
        taken=moved(reading.taken, -clock.monotonic()),
    )


def _nothing_left(plan: ReadPlan) -> Landed:
    """Return the row of a shard that is read as far as it may be."""
    return Landed(
        partition_key=plan.partition_key,
        batch_id=new_batch_id(plan.partition_key),
        start=plan.start,
        end=plan.start,
        is_last=plan.end is not None,
        at_stop=plan.end is None,
    )


def _pages(
    client: KinesisClient, plan: ReadPlan, patience: Patience, room: PageRoom, *, inclusive: bool
) -> Generator[ShardPage]:
    if plan.consumer_arn is None:
        iterator = None if inclusive else plan.iterator
        return read_shard(
            client,
            plan.stream,
            plan.shard_id,
            plan.start,
            inclusive=inclusive,
            patience=patience,
            room=room,
            iterator=iterator,
            taken=plan.taken,
        )
    return subscribe_shard(
        client, plan.consumer_arn, plan.stream, plan.shard_id, plan.start, inclusive=inclusive, patience=patience
    )
