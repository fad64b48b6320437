"""The job: rounds of acquire, land, record, deliver, acknowledge, until a stop condition holds.

Exactly-once follows from the order. A batch is *recorded* in its partition's progress, under the lease, before it is
delivered; from then on whoever owns the partition delivers exactly that file; a sink takes a batch id once; and the
checkpoint moves only when the batch's acknowledgment set ends. A crash between any two steps repeats at most a step
that is idempotent.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    ProgressChangedError,
    ProgressError,
    SourceError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.handover import Balancer
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import CoordinationMetric, Metrics, NoMetrics
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.renewal import LeaseRenewer, Renewable
from airflow_provider_coordination.sources.kinesis.cleanup import ended, gap_after, with_loss
from airflow_provider_coordination.sources.kinesis.errors import StreamGoneError
from airflow_provider_coordination.sources.kinesis.keys import parse_partition_key, sibling_key
from airflow_provider_coordination.sources.kinesis.positions import is_sequence_number
from airflow_provider_coordination.sources.kinesis.progress import Gap, LandedBatch, ShardProgress
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.deliveries import Deliveries
from airflow_provider_coordination.spark.delivery import Delivery, Prepared
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.landing import (
    Landed,
    LandingOptions,
    ReadPlan,
    land,
)
from airflow_provider_coordination.spark.metrics import note_round
from airflow_provider_coordination.spark.settings import DEAD_LETTER, IngestSettings
from airflow_provider_coordination.spark.stopping import StopConditions
from airflow_provider_coordination.spark.streams import Streams
from airflow_provider_coordination.spark.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

DELIVERY_THREADS = 8
UNREADABLE_ROUNDS = 5
SETS_NAMED = 1000
"""How many pending sets a summary names: as many as Airflow maps over by default."""
STORE_PATIENCE_SECONDS = 300.0
"""How long a job waits for a store that does not answer; its leases run out long before."""
STORE_POLL_SECONDS = 5.0
PARENT_POLL = timedelta(seconds=10)
"""How often a child whose parent is not finished is looked at, as in the Kinesis Client Library."""

Observer = Callable[[str], None]
"""Told when a phase is passed: `landed`, `recorded`, `delivering`, `delivered`. For fault injection."""


class Ingestion:
    """One job's work on one source.

    :param settings: what to do.
    :param spark: the session.
    :param coordinator: of the source, initialized, for this job's owner.
    :param delivery: takes batches into the sinks.
    :param streams: the streams that it reads; the shards of others are left alone.
    :param bad_records: what the delivery finds wrong with records.
    :param stop: set from outside to end the job after the step in hand.
    :param observer: told of passed phases.
    :param metrics: where counts go.
    :param clock: where the time comes from.
    """

    def __init__(
        self,
        settings: IngestSettings,
        spark: SparkSession,
        coordinator: SourceCoordinator,
        delivery: Delivery,
        *,
        streams: Streams,
        stop: threading.Event,
        bad_records: BadRecords | None = None,
        observer: Observer = lambda phase: None,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._spark = spark
        self._coordinator = coordinator
        self._delivery = delivery
        self._streams = streams
        self._bad_records = bad_records or BadRecords()
        self._stop = stop
        self._observer = observer
        self._metrics = metrics or NoMetrics()
        self._tags = {"source": settings.source, "store": coordinator.store.kind}
        self._clock = clock or SystemClock()
        self._landing = LandingOptions(
            kinesis=settings.kinesis,
            root=settings.landing_root,
            seconds=settings.round_seconds,
            max_bytes=settings.max_batch_bytes,
            shards_per_slot=settings.shards_per_slot,
            filter_by_hash_range=settings.filter_by_hash_range,
            on_data_loss=settings.on_data_loss,
            stop_at=settings.stop_at,
        )
        self._conditions = StopConditions(
            until_caught_up=settings.until_caught_up,
            max_duration_seconds=settings.max_duration_seconds,
            max_idle_rounds=settings.max_idle_rounds,
            stop_at=settings.stop_at,
        )
        self._deliveries = Deliveries(settings, coordinator, delivery, observer)
        self._balancer = Balancer(
            coordinator,
            balance_by=settings.balance_by,
            max_leases=settings.max_leases,
            max_leases_to_steal=settings.max_leases_to_steal,
            handover_timeout=timedelta(seconds=settings.handover_timeout_seconds),
            expected_workers=settings.workers,
        )
        self._mine: dict[str, datetime | None] = {}  # what is at work, and up to when it is read
        self._files = LandedFiles(settings.landing_root, coordinator)
        self._unreadable: dict[str, int] = {}
        self._at_stop: set[str] = set()  # everything that arrived before `stop_at` is landed
        self._measured_at: dict[str, float] = {}  # when the throughput of each was last measured
        self._gone: dict[str, str] = {}  # why, of shards whose stream is not there any more
        self._settling: dict[str, datetime] = {}  # children put back until their resharding has settled
        self._renewal_interval = timedelta(seconds=settings.ownership_timeout_seconds / 3)
        self._summary = Summary()

    def run(self) -> Summary:
        """Make rounds until a stop condition holds; then give every lease back.

        A store that goes away is waited for: what was recorded is delivered, and what others took meanwhile is left to
        them.

        :raises StoreUnavailableError: if the store stays away for `STORE_PATIENCE_SECONDS`, or the job is told to stop
            meanwhile; the leases run out by themselves then.
        """
        started_at, started = self._clock.now(), self._clock.monotonic()
        summary, idle_rounds = self._summary, 0
        try:
            self._files.sweep_finished()
            with LeaseRenewer(*self.renewables):
                while not summary.stopped_because:
                    before, completed = summary.records_landed, len(summary.completed)
                    try:
                        acquired = self.round()
                    except StoreUnavailableError as error:
                        self._outlast(error)
                        continue
                    idle_rounds = idle_rounds + 1 if summary.records_landed == before else 0
                    summary.seconds = self._clock.monotonic() - started
                    summary.stopped_because = (
                        "it was told to stop"
                        if self._stop.is_set()
                        else self._conditions.reason(
                            started_at=started_at,
                            running_seconds=summary.seconds,
                            idle_rounds=idle_rounds,
                            acquired=acquired or len(summary.completed) > completed or self._is_settling,
                            read_until=[until for key, until in self._mine.items() if not self._is_paused(key)],
                            at_stop=sum(not self._is_paused(key) for key in self._at_stop & self._mine.keys()),
                        )
                        or ""
                    )
                    if idle_rounds and not summary.stopped_because:
                        self._stop.wait(self._settings.idle_seconds)
        finally:
            self.give_back()
        log.info("job ends: %s", summary.stopped_because)
        return summary

    @property
    def renewables(self) -> tuple[Renewable, ...]:
        """What has to be renewed all the time while rounds are made."""
        return self._deliveries, self._balancer

    def round(self) -> bool:
        """Make one round; for whoever does not leave the rounds to `run`.

        :returns: whether there may be more to do than what is at work already.
        :raises StoreUnavailableError: if the store does not answer.
        """
        summary = self._summary
        summary.rounds += 1
        landed_before, delivered_before = summary.records_landed, summary.records_delivered
        bad_before, unrouted_before, taken_before = (
            summary.parse_exceptions, summary.unrouted, dict(summary.records_by_sink),
        )  # fmt: skip
        seconds: dict[str, float] = {}
        self._look_after_streams()
        self._hear_of_others()
        with self._timed(seconds, "acquire"):
            acquired = self._acquire()
        with self._timed(seconds, "redeliver"):  # what a former owner recorded but did not deliver
            self._deliver()
            self._hand_over()
        with self._timed(seconds, "land"):
            rows = self._land()
        self._observer("landed")
        with self._timed(seconds, "record"):
            self._record(rows)
        self._observer("recorded")
        with self._timed(seconds, "deliver"):
            self._deliver()
            self._hand_over()
        self._lose_gone()
        for key in list(self._mine):
            self._notice_delivered(key)
        self._notice_gone()
        log.info(
            "round %d: leases=%d landed=%d records %d bytes delivered=%d records lag_ms=[%s] seconds=[%s] "
            "completed=%d failed=%d lost=%d",
            summary.rounds, len(self._coordinator.held), summary.records_landed - landed_before,
            sum(row.bytes for row in rows), summary.records_delivered - delivered_before,
            " ".join(f"{_shard(row)}={row.millis_behind_latest}" for row in rows if not row.error),
            " ".join(f"{phase}={spent:.1f}" for phase, spent in seconds.items()),
            len(summary.completed), len(summary.failed), len(summary.lost),
        )  # fmt: skip
        note_round(
            self._metrics,
            self._tags,
            landed=summary.records_landed - landed_before,
            delivered=summary.records_delivered - delivered_before,
            bad=summary.parse_exceptions - bad_before,
            unrouted=summary.unrouted - unrouted_before,
            taken={sink: n - taken_before.get(sink, 0) for sink, n in summary.records_by_sink.items()},
            filtered=sum(row.filtered for row in rows),
            throttled=sum(row.throttled for row in rows),
            millis_behind_latest=[row.millis_behind_latest for row in rows if not row.error],
        )
        return acquired

    # Acquire

    def _look_after_streams(self) -> None:
        """Look after the streams' shards, and put down those whose stream is not there any more."""
        if self._streams.look_after():
            for key, progress in list(self._at_work()):
                self._check_stream(key, progress)

    def _check_stream(self, key: str, progress: ShardProgress) -> None:
        """Check that the shard's stream is there; what is landed of one that is gone is delivered all the same.

        :raises SourceError: if the job does not read its stream.
        """
        try:
            self._streams.check(key, progress)
            self._gone.pop(key, None)
        except StreamGoneError as error:
            if not progress.end_of_shard:
                self._gone[key] = str(error)

    def _lose_gone(self) -> None:
        """Report what shards held that are gone with their stream, once what is landed of them is delivered."""
        for key, reason in list(self._gone.items()):
            with suppress(*LOST):
                progress = self._progress(key)
                if not progress.landed:
                    gap = gap_after(progress, reason, until=None, found_at=self._clock.now())
                    self._report_loss(key, progress, gap)
                    if self._settings.on_data_loss == "reset":
                        self._coordinator.complete(key, ended(with_loss(progress, gap)).to_mapping())
                    else:
                        self._park(key, reason, with_loss(progress, gap))
            if key not in self._coordinator.held:
                self._gone.pop(key, None)

    def _acquire(self) -> bool:
        """Take what this job should have; tell whether there is something new, or will be soon."""
        if self._settings.downstream or self._summary.rounds == 1:
            self._deliveries.end_overdue()
        acquired = self._balancer.rebalance()
        # Not only what was acquired just now: an earlier answer may have been lost while the store was away.
        for key, partition in self._coordinator.held.items():
            if key not in self._mine:
                try:
                    if self._take_over(partition):
                        self._mine[key] = None
                except (ProgressError, SourceError, ValueError, OSError) as error:
                    self._fail(key, str(error))
        return bool(acquired) or self._balancer.is_waiting

    def _hand_over(self) -> None:
        """Hand over what other jobs ask for and has nothing left to deliver; the rest once its time is up."""
        if self._stop.is_set():  # everything is given back in a moment
            return
        leaving = self._balancer.leaving
        for key, progress in list(self._at_work()):
            if key in leaving and self._deliveries.next_of(progress) is None:
                self._balancer.hand_over(key)
        self._notice_gone()

    def _take_over(self, partition: Partition) -> bool:
        """Check that the partition can be worked on, and remove what its former owners left unfinished.

        :returns: whether it is at work now; False for a child that has to wait for its parents.
        """
        partition.with_progress(partition.progress)  # raises if what is stored is unreadable
        progress = ShardProgress.from_mapping(partition.progress)
        self._check_stream(partition.partition_key, progress)
        if self._has_to_wait(partition, progress):
            return False
        swept = self._files.take_over(partition.partition_key, progress.landed)
        self._delivery.sweep(self._files.folder(partition.partition_key))
        if swept or progress.landed:
            log.info(
                "partition taken over: partition=%s files swept=%d, batches landed and not delivered=%d",
                partition.partition_key, swept, len(progress.landed),
            )  # fmt: skip
        return True

    def _has_to_wait(self, partition: Partition, progress: ShardProgress) -> bool:
        """Tell whether a child that nothing was read from has to wait, and put it back if so.

        A child is created when its parents are done, but an imported one may be there before; and a resharding may be
        left to settle first.
        """
        if is_sequence_number(progress.landed_position):
            return False
        key, now = partition.partition_key, self._clock.now()
        settling = timedelta(seconds=self._settings.repartition_transition_seconds)
        parents = [self._coordinator.get(sibling_key(key, parent)) for parent in progress.parent_shard_ids]
        until = max(
            (p.priority + settling for p in parents if p and p.status is PartitionStatus.COMPLETED), default=now
        )
        if settling and until > now:
            self._settling[key] = until
        elif any(parent and parent.status is not PartitionStatus.COMPLETED for parent in parents):
            log.info("partition %s waits for its parents", key)
            until = now + PARENT_POLL
        else:
            self._settling.pop(key, None)
            return False
        with suppress(*LOST):
            self._coordinator.give_up(key, after=until - now)
        return True

    @property
    def _is_settling(self) -> bool:
        return any(until > self._clock.now() - PARENT_POLL for until in self._settling.values())

    # Land and record

    def _land(self) -> list[Landed]:
        plans = []
        for key, progress in self._at_work():
            if key in self._at_stop or key in self._gone:
                continue
            if self._deliveries.may_land(progress):
                plans.append(
                    ReadPlan(
                        source_identifier=self._coordinator.source_identifier,
                        partition_key=key,
                        fencing_token=self._coordinator.fencing_token(key),
                        stream=progress.stream,
                        shard_id=progress.shard_id,
                        start=progress.landed_position,
                        epoch=progress.epoch,
                        starting_hash_key=progress.starting_hash_key,
                        ending_hash_key=progress.ending_hash_key,
                        delivered_until=progress.owed_from,
                        retention_seconds=self._streams.retention_seconds(progress.stream),
                        consumer_arn=self._streams.consumer_arn(progress.stream),
                    )
                )
        if not plans or self._stop.is_set():
            return []
        try:
            return land(self._spark, plans, self._landing)
        except Exception:
            if self._stop.is_set():  # the landing was cancelled; what it wrote is swept later
                log.info("landing abandoned: the job was told to stop")
                return []
            raise

    def _record(self, rows: list[Landed]) -> None:
        self._check_beginnings(rows)
        for row in rows:
            if row.partition_key in self._gone:
                continue  # what was landed is another stream's of this name, and swept later
            try:
                if row.error is not None:
                    self._cannot_read(row)
                    continue
                if row.gap is not None:
                    self._note_gap(row.partition_key, row.gap)
                self._unreadable.pop(row.partition_key, None)
                if row.at_stop:
                    self._at_stop.add(row.partition_key)
                if row.is_batch:
                    self._record_batch(row)
                    continue
                self._mine[row.partition_key] = row.read_until
                if row.read_until is not None:
                    self._note_delivered_until(row.partition_key, row.read_until, after=self._renewal_interval)
            except LOST as error:
                log.warning("what was landed is dropped: %s", error)

    def _check_beginnings(self, rows: list[Landed]) -> None:
        """Make sure that what was read is of the stream whose shard it was to be.

        A sequence number is refused by another stream of the same name; other positions are not.
        """
        begun = {row.partition_key for row in rows if row.is_batch and not is_sequence_number(row.start)}
        beginnings = [(key, progress) for key, progress in self._at_work() if key in begun]
        for name in {progress.stream for _, progress in beginnings}:
            self._streams.look_at(name)
        for key, progress in beginnings:
            self._check_stream(key, progress)

    def _record_batch(self, row: Landed) -> None:
        key = row.partition_key
        batch = LandedBatch(
            batch_id=row.batch_id,
            start=row.start,
            end=row.end,
            file=row.file,
            records=row.records,
            bytes=row.bytes,
            end_of_shard=row.end_of_shard,
            read_until=row.read_until,
            fencing_token=self._coordinator.fencing_token(key),
            last_arrival=row.last_arrival,
        )
        throughput = self._throughput_of(row)
        try:
            self._deliveries.begin(key, batch, self._landing_of(row, batch, throughput))
        except ProgressChangedError:  # somebody acknowledged an earlier batch meanwhile; what is landed ends as before
            self._deliveries.begin(key, batch, self._landing_of(row, batch, throughput))
        if batch.file:
            self._files.add(key, batch.file)
        else:
            self._mine[key] = batch.read_until
        self._summary.records_landed += row.records

    def _landing_of(self, row: Landed, batch: LandedBatch, throughput: float | None) -> ShardProgress:
        progress = self._progress(row.partition_key).landing(batch, row.children)
        return progress if throughput is None else progress.measured(throughput)

    def _throughput_of(self, row: Landed) -> float | None:
        """Return how many bytes a second a shard gave since it was measured last; what it gave while read, at first."""
        now, since = self._clock.monotonic(), self._measured_at.get(row.partition_key)
        self._measured_at[row.partition_key] = now
        seconds = row.seconds if since is None else now - since
        return row.bytes / seconds if seconds > 0 else None

    def _note_gap(self, key: str, gap: Gap) -> None:
        """Report data that was gone before it was read, and keep that with the partition."""
        progress = self._progress(key)
        self._report_loss(key, progress, gap)
        self._coordinator.save_progress(key, with_loss(progress, gap).to_mapping())

    def _report_loss(self, key: str, progress: ShardProgress, gap: Gap) -> None:
        log.error("data loss: stream=%s shard=%s range=%s", progress.stream, progress.shard_id, gap)
        self._coordinator.count(CoordinationMetric.DATA_LOSS)
        self._summary.data_loss[key] = str(gap)

    def _park(self, key: str, reason: str, progress: ShardProgress) -> None:
        """Put the partition aside for a person to decide about: trying again cannot help."""
        self._put_down(key, reason)
        self._coordinator.park(key, reason, progress.to_mapping())

    def _cannot_read(self, row: Landed) -> None:
        key, reason = row.partition_key, str(row.error)
        rounds = self._unreadable[key] = self._unreadable.get(key, 0) + 1
        if row.gap is not None and self._settings.on_data_loss == "fail":
            progress = self._progress(key)
            self._report_loss(key, progress, row.gap)
            self._park(key, reason, with_loss(progress, row.gap))
        elif row.gap is not None and rounds >= UNREADABLE_ROUNDS:
            self._gone[key] = reason  # the shard is not there, and its stream is: shard sync goes on with what follows
        elif rounds < UNREADABLE_ROUNDS and (row.passing or row.gap is not None):
            if row.gap is not None:
                self._streams.look_soon()
            log.warning("partition %s cannot be read, trying again next round: %s", key, reason)
        else:
            self._fail(key, reason)

    # Deliver and acknowledge

    def _deliver(self) -> None:
        while batches := [
            (key, batch)
            for key, progress in self._at_work()
            if (batch := self._deliveries.next_of(progress)) is not None
        ]:
            with ThreadPoolExecutor(DELIVERY_THREADS, thread_name_prefix="delivery") as pool:
                deliveries = {pool.submit(self._deliveries.deliver, key, batch): (key, batch) for key, batch in batches}
                for delivery in as_completed(deliveries):
                    key, batch = deliveries[delivery]
                    try:
                        self._note_delivery(key, batch, delivery.result())
                    except LOST as error:
                        log.warning("batch %s is left to the partition's next owner: %s", batch.batch_id, error)
                        self._doubt(key)
                    except StoreUnavailableError:
                        raise
                    except (CoordinationError, OSError) as error:
                        self._reject(key, batch, str(error))
        self._summary.parse_exceptions = self._bad_records.total
        self._summary.saved_parse_exceptions = self._bad_records.samples

    def _note_delivery(self, key: str, batch: LandedBatch, delivered: Prepared | None) -> None:
        summary = self._summary
        if key in self._mine:  # otherwise its end was noticed already, with that of another one
            self._mine[key] = batch.read_until
        summary.failed.pop(key, None)
        if delivered is not None:
            summary.batches_delivered += 1
            summary.records_delivered += batch.records
            summary.bytes_delivered += batch.bytes
            summary.unrouted += delivered.unrouted
            summary.dead_letters += delivered.records.get(DEAD_LETTER, 0)
            for sink, records in delivered.records.items():
                summary.records_by_sink[sink] = summary.records_by_sink.get(sink, 0) + records
        self._notice_delivered(key)

    def _notice_delivered(self, key: str) -> None:
        """Delete the landed files that are not needed any more."""
        if (held := self._coordinator.held.get(key)) is None:
            self._notice_gone()
            return
        self._files.keep(key, ShardProgress.from_mapping(held.progress).landed)

    def _reject(self, key: str, batch: LandedBatch, reason: str) -> None:
        if key not in self._coordinator.held:  # handed over meanwhile, as it stood; its next owner swept the files
            log.warning("batch %s is left to the partition's next owner: %s", batch.batch_id, reason)
            return
        with suppress(*LOST):
            if self._deliveries.reject(key, batch, reason):
                self._put_down(key, reason)
                return
        self._fail(key, reason)

    def _doubt(self, key: str) -> None:
        """Find out whether the lease is lost, where a write or a set said so."""
        with suppress(*LOST):
            self._coordinator.renew(key)

    # Leases

    def _at_work(self) -> Iterator[tuple[str, ShardProgress]]:
        """Yield the partitions to work on."""
        for key, partition in self._coordinator.held.items():
            if key in self._mine and self._coordinator.owns(key):
                yield key, ShardProgress.from_mapping(partition.progress)

    def _hear_of_others(self) -> None:
        """Read the partitions anew whose batches others acknowledge."""
        for key, progress in list(self._at_work()):
            if self._deliveries.pending_of(progress):
                with suppress(*LOST):
                    self._coordinator.refresh(key)
        self._notice_gone()

    def _is_paused(self, key: str) -> bool:
        """Tell whether a partition is read further only once others have acknowledged what is landed."""
        held = self._coordinator.held.get(key)
        if held is None:
            return False
        progress = ShardProgress.from_mapping(held.progress)
        return bool(self._deliveries.pending_of(progress)) and not self._deliveries.may_land(progress)

    def _progress(self, key: str) -> ShardProgress:
        return ShardProgress.from_mapping(self._coordinator.leased(key).progress)

    def _fail(self, key: str, reason: str) -> None:
        """Give the partition back, with its landed batches; the retry policy says when it is tried again."""
        self._put_down(key, reason)
        try:
            self._coordinator.fail(key, reason)
        except LOST as error:  # it is somebody else's, who may have swept its files
            log.warning("%s", error)
            del self._summary.failed[key]
            self._summary.lost.append(key)

    def _put_down(self, key: str, reason: str) -> None:
        self._summary.failed[key] = reason
        for of in (self._mine, self._unreadable):
            of.pop(key, None)
        self._files.forget(key)
        self._at_stop.discard(key)

    def _notice_gone(self) -> None:
        """Find out what became of partitions that are held no more: an acknowledgment set ended them, or others did."""
        for key in self._mine.keys() - self._coordinator.held.keys():
            del self._mine[key]
            self._files.forget(key)
            self._at_stop.discard(key)
            self._measured_at.pop(key, None)
            if self._balancer.was_handed_over(key):
                self._summary.handed_over.append(key)
                continue
            stored = self._coordinator.get(key)
            if stored is not None and stored.status is PartitionStatus.COMPLETED:
                self._summary.completed.append(key)
                self._files.delete(key)
            elif stored is not None and stored.owner is None and stored.attempts:
                self._summary.failed[key] = str(stored.last_error)
            else:
                self._summary.lost.append(key)

    def _outlast(self, error: StoreUnavailableError) -> None:
        """Wait until the store answers again, and find out which leases are left."""
        log.warning("the store is away; the job waits for it: %s", error)
        since = self._clock.monotonic()
        while not self._stop.wait(STORE_POLL_SECONDS):
            try:
                self._coordinator.recover()
            except StoreUnavailableError as away:
                error = away
                if self._clock.monotonic() - since > STORE_PATIENCE_SECONDS:
                    break
            else:
                self._notice_gone()
                log.info(
                    "the store is back after %.0f s: leases=%d lost=%d",
                    self._clock.monotonic() - since, len(self._coordinator.held), len(self._summary.lost),
                )  # fmt: skip
                return
        raise error

    def give_back(self) -> None:
        """Give every lease back, or leave it to wait for acknowledgments."""
        try:
            self._balancer.leave()
        except CoordinationError as error:
            log.warning("others count this job as a worker until its registration runs out: %s", error)
        try:
            for key, until in self._mine.items():
                if until is not None and self._coordinator.owns(key):
                    with suppress(*LOST):
                        self._note_delivered_until(key, until, after=timedelta(0))
            self._hear_of_others()
            paused = sum(map(self._is_paused, self._mine))
            awaiting = self._await_others()
            self._notice_gone()
            given_up = self._coordinator.give_up_all()
            log.info("leases given back: %d, waiting for acknowledgments: %d", len(given_up), awaiting)
            if paused:
                log.warning("%d partitions go on only once others acknowledge what is delivered", paused)
            self._deliveries.purge()
            self._note_resting()
        except CoordinationError as error:
            log.warning("leases could not be given back and will run out: %s", error)

    def _await_others(self) -> int:
        """Leave partitions leased whose batches only others have yet to acknowledge; return how many."""
        awaiting = 0
        for key, partition in self._coordinator.held.items():
            with suppress(*LOST, ProgressError, SourceError):
                progress = ShardProgress.from_mapping(partition.progress)
                pending = self._deliveries.pending_of(progress)
                self._summary.pending_acknowledgments += len(pending)
                self._summary.acknowledgment_sets += pending[: SETS_NAMED - len(self._summary.acknowledgment_sets)]
                if (until := self._deliveries.waits_until(progress)) is not None:
                    self._coordinator.await_acknowledgment(key, until - self._clock.now())
                    self._mine.pop(key, None)
                    awaiting += 1
        return awaiting

    def _note_resting(self) -> None:
        for partition in self._coordinator.partitions(PartitionStatus.CLOSED):
            if not partition.attempts:
                continue
            self._summary.resting.append(partition.partition_key)
            log.warning(
                "not delivered: partition %s %s after %d failures, the last one: %s",
                partition.partition_key,
                "is parked" if partition.is_parked else f"rests until {partition.reopen_at:%Y-%m-%dT%H:%M:%SZ}",
                partition.attempts, partition.last_error,
            )  # fmt: skip

    def _note_delivered_until(self, key: str, until: datetime, *, after: timedelta) -> None:
        """Write how far an idle shard is, if that is news by more than `after`.

        Writing it renews the lease, so at the pace of renewals an idle shard costs no write more.
        """
        progress = self._progress(key)
        known = progress.delivered_until or datetime.min.replace(tzinfo=UTC)
        if not progress.landed and until > known + after:
            idle = replace(progress.measured(0.0), delivered_until=until)
            self._coordinator.checkpoint(key, idle.to_mapping())
            self._measured_at[key] = self._clock.monotonic()
            self._summary.failed.pop(key, None)

    @contextmanager
    def _timed(self, seconds: dict[str, float], phase: str) -> Iterator[None]:
        start = self._clock.monotonic()
        yield
        seconds[phase] = self._clock.monotonic() - start


def _shard(row: Landed) -> str:
    return parse_partition_key(row.partition_key).shard_id
