"""Several transactions are shared out to requests, and each is written or refused as a whole during an outage."""

from __future__ import annotations

import pytest

from airflow_provider_coordination.coordination.errors import (
    PartitionUpdateError,
    ProgressError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.coordination.store import MAX_BYTES, Transaction, transact_each
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.unreliable_store import NOT_ANSWERED, Fault, UnreliableStore
from tests.support.partitions import SOURCE, a_partition, keys


class SmallStore(InMemoryStore):
    """Takes as many items in a transaction as DynamoDB does."""

    transaction_items = 100


@pytest.fixture
def store() -> UnreliableStore:
    return UnreliableStore(SmallStore())


def partitions(store: UnreliableStore, count: int) -> list[Partition]:
    made = [a_partition(f"p{n:03}") for n in range(count)]
    store.store.create(made)
    return made


def with_a_set(partition: Partition) -> Transaction:
    return Transaction(update=[partition], new=[a_partition(f"set-of-{partition.partition_key}")])


def test_transactions_within_the_limit_are_one_request(store: UnreliableStore) -> None:
    transact_each(store, [with_a_set(p) for p in partitions(store, 64)])
    assert store.calls == ["transact"] * 2
    store.calls.clear()
    transact_each(store, [Transaction(update=[p.written()]) for p in partitions(store, 64)])
    assert store.calls == ["transact"]


def test_transactions_above_the_limit_are_several_requests(store: UnreliableStore) -> None:
    bytes_each = 60_000
    large = [p.with_progress({"files": "x" * bytes_each}) for p in partitions(store, 100)]
    transact_each(store, [Transaction(update=[p]) for p in large])
    assert len(store.calls) == 100 * bytes_each // MAX_BYTES + 1


def test_transactions_with_a_common_item_are_separate_requests(store: UnreliableStore) -> None:
    one, other, third, fourth = partitions(store, 4)
    transact_each(
        store,
        [
            Transaction(update=[one], unchanged=[fourth]),
            Transaction(update=[other]),
            Transaction(update=[third, fourth]),
        ],
    )
    assert store.calls == ["transact"] * 2


def test_transactions_checking_the_same_item_share_a_request(
    store: UnreliableStore,
) -> None:
    *some, checked = partitions(store, 4)
    wanted = [Transaction(update=[each], unchanged=[checked]) for each in some]
    written = [each[0] for each in transact_each(store, wanted) if not isinstance(each, Exception)]
    assert store.calls == ["transact"] and len(written) == 3
    store.transact(update=[checked])
    again = [Transaction(update=[each], unchanged=[checked]) for each in written]
    assert [type(each) for each in transact_each(store, again)] == [PartitionUpdateError] * 3


def test_refused_transaction_is_found_by_halving(store: UnreliableStore) -> None:
    existing = partitions(store, 32)
    store.store.transact(update=[existing[9]])
    outcomes = transact_each(store, [Transaction(update=[p]) for p in existing])
    assert [n for n, outcome in enumerate(outcomes) if isinstance(outcome, PartitionUpdateError)] == [9]
    assert len(store.calls) == 1 + 2 * 5


def test_unstorable_transaction_stops_no_other(store: UnreliableStore) -> None:
    one, other = partitions(store, 2)
    unstorable = Partition(
        source_identifier=SOURCE,
        partition_key=one.partition_key,
        status=one.status,
        priority=one.priority,
        progress={"at": object()},
    )
    refused, written = transact_each(store, [Transaction(update=[unstorable]), Transaction(update=[other])])
    assert isinstance(refused, ProgressError)
    assert written == [other.written()]


def test_unavailable_store_stops_further_attempts(store: UnreliableStore) -> None:
    existing = partitions(store, 250)
    store.fault = Fault(after=lambda: setattr(store, "away", True))
    outcomes = transact_each(store, [Transaction(update=[p]) for p in existing])
    assert outcomes[:100] == [[p.written()] for p in existing[:100]]
    assert all(isinstance(outcome, StoreUnavailableError) for outcome in outcomes[100:])
    assert store.failures == 1
    assert list(store.store.get_many(SOURCE, keys(existing)).values())[100:] == existing[100:]


def test_store_failing_between_halves_is_asked_no_further(store: UnreliableStore) -> None:
    existing = partitions(store, 8)
    store.store.transact(update=[existing[0]])

    def last_answer() -> None:
        store.fault = NOT_ANSWERED

    store.fault = Fault(before=last_answer)
    outcomes = transact_each(store, [Transaction(update=[p]) for p in existing])
    assert all(isinstance(outcome, StoreUnavailableError) for outcome in outcomes)
    assert store.calls == ["transact"] * 2
