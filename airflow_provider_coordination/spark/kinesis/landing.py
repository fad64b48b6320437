"""Landing on executors: slots read shards and write Parquet files themselves.

Record bytes go from Kinesis into Arrow and from there into a file, all within one Python worker. The driver and the JVM
see one manifest row for each shard. Measurements support this design: writing Parquet in the worker is about three
times as fast as handing batches to the JVM.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchReading, DataLostError
from airflow_provider_coordination.sources.kinesis.client import (
    KinesisClient,
    KinesisUnavailableError,
    ShardNotFoundError,
)
from airflow_provider_coordination.sources.kinesis.fan_out import shard_pages
from airflow_provider_coordination.sources.kinesis.pacing import (
    READ_BYTES_PER_SECOND,
    RecentReads,
    RetryBudget,
    shifted,
)
from airflow_provider_coordination.sources.kinesis.positions import Position, parse_position
from airflow_provider_coordination.sources.kinesis.progress import (
    READ_ON,
    SKIP_TO_LATEST,
    Gap,
    ShardRange,
    new_batch_id,
)
from airflow_provider_coordination.sources.landed import Failure, LandedRow, not_written
from airflow_provider_coordination.spark.kinesis.landed_shard import (
    LandedShard,
    NoRoomError,
    PageRoom,
    ShardLandingOptions,
    ShardReadPlan,
)
from airflow_provider_coordination.spark.shared_locations import SharedLocations
from airflow_provider_coordination.spark.slot_memory import MIN_ROW_GROUP_BYTES, ROW_GROUP_BYTES, SlotMemory
from airflow_provider_coordination.spark.slots import SlotCount, distribute, land_in_slots

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

IDLE_SHARD_BYTES_PER_SECOND = 10_000.0
"""The cost of an idle shard for its slot, as bytes per second of an active one."""
SLOT_BYTES_PER_SECOND = 4 * READ_BYTES_PER_SECOND
"""How much a slot should have to read: less than a core can land, since the core must transform it as well."""


@dataclass(frozen=True, kw_only=True)
class LandedShardRow(LandedRow):
    """The result of reading a shard, or the error. Records are user records; positions are those of whole records.

    :param children: the child shards, if this is the end of the shard.
    :param millis_behind_latest: the lag that the service reported with the last page.
    :param at_stop: whether everything before `ShardLandingOptions.stop_at` was read, and more may follow later.
    :param filtered: the number of user records that were dropped because they belong to another shard.
    :param throttled: the number of throttled reads although this job kept to a shard's limits: others read it too.
    :param gap: the data that was lost before the first record; with `error`, the gap that blocks reading.
    :param skips_rest: whether the shard's records up to the end of `gap` are skipped, also those that it still has.
    :param next_iterator: a Kinesis iterator that continues at the end; None if none is known.
    :param recent_reads: the reads of the shard; times count from the end.
    :param memory_bytes: the maximum memory that the slot held for all its shards.
    """

    children: tuple[ShardRange, ...] = ()
    millis_behind_latest: int | None = None
    at_stop: bool = False
    filtered: int = 0
    throttled: int = 0
    gap: Gap | None = None
    skips_rest: bool = False
    next_iterator: str | None = None
    recent_reads: RecentReads = ()
    memory_bytes: int = 0


def land(
    context: SparkContext,
    plans: Sequence[ShardReadPlan],
    options: ShardLandingOptions,
    locations: SharedLocations | None = None,
    count: SlotCount | None = None,
) -> list[LandedShardRow]:
    """Read every shard of `plans` on the executors; return one row for each shard.

    :param locations: `options.root` and other locations, if executors must prove that they share them.
    :param count: decides how many slots land, from its data of earlier rounds; None if there was none.
    :raises ConfigurationError: if the executors do not share the locations.
    :raises Exception: Spark's error if a task fails too often. Nothing is recorded then, so nothing is lost.
    """
    slots = (count or SlotCount(context)).of_round(slots_needed(plans), leave_slot=options.leave_slot)
    landed = land_in_slots(
        context,
        distribute(plans, slots, _size),
        partial(_land_slot, options),
        LandedShardRow,
        locations,
        load=sum(map(_size, plans)),
    )
    log_warnings(landed, options)
    return landed


def slots_needed(plans: Sequence[ShardReadPlan]) -> int:
    """Return the number of slots that the shards of a round can use."""
    return max(1, min(len(plans), math.ceil(sum(map(_size, plans)) / SLOT_BYTES_PER_SECOND)))


def _size(plan: ShardReadPlan) -> float:
    """Return the expected bytes per second of a shard; a new shard is expected to return its maximum."""
    unknown = 0 if plan.iterator is not None else READ_BYTES_PER_SECOND  # with an iterator, it was read without records
    return IDLE_SHARD_BYTES_PER_SECOND + (unknown if plan.throughput is None else plan.throughput)


def log_warnings(rows: Iterable[LandedShardRow], options: ShardLandingOptions) -> None:
    """Log warnings for the user about the rows of a round, whether or not they are recorded."""
    for row in rows:
        if row.filtered:
            log.warning(
                "partition %s: %d user records in aggregated records belong to another shard by their hash key and are "
                "left out; filter_by_hash_range=False keeps them",
                row.partition_key, row.filtered,
            )  # fmt: skip
        if row.throttled:
            log.warning(
                "partition %s: %d reads were throttled although this job keeps to %g reads and %s",
                row.partition_key, row.throttled, options.reads_per_second, options.format.throttled,
            )  # fmt: skip


def _land_slot(options: ShardLandingOptions, plans: Sequence[ShardReadPlan]) -> list[LandedShardRow]:
    """Read all shards of a slot at the same time, one thread each: the threads wait nearly all the time."""
    memory = SlotMemory(options.slot_memory_bytes)
    shared = min(ROW_GROUP_BYTES, max(MIN_ROW_GROUP_BYTES, options.slot_memory_bytes // (2 * len(plans))))
    client = options.format.client(options.kinesis)
    rows = partial(land_shard, client, options, memory=memory, row_group_bytes=shared)
    with ThreadPoolExecutor(len(plans)) as pool:
        landed = list(pool.map(rows, plans))
    return [replace(row, memory_bytes=memory.largest) for row in landed]


def land_shard(
    client: KinesisClient,
    options: ShardLandingOptions,
    plan: ShardReadPlan,
    *,
    memory: SlotMemory | None = None,
    row_group_bytes: int = ROW_GROUP_BYTES,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> LandedShardRow:
    """Read one shard for a while, and write its records to one file.

    An error becomes part of the row: one shard never stops the others. Records that were read before the error are
    landed; the next round meets the error again.

    :param client: as `reading_client` returns it.
    :param memory: the memory of the slot; by default a separate one.
    :param row_group_bytes: how many bytes are held before they are written.
    :param clock: measures how long to read.
    :param sleep: waits for a number of seconds.
    """
    clock = clock or SystemClock()
    try:
        memory = memory or SlotMemory(options.slot_memory_bytes)
        with LandedShard(plan, options, memory, row_group_bytes) as landed:
            return _land_shard(client, options, plan, landed, clock, sleep)
    except DataLostError as error:
        if options.on_data_loss == SKIP_TO_LATEST:
            return _skipping_row(plan, error.gap)
        # The source responds: only the user, or `on_data_loss`, can decide about records that it no longer holds.
        failure = Failure(type(error).__name__)
        return _data_loss_row(
            plan,
            error.gap,
            failure,
            "to read the remaining records, run `airflow-coordination reset --to earliest`, or set "
            "on_data_loss='earliest'",
        )
    except ShardNotFoundError as error:
        gap = Gap(
            after=plan.start.position,
            before=None,
            since=plan.start.delivered_until,
            until=None,
            found_at=clock.now(),
            reason=str(error),
        )
        return _data_loss_row(
            plan,
            gap,
            Failure.of(error),
            "run a shard sync with on_data_loss='earliest': it completes the partition and continues with the children",
        )
    except CoordinationError as error:
        is_temporary = isinstance(error, KinesisUnavailableError)
        failure = Failure(type(error).__name__, is_of_source=True)  # refused access is a wrong configuration as well
        return LandedShardRow.without_records(
            plan.partition_key, error=str(error), is_temporary=is_temporary, failure=failure
        )
    except OSError as error:
        return LandedShardRow.without_records(
            plan.partition_key, error=not_written(options.root, error), is_temporary=True, failure=Failure.of(error)
        )


def _data_loss_row(plan: ShardReadPlan, gap: Gap, failure: Failure, remedy: str) -> LandedShardRow:
    return LandedShardRow.without_records(
        plan.partition_key,
        gap=gap,
        failure=failure,
        error=f"stream '{plan.stream}' shard '{plan.shard_id}': data was gone before it was read: {gap}; find the "
        f"cause, then {remedy}",
    )


def _skipping_row(plan: ShardReadPlan, gap: Gap) -> LandedShardRow:
    """Return the row of a shard that is read from the present on. `LATEST` is an instant, as everywhere."""
    to_present = replace(
        gap, before=None, until=gap.found_at, reason=f"{gap.reason}; on_data_loss='latest' skips what is left"
    )
    return LandedShardRow.without_records(plan.partition_key, plan.start.position, gap=to_present, skips_rest=True)


def _land_shard(
    client: KinesisClient,
    options: ShardLandingOptions,
    plan: ShardReadPlan,
    landed: LandedShard,
    clock: Clock,
    sleep: Callable[[float], None],
) -> LandedShardRow:
    begun = clock.monotonic()
    retry = RetryBudget(until=begun + options.seconds, attempts=options.kinesis.max_attempts, clock=clock, sleep=sleep)
    inclusive = plan.start.is_inclusive(clock.now())
    stop = Position(timestamp=options.stop_at) if options.stop_at is not None else None
    reading = BatchReading(
        plan.start,
        inclusive=inclusive,
        stop=parse_position(plan.end) if plan.end is not None else stop,
        reads_on=options.on_data_loss == READ_ON,
        every=options.completes,
    )
    if reading.starts_at_stop:
        return _empty_row(plan)
    hash_keys = plan.hash_keys if options.filter_by_hash_range else None
    filtered = 0
    room = PageRoom(landed, retry)
    shard = shard_pages(
        client,
        plan,
        inclusive=inclusive,
        retry=retry,
        room=room,
        iterator=None if inclusive else plan.iterator,
        recent_reads=plan.recent_reads,
        reads_per_second=options.reads_per_second,
        page_records=options.records_per_read,
    )
    with closing(shard) as pages:
        try:
            for records in reading.of(pages):
                if records:
                    users = options.format.rows(records, hash_keys, None if landed.records else reading.after)
                    filtered += users.filtered
                    landed.add(users.columns, in_place_of=room.hand_over())
                room.let_go()
                is_newest = options.ends_at_newest and reading.millis_behind_latest == 0
                if is_newest or landed.bytes >= options.max_bytes or retry.is_over():
                    break
        except NoRoomError:
            log.info("shard %s: the round ended before there was room for a page", plan.shard_id)
        except CoordinationError as error:
            if reading.end == plan.start.position:
                raise
            log.warning(
                "partition %s: the records read so far are landed, the rest is left to the next round: %s",
                plan.partition_key, error,
            )  # fmt: skip
    seconds = clock.monotonic() - begun
    file, file_bytes = landed.close()
    return LandedShardRow(
        partition_key=plan.partition_key,
        batch_id=landed.batch_id,
        start=plan.start.position,
        end=reading.end,
        file=file,
        file_bytes=file_bytes,
        records=landed.records,
        bytes=landed.data_bytes,
        is_last=reading.end_of_shard or (reading.at_stop and plan.end is not None),
        children=reading.children,
        read_until=reading.read_until,
        millis_behind_latest=reading.millis_behind_latest,
        first_arrival=landed.first_arrival,
        last_arrival=landed.last_arrival,
        at_stop=reading.at_stop and plan.end is None,
        filtered=filtered,
        throttled=reading.throttled,
        seconds=seconds,
        gap=reading.gap,
        next_iterator=reading.next_iterator,
        recent_reads=shifted(reading.recent_reads, -clock.monotonic()),
    )


def _empty_row(plan: ShardReadPlan) -> LandedShardRow:
    """Return the row of a shard that is already read up to its limit."""
    return LandedShardRow.without_records(
        plan.partition_key,
        plan.start.position,
        batch_id=new_batch_id(plan.partition_key),
        is_last=plan.end is not None,
        at_stop=plan.end is None,
    )
