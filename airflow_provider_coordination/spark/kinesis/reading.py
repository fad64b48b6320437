"""Reading Kinesis shards in rounds: refreshing streams, ordering parents before children, and reporting losses."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinds import ReadsSettings
from airflow_provider_coordination.sources.kinesis.batch_reading import BatchStart
from airflow_provider_coordination.sources.kinesis.client import KinesisClient, StreamGoneError
from airflow_provider_coordination.sources.kinesis.fan_out import ensure_consumer
from airflow_provider_coordination.sources.kinesis.pacing import RecentReads, shifted
from airflow_provider_coordination.sources.kinesis.positions import is_sequence_number
from airflow_provider_coordination.sources.kinesis.progress import Gap, ShardProgress, sibling_key
from airflow_provider_coordination.sources.kinesis.settings import KinesisStreams, ShardReads
from airflow_provider_coordination.sources.kinesis.shards import StreamDescription, describe_stream
from airflow_provider_coordination.sources.kinesis.stream_names import with_found
from airflow_provider_coordination.sources.kinesis.sync import ShardSync
from airflow_provider_coordination.sources.kinesis.sync_state import SyncState
from airflow_provider_coordination.sources.landed import Failure, LandedBatch
from airflow_provider_coordination.spark.job_spark import JobSpark
from airflow_provider_coordination.spark.kinesis.landed_shard import ShardLandingOptions, ShardReadPlan
from airflow_provider_coordination.spark.kinesis.landing import LandedShardRow, land
from airflow_provider_coordination.spark.kinesis.shard_format import KINESIS, ShardFormat
from airflow_provider_coordination.spark.kinesis.streams import Register, Streams
from airflow_provider_coordination.spark.layout import RecordLayout
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.reading import (
    JobSource,
    KindPartitions,
    MakeReading,
    PartitionsToRead,
    Reading,
    RoundRead,
)
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.shared_locations import SharedLocations
from airflow_provider_coordination.spark.slots import SlotCount

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

IDLE_WRITES_PER_TIMEOUT = 3
"""How often per ownership timeout an idle shard's position is written at most: as often as its lease is renewed."""
ITERATOR_SECONDS = 240.0
"""How long a Kinesis iterator is used; it is valid for five minutes."""
PARENT_POLL_INTERVAL = timedelta(seconds=10)
"""How often a child whose parent is not finished is checked, as in the Kinesis Client Library."""


class _Iterator(NamedTuple):
    """A Kinesis iterator, or the continuation of a subscription, after the records that were read of a shard."""

    position: str
    iterator: str
    given_at: float


