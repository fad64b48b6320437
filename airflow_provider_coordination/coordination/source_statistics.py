"""Statistics of a source that need only the store, for users and for monitoring."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore, is_available

PAGE = 500
ERRORS_LISTED = 5


@dataclass(frozen=True, kw_only=True)
class SourceStatistics:
    """The statistics of a source.

    :param partitions: the number of partitions of each status, including zeros.
    :param expired_leases: the number of leases that expired and were not taken over yet.
    :param parked: the number of partitions that only a user reopens.
    :param failing: the number of unfinished partitions whose last attempt failed.
    :param oldest_waiting: how long the longest waiting partition has been available; None if none is.
    :param owners: the number of leases that each owner holds and that have not expired.
    :param worst: a few partitions with the most failures in a row, the worst first.
    :param incomplete: the statuses of which not every partition was examined. All values except `partitions` are then
        partial.
    """

    partitions: Mapping[PartitionStatus, int]
    expired_leases: int
    parked: int
    failing: int
    oldest_waiting: timedelta | None
    owners: Mapping[str, int]
    worst: Sequence[Partition] = ()
    incomplete: frozenset[PartitionStatus] = frozenset()

    @property
    def is_complete(self) -> bool:
        """Whether every unfinished partition was examined."""
        return not self.incomplete


@dataclass(frozen=True, kw_only=True)
class ScanLimits:
    """Limits a scan whose result a user waits for.

    :param partitions: the maximum number of partitions to examine.
    :param seconds: the maximum duration; one page of each status is read in any case.
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
    expired, parked, failing = 0, 0, 0
    waiting_since: datetime | None = None
    owners: Counter[str] = Counter()
    worst: list[tuple[int, int, Partition]] = []
    order = count(0, -1)
    scan = _Scan(store, source_identifier, limits)
    for status in (PartitionStatus.ASSIGNED, PartitionStatus.CLOSED, PartitionStatus.UNASSIGNED):
        for page in scan.pages(status):
            for partition in page:
                on_partition(partition)
                if partition.attempts:
                    failing += 1
                    heapq.heappush(worst, (partition.attempts, next(order), partition))
                    if len(worst) > ERRORS_LISTED:
                        heapq.heappop(worst)
                parked += partition.is_parked
                if is_available(partition, now):
                    waiting_since = min(waiting_since or partition.priority, partition.priority)
                    expired += status is PartitionStatus.ASSIGNED
                elif partition.owner:
                    owners[partition.owner] += 1
    return SourceStatistics(
        partitions=store.count_by_status(source_identifier),
        expired_leases=expired,
        parked=parked,
        failing=failing,
        oldest_waiting=None if waiting_since is None else now - waiting_since,
        owners=dict(sorted(owners.items())),
        worst=[partition for _, _, partition in sorted(worst, reverse=True)],
        incomplete=frozenset(scan.incomplete),
    )


class _Scan:
    """Reads page by page until a limit is reached, the important partitions first."""

    def __init__(self, store: CoordinationStore, source_identifier: str, limits: ScanLimits | None) -> None:
        self._store = store
        self._source_identifier = source_identifier
        self._left = None if limits is None else limits.partitions
        self._until = None if limits is None else time.monotonic() + limits.seconds
        self.incomplete: set[PartitionStatus] = set()

    def pages(self, status: PartitionStatus) -> Iterator[list[Partition]]:
        """Yield the pages of a status, the oldest partitions first."""
        last: Partition | None = None
        while page := self._store.query(self._source_identifier, status, after=last, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            last = page[-1]
            if self._left is not None:
                self._left -= len(page)
                if self._left <= 0 or (self._until is not None and time.monotonic() >= self._until):
                    self.incomplete.add(status)
                    return
