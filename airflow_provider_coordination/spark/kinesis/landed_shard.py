"""The landed file of one shard in a round: pages become row groups as they arrive."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timedelta
from types import TracebackType

import pyarrow as pa
import pyarrow.compute as pc

from airflow_provider_coordination.aws import AwsSettings
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.sources.kinesis.batch_reading import ShardPart
from airflow_provider_coordination.sources.kinesis.pacing import (
    MAX_RECORDS_PER_READ,
    READS_PER_SECOND,
    RecentReads,
    RetryBudget,
)
from airflow_provider_coordination.sources.kinesis.progress import new_batch_id, parse_partition_key
from airflow_provider_coordination.sources.kinesis.reader import PageMemory
from airflow_provider_coordination.spark.job_settings import MIN_SLOT_MEMORY_BYTES as PAGE_BYTES
from airflow_provider_coordination.spark.kinesis.shard_format import KINESIS, ShardFormat
from airflow_provider_coordination.spark.landed_identity import as_landed, landed_file
from airflow_provider_coordination.spark.layout import PAYLOAD
from airflow_provider_coordination.spark.parquet_files import TableWriter
from airflow_provider_coordination.spark.slot_memory import Share, SlotMemory
from airflow_provider_coordination.spark.slots import LandingOptions


class NoRoomError(Exception):
    """The round ended before there was memory for a page."""


class LandedShard:
    """The file of a shard's batch, as a context manager; after an error, there is no file.

    :param plan: the shard to read.
    :param options: the options for every shard.
    :param memory: the memory of the slot.
    :param row_group_bytes: how many bytes are held before they are written.
    """

    def __init__(
        self, plan: ShardReadPlan, options: ShardLandingOptions, memory: SlotMemory, row_group_bytes: int
    ) -> None:
        self.memory = memory
        self.batch_id = new_batch_id(plan.partition_key)
        self.records = 0
        """The number of user records in the file."""
        self.data_bytes = 0
        """The number of bytes of user data."""
        self.bytes = 0
        """The number of bytes of the columns in memory."""
        self.first_arrival: datetime | None = None
        """When the first record arrived."""
        self.last_arrival: datetime | None = None
        """When the last record arrived."""
        self._format = options.format
        self._constant = {self._format.stream: plan.stream, "shard_id": plan.shard_id, "_batch_id": self.batch_id}
        self._epoch = max(plan.epoch, parse_partition_key(plan.partition_key).creation_epoch)
        self._row_group_bytes = row_group_bytes
        self._uri = landed_file(
            options.root, plan.source_identifier, plan.partition_key, plan.start.position, plan.fencing_token
        )
        self._access = options.access
        self._pages: list[pa.RecordBatch] = []
        self._held = 0
        self._stack = ExitStack()
        self._writer: TableWriter | None = None

    def __enter__(self) -> LandedShard:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the memory; delete a file that is not closed."""
        self._let_go()
        self._stack.__exit__(kind, error, trace)

    def add(self, page: pa.RecordBatch, *, in_place_of: int = 0) -> None:
        """Add the user records of a page.

        :param in_place_of: how many bytes of memory are reserved for the page.
        """
        size = page.nbytes if page.num_rows else 0
        self.memory.let_go(in_place_of, for_those=size)
        if not size:
            return
        self._pages.append(page)
        self._held += size
        self.bytes += size
        self.records += page.num_rows
        self.data_bytes += pc.sum(pc.binary_length(page.column(PAYLOAD))).as_py() or 0
        arrivals = page.column(self._format.arrival)
        self.first_arrival = self.first_arrival or arrivals[0].as_py()
        self.last_arrival = arrivals[-1].as_py()
        if self._held >= self._row_group_bytes:
            self.write_out()

    def write_out(self) -> None:
        """Write the held pages as a row group."""
        if not self._pages:
            return
        pages = self._format.ordered(pa.Table.from_batches(self._pages), self._epoch)
        columns = [
            pa.repeat(pa.scalar(self._constant[f.name], f.type), pages.num_rows)
            if f.name in self._constant
            else pages.column(f.name)
            for f in self._format.schema
        ]
        if self._writer is None:
            self._writer = self._stack.enter_context(TableWriter(self._uri, self._access, self._format.unique(pages)))
        self._writer.write(as_landed(pa.Table.from_arrays(columns, schema=self._format.schema), self.batch_id))
        self._let_go()

    def close(self) -> tuple[str, int]:
        """Make the file durable; return its location and size. Without records, there is no file."""
        self.write_out()
        self._stack.close()
        return ("", 0) if self._writer is None else (self._uri, self._writer.size)

    def _let_go(self) -> None:
        self.memory.let_go(self._held)
        self._pages, self._held = [], 0


class PageRoom(Share, PageMemory):
    """The memory that the next page of a shard needs.

    :param landed: the file of the shard; its held pages are written before a wait.
    :param retry: limits the wait.
    """

    def __init__(self, landed: LandedShard, retry: RetryBudget) -> None:
        super().__init__(landed.memory, PAGE_BYTES)
        self._landed = landed
        self._retry = retry

    @override
    def hold(self) -> None:
        """Reserve the memory of a page, or wait for it.

        :raises NoRoomError: if the time ends before there is memory.
        """
        if self.hold_now():
            return
        self._landed.write_out()
        until = self._retry.until
        left = None if until is None else max(0.0, until - self._retry.clock.monotonic())
        if not self.hold_within(left):
            raise NoRoomError


@dataclass(frozen=True, kw_only=True)
class ShardReadPlan(ShardPart):
    """What to read of one shard, see also `ShardPart`; without an `end`, the partition ends with the shard.

    :param source_identifier: the item family of the partition.
    :param partition_key: the partition.
    :param fencing_token: the fencing token of its lease.
    :param epoch: of its partition.
    :param iterator: a Kinesis iterator that continues at the start; None if none is known.
    :param throughput: bytes per second of the shard in the previous rounds; None if it was not read yet.
    :param recent_reads: the reads of the previous rounds; times count from now.
    """

    source_identifier: str
    partition_key: str
    fencing_token: int
    epoch: int = 0
    iterator: str | None = None
    throughput: float | None = None
    recent_reads: RecentReads = ()


@dataclass(frozen=True, kw_only=True)
class ShardLandingOptions(LandingOptions):
    """The options for landing every shard of a round.

    :param kinesis: how to reach the service.
    :param filter_by_hash_range: drop user records of an aggregate whose hash key does not belong to their shard.
    :param reads_per_second: how often a shard is polled at most.
    :param records_per_read: how many records a poll returns at most.
    :param on_data_loss: `"fail"` lands nothing after a gap, `"earliest"` reads on, `"latest"` skips to the present.
    :param stop_at: land no record that arrived at this instant (aware) or later.
    :param completes: the length of the intervals in which records count; a batch has records of one interval only.
    :param ends_at_newest: whether the landing ends with a page up to the newest record, although more may follow.
        Otherwise it ends with a page without records, so that it takes along what arrives during that time.
    :param format: what the records are.
    """

    kinesis: AwsSettings
    filter_by_hash_range: bool = True
    reads_per_second: float = READS_PER_SECOND
    records_per_read: int = MAX_RECORDS_PER_READ
    on_data_loss: str = "fail"
    stop_at: datetime | None = None
    completes: timedelta | None = None
    ends_at_newest: bool = False
    format: ShardFormat = KINESIS
