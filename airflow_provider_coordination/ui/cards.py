"""The status of a source: its statistics, and its alarms, the worst first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Literal

from airflow_provider_coordination.coordination.acknowledgment import FAMILY as ACKNOWLEDGMENT_FAMILY
from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentView
from airflow_provider_coordination.coordination.browsing import PartitionState, state_of
from airflow_provider_coordination.coordination.interval_names import read_interval_name
from airflow_provider_coordination.coordination.intervals import IntervalLedger
from airflow_provider_coordination.coordination.job_reports import JobReport, SinkReport, freshness_problem_of, sinks_of
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_statistics import ScanLimits, SourceStatistics, source_statistics
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import latest_completed
from airflow_provider_coordination.coordination.suspension import Suspension
from airflow_provider_coordination.sources.kinds import inspect_partition, open_loss
from airflow_provider_coordination.sources.source_kind import Inspection
from airflow_provider_coordination.sources.watermarks import Watermark, watermark_of
from airflow_provider_coordination.supervisor.status import is_abandoned
from airflow_provider_coordination.supervisor.store import StoredSupervision, SupervisionStore
from airflow_provider_coordination.ui.access import is_paused
from airflow_provider_coordination.ui.bodies import Owner, owner_of, pages_named
from airflow_provider_coordination.ui.manual import MANUAL
from airflow_provider_coordination.ui.workers import registered_workers

BOUNDS = ScanLimits(partitions=20_000, seconds=0.2)
WATERMARK_PARTITIONS = 10_000
TREND_BUCKETS = 12
TREND_STEP = timedelta(minutes=5)
TREND_PAGE = 500
TREND_PARTITIONS = 4_000
TREND_SECONDS = 0.1
LATE_AFTER = timedelta(hours=1)
"""A lag of this length is a warning, and so are partitions that have waited this long."""
MAX_ALARM_CHARACTERS = 300
MAX_REPORTS, ENDED_REPORTS = 100, 5
"""How many jobs' reports about sinks are read: of jobs that have not ended, and of those that ended last."""


AlarmSubject = Literal[
    "lost", "parked", "overdue", "suspended", "expired", "waiting", "lag", "failing", "supervisor", "sink", "freshness"
]


@dataclass(frozen=True, kw_only=True)
class OldestLease:
    """The held lease that was acquired first.

    `held_for` is in seconds, and null if no lease has a start time. If `is_longest` is false, another lease may be
    older: it has no start time, or the source has more leases than were read.
    """

    partition_key: str
    owner: Owner
    held_for: float | None
    is_longest: bool


@dataclass(frozen=True, kw_only=True)
class FailingPartition:
    """A partition that fails."""

    partition_key: str
    attempts: int
    last_error: str | None


@dataclass(frozen=True, kw_only=True)
class Alarm:
    """Something that an operator should act on.

    `text` says what it means and what to press. `about` is its subject, by which a program distinguishes alarms.
    `manual` is the place in the manual that says more, as `page#anchor`.
    """

    level: Literal["error", "warning"]
    about: AlarmSubject
    text: str
    manual: str


@dataclass(frozen=True, kw_only=True)
class SourceCard:
    """The status of a source.

    `completed` is the number of partitions that were completed in each five minutes of the last hour, the oldest first;
    null where it is unknown. `parked` and `lost`, the parked ones that lost data stops, are counted first. Up to
    20,000 they are exact. `is_complete` is whether the statistics cover every unfinished partition; else `failing`,
    `expired_leases`, `lag` and `throughput` are lower bounds, and null where none was found. `sinks` are those of the
    job that reported last. `pages` are the source's pages in addition to those of every source: of its kind, of its
    intervals, and of its supervisor. `oldest_waiting_seconds` is how long the partition that waits longest has waited.
    `watermark` is null if records have no time of arrival, or the source has too many partitions.
    """

    connection_id: str
    source: str
    kind: str | None
    pages: list[str]
    counts: dict[str, int]
    parked: int
    lost: int
    failing: int | None
    expired_leases: int | None
    oldest_lease: OldestLease | None
    oldest_waiting_seconds: float | None
    lag: float | None
    throughput: float | None
    workers: int
    pending_sets: int
    next_set_expires_at: datetime | None
    suspended: Suspension | None
    failing_partitions: list[FailingPartition]
    completed: list[int | None]
    is_complete: bool
    sinks: list[SinkReport]
    watermark: Watermark | None
    alarms: list[Alarm]


