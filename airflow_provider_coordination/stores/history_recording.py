"""A store that keeps the history of what is written through it.

What a partition was before, and why it changed, the written values say themselves (`Partition.change`). Transitions are
gathered and written many at a time: each write of the process earns a twelfth of a write, and a page of history costs
two at the least, one for itself and one for its deletion, and more if it is large. A process that dies takes what it
had gathered with it; who takes its partitions over says whose they were, so no change of hands is lost.
"""

from __future__ import annotations

import logging
import math
import random
import secrets
import threading
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta

from airflow_provider_coordination.coordination.browsing import (
    EXAMINED_PER_PAGE,
    BrowsePage,
    BrowsePosition,
    Filter,
    SortOrder,
)
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.history import (
    FAMILY,
    Transition,
    deletion_of,
    pages_of,
    transition_of,
)
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, progress_text
from airflow_provider_coordination.coordination.store import Acquisition, CoordinationStore

log = logging.getLogger(__name__)

MAX_PAGES = 10_000
EARNED_BY_A_WRITE = 0.08
"""Less than a tenth: the first page of a process and its last are written in any case."""
LEAST_COST_OF_A_PAGE = 2.0
COST_OF_A_KILOBYTE = 4 / 3
"""On DynamoDB a partition's write costs three units, its table's and two of the index; a page two for each kilobyte,
and as much again when it is deleted."""
MOST_OWED = 20.0
"""What is written whatever it costs is paid for later, up to so much."""
GATHERED_FOR = timedelta(seconds=2)
"""So long a transition waits for others, at least."""
MANY = 200
MAX_GATHERED = 5000
"""Of these the oldest are dropped, where nothing can be written."""
ORDERED_EVERY_SECONDS = 1.0
"""What a person orders is written at once, but one who orders a thousand things causes no thousand pages."""
PAUSE_SECONDS = 30.0
LONGEST_PAUSE_SECONDS = 600.0
"""So long nothing is tried after a failure, and twice as long after each further one, up to so long: whoever tries may
hold a lease meanwhile that somebody has to renew."""
FORGOTTEN_EVERY = 8
FORGOTTEN_AT_A_TIME = 16
"""Twice as much as is written, on the average."""
COUNTED_EVERY = 256
OF_AN_ITEM_BYTES = 400
"""What an item has beside its content: its key, its attributes' names."""
PARTITION_SUFFIX = "|PARTITION"


