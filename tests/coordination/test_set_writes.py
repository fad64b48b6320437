"""Sets of several partitions go to the store together, and an error affects only its own set."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_coordination.coordination.acknowledgment import (
    AcknowledgmentSet,
    Lookup,
    Settlement,
    WholePartition,
)
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionNotOwnedError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.override import override
from airflow_provider_coordination.coordination.partition import Partition
from tests.coordination.fleet import Fleet
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE
from tests.support.batches import HOUR


class Worker:
    """The owner of the partitions x, y and z, with their sets."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.coordinator = self.fleet.working("a", "x", "y", "z")
        self.sets = AcknowledgmentSets(self.coordinator)
        self.fleet.store.calls.clear()

    @property
    def calls(self) -> list[str]:
        """The requests since the last look."""
        calls, self.fleet.store.calls = self.fleet.store.calls, []
        return calls

    def begin(self, *keys: str) -> list[AcknowledgmentSet | Exception]:
        return self.sets.begin_each([(self.sets.new_set(key, key, ["main"], timeout=HOUR), None) for key in keys])

    def begun(self, *keys: str) -> list[AcknowledgmentSet]:
        sets = [made for made in self.begin(*keys) if isinstance(made, AcknowledgmentSet)]
        assert len(sets) == len(keys)
        return sets

    def deliver(self, *sets: AcknowledgmentSet) -> list[str]:
        """Release the sets' references; return their states, or the names of the errors."""
        results = self.sets.delivered_each([(waiting, ["main"]) for waiting in sets])
        return [type(r).__name__ if isinstance(r, Exception) else r.state for r in results]


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_sets_of_a_round_begin_and_end_in_one_request(worker: Worker) -> None:
    sets = worker.begun("x", "y", "z")
    assert worker.calls == ["transact"]
    assert worker.deliver(*sets) == ["ACKNOWLEDGED"] * 3
    assert worker.calls == ["transact"]
    assert worker.coordinator.leases.held == {}


def test_set_changed_by_another_process_is_decided_again(worker: Worker) -> None:
    first, second = worker.begun("x", "y")
    worker.sets.extend(first.set_id, 2 * HOUR)
    assert worker.deliver(first, second) == ["ACKNOWLEDGED"] * 2
    assert worker.sets.view.get(first.set_id).version == first.version + 2


def test_lost_lease_fails_only_its_own_set(worker: Worker) -> None:
    worker.fleet.owner("b").leases.take_over("y", "a")
    first, lost, last = worker.begin("x", "y", "z")
    assert isinstance(lost, PartitionNotOwnedError)
    assert isinstance(first, AcknowledgmentSet) and isinstance(last, AcknowledgmentSet)
    assert worker.sets.view.get(first.set_id) == first and worker.sets.view.get(last.set_id) == last


class BadFollower(WholePartition):
    """A partition that is followed by one without a name, if it has this key."""

    def __init__(self, key: str) -> None:
        self.key = key

    @override
    def delivered(self, partition: Partition, batch_id: str, lookup: Lookup) -> Settlement:
        settled = super().delivered(partition, batch_id, lookup)
        return replace(settled, create={"": {}}) if partition.partition_key == self.key else settled


def test_unnamed_follower_fails_only_its_own_set(worker: Worker) -> None:
    worker.sets = AcknowledgmentSets(worker.coordinator, BadFollower("y"))
    first, bad, last = worker.begun("x", "y", "z")
    assert worker.deliver(first, bad, last) == ["ACKNOWLEDGED", ConfigurationError.__name__, "ACKNOWLEDGED"]
    assert worker.sets.view.get(bad.set_id) == bad


def test_deleted_partition_fails_only_its_own_release(worker: Worker) -> None:
    first, deleted, last = worker.begun("x", "y", "z")
    worker.fleet.store.store.delete(worker.fleet.stored("y"))
    assert worker.deliver(first, deleted, last) == ["ACKNOWLEDGED", PartitionNotOwnedError.__name__, "ACKNOWLEDGED"]


@pytest.mark.parametrize(("fault", "written"), [(NOT_MADE, 0), (NOT_ANSWERED, 3)], ids=["not made", "made"])
def test_unavailable_store_is_the_result_of_all_sets(worker: Worker, fault: object, written: int) -> None:
    worker.fleet.store.fault = fault  # type: ignore[assignment]
    assert [type(result) for result in worker.begin("x", "y", "z")] == [StoreUnavailableError] * 3
    assert len(list(worker.sets.view.pending())) == written


def test_no_further_set_is_read_from_an_unavailable_store(worker: Worker) -> None:
    sets = worker.begun("x", "y", "z")
    for waiting in sets:
        worker.sets.extend(waiting.set_id, 2 * HOUR)  # what the worker knows is refused, so each would be read again
    worker.fleet.store.calls.clear()
    worker.fleet.store.away = True
    assert worker.deliver(*sets) == [StoreUnavailableError.__name__] * 3
    assert len(worker.calls) == 1
