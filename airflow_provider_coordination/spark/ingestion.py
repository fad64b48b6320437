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
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    ProgressChangedError,
    ProgressError,
    SourceError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import Metrics, NoMetrics
from airflow_provider_coordination.coordination.partition import UNFINISHED, Partition, PartitionStatus
from airflow_provider_coordination.coordination.renewal import LeaseRenewer
from airflow_provider_coordination.sources.kinesis.leases import parse_partition_key
from airflow_provider_coordination.sources.kinesis.progress import LandedBatch, ShardProgress
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.deliveries import Deliveries
from airflow_provider_coordination.spark.delivery import Delivery, Prepared, sweep
from airflow_provider_coordination.spark.landing import (
    Landed,
    LandingOptions,
    ReadPlan,
    land,
    partition_folder,
)
from airflow_provider_coordination.spark.metrics import note_round
from airflow_provider_coordination.spark.settings import DEAD_LETTER, IngestSettings
from airflow_provider_coordination.spark.stopping import StopConditions
from airflow_provider_coordination.spark.storage import delete_file, delete_folder, folders_in, join

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

Observer = Callable[[str], None]
"""Told when a phase is passed: `landed`, `recorded`, `delivering`, `delivered`. For fault injection."""


@dataclass
class Summary:
    """What a job did.

    :param rounds: how many rounds it made.
    :param records_landed: user records read and landed.
    :param records_delivered: user records of the batches that were delivered.
    :param bytes_delivered: their payload bytes.
    :param batches_delivered: how many batches.
    :param records_by_sink: how many records each sink took of them.
    :param dead_letters: how many of these records are bad and went to the dead-letter sink.
    :param unrouted: how many records no sink took.
    :param parse_exceptions: how many bad records it found, also in batches that were not delivered for that.
    :param saved_parse_exceptions: the latest of them, as many as it was told to save.
    :param completed: partitions it finished.
    :param lost: partitions whose lease it lost; others go on with them.
    :param failed: why, for each partition that failed and did not get further afterwards in this job.
    :param resting: partitions that rest after failures, or are parked, at its end: it left them alone.
    :param pending_acknowledgments: how many batches it delivered that others have yet to acknowledge.
    :param acknowledgment_sets: the names of their sets, the first 1,000.
    :param seconds: how long it ran.
    :param stopped_because: the condition that ended it.
    :param metrics: the totals of what the job counted, zeros left out.
    """

    rounds: int = 0
    records_landed: int = 0
    records_delivered: int = 0
    bytes_delivered: int = 0
    batches_delivered: int = 0
    records_by_sink: dict[str, int] = field(default_factory=dict)
    dead_letters: int = 0
    unrouted: int = 0
    parse_exceptions: int = 0
    saved_parse_exceptions: list[dict[str, Any]] = field(default_factory=list)
    completed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    resting: list[str] = field(default_factory=list)
    pending_acknowledgments: int = 0
    acknowledgment_sets: list[str] = field(default_factory=list)
    seconds: float = 0.0
    stopped_because: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    def to_mapping(self) -> dict[str, Any]:
        """Return it as a JSON object."""
        return asdict(self) | {"seconds": round(self.seconds, 1)}


