"""A store that loses responses, refuses service, is slow, or lets another process act first."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

from airflow_provider_coordination.coordination.browsing import (
    BrowsePage,
    PageRequest,
)
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import Acquisition, CoordinationStore

T = TypeVar("T")


@dataclass(frozen=True)
class Fault:
    """What happens to one write.

    :param before: runs before the write is made.
    :param makes: whether the write is made.
    :param after: runs once it is made.
    :param answers: whether the answer arrives.
    """

    before: Callable[[], object] | None = None
    makes: bool = True
    after: Callable[[], object] | None = None
    answers: bool = True


NOT_MADE = Fault(makes=False, answers=False)
NOT_ANSWERED = Fault(answers=False)


class UnreliableStore:
    """A store behind a network.

    `fault` happens to the next write and to that alone; while `away`, nothing is answered and nothing written.
    """

    def __init__(self, store: CoordinationStore) -> None:
        self.store = store
        self.fault: Fault | None = None
        self.away = False
        self.failures = 0
        self.calls: list[str] = []

    @property
    def kind(self) -> str:
        return self.store.kind

    @property
    def transaction_items(self) -> int:
        return self.store.transaction_items

    @property
    def combines_writes_cheaply(self) -> bool:
        return self.store.combines_writes_cheaply

    def initialize(self) -> None:
        self.calls.append("initialize")
        self.store.initialize()

    def close(self) -> None:
        self.store.close()

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        return self._write("create", lambda: self.store.create(partitions))

    def acquire(self, request: Acquisition) -> list[Partition]:
        return self._write("acquire", lambda: self.store.acquire(request))

    def transact(
        self,
        *,
        update: Sequence[Partition] = (),
        create: Sequence[Partition] = (),
        new: Sequence[Partition] = (),
        unchanged: Sequence[Partition] = (),
    ) -> list[Partition]:
        return self._write(
            "transact", lambda: self.store.transact(update=update, create=create, new=new, unchanged=unchanged)
        )

    def delete(self, partition: Partition) -> None:
        self._write("delete", lambda: self.store.delete(partition))

    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        return self._read("get", lambda: self.store.get(source_identifier, partition_key))

    def get_many(self, source_identifier: str, partition_keys: Sequence[str]) -> dict[str, Partition]:
        return self._read("get_many", lambda: self.store.get_many(source_identifier, partition_keys))

    def existing_keys(self, source_identifier: str, partition_keys: Sequence[str]) -> set[str]:
        return self._read("existing_keys", lambda: self.store.existing_keys(source_identifier, partition_keys))

    def query(
        self,
        source_identifier: str,
        status: PartitionStatus,
        *,
        since: datetime | None = None,
        after: Partition | None = None,
        limit: int = 500,
    ) -> list[Partition]:
        return self._read(
            "query", lambda: self.store.query(source_identifier, status, since=since, after=after, limit=limit)
        )

    def browse(self, request: PageRequest) -> BrowsePage:
        return self._read("browse", lambda: self.store.browse(request))

    def count_by_status(
        self, source_identifier: str, statuses: Collection[PartitionStatus] = tuple(PartitionStatus)
    ) -> dict[PartitionStatus, int]:
        return self._read("count_by_status", lambda: self.store.count_by_status(source_identifier, statuses))

    def source_identifiers(self) -> list[str]:
        return self._read("source_identifiers", self.store.source_identifiers)

    def _read(self, name: str, call: Callable[[], T]) -> T:
        self.calls.append(name)
        if self.away:
            raise self._failed()
        return call()

    def _write(self, name: str, call: Callable[[], T]) -> T:
        self.calls.append(name)
        fault, self.fault = self.fault or Fault(), None
        if self.away:
            raise self._failed()
        if fault.before:
            fault.before()
        if fault.answers:
            answer = call()
            if fault.after:
                fault.after()
            return answer
        if fault.makes:
            with suppress(PartitionUpdateError):  # a refusal gets lost like any other answer
                call()
        raise self._failed()

    def _failed(self) -> StoreUnavailableError:
        self.failures += 1
        return StoreUnavailableError("connection reset")
