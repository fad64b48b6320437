"""Browsing the partitions of a source: some of them, in some order, page by page.

The work for one page is bounded, however many partitions there are. A page may therefore be short or empty, and says
where the next page starts.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
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

    def includes_all(self, order: SortOrder) -> bool:
        """Return whether every entry of an index in this order matches, so that nothing must be filtered out."""
        if self.search or self.owner or self.parked or self.failing or self.expired_by is not None:
            return False
        return not self.prefix if order is SortOrder.PRIORITY else set(self.statuses) == set(PartitionStatus)

    def check(self, order: SortOrder, after: BrowsePosition | None = None) -> None:
        """Check that the store can return these partitions in this order.

        :param after: where the page starts.
        :raises ConfigurationError: if it cannot.
        """
        if not self.statuses:
            raise ConfigurationError("the filter has no status: give at least one")
        if order is SortOrder.PRIORITY and len(set(self.statuses)) != 1:
            raise ConfigurationError(
                f"order 'priority' needs exactly one status; got {', '.join(sorted(self.statuses))}: give one, or "
                "order by 'key'"
            )
        if after is not None and (
            bool(after.priority) != (order is SortOrder.PRIORITY)
            or not after.partition_key
            or (order is SortOrder.KEY and not after.partition_key.startswith(self.prefix))
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
