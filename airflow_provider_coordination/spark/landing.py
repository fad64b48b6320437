"""Landing, on executors: slots read shards and write Parquet files themselves.

Record bytes go from Kinesis into Arrow and from there into a file, all within one Python worker; the driver and the
JVM see one manifest row for each shard. Measurements behind this shape: writing Parquet in the worker is about three
times as fast as handing batches to the JVM.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.settings import read_settings, write_settings
from airflow_provider_coordination.sources.kinesis.aggregation import expand
from airflow_provider_coordination.sources.kinesis.client import kinesis_client
from airflow_provider_coordination.sources.kinesis.errors import KinesisUnavailableError
from airflow_provider_coordination.sources.kinesis.progress import ChildShard, batch_id
from airflow_provider_coordination.sources.kinesis.reader import ShardPage, read_shard
from airflow_provider_coordination.spark.storage import join, safe_name, write_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

RECORD_SCHEMA = pa.schema(
    [
        pa.field("stream", pa.string(), nullable=False),
        pa.field("shard_id", pa.string(), nullable=False),
        pa.field("sequence_number", pa.string(), nullable=False),
        pa.field("sub_sequence_number", pa.int64(), nullable=False),
        pa.field("partition_key", pa.string(), nullable=False),
        pa.field("approximate_arrival_timestamp", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("data", pa.binary(), nullable=False),
        pa.field("_batch_id", pa.string(), nullable=False),
    ]
)
"""The columns of a landed file; `docs/columns.md` describes them."""

PAGE_SCHEMA = pa.schema([RECORD_SCHEMA.field(n) for n in range(2, 7)])


JOB_GROUP = "landing"
"""The Spark job group of landing, so that it alone can be cancelled."""


@dataclass(frozen=True, kw_only=True)
class ReadPlan:
    """What to read of one shard.

    :param source_identifier: the partition's item family.
    :param partition_key: the partition.
    :param fencing_token: of its lease.
    :param stream: the stream's name.
    :param shard_id: the shard.
    :param start: the position to read after.
    """

    source_identifier: str
    partition_key: str
    fencing_token: int
    stream: str
    shard_id: str
    start: str


@dataclass(frozen=True, kw_only=True)
class LandingOptions:
    """What holds for every shard of a round.

    :param kinesis: how to reach Kinesis.
    :param root: where landed files go.
    :param seconds: how long a shard is read.
    :param max_bytes: read no further page once a shard gave so many bytes.
    :param shards_per_slot: how many shards a slot reads at the same time.
    """

    kinesis: AwsSettings
    root: str
    seconds: float
    max_bytes: int
    shards_per_slot: int


@dataclass(frozen=True, kw_only=True)
class Landed:
    """One manifest row: what was read of a shard, or why not.

    :param end: the position of the last whole Kinesis record read; the plan's start if there was none.
    :param file: the landed file; empty if there was no record.
    :param records: user records in the file.
    :param bytes: their payload bytes.
    :param end_of_shard: whether the shard has no more.
    :param children: the shards that follow it.
    :param read_until: everything that arrived before this instant has been read.
    :param millis_behind_latest: what the service said of the last page.
    :param error: why the shard could not be read; nothing else holds then.
    :param passing: whether trying again may help.
    """

    partition_key: str
    batch_id: str = ""
    start: str = ""
    end: str = ""
    file: str = ""
    records: int = 0
    bytes: int = 0
    end_of_shard: bool = False
    children: tuple[ChildShard, ...] = ()
    read_until: datetime | None = None
    millis_behind_latest: int | None = None
    error: str | None = None
    passing: bool = False

    @property
    def is_batch(self) -> bool:
        """Whether there is anything to record: records, or the end of the shard."""
        return self.error is None and (self.end != self.start or self.end_of_shard)


def land(spark: SparkSession, plans: Sequence[ReadPlan], options: LandingOptions) -> list[Landed]:
    """Read every shard of `plans` on the executors; return one row for each.

    :raises Exception: what Spark raises if a task fails as often as it may; nothing is recorded then, so nothing is
        lost.
    """
    slots = deal(plans, spark.sparkContext.defaultParallelism)
    spark.sparkContext.setJobGroup(JOB_GROUP, f"land {len(plans)} shards")
    rows = spark.range(0, len(slots), 1, len(slots)).mapInArrow(partial(_land_slot, slots, options), "manifest string")
    return [read_settings(Landed, "manifest row", json.loads(row.manifest)) for row in rows.collect()]


def deal(plans: Sequence[ReadPlan], slots: int) -> list[list[ReadPlan]]:
    """Deal shards evenly to at most so many slots; no slot is empty."""
    return [list(plans[n :: min(slots, len(plans))]) for n in range(min(slots, len(plans)))]


def _land_slot(
    slots: Sequence[Sequence[ReadPlan]], options: LandingOptions, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    client = kinesis_client(options.kinesis)
    for batch in batches:
        for slot in batch.column(0).to_pylist():
            with ThreadPoolExecutor(options.shards_per_slot) as pool:
                rows = list(pool.map(partial(land_shard, client, options), slots[slot]))
            manifest = [json.dumps(write_settings(row)) for row in rows]
            yield pa.RecordBatch.from_pydict({"manifest": pa.array(manifest, pa.string())})


def land_shard(client: Any, options: LandingOptions, plan: ReadPlan, *, clock: Clock | None = None) -> Landed:
    """Read one shard for a while and write what it gave to one file.

    An error becomes part of the row: one shard never stops the others.

    :param client: a Kinesis client.
    """
    try:
        return _land_shard(client, options, plan, clock or SystemClock())
    except CoordinationError as error:
        passing = isinstance(error, KinesisUnavailableError)
        return Landed(partition_key=plan.partition_key, error=str(error), passing=passing)
    except OSError as error:
        return Landed(
            partition_key=plan.partition_key, error=f"landing in {options.root} failed: {error}", passing=True
        )


def _land_shard(client: Any, options: LandingOptions, plan: ReadPlan, clock: Clock) -> Landed:
    ends_at = clock.monotonic() + options.seconds
    tables: list[pa.RecordBatch] = []
    end, size, read_until, page = plan.start, 0, None, None
    for page in read_shard(client, plan.stream, plan.shard_id, plan.start, clock=clock):
        if page.records:
            tables.append(_page_columns(page))
            size += tables[-1].nbytes
            end = page.records[-1].sequence_number
        read_until = _read_until(page) or read_until
        if page.end_of_shard or size >= options.max_bytes or clock.monotonic() >= ends_at or _is_drained(page):
            break
    assert page is not None  # read_shard gives at least one page
    records = sum(table.num_rows for table in tables)
    batch = batch_id(plan.source_identifier, plan.partition_key, plan.start, end)
    return Landed(
        partition_key=plan.partition_key,
        batch_id=batch,
        start=plan.start,
        end=end,
        file=_write(tables, options.root, plan, batch) if records else "",
        records=records,
        bytes=sum(pc.sum(pc.binary_length(table.column("data"))).as_py() or 0 for table in tables),
        end_of_shard=page.end_of_shard,
        children=page.children,
        read_until=read_until,
        millis_behind_latest=page.millis_behind_latest,
    )


def _page_columns(page: ShardPage) -> pa.RecordBatch:
    sequences: list[str] = []
    subs: list[int] = []
    keys: list[str] = []
    arrivals: list[datetime] = []
    payloads: list[bytes] = []
    for record in page.records:
        users = expand(record.data, record.partition_key)
        sequences += [record.sequence_number] * len(users)
        arrivals += [record.approximate_arrival_timestamp] * len(users)
        for sub, key, payload in users:
            subs.append(sub)
            keys.append(key)
            payloads.append(payload)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(column, f.type)
            for column, f in zip((sequences, subs, keys, arrivals, payloads), PAGE_SCHEMA, strict=True)
        ],
        schema=PAGE_SCHEMA,
    )


def _write(tables: Sequence[pa.RecordBatch], root: str, plan: ReadPlan, batch: str) -> str:
    pages = pa.Table.from_batches(tables, PAGE_SCHEMA)
    constant = {"stream": plan.stream, "shard_id": plan.shard_id, "_batch_id": batch}
    columns = [
        pa.repeat(pa.scalar(constant[f.name], f.type), pages.num_rows) if f.name in constant else pages.column(f.name)
        for f in RECORD_SCHEMA
    ]
    folder = partition_folder(plan.source_identifier, plan.partition_key)
    uri = join(root, folder, file_name(plan.start, plan.fencing_token))
    write_table(pa.Table.from_arrays(columns, schema=RECORD_SCHEMA), uri)
    return uri


def partition_folder(source_identifier: str, partition_key: str) -> str:
    """Return the folder, below any root, of a partition's files."""
    return join(safe_name(source_identifier), safe_name(partition_key))


def file_name(start: str, fencing_token: int) -> str:
    """Return a new name for a file: its range's start, its writer's fencing token, and something random, as a retried
    Spark task writes its own file."""
    return f"{start}.{fencing_token}.{secrets.token_hex(4)}.parquet"


def token_of(file_uri: str) -> int | None:
    """Return the fencing token in a file's name, or None if it is not such a file."""
    parts = file_uri.rsplit("/", 1)[-1].split(".")
    return int(parts[1]) if len(parts) == 4 and parts[1].isdigit() else None


def _read_until(page: ShardPage) -> datetime | None:
    if page.end_of_shard or _is_drained(page):
        return page.read_at
    return page.records[-1].approximate_arrival_timestamp if page.records else None


def _is_drained(page: ShardPage) -> bool:
    # An empty page alone is no sign: Kinesis gives them far behind the tip. Nor is a lag of zero alone: it is rounded.
    return not page.records and page.millis_behind_latest == 0
