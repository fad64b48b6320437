"""Landing, on executors: slots read shards and write Parquet files themselves.

Record bytes go from Kinesis into Arrow and from there into a file, all within one Python worker; the driver and the
JVM see one manifest row for each shard. Measurements behind this shape: writing Parquet in the worker is about three
times as fast as handing batches to the JVM.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

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
)
from airflow_provider_coordination.sources.kinesis.pages import ShardPage
from airflow_provider_coordination.sources.kinesis.positions import Position, parse_position
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, Gap, batch_id
from airflow_provider_coordination.sources.kinesis.reader import read_shard, reading_client
from airflow_provider_coordination.sources.kinesis.user_records import USER_RECORD_SCHEMA, user_records
from airflow_provider_coordination.spark.access import DEFAULT_ACCESS, Access
from airflow_provider_coordination.spark.kinesis.layout import RECORD_SCHEMA
from airflow_provider_coordination.spark.landed_identity import as_landed, landed_file
from airflow_provider_coordination.spark.landed_row import Failure, LandedRow
from airflow_provider_coordination.spark.slots import dealt_evenly, land_in_slots, slots_to_land
from airflow_provider_coordination.spark.storage import write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

HIGHEST_HASH_KEY = str(2**128 - 1)


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """What to read of one shard.

    :param source_identifier: the partition's item family.
    :param partition_key: the partition.
    :param fencing_token: of its lease.
    :param stream: the stream's name.
    :param shard_id: the shard.
    :param start: the position to read after.
    :param epoch: of the shard's progress.
    :param starting_hash_key: the first hash key of the shard, a decimal number.
    :param ending_hash_key: the last one.
    :param delivered_until: nothing that arrived by this instant (aware) is missing; None if unknown.
    :param retention_seconds: how long the stream keeps records; None if unknown.
    :param consumer_arn: read by enhanced fan-out as this consumer; None polls.
    :param end: the position at which the partition ends; None if it ends with the shard.
    """

    source_identifier: str
    partition_key: str
    fencing_token: int
    stream: str
    shard_id: str
    start: str
    epoch: int = 0
    starting_hash_key: str = "0"
    ending_hash_key: str = HIGHEST_HASH_KEY
    delivered_until: datetime | None = None
    retention_seconds: float | None = None
    consumer_arn: str | None = None
    end: str | None = None


@dataclass(frozen=True, kw_only=True)
class LandingOptions:
    """What holds for every shard of a round.

    :param kinesis: how to reach Kinesis.
    :param root: where landed files go.
    :param access: how that place is reached.
    :param seconds: how long a shard is read.
    :param max_bytes: read no further page once a shard gave this many bytes.
    :param shards_per_slot: how many shards a slot reads at the same time.
    :param leave_slot: whether a slot is left to a delivery that goes on meanwhile.
    :param filter_by_hash_range: drop user records of an aggregate whose hash key is not of their shard.
    :param on_data_loss: `"fail"` lands nothing behind a gap, `"reset"` reads on.
    :param stop_at: land no record that arrived at this instant (aware) or later.
    """

    kinesis: AwsSettings
    root: str
    seconds: float
    max_bytes: int
    shards_per_slot: int
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
    """

    children: tuple[ChildShard, ...] = ()
    millis_behind_latest: int | None = None
    at_stop: bool = False
    filtered: int = 0
    throttled: int = 0
    gap: Gap | None = None


def land(spark: SparkSession, plans: Sequence[ReadPlan], options: LandingOptions) -> list[Landed]:
    """Read every shard of `plans` on the executors; return one row for each.

    :raises Exception: what Spark raises if a task fails as often as it may; nothing is recorded then, so nothing is
        lost.
    """
    slots, at_once = slots_to_land(spark, options.shards_per_slot, leave_slot=options.leave_slot)
    land_slot = partial(_land_slot, replace(options, shards_per_slot=at_once))
    landed = land_in_slots(spark, dealt_evenly(plans, slots), land_slot, Landed)
    warn_of(landed)
    return landed


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
    client = reading_client(options.kinesis)
    with ThreadPoolExecutor(options.shards_per_slot) as pool:
        return list(pool.map(partial(land_shard, client, options), plans))


