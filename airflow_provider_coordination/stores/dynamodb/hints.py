"""What a worker remembers about the queues that it takes partitions from, to make fewer requests.

All of it is hints: forgetting them costs refused writes and queries, never a partition.
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
"""Of the usual size, so many items cost no more to read than one."""
CONTENDED_PAGE_FACTOR = 16
FEWEST_CONTENDED_PAGE_ITEMS = 48
MOST_CONTENDED_PAGE_ITEMS = 256
"""Eight workers that begin anywhere in such a page have one write in eight refused, or one in five where each takes
many."""
CONTENTION_ACQUISITIONS = 16
REFUSALS_IN_A_ROW = 4
INDEX_DELAY_SECONDS = 5.0
KNOWN_PARTITIONS = 1000
QUIET_TIME = timedelta(seconds=5)
"""How long a queue in which nothing was due is asked after the others, instead of before them."""


class Spread:
    """Where in the queue to begin: at its front, unless other workers were met there lately.

    :param chance: where randomness comes from.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._contended_for = 0

    def begin(self) -> None:
        """Note that an acquisition begins."""
        self._contended_for = max(0, self._contended_for - 1)

    def met_another(self) -> None:
        """Note that another worker was faster."""
        self._contended_for = CONTENTION_ACQUISITIONS

    @property
    def is_alone(self) -> bool:
        """Whether no other worker was met lately."""
        return not self._contended_for

    def page_items(self, wanted: int) -> int:
        """Return how many items to read at once in order to take so many."""
        if self.is_alone:
            return max(wanted, PAGE_ITEMS)
        return min(max(CONTENDED_PAGE_FACTOR * wanted, FEWEST_CONTENDED_PAGE_ITEMS), MOST_CONTENDED_PAGE_ITEMS)

    def start(self, items: int) -> int:
        """Return which of so many items to try next."""
        return self._chance.randrange(items) if items and not self.is_alone else 0


class KnownVersions:
    """The versions of partitions that this process lately wrote or saw, to tell index entries that are behind.

    :param monotonic: the clock, in seconds.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._versions: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, partition: Partition, version: int) -> None:
        """Remember which version of a partition the table holds."""
        place = (partition.source_identifier, partition.partition_key)
        with self._lock:
            self._versions.pop(place, None)
            self._versions[place] = (version, self._monotonic())
            while len(self._versions) > KNOWN_PARTITIONS:
                self._versions.popitem(last=False)

    def forget(self, source_identifier: str, partition_key: str) -> None:
        """Forget a partition: it was deleted, or created, and its versions begin anew."""
        with self._lock:
            self._versions.pop((source_identifier, partition_key), None)

    def outdated(self, partition: Partition) -> bool:
        """Tell whether a newer version of what the index shows is known; not for longer than the index may be behind.

        A partition that others deleted and created anew begins at version 0 again, and must not be passed over for
        ever.
        """
        with self._lock:
            version, seen_at = self._versions.get((partition.source_identifier, partition.partition_key), (0, 0.0))
            return partition.version < version and self._monotonic() - seen_at < INDEX_DELAY_SECONDS


class QuietQueues:
    """The queues in which nothing was due a moment ago, by the times of those who asked."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, PartitionStatus], datetime] = {}

    def note(self, source_identifier: str, status: PartitionStatus, latest: datetime) -> None:
        """Remember that nothing of a status was due at an instant."""
        self._asked[source_identifier, status] = latest

    def is_quiet(self, source_identifier: str, status: PartitionStatus, latest: datetime) -> bool:
        """Tell whether nothing was due a moment before this instant."""
        asked = self._asked.get((source_identifier, status))
        return asked is not None and timedelta(0) <= latest - asked < QUIET_TIME
