"""The ingestion job: rounds of acquire, land, record, until a stop condition holds.

While a round lands, the job delivers and acknowledges the batches that the round before it recorded.

Exactly-once delivery follows from the order of the steps. A batch is *recorded* in its partition's progress, under the
lease, before it is delivered. From then on every owner of the partition delivers exactly that file. A sink takes each
batch id once. The checkpoint moves only when the batch's acknowledgment set ends. A crash between any two steps repeats
at most one step, which is idempotent.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

from airflow_provider_coordination.coordination.balancer import Balancer
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError, StoreUnavailableError
from airflow_provider_coordination.coordination.held_leases import LeaseRenewer, Renewable
from airflow_provider_coordination.coordination.intervals import IntervalLedger
from airflow_provider_coordination.coordination.job_reports import JobReport
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.metrics import Metrics, NoMetrics
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.landed import EventTimeBounds, Failure, LandedBatch
from airflow_provider_coordination.sources.watermarks import landed_until
from airflow_provider_coordination.spark.active_partitions import ActivePartitions, PartitionAcquisition
from airflow_provider_coordination.spark.bad_records import BadRecords
from airflow_provider_coordination.spark.deliveries import Delivered, Deliveries
from airflow_provider_coordination.spark.delivery import Delivery, Prepared, SinkLockedError, SinkUnavailableError
from airflow_provider_coordination.spark.job_reporting import JobReporting, RoundCounts
from airflow_provider_coordination.spark.job_sets import JobSets
from airflow_provider_coordination.spark.landed_files import LandedFiles
from airflow_provider_coordination.spark.outcome import Summary
from airflow_provider_coordination.spark.reading import MakeReading, Reading, RoundRead
from airflow_provider_coordination.spark.redaction import Redaction, delivery_digest
from airflow_provider_coordination.spark.round_pace import RoundPace
from airflow_provider_coordination.spark.settings import IngestSettings
from airflow_provider_coordination.spark.sinks import commit_interval_of, sink_reports
from airflow_provider_coordination.spark.spark_errors import failure_text
from airflow_provider_coordination.spark.stop_conditions import EndRequests, StopConditions
from airflow_provider_coordination.spark.telemetry import NoSpans, Span, Spans

log = logging.getLogger(__name__)

STORE_WAIT_SECONDS = 300.0
"""How long a job waits for an unavailable store; its leases expire long before."""
STORE_POLL_SECONDS = 5.0
HANDOVER_POLL = timedelta(seconds=0.2)
"""The pause after a round without a partition while other jobs have leases to hand over to this one."""
HANDOVER_ROUND_SECONDS = 1.0
"""How long a round reads while other jobs have leases to hand over to this one: nobody reads them until the next."""
END_POLL_SECONDS = 1.0
"""How often a delivering job checks whether it should end."""
Observer = Callable[[str], None]
"""Called at the end of a phase, with its name: `landed`, `recorded`, `delivering`, `delivered`. For fault injection."""


class IngestionJob:
    """The work of one job on one source.

    :param settings: the job's settings.
    :param coordinator: the source's coordinator, initialized, for this job's owner.
    :param delivery: delivers batches to the sinks.
    :param reading: makes the reading for this kind of source.
    :param bad_records: the job's budget, count and samples of bad records.
    :param bounds: the event-time bounds for batches that the job lands; None if no record is late or early.
    :param is_shared: whether the job shares its Spark application with others.
    :param stop: set from outside to end the job after the present step.
    :param stop_at: the instant (aware) up to which the job reads; None for no such bound.
    :param is_bounded: whether the job ends once no partition is left for it.
    :param default_leases: the maximum number of leases if `settings` give none; None for no limit.
    :param count_slots: returns how many tasks the job runs at the same time, or None if unknown.
    :param observer: called at the end of each phase.
    :param metrics: receives the counts.
    :param spans: makes the spans of rounds.
    :param clock: the clock of the job.
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
        count_slots: Callable[[], int | None] = lambda: None,
        bad_records: BadRecords | None = None,
        bounds: EventTimeBounds | None = None,
        is_shared: bool = False,
        observer: Observer = lambda phase: None,
        metrics: Metrics | None = None,
        spans: Spans | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._bad_records = bad_records or BadRecords()
        self._stop = stop
        self._observer = observer
        tags = {"source": settings.source, "store": coordinator.store.kind}
        self._counts = RoundCounts(metrics or NoMetrics(), tags)
        self._clock = clock or SystemClock()
        self._conditions = StopConditions(settings.rounds, stop_at=stop_at, is_bounded=is_bounded)
        self._spans = spans or NoSpans()
        self._files = LandedFiles(settings.landing_path, coordinator, settings.access)
        self._sets = JobSets(settings, coordinator, delivery.sinks)
        self._redaction = Redaction(settings)
        self._reporting = JobReporting(
            settings.rounds, self._bad_records, self._redaction, self._clock, sink_reports(settings.all_sinks)
        )
        self._deliveries = Deliveries(
            coordinator, self._sets, delivery, self._files, observer, self._reporting.note_committed, self._spans
        )
        self._balancer = Balancer(
            coordinator,
            max_leases=settings.leases.max_leases or default_leases,
            balance_by=settings.leases.balance_by,
            max_leases_to_steal=settings.leases.max_leases_to_steal,
            handover_timeout=settings.leases.handover_timeout,
            expected_workers=settings.workers,
            count_slots=count_slots,
            replaces=settings.replaces,
            delivers=delivery_digest(settings),
        )
        self._pace = RoundPace(settings.rounds, commit_interval_of(settings.writes), is_shared=is_shared)
        self._summary = Summary()
        self._partitions = ActivePartitions(
            coordinator,
            self._balancer,
            self._sets,
            self._files,
            self._summary,
            self._redaction,
            completed=lambda partition: self._reading.completed(partition),
            failed=self._reporting.note_failed,
            bounds=bounds,
        )
        self._reading: Reading = reading(settings, coordinator, self._partitions, self._summary)
        self._acquisition = PartitionAcquisition(
            coordinator, self._balancer, self._partitions, self._reading, self._files, delivery
        )
        self._delivered: set[str] = set()
        self._refused: set[str] = set()
        self._is_delivery_long = True
        self._ending = EndRequests(stop, coordinator.view)
        self._leases_given_back = 0

    def report(self) -> JobReport:
        """Return the job report as of now. Called from any thread."""
        return self._reporting.report(self._balancer.slots, self._pace.problem)

    def note_error(self, reason: str, error_class: str) -> None:
        """Note an error that fails no partition, for the job report.

        :param reason: why, without secrets.
        :param error_class: the name of the error.
        """
        self._reporting.note_failed(None, reason, Failure(error_class))

    def run(self) -> Summary:
        """Make rounds until a stop condition holds; then give back every lease.

        If the store is unavailable, the job waits for it. Then it delivers what it recorded, and leaves partitions that
        other workers acquired during that time to them. If the source is suspended, the job ends after the present
        round or pause.

        :raises StoreUnavailableError: if the store stays unavailable for `STORE_WAIT_SECONDS`, or the job is stopped
            while it waits; then the leases expire on their own.
        """
        started_at, started = self._clock.now(), self._clock.monotonic()
        summary, idle_rounds = self._summary, 0
        try:
            self._files.sweep_finished()
            with LeaseRenewer(*self.renewables):
                while True:
                    before, completed, refused = summary.records_landed, len(summary.completed), len(self._refused)
                    try:
                        ending = summary.stopped_because or self._ending.suspension_reason()
                        if ending:
                            self.finish()
                            summary.stopped_because = ending
                            break
                        acquired = self.round()
                    except StoreUnavailableError as error:
                        self._wait_for_store(error)
                        continue
                    # A batch that is refused for the first time may be accepted in the next round.
                    is_refused = len(self._refused) > refused
                    is_idle = summary.records_landed == before and not is_refused
                    is_waiting = self._balancer.is_waiting
                    expects_more = self._reading.expects_more or is_waiting
                    # A round in which partitions wait for others says nothing of the source.
                    idle_rounds = idle_rounds + (not expects_more) if is_idle else 0
                    summary.seconds = self._clock.monotonic() - started
                    summary.stopped_because = (
                        self._ending.reason
                        or self._handed_over_to()
                        or self._conditions.reason(
                            started_at=started_at,
                            running_seconds=summary.seconds,
                            idle_rounds=idle_rounds,
                            acquired=acquired or is_refused or len(summary.completed) > completed or expects_more,
                            **self._read_positions(),
                        )
                        or ""
                    )
                    if is_idle and not summary.stopped_because:
                        pause = self._pace.idle_pause
                        self._pause(min(pause, HANDOVER_POLL) if is_waiting else pause)
        finally:
            self.give_back()
        log.info("job ends: %s", summary.stopped_because)
        return summary

    @property
    def renewables(self) -> tuple[Renewable, ...]:
        """What a thread must renew while rounds are made."""
        return self._sets, self._balancer

    def round(self) -> bool:
        """Make one round; for callers that make the rounds themselves instead of calling `run`.

        The next round, or `finish`, delivers what this round lands and records.

        :returns: whether further partitions may become available.
        :raises StoreUnavailableError: if the store is unavailable.
        """
        if self._settings.completes is not None and not self._summary.rounds:
            view = self._coordinator.view
            IntervalLedger(view).begin(self._settings.completes, landed_until(view))
        self._summary.rounds += 1
        with self._spans.span("round", round=self._summary.rounds) as span:
            return self._make_round(span)

    def _make_round(self, span: Span) -> bool:
        summary = self._summary
        landed_before, delivered_before = summary.records_landed, summary.records_delivered
        seconds = dict.fromkeys(("acquire", "land", "record", "deliver"), 0.0)
        self._partitions.refresh_pending()
        self._reading.refresh_source()
        with self._timed(seconds, "acquire") as acquiring:
            acquired = not self._ending.reason and self._acquire()
            acquiring.note(partitions=len(self._partitions))
        self._hand_over()
        rows: list[Any] = []

        def land(leave_slot: bool) -> None:
            with self._timed(seconds, "land") as landing:
                rows.extend(self._land(leave_slot))
                landing.note(partitions=len(rows), records=sum(row.records for row in rows))
            self._observer("landed")

        self._deliver(seconds, beside=land)
        rows = [row for row in rows if row.partition_key in self._partitions]  # without those that ended while landing
        with self._timed(seconds, "record") as recording:
            read = self._reading.record(rows)
            self._partitions.write_records()
            recording.note(records=summary.records_landed - landed_before)
        reached = dict.fromkeys(self._reading.at_stop, 0)  # nothing is left to read of these partitions
        self._reporting.note_read({**read.behind_ms, **reached}, self._partitions.read_until)
        self._observer("recorded")
        if seconds["deliver"]:
            self._is_delivery_long = seconds["deliver"] > seconds["land"] / 2
        self._pace.note(seconds, is_caught_up=read.is_caught_up, behind=read.longest_lag)
        self._hand_over()
        self._end_round()
        log.log(
            logging.INFO if self._coordinator.leases.held or not self._balancer.is_waiting else logging.DEBUG,
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
        self._counts.note(summary, read, self._reporting.ages())
        return acquired

    def _end_round(self) -> None:
        self._reading.end_round()
        for key in list(self._partitions.read_until):
            self._partitions.delete_delivered(key)
        self._partitions.notice_gone()
        self._files.clear()

    def finish(self) -> None:
        """Deliver what the last round recorded, and what an outage of the store left undone.

        :raises StoreUnavailableError: if the store is unavailable.
        """
        before, seconds = self._summary.records_delivered, {"deliver": 0.0}
        self._deliver(seconds)
        self._end_round()
        if delivered := self._summary.records_delivered - before:
            log.info("last batches delivered: %d records in %.1f s", delivered, seconds["deliver"])
        self._counts.note(self._summary, RoundRead(), self._reporting.ages())

    # Requests to end

    def _withdraw(self, besides: Collection[str] = ()) -> None:
        """If the job should end, leave the balancing and give back the partitions that have nothing landed.

        So other workers continue with these partitions while this job delivers the rest. This is final.

        :param besides: the partitions that are in delivery.
        :raises StoreUnavailableError: if the store is unavailable.
        """
        if not (reason := self._ending.reason):
            return
        if not self._ending.is_final:
            self._balancer.leave()
            self._ending.end(reason)
        if given_back := self._partitions.give_back_idle(self._reading.last_known, besides):
            self._leases_given_back += given_back
            log.info("leases given back before the end: %d, still to deliver: %d", given_back, len(self._partitions))

    def _pause(self, duration: timedelta) -> None:
        """Wait; return early if the job should end, or if other jobs request its leases."""
        self._ending.pause(duration, is_over=lambda: bool(self._balancer.leaving))

    def _handed_over_to(self) -> str:
        """Return why the job ends if its successor has taken over all its partitions; empty if not."""
        successor = self._balancer.successor
        if successor is None or self._coordinator.leases.held:
            return ""
        return f"{successor} has taken over"

    def _read_positions(self) -> dict[str, Any]:
        """Return up to when the partitions at work are read, without those that wait for acknowledgments."""
        active = {
            key: until for key, until in self._partitions.read_until.items() if not self._partitions.is_paused(key)
        }
        return {"read_until": list(active.values()), "at_stop": len(active.keys() & set(self._reading.at_stop))}

    # Hand over and land

    def _acquire(self) -> bool:
        self._sets.end_overdue()
        return self._acquisition.acquire()

    def _hand_over(self) -> None:
        """Hand over the leases that other jobs requested, unless the job is about to give back all of them."""
        if not self._ending.reason:
            self._partitions.hand_over()

    def _land(self, leave_slot: bool) -> Sequence[Any]:
        if self._ending.reason:
            return []
        try:
            max_seconds = HANDOVER_ROUND_SECONDS if self._balancer.is_waiting else self._pace.read_seconds
            return self._reading.land(leave_slot=leave_slot, max_seconds=max_seconds)
        except Exception:
            if self._stop.is_set():  # the landing was cancelled; the files that it wrote are swept later
                log.info("landing abandoned: the job was stopped")
                return []
            raise

    # Deliver and acknowledge

    def _deliver(self, seconds: dict[str, float], beside: Callable[[bool], None] | None = None) -> None:
        """Deliver the batches that this job or a previous owner recorded.

        :param seconds: receives the duration, added to `deliver`.
        :param beside: called once, during the delivery, with whether it should leave a slot to the delivery.
        :raises Exception: what `beside` raises, once the batches in delivery are delivered.
        """
        self._withdraw()
        while batches := {
            key: batch
            for key, progress in self._partitions.all()
            if (batch := self._sets.next_batch(progress)) is not None
        }:
            outage: Exception | None = None
            together, raised = self._deliver_together(batches, seconds, beside)
            beside = None
            for key, delivered in together.items():
                batch = batches[key]
                if isinstance(delivered, LOST):
                    log.warning("batch %s is left to the partition's next owner: %s", batch.batch_id, delivered)
                    self._partitions.check_lease(key)
                elif isinstance(delivered, StoreUnavailableError):  # other batches may be delivered: count them first
                    outage = delivered
                elif isinstance(delivered, SinkUnavailableError):
                    self._hold(key, batch, delivered)
                elif isinstance(delivered, Exception):  # an error of a partition's files fails only that partition
                    self._reject(key, batch, failure_text(delivered), Failure(type(delivered).__name__))
                else:
                    self._note_delivery(key, batch, delivered)
            if (error := raised or outage) is not None:
                raise error
            self._withdraw()
        if beside is not None:
            beside(False)
        self._summary.parse_exceptions = self._bad_records.total
        self._summary.saved_parse_exceptions = self._bad_records.samples

    def _deliver_together(
        self, batches: Mapping[str, LandedBatch], seconds: dict[str, float], beside: Callable[[bool], None] | None
    ) -> tuple[Mapping[str, Delivered], Exception | None]:
        """Deliver batches, by partition, on a thread: the job may be stopped while it waits for them.

        :param beside: called during the delivery.
        :returns: the results of the batches, and the error that `beside` raised.
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
                    if not (self._ending.reason or self._balancer.is_waiting):
                        self._pause(self._pace.delay)
                    beside(self._is_delivery_long)
            except Exception as error:  # the delivered batches must be noted first
                raised = error
            while wait([delivery], END_POLL_SECONDS).not_done:
                with suppress(StoreUnavailableError):  # the delivery notices the outage as well
                    self._withdraw(besides=batches)
            return delivery.result(), raised

    def _note_delivery(self, key: str, batch: LandedBatch, delivered: Prepared | None) -> None:
        self._partitions.note_delivered(key, batch)
        if delivered is not None:
            delivered = self._bad_records.with_refused(batch.batch_id, delivered)
            self._summary.note_delivered(key, batch, delivered, is_first=key not in self._delivered)
            self._delivered.add(key)
            self._reporting.note_delivered(batch, delivered)
        self._partitions.delete_delivered(key)

    def _reject(self, key: str, batch: LandedBatch, reason: str, failure: Failure) -> None:
        if not self._coordinator.leases.holds(key):  # handed over undelivered; its next owner swept the files
            log.warning("batch %s is left to the partition's next owner: %s", batch.batch_id, reason)
            return
        self._refused.add(batch.batch_id)
        reason = self._redaction.text(reason)
        with suppress(*LOST):
            if self._sets.reject(key, batch, reason):
                self._partitions.stop_work(key, reason, failure)
                return
        self._partitions.fail(key, reason, failure)

    def _hold(self, key: str, batch: LandedBatch, error: SinkUnavailableError) -> None:
        """Give back a partition whose batch waits for a sink; the other sinks have the batch already."""
        held = self._summary.held_by_sink
        held[error.sink] = held.get(error.sink, 0) + 1
        self._refused.add(batch.batch_id)
        self._reporting.note_held(error.sink, batch, error.reason)
        self._sets.leave_to_next_owner(batch)
        give_back = self._partitions.give_back if isinstance(error, SinkLockedError) else self._partitions.fail
        give_back(key, failure_text(error), Failure.of(error))

    # The store, and the end

    def _wait_for_store(self, error: StoreUnavailableError) -> None:
        """Wait until the store is available again, then read which leases the job still has.

        A stopped job tries once more and then waits no longer, so that it can deliver what it has recorded.
        """
        log.warning("the store is unavailable; the job waits for it: %s", error)
        since = self._clock.monotonic()
        while True:
            is_stopped = self._stop.wait(STORE_POLL_SECONDS)
            try:
                self._coordinator.leases.recover()
            except StoreUnavailableError as outage:
                error = outage
                if is_stopped or self._clock.monotonic() - since > STORE_WAIT_SECONDS:
                    break
            else:
                self._partitions.notice_gone()
                log.info(
                    "the store is available again after %.0f s: leases=%d lost=%d",
                    self._clock.monotonic() - since, len(self._coordinator.leases.held), len(self._summary.lost),
                )  # fmt: skip
                return
        raise error

    def give_back(self) -> None:
        """Give back every lease; leases of partitions that wait for acknowledgments are kept for that."""
        try:
            if not self._ending.is_final:
                self._balancer.leave()
        except CoordinationError as error:
            log.warning("other workers count this job until its registration expires: %s", error)
        try:
            self._partitions.refresh_pending()
            paused = sum(map(self._partitions.is_paused, self._partitions.read_until))
            self._leases_given_back += self._partitions.give_back_idle(self._reading.last_known)
            pending = self._partitions.leave_pending()
            self._partitions.notice_gone()
            self._leases_given_back += len(self._coordinator.leases.give_up_all())
            log.info("leases given back: %d, waiting for acknowledgments: %d", self._leases_given_back, pending)
            if paused:
                log.warning("%d partitions continue only once their delivered batches are acknowledged", paused)
            self._sets.purge()
            self._summary.note_resting(self._coordinator.view.partitions(PartitionStatus.CLOSED))
        except CoordinationError as error:
            log.warning("leases could not be given back; they expire on their own: %s", error)
        self._files.clear()

    @contextmanager
    def _timed(self, seconds: dict[str, float], phase: str) -> Iterator[Span]:
        start = self._clock.monotonic()
        with self._spans.span(phase) as span:
            yield span
        seconds[phase] += self._clock.monotonic() - start
