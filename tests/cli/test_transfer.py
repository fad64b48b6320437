"""Partitions that are imported into a store are compared with existing ones, and overwrite none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_coordination.cli.imports import TransferState, compare_with_store, write_to_store
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition, PartitionStatus
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FAMILY = "clicks|PARTITION"


def a_partition(key: str = "a", *, family: str = FAMILY, **progress: Any) -> Partition:
    return Partition(
        source_identifier=family,
        partition_key=key,
        status=PartitionStatus.UNASSIGNED,
        priority=NOW,
        progress=progress,
    )


BROUGHT = a_partition(checkpoint="5")


@pytest.mark.parametrize(
    ("existing", "state"),
    [
        (BROUGHT, TransferState.PRESENT),
        (BROUGHT.acquired("worker", NOW + timedelta(seconds=60)), TransferState.PRESENT),
        (BROUGHT.failed("timed out").given_up(NOW + timedelta(hours=1)), TransferState.PRESENT),
        (a_partition(checkpoint="6"), TransferState.CONFLICT),
        (BROUGHT.completed(NOW), TransferState.CONFLICT),
        (replace(BROUGHT.closed(PARKED_UNTIL), closed_count=0), TransferState.CONFLICT),
        (BROUGHT.closed(NOW), TransferState.CONFLICT),  # it has been closed once more
        (replace(BROUGHT, progress={}, unreadable_progress="{"), TransferState.CONFLICT),
    ],
    ids=["as-it-is", "leased", "failed", "further", "finished", "parked", "closed", "unreadable"],
)
def test_existing_partition_is_compared_with_the_imported_one(existing: Partition, state: TransferState) -> None:
    store = InMemoryStore()
    store.create([existing])

    [transfer] = compare_with_store(store, [BROUGHT])

    assert transfer.state is state


def test_parked_partition_equals_an_import_that_parks_it() -> None:
    store = InMemoryStore()
    parked = BROUGHT.failed("why").resting(PARKED_UNTIL)
    store.create([parked])

    assert compare_with_store(store, [parked])[0].state is TransferState.PRESENT


def test_completed_partitions_are_equal_despite_progress() -> None:
    store = InMemoryStore()
    store.create([a_partition(checkpoint="6").completed(NOW)])

    assert compare_with_store(store, [BROUGHT.completed(NOW)])[0].state is TransferState.PRESENT


def test_only_new_partitions_are_written() -> None:
    store = InMemoryStore()
    store.create([a_partition("a", checkpoint="9")])

    transfers = compare_with_store(store, [BROUGHT, a_partition("b"), a_partition("a", family="views|PARTITION")])
    assert [t.state for t in transfers] == [TransferState.CONFLICT, TransferState.NEW, TransferState.NEW]
    assert write_to_store(store, transfers) == []

    assert store.get(FAMILY, "a") == a_partition("a", checkpoint="9")
    assert store.get(FAMILY, "b") == a_partition("b")
    assert store.get("views|PARTITION", "a") == a_partition("a", family="views|PARTITION")
    assert {t.state for t in compare_with_store(store, [a_partition("b")])} == {TransferState.PRESENT}


class CompetingStore(InMemoryStore):
    """Another process creates the partitions just before this one does."""

    other: Callable[[], object] = staticmethod(lambda: None)

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        other, self.other = self.other, lambda: None
        other()
        return super().create(partitions)


def test_concurrently_created_partition_is_reported_and_stays() -> None:
    store = CompetingStore()
    transfers = compare_with_store(store, [a_partition("a", checkpoint="5"), a_partition("b")])
    store.other = lambda: InMemoryStore.create(store, [a_partition("a", checkpoint="0")])

    [lost_race] = write_to_store(store, transfers)

    assert lost_race.partition.partition_key == "a" and lost_race.state is TransferState.CONFLICT
    assert store.get(FAMILY, "a") == a_partition("a", checkpoint="0")


def test_available_partitions_are_written_before_completed_ones() -> None:
    written: list[str] = []

    class RecordingStore(InMemoryStore):
        def create(self, partitions: Sequence[Partition]) -> list[str]:
            written.extend(p.partition_key for p in partitions)
            return super().create(partitions)

    store = RecordingStore()
    write_to_store(store, compare_with_store(store, [a_partition("done").completed(NOW), a_partition("open")]))

    assert written == ["open", "done"]