class ShardReading(Reading):
    """How a job reads shards; a `Reading`.

    :param context: the Spark context.
    :param reads: what to read, and how.
    :param streams: the streams of the job; shards of other streams are left alone.
    :param settings: the settings of the job.
    :param coordinator: the coordinator of the source, for the job's owner.
    :param partitions: the partitions of the job.
    :param summary: the summary of the job.
    :param format: what the records are.
    :param slots: decides how many slots land; None for a decision that no other part of the job shares.
    :param is_shared: whether other jobs wait for the same slots, so that a landing must not wait for records.
    """

    def __init__(
        self,
        context: SparkContext,
        reads: ShardReads,
        streams: Streams,
        settings: IngestSettings,
        coordinator: SourceCoordinator,
        partitions: PartitionsToRead,
        summary: Summary,
        format: ShardFormat = KINESIS,
        slots: SlotCount | None = None,
        is_shared: bool = False,
    ) -> None:
        self._context = context
        self._slots = slots or SlotCount(context)
        self._streams = streams
        self._coordinator = coordinator
        self._partitions = partitions
        self._summary = summary
        self._clock = coordinator.clock
        self._on_data_loss = reads.on_data_loss
        self._landing = ShardLandingOptions(
            kinesis=reads.aws,
            root=settings.landing_path,
            access=settings.access,
            seconds=settings.rounds.round_duration.total_seconds(),
            max_bytes=settings.rounds.max_batch_bytes,
            slot_memory_bytes=settings.rounds.slot_memory_bytes,
            filter_by_hash_range=reads.filter_by_hash_range,
            reads_per_second=reads.reads_per_second,
            records_per_read=reads.records_per_read,
            on_data_loss=reads.on_data_loss,
            stop_at=reads.stop_at,
            completes=settings.completes,
            ends_at_newest=is_shared or settings.rounds.freshness is not None,
            format=format,
        )
        self._places = SharedLocations(settings.worker_roots, settings.access)
        self._settling_time = reads.repartition_transition_duration
        self._at_stop: set[str] = set()
        self._shards = KindPartitions(partitions, coordinator.leases, ShardProgress)
        self._measured_at: dict[str, float] = {}  # by partition: when its throughput was last measured
        self._iterators: dict[str, _Iterator] = {}
        self._recent_reads: dict[str, RecentReads] = {}  # by partition: its reads, by the local clock
        self._gone: dict[str, str] = {}  # by partition whose stream no longer exists: the reason
        self._settling: dict[str, datetime] = {}  # by child put back until its resharding has settled: until when

    @property
    @override
    def at_stop(self) -> set[str]:
        return self._at_stop

    @property
    @override
    def expects_more(self) -> bool:
        """A resharding may still have to settle."""
        return any(until > self._clock.now() - PARENT_POLL_INTERVAL for until in self._settling.values())

    # Streams

    def refresh_source(self) -> None:
        """Refresh the streams, and mark the shards whose stream no longer exists."""
        self._at_stop.intersection_update(self._partitions.read_until)
        self._shards.forget_ended()
        known: dict[str, Any]
        for known in (self._measured_at, self._iterators, self._recent_reads):
            for key in known.keys() - self._partitions.read_until.keys():
                del known[key]
        if self._streams.refresh():
            for key, progress in list(self._shards.all()):
                self._check_stream(key, progress)

    def _check_stream(self, key: str, progress: ShardProgress) -> None:
        """Check that the shard's stream exists; landed data of a stream that is gone is still delivered.

        :raises SourceError: if the job does not read the stream.
        """
        try:
            self._streams.check(key, progress)
            self._gone.pop(key, None)
        except StreamGoneError as error:
            if not progress.is_ended:
                self._gone[key] = str(error)

    @override
    def completed(self, partition: Partition) -> None:
        """The end of a shard is written with its last batch."""

    @override
    def end_round(self) -> None:
        self._report_lost_shards()

    def _report_lost_shards(self) -> None:
        """Report the loss of shards whose stream is gone, once their landed data is delivered."""
        for key, reason in list(self._gone.items()):
            with suppress(*LOST):
                progress = self._shards.progress(key)
                if not progress.landed:
                    gap = progress.gap_to_end(reason, until=None, found_at=self._clock.now())
                    self._report_loss(key, progress, gap)
                    # Within a bounded read, only a shard sync that the user runs continues with the successors.
                    is_left_to_sync = progress.end is not None and progress.is_followed
                    if self._on_data_loss != "fail" and not is_left_to_sync:
                        self._coordinator.leases.complete(key, progress.with_gap(gap).ended().to_mapping())
                    else:
                        self._partitions.park(
                            key, reason, progress.with_gap(gap).to_mapping(), Failure(StreamGoneError.__name__, True)
                        )
            if not self._coordinator.leases.holds(key):
                self._gone.pop(key, None)

    # Start

    @override
    def may_start(self, partition: Partition) -> bool:
        """A child must wait for its parents."""
        progress = ShardProgress.from_mapping(partition.progress)
        self._check_stream(partition.partition_key, progress)
        return not self._must_wait(partition, progress)

    def _must_wait(self, partition: Partition, progress: ShardProgress) -> bool:
        """Return whether a child that was not read yet must wait; put it back if so.

        A child is created when its parents are done. But an imported child may exist earlier, and a resharding may
        have to settle first.
        """
        if is_sequence_number(progress.landed_position):
            return False
        key, now = partition.partition_key, self._clock.now()
        parents = [self._coordinator.view.get(sibling_key(key, parent)) for parent in progress.parent_shard_ids]
        until = max(
            (p.priority + self._settling_time for p in parents if p and p.status is PartitionStatus.COMPLETED),
            default=now,
        )
        if self._settling_time and until > now:
            self._settling[key] = until
        elif unfinished := [p for p in parents if p and p.status is not PartitionStatus.COMPLETED]:
            log.info("partition %s waits for its parents", key)
            until = now + PARENT_POLL_INTERVAL
            if progress.end is not None and not any(parent.is_parked for parent in unfinished):
                self._settling[key] = until  # a bounded job ends once nothing is left
        else:
            self._settling.pop(key, None)
            return False
        self._put_back(key, until)
        return True

    def _put_back(self, key: str, until: datetime) -> None:
        """Give a partition back until an instant (aware)."""
        with suppress(*LOST):
            self._coordinator.leases.give_up(key, after=until - self._clock.now())

    # Land and record

    @override
    def land(self, *, leave_slot: bool, max_seconds: float = math.inf) -> list[LandedShardRow]:
        plans = [self._plan(*each) for each in self._shards.to_land(besides=self._at_stop | self._gone.keys())]
        options = replace(self._landing, leave_slot=leave_slot, seconds=min(self._landing.seconds, max_seconds))
        return land(self._context, plans, options, self._places, self._slots) if plans else []

    def _plan(self, key: str, progress: ShardProgress, fencing_token: int) -> ShardReadPlan:
        return ShardReadPlan(
            source_identifier=self._coordinator.view.source_identifier,
            partition_key=key,
            fencing_token=fencing_token,
            epoch=progress.epoch,
            stream=progress.stream,
            stream_arn=self._streams.arn(key),
            shard_id=progress.shard_id,
            start=BatchStart(
                position=progress.landed_position,
                delivered_until=progress.owed_from,
                retention=self._streams.retention(progress.stream),
            ),
            hash_keys=progress.hash_keys,
            consumer_arn=self._streams.consumer_arn(progress.stream),
            end=progress.end,
            iterator=self._iterator_of(key, progress),
            throughput=progress.throughput,
            recent_reads=shifted(self._recent_reads.get(key, ()), -self._clock.monotonic()),
        )

    def _iterator_of(self, key: str, progress: ShardProgress) -> str | None:
        """Return the Kinesis iterator that continues where reading of a shard ended, if it is still valid."""
        known = self._iterators.get(key)
        if known is None or known.position != progress.landed_position:
            return None
        if self._streams.consumer_arn(progress.stream) is not None:
            return known.iterator  # a sequence number at which a subscription continues
        return known.iterator if self._clock.monotonic() - known.given_at < ITERATOR_SECONDS else None

    @override
    def record(self, rows: Sequence[LandedShardRow]) -> RoundRead:
        self._check_batch_starts(rows)
        held = max((row.memory_bytes for row in rows), default=0)
        self._summary.slot_memory_bytes = max(self._summary.slot_memory_bytes, held)
        idle: dict[str, ShardProgress] = {}
        for row in rows:
            if row.partition_key in self._gone:
                continue  # the landed data belongs to another stream of the same name; it is swept later
            with self._partitions.recording(row.partition_key):
                self._record(row, idle)
            if row.next_iterator is not None:
                self._iterators[row.partition_key] = _Iterator(row.end, row.next_iterator, self._clock.monotonic())
            self._recent_reads[row.partition_key] = shifted(row.recent_reads, self._clock.monotonic())
        self._write_idle(idle)
        return RoundRead(
            partitions=sum(row.is_batch for row in rows),
            bytes=sum(row.bytes for row in rows),
            behind_ms={row.partition_key: row.millis_behind_latest for row in rows if not row.error},
            filtered=sum(row.filtered for row in rows),
            throttled=sum(row.throttled for row in rows),
        )

    def _record(self, row: LandedShardRow, idle: dict[str, ShardProgress]) -> None:
        """Record what was read of a shard.

        :param idle: receives the position of an idle shard, if it must be written.
        """
        key = row.partition_key
        if row.error is not None:
            self._handle_unreadable(row)
            return
        if row.gap is not None:
            self._note_gap(key, row.gap, skips_rest=row.skips_rest)
        self._shards.note_readable(key)
        if row.at_stop:
            self._at_stop.add(key)
        if row.is_batch:
            self._record_batch(row)
            return
        self._partitions.note_read(key, row.read_until)
        if row.read_until is not None:
            after = self._coordinator.leases.ownership_timeout / IDLE_WRITES_PER_TIMEOUT
            if (known := self._idle(key, row.read_until, after=after)) is not None:
                idle[key] = known

    def _check_batch_starts(self, rows: Sequence[LandedShardRow]) -> None:
        """Make sure that the records come from the stream that the shard belongs to.

        Another stream of the same name refuses a sequence number, but accepts other positions.
        """
        begun = {row.partition_key for row in rows if row.is_batch and not is_sequence_number(row.start)}
        beginnings = [(key, progress) for key, progress in self._shards.all() if key in begun]
        for name in {progress.stream for _, progress in beginnings}:
            self._streams.describe_again(name)
        for key, progress in beginnings:
            self._check_stream(key, progress)

    def _record_batch(self, row: LandedShardRow) -> None:
        throughput = self._throughput_of(row)

        def landing(progress: ShardProgress, batch: LandedBatch) -> ShardProgress:
            landed = progress.landing(batch, row.children)
            return landed if throughput is None else landed.measured(throughput)

        self._shards.record(row, landing)

    def _throughput_of(self, row: LandedShardRow) -> float | None:
        """Return the bytes per second of a shard since its last measurement; the first time, while it was read."""
        now, since = self._clock.monotonic(), self._measured_at.get(row.partition_key)
        self._measured_at[row.partition_key] = now
        seconds = row.seconds if since is None else now - since
        return row.bytes / seconds if seconds > 0 else None

    # Unreadable shards

    def _handle_unreadable(self, row: LandedShardRow) -> None:
        key, reason = row.partition_key, str(row.error)
        exhausted = self._shards.count_unreadable(key)
        if row.gap is not None and self._on_data_loss == "fail":
            progress = self._shards.progress(key)
            self._report_loss(key, progress, row.gap)
            self._partitions.park(key, reason, progress.with_gap(row.gap).to_mapping(), row.failure)
        elif row.gap is not None and exhausted:
            self._gone[key] = reason  # the shard is gone, the stream is not: shard sync continues with its successors
        elif not exhausted and (row.is_temporary or row.gap is not None):
            if row.gap is not None:
                self._streams.refresh_soon()
            log.warning("partition %s cannot be read, trying again next round: %s", key, reason)
        else:
            self._partitions.fail(key, reason, row.failure)

    def _note_gap(self, key: str, gap: Gap, *, skips_rest: bool) -> None:
        """Report data that was lost before it was read, and record the gap with the partition.

        :param skips_rest: whether reading continues at the end of the gap. Landed batches are delivered first; until
            then, each round finds the gap again.
        """
        progress = self._shards.progress(key)
        if skips_rest and progress.landed:
            return
        self._report_loss(key, progress, gap)
        after = progress.skipping(gap) if skips_rest else progress.with_gap(gap)
        self._coordinator.leases.save_progress(key, after.to_mapping())

    def _report_loss(self, key: str, progress: ShardProgress, gap: Gap) -> None:
        log.error("data loss: source=%s partition=%s range=%s", self._coordinator.source, key, gap)
        self._coordinator.events.count(CoordinationMetric.DATA_LOSS)
        self._summary.data_loss[key] = str(gap)

    # Idle shards

    @override
    def last_known(self, key: str) -> ShardProgress | None:
        until = self._partitions.read_until.get(key)
        return None if until is None else self._idle(key, until, after=timedelta(0))

    def _write_idle(self, idle: Mapping[str, ShardProgress]) -> None:
        """Write the positions of idle shards.

        A write renews the lease. At the pace of renewals, an idle shard therefore costs no additional write.
        """
        written = self._coordinator.leases.checkpoint_each({key: known.to_mapping() for key, known in idle.items()})
        for key, result in written.items():
            with self._partitions.recording(key):
                if isinstance(result, Exception):
                    raise result
                self._measured_at[key] = self._clock.monotonic()
                self._summary.note_progress(key)

    def _idle(self, key: str, until: datetime, *, after: timedelta) -> ShardProgress | None:
        """Return the progress of an idle shard; None if it is not idle, or advanced by `after` at most."""
        progress = self._shards.progress(key)
        known = progress.delivered_until or datetime.min.replace(tzinfo=UTC)
        if progress.landed or until <= known + after:
            return None
        return progress.quiet_until(until)


