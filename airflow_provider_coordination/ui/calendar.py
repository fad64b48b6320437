"""The calendar of a source: what is known of its complete intervals, and of the runs that ingest intervals of it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import AwareDatetime

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.interval_names import IntervalName, intervals_of, read_interval_name
from airflow_provider_coordination.coordination.intervals import Counts, IntervalLedger, Ledger
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.source_statistics import ScanLimits, source_statistics
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.hooks.coordination import ConnectionSettings
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.bodies import Owner
from airflow_provider_coordination.ui.sources import source_names
from airflow_provider_coordination.ui.store_queries import EXPENSIVE, SOURCE, Queries, query_response

DEFAULT_DAYS, MAX_DAYS = 14, 62
DAY = timedelta(days=1)
MAX_TALLIES = 2_000
"""How many batches that the ledger does not sum up yet are read."""
MAX_RUNS = 1_500
"""An hour each, for 62 days."""
SECONDS = 2.0
"""How long the partitions of intervals are examined, the latest interval first. The others are not examined."""
BOUNDS = ScanLimits(partitions=500, seconds=0.05)

RunState = Literal["complete", "failed", "running", "waiting"]


@dataclass(frozen=True, kw_only=True)
class KnownInterval:
    """What the ledger of a source knows of one interval.

    `counts` is what was delivered of it before a task took it to report it, `late` what came after that. `reported_by`
    is the task that took it, as long as it is not known whether that task succeeded; `lost` has the ranges that were
    lost in it. `corrected_by` is the same task for what came late.
    """

    start: datetime
    counts: Counts | None = None
    late: Counts | None = None
    reported_by: Owner | None = None
    corrected_by: Owner | None = None
    lost: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class CountedIntervals:
    """What the ledger of a source knows of its intervals of `every` seconds.

    Every interval from `start` on and before `next` was reported; of these, only late records are known. `next` is the
    next one to report; both are null while they are unknown. `known` has those of which more is known. `late_records`
    counts all records that came late. With `is_exact` false, more was delivered than is counted here.
    """

    every: int
    start: datetime | None
    next: datetime | None
    known: list[KnownInterval]
    late_records: int
    is_exact: bool


@dataclass(frozen=True, kw_only=True)
class IntervalRun:
    """An interval that runs ingest under leases of its own.

    `source` is the name of these leases. `state` is null, and so are the others, if it was not examined. `failing` are
    the partitions whose last attempt failed, parked ones included.
    """

    source: str
    start: datetime
    end: datetime
    state: RunState | None = None
    partitions: dict[str, int] | None = None
    parked: int | None = None
    failing: int | None = None


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """The intervals of a source from `since` to `until`.

    `whole` is the name of the whole source if this one is an interval of it; else the same name. `counted` is null if
    no job counts intervals. `runs` are in the order of time. `complete` is whether every run is there and was examined.
    """

    as_of: datetime
    since: datetime
    until: datetime
    whole: str
    counted: CountedIntervals | None
    runs: list[IntervalRun]
    complete: bool


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.get(SOURCE + "/calendar", dependencies=[may_read_connection()], response_model=Calendar)(calendar)
    return routes


async def calendar(
    queries: Queries,
    connection_id: str,
    source: str,
    until: AwareDatetime | None = None,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS)] = DEFAULT_DAYS,
) -> Response:
    """Return what is known of the intervals of the days (UTC) up to an instant, by default up to now."""
    names: list[str] | None = None
    with suppress(
        StoreUnavailableError
    ):  # the list of all sources takes long in some stores; the rest does not need it
        names = await source_names(queries, connection_id)

    def read_calendar() -> Calendar:
        settings = queries.stores.settings(connection_id)
        return queries.stores.query(
            settings.store, lambda store: calendar_of(settings, store, source, names, until=until, days=days)
        )

    what = ("calendar", source, until, days, names is None)
    return await query_response(queries, connection_id, what, read_calendar, cooldown=EXPENSIVE)


def calendar_of(
    settings: ConnectionSettings,
    store: CoordinationStore,
    source: str,
    names: Sequence[str] | None,
    *,
    until: datetime | None,
    days: int,
) -> Calendar:
    """Return what is known of the intervals of some days.

    :param settings: the connection.
    :param store: its store, initialized.
    :param names: the names of the connection's sources, sorted; None if they are unknown.
    :param until: the end of the window (aware); it is moved to the next midnight UTC. Now by default.
    :param days: the length of the window.
    """
    view = settings.view(source, store=store)
    now = view.clock.now()
    since, until = window(until, now, days)
    name = read_interval_name(source)
    whole = source if name is None else name.source
    runs = _runs_within(since, until, whole, names or ())
    examined = _examined(settings, store, runs[-MAX_RUNS:], now)
    return Calendar(
        as_of=now,
        since=since,
        until=until,
        whole=whole,
        counted=_counted(view, since, until),
        runs=examined,
        complete=names is not None and len(runs) <= MAX_RUNS and all(each.state is not None for each in examined),
    )


def window(until: datetime | None, now: datetime, days: int) -> tuple[datetime, datetime]:
    """Return the midnights (UTC) between which the days up to an instant lie, none of them after the present one.

    :param until: the instant (aware); None for now.
    :param now: the present instant (aware).
    """
    earliest = datetime(1970, 1, 1, tzinfo=UTC) + MAX_DAYS * DAY
    last = max(min(until or now, now), earliest).astimezone(UTC)
    midnight = last.replace(hour=0, minute=0, second=0, microsecond=0)
    end = midnight if midnight == last and until is not None else midnight + DAY
    return end - days * DAY, end


def _counted(view: SourceView, since: datetime, until: datetime) -> CountedIntervals | None:
    found = IntervalLedger(view).counted(MAX_TALLIES)
    if found is None:
        return None
    ledger, is_exact = found
    return CountedIntervals(
        every=ledger.every,
        start=ledger.start,
        next=ledger.next or ledger.start,
        known=[each for each in _known(ledger) if since <= each.start < until],
        late_records=ledger.late_records,
        is_exact=is_exact,
    )


def _known(ledger: Ledger) -> list[KnownInterval]:
    known = {each.start: KnownInterval(start=each.start, counts=each) for each in ledger.open}
    known |= {each.start: KnownInterval(start=each.start, late=each) for each in ledger.late}
    if ledger.taken is not None:
        start = ledger.taken.counts.start
        before = known.get(start, KnownInterval(start=start))
        by, lost = _task(ledger.taken.by), ledger.taken.lost
        known[start] = replace(before, counts=ledger.taken.counts, reported_by=by, lost=lost)
    if ledger.correction is not None:
        start = ledger.correction.counts.start
        before = known.get(start, KnownInterval(start=start))
        late = ledger.correction.counts if before.late is None else before.late + ledger.correction.counts
        known[start] = replace(before, late=late, corrected_by=_task(ledger.correction.by))
    return [known[start] for start in sorted(known)]


def _task(name: str) -> Owner:
    """Return a task instance that is named as a JSON array: its DAG, run, task and index."""
    with suppress(ValueError, TypeError):
        dag_id, run_id, task_id, map_index = json.loads(name)
        return Owner(name=name, dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index)
    return Owner(name=name)


def _runs_within(since: datetime, until: datetime, whole: str, names: Sequence[str]) -> list[IntervalName]:
    """Return the intervals of a source that overlap a window, in the order of time."""
    runs = (each for each in intervals_of(whole, names) if each.start < until and each.end > since)
    return sorted(runs, key=lambda each: each.start)


def _examined(
    settings: ConnectionSettings, store: CoordinationStore, runs: Sequence[IntervalName], now: datetime
) -> list[IntervalRun]:
    """Return the state of intervals, the latest ones first examined, for `SECONDS` at most."""
    over = time.monotonic() + SECONDS
    examined = []
    for run in reversed(runs):
        view = settings.view(str(run), store=store)
        is_over = time.monotonic() >= over
        facts = IntervalRun(source=str(run), start=run.start, end=run.end)
        examined.append(facts if is_over else _run(view, run, now))
    return examined[::-1]


def _run(view: SourceView, run: IntervalName, now: datetime) -> IntervalRun:
    counts = view.count_by_status()
    unfinished = sum(number for status, number in counts.items() if status is not PartitionStatus.COMPLETED)
    state: RunState = "complete" if counts[PartitionStatus.COMPLETED] and run.end <= now else "waiting"
    parked, failing = 0, 0
    if unfinished:
        statistics = source_statistics(view.store, view.source_identifier, now, limits=BOUNDS)
        parked, failing = statistics.parked, statistics.failing
        # A parked partition counts as failing, also if no attempt failed.
        state = "failed" if parked or failing else "running" if statistics.owners else "waiting"
        failing = max(parked, failing)
    return IntervalRun(
        source=view.source,
        start=run.start,
        end=run.end,
        state=state,
        partitions={status.value: number for status, number in counts.items()},
        parked=parked,
        failing=failing,
    )
