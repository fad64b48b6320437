"""Several transactions at once are each written or refused, in every store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_coordination.coordination.errors import PartitionUpdateError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.store import CoordinationStore, Transaction, transact_each
from tests.support.partitions import NOW, SOURCE, a_partition, keys

MANY = 7


@pytest.fixture
def stored_partitions(store: CoordinationStore) -> list[Partition]:
    """Partitions that are stored."""
    partitions = [a_partition(f"p{n}") for n in range(MANY)]
    store.create(partitions)
    return partitions


def moved(partition: Partition) -> Partition:
    return partition.with_progress({"moved": True})


def outdated(partition: Partition) -> Partition:
    return replace(partition, version=partition.version + 5)


def stored(store: CoordinationStore, partition: Partition) -> Partition | None:
    return store.get(SOURCE, partition.partition_key)


def test_each_transaction_is_written_completely(store: CoordinationStore, stored_partitions: list[Partition]) -> None:
    transactions = [
        Transaction(
            update=[moved(p)],
            create=[a_partition(f"child-{n}"), a_partition(f"sibling-{n}")],
            new=[a_partition(f"new-{n}")],
        )
        for n, p in enumerate(stored_partitions)
    ]
    outcomes = transact_each(store, transactions)
    assert outcomes == [[moved(p).written()] for p in stored_partitions]
    created = [f"{what}-{n}" for what in ("child", "sibling", "new") for n in range(MANY)]
    assert store.existing_keys(SOURCE, created) == set(created)
    assert store.get_many(SOURCE, keys(stored_partitions)) == {
        p.partition_key: moved(p).written() for p in stored_partitions
    }


@pytest.mark.parametrize("bad", [{0}, {3}, {2, 6}, set(range(MANY))], ids=str)
def test_refused_transaction_holds_back_no_other(
    store: CoordinationStore, stored_partitions: list[Partition], bad: set[int]
) -> None:
    transactions = [
        Transaction(update=[moved(outdated(p) if n in bad else p)], new=[a_partition(f"new-{n}")])
        for n, p in enumerate(stored_partitions)
    ]
    outcomes = transact_each(store, transactions)
    for n, (partition, outcome) in enumerate(zip(stored_partitions, outcomes, strict=True)):
        if n in bad:
            assert isinstance(outcome, PartitionUpdateError) and f"'p{n}'" in str(outcome)
        else:
            assert outcome == [moved(partition).written()]
        assert stored(store, partition) == (partition if n in bad else moved(partition).written())
    assert store.existing_keys(SOURCE, [f"new-{n}" for n in range(MANY)]) == {
        f"new-{n}" for n in range(MANY) if n not in bad
    }


def test_existing_new_partition_refuses_its_transaction_alone(
    store: CoordinationStore, stored_partitions: list[Partition]
) -> None:
    first, second, third, *_ = stored_partitions
    outcomes = transact_each(
        store, [Transaction(update=[moved(first)]), Transaction(new=[second]), Transaction(update=[moved(third)])]
    )
    assert isinstance(outcomes[1], PartitionUpdateError)
    assert stored(store, first) == moved(first).written() and stored(store, third) == moved(third).written()


def test_transaction_depending_on_anothers_write_is_refused(
    store: CoordinationStore, stored_partitions: list[Partition]
) -> None:
    """Two parents that end at once: each would leave their child to the other."""
    one, other, *_ = stored_partitions
    outcomes = transact_each(
        store,
        [
            Transaction(update=[one.completed(NOW)], unchanged=[other]),
            Transaction(update=[other.completed(NOW)], unchanged=[one]),
        ],
    )
    assert outcomes[0] == [one.completed(NOW).written()]
    assert isinstance(outcomes[1], PartitionUpdateError)
    assert stored(store, other) == other


def test_first_of_two_equal_creations_counts(store: CoordinationStore, stored_partitions: list[Partition]) -> None:
    one, other, *_ = stored_partitions
    child, namesake = a_partition("child", of="one"), a_partition("child", of="other")
    outcomes = transact_each(
        store, [Transaction(update=[one], create=[child]), Transaction(update=[other], create=[namesake])]
    )
    assert not any(isinstance(outcome, Exception) for outcome in outcomes)
    assert stored(store, child) == child


def test_batches_above_the_transaction_limit_are_written(store: CoordinationStore) -> None:
    count = store.transaction_items // 2 + 1
    partitions = [a_partition(f"many-{n:05}") for n in range(count)]
    store.create(partitions)
    sets = [a_partition(f"set-{n:05}") for n in range(count)]
    outcomes = transact_each(
        store, [Transaction(update=[moved(p)], new=[new]) for p, new in zip(partitions, sets, strict=True)]
    )
    assert outcomes == [[moved(p).written()] for p in partitions]
    assert store.existing_keys(SOURCE, keys(sets)) == set(keys(sets))


def test_large_transactions_are_written(store: CoordinationStore) -> None:
    partitions = [a_partition(f"large-{n}") for n in range(70)]
    store.create(partitions)
    large = [p.with_progress({"files": "x" * 64_000}) for p in partitions]
    outcomes = transact_each(store, [Transaction(update=[p]) for p in large])
    assert outcomes == [[p.written()] for p in large]
    assert store.get_many(SOURCE, keys(large)) == {p.partition_key: p.written() for p in large}
