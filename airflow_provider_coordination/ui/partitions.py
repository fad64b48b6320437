"""The partitions of a source: a list, page by page, and the details of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Response

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentView, record_of
from airflow_provider_coordination.coordination.browsing import Filter
from airflow_provider_coordination.coordination.errors import AcknowledgmentSetNotFoundError, ProgressError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.inspection import (
    LandedFacts,
    landed_facts,
    lost,
    sets_waited_for,
    unreadable_items,
)
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.bodies import NO_NUL, Key
from airflow_provider_coordination.ui.facts import PartitionRow, TransitionFacts, row_of
from airflow_provider_coordination.ui.kinds import details_of
from airflow_provider_coordination.ui.listing import LISTED, Cursor, ListOrder, page_of
from airflow_provider_coordination.ui.responses import SOURCE, query_response
from airflow_provider_coordination.ui.store_queries import Queries

MAX_SETS = 20
MAX_TRANSITIONS = 50
MAX_SEARCH_CHARACTERS = 1024

Search = Annotated[str, Query(max_length=MAX_SEARCH_CHARACTERS, pattern=NO_NUL)]


@dataclass(frozen=True, kw_only=True)
class PartitionPage:
    """A page of partitions. `next` is the `after` of the next page; null if there is none."""

    as_of: datetime
    partitions: list[PartitionRow]
    next: str | None


@dataclass(frozen=True, kw_only=True)
class FailedItemFacts:
    """An item that could not be read, and its index among the partition's items, from 0."""

    item: int | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class PartitionDetail(PartitionRow):
    """Everything about a partition.

    `has_history` is whether a history is kept. `details` is what its kind of source adds.
    """

    progress: dict[str, Any]
    unreadable_progress: str | None
    landed: list[LandedFacts]
    acknowledgment_sets: list[dict[str, Any]]
    gaps: list[str]
    failed_items: list[FailedItemFacts]
    transitions: list[TransitionFacts]
    has_history: bool
    details: dict[str, Any]


def router() -> APIRouter:
    """Return the routes."""
    routes = APIRouter(dependencies=[may_read_connection()])
    routes.get(SOURCE + "/partitions", response_model=PartitionPage)(partitions)
    routes.get(SOURCE + "/partition", response_model=PartitionDetail)(partition)
    return routes


async def partitions(
    queries: Queries,
    connection_id: str,
    source: str,
    status: Annotated[list[PartitionStatus] | None, Query()] = None,
    parked: bool = False,
    failing: bool = False,
    expired: bool = False,
    search: Search = "",
    prefix: Search = "",
    owner: Search = "",
    order: ListOrder = ListOrder.PRIORITY,
    descending: bool = False,
    after: Annotated[str | None, Query(max_length=8192)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
) -> Response:
    """Return a page of the partitions that match all filters."""
    wanted = Filter(
        statuses=_statuses(status, parked=parked, expired=expired, owner=owner),
        prefix=prefix,
        search=search,
        owner=owner,
        parked=parked,
        failing=failing,
    )
    cursor = Cursor.read(after, order, descending=descending)

    def read_page(view: SourceView) -> PartitionPage:
        now = view.clock.now()
        filtered = replace(wanted, expired_by=now) if expired else wanted
        page, following = page_of(view, filtered, order, cursor, descending=descending, limit=limit)
        return PartitionPage(
            as_of=now,
            partitions=[row_of(each, now) for each in page],
            next=None if following is None else following.write(order),
        )

    what = ("partitions", source, wanted, expired, order, descending, after, limit)
    return await query_response(
        queries, connection_id, what, lambda: queries.stores.query_source(connection_id, source, read_page)
    )


async def partition(queries: Queries, connection_id: str, source: str, key: Key) -> Response:
    """Return everything about one partition."""

    def read_detail() -> PartitionDetail:
        days = queries.stores.settings(connection_id).store.history_days
        return queries.stores.query_source(connection_id, source, lambda view: detail_of(view, key, days))

    return await query_response(queries, connection_id, ("partition", source, key), read_detail)


def detail_of(view: SourceView, key: str, history_days: float) -> PartitionDetail:
    """Return everything about one partition.

    :raises HTTPException: if no partition has this key.
    """
    partition, now = view.get(key), view.clock.now()
    if partition is None:
        raise HTTPException(404, f"source {view.source!r} has no partition {key!r}")
    since = now - timedelta(days=history_days)
    transitions = view.history.of(key, since, limit=MAX_TRANSITIONS) if history_days else []
    return PartitionDetail(
        **vars(row_of(partition, now)),
        progress=dict(partition.progress),
        unreadable_progress=partition.unreadable_progress,
        landed=landed_facts(partition),
        acknowledgment_sets=_sets(view, partition),
        gaps=lost(partition),
        failed_items=[FailedItemFacts(item=item, reason=reason) for item, reason in unreadable_items(partition)],
        transitions=[TransitionFacts(**vars(each)) for each in transitions[: -MAX_TRANSITIONS - 1 : -1]],
        has_history=bool(history_days),
        details=details_of(partition, now),
    )


def _statuses(
    statuses: Sequence[PartitionStatus] | None, *, parked: bool, expired: bool, owner: str
) -> tuple[PartitionStatus, ...]:
    """Return the statuses that partitions which match all of these filters can have."""
    possible = set(statuses or LISTED)
    if parked:
        possible &= {PartitionStatus.CLOSED}
    if expired or owner:
        possible &= {PartitionStatus.ASSIGNED}
    return tuple(status for status in LISTED if status in possible)


def _sets(view: SourceView, partition: Partition) -> list[dict[str, object]]:
    sets = AcknowledgmentView(view)
    records = []
    for set_id in sets_waited_for(partition)[:MAX_SETS]:
        try:
            records.append(record_of(sets.get(set_id)))
        except (AcknowledgmentSetNotFoundError, ProgressError):
            continue  # it has ended and was purged, or it is unreadable
    return records
