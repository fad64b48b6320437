"""Browsing the partitions of a source: their states, and some of them, in some order, page by page.

A state is the status of a partition combined with the time. The work for one page is bounded, however many partitions
there are. A page may therefore be short or empty, and says where the next page starts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from airflow_provider_coordination.coordination.errors import ConfigurationError
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    Partition,
    PartitionStatus,
    format_instant,
)


class PartitionState(StrEnum):
    """The current state of a partition."""

    WAITING = "waiting"
    """UNASSIGNED and available to any owner."""
    DELAYED = "delayed"
    """UNASSIGNED but not available yet."""
    HELD = "held"
    """ASSIGNED to a worker whose lease has not ended."""
    EXPIRED = "expired"
    """ASSIGNED, but the lease has ended."""
    AWAITING = "awaiting"
    """ASSIGNED without a process: its batches wait for acknowledgment."""
    RESTING = "resting"
    """CLOSED until a later time."""
    DUE = "due"
    """CLOSED but due: available to any owner."""
    PARKED = "parked"
    """CLOSED until a user reopens it."""
    COMPLETED = "completed"
    """COMPLETED."""


def state_of(partition: Partition, now: datetime) -> PartitionState:
    """Return the state of a partition.

    :param now: the current time (aware), assuming that all clocks agree.
    """
    is_over = partition.priority <= now
    match partition.status:
        case PartitionStatus.UNASSIGNED:
            return PartitionState.WAITING if is_over else PartitionState.DELAYED
        case PartitionStatus.ASSIGNED:
            if is_over:
                return PartitionState.EXPIRED
            return PartitionState.AWAITING if partition.is_awaiting else PartitionState.HELD
        case PartitionStatus.CLOSED:
            if partition.is_parked:
                return PartitionState.PARKED
            return PartitionState.DUE if is_over else PartitionState.RESTING
        case PartitionStatus.COMPLETED:
            return PartitionState.COMPLETED


LAST_CHARACTER = "\U0010ffff"
SURROGATES = range(0xD800, 0xE000)
"""Code points that are not characters, and that UTF-8 cannot encode."""
EXAMINED_PER_PAGE = 20_000
"""The maximum number of partitions that are examined for one page."""


class SortOrder(StrEnum):
    """The order of partitions on a page."""

    KEY = "key"
    PRIORITY = "priority"
    """Within one status, the oldest first: waiting longest, lease ending next, reopening next, completed first.

    Partitions of the same priority are ordered by key, except on DynamoDB, which has its own order for them.
    """


class BrowsePosition(NamedTuple):
    """A position in a sort order. The next page starts after it."""

    priority: str
    """In the stored format; empty if the order is `key`."""
    partition_key: str


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Selects the partitions that match all of these conditions.

    :param statuses: with one of these statuses.
    :param prefix: with a key that starts with this.
    :param search: with a key that contains this.
    :param owner: with an owner that contains this.
    :param parked: only parked partitions.
    :param failing: only partitions whose last attempt failed.
    :param expired_by: only partitions whose lease had ended by this instant (aware).
    """

    statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    prefix: str = ""
    search: str = ""
    owner: str = ""
    parked: bool = False
    failing: bool = False
    expired_by: datetime | None = None

    def matches(self, partition: Partition) -> bool:
        """Return whether a partition matches."""
        return (
            partition.status in self.statuses
            and partition.partition_key.startswith(self.prefix)
            and self.search in partition.partition_key
            and (not self.owner or self.owner in (partition.owner or ""))
            and (not self.parked or partition.is_parked)
            and (not self.failing or partition.attempts > 0)
            and (
                self.expired_by is None
                or (partition.status is PartitionStatus.ASSIGNED and partition.priority <= self.expired_by)
            )
        )


@dataclass(frozen=True, kw_only=True)
class PageRequest:
    """A request for a page of the partitions of a source that match a filter, for display to a user.

    :param source_identifier: the source.
    :param wanted: the filter.
    :param order: the sort order.
    :param descending: whether to reverse the order.
    :param after: the `next` of the previous page; None for the first page.
    :param limit: the maximum number of partitions.
    :param examine: about how many partitions to examine; the page then holds the matches found so far.
    """

    source_identifier: str
    wanted: Filter = field(default_factory=Filter)
    order: SortOrder = SortOrder.KEY
    descending: bool = False
    after: BrowsePosition | None = None
    limit: int = 100
    examine: int = EXAMINED_PER_PAGE

    @property
    def includes_all(self) -> bool:
        """Whether every entry of an index in this order matches, so that nothing must be filtered out."""
        wanted = self.wanted
        if wanted.search or wanted.owner or wanted.parked or wanted.failing or wanted.expired_by is not None:
            return False
        return not wanted.prefix if self.order is SortOrder.PRIORITY else set(wanted.statuses) == set(PartitionStatus)

    def check(self) -> None:
        """Check that a store can return these partitions in this order.

        :raises ConfigurationError: if it cannot.
        """
        order, after, wanted = self.order, self.after, self.wanted
        if not wanted.statuses:
            raise ConfigurationError("the filter has no status: give at least one")
        if order is SortOrder.PRIORITY and len(set(wanted.statuses)) != 1:
            raise ConfigurationError(
                f"order 'priority' needs exactly one status; got {', '.join(sorted(wanted.statuses))}: give one, or "
                "order by 'key'"
            )
        if after is not None and (
            bool(after.priority) != (order is SortOrder.PRIORITY)
            or not after.partition_key
            or (order is SortOrder.KEY and not after.partition_key.startswith(wanted.prefix))
        ):
            raise ConfigurationError(
                f"position {after.partition_key[:80]!r} does not belong to a page in the order '{order}' with this "
                "filter; start with the first page"
            )


@dataclass(frozen=True, kw_only=True)
class BrowsePage:
    """A page of partitions.

    :param partitions: the partitions, in order.
    :param next: where the next page starts; None if this page is the last.
    """

    partitions: list[Partition]
    next: BrowsePosition | None


PARKED_FROM = format_instant(PARKED_UNTIL)
"""The smallest stored `reopen_at` of a parked partition."""


def end_of_prefix(prefix: str) -> str | None:
    """Return the first text, by code points, after all that start with a prefix; None if there is none.

    :param prefix: not empty.
    """
    kept = prefix.rstrip(LAST_CHARACTER)
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    if following in SURROGATES:
        following = SURROGATES.stop
    return f"{kept[:-1]}{chr(following)}"


def position_of(partition: Partition, order: SortOrder) -> BrowsePosition:
    """Return the position of a partition in an order."""
    priority = format_instant(partition.priority) if order is SortOrder.PRIORITY else ""
    return BrowsePosition(priority, partition.partition_key)
