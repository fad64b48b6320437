"""The partitions that the tasks of a DAG run hold or held, over all connections that the user may view."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Response

from airflow_provider_coordination.coordination.browsing import Filter
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.owner import task_of
from airflow_provider_coordination.coordination.partition import AWAITING_SUFFIX, Partition, PartitionStatus
from airflow_provider_coordination.coordination.partition_state import PartitionState
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.ui.access import AnyVisitor, Visitor
from airflow_provider_coordination.ui.bodies import NO_NUL
from airflow_provider_coordination.ui.facts import PartitionRow, row_of
from airflow_provider_coordination.ui.sources import known_connections, source_names
from airflow_provider_coordination.ui.store_queries import Queries, QueryScheduler, json_response, json_text

MAX_PARTITIONS = 500
"""The maximum number of held partitions of one source."""
MAX_PREVIOUS = 100
"""The maximum number of partitions of one source that were held before. They are read one by one, the latest first."""
COOLDOWN = 5.0
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


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter()
    # Every user who is logged in may call it, and gets the connections that they may view.
    routes.get("/runs", response_model=RunPartitions)(runs)
    return routes


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
        cooldown=COOLDOWN,
        similar=similar,
    )


def _partitions_of_run(view: SourceView, connection_id: str, tasks: Tasks, history_days: float) -> _RunResult:
    now = view.clock.now()
    wanted = Filter(statuses=(PartitionStatus.ASSIGNED,), owner=f":{tasks.dag_id}:{tasks.run_id}:")
    browsed = view.store.browse(view.source_identifier, wanted, limit=MAX_PARTITIONS)
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