def source_card(view: SourceView, connection_id: str, *, has_backfills: bool) -> SourceCard:
    """Return the status of a source.

    :param view: the source, initialized.
    :param connection_id: the connection of its store.
    :param has_backfills: whether runs ingest intervals of it under leases of their own.
    """
    now = view.clock.now()
    observed = _Observations(now)
    statistics = source_statistics(view.store, view.source_identifier, now, limits=BOUNDS, on_partition=observed.note)
    sets = AcknowledgmentView(view)
    pending = view.store.count_by_status(view.family(ACKNOWLEDGMENT_FAMILY), [PartitionStatus.UNASSIGNED])[
        PartitionStatus.UNASSIGNED
    ]
    registered = registered_workers(view)
    live = {worker.owner for worker in registered if worker.registered_until + view.safety_margin > now}
    completed, trend_is_complete = _completed(view, now)
    kind = observed.kind() or _kind_of_finished(view, now)
    supervision = SupervisionStore(view).get()
    reports = _reports(view)
    is_supervised = supervision is not None and supervision.supervision.spec_version > 0
    assigned_are_complete = PartitionStatus.ASSIGNED not in statistics.incomplete
    has_intervals = has_backfills or read_interval_name(view.source) is not None or IntervalLedger(view).exists()
    card = SourceCard(
        connection_id=connection_id,
        source=view.source,
        kind=kind,
        pages=[
            *pages_named(kind),
            *(["calendar"] if has_intervals else []),
            *(["supervisor"] if is_supervised else []),
        ],
        counts={status.value: count for status, count in statistics.partitions.items()},
        parked=statistics.parked,
        lost=len(observed.lost),
        failing=_counted(statistics.failing, is_every_one=statistics.is_complete),
        expired_leases=_counted(statistics.expired_leases, is_every_one=assigned_are_complete),
        oldest_lease=_oldest_lease(observed.held, now, is_every_one=assigned_are_complete),
        oldest_waiting_seconds=None if statistics.oldest_waiting is None else statistics.oldest_waiting.total_seconds(),
        lag=observed.lag,
        throughput=observed.throughput,
        workers=len(live | {partition.owner for partition in observed.held}),
        pending_sets=pending,
        next_set_expires_at=sets.next_expiry() if pending else None,
        suspended=view.suspensions.get(),
        failing_partitions=[
            FailingPartition(
                partition_key=partition.partition_key, attempts=partition.attempts, last_error=partition.last_error
            )
            for partition in statistics.worst
        ],
        completed=completed,
        is_complete=statistics.is_complete and statistics.parked_is_exact and trend_is_complete,
        sinks=sinks_of(reports),
        watermark=watermark_of(view) if sum(statistics.partitions.values()) <= WATERMARK_PARTITIONS else None,
        alarms=[],
    )
    alarms = [
        *_alarms_of_parked(card, observed.lost, is_every_one=statistics.parked_is_exact),
        *_alarms(card, now, statistics),
        *_alarms_of_freshness(card, reports),
        *([] if supervision is None else _alarms_of_supervisor(supervision, card, now)),
    ]
    return replace(card, alarms=sorted(alarms, key=lambda alarm: alarm.level != "error"))


