"""The partitions of a source: a list, page by page, and the details of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Response

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentView, record_of
from airflow_provider_coordination.coordination.browsing import (
    EXAMINED_PER_PAGE,
    BrowsePosition,
    Filter,
    PageRequest,
    SortOrder,
    position_of,
)
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentSetNotFoundError,
    ConfigurationError,
    ProgressError,
)
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    check_partition_key,
    parse_instant,
)
from airflow_provider_coordination.coordination.source_view import SourceView
from airflow_provider_coordination.sources.kinds import (
    LandedFacts,
    landed_facts,
    lost,
    sets_waited_for,
    unreadable_items,
)
from airflow_provider_coordination.ui.access import may_read_connection
from airflow_provider_coordination.ui.bodies import NO_NUL, Key, PartitionRow, TransitionFacts, details_of, row_of
from airflow_provider_coordination.ui.page_tokens import read_token, token_refused, write_token
from airflow_provider_coordination.ui.partitions_by_lag import LagCursor, page_by_lag
from airflow_provider_coordination.ui.store_queries import EXPENSIVE, SOURCE, Queries, query_response

LISTED = (PartitionStatus.ASSIGNED, PartitionStatus.CLOSED, PartitionStatus.UNASSIGNED, PartitionStatus.COMPLETED)
"""The order of statuses in a list: what is in work first, what is done last."""


class ListOrder(StrEnum):
    """The order of a list of partitions."""

    URGENCY = "urgency"
    """Parked, lease expired, closed, held, waiting, completed."""
    PRIORITY = "priority"
    """By status, and in each the oldest first."""
    KEY = "key"
    LAG = "lag"
    """By how far they are behind; those whose lag is unknown last."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A part of an order that follows one index of the store.

    :param statuses: the statuses of its partitions.
    :param order: the index that it follows.
    :param descending: whether it follows the index backwards.
    :param includes: whether a partition belongs to the segment now. The first one that does not ends it. None for all.
    """

    statuses: tuple[PartitionStatus, ...]
    order: SortOrder = SortOrder.PRIORITY
    descending: bool = False
    includes: Callable[[Partition, datetime], bool] | None = None


def _is_parked(partition: Partition, now: datetime) -> bool:
    return partition.is_parked


def _is_over(partition: Partition, now: datetime) -> bool:
    return partition.priority <= now


URGENCY = (
    # Parked partitions reopen last, and expired leases ended first: both are at an end of their index.
    Segment(statuses=(PartitionStatus.CLOSED,), descending=True, includes=_is_parked),
    Segment(statuses=(PartitionStatus.ASSIGNED,), includes=_is_over),
    Segment(statuses=(PartitionStatus.CLOSED,), descending=True),
    Segment(statuses=(PartitionStatus.ASSIGNED,)),
    Segment(statuses=(PartitionStatus.UNASSIGNED,)),
    Segment(statuses=(PartitionStatus.COMPLETED,), descending=True),
)


def segments(order: ListOrder, *, descending: bool) -> Sequence[Segment]:
    """Return the segments of an order that follows indexes of the store.

    :raises HTTPException: if the order has one direction only, and the other one is requested.
    :raises ValueError: if the order follows no index.
    """
    match order:
        case ListOrder.KEY:
            return [Segment(statuses=LISTED, order=SortOrder.KEY, descending=descending)]
        case ListOrder.PRIORITY:
            statuses = tuple(reversed(LISTED)) if descending else LISTED
            return [Segment(statuses=(status,), descending=descending) for status in statuses]
        case ListOrder.URGENCY:
            if descending:
                raise HTTPException(422, "query.descending: order 'urgency' has one direction only; leave it out")
            return URGENCY
        case ListOrder.LAG:
            raise ValueError(f"order {order.value!r} follows no index of the store; use page_by_lag")


@dataclass(frozen=True)
class Cursor:
    """The start of the next page.

    :param segment: the number of the segment in the order.
    :param position: the position after which the page starts; None for the start of the segment.
    :param ended: the position at which the earlier segments of a status ended, and its next segment starts.
    """

    segment: int = 0
    position: BrowsePosition | None = None
    ended: Mapping[PartitionStatus, BrowsePosition] = field(default_factory=dict)

    def write(self, order: ListOrder) -> str:
        """Return the cursor as opaque text."""
        return write_token(order.value, self.segment, self.position, self.ended)

    @classmethod
    def read(cls, text: str | None, order: ListOrder, *, descending: bool) -> Cursor:
        """Return the cursor that `write` wrote; without a text, the cursor of the first page.

        :raises HTTPException: if the text is no cursor, or belongs to another order.
        """
        if text is None:
            return cls()
        try:
            segment, position, ended = read_token(text, order.value)
            order_segments = segments(order, descending=descending)
            if not isinstance(segment, int) or not 0 <= segment < len(order_segments) or not isinstance(ended, dict):
                raise ValueError(text)
            return cls(
                segment,
                None if position is None else _position(position, order_segments[segment].order),
                {PartitionStatus(status): _position(each, SortOrder.PRIORITY) for status, each in ended.items()},
            )
        except (ConfigurationError, ValueError, TypeError, RecursionError):
            raise token_refused() from None


def page_of(
    view: SourceView, wanted: Filter, order: ListOrder, cursor: Cursor, *, descending: bool, limit: int
) -> tuple[list[Partition], Cursor | None]:
    """Return a page of partitions, and the cursor of the next page; None if there is none."""
    order_segments = segments(order, descending=descending)
    gathered: list[Partition] = []
    while cursor.segment < len(order_segments):
        segment = order_segments[cursor.segment]
        statuses = tuple(status for status in segment.statuses if status in wanted.statuses)
        if not statuses:
            cursor = Cursor(cursor.segment + 1, None, cursor.ended)
            continue
        if len(gathered) >= limit:
            return gathered, cursor
        browsed = view.store.browse(
            PageRequest(
                source_identifier=view.source_identifier,
                wanted=replace(wanted, statuses=statuses),
                order=segment.order,
                descending=segment.descending,
                after=cursor.position or cursor.ended.get(statuses[0]),
                limit=limit - len(gathered),
                examine=EXAMINED_PER_PAGE,
            )
        )
        partitions, is_over = _within_segment(segment, browsed.partitions, view.clock.now())
        gathered += partitions
        if browsed.next is not None and not is_over:
            return gathered, Cursor(cursor.segment, browsed.next, cursor.ended)
        last = position_of(partitions[-1], segment.order) if partitions else cursor.position
        ended = (
            {**cursor.ended, statuses[0]: last} if segment.includes is not None and last is not None else cursor.ended
        )
        cursor = Cursor(cursor.segment + 1, None, ended)
    return gathered, None


def _within_segment(segment: Segment, partitions: list[Partition], now: datetime) -> tuple[list[Partition], bool]:
    """Return the partitions that belong to a segment, and whether it ends with them."""
    if segment.includes is None:
        return partitions, False
    end = next((at for at, partition in enumerate(partitions) if not segment.includes(partition, now)), None)
    return (partitions, False) if end is None else (partitions[:end], True)


def _position(values: object, order: SortOrder) -> BrowsePosition:
    """Return a position from JSON.

    :raises ValueError: if it is no position in this order.
    :raises ConfigurationError: if its instant or its key is invalid.
    """
    if not isinstance(values, list) or len(values) != 2 or not all(isinstance(value, str) for value in values):
        raise ValueError(values)
    position = BrowsePosition(*values)
    if order is SortOrder.PRIORITY:
        parse_instant(position.priority)
    check_partition_key(position.partition_key)
    return position


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
    """Return a page of the partitions that match all filters.

    The order `lag` follows no index: each page reads all matching partitions, up to 20,000, and sorts them. The result
    is reused for ten times as long as that took.
    """
    wanted = Filter(
        statuses=_statuses(status, parked=parked, expired=expired, owner=owner),
        prefix=prefix,
        search=search,
        owner=owner,
        parked=parked,
        failing=failing,
    )
    page_after = _page_reader(order, after, descending=descending, limit=limit)

    def read_page(view: SourceView) -> PartitionPage:
        now = view.clock.now()
        filtered = replace(wanted, expired_by=now) if expired else wanted
        page, following = page_after(view, filtered)
        return PartitionPage(as_of=now, partitions=[row_of(each, now) for each in page], next=following)

    what = ("partitions", source, wanted, expired, order, descending, after, limit)
    return await query_response(
        queries,
        connection_id,
        what,
        lambda: queries.stores.query_source(connection_id, source, read_page),
        cooldown=EXPENSIVE if order is ListOrder.LAG else 1.0,
    )


def _page_reader(
    order: ListOrder, after: str | None, *, descending: bool, limit: int
) -> Callable[[SourceView, Filter], tuple[list[Partition], str | None]]:
    """Return the function that reads a page, and the token of the next one.

    :raises HTTPException: if the token of the page, or the direction, does not belong to the order.
    """
    if order is ListOrder.LAG:
        lag_cursor = LagCursor.read(after)

        def by_lag(view: SourceView, wanted: Filter) -> tuple[list[Partition], str | None]:
            page, following = page_by_lag(view, wanted, lag_cursor, descending=descending, limit=limit)
            return page, None if following is None else following.write()

        return by_lag
    cursor = Cursor.read(after, order, descending=descending)

    def by_index(view: SourceView, wanted: Filter) -> tuple[list[Partition], str | None]:
        page, following = page_of(view, wanted, order, cursor, descending=descending, limit=limit)
        return page, None if following is None else following.write(order)

    return by_index


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
