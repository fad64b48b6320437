"""Reading Kinesis shards in rounds: streams are looked after, parents come before children, losses are reported."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import CoordinationMetric
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.sources.kinesis.cleanup import ended, gap_after, with_loss
from airflow_provider_coordination.sources.kinesis.errors import StreamGoneError
from airflow_provider_coordination.sources.kinesis.keys import sibling_key
from airflow_provider_coordination.sources.kinesis.pacing import Taken, moved
from airflow_provider_coordination.sources.kinesis.positions import is_sequence_number
from airflow_provider_coordination.sources.kinesis.progress import Gap, ShardProgress
from airflow_provider_coordination.sources.kinesis.settings import KinesisSettings
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.kind_partitions import KindPartitions
from airflow_provider_coordination.spark.kinesis.landing import Landed, LandingOptions, ReadPlan, land
from airflow_provider_coordination.spark.kinesis.streams import Streams
from airflow_provider_coordination.spark.landed_row import Failure
from airflow_provider_coordination.spark.reading import PartitionsToRead, RoundRead
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.shared_locations import SharedPlaces
from airflow_provider_coordination.spark.slot_count import SlotCount
from airflow_provider_coordination.spark.summary import Summary

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

IDLE_WRITES_PER_TIMEOUT = 3
"""How often in an ownership timeout an idle shard's position is written at most: as often as its lease is renewed."""
ITERATOR_SECONDS = 240.0
"""How long an iterator of Kinesis is used: it holds for five minutes."""
PARENT_POLL = timedelta(seconds=10)
"""How often a child whose parent is not finished is looked at, as in the Kinesis Client Library."""


class _Iterator(NamedTuple):
    """Kinesis' own iterator, which goes on behind what was read of a shard."""

    position: str
    iterator: str
    given_at: float