class _Observations:
    """What a source's partitions show about it: its kind, its lag, its throughput and its leases."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._kinds: Counter[str] = Counter()
        self.held: list[Partition] = []
        self.lost: list[tuple[str, str, str]] = []
        self.lag: float | None = None
        self.throughput: float | None = None

    def note(self, partition: Partition) -> None:
        inspection = inspect_partition(partition, self._now)
        if inspection.kind is not None:
            self._kinds[inspection.kind] += 1
        if inspection.lag is not None:
            self.lag = max(self.lag or 0.0, inspection.lag)
        if inspection.throughput is not None:
            self.throughput = (self.throughput or 0.0) + inspection.throughput
        if (loss := open_loss(partition)) is not None:
            self.lost.append((partition.partition_key, *loss))
        if state_of(partition, self._now) is PartitionState.HELD:
            self.held.append(partition)

    def kind(self) -> str | None:
        """Return the kind of most partitions."""
        return next((kind for kind, _ in self._kinds.most_common(1)), None)


def _kind_of_finished(view: SourceView, now: datetime) -> str | None:
    found = view.store.query(view.source_identifier, PartitionStatus.COMPLETED, limit=1)
    inspection: Inspection | None = inspect_partition(found[0], now) if found else None
    return None if inspection is None else inspection.kind


def _reports(view: SourceView) -> list[JobReport]:
    """Return the latest reports of a source's jobs."""
    jobs = Jobs(view)
    known = [*islice(jobs.unfinished(), MAX_REPORTS), *jobs.latest_ended(ENDED_REPORTS)]
    return [job.report for job in known if job.report is not None]


def _oldest_lease(held: list[Partition], now: datetime, *, is_every_one: bool) -> OldestLease | None:
    """Return the lease that is held longest. Leases without a start time are ignored, and may be older.

    :param held: the partitions that are held.
    :param now: the current time (aware).
    :param is_every_one: whether `held` has all held partitions of the source.
    """
    if not held:
        return None
    dated = [(partition.held_since, partition) for partition in held if partition.held_since is not None]
    since, oldest = min(dated, key=lambda each: each[0], default=(None, held[0]))
    return OldestLease(
        partition_key=oldest.partition_key,
        owner=owner_of(oldest.owner or ""),
        held_for=None if since is None else max(0.0, (now - since).total_seconds()),
        is_longest=is_every_one and len(dated) == len(held),
    )