def land_shard(
    client: KinesisClient,
    options: LandingOptions,
    plan: ReadPlan,
    *,
    clock: Clock | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Landed:
    """Read one shard for a while and write what it gave to one file.

    An error becomes part of the row: one shard never stops the others. What was read before an error is landed; the
    next round meets the error again.

    :param client: as `reading_client` returns it.
    :param clock: measures how long to read.
    :param sleep: waits that many seconds.
    """
    clock = clock or SystemClock()
    try:
        return _land_shard(client, options, plan, clock, sleep)
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
            error=f"landing in {options.root} failed: {error}",
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
    client: KinesisClient, options: LandingOptions, plan: ReadPlan, clock: Clock, sleep: Callable[[float], None]
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
    tables: list[pa.RecordBatch] = []
    size = filtered = 0
    with closing(_pages(client, plan, patience, inclusive=inclusive)) as pages:
        try:
            for records in reading.of(pages):
                if records:
                    users = user_records(records, hash_keys, after=None if tables else reading.after)
                    tables.append(users.columns)
                    size += users.columns.nbytes
                    filtered += users.filtered
                if size >= options.max_bytes or patience.is_over():
                    break
        except CoordinationError as error:
            if reading.end == plan.start:
                raise
            log.warning("what was read is landed, and the rest left to the next round: %s", error)
    records_landed = sum(table.num_rows for table in tables)
    batch = batch_id(plan.source_identifier, plan.partition_key, plan.start, reading.end, plan.epoch)
    seconds = clock.monotonic() - begun
    file, file_bytes = _write(tables, options, plan, batch) if records_landed else ("", 0)
    return Landed(
        partition_key=plan.partition_key,
        batch_id=batch,
        start=plan.start,
        end=reading.end,
        file=file,
        file_bytes=file_bytes,
        records=records_landed,
        bytes=sum(pc.sum(pc.binary_length(table.column("data"))).as_py() or 0 for table in tables),
        is_last=reading.end_of_shard or (reading.at_stop and plan.end is not None),
        children=reading.children,
        read_until=reading.read_until,
        millis_behind_latest=reading.millis_behind_latest,
        last_arrival=_last_arrival(tables),
        at_stop=reading.at_stop and plan.end is None,
        filtered=filtered,
        throttled=reading.throttled,
        seconds=seconds,
        gap=reading.gap,
    )


def _nothing_left(plan: ReadPlan) -> Landed:
    """Return the row of a shard that is read as far as it may be."""
    return Landed(
        partition_key=plan.partition_key,
        batch_id=batch_id(plan.source_identifier, plan.partition_key, plan.start, plan.start, plan.epoch),
        start=plan.start,
        end=plan.start,
        is_last=plan.end is not None,
        at_stop=plan.end is None,
    )


def _pages(client: KinesisClient, plan: ReadPlan, patience: Patience, *, inclusive: bool) -> Generator[ShardPage]:
    if plan.consumer_arn is None:
        return read_shard(client, plan.stream, plan.shard_id, plan.start, inclusive=inclusive, patience=patience)
    return subscribe_shard(
        client, plan.consumer_arn, plan.stream, plan.shard_id, plan.start, inclusive=inclusive, patience=patience
    )


def _last_arrival(tables: Sequence[pa.RecordBatch]) -> datetime | None:
    arrivals = [table.column("approximate_arrival_timestamp") for table in tables if table.num_rows]
    last: datetime | None = arrivals[-1][-1].as_py() if arrivals else None
    return last


def _write(tables: Sequence[pa.RecordBatch], options: LandingOptions, plan: ReadPlan, batch: str) -> tuple[str, int]:
    pages = pa.Table.from_batches(tables, USER_RECORD_SCHEMA)
    constant = {"stream": plan.stream, "shard_id": plan.shard_id, "_batch_id": batch}
    columns = [
        pa.repeat(pa.scalar(constant[f.name], f.type), pages.num_rows) if f.name in constant else pages.column(f.name)
        for f in RECORD_SCHEMA
    ]
    uri = landed_file(options.root, plan.source_identifier, plan.partition_key, plan.start, plan.fencing_token)
    landed = as_landed(pa.Table.from_arrays(columns, schema=RECORD_SCHEMA), batch)
    return uri, write_table(landed, uri, options.access)
