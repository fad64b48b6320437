"""The job: rounds of acquire, land, record, until a stop condition holds; while a round lands, what the one before it
recorded is delivered and acknowledged.

Exactly-once follows from the order. A batch is *recorded* in its partition's progress, under the lease, before it is
delivered; from then on whoever owns the partition delivers exactly that file; a sink takes a batch id once; and the
checkpoint moves only when the batch's acknowledgment set ends. A crash between any two steps repeats at most a step
that is idempotent.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.balancer import Balancer
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError, StoreUnavailableError
from airflow_provider_coordination.coordination.job_reports import JobReport
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import Metrics, NoMetrics
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.renewal import LeaseRenewer, Renewable
from airflow_provider_coordination.sources.batches import progress_of
from airflow_provider_coordination.sources.event_time import EventTimeBounds
from airflow_provider_coordination.sources.landed import LandedBatch
from airflow_provider_coordination.spark.active_partitions import ActivePartitions
from airflow_provider_coordination.spark.bad_records import BadRecords, Stage
from airflow_provider_coordination.spark.deliveries import Delivered, Deliveries
from airflow_provider_coordination.spark.delivery import Delivery, Prepared, SinkAwayError, by_halves
from airflow_provider_coordination.spark.error_texts import error_text
from airflow_provider_coordination.spark.job_reporting import JobReporting
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.landed_row import Failure
from airflow_provider_coordination.spark.metrics import RoundCounts
from airflow_provider_coordination.spark.reading import MakeReading, Reading, RoundRead
from airflow_provider_coordination.spark.redaction import Redaction
from airflow_provider_coordination.spark.settings import DEAD_LETTER, IngestSettings
from airflow_provider_coordination.spark.sinks import sink_reports
from airflow_provider_coordination.spark.spans import NoSpans, Span, Spans
from airflow_provider_coordination.spark.stop_conditions import STOPPED, StopConditions, because_of
from airflow_provider_coordination.spark.summary import Summary

log = logging.getLogger(__name__)

STORE_PATIENCE_SECONDS = 300.0
"""How long a job waits for a store that does not answer; its leases run out long before."""
STORE_POLL_SECONDS = 5.0
END_POLL_SECONDS = 1.0
"""How often a job that delivers looks whether it is ordered to end."""
SUSPENSION_POLL_SECONDS = 5.0
"""How often a job that pauses looks whether its source is suspended."""

Observer = Callable[[str], None]
"""Told when a phase is passed: `landed`, `recorded`, `delivering`, `delivered`. For fault injection."""


class Ingestion:
    """One job's work on one source.

    :param settings: what to do.
    :param coordinator: of the source, initialized, for this job's owner.
    :param delivery: takes batches into the sinks.
    :param reading: makes what reads the kind of source that this is.
    :param bad_records: what the delivery finds wrong with records.
    :param bounds: which records are late or early in what the job lands; None if none is.
    :param stop: set from outside to end the job after the step in hand.
    :param stop_at: the instant (aware) up to which the reading reads; None if it has no such bound.
    :param is_bounded: whether the job ends once no partition is left to it.
    :param default_leases: how many leases the job has at most, where `settings` give no number; None for no limit.
    :param observer: told of passed phases.
    :param metrics: where counts go.
    :param spans: makes the spans of rounds.
    :param clock: where the time comes from.
    """

    def __init__(
        self,
        settings: IngestSettings,
        coordinator: SourceCoordinator,
        delivery: Delivery,
        *,
        reading: MakeReading,
        stop: threading.Event,
        stop_at: datetime | None = None,
        is_bounded: bool = False,
        default_leases: int | None = None,
        bad_records: BadRecords | None = None,
        bounds: EventTimeBounds | None = None,
        observer: Observer = lambda phase: None,
        metrics: Metrics | None = None,
        spans: Spans | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._delivery = delivery
        self._bad_records = bad_records or BadRecords()
        self._stop = stop
        self._observer = observer
        tags = {"source": settings.source, "store": coordinator.store.kind}
        self._counts = RoundCounts(metrics or NoMetrics(), tags)
        self._clock = clock or SystemClock()
        self._conditions = StopConditions(settings.rounds, stop_at=stop_at, is_bounded=is_bounded)
        self._spans = spans or NoSpans()
        self._files = LandedFiles(settings.landing_path, coordinator, settings.access)
        self._deliveries = Deliveries(settings, coordinator, delivery, self._files, observer, self._spans)
        self._balancer = Balancer(
            coordinator,
            leases=settings.leases,
            max_leases=default_leases,
            expected_workers=settings.workers,
        )
        self._summary = Summary()
        self._redaction = Redaction(settings)
        self._reporting = JobReporting(
            settings.rounds, self._bad_records, self._redaction, self._clock, sink_reports(settings.all_sinks)
        )
        self._partitions = ActivePartitions(
            coordinator,
            self._balancer,
            self._deliveries,
            self._files,
            self._summary,
            self._redaction,
            completed=lambda partition: self._reading.completed(partition),
            failed=self._reporting.note_failed,
            bounds=bounds,
        )
        self._reading: Reading = reading(settings, coordinator, self._partitions, self._summary)
        self._delivered: set[str] = set()
        self._refused: set[str] = set()
        self._is_delivery_long = True
        self._ending = ""
        self._given_back = 0

    def report(self) -> JobReport:
        """Return what the job reports of itself now. Called from any thread."""
        return self._reporting.report()

    def run(self) -> Summary:
        """Make rounds until a stop condition holds; then give every lease back.

        A store that goes away is waited for: what was recorded is delivered, and what others took meanwhile is left to
        them. Where the source is suspended, it ends after the round in hand, or the pause.

        :raises StoreUnavailableError: if the store stays away for `STORE_PATIENCE_SECONDS`, or the job is told to stop
            meanwhile; the leases run out by themselves then.
        """
        started_at, started = self._clock.now(), self._clock.monotonic()
        summary, idle_rounds = self._summary, 0
        try:
            self._files.sweep_finished()
            with LeaseRenewer(*self.renewables):
                while True:
                    before, completed, refused = summary.records_landed, len(summary.completed), len(self._refused)
                    try:
                        ending = summary.stopped_because or self._suspended()
                        if ending:
                            self.finish()
                            summary.stopped_because = ending
                            break
                        acquired = self.round()
                    except StoreUnavailableError as error:
                        self._outlast(error)
                        continue
                    # A batch that is refused for the first time may be taken in the next round.
                    is_refused = len(self._refused) > refused
                    is_idle = summary.records_landed == before and not is_refused
                    idle_rounds = idle_rounds + 1 if is_idle else 0
                    summary.seconds = self._clock.monotonic() - started
                    summary.stopped_because = self._ordered_to_end() or (
                        self._conditions.reason(
                            started_at=started_at,
                            running_seconds=summary.seconds,
                            idle_rounds=idle_rounds,
                            acquired=acquired
                            or is_refused
                            or len(summary.completed) > completed
                            or self._reading.expects_more,
                            **self._how_far(),
                        )
                        or ""
                    )
                    if idle_rounds and not summary.stopped_because:
                        self._pause()
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

        What it lands and records is delivered in the next round, or by `finish`.

        :returns: whether there may be more to do than what is at work already.
        :raises StoreUnavailableError: if the store does not answer.
        """
        self._summary.rounds += 1
        with self._spans.span("round", round=self._summary.rounds) as span:
            return self._make_round(span)

    def _make_round(self, span: Span) -> bool:
        summary = self._summary
        landed_before, delivered_before = summary.records_landed, summary.records_delivered
        seconds = dict.fromkeys(("acquire", "land", "record", "deliver"), 0.0)
        self._partitions.refresh_awaited()
        self._reading.look_after()
        with self._timed(seconds, "acquire") as acquiring:
            acquired = not self._ordered_to_end() and self._acquire()
            acquiring.note(partitions=len(self._partitions))
        self._hand_over()
        rows: list[Any] = []

        def land(leave_slot: bool) -> None:
            with self._timed(seconds, "land") as landing:
                rows.extend(self._land(leave_slot))
                landing.note(partitions=len(rows), records=sum(row.records for row in rows))
            self._observer("landed")

        self._deliver(seconds, beside=land)
        rows = [row for row in rows if row.partition_key in self._partitions]  # others have ended meanwhile
        with self._timed(seconds, "record") as recording:
            read = self._reading.record(rows)
            self._partitions.write_records()
            recording.note(records=summary.records_landed - landed_before)
        reached = dict.fromkeys(self._reading.at_stop, 0)  # of these there is nothing left to read
        self._reporting.note_read({**read.behind_ms, **reached}, self._partitions.read_until)
        self._observer("recorded")
        if seconds["deliver"]:
            self._is_delivery_long = seconds["deliver"] > seconds["land"] / 2
        self._hand_over()
        self._end_round()
        log.info(
            "round %d: leases=%d read=[%s] landed=%d records %d bytes delivered=%d records seconds=[%s] "
            "completed=%d failed=%d lost=%d",
            summary.rounds, len(self._coordinator.leases.held), read.text, summary.records_landed - landed_before,
            read.bytes, summary.records_delivered - delivered_before,
            " ".join(f"{phase}={spent:.1f}" for phase, spent in seconds.items()),
            len(summary.completed), len(summary.failed), len(summary.lost),
        )  # fmt: skip
        span.note(
            partitions=len(self._coordinator.leases.held),
            landed=summary.records_landed - landed_before,
            records=summary.records_delivered - delivered_before,
        )
        self._counts.note(summary, read)
        return acquired

    def _end_round(self) -> None:
        self._reading.end_round()
        for key in list(self._partitions.read_until):
            self._partitions.delete_delivered(key)
        self._partitions.notice_gone()
        self._files.clear()

    def finish(self) -> None:
        """Deliver what the last round recorded, and what an outage of the store left undone.

        :raises StoreUnavailableError: if the store does not answer.
        """
        before, seconds = self._summary.records_delivered, {"deliver": 0.0}
        self._deliver(seconds)
        self._end_round()
        if delivered := self._summary.records_delivered - before:
            log.info("the rest is delivered: %d records in %.1f s", delivered, seconds["deliver"])
        self._counts.note(self._summary, RoundRead())

    # Orders to end

    def _suspended(self) -> str:
        """Return why the job ends if its source is suspended, as of some seconds ago; empty if it is not.

        :raises StoreUnavailableError: if the store does not answer.
        """
        suspension = self._coordinator.view.suspension()
        return "" if suspension is None else because_of(suspension)

    def _ordered_to_end(self) -> str:
        """Return why the job begins nothing more, as far as it knows without asking; empty if it was not told to."""
        if self._ending:
            return self._ending
        if self._stop.is_set():
            return STOPPED
        suspension = self._coordinator.view.suspensions.known
        return "" if suspension is None else because_of(suspension)

    def _withdraw(self, besides: Collection[str] = ()) -> None:
        """Once the job is ordered to end, take no further part in sharing, and give back what has nothing landed.

        So others go on with these partitions while this job delivers the rest. There is no way back from here.

        :param besides: the partitions that are in delivery.
        :raises StoreUnavailableError: if the store does not answer.
        """
        if not (reason := self._ordered_to_end()):
            return
        if not self._ending:
            self._balancer.leave()
            self._ending = reason
        if given_back := self._partitions.give_back_idle(self._reading.last_known, besides):
            self._given_back += given_back
            log.info("leases given back before the end: %d, left to deliver: %d", given_back, len(self._partitions))

    def _pause(self) -> None:
        """Wait a little after a round without a record; the job may be ordered to end meanwhile."""
        left = self._settings.rounds.idle_duration.total_seconds()
        while left > 0 and not self._stop.wait(min(left, SUSPENSION_POLL_SECONDS)):
            left -= SUSPENSION_POLL_SECONDS
            if left > 0:
                with suppress(StoreUnavailableError):  # the next round meets it, and knows what to do
                    self._coordinator.view.suspensions.get()
                if self._ordered_to_end():
                    return

    def _how_far(self) -> dict[str, Any]:
        """Return up to when the partitions at work are read, those left out that wait for others."""
        going = {
            key: until for key, until in self._partitions.read_until.items() if not self._partitions.is_paused(key)
        }
        return {"read_until": list(going.values()), "at_stop": len(going.keys() & set(self._reading.at_stop))}

    # Acquire

    def _acquire(self) -> bool:
        """Take what this job should have; return whether there is something new, or will be soon."""
        self._deliveries.end_overdue()
        acquired = self._balancer.rebalance()
        # Not only what was acquired just now: an earlier answer may have been lost while the store was away.
        begun: dict[str, Partition] = {}
        for key, partition in self._coordinator.leases.held.items():
            if key not in self._partitions:
                with self._beginning(key):
                    partition.with_progress(partition.progress)  # raises if what is stored is unreadable
                    progress_of(partition)
                    if self._reading.may_begin(partition):
                        begun[key] = partition
        for key in self._taken_over(begun):
            self._partitions.begin(key)
        return bool(acquired) or self._balancer.is_waiting

    def _hand_over(self) -> None:
        """Hand over what other jobs ask for, unless everything is given back in a moment."""
        if not self._ordered_to_end():
            self._partitions.hand_over()

    def _taken_over(self, partitions: Mapping[str, Partition]) -> list[str]:
        """Remove what former owners of partitions left unfinished; return the keys of those that are at work now."""
        landed = {key: progress_of(partition).landed for key, partition in partitions.items()}
        swept: dict[str, int] = {}
        for key, result in self._files.take_over(landed).items():
            with self._beginning(key):
                if isinstance(result, Exception):
                    raise result
                swept[key] = result
        taken: list[str] = []
        for keys, error in by_halves(list(swept), self._sweep, "sweep of what former owners prepared"):
            for key in keys:
                with self._beginning(key):
                    if error is not None:
                        raise error
                    taken.append(key)
        for key in taken:
            if swept[key] or landed[key]:
                log.info(
                    "partition taken over: partition=%s files swept=%d, batches landed and not delivered=%d",
                    key, swept[key], len(landed[key]),
                )  # fmt: skip
        return taken

    def _sweep(self, keys: Sequence[str]) -> None:
        leases = self._coordinator.leases
        self._delivery.sweep({self._files.folder(key): leases.fencing_token(key) for key in keys})

    @contextmanager
    def _beginning(self, key: str) -> Iterator[None]:
        """Let a partition that cannot be begun hold no other one."""
        try:
            yield
        except LOST as error:
            log.warning("partition is left to its next owner: %s", error)
            self._partitions.check_lease(key)
        except StoreUnavailableError:
            raise
        except Exception as error:  # whatever a partition's files do, that partition alone fails
            self._partitions.fail(key, self._reason(error), Failure.of(error))

    def _land(self, leave_slot: bool) -> Sequence[Any]:
        if self._ordered_to_end():
            return []
        try:
            return self._reading.land(leave_slot=leave_slot)
        except Exception:
            if self._stop.is_set():  # the landing was cancelled; what it wrote is swept later
                log.info("landing abandoned: the job was told to stop")
                return []
            raise

    # Deliver and acknowledge

    def _deliver(self, seconds: dict[str, float], beside: Callable[[bool], None] | None = None) -> None:
        """Deliver what is recorded, by this job or by a former owner.

        :param seconds: the time that it takes is added to `deliver`.
        :param beside: is done once, while that goes on; called with whether it should leave a slot to it.
        :raises Exception: what that raises, once what was begun is delivered.
        """
        self._withdraw()
        while batches := {
            key: batch
            for key, progress in self._partitions.all()
            if (batch := self._deliveries.next_of(progress)) is not None
        }:
            away: Exception | None = None
            together, raised = self._deliver_together(batches, seconds, beside)
            beside = None
            for key, delivered in together.items():
                batch = batches[key]
                if isinstance(delivered, LOST):
                    log.warning("batch %s is left to the partition's next owner: %s", batch.batch_id, delivered)
                    self._partitions.check_lease(key)
                elif isinstance(delivered, StoreUnavailableError):  # others may be through, and have to be counted
                    away = delivered
                elif isinstance(delivered, SinkAwayError):
                    self._hold(key, batch, delivered)
                elif isinstance(delivered, Exception):  # whatever a partition's files do, that partition alone fails
                    self._reject(key, batch, self._reason(delivered), Failure(type(delivered).__name__))
                else:
                    self._note_delivery(key, batch, delivered)
            if (error := raised or away) is not None:
                raise error
            self._withdraw()
        if beside is not None:
            beside(False)
        self._summary.parse_exceptions = self._bad_records.total
        self._summary.saved_parse_exceptions = self._bad_records.samples

    def _deliver_together(
        self, batches: Mapping[str, LandedBatch], seconds: dict[str, float], beside: Callable[[bool], None] | None
    ) -> tuple[Mapping[str, Delivered], Exception | None]:
        """Deliver batches, by partition, on a thread: the job may be ordered to end while it waits for them.

        :param beside: is done while that goes on.
        :returns: what became of the batches, and what `beside` raised.
        """

        def deliver() -> Mapping[str, Delivered]:
            with self._timed(seconds, "deliver"):
                return self._deliveries.deliver(batches)

        raised = None
        with ThreadPoolExecutor(1, thread_name_prefix="delivery") as pool:
            # In a copy of this context, so that its spans are part of this round's.
            delivery = pool.submit(contextvars.copy_context().run, deliver)
            try:
                if beside is not None:
                    beside(self._is_delivery_long)
            except Exception as error:  # what is delivered has to be noted first
                raised = error
            while wait([delivery], END_POLL_SECONDS).not_done:
                with suppress(StoreUnavailableError):  # the delivery finds out as well
                    self._withdraw(besides=batches)
            return delivery.result(), raised

    def _note_delivery(self, key: str, batch: LandedBatch, delivered: Prepared | None) -> None:
        summary = self._summary
        self._partitions.note_delivered(key, batch)
        if delivered is not None:
            summary.note_delivered(key, batch, is_first=key not in self._delivered)
            self._delivered.add(key)
            self._reporting.note_delivered(batch, delivered)
            summary.note_columns(delivered.columns)
            summary.unrouted += delivered.unrouted
            summary.thrown_away += delivered.left_out.get(Stage.TIME, 0)
            summary.dead_letters += delivered.records.get(DEAD_LETTER, 0)
            for sink, records in delivered.records.items():
                summary.records_by_sink[sink] = summary.records_by_sink.get(sink, 0) + records
        self._partitions.delete_delivered(key)

    def _reject(self, key: str, batch: LandedBatch, reason: str, failure: Failure) -> None:
        if not self._coordinator.leases.holds(key):  # handed over as it stood; its next owner swept the files
            log.warning("batch %s is left to the partition's next owner: %s", batch.batch_id, reason)
            return
        self._refused.add(batch.batch_id)
        reason = self._redaction.text(reason)
        with suppress(*LOST):
            if self._deliveries.reject(key, batch, reason):
                self._partitions.put_down(key, reason, failure)
                return
        self._partitions.fail(key, reason, failure)

    def _hold(self, key: str, batch: LandedBatch, error: SinkAwayError) -> None:
        """Give back a partition whose batch waits for a sink; the other sinks have it, and do not get it again."""
        held = self._summary.held_by_sink
        held[error.sink] = held.get(error.sink, 0) + 1
        self._refused.add(batch.batch_id)
        self._reporting.note_held(error.sink, batch, error.reason)
        self._deliveries.leave(batch)
        self._partitions.fail(key, self._reason(error), Failure.of(error))

    def _reason(self, error: Exception) -> str:
        """Return what a partition failed by; the log has where, if nothing of ours raised it."""
        if isinstance(error, CoordinationError | OSError):
            return str(error)
        log.debug("raised here:", exc_info=error)
        return error_text(error)

    # The store, and the end

    def _outlast(self, error: StoreUnavailableError) -> None:
        """Wait until the store answers again, and find out which leases are left.

        A job that is told to stop asks once more and waits no longer: what it has recorded is to be delivered.
        """
        log.warning("the store is away; the job waits for it: %s", error)
        since = self._clock.monotonic()
        while True:
            is_stopped = self._stop.wait(STORE_POLL_SECONDS)
            try:
                self._coordinator.leases.recover()
            except StoreUnavailableError as away:
                error = away
                if is_stopped or self._clock.monotonic() - since > STORE_PATIENCE_SECONDS:
                    break
            else:
                self._partitions.notice_gone()
                log.info(
                    "the store is back after %.0f s: leases=%d lost=%d",
                    self._clock.monotonic() - since, len(self._coordinator.leases.held), len(self._summary.lost),
                )  # fmt: skip
                return
        raise error

    def give_back(self) -> None:
        """Give every lease back, or leave it to wait for acknowledgments."""
        try:
            if not self._ending:
                self._balancer.leave()
        except CoordinationError as error:
            log.warning("others count this job as a worker until its registration runs out: %s", error)
        try:
            self._partitions.refresh_awaited()
            paused = sum(map(self._partitions.is_paused, self._partitions.read_until))
            self._given_back += self._partitions.give_back_idle(self._reading.last_known)
            awaiting = self._partitions.leave_awaiting()
            self._partitions.notice_gone()
            self._given_back += len(self._coordinator.leases.give_up_all())
            log.info("leases given back: %d, waiting for acknowledgments: %d", self._given_back, awaiting)
            if paused:
                log.warning("%d partitions go on only once others acknowledge what is delivered", paused)
            self._deliveries.purge()
            self._summary.note_resting(self._coordinator.view.partitions(PartitionStatus.CLOSED))
        except CoordinationError as error:
            log.warning("leases could not be given back and will run out: %s", error)
        self._files.clear()

    @contextmanager
    def _timed(self, seconds: dict[str, float], phase: str) -> Iterator[Span]:
        start = self._clock.monotonic()
        with self._spans.span(phase) as span:
            yield span
        seconds[phase] += self._clock.monotonic() - start