def _completed(view: SourceView, now: datetime) -> tuple[list[int | None], bool]:
    """Return how many partitions were completed in each step of the last hour, and whether all were counted."""
    buckets: list[int | None] = [0] * TREND_BUCKETS
    begin = now - TREND_BUCKETS * TREND_STEP
    until = time.monotonic() + TREND_SECONDS
    observed, last = 0, TREND_BUCKETS - 1
    for browsed in latest_completed(view.store, view.source_identifier, TREND_PAGE):
        for partition in browsed.partitions:
            if partition.priority < begin:
                return buckets, True
            last = min((partition.priority - begin) // TREND_STEP, TREND_BUCKETS - 1)
            buckets[last] = (buckets[last] or 0) + 1
        observed += len(browsed.partitions)
        if browsed.next is not None and (observed >= TREND_PARTITIONS or time.monotonic() >= until):
            return [None if number <= last else count for number, count in enumerate(buckets)], False
    return buckets, True


def _counted(number: int, *, is_every_one: bool) -> int | None:
    """Return a number that was counted; None for 0 if not everything was examined."""
    return number if number or is_every_one else None


def _alarms_of_parked(card: SourceCard, lost: list[tuple[str, str, str]], *, is_every_one: bool) -> Iterator[Alarm]:
    """Yield an alarm for partitions that lost data stops, which reopening does not help, and one for the others."""
    if lost:
        key, loss, remedy = lost[0]
        partitions = _partitions(card.lost, is_every_one=is_every_one)
        text = f"{partitions} parked, data is gone. {remedy}. {key}: {loss}"
        yield _alarm("error", "lost", text[:MAX_ALARM_CHARACTERS])
    if others := card.parked - card.lost:
        them = "it" if others == 1 else "them"
        text = f"{_partitions(others, is_every_one=is_every_one)} parked. Reopen {them} once the cause is fixed"
        yield _alarm("error", "parked", text)


def _alarms(card: SourceCard, now: datetime, statistics: SourceStatistics) -> Iterator[Alarm]:
    if card.next_set_expires_at is not None and card.next_set_expires_at < now - timedelta(minutes=1):
        yield _alarm("error", "overdue", "an acknowledgment set is overdue. Check that Airflow's triggerer runs")
    if card.suspended is not None:
        by = f" by {card.suspended.by}" if card.suspended.by else ""
        why = f": {card.suspended.reason}" if card.suspended.reason else ""
        yield _alarm("warning", "suspended", f"suspended{by}{why}. Resume the source to continue")
    waits = card.oldest_waiting_seconds is not None and card.oldest_waiting_seconds >= LATE_AFTER.total_seconds()
    if card.expired_leases:
        leases = "1 lease has" if card.expired_leases == 1 else f"{card.expired_leases} leases have"
        at_least = "at least " if PartitionStatus.ASSIGNED in statistics.incomplete else ""
        yield _alarm(
            "warning" if card.workers else "error",
            "expired",
            f"{at_least}{leases} expired, and no worker has taken over. {_next_step(card)}",
        )
    elif waits and card.suspended is None:
        yield _alarm("warning", "waiting", f"partitions have waited for more than 1 h. {_next_step(card)}")
    if card.lag is not None and card.lag >= LATE_AFTER.total_seconds():
        yield _alarm("warning", "lag", f"delivery is more than 1 h behind. {_next_step(card)}")
    for sink in card.sinks:
        if sink.unavailable_since is not None:
            minutes = int((now - sink.unavailable_since).total_seconds() // 60)
            wait = "1 batch waits" if sink.waiting_batches == 1 else f"{sink.waiting_batches} batches wait"
            text = (
                f"sink {sink.name!r} ({sink.kind}) has been unavailable for {_duration(minutes)}, {wait}. "
                f"Restore the sink; delivery then resumes automatically. Last error: {sink.error}"
            )
            yield _alarm("error", "sink", text)
    if card.failing:
        last_error = "its last error" if card.failing == 1 else "their last errors"
        partitions = _partitions(card.failing, is_every_one=statistics.is_complete)
        yield _alarm("warning", "failing", f"{partitions} failing. Read {last_error}, and fix the cause")


def _alarms_of_freshness(card: SourceCard, reports: list[JobReport]) -> Iterator[Alarm]:
    if problem := freshness_problem_of(reports):
        reached = [sink.freshness_p95 for sink in card.sinks if sink.freshness_p95 is not None]
        visible = f". 95 % of the latest records were visible within {max(reached):.1f} s" if reached else ""
        yield _alarm("warning", "freshness", f"{problem}{visible}")


def _alarms_of_supervisor(stored: StoredSupervision, card: SourceCard, now: datetime) -> Iterator[Alarm]:
    memory = stored.supervision
    if memory.started_at is None or memory.terminated_at is not None or card.suspended is not None:
        return
    state = memory.health.state
    if is_paused(memory.dag_id):
        yield _alarm(
            "warning", "supervisor", f"the supervisor's DAG {memory.dag_id!r} is paused. Unpause it to continue"
        )
    elif is_abandoned(stored, now):
        text = f"the supervisor has stopped running. Check that DAG {memory.dag_id!r} has a run"
        yield _alarm("error", "supervisor", text)
    elif not state.is_healthy:
        why = "".join(f". Last error: {error.error_class}: {error.message}" for error in memory.health.errors[-1:])
        text = f"the supervisor is in state {state.value}. Fix the cause; it recovers automatically{why}"
        yield _alarm("error", "supervisor", text[:MAX_ALARM_CHARACTERS])


def _alarm(level: Literal["error", "warning"], about: AlarmSubject, text: str) -> Alarm:
    return Alarm(level=level, about=about, text=text, manual=MANUAL[about])


def _duration(minutes: int) -> str:
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} d"


def _partitions(number: int, *, is_every_one: bool) -> str:
    counted = "1 partition is" if number == 1 else f"{number} partitions are"
    return counted if is_every_one else f"at least {counted}"


def _next_step(card: SourceCard) -> str:
    return "Check the workers, or start more jobs" if card.workers else "There is no worker: start a run of the DAG"