DESCRIBE_INTERVAL = timedelta(minutes=1)
"""How often a job that leaves shard sync to others checks whether its streams still exist."""


class ShardSource(JobSource):
    """The streams that a job reads; a `JobSource`. A subclass says what a kind of stream has of its own.

    :param settings: what is read.
    :param format: what the records are.
    """

    default_leases = None
    worker_imports: Sequence[str] = (land.__module__, "boto3", "botocore.client")

    def __init__(self, settings: ShardReads, format: ShardFormat) -> None:
        self._settings = settings
        self._format = format

    def register(self, client: KinesisClient) -> Register | None:
        """Return what registers the job as a consumer of a stream; None if shards are polled."""
        return None

    @property
    @override
    def name(self) -> str:
        names = [*self._settings.parts, *([f"with {self._settings.search}"] if self._settings.search else [])]
        return f"streams {', '.join(names)}"

    @property
    @override
    def layout(self) -> RecordLayout:
        return self._format.layout

    @override
    def columns(self, spark: object) -> StructType | None:
        return self.layout.columns

    @property
    @override
    def stop_at(self) -> datetime | None:
        return self._settings.stop_at

    @property
    @override
    def is_bounded(self) -> bool:
        return self._settings.bounds is not None

    @override
    def opened(self, coordinator: SourceCoordinator) -> Callable[[JobSpark], MakeReading]:
        return partial(self.reading, streams=self._streams(self._settings.client(), coordinator))

    def reading(self, spark: JobSpark, streams: Streams) -> MakeReading:
        """Return what makes the reading of a job."""
        return partial(
            ShardReading,
            spark.context,
            self._settings,
            streams,
            format=self._format,
            slots=spark.slots,
            is_shared=spark.is_shared,
        )

    def _streams(self, client: KinesisClient, coordinator: SourceCoordinator) -> Streams:
        settings = self._settings
        every, history = settings.syncs_every, settings.history(coordinator)
        sync = ShardSync(client, coordinator, on_data_loss=settings.on_data_loss, history=history)

        def found() -> Sequence[str]:
            """The sync of a task searches for streams; its jobs read which ones it found."""
            return SyncState.from_mapping(coordinator.view.supplier_state()).named if settings.search else ()

        return Streams(
            settings.addresses,
            partial(describe_stream, client),
            sync=(lambda: sync.run(with_found(settings.addresses, found()), forced=False)) if every else None,
            found=found,
            interval=every or DESCRIBE_INTERVAL,
            register=self.register(client),
        )


class KinesisSource(ShardSource):
    """The Kinesis streams that a job reads."""

    def __init__(self, reads: ReadsSettings) -> None:
        self._kinesis = KinesisStreams.from_mapping(reads.settings)
        super().__init__(self._kinesis, KINESIS)

    @override
    def register(self, client: KinesisClient) -> Register | None:
        consumer = self._kinesis.consumer_name
        return None if consumer is None else partial(_register, client, consumer)


def _register(client: KinesisClient, consumer_name: str, stream: StreamDescription) -> str:
    """Register the consumer as which a stream is read by enhanced fan-out; return its ARN."""
    return ensure_consumer(client, stream.name, stream.arn, consumer_name)
