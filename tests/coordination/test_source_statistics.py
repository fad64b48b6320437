"""The statistics of a source count its partitions and sets."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.partition import PARKED_UNTIL, Partition, PartitionStatus
from airflow_provider_coordination.coordination.source_statistics import (
    PAGE,
    ScanLimits,
    SourceStatistics,
    source_statistics,
)
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.clock import ManualClock


class Source:
    def __init__(self) -> None:
        self.store, self.clock = InMemoryStore(), ManualClock()
        self.a, self.b = self.owner("a"), self.owner("b")

    def owner(self, name: str) -> SourceCoordinator:
        coordinator = SourceCoordinator(self.store, "clicks", name, clock=self.clock)
        coordinator.initialize()
        return coordinator

    @property
    def statistics(self):  # type: ignore[no-untyped-def]
        return source_statistics(self.store, "clicks|PARTITION", self.clock.now())


@pytest.fixture
def source() -> Source:
    return Source()


def test_source_without_partitions_has_statistics(source: Source) -> None:
    statistics = source.statistics
    assert set(statistics.partitions.values()) == {0}
    assert (statistics.expired_leases, statistics.parked, statistics.failing, statistics.owners) == (0, 0, 0, {})
    assert statistics.oldest_waiting is None


def test_leases_count_for_their_owners_until_expiry(source: Source) -> None:
    source.a.create_partitions({"p": {}, "q": {}, "r": {}})
    source.a.leases.acquire(2)
    source.clock.advance(30)
    source.b.leases.acquire(1)
    assert source.statistics.owners == {"a": 2, "b": 1}
    source.clock.advance(45)
    statistics = source.statistics
    assert (statistics.owners, statistics.expired_leases) == ({"b": 1}, 2)
    assert statistics.partitions[PartitionStatus.ASSIGNED] == 3


def test_lease_renewed_during_a_scan_counts_once(source: Source) -> None:
    source.a.create_partitions({f"p{number:04d}": {} for number in range(PAGE + 1)})
    [first, *_] = source.a.leases.acquire(PAGE + 1)

    def renew_first(partition: Partition) -> None:
        if partition == first:
            source.store.transact(update=[partition.renewed(source.clock.now() + timedelta(hours=1))])

    found = source_statistics(source.store, "clicks|PARTITION", source.clock.now(), on_partition=renew_first)
    assert found.owners == {"a": PAGE + 1}


def test_walk_yields_a_renewed_lease_once(source: Source) -> None:
    source.a.create_partitions({f"p{number:04d}": {} for number in range(2 * PAGE)})
    source.a.leases.acquire(2 * PAGE)
    walk = source.a.view.partitions(PartitionStatus.ASSIGNED)
    first = next(walk)
    source.store.transact(update=[first.renewed(source.clock.now() + timedelta(hours=1))])
    assert first.partition_key not in {partition.partition_key for partition in walk}


def test_longest_wait_covers_all_available_partitions(source: Source) -> None:
    source.a.create_partitions({"p": {}})
    source.a.leases.acquire(1)
    source.a.leases.close("p", timedelta(seconds=100))
    source.clock.advance(99)
    assert source.statistics.oldest_waiting is None
    source.clock.advance(11)
    assert source.statistics.oldest_waiting == timedelta(seconds=10)
    source.a.leases.acquire(1)
    assert source.statistics.oldest_waiting is None
    source.clock.advance(61)
    assert source.statistics.oldest_waiting == timedelta(seconds=1)


def test_failing_and_parked_partitions_are_counted(source: Source) -> None:
    source.a.create_partitions({"p": {}, "q": {}})
    source.a.leases.acquire(2)
    source.a.leases.fail("p", "no luck")
    source.store.transact(update=[source.a.leases.held["q"].failed("no luck").resting(PARKED_UNTIL)])
    statistics = source.statistics
    assert (statistics.failing, statistics.parked) == (2, 1)


def test_worst_partitions_have_the_most_failures_in_a_row(source: Source) -> None:
    source.a.create_partitions({f"p{number}": {} for number in range(8)})
    for partition in source.a.leases.acquire(8):
        failed = partition
        for _ in range(int(partition.partition_key[1:])):
            failed = failed.failed("no luck")
        source.store.transact(update=[failed.given_up(source.clock.now())])
    statistics = source.statistics
    assert [partition.partition_key for partition in statistics.worst] == ["p7", "p6", "p5", "p4", "p3"]
    assert statistics.failing == 7


def test_failing_and_parked_counts_ignore_the_limit(source: Source) -> None:
    source.a.create_partitions({f"p{number:04}": {} for number in range(1200)})
    for number, partition in enumerate(source.a.leases.acquire(1200)):
        failed = partition.failed("no luck") if number % 100 == 99 else partition
        until = PARKED_UNTIL if number >= 600 else source.clock.now() + timedelta(hours=1)
        source.store.transact(update=[failed.resting(until)])
    limits = ScanLimits(partitions=PAGE, seconds=0)
    statistics = source_statistics(source.store, "clicks|PARTITION", source.clock.now(), limits=limits)
    assert statistics.incomplete == {PartitionStatus.CLOSED}
    assert (statistics.parked, statistics.parked_is_exact, statistics.failing) == (PAGE, False, 12)
    limits = ScanLimits(partitions=2 * PAGE, seconds=0)
    statistics = source_statistics(source.store, "clicks|PARTITION", source.clock.now(), limits=limits)
    assert (statistics.parked, statistics.parked_is_exact, statistics.failing) == (600, True, 12)


def test_interactive_statistics_are_limited_and_say_so(source: Source) -> None:
    source.a.create_partitions({f"p{number}": {} for number in range(1200)})
    source.a.leases.acquire(1)
    looked_at: list[str] = []

    def statistics(partitions: int) -> SourceStatistics:
        looked_at.clear()
        return source_statistics(
            source.store,
            "clicks|PARTITION",
            source.clock.now(),
            limits=ScanLimits(partitions=partitions, seconds=3600),
            on_partition=lambda partition: looked_at.append(partition.partition_key),
        )

    bounded = statistics(1000)
    assert (bounded.is_complete, len(looked_at)) == (False, 1001)
    assert bounded.incomplete == {PartitionStatus.UNASSIGNED}, "every lease was looked at"
    assert (bounded.owners, bounded.partitions[PartitionStatus.UNASSIGNED]) == ({"a": 1}, 1199)
    assert statistics(5000).is_complete
    assert len(looked_at) == 1200
