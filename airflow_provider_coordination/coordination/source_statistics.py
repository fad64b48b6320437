"""Statistics of a source that need only the store, for users and for monitoring."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches
from itertools import count

from airflow_provider_coordination.coordination.browsing import Filter, PageRequest
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    Partition,
    PartitionStatus,
    parse_source_identifier,
    source_identifier,
)
from airflow_provider_coordination.coordination.store import CoordinationStore, is_available, not_met_before
from airflow_provider_coordination.coordination.suspension import FAMILY as SUPERVISOR_FAMILY
from airflow_provider_coordination.coordination.workers import FAMILY as WORKER_FAMILY

FAMILIES = ("PARTITION", WORKER_FAMILY, SUPERVISOR_FAMILY)
"""A source with an item of one of these families is listed."""
NEAR = 3
"""The maximum number of similar names that are suggested."""


def known_sources(store: CoordinationStore, prefix: str | None) -> list[str]:
    """Return the names of the sources in a store, sorted. Some stores must read every item for this.

    :param prefix: the prefix of the sources; None for no prefix.
    """
    sources = set()
    for identifier in store.source_identifiers():
        try:
            family = parse_source_identifier(identifier)
        except ValueError:  # the name comes from another system
            continue
        if family.prefix == prefix and family.family in FAMILIES:
            sources.add(family.source)
    return sorted(sources)


def is_known(store: CoordinationStore, source: str, prefix: str | None) -> bool:
    """Return whether a store contains any item of a source, even if only the state of its supplier.

    :param prefix: the prefix of the source; None for no prefix.
    :raises ConfigurationError: if the name is not valid.
    """
    families = [source_identifier(source, prefix=prefix, family=family) for family in (*FAMILIES, "GLOBAL_STATE")]
    return any(store.query(family, status, limit=1) for family in families for status in PartitionStatus)


def unknown_source(source: str, known: Iterable[str], *, remedy: str) -> str:
    """Return the message for a user who named a source that the store does not know.

    :param known: the names of the known sources.
    :param remedy: what to do if the name is correct.
    """
    near = get_close_matches(source, known, NEAR)
    meant = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    return f"the store has no data of source {source!r}{meant} Check the name, or {remedy}"


PAGE = 500
ERRORS_LISTED = 5
UNFINISHED = (PartitionStatus.ASSIGNED, PartitionStatus.CLOSED, PartitionStatus.UNASSIGNED)


@dataclass(frozen=True, kw_only=True)
class SourceStatistics:
    """The statistics of a source.

    :param partitions: the number of partitions of each status, including zeros.
    :param expired_leases: the number of leases that expired and were not taken over yet.
    :param parked: the number of partitions that only a user reopens. They are counted first, whatever the time limit.
    :param failing: the number of unfinished partitions whose last attempt failed.
    :param oldest_waiting: how long the longest waiting partition has been available; None if none is.
    :param owners: the number of leases that each owner holds and that have not expired.
    :param worst: a few partitions with the most failures in a row, the worst first.
    :param incomplete: the statuses of which not every partition was examined. All values except `partitions` and
        `parked` are then lower bounds.
    :param parked_is_exact: whether every parked partition was counted; else there are more than `parked`.
    """

    partitions: Mapping[PartitionStatus, int]
    expired_leases: int
    parked: int
    failing: int
    oldest_waiting: timedelta | None
    owners: Mapping[str, int]
    worst: Sequence[Partition] = ()
    incomplete: frozenset[PartitionStatus] = frozenset()
    parked_is_exact: bool = True

    @property
    def is_complete(self) -> bool:
        """Whether every unfinished partition was examined."""
        return not self.incomplete


@dataclass(frozen=True, kw_only=True)
class ScanLimits:
    """Limits a scan whose result a user waits for.

    :param partitions: the maximum number of parked partitions, and of others, to examine.
    :param seconds: the maximum duration for those that are not parked; one page of each status is read in any case.
    """

    partitions: int
    seconds: float


def source_statistics(
    store: CoordinationStore,
    source_identifier: str,
    now: datetime,
    *,
    limits: ScanLimits | None = None,
    on_partition: Callable[[Partition], None] = lambda partition: None,
) -> SourceStatistics:
    """Read the unfinished partitions of a source, count the finished ones, and return the statistics.

    :param now: the current time (aware).
    :param limits: the limits of the scan; None for every unfinished partition.
    :param on_partition: called with each partition that is examined.
    """
    expired, parked = 0, 0
    waiting_since: datetime | None = None
    owners: Counter[str] = Counter()
    failing = _Failing()
    scan = _Scan(store, source_identifier, limits)
    for partition in scan.parked():
        on_partition(partition)
        failing.note(partition)
        parked += 1
    for status in UNFINISHED:
        for partition in scan.others(status):
            on_partition(partition)
            failing.note(partition)
            if is_available(partition, now):
                waiting_since = min(waiting_since or partition.priority, partition.priority)
                expired += status is PartitionStatus.ASSIGNED
            elif partition.owner:
                owners[partition.owner] += 1
    if scan.incomplete:  # which partitions were examined depends on the time; these do not
        wanted = Filter(statuses=UNFINISHED, failing=True)
        request = PageRequest(source_identifier=source_identifier, wanted=wanted, limit=PAGE)
        for partition in store.browse(request).partitions:
            failing.note(partition)
    return SourceStatistics(
        partitions=store.count_by_status(source_identifier),
        expired_leases=expired,
        parked=parked,
        failing=len(failing.keys),
        oldest_waiting=None if waiting_since is None else now - waiting_since,
        owners=dict(sorted(owners.items())),
        worst=failing.worst(),
        incomplete=frozenset(scan.incomplete),
        parked_is_exact=scan.parked_is_exact,
    )


class _Failing:
    """The failing partitions, each counted once, and those with the most failures in a row."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self._worst: list[tuple[int, int, Partition]] = []
        self._order = count(0, -1)

    def note(self, partition: Partition) -> None:
        if not partition.attempts or partition.partition_key in self.keys:
            return
        self.keys.add(partition.partition_key)
        heapq.heappush(self._worst, (partition.attempts, next(self._order), partition))
        if len(self._worst) > ERRORS_LISTED:
            heapq.heappop(self._worst)

    def worst(self) -> list[Partition]:
        """Return the worst ones, the worst first."""
        return [partition for _, _, partition in sorted(self._worst, reverse=True)]


