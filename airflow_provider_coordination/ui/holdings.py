"""Who held which partitions when: the timeline of a source, and the partitions of a DAG run over all connections."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate, islice
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Response
from pydantic import AwareDatetime

from airflow_provider_coordination.coordination.browsing import Filter, PageRequest, PartitionState
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.history import HistoryResult, Holding, HoldingEnd, Transition, holdings
from airflow_provider_coordination.coordination.partition import AWAITING_SUFFIX, Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.coordination.workers import task_of
from airflow_provider_coordination.ui.access import AnyVisitor, Visitor, may_read_connection
from airflow_provider_coordination.ui.bodies import NO_NUL, HoldingFacts, PartitionRow, row_of
from airflow_provider_coordination.ui.sources import known_connections, source_names
from airflow_provider_coordination.ui.store_queries import (
    SOURCE,
    Queries,
    QueryScheduler,
    json_response,
    json_text,
    query_response,
)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULT_SPAN = timedelta(hours=1)
MAX_SPAN = timedelta(days=365)
MAX_LEASES = 5_000
MAX_READ = 100
"""How many partitions are read one by one for their current state."""
MAX_HOLDINGS = 5_000
"""The maximum number of holdings of all partitions. Partitions that changed owner last come first, each complete."""
STEP = timedelta(seconds=10)
"""The start and the end of the window are rounded to this."""
COOLDOWN = 3.0
"""A long history takes a while to read."""


@dataclass(frozen=True, kw_only=True)
class PartitionLine:
    """The owners of a partition, the first one first."""

    partition_key: str
    holdings: list[HoldingFacts]


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The owners of partitions over time. `complete` is whether nothing is missing."""

    as_of: datetime
    since: datetime
    until: datetime
    has_history: bool
    complete: bool
    partitions: list[PartitionLine]


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    routes.get(SOURCE + "/timeline", dependencies=[may_read_connection()], response_model=Timeline)(timeline)
    # Every user who is logged in may call it, and gets the connections that they may view.
    routes.get("/runs", response_model=RunPartitions)(runs)
    return routes


async def timeline(
    queries: Queries,
    connection_id: str,
    source: str,
    since: AwareDatetime | None = None,
    until: AwareDatetime | None = None,
    search: Annotated[str, Query(max_length=1024)] = "",
    limit: Annotated[int, Query(ge=1, le=2000)] = 200,
) -> Response:
    """Return the owners of partitions over time, by default over the last hour."""
    since, until = _validated_window(since, until, datetime.now(UTC))

    def read_timeline() -> Timeline:
        days = queries.stores.settings(connection_id).store.history_days
        return queries.stores.query_source(
            connection_id,
            source,
            lambda view: timeline_of(view, since, until, search=search, limit=limit, history_days=days),
        )

    return await query_response(
        queries, connection_id, ("timeline", source, since, until, search, limit), read_timeline, cooldown=COOLDOWN
    )


def timeline_of(
    view: SourceView,
    since: datetime | None,
    until: datetime | None,
    *,
    search: str,
    limit: int,
    history_days: float,
) -> Timeline:
    """Return the owners of partitions over time.

    :param view: the source.
    :param since: the start of the window (aware); an hour before `until` by default.
    :param until: the end of the window (aware); now by default.
    :param search: text that the keys of the partitions contain.
    :param limit: the maximum number of partitions. Those that changed owner last are returned.
    :param history_days: how long the history is kept, in days.
    """
    now = view.clock.now()
    until = min(until or now, now).astimezone(UTC)
    since = max(since or until - DEFAULT_SPAN, now - MAX_SPAN).astimezone(UTC)
    history = view.history.between(since) if history_days else HistoryResult(transitions=[])
    transitions = [each for each in history.transitions if search in each.partition_key]
    present, every_lease = _current_partitions(view, transitions, search, now)
    lines = holdings(transitions, present, now=now)
    shown = {key: [each for each in line if _overlaps(each, since, until)] for key, line in lines.items()}
    latest = {key: _latest(line, since) for key, line in shown.items() if line}
    by_change = sorted(latest, key=latest.__getitem__, reverse=True)
    so_far = accumulate(len(shown[key]) for key in by_change)
    keys = [key for key, count in zip(by_change[:limit], so_far, strict=False) if count <= MAX_HOLDINGS]
    kept = history_days and since >= now - timedelta(days=history_days)
    return Timeline(
        as_of=now,
        since=since,
        until=until,
        has_history=bool(history_days),
        complete=bool(kept) and history.complete and every_lease and len(keys) == len(by_change),
        partitions=[
            PartitionLine(partition_key=key, holdings=[HoldingFacts(**vars(each)) for each in shown[key]])
            for key in sorted(keys)
        ],
    )


