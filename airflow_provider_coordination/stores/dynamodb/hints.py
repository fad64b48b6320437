"""Hints that a worker remembers about its queues to save requests.

They are only hints: losing them costs refused writes and additional queries, but never a partition.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus

PAGE_ITEMS = 8
"""Reading this number of items of the usual size costs no more than reading one."""
CONTENDED_PAGE_FACTOR = 16
MIN_CONTENDED_PAGE_ITEMS = 48
MAX_CONTENDED_PAGE_ITEMS = 256
"""If eight workers start at random positions of such a page, one write in eight is refused, or one in five if each
acquires many."""
CONTENTION_ACQUISITIONS = 16
REFUSALS_IN_A_ROW = 4
INDEX_DELAY_SECONDS = 5.0
KNOWN_PARTITIONS = 1000
QUIET_TIME = timedelta(seconds=5)
"""How long a queue in which nothing was due is queried after the others instead of before them."""


class QueueStart:
    """Decides where in the queue to start: at its front, unless other workers were met there recently.

    :param randomness: the source of randomness.
    """

    def __init__(self, randomness: random.Random) -> None:
        self._randomness = randomness
        self._contended_for = 0

    def begin(self) -> None:
        """Record that an acquisition starts."""
        self._contended_for = max(0, self._contended_for - 1)

    def met_another(self) -> None:
        """Record that another worker was faster."""
        self._contended_for = CONTENTION_ACQUISITIONS

    @property
    def is_alone(self) -> bool:
        """Whether no other worker was met recently."""
        return not self._contended_for

    def page_items(self, wanted: int) -> int:
        """Return how many items to read at once in order to acquire `wanted` items."""
        if self.is_alone:
            return max(wanted, PAGE_ITEMS)
        return min(max(CONTENDED_PAGE_FACTOR * wanted, MIN_CONTENDED_PAGE_ITEMS), MAX_CONTENDED_PAGE_ITEMS)

    def start(self, items: int) -> int:
        """Return the index of the item to try next.

        :param items: the number of remaining items.
        """
        return self._randomness.randrange(items) if items and not self.is_alone else 0


class KnownVersions:
    """The versions of partitions that this process wrote or read recently, to detect stale index entries.

    :param monotonic: returns the monotonic time in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._versions: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, partition: Partition, version: int) -> None:
        """Record the version of a partition in the table."""
        key = (partition.source_identifier, partition.partition_key)
        with self._lock:
            self._versions.pop(key, None)
            self._versions[key] = (version, self._monotonic())
            while len(self._versions) > KNOWN_PARTITIONS:
                self._versions.popitem(last=False)

    def forget(self, source_identifier: str, partition_key: str) -> None:
        """Forget a partition that was deleted or created, because its versions restart."""
        with self._lock:
            self._versions.pop((source_identifier, partition_key), None)

    def outdated(self, partition: Partition) -> bool:
        """Return whether a newer version than the one in the index is known, for as long as the index may lag.

        The versions of a partition that another program deleted and created again restart at 0; such a partition must
        not be skipped forever.
        """
        with self._lock:
            version, seen_at = self._versions.get((partition.source_identifier, partition.partition_key), (0, 0.0))
            return partition.version < version and self._monotonic() - seen_at < INDEX_DELAY_SECONDS


class QuietQueues:
    """The queues in which nothing was due a moment ago, by the time of the acquisition."""

    def __init__(self) -> None:
        self._queried: dict[tuple[str, PartitionStatus], datetime] = {}

    def note(self, source_identifier: str, status: PartitionStatus, latest: datetime) -> None:
        """Record that no partition of a status was due at an instant."""
        self._queried[source_identifier, status] = latest

    def is_quiet(self, source_identifier: str, status: PartitionStatus, latest: datetime) -> bool:
        """Return whether nothing was due a moment before this instant."""
        queried = self._queried.get((source_identifier, status))
        return queried is not None and timedelta(0) <= latest - queried < QUIET_TIME