class _Scan:
    """Reads page by page until a limit is reached, the important partitions first."""

    def __init__(self, store: CoordinationStore, source_identifier: str, limits: ScanLimits | None) -> None:
        self._store = store
        self._source_identifier = source_identifier
        self._limits = limits
        self._left = 0 if limits is None else limits.partitions
        self._until: float | None = None
        self.incomplete: set[PartitionStatus] = set()
        self.parked_is_exact = True

    def parked(self) -> Iterator[Partition]:
        """Yield the parked partitions."""
        examined = 0
        for page in self._pages(PartitionStatus.CLOSED, since=PARKED_UNTIL):
            yield from page
            examined += len(page)
            if len(page) == PAGE and self._limits is not None and examined >= self._limits.partitions:
                self.parked_is_exact = False
                return

    def others(self, status: PartitionStatus) -> Iterator[Partition]:
        """Yield the partitions of a status that are not parked, the oldest first."""
        if self._limits is not None and self._until is None:
            self._until = time.monotonic() + self._limits.seconds
        leased: set[str] = set()
        for page in self._pages(status):
            for partition in not_met_before(page, leased):
                if partition.is_parked:
                    return  # as are all that follow
                yield partition
            if len(page) == PAGE and self._is_over():
                self.incomplete.add(status)
                return

    def _is_over(self) -> bool:
        """Count a page that is not the last one; return whether a limit is reached."""
        if self._limits is None:
            return False
        self._left -= PAGE
        return self._left <= 0 or (self._until is not None and time.monotonic() >= self._until)

    def _pages(self, status: PartitionStatus, since: datetime | None = None) -> Iterator[list[Partition]]:
        last: Partition | None = None
        while page := self._store.query(self._source_identifier, status, since=since, after=last, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            last = page[-1]
