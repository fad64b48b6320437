"""Stores in the memory of one process, for tests and for experiments.

Unlike Data Prepper's store of the same name, it isolates sources, recovers expired leases, keeps completed partitions
and refuses stale writes. It passes the same contract suite as the other stores.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from airflow_provider_coordination.coordination.browsing import (
    BrowsePage,
    BrowsePosition,
    PageRequest,
    SortOrder,
    position_of,
)
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import (
    Partition,
    PartitionStatus,
    progress_text,
    read_progress,
)
from airflow_provider_coordination.coordination.store import (
    Acquisition,
    CoordinationStore,
    acquisition_order,
    creation_refused,
    version_refused,
)
from airflow_provider_coordination.stores.kind import StoreKind


class InMemoryStore(CoordinationStore):
    """A store in memory, shared by all threads of the process and lost when the process ends."""

    kind = "in_memory"
    transaction_items = 2500
    combines_writes_cheaply = True

    def __init__(self) -> None:
        self._partitions: dict[tuple[str, str], Partition] = {}
        self._lock = threading.Lock()

    @override
    def initialize(self) -> None:
        pass

    @override
    def close(self) -> None:
        pass

    @override
    def create(self, partitions: Sequence[Partition]) -> list[str]:
        with self._lock:
            _check(partitions)
            return [p.partition_key for p in partitions if self._create(p)]

    @override
    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        with self._lock:
            found = self._partitions.get((source_identifier, partition_key))
            return None if found is None else _copy(found)

    @override
    def get_many(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        with self._lock:
            found = {key: self._partitions.get((source_identifier, key)) for key in partition_keys}
            return {key: _copy(partition) for key, partition in found.items() if partition is not None}

    @override
    def existing_keys(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        with self._lock:
            return {key for key in partition_keys if (source_identifier, key) in self._partitions}

    @override
    def acquire(self, request: Acquisition) -> list[Partition]:
        with self._lock:
            chosen: list[Partition] = []
            for status, latest in acquisition_order(request):
                queue = (p for p in self._queue(request.source_identifier, status) if p.priority <= latest)
                chosen += [p for p, _ in zip(queue, range(request.limit - len(chosen)), strict=False)]
            written = [p.taken(request.owner, request.ownership_timeout, request.available_by) for p in chosen]
            for partition in written:
                self._put(partition)
            return [_copy(p) for p in written]

    @override
    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        with self._lock:
            for partition in (*update, *unchanged):
                self._require_version(partition)
            for partition in new:
                if _key(partition) in self._partitions:
                    raise creation_refused(partition)
            _check([*update, *create, *new])
            written = [p.written() for p in update]
            for partition in written:
                self._put(partition)
            for partition in (*create, *new):
                self._create(partition)
            return [_copy(p) for p in written]

    @override
    def delete(self, partition: Partition) -> None:
        with self._lock:
            self._require_version(partition)
            del self._partitions[_key(partition)]

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
        with self._lock:
            queue = [
                p
                for p in self._queue(source_identifier, status)
                if (since is None or p.priority >= since) and (after is None or _order(p) > _order(after))
            ]
            return [_copy(p) for p in queue[:limit]]

    @override
    def browse(self, request: PageRequest) -> BrowsePage:
        request.check()
        wanted, order, after, limit = request.wanted, request.order, request.after, request.limit

        def is_after(position: BrowsePosition) -> bool:
            return after is None or (position < after if request.descending else position > after)

        def is_in_index(partition: Partition) -> bool:  # as in the index of a database
            if order is SortOrder.PRIORITY:
                return partition.status in wanted.statuses
            return partition.partition_key.startswith(wanted.prefix)

        with self._lock:
            known = ((position_of(p, order), p) for p in self._of(request.source_identifier) if is_in_index(p))
            entries = sorted(((at, p) for at, p in known if is_after(at)), reverse=request.descending, key=_first)
        examined = entries[: request.examine]
        matches = [(at, p) for at, p in examined if wanted.matches(p)]
        if len(matches) > limit:
            next_position: BrowsePosition | None = matches[limit - 1][0]
        else:
            next_position = examined[-1][0] if len(examined) < len(entries) else None
        return BrowsePage(partitions=[_copy(p) for _, p in matches[:limit]], next=next_position)

    @override
    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        with self._lock:
            counts = Counter(partition.status for partition in self._of(source_identifier))
            return {status: counts[status] for status in statuses}

    @override
    def source_identifiers(self) -> list[str]:
        with self._lock:
            return sorted({source_identifier for source_identifier, _ in self._partitions})

    def _create(self, partition: Partition) -> bool:
        if _key(partition) in self._partitions:
            return False
        self._put(partition)
        return True

    def _put(self, partition: Partition) -> None:
        # Stored as text like in other stores, so that progress that is not JSON is refused here too.
        state = read_progress(progress_text(partition))
        self._partitions[_key(partition)] = replace(partition, change=None, **state)

    def _require_version(self, partition: Partition) -> None:
        stored = self._partitions.get(_key(partition))
        if stored is None or stored.version != partition.version:
            raise version_refused(partition)

    def _of(self, source_identifier: str) -> Iterator[Partition]:
        return (p for p in self._partitions.values() if p.source_identifier == source_identifier)

    def _queue(self, source_identifier: str, status: PartitionStatus) -> list[Partition]:
        return sorted((p for p in self._of(source_identifier) if p.status is status), key=_order)


def _check(partitions: Sequence[Partition]) -> None:
    """Refuse partitions that cannot be stored before anything is written."""
    for partition in partitions:
        progress_text(partition)


def _key(partition: Partition) -> tuple[str, str]:
    return (partition.source_identifier, partition.partition_key)


def _copy(partition: Partition) -> Partition:
    return replace(partition, progress=_copied(partition.progress))


def _copied(value: Any) -> Any:
    # Only JSON values, which makes this many times faster than copy.deepcopy.
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _first(each: tuple[BrowsePosition, Partition]) -> BrowsePosition:
    return each[0]


def _order(partition: Partition) -> tuple[datetime, str]:
    return (partition.priority, partition.partition_key)


@dataclass(frozen=True)
class InMemorySettings:
    """No settings."""


class InMemoryKind(StoreKind[InMemorySettings]):
    """The kind of `InMemoryStore`."""

    settings = InMemorySettings
    is_shared = False

    @override
    def open(self, settings: InMemorySettings, *, retry_deadline_seconds: float) -> CoordinationStore:
        return InMemoryStore()


KIND = InMemoryKind()
