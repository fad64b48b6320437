"""A store that records the history of the writes that go through it.

The written values describe the previous state and the cause of a change (`Partition.change`). Transitions are
collected and written many at a time. Each write of the process adds a twelfth of a write to the budget of the history.
A page of history costs at least two writes, one to create and one to delete it, and more if it is large. A process that
dies loses its collected transitions. The process that takes over its partitions records their previous owner, so no
change of owner is lost.
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

from airflow_provider_coordination.coordination.browsing import BrowsePage, PageRequest
from airflow_provider_coordination.coordination.clock import Clock, SystemClock
from airflow_provider_coordination.coordination.errors import CoordinationError
from airflow_provider_coordination.coordination.history import (
    FAMILY,
    Transition,
    deletion_of,
    pages_of,
    transition_of,
)
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus, progress_text
from airflow_provider_coordination.coordination.store import Acquisition, CoordinationStore

log = logging.getLogger(__name__)

MAX_PAGES = 10_000
BUDGET_PER_WRITE = 0.08
"""Below a tenth, because the first and the last page of a process are always written."""
MIN_PAGE_COST = 2.0
COST_PER_KILOBYTE = 4 / 3
"""On DynamoDB, the write of a partition costs three units: one for the table and two for the index. A page costs two
units per kilobyte, and the same again when it is deleted."""
MAX_DEBT = 20.0
"""The maximum overdraft of the budget by pages that are written whatever they cost."""
MIN_WAIT = timedelta(seconds=2)
"""The minimum time that a transition waits for others."""
FULL_PAGE_TRANSITIONS = 200
MAX_PENDING = 5000
"""The maximum number of collected transitions. Beyond it, the oldest ones are dropped."""
USER_CHANGE_INTERVAL_SECONDS = 1.0
"""Changes by a user are written at once, but at most one page in this interval, even for a thousand changes."""
RETRY_PAUSE_SECONDS = 30.0
MAX_RETRY_PAUSE_SECONDS = 600.0
"""How long no write is tried after a failure. The pause doubles with each further failure up to the maximum, because
the caller that tries may hold a lease that must be renewed in that time."""
PURGE_EVERY_PAGES = 8
PURGED_AT_A_TIME = 16
"""On average, twice the number of written pages."""
COUNT_EVERY_PAGES = 256
ITEM_OVERHEAD_BYTES = 400
"""The size of an item besides its content: its key and the names of its attributes."""
PARTITION_SUFFIX = "|PARTITION"


class RecordingStore(CoordinationStore):
    """Wraps a store and records a history of its partitions.

    A failure to write the history never affects the wrapped store's operations.

    :param store: the wrapped store.
    :param keep_for: how long transitions are kept.
    :param clock: the source of time.
    :param randomness: the source of randomness.
    :param max_pages: about how many pages are kept per source.
    :param max_pending: the maximum number of collected transitions if they cannot be written; the oldest are dropped.
    """

    def __init__(
        self,
        store: CoordinationStore,
        keep_for: timedelta,
        *,
        clock: Clock | None = None,
        randomness: random.Random | None = None,
        max_pages: int = MAX_PAGES,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self.inner = store
        self._keep_for = keep_for
        self._clock = clock or SystemClock()
        self._randomness = randomness or random.Random()
        self._max_pages = max_pages
        self._max_pending = max_pending
        self._name = secrets.token_hex(4)
        self._lock = threading.Lock()
        self._pending: deque[tuple[str, Transition]] = deque()
        self._budget = MIN_PAGE_COST
        self._has_user_change = False
        self._user_change_written_at = -math.inf
        self._excess: dict[str, int] = {}
        self._failed_at: float | None = None
        self._pause = RETRY_PAUSE_SECONDS

    @property
    @override
    def kind(self) -> str:
        return self.inner.kind

    @property
    @override
    def transaction_items(self) -> int:
        return self.inner.transaction_items

    @property
    @override
    def combines_writes_cheaply(self) -> bool:
        return self.inner.combines_writes_cheaply

    @override
    def initialize(self) -> None:
        self.inner.initialize()

    def close(self) -> None:
        """Write the collected transitions; then see `CoordinationStore.close`."""
        if self._pending and not self._is_paused():
            self._write()
        self.inner.close()

    @override
    def create(self, partitions: Sequence[Partition]) -> list[str]:
        with self._recording():
            created = self.inner.create(partitions)
            self._earn(len(created))
            return created

    @override
    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        with self._recording():
            return self.inner.get(source_identifier, partition_key)

    @override
    def get_many(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        with self._recording():
            return self.inner.get_many(source_identifier, partition_keys)

    @override
    def existing_keys(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        with self._recording():
            return self.inner.existing_keys(source_identifier, partition_keys)

    @override
    def acquire(self, request: Acquisition) -> list[Partition]:
        with self._recording():
            acquired = self.inner.acquire(request)
            self._earn(len(acquired))
            now = self._clock.now()
            self._add_pending(request.source_identifier, [transition_of(p, p.version, now) for p in acquired])
            return [replace(partition, change=None) for partition in acquired]  # each change is recorded once

    @override
    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        with self._recording():
            written = self.inner.transact(update=update, create=create, new=new, unchanged=unchanged)
            self._earn(len(update) + len(create) + len(new))
            now = self._clock.now()
            for before, after in zip(update, written, strict=False):
                self._add_pending(before.source_identifier, [transition_of(before, after.version, now)])
            return written

    @override
    def delete(self, partition: Partition) -> None:
        with self._recording():
            self.inner.delete(partition)
            self._earn(1)
            self._add_pending(partition.source_identifier, [deletion_of(partition, self._clock.now())])

    @override
    def query(
        self,
        source_identifier: str,
        status: PartitionStatus,
        *,
        since: datetime | None = None,
        after: Partition | None = None,
        limit: int = 500,
    ) -> list[Partition]:
        with self._recording():
            return self.inner.query(source_identifier, status, since=since, after=after, limit=limit)

    @override
    def browse(self, request: PageRequest) -> BrowsePage:
        with self._recording():
            return self.inner.browse(request)

    @override
    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        with self._recording():
            return self.inner.count_by_status(source_identifier, statuses)

    @override
    def source_identifiers(self) -> list[str]:
        return self.inner.source_identifiers()

    # Collecting and writing transitions

    def _earn(self, writes: int) -> None:
        with self._lock:
            self._budget += BUDGET_PER_WRITE * writes

    def _add_pending(self, source_identifier: str, transitions: Sequence[Transition | None]) -> None:
        if not source_identifier.endswith(PARTITION_SUFFIX):
            return
        family = f"{source_identifier.removesuffix(PARTITION_SUFFIX)}|{FAMILY}"
        with self._lock:
            for transition in transitions:
                if transition is not None:
                    self._pending.append((family, transition))
                    self._has_user_change = self._has_user_change or transition.by is not None
            while len(self._pending) > self._max_pending:
                self._pending.popleft()

    @contextmanager
    def _recording(self) -> Iterator[None]:
        """Write the collected transitions if they are due, after the operation is done."""
        yield
        if self._is_due():
            self._write()

    def _is_due(self) -> bool:
        with self._lock:
            if not self._pending or self._is_paused():
                return False
            if (
                self._has_user_change
                and self._clock.monotonic() >= self._user_change_written_at + USER_CHANGE_INTERVAL_SECONDS
            ):
                return True
            waited = self._clock.now() - self._pending[0][1].at
            return self._budget >= MIN_PAGE_COST and (waited >= MIN_WAIT or len(self._pending) >= FULL_PAGE_TRANSITIONS)

    def _is_paused(self) -> bool:
        return self._failed_at is not None and self._clock.monotonic() < self._failed_at + self._pause

    def _write(self) -> None:
        """Write the collected transitions. A failure is logged once and affects no caller."""
        with self._lock:
            pending = list(self._pending)
            self._pending.clear()
            if self._has_user_change:
                self._user_change_written_at = self._clock.monotonic()
            self._has_user_change = False
        families: dict[str, list[Transition]] = {}
        for family, transition in pending:
            families.setdefault(family, []).append(transition)
        written: list[str] = []
        failure: Exception | None = None
        for family, transitions in families.items():
            try:
                if failure is None:
                    self._write_pages(family, transitions)
                    written.append(family)
                else:
                    self._requeue(family, transitions)
            except CoordinationError as error:
                self._requeue(family, transitions)
                failure = error
            except Exception as error:  # unexpected, so it may be permanent: nothing is kept
                failure = error
        if failure is None:
            self._failed_at = None
        else:
            self._note_failure(failure)
        for family in written:
            self._purge_sometimes(family)

    def _write_pages(self, family: str, transitions: Sequence[Transition]) -> None:
        now = self._clock.now()
        pages = pages_of(family, transitions, now, f"{self._name}{secrets.token_hex(2)}")
        self.inner.create(pages)
        cost = sum(max(MIN_PAGE_COST, COST_PER_KILOBYTE * _kilobytes(page)) for page in pages)
        with self._lock:
            self._budget = max(self._budget - cost, -MAX_DEBT)

    def _requeue(self, family: str, transitions: Sequence[Transition]) -> None:
        """Keep transitions that could not be written, before those collected since."""
        with self._lock:
            room = self._max_pending - len(self._pending)
            kept = transitions[-room:] if room else []
            self._pending.extendleft((family, transition) for transition in reversed(kept))
            self._has_user_change = self._has_user_change or any(t.by is not None for _, t in self._pending)

    def _note_failure(self, error: Exception) -> None:
        if self._failed_at is None:
            log.warning("the history cannot be written, trying again later: %s: %s", type(error).__name__, error)
            self._pause = RETRY_PAUSE_SECONDS
        else:
            self._pause = min(2 * self._pause, MAX_RETRY_PAUSE_SECONDS)
        self._failed_at = self._clock.monotonic()

    def _purge_sometimes(self, family: str) -> None:
        """Occasionally delete some pages that are too old or too many."""
        if self._randomness.random() * PURGE_EVERY_PAGES >= 1:
            return
        try:
            self._purge(family, self._clock.now() - self._keep_for)
        except Exception as error:
            self._note_failure(error)

    def _purge(self, family: str, oldest: datetime) -> None:
        if self._randomness.random() * COUNT_EVERY_PAGES < PURGE_EVERY_PAGES:
            pages = self.inner.count_by_status(family, [PartitionStatus.COMPLETED])[PartitionStatus.COMPLETED]
            self._excess[family] = max(pages - self._max_pages, 0)
        for page in self.inner.query(family, PartitionStatus.COMPLETED, limit=PURGED_AT_A_TIME):
            excess = self._excess.get(family, 0)
            if page.priority >= oldest and not excess:
                return
            self._excess[family] = max(excess - 1, 0)
            self._delete(page)

    def _delete(self, page: Partition) -> None:
        try:
            self.inner.delete(page)
        except CoordinationError as error:  # another process was faster
            log.debug("%s", error)


def _kilobytes(page: Partition) -> int:
    return math.ceil((len(progress_text(page)) + ITEM_OVERHEAD_BYTES) / 1024)