class Ingestion:
    """One job's work on one source.

    :param settings: what to do.
    :param spark: the session.
    :param coordinator: of the source, initialized, for this job's owner.
    :param delivery: takes batches into the sinks.
    :param creation_epoch: when the stream was created, in whole seconds since 1970: shards of an earlier stream of the
        same name are not read from this one.
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
        creation_epoch: int,
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
        self._creation_epoch = creation_epoch
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
        )
        self._conditions = StopConditions(
            until_caught_up=settings.until_caught_up,
            max_duration_seconds=settings.max_duration_seconds,
            max_idle_rounds=settings.max_idle_rounds,
        )
        self._deliveries = Deliveries(settings, coordinator, delivery, observer)
        self._mine: dict[str, datetime | None] = {}  # what is at work, and up to when it is read
        self._files: dict[str, set[str]] = {}  # landed files of each, to be deleted once the checkpoint is past them
        self._unreadable: dict[str, int] = {}
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
            self._sweep_finished()
            with LeaseRenewer(self._deliveries):
                while not summary.stopped_because:
                    before, completed = summary.records_landed, len(summary.completed)
                    try:
                        acquired = self._round(self._clock.monotonic() - started)
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
                            acquired=acquired or len(summary.completed) > completed,
                            read_until=[until for key, until in self._mine.items() if not self._is_paused(key)],
                        )
                        or ""
                    )
                    if idle_rounds and not summary.stopped_because:
                        self._stop.wait(self._settings.idle_seconds)
        finally:
            self._give_back()
        log.info("job ends: %s", summary.stopped_because)
        return summary

    def _round(self, running_seconds: float) -> bool:
        summary = self._summary
        summary.rounds += 1
        landed_before, delivered_before = summary.records_landed, summary.records_delivered
        bad_before, unrouted_before, taken_before = (
            summary.parse_exceptions, summary.unrouted, dict(summary.records_by_sink),
        )  # fmt: skip
        seconds: dict[str, float] = {}
        self._hear_of_others()
        with self._timed(seconds, "acquire"):
            acquired = self._acquire(running_seconds)
        with self._timed(seconds, "redeliver"):  # what a former owner recorded but did not deliver
            self._deliver()
        with self._timed(seconds, "land"):
            rows = self._land()
        self._observer("landed")
        with self._timed(seconds, "record"):
            self._record(rows)
        self._observer("recorded")
        with self._timed(seconds, "deliver"):
            self._deliver()
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
            millis_behind_latest=[row.millis_behind_latest for row in rows if not row.error],
        )
        return acquired

    # Acquire

    def _acquire(self, running_seconds: float) -> bool:
        # At first the other expected workers may not have leases yet; later, who holds none is not there.
        if self._settings.downstream or self._summary.rounds == 1:
            self._deliveries.end_overdue()
        starting = running_seconds < self._settings.ownership_timeout_seconds
        share = self._settings.max_leases or self._coordinator.fair_share(self._settings.workers if starting else 1)
        acquired = self._coordinator.acquire(share - len(self._coordinator.held))
        # Not only what was acquired just now: an earlier answer may have been lost while the store was away.
        for key, partition in self._coordinator.held.items():
            if key not in self._mine:
                try:
                    self._take_over(partition)
                    self._mine[key] = None
                except (ProgressError, SourceError, ValueError, OSError) as error:
                    self._fail(key, str(error))
        return bool(acquired)

    def _take_over(self, partition: Partition) -> None:
        """Check that the partition can be worked on, and remove what its former owners left unfinished."""
        partition.with_progress(partition.progress)  # raises if what is stored is unreadable
        progress = ShardProgress.from_mapping(partition.progress)
        if progress.stream != self._settings.stream:
            raise SourceError(
                f"it belongs to stream {progress.stream!r}, and this job reads {self._settings.stream!r}: "
                "give each stream a source of its own"
            )
        if parse_partition_key(partition.partition_key).creation_epoch != self._creation_epoch:
            raise SourceError(
                f"stream {self._settings.stream!r} was deleted and created anew since; what this shard still held "
                "is lost. Delete the partition once that is understood"
            )
        folder = partition_folder(partition.source_identifier, partition.partition_key)
        keep = {batch.file for batch in progress.landed}
        token = self._coordinator.fencing_token(partition.partition_key)
        swept = sweep(self._settings.landing_root, folder, keep=keep, fencing_token=token)
        self._delivery.sweep(folder)
        self._files[partition.partition_key] = keep - {""}
        if swept or progress.landed:
            log.info(
                "partition taken over: partition=%s files swept=%d, batches landed and not delivered=%d",
                partition.partition_key, swept, len(progress.landed),
            )  # fmt: skip

    def _sweep_finished(self) -> None:
        """Remove what is landed of partitions that somebody else finished, who has nothing to do with files."""

        def folder_of(partition: Partition) -> str:
            return partition_folder(partition.source_identifier, partition.partition_key)

        source, _, _ = partition_folder(self._coordinator.source_identifier, "").rpartition("/")
        try:
            there = {join(source, name) for name in folders_in(join(self._settings.landing_root, source))}
            left = there - set(map(folder_of, self._coordinator.partitions(*UNFINISHED))) if there else there
            for partition in self._coordinator.partitions(PartitionStatus.COMPLETED) if left else ():
                if folder_of(partition) in left:
                    stored = self._coordinator.get(partition.partition_key)  # not a listing, which may be behind
                    if stored is not None and stored.status is PartitionStatus.COMPLETED:
                        delete_folder(join(self._settings.landing_root, folder_of(partition)))
        except (StoreUnavailableError, OSError) as error:
            log.warning("landed files of finished partitions are left for the next job: %s", error)

    # Land and record

    def _land(self) -> list[Landed]:
        plans = []
        for key, progress in self._at_work():
            if self._deliveries.may_land(progress):
                plans.append(
                    ReadPlan(
                        source_identifier=self._coordinator.source_identifier,
                        partition_key=key,
                        fencing_token=self._coordinator.fencing_token(key),
                        stream=progress.stream,
                        shard_id=progress.shard_id,
                        start=progress.landed_position,
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
        for row in rows:
            if row.error is not None:
                self._cannot_read(row)
                continue
            self._unreadable.pop(row.partition_key, None)
            if not row.is_batch:
                self._mine[row.partition_key] = row.read_until
            try:
                if row.is_batch:
                    self._record_batch(row)
                elif row.read_until is not None:
                    self._note_delivered_until(row.partition_key, row.read_until, after=self._renewal_interval)
            except LOST as error:
                log.warning("what was landed is dropped: %s", error)

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
        )
        try:
            self._deliveries.begin(key, batch, self._progress(key).landing(batch, row.children))
        except ProgressChangedError:  # somebody acknowledged an earlier batch meanwhile; what is landed ends as before
            self._deliveries.begin(key, batch, self._progress(key).landing(batch, row.children))
        if batch.file:
            self._files.setdefault(key, set()).add(batch.file)
        else:
            self._mine[key] = batch.read_until
        self._summary.records_landed += row.records

    def _cannot_read(self, row: Landed) -> None:
        rounds = self._unreadable[row.partition_key] = self._unreadable.get(row.partition_key, 0) + 1
        if row.passing and rounds < UNREADABLE_ROUNDS:
            log.warning("partition %s cannot be read, trying again next round: %s", row.partition_key, row.error)
        else:
            self._fail(row.partition_key, str(row.error))

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
        """Delete the landed files that the checkpoint is past, whoever acknowledged them; not before: until then a
        batch may have to be delivered again."""
        if (held := self._coordinator.held.get(key)) is None:
            self._notice_gone()
            return
        landed = {batch.file for batch in ShardProgress.from_mapping(held.progress).landed}
        for file in self._files.get(key, set()) - landed:
            delete_file(file)
        self._files[key] = landed - {""}

    def _reject(self, key: str, batch: LandedBatch, reason: str) -> None:
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
        with suppress(*LOST):
            self._coordinator.fail(key, reason)

    def _put_down(self, key: str, reason: str) -> None:
        self._summary.failed[key] = reason
        for of in (self._mine, self._unreadable, self._files):
            of.pop(key, None)

    def _notice_gone(self) -> None:
        """Find out what became of partitions that are held no more: an acknowledgment set ended them, or others did."""
        for key in self._mine.keys() - self._coordinator.held.keys():
            del self._mine[key]
            self._files.pop(key, None)
            stored = self._coordinator.get(key)
            if stored is not None and stored.status is PartitionStatus.COMPLETED:
                self._summary.completed.append(key)
                folder = partition_folder(self._coordinator.source_identifier, key)
                delete_folder(join(self._settings.landing_root, folder))
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

    def _give_back(self) -> None:
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
            self._coordinator.checkpoint(key, replace(progress, delivered_until=until).to_mapping())
            self._summary.failed.pop(key, None)

    @contextmanager
    def _timed(self, seconds: dict[str, float], phase: str) -> Iterator[None]:
        start = self._clock.monotonic()
        yield
        seconds[phase] = self._clock.monotonic() - start


def _shard(row: Landed) -> str:
    return parse_partition_key(row.partition_key).shard_id
