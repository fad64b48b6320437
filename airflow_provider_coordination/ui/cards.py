"""How a source stands, for somebody who is woken at night: the figures, and what is wrong, the worst first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice

from airflow_provider_coordination.coordination.acknowledgment import FAMILY as ACKNOWLEDGMENT_FAMILY
from airflow_provider_coordination.coordination.acknowledgment_view import AcknowledgmentView
from airflow_provider_coordination.coordination.jobs import Jobs
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.partition_state import PartitionState, state_of
from airflow_provider_coordination.coordination.sink_reports import sinks_of
from airflow_provider_coordination.coordination.source_statistics import Bounds, source_figures
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import completed_last
from airflow_provider_coordination.sources.inspection import inspected
from airflow_provider_coordination.sources.kinds import Inspection
from airflow_provider_coordination.supervisor.status import is_abandoned
from airflow_provider_coordination.supervisor.store import StoredSupervision, SupervisionStore
from airflow_provider_coordination.ui.access import is_paused
from airflow_provider_coordination.ui.facts import owner_of
from airflow_provider_coordination.ui.kinds import pages_named
from airflow_provider_coordination.ui.models.sources import (
    Alarm,
    FailingPartition,
    OldestLease,
    SinkFacts,
    SourceCard,
    SuspensionFacts,
)
from airflow_provider_coordination.ui.workers import registered_workers

BOUNDS = Bounds(partitions=20_000, seconds=0.2)
TREND_BUCKETS = 12
TREND_STEP = timedelta(minutes=5)
TREND_PAGE = 500
TREND_PARTITIONS = 4_000
TREND_SECONDS = 0.1
LATE_AFTER = timedelta(hours=1)
"""A source that is so far behind is worth a warning, and so is work that nobody takes for so long."""
MAX_ALARM_CHARACTERS = 300
MAX_REPORTS, ENDED_REPORTS = 100, 5
"""Of how many jobs, of those that have not ended and of those that ended last, it is read what they report of sinks."""


def source_card(view: SourceView, connection_id: str) -> SourceCard:
    """Return how a source stands.

    :param view: of the source, initialized.
    :param connection_id: the connection that it was reached by.
    """
    now = view.clock.now()
    seen = _Seen(now)
    figures = source_figures(view.store, view.source_identifier, now, bounds=BOUNDS, looked_at=seen.note)
    sets = AcknowledgmentView(view)
    pending = view.store.count_by_status(view.family(ACKNOWLEDGMENT_FAMILY), [PartitionStatus.UNASSIGNED])[
        PartitionStatus.UNASSIGNED
    ]
    suspension = view.suspensions.get()
    registered = registered_workers(view)
    live = {worker.owner for worker in registered if worker.registered_until + view.safety_margin > now}
    completed, trend_is_complete = _completed(view, now)
    kind = seen.kind() or _kind_of_finished(view, now)
    supervision = SupervisionStore(view).get()
    is_supervised = supervision is not None and supervision.supervision.spec_version > 0
    card = SourceCard(
        connection_id=connection_id,
        source=view.source,
        kind=kind,
        pages=[*pages_named(kind), *(["supervisor"] if is_supervised else [])],
        counts={status.value: count for status, count in figures.partitions.items()},
        parked=figures.parked,
        failing=figures.failing,
        expired_leases=figures.expired_leases,
        oldest_lease=_oldest_lease(seen.held, now, is_every_one=PartitionStatus.ASSIGNED not in figures.incomplete),
        oldest_waiting=None if figures.oldest_waiting is None else figures.oldest_waiting.total_seconds(),
        lag=seen.lag,
        throughput=seen.throughput,
        workers=len(live | {partition.owner for partition in seen.held}),
        pending_sets=pending,
        next_set_expires_at=sets.next_expiry() if pending else None,
        suspended=None
        if suspension is None
        else SuspensionFacts(since=suspension.since, by=suspension.by, reason=suspension.reason),
        errors=[
            FailingPartition(
                partition_key=partition.partition_key, attempts=partition.attempts, last_error=partition.last_error
            )
            for partition in figures.worst
        ],
        completed=completed,
        is_complete=figures.is_complete and trend_is_complete,
        sinks=_sinks(view),
        alarms=[],
    )
    alarms = [*_alarms(card, now), *([] if supervision is None else _alarms_of_supervisor(supervision, card, now))]
    card.alarms = sorted(alarms, key=lambda alarm: alarm.level != "error")
    return card


class _Seen:
    """What the partitions that are looked at for the figures say of their source."""

    def __init__(self, now: datetime) -> None:
        self._now = now
        self._kinds: Counter[str] = Counter()
        self.held: list[Partition] = []
        self.lag: float | None = None
        self.throughput: float | None = None

    def note(self, partition: Partition) -> None:
        told = inspected(partition, self._now)
        if told.kind is not None:
            self._kinds[told.kind] += 1
        if told.lag is not None:
            self.lag = max(self.lag or 0.0, told.lag)
        if told.throughput is not None:
            self.throughput = (self.throughput or 0.0) + told.throughput
        if state_of(partition, self._now) is PartitionState.HELD:
            self.held.append(partition)

    def kind(self) -> str | None:
        """Return the kind that most of them are of."""
        return next((kind for kind, _ in self._kinds.most_common(1)), None)


def _kind_of_finished(view: SourceView, now: datetime) -> str | None:
    found = view.store.query(view.source_identifier, PartitionStatus.COMPLETED, limit=1)
    told: Inspection | None = inspected(found[0], now) if found else None
    return None if told is None else told.kind


def _sinks(view: SourceView) -> list[SinkFacts]:
    """Return how the sinks of a source stand, as its jobs report of them."""
    jobs = Jobs(view)
    known = [*islice(jobs.unfinished(), MAX_REPORTS), *jobs.ended_last(ENDED_REPORTS)]
    sinks = sinks_of([job.report for job in known if job.report is not None])
    return [SinkFacts.model_validate(sink, from_attributes=True) for sink in sinks]


def _oldest_lease(held: list[Partition], now: datetime, *, is_every_one: bool) -> OldestLease | None:
    """Return the lease that is held longest of those that say since when; of others any may be older.

    :param is_every_one: whether these are all that are held.
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
    """Return how many partitions were completed in each step of the last hour, and whether that is all of it."""
    buckets: list[int | None] = [0] * TREND_BUCKETS
    begin = now - TREND_BUCKETS * TREND_STEP
    until = time.monotonic() + TREND_SECONDS
    seen, last = 0, TREND_BUCKETS - 1
    for browsed in completed_last(view.store, view.source_identifier, TREND_PAGE):
        for partition in browsed.partitions:
            if partition.priority < begin:
                return buckets, True
            last = min((partition.priority - begin) // TREND_STEP, TREND_BUCKETS - 1)
            buckets[last] = (buckets[last] or 0) + 1
        seen += len(browsed.partitions)
        if browsed.next is not None and (seen >= TREND_PARTITIONS or time.monotonic() >= until):
            return [None if number <= last else count for number, count in enumerate(buckets)], False
    return buckets, True


def _alarms(card: SourceCard, now: datetime) -> Iterator[Alarm]:
    if card.parked:
        them = "it" if card.parked == 1 else "them"
        text = f"{_partitions(card.parked)} parked. Reopen {them} once the cause is fixed"
        yield Alarm(level="error", about="parked", text=text)
    if card.next_set_expires_at is not None and card.next_set_expires_at < now - timedelta(minutes=1):
        text = "an acknowledgment set is overdue and nobody ends it: does the triggerer run?"
        yield Alarm(level="error", about="overdue", text=text)
    if card.suspended is not None:
        by = f" by {card.suspended.by}" if card.suspended.by else ""
        why = f": {card.suspended.reason}" if card.suspended.reason else ""
        yield Alarm(level="warning", about="suspended", text=f"suspended{by}{why}")
    waits = card.oldest_waiting is not None and card.oldest_waiting >= LATE_AFTER.total_seconds()
    if card.expired_leases:
        leases = "1 lease has" if card.expired_leases == 1 else f"{card.expired_leases} leases have"
        yield Alarm(
            level="warning" if card.workers else "error",
            about="expired",
            text=f"{leases} run out, and nobody has taken over" + _nobody(card),
        )
    elif waits and card.suspended is None:
        yield Alarm(level="warning", about="waiting", text="work has been waiting for over an hour" + _nobody(card))
    if card.lag is not None and card.lag >= LATE_AFTER.total_seconds():
        yield Alarm(level="warning", about="lag", text="more than an hour behind")
    for sink in card.sinks:
        if sink.away_since is not None:
            minutes = int((now - sink.away_since).total_seconds() // 60)
            wait = "1 batch waits" if sink.held == 1 else f"{sink.held} batches wait"
            text = f"sink {sink.name!r} ({sink.kind}) has taken nothing for {_lasting(minutes)}, {wait}: {sink.error}"
            yield Alarm(level="error", about="sink", text=text)
    if card.failing:
        yield Alarm(level="warning", about="failing", text=f"{_partitions(card.failing)} failing")


def _alarms_of_supervisor(stored: StoredSupervision, card: SourceCard, now: datetime) -> Iterator[Alarm]:
    memory = stored.supervision
    if memory.started_at is None or memory.terminated_at is not None or card.suspended is not None:
        return
    state = memory.health.state
    if is_paused(memory.dag_id):
        text = f"its supervisor is suspended: DAG {memory.dag_id!r} is paused"
        yield Alarm(level="warning", about="supervisor", text=text)
    elif is_abandoned(stored, now):
        text = f"nobody supervises it any more: does DAG {memory.dag_id!r} have a run?"
        yield Alarm(level="error", about="supervisor", text=text)
    elif not state.is_healthy:
        latest = memory.health.errors[-1:]
        why = "".join(f": {error.error_class}: {error.message}" for error in latest)
        text = f"its supervisor is in state {state.value}{why}"[:MAX_ALARM_CHARACTERS]
        yield Alarm(level="error", about="supervisor", text=text)


def _lasting(minutes: int) -> str:
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} d"


def _partitions(number: int) -> str:
    return "1 partition is" if number == 1 else f"{number} partitions are"


def _nobody(card: SourceCard) -> str:
    return "" if card.workers else ": there is no worker"
