"""The orders in which the partitions of a source are listed, page by page.

An order is a row of stretches, each along an index of the store, so that every page is bounded however many partitions
there are. In the order of trouble, what only a person reopens comes first, then leases that have run out; the stretches
end where an index says so, and the rest of a status goes on from there.
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
    EXAMINED_AT_ONCE,
    Filter,
    Order,
    Place,
    place_of,
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
"""The order of listing: what somebody works on first, what is done last."""


class ListOrder(StrEnum):
    """What a list of partitions is put in order by."""

    TROUBLE = "trouble"
    """Parked, lease over, put aside, held, waiting, completed."""
    PRIORITY = "priority"
    """By status, each with the oldest first."""
    KEY = "key"


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """A part of an order, along one index of the store.

    :param statuses: of the partitions in it.
    :param order: along which index.
    :param descending: the other way round.
    :param holds: whether a partition is still in it, now; the first that is not ends it. None if all are.
    """

    statuses: tuple[PartitionStatus, ...]
    order: Order = Order.PRIORITY
    descending: bool = False
    holds: Callable[[Partition, datetime], bool] | None = None


def _is_parked(partition: Partition, now: datetime) -> bool:
    return partition.is_parked


def _is_over(partition: Partition, now: datetime) -> bool:
    return partition.priority <= now


TROUBLE = (
    # Who is parked reopens last, and whose lease is over ended first: both are at an end of their index.
    Stretch(statuses=(PartitionStatus.CLOSED,), descending=True, holds=_is_parked),
    Stretch(statuses=(PartitionStatus.ASSIGNED,), holds=_is_over),
    Stretch(statuses=(PartitionStatus.CLOSED,), descending=True),
    Stretch(statuses=(PartitionStatus.ASSIGNED,)),
    Stretch(statuses=(PartitionStatus.UNASSIGNED,)),
    Stretch(statuses=(PartitionStatus.COMPLETED,), descending=True),
)


def stretches(order: ListOrder, *, descending: bool) -> Sequence[Stretch]:
    """Return the stretches of an order.

    :raises HTTPException: if the order has one direction, and the other one is asked for.
    """
    match order:
        case ListOrder.KEY:
            return [Stretch(statuses=LISTED, order=Order.KEY, descending=descending)]
        case ListOrder.PRIORITY:
            statuses = tuple(reversed(LISTED)) if descending else LISTED
            return [Stretch(statuses=(status,), descending=descending) for status in statuses]
        case ListOrder.TROUBLE:
            if descending:
                raise HTTPException(422, "query.descending: order 'trouble' has one direction; leave it out")
            return TROUBLE


@dataclass(frozen=True)
class Cursor:
    """Where the next page begins.

    :param stretch: in which stretch of the order, by its number.
    :param place: behind this one; None for the first one of the stretch.
    :param ended: behind which one the earlier stretches of a status ended: there its next one begins.
    """

    stretch: int = 0
    place: Place | None = None
    ended: Mapping[PartitionStatus, Place] = field(default_factory=dict)

    def write(self, order: ListOrder) -> str:
        """Return it as opaque text."""
        said = [order.value, self.stretch, self.place, self.ended]
        return base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")

    @classmethod
    def read(cls, text: str | None, order: ListOrder, *, descending: bool) -> Cursor:
        """Return what `write` wrote; that of the first page without any.

        :raises HTTPException: if it is something else, or of another order.
        """
        if text is None:
            return cls()
        try:
            named, stretch, place, ended = json.loads(
                base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
            )
            along = stretches(order, descending=descending)
            if named != order.value or not isinstance(stretch, int) or not 0 <= stretch < len(along):
                raise ValueError
            return cls(
                stretch,
                None if place is None else _place(place, along[stretch].order),
                {PartitionStatus(status): _place(each, Order.PRIORITY) for status, each in dict(ended).items()},
            )
        except (ConfigurationError, ValueError, TypeError, RecursionError):
            raise HTTPException(
                422, "query.after: it is not the 'next' of a page in this order; begin again without it"
            ) from None


def page_of(
    view: SourceView, wanted: Filter, order: ListOrder, cursor: Cursor, *, descending: bool, limit: int
) -> tuple[list[Partition], Cursor | None]:
    """Return a page of partitions, and where the next one begins; None if there is none."""
    along = stretches(order, descending=descending)
    gathered: list[Partition] = []
    while cursor.stretch < len(along):
        stretch = along[cursor.stretch]
        statuses = tuple(status for status in stretch.statuses if status in wanted.statuses)
        if not statuses:
            cursor = Cursor(cursor.stretch + 1, None, cursor.ended)
            continue
        if len(gathered) >= limit:
            return gathered, cursor
        browsed = view.store.browse(
            view.source_identifier,
            replace(wanted, statuses=statuses),
            order=stretch.order,
            descending=stretch.descending,
            after=cursor.place or cursor.ended.get(statuses[0]),
            limit=limit - len(gathered),
            examine=EXAMINED_AT_ONCE,
        )
        found, is_over = _of_stretch(stretch, browsed.partitions, view.clock.now())
        gathered += found
        if browsed.next is not None and not is_over:
            return gathered, Cursor(cursor.stretch, browsed.next, cursor.ended)
        last = place_of(found[-1], stretch.order) if found else cursor.place
        ended = {**cursor.ended, statuses[0]: last} if stretch.holds is not None and last is not None else cursor.ended
        cursor = Cursor(cursor.stretch + 1, None, ended)
    return gathered, None


def _of_stretch(stretch: Stretch, found: list[Partition], now: datetime) -> tuple[list[Partition], bool]:
    """Return those that are in a stretch, and whether it ends with them."""
    if stretch.holds is None:
        return found, False
    end = next((at for at, partition in enumerate(found) if not stretch.holds(partition, now)), None)
    return (found, False) if end is None else (found[:end], True)


def _place(given: object, order: Order) -> Place:
    """Return a place from JSON.

    :raises ValueError: if it is none of this order.
    :raises ConfigurationError: if its instant, or its key, is none.
    """
    if not isinstance(given, list) or len(given) != 2 or not all(isinstance(value, str) for value in given):
        raise ValueError(given)
    place = Place(*given)
    if order is Order.PRIORITY:
        parse_instant(place.priority)
    check_partition_key(place.partition_key)
    return place
