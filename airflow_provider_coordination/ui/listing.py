"""The orders in which the partitions of a source are listed, page by page.

An order is a sequence of segments. Each segment follows an index of the store, so that the cost of a page does not
depend on the number of partitions. In the order of urgency, parked partitions come first, then expired leases. Such a
segment ends at the first partition that it does not include, and a later segment of its status continues there.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from fastapi import HTTPException

from airflow_provider_coordination.coordination.browsing import (
    EXAMINED_PER_PAGE,
    BrowsePosition,
    Filter,
    SortOrder,
    position_of,
)
from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    check_partition_key,
    parse_instant,
)
from airflow_provider_coordination.coordination.source_view import SourceView

LISTED = (PartitionStatus.ASSIGNED, PartitionStatus.CLOSED, PartitionStatus.UNASSIGNED, PartitionStatus.COMPLETED)
"""The order of statuses in a list: what is in work first, what is done last."""


class ListOrder(StrEnum):
    """The order of a list of partitions."""

    URGENCY = "urgency"
    """Parked, lease expired, closed, held, waiting, completed."""
    PRIORITY = "priority"
    """By status, and in each the oldest first."""
    KEY = "key"


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
    """Return the segments of an order.

    :raises HTTPException: if the order has one direction only, and the other one is requested.
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
        parts = [order.value, self.segment, self.position, self.ended]
        return base64.urlsafe_b64encode(json.dumps(parts).encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str | None, order: ListOrder, *, descending: bool) -> Cursor:
        """Return the cursor that `write` wrote; without a text, the cursor of the first page.

        :raises HTTPException: if the text is no cursor, or belongs to another order.
        """
        if text is None:
            return cls()
        try:
            name, segment, position, ended = json.loads(
                base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            )
            order_segments = segments(order, descending=descending)
            if name != order.value or not isinstance(segment, int) or not 0 <= segment < len(order_segments):
                raise ValueError
            return cls(
                segment,
                None if position is None else _position(position, order_segments[segment].order),
                {PartitionStatus(status): _position(each, SortOrder.PRIORITY) for status, each in dict(ended).items()},
            )
        except (ConfigurationError, ValueError, TypeError, RecursionError):
            raise HTTPException(
                422, "query.after: not the 'next' of a page in this order; start again without it"
            ) from None


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
            view.source_identifier,
            replace(wanted, statuses=statuses),
            order=segment.order,
            descending=segment.descending,
            after=cursor.position or cursor.ended.get(statuses[0]),
            limit=limit - len(gathered),
            examine=EXAMINED_PER_PAGE,
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