class RecordingStore:
    """A store around another one: the same, and it keeps a history.

    What keeps the history from being written never disturbs what it is about.

    :param store: what everything is passed on to.
    :param keep_for: transitions are forgotten after this time.
    :param clock: where the time comes from.
    :param chance: where randomness comes from.
    :param max_pages: so many pages of one source are kept, about.
    :param max_gathered: so many transitions wait at most, where nothing can be written; the oldest are dropped.
    """

    def __init__(
        self,
        store: CoordinationStore,
        keep_for: timedelta,
        *,
        clock: Clock | None = None,
        chance: random.Random | None = None,
        max_pages: int = MAX_PAGES,
        max_gathered: int = MAX_GATHERED,
    ) -> None:
        self.inner = store
        self._keep_for = keep_for
        self._clock = clock or SystemClock()
        self._chance = chance or random.Random()
        self._max_pages = max_pages
        self._max_gathered = max_gathered
        self._name = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._gathered: deque[tuple[str, Transition]] = deque()
        self._earned = LEAST_COST_OF_A_PAGE
        self._is_ordered = False
        self._ordered_at = -math.inf
        self._excess: dict[str, int] = {}
        self._failed_at: float | None = None
        self._pause = PAUSE_SECONDS

    @property
    def kind(self) -> str:
        """See `CoordinationStore.kind`."""
        return self.inner.kind

    @property
    def transaction_items(self) -> int:
        """See `CoordinationStore.transaction_items`."""
        return self.inner.transaction_items

    @property
    def combines_writes_cheaply(self) -> bool:
        """See `CoordinationStore.combines_writes_cheaply`."""
        return self.inner.combines_writes_cheaply

    def initialize(self) -> None:
        """See `CoordinationStore.initialize`."""
        self.inner.initialize()

    def close(self) -> None:
        """Write what is gathered; then see `CoordinationStore.close`."""
        if self._gathered and not self._pauses():
            self._write()
        self.inner.close()

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        """See `CoordinationStore.create`."""
        with self._telling():
            created = self.inner.create(partitions)
            self._earn(len(created))
            return created

    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        """See `CoordinationStore.get`."""
        with self._telling():
            return self.inner.get(source_identifier, partition_key)

    def get_many(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        """See `CoordinationStore.get_many`."""
        with self._telling():
            return self.inner.get_many(source_identifier, partition_keys)

    def known(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        """See `CoordinationStore.known`."""
        with self._telling():
            return self.inner.known(source_identifier, partition_keys)

    def acquire(self, request: Acquisition) -> list[Partition]:
        """See `CoordinationStore.acquire`."""
        with self._telling():
            acquired = self.inner.acquire(request)
            self._earn(len(acquired))
            now = self._clock.now()
            self._gather(request.source_identifier, [transition_of(p, p.version, now) for p in acquired])
            return [replace(partition, change=None) for partition in acquired]  # what was told is told once

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        """See `CoordinationStore.transact`."""
        with self._telling():
            written = self.inner.transact(update=update, create=create, new=new, unchanged=unchanged)
            self._earn(len(update) + len(create) + len(new))
            now = self._clock.now()
            for before, after in zip(update, written, strict=False):
                self._gather(before.source_identifier, [transition_of(before, after.version, now)])
            return written

    def delete(self, partition: Partition) -> None:
        """See `CoordinationStore.delete`."""
        with self._telling():
            self.inner.delete(partition)
            self._earn(1)
            self._gather(partition.source_identifier, [deletion_of(partition, self._clock.now())])

    def query(
        self,
        source_identifier: str,
        status: PartitionStatus,
        *,
        since: datetime | None = None,
        after: Partition | None = None,
        limit: int = 500,
    ) -> list[Partition]:
        """See `CoordinationStore.query`."""
        with self._telling():
            return self.inner.query(source_identifier, status, since=since, after=after, limit=limit)

    def browse(
        self,
        source_identifier: str,
        wanted: Filter,
        *,
        order: SortOrder = SortOrder.KEY,
        descending: bool = False,
        after: BrowsePosition | None = None,
        limit: int = 100,
        examine: int = EXAMINED_PER_PAGE,
    ) -> BrowsePage:
        """See `CoordinationStore.browse`."""
        with self._telling():
            return self.inner.browse(
                source_identifier, wanted, order=order, descending=descending, after=after, limit=limit, examine=examine
            )

    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        """See `CoordinationStore.count_by_status`."""
        with self._telling():
            return self.inner.count_by_status(source_identifier, statuses)

    def source_identifiers(self) -> list[str]:
        """See `CoordinationStore.source_identifiers`."""
        return self.inner.source_identifiers()

    # Gathering and writing

    def _earn(self, writes: int) -> None:
        with self._lock:
            self._earned += EARNED_BY_A_WRITE * writes

    def _gather(self, source_identifier: str, transitions: Sequence[Transition | None]) -> None:
        if not source_identifier.endswith(PARTITION_SUFFIX):
            return
        family = f"{source_identifier.removesuffix(PARTITION_SUFFIX)}|{FAMILY}"
        with self._lock:
            for transition in transitions:
                if transition is not None:
                    self._gathered.append((family, transition))
                    self._is_ordered = self._is_ordered or transition.by is not None
            while len(self._gathered) > self._max_gathered:
                self._gathered.popleft()

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Write what is gathered if it is time, after what was asked for is done."""
        yield
        if self._is_due():
            self._write()

    def _is_due(self) -> bool:
        with self._lock:
            if not self._gathered or self._pauses():
                return False
            if self._is_ordered and self._clock.monotonic() >= self._ordered_at + ORDERED_EVERY_SECONDS:
                return True
            waited = self._clock.now() - self._gathered[0][1].at
            return self._earned >= LEAST_COST_OF_A_PAGE and (waited >= GATHERED_FOR or len(self._gathered) >= MANY)

    def _pauses(self) -> bool:
        return self._failed_at is not None and self._clock.monotonic() < self._failed_at + self._pause

    def _write(self) -> None:
        """Write what is gathered. What keeps it from being written is logged, once, and disturbs nobody."""
        with self._lock:
            gathered = list(self._gathered)
            self._gathered.clear()
            if self._is_ordered:
                self._ordered_at = self._clock.monotonic()
            self._is_ordered = False
        families: dict[str, list[Transition]] = {}
        for family, transition in gathered:
            families.setdefault(family, []).append(transition)
        written: list[str] = []
        failure: Exception | None = None
        for family, transitions in families.items():
            try:
                if failure is None:
                    self._write_pages(family, transitions)
                    written.append(family)
                else:
                    self._keep(family, transitions)
            except CoordinationError as error:
                self._keep(family, transitions)
                failure = error
            except Exception as error:  # nobody foresaw it, so it may well be for good: nothing is kept
                failure = error
        if failure is None:
            self._failed_at = None
        else:
            self._note_failure(failure)
        for family in written:
            self._forget(family)

    def _write_pages(self, family: str, transitions: Sequence[Transition]) -> None:
        now = self._clock.now()
        pages = pages_of(family, transitions, now, f"{self._name}{secrets.token_hex(2)}")
        self.inner.create(pages)
        cost = sum(max(LEAST_COST_OF_A_PAGE, COST_OF_A_KILOBYTE * _kilobytes(page)) for page in pages)
        with self._lock:
            self._earned = max(self._earned - cost, -MOST_OWED)

    def _keep(self, family: str, transitions: Sequence[Transition]) -> None:
        """Keep what could not be written, before what was gathered since."""
        with self._lock:
            room = self._max_gathered - len(self._gathered)
            kept = transitions[-room:] if room else []
            self._gathered.extendleft((family, transition) for transition in reversed(kept))
            self._is_ordered = self._is_ordered or any(t.by is not None for _, t in self._gathered)

    def _note_failure(self, error: Exception) -> None:
        if self._failed_at is None:
            log.warning("the history cannot be written; it is tried again: %s: %s", type(error).__name__, error)
            self._pause = PAUSE_SECONDS
        else:
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        self._failed_at = self._clock.monotonic()

    def _forget(self, family: str) -> None:
        """Delete, now and then, some pages that are too old, or too many."""
        if self._chance.random() * FORGOTTEN_EVERY >= 1:
            return
        try:
            self._forget_some(family, self._clock.now() - self._keep_for)
        except Exception as error:
            self._note_failure(error)

    def _forget_some(self, family: str, oldest: datetime) -> None:
        if self._chance.random() * COUNTED_EVERY < FORGOTTEN_EVERY:
            pages = self.inner.count_by_status(family, [PartitionStatus.COMPLETED])[PartitionStatus.COMPLETED]
            self._excess[family] = max(pages - self._max_pages, 0)
        for page in self.inner.query(family, PartitionStatus.COMPLETED, limit=FORGOTTEN_AT_A_TIME):
            excess = self._excess.get(family, 0)
            if page.priority >= oldest and not excess:
                return
            self._excess[family] = max(excess - 1, 0)
            self._delete(page)

    def _delete(self, page: Partition) -> None:
        try:
            self.inner.delete(page)
        except CoordinationError as error:  # somebody else was faster
            log.debug("%s", error)


def _kilobytes(page: Partition) -> int:
    return math.ceil((len(progress_text(page)) + OF_AN_ITEM_BYTES) / 1024)