def _current_partitions(
    view: SourceView, transitions: list[Transition], search: str, now: datetime
) -> tuple[list[Partition], bool]:
    """Return the partitions that are held now, or were at their last transition, and whether that is all of them."""
    leases = islice(view.partitions(PartitionStatus.ASSIGNED), MAX_LEASES)
    held = {lease.partition_key: lease for lease in leases}
    # A partition may have changed since its last transition: a worker may write the history later, or never.
    lines = holdings(transitions, now=now)
    open_ends = [key for key, line in lines.items() if line[-1].end is HoldingEnd.HELD and key not in held]
    read = [found for key in open_ends[-MAX_READ:] if (found := view.get(key)) is not None]
    return [*(lease for key, lease in held.items() if search in key), *read], len(held) < MAX_LEASES


def _validated_window(
    since: datetime | None, until: datetime | None, now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Return the requested window, rounded, so that repeated requests for the last hour are identical queries.

    The instants may be any with a year of four digits. They are compared before any arithmetic, which could overflow.

    :raises HTTPException: if the window is invalid.
    """
    earliest = now - MAX_SPAN
    if until is not None and until >= now:
        until = None
    if since is not None and since >= (until or now):
        raise HTTPException(422, f"query.since: must be before {'now' if until is None else repr('until')}")
    if until is not None and until <= earliest:
        raise HTTPException(422, f"query.until: more than {MAX_SPAN.days} days ago; send a later instant")
    if since is not None:
        since = _rounded(max(since, earliest))
    return since, None if until is None else _rounded(until + STEP)


def _rounded(instant: datetime) -> datetime:
    return instant - (instant - EPOCH) % STEP


def _overlaps(holding: Holding, since: datetime, until: datetime) -> bool:
    return (holding.began_at is None or holding.began_at <= until) and (
        holding.ended_at is None or holding.ended_at >= since
    )


def _latest(line: list[Holding], since: datetime) -> datetime:
    return max(max(each.began_at or since, each.ended_at or since) for each in line)


MAX_PARTITIONS = 500
"""The maximum number of held partitions of one source."""
MAX_PREVIOUS = 100
"""The maximum number of partitions of one source that were held before. They are read one by one, the latest first."""
RUN_COOLDOWN = 5.0
"""A long history takes a while to read, and every open tab of a task requests it."""

Name = Annotated[str, Query(min_length=1, max_length=250, pattern=NO_NUL)]


@dataclass(frozen=True, kw_only=True)
class RunPartition(PartitionRow):
    """A partition that a run holds, or held."""

    connection_id: str
    source: str
    is_held_now: bool


@dataclass(frozen=True, kw_only=True)
class RunPartitions:
    """The partitions that a run holds or held. `unreachable` lists the connections whose store is unavailable."""

    as_of: datetime
    partitions: list[RunPartition]
    complete: bool
    unreachable: list[str]


@dataclass(frozen=True)
class Tasks:
    """The tasks of a run, or one of them.

    :param dag_id: the DAG.
    :param run_id: the run.
    :param task_id: the task; None for all tasks.
    :param map_index: the index of a mapped task; None for all indexes.
    """

    dag_id: str
    run_id: str
    task_id: str | None = None
    map_index: int | None = None

    def own(self, owner: str | None) -> bool:
        """Return whether an owner is one of these tasks, or was before its partition awaited acknowledgment."""
        task = None if owner is None else task_of(owner.removesuffix(AWAITING_SUFFIX))
        return (
            task is not None
            and (task.dag_id, task.run_id) == (self.dag_id, self.run_id)
            and self.task_id in (None, task.task_id)
            and self.map_index in (None, task.map_index)
        )


@dataclass(frozen=True)
class _RunResult:
    rows: list[RunPartition]
    is_complete: bool = True
    is_reachable: bool = True


async def runs(
    queries: Queries,
    visitor: AnyVisitor,
    dag_id: Name,
    run_id: Name,
    task_id: Name | None = None,
    map_index: Annotated[int | None, Query(ge=-1)] = None,
) -> Response:
    """Return the partitions that a run or one of its task instances holds or held."""
    tasks = Tasks(dag_id, run_id, task_id, map_index)
    known = [connection_id for connection_id, problem in await known_connections(queries) if problem is None]
    visible = await queries.run(lambda: _visible(visitor, known))
    results = await asyncio.gather(*(_read_connection(queries, connection_id, tasks) for connection_id in visible))
    rows = sorted((row for each in results for row in each.rows), key=_sort_key)
    response = RunPartitions(
        as_of=datetime.now(UTC),
        partitions=rows,
        complete=all(each.is_complete for each in results),
        unreachable=[name for name, each in zip(visible, results, strict=True) if not each.is_reachable],
    )
    return json_response(await queries.run(lambda: json_text(response)))


def _sort_key(row: RunPartition) -> tuple[bool, bool, str, str, str]:
    is_fine = row.state not in (PartitionState.PARKED, PartitionState.EXPIRED)
    return is_fine, not row.is_held_now, row.connection_id, row.source, row.partition_key


def _visible(visitor: Visitor, known: Sequence[str]) -> list[str]:
    return [connection_id for connection_id in known if visitor.may_view(connection_id)]


async def _read_connection(queries: QueryScheduler, connection_id: str, tasks: Tasks) -> _RunResult:
    try:
        names = await source_names(queries, connection_id)
        results = await asyncio.gather(
            *(_read_source(queries, connection_id, name, tasks, similar=len(names)) for name in names)
        )
    except (CoordinationError, HTTPException):  # its store is unavailable, or the connection was just deleted
        return _RunResult([], is_complete=False, is_reachable=False)
    return _RunResult([row for each in results for row in each.rows], all(each.is_complete for each in results))


async def _read_source(
    queries: QueryScheduler, connection_id: str, source: str, tasks: Tasks, *, similar: int
) -> _RunResult:
    def read_run(view: SourceView) -> _RunResult:
        days = queries.stores.settings(connection_id).store.history_days
        return _partitions_of_run(view, connection_id, tasks, days)

    return await queries.read(
        connection_id,
        ("runs", source, tasks),
        lambda: queries.stores.query_source(connection_id, source, read_run),
        cooldown=RUN_COOLDOWN,
        similar=similar,
    )


def _partitions_of_run(view: SourceView, connection_id: str, tasks: Tasks, history_days: float) -> _RunResult:
    now = view.clock.now()
    wanted = Filter(statuses=(PartitionStatus.ASSIGNED,), owner=f":{tasks.dag_id}:{tasks.run_id}:")
    request = PageRequest(source_identifier=view.source_identifier, wanted=wanted, limit=MAX_PARTITIONS)
    browsed = view.store.browse(request)
    held = {p.partition_key: p for p in browsed.partitions if tasks.own(p.owner)}
    is_complete = browsed.next is None
    previous: list[Partition] = []
    if history_days:
        history = view.history.between(now - timedelta(days=history_days))
        keys = [
            each.partition_key
            for each in reversed(history.transitions)
            if tasks.own(each.owner) or tasks.own(each.previous_owner)
        ]
        once = [key for key in dict.fromkeys(keys) if key not in held]
        previous = [found for key in once[:MAX_PREVIOUS] if (found := view.get(key)) is not None]
        is_complete = is_complete and history.complete and len(once) <= MAX_PREVIOUS
    return _RunResult(
        [
            RunPartition(
                **vars(row_of(partition, now)),
                connection_id=connection_id,
                source=view.source,
                is_held_now=partition.partition_key in held,
            )
            for partition in [*held.values(), *previous]
        ],
        is_complete,
    )
