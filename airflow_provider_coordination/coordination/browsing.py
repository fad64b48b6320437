"""Looking through the partitions of a source, as a person does: some of them, in some order, page by page.

Every look is bounded, however many partitions there are: a page may come back short, or empty, and say where to go on.
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
"""No characters by themselves, and none that UTF-8 has."""
EXAMINED_AT_ONCE = 20_000
"""So many partitions are looked at for one page, at most."""


class Order(StrEnum):
    """What partitions are put in order by."""

    KEY = "key"
    PRIORITY = "priority"
    """Oldest first within one status: waiting longest, lease ending next, reopening next, completed first.

    Of one and the same priority by key, save on DynamoDB, which puts those in an order of its own.
    """


class Place(NamedTuple):
    """A place in an order: behind it the next page begins."""

    priority: str
    """As the store keeps it; empty in the order of keys."""
    partition_key: str


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which partitions are wanted: those that fulfil all of it.

    :param statuses: of one of these statuses.
    :param prefix: whose keys begin with this.
    :param search: whose keys have this in them.
    :param owner: whose owners have this in them.
    :param parked: only those that are parked.
    :param failing: only those that failed the last time.
    :param expired_by: only those whose leases had ended by this instant (aware).
    """

    statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    prefix: str = ""
    search: str = ""
    owner: str = ""
    parked: bool = False
    failing: bool = False
    expired_by: datetime | None = None

    def wants(self, partition: Partition) -> bool:
        """Tell whether a partition is one of them."""
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

    def takes_all(self, order: Order) -> bool:
        """Tell whether all is wanted that an index of this order leads along, so that nothing has to be picked out."""
        if self.search or self.owner or self.parked or self.failing or self.expired_by is not None:
            return False
        return not self.prefix if order is Order.PRIORITY else set(self.statuses) == set(PartitionStatus)

    def check(self, order: Order, after: Place | None = None) -> None:
        """Check that this can be asked for in this order.

        :param after: where the page begins.
        :raises ConfigurationError: if it cannot.
        """
        if not self.statuses:
            raise ConfigurationError("no status is wanted: name one at least")
        if order is Order.PRIORITY and len(set(self.statuses)) != 1:
            raise ConfigurationError(
                f"order 'priority' is within one status; got {', '.join(sorted(self.statuses))}: name one, or order "
                "by 'key'"
            )
        if after is not None and (
            bool(after.priority) != (order is Order.PRIORITY)
            or not after.partition_key
            or (order is Order.KEY and not after.partition_key.startswith(self.prefix))
        ):
            raise ConfigurationError(
                f"place {after.partition_key[:80]!r} is not of a page in the order of '{order}' with this filter; "
                "begin with the first page"
            )


@dataclass(frozen=True, kw_only=True)
class Browsed:
    """A page of partitions.

    :param partitions: in order.
    :param next: where the next page begins; None if this one is the last.
    """

    partitions: list[Partition]
    next: Place | None


PARKED_FROM = format_instant(PARKED_UNTIL)
"""The text of `reopen_at` from which on a partition is parked."""


def behind_prefix(prefix: str) -> str | None:
    """Return the first text, by code points, behind all that begin with a prefix; None if there is none.

    :param prefix: not empty.
    """
    kept = prefix.rstrip(LAST_CHARACTER)
    if not kept:
        return None
    following = ord(kept[-1]) + 1
    if following in SURROGATES:
        following = SURROGATES.stop
    return f"{kept[:-1]}{chr(following)}"


def place_of(partition: Partition, order: Order) -> Place:
    """Return where a partition is in an order."""
    priority = format_instant(partition.priority) if order is Order.PRIORITY else ""
    return Place(priority, partition.partition_key)