class ShardReading:
    """How a job reads shards; a `Reading`.

    :param context: Spark's.
    :param kinesis: what is read, and how.
    :param streams: the streams that it reads; the shards of others are left alone.
    :param settings: the job's.
    :param coordinator: of the source, for the job's owner.
    :param partitions: what the job works on.
    :param summary: the job's report.
    """

    def __init__(
        self,
        context: SparkContext,
        kinesis: KinesisSettings,
        streams: Streams,
        settings: IngestSettings,
        coordinator: SourceCoordinator,
        partitions: PartitionsToRead,
        summary: Summary,
    ) -> None:
        self._context = context
        self._slots = SlotCount(context)
        self._streams = streams
        self._coordinator = coordinator
        self._partitions = partitions
        self._summary = summary
        self._clock = coordinator.clock
        self._on_data_loss = kinesis.on_data_loss
        self._landing = LandingOptions(
            kinesis=kinesis.aws,
            root=settings.landing_path,
            access=settings.access,
            seconds=settings.rounds.round_duration.total_seconds(),
            max_bytes=settings.rounds.max_batch_bytes,
            slot_memory_bytes=settings.rounds.slot_memory_bytes,
            filter_by_hash_range=kinesis.filter_by_hash_range,
            on_data_loss=kinesis.on_data_loss,
            stop_at=kinesis.stop_at,
        )
        self._places = SharedPlaces(settings.worker_roots, settings.access)
        self._settling_time = kinesis.repartition_transition_duration
        self._at_stop: set[str] = set()
        self._shards = KindPartitions(partitions, coordinator.leases, ShardProgress)
        self._measured_at: dict[str, float] = {}  # when the throughput of each was last measured
        self._iterators: dict[str, _Iterator] = {}
        self._taken: dict[str, Taken] = {}  # what was read of each, by the clock
        self._gone: dict[str, str] = {}  # why, of shards whose stream is not there any more
        self._settling: dict[str, datetime] = {}  # children put back until their resharding has settled

    @property
    def at_stop(self) -> set[str]:
        """See `Reading.at_stop`."""
        return self._at_stop

    @property
    def expects_more(self) -> bool:
        """See `Reading.expects_more`: a resharding may be left to settle."""
        return any(until > self._clock.now() - PARENT_POLL for until in self._settling.values())

    # Streams

    def look_after(self) -> None:
        """Look after the streams' shards, and put down those whose stream is not there any more."""
        self._at_stop.intersection_update(self._partitions.read_until)
        self._shards.forget_ended()
        known: dict[str, Any]
        for known in (self._measured_at, self._iterators, self._taken):
            for key in known.keys() - self._partitions.read_until.keys():
                del known[key]
        if self._streams.look_after():
            for key, progress in list(self._shards.all()):
                self._check_stream(key, progress)

    def _check_stream(self, key: str, progress: ShardProgress) -> None:
        """Check that the shard's stream is there; what is landed of one that is gone is delivered all the same.

        :raises SourceError: if the job does not read its stream.
        """
        try:
            self._streams.check(key, progress)
            self._gone.pop(key, None)
        except StreamGoneError as error:
            if not progress.is_ended:
                self._gone[key] = str(error)

    def completed(self, partition: Partition) -> None:
        """See `Reading.completed`: the end of a shard is written with its last batch."""

    def end_round(self) -> None:
        """See `Reading.end_round`."""
        self._lose_gone()

    def _lose_gone(self) -> None:
        """Report what shards held that are gone with their stream, once what is landed of them is delivered."""
        for key, reason in list(self._gone.items()):
            with suppress(*LOST):
                progress = self._shards.progress(key)
                if not progress.landed:
                    gap = gap_after(progress, reason, until=None, found_at=self._clock.now())
                    self._report_loss(key, progress, gap)
                    # Within instants nobody but a person's shard sync goes on with what follows.
                    is_left_to_sync = progress.end is not None and progress.is_followed
                    if self._on_data_loss == "reset" and not is_left_to_sync:
                        self._coordinator.leases.complete(key, ended(with_loss(progress, gap)).to_mapping())
                    else:
                        self._partitions.park(
                            key, reason, with_loss(progress, gap).to_mapping(), Failure(StreamGoneError.__name__, True)
                        )
            if not self._coordinator.leases.holds(key):
                self._gone.pop(key, None)

    # Beginning

    def may_begin(self, partition: Partition) -> bool:
        """See `Reading.may_begin`: a child has to wait for its parents."""
        progress = ShardProgress.from_mapping(partition.progress)
        self._check_stream(partition.partition_key, progress)
        return not self._has_to_wait(partition, progress)

    def _has_to_wait(self, partition: Partition, progress: ShardProgress) -> bool:
        """Return whether a child that nothing was read from has to wait, and put it back if so.

        A child is created when its parents are done, but an imported one may be there before; and a resharding may be
        left to settle first.
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
            until = now + PARENT_POLL
            if progress.end is not None and not any(parent.is_parked for parent in unfinished):
                self._settling[key] = until  # a bounded job ends when nothing is left
        else:
            self._settling.pop(key, None)
            return False
        with suppress(*LOST):
            self._coordinator.leases.give_up(key, after=until - now)
        return True

    # Land and record

    def land(self, *, leave_slot: bool) -> list[Landed]:
        """See `Reading.land`."""
        plans = [self._plan(*each) for each in self._shards.to_land(besides=self._at_stop | self._gone.keys())]
        options = replace(self._landing, leave_slot=leave_slot)
        return land(self._context, plans, options, self._places, self._slots) if plans else []

    def _plan(self, key: str, progress: ShardProgress, fencing_token: int) -> ReadPlan:
        return ReadPlan(
            source_identifier=self._coordinator.view.source_identifier,
            partition_key=key,
            fencing_token=fencing_token,
            stream=progress.stream,
            shard_id=progress.shard_id,
            start=progress.landed_position,
            starting_hash_key=progress.starting_hash_key,
            ending_hash_key=progress.ending_hash_key,
            delivered_until=progress.owed_from,
            retention_seconds=self._streams.retention_seconds(progress.stream),
            consumer_arn=self._streams.consumer_arn(progress.stream),
            end=progress.end,
            iterator=self._iterator_of(key, progress),
            throughput=progress.throughput,
            taken=moved(self._taken.get(key, ()), -self._clock.monotonic()),
        )

    def _iterator_of(self, key: str, progress: ShardProgress) -> str | None:
        """Return Kinesis' iterator that goes on where a shard was read to, if it still holds."""
        known = self._iterators.get(key)
        if known is None or known.position != progress.landed_position:
            return None
        return known.iterator if self._clock.monotonic() - known.given_at < ITERATOR_SECONDS else None

    def record(self, rows: Sequence[Landed]) -> RoundRead:
        """See `Reading.record`."""
        self._check_beginnings(rows)
        held = max((row.memory_bytes for row in rows), default=0)
        self._summary.slot_memory_bytes = max(self._summary.slot_memory_bytes, held)
        idle: dict[str, ShardProgress] = {}
        for row in rows:
            if row.partition_key in self._gone:
                continue  # what was landed is another stream's of this name, and swept later
            with self._partitions.recording(row.partition_key):
                self._record(row, idle)
            if row.next_iterator is not None:
                self._iterators[row.partition_key] = _Iterator(row.end, row.next_iterator, self._clock.monotonic())
            self._taken[row.partition_key] = moved(row.taken, self._clock.monotonic())
        self._write_idle(idle)
        return RoundRead(
            partitions=sum(row.is_batch for row in rows),
            bytes=sum(row.bytes for row in rows),
            behind_ms={row.partition_key: row.millis_behind_latest for row in rows if not row.error},
            filtered=sum(row.filtered for row in rows),
            throttled=sum(row.throttled for row in rows),
        )

    def _record(self, row: Landed, idle: dict[str, ShardProgress]) -> None:
        """Note what was read of a shard.

        :param idle: where it is put how far an idle shard is, if that is to be written.
        """
        key = row.partition_key
        if row.error is not None:
            self._cannot_read(row)
            return
        if row.gap is not None:
            self._note_gap(key, row.gap)
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

    def _check_beginnings(self, rows: Sequence[Landed]) -> None:
        """Make sure that what was read is of the stream whose shard it was to be.

        A sequence number is refused by another stream of the same name; other positions are not.
        """
        begun = {row.partition_key for row in rows if row.is_batch and not is_sequence_number(row.start)}
        beginnings = [(key, progress) for key, progress in self._shards.all() if key in begun]
        for name in {progress.stream for _, progress in beginnings}:
            self._streams.look_at(name)
        for key, progress in beginnings:
            self._check_stream(key, progress)

    def _record_batch(self, row: Landed) -> None:
        throughput = self._throughput_of(row)

        def landing(progress: ShardProgress, batch: LandedBatch) -> ShardProgress:
            landed = progress.landing(batch, row.children)
            return landed if throughput is None else landed.measured(throughput)

        self._shards.record(row, landing)

    def _throughput_of(self, row: Landed) -> float | None:
        """Return how many bytes a second a shard gave since it was measured last; what it gave while read, at first."""
        now, since = self._clock.monotonic(), self._measured_at.get(row.partition_key)
        self._measured_at[row.partition_key] = now
        seconds = row.seconds if since is None else now - since
        return row.bytes / seconds if seconds > 0 else None

    # What cannot be read

    def _cannot_read(self, row: Landed) -> None:
        key, reason = row.partition_key, str(row.error)
        exhausted = self._shards.count_unreadable(key)
        if row.gap is not None and self._on_data_loss == "fail":
            progress = self._shards.progress(key)
            self._report_loss(key, progress, row.gap)
            self._partitions.park(key, reason, with_loss(progress, row.gap).to_mapping(), row.failure)
        elif row.gap is not None and exhausted:
            self._gone[key] = reason  # the shard is not there, and its stream is: shard sync goes on with what follows
        elif not exhausted and (row.passing or row.gap is not None):
            if row.gap is not None:
                self._streams.look_soon()
            log.warning("partition %s cannot be read, trying again next round: %s", key, reason)
        else:
            self._partitions.fail(key, reason, row.failure)

    def _note_gap(self, key: str, gap: Gap) -> None:
        """Report data that was gone before it was read, and keep that with the partition."""
        progress = self._shards.progress(key)
        self._report_loss(key, progress, gap)
        self._coordinator.leases.save_progress(key, with_loss(progress, gap).to_mapping())

    def _report_loss(self, key: str, progress: ShardProgress, gap: Gap) -> None:
        log.error("data loss: stream=%s shard=%s range=%s", progress.stream, progress.shard_id, gap)
        self._coordinator.events.count(CoordinationMetric.DATA_LOSS)
        self._summary.data_loss[key] = str(gap)

    # What is known of idle shards

    def last_known(self, key: str) -> ShardProgress | None:
        """See `Reading.last_known`."""
        until = self._partitions.read_until.get(key)
        return None if until is None else self._idle(key, until, after=timedelta(0))

    def _write_idle(self, idle: Mapping[str, ShardProgress]) -> None:
        """Write how far idle shards are.

        Writing it renews the lease, so at the pace of renewals an idle shard costs no write more.
        """
        written = self._coordinator.leases.checkpoint_each({key: known.to_mapping() for key, known in idle.items()})
        for key, result in written.items():
            with self._partitions.recording(key):
                if isinstance(result, Exception):
                    raise result
                self._measured_at[key] = self._clock.monotonic()
                self._summary.note_progress(key)

    def _idle(self, key: str, until: datetime, *, after: timedelta) -> ShardProgress | None:
        """Return how far an idle shard is; None if it is not idle, or that is news by `after` at most."""
        progress = self._shards.progress(key)
        known = progress.delivered_until or datetime.min.replace(tzinfo=UTC)
        if progress.landed or until <= known + after:
            return None
        return replace(progress.measured(0.0), delivered_until=until)
