"""The scenarios of Data Prepper's own tests about source coordination.

Each test names its scenario and says it in a sentence; where this project does something else on purpose, the test
holds for that, and says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    PartitionNotFoundError,
    PartitionNotOwnedError,
    PartitionUpdateError,
    StoreUnavailableError,
    UninitializedCoordinatorError,
)
from airflow_provider_coordination.coordination.metrics import MetricTotals
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.supplier import GLOBAL_STATE_KEY, Page
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.fleet import GLOBAL_FAMILY, MARGIN, TIMEOUT, Fleet, keys, seconds
from tests.coordination.unreliable_store import NOT_MADE, Fault

Supplied = list[Mapping[str, Any]]


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def totals() -> MetricTotals:
    return MetricTotals()


@pytest.fixture
def me(fleet: Fleet, totals: MetricTotals) -> SourceCoordinator:
    return fleet.owner("me", metrics=totals)


def count(totals: MetricTotals, name: str) -> float:
    return totals.totals.get(f"coordination.{name}", 0)


def never(state: Mapping[str, Any]) -> list[Page]:
    raise AssertionError("the supplier must not run")


def finding(*names: str) -> Any:
    return lambda state: [Page({name: {} for name in names})]


def assign_global_state(fleet: Fleet, owner: str, *, ends_in: float) -> None:
    fleet.owner("before").supply(finding())
    item = fleet.global_state().acquired(owner, fleet.clock.now() + seconds(ends_in))
    fleet.store.store.transact(update=[item])


def test_s01_initialize_is_required_and_prepares_the_store_once(fleet: Fleet) -> None:
    """Given prefix p and source s: initialize() initializes the store and creates the global item under its fixed key.

    Without it, asking for a partition raises and touches nothing. We create the global item when the first supplier
    runs: a source that has none needs no such item, and one that expired or was deleted comes back by itself.
    """
    coordinator = SourceCoordinator(fleet.store, "s", "me", prefix="p")
    with pytest.raises(UninitializedCoordinatorError):
        coordinator.get_next_partition(never)
    with pytest.raises(UninitializedCoordinatorError):
        coordinator.supply(never)
    assert fleet.store.calls == []
    coordinator.initialize()
    assert fleet.store.calls == ["initialize"]
    coordinator.supply(finding())
    item = fleet.store.get("p|s|GLOBAL_STATE", "GLOBAL_STATE_SOURCE_PARTITION_KEY_FOR_CREATING_PARTITIONS")
    assert item is not None
    assert (item.status, item.closed_count, item.progress) == (PartitionStatus.UNASSIGNED, 0, {})


def test_s02_available_partition_is_returned_without_the_supplier(
    fleet: Fleet, me: SourceCoordinator, totals: MetricTotals
) -> None:
    """Given that the first acquisition yields X with a state: X is returned with it; the global item is never read.

    Our states are JSON objects. A bare text, as in the scenario, is handed over as it is stored and never overwritten,
    rather than taken for something else.
    """
    me.create_partitions({"X": {"state": "abc"}})
    fleet.store.calls.clear()
    found = me.get_next_partition(never)
    assert found is not None and found.progress == {"state": "abc"}
    assert fleet.store.calls == ["get", "acquire"]  # whether the source is suspended is looked up first
    assert count(totals, "partitions_acquired") == 1
    me.leases.give_up("X")
    fleet.store.store.transact(update=[replace(fleet.stored("X"), unreadable_progress='"abc"')])
    found = me.get_next_partition(never)
    assert found is not None and found.unreadable_progress == '"abc"'


def test_s04_global_item_is_left_to_its_owner_until_timeout(
    fleet: Fleet, me: SourceCoordinator, totals: MetricTotals
) -> None:
    """Given the global item ASSIGNED to another until 120 s from now: no supplier, no write, noPartitionsAcquired.

    Ended 120 s ago: it is taken over and the supplier runs. There a second acquisition follows in both cases; ours
    follows only a run that created something, so that an empty poll of a waiting worker costs one pass, not two.
    """
    assign_global_state(fleet, "other", ends_in=120)
    item = fleet.global_state()
    fleet.store.calls.clear()
    assert me.get_next_partition(never) is None
    assert fleet.global_state() == item
    assert fleet.store.calls.count("acquire") == 1
    assert count(totals, "no_partitions_acquired") == 1
    fleet.clock.advance(240)
    found = me.get_next_partition(finding("X"))
    assert found is not None and found.partition_key == "X"


def test_s04_global_item_is_taken_over_after_a_safety_margin(fleet: Fleet, me: SourceCoordinator) -> None:
    """There the takeover comes the moment the timeout passes; here a margin later, since clocks differ."""
    assign_global_state(fleet, "other", ends_in=0)
    fleet.clock.advance(MARGIN - 1)
    assert me.supply(never) is None
    fleet.clock.advance(1)
    assert me.supply(finding("X")) == ["X"]


def test_s06_losing_the_global_item_runs_no_supplier(fleet: Fleet, me: SourceCoordinator, totals: MetricTotals) -> None:
    """Given that the write which takes the global item conflicts: no supplier, no error, noPartitionsAcquired."""
    me.supply(finding())
    # The acquisition of a partition finds none; the write after it is the one that takes the global item.
    race = Fault(before=lambda: fleet.store.store.transact(update=[fleet.global_state()]))
    fleet.store.fault = Fault(after=lambda: setattr(fleet.store, "fault", race))
    assert me.get_next_partition(never) is None
    assert fleet.store.fault is None, "the race happened"
    assert count(totals, "no_partitions_acquired") == 1


def test_s07_forced_supplier_runs_despite_available_partitions(
    fleet: Fleet, me: SourceCoordinator, totals: MetricTotals
) -> None:
    """Given force and an available X: last run 6 min ago, the supplier runs and X is returned; less than 5, only X.

    There the partition is acquired first and sits idle while the supplier runs, its lease running down; here the
    supplier runs first.
    """
    five_minutes = timedelta(minutes=5)
    me.create_partitions({"X": {}, "Z": {}})
    fleet.clock.advance(299)
    first = me.get_next_partition(never, force_after=five_minutes)
    assert first is not None and first.partition_key == "X"
    me.leases.complete("X")
    fleet.clock.advance(61)

    def supplier(state: Mapping[str, Any]) -> list[Page]:
        assert me.leases.held == {}
        return [Page({"Y": {}})]

    second = me.get_next_partition(supplier, force_after=five_minutes)
    assert second is not None and second.partition_key == "Z"
    assert count(totals, "partitions_acquired") == 2
    assert count(totals, "partitions_created") == 3
    assert count(totals, "partition_creation_supplier_invocations") == 1


def test_s09_completion_distinguishes_gone_lost_and_failed(
    fleet: Fleet, me: SourceCoordinator, totals: MetricTotals
) -> None:
    """Given complete(K): absent, NotFound; another's or nobody's, NotOwned; conflict, counted and raised; else done."""
    me.create_partitions({key: {} for key in ("absent", "foreign", "nobody's", "conflict", "good")})
    me.leases.acquire(5)
    me.leases.save_progress("good", {"kept": True})
    fleet.store.store.delete(fleet.stored("absent"))
    foreign = fleet.stored("foreign").acquired("other", fleet.clock.now() + seconds(60))
    fleet.store.store.transact(update=[foreign, fleet.stored("nobody's").given_up(fleet.clock.now())])
    with pytest.raises(PartitionNotFoundError):
        me.leases.complete("absent")
    assert count(totals, "partition_not_found_errors") == 1
    for key in ("foreign", "nobody's"):
        with pytest.raises(PartitionNotOwnedError):
            me.leases.complete(key)
    assert count(totals, "partition_not_owned_errors") == 2
    rests_on = fleet.stored("foreign")
    fleet.store.store.transact(update=[rests_on])
    with pytest.raises(PartitionUpdateError):
        me.leases.complete("conflict", unchanged=[rests_on])
    assert count(totals, "complete_partition_update_errors") == 1
    me.leases.complete("good")
    done = fleet.stored("good")
    assert (done.status, done.owner, done.reopen_at, done.ownership_timeout) == (
        PartitionStatus.COMPLETED, None, None, None,
    )  # fmt: skip
    assert done.progress == {"kept": True}
    assert count(totals, "partitions_completed") == 1


def test_s11_failed_final_close_counts_as_failed_completion(fleet: Fleet, totals: MetricTotals) -> None:
    """Given a close that would COMPLETE but conflicts: the complete-error counter increments, and it is raised."""
    me = fleet.working("me", "X", metrics=totals)
    fleet.store.fault = NOT_MADE
    with pytest.raises(StoreUnavailableError):
        me.leases.close("X", seconds(30), max_closed_count=1)
    assert count(totals, "complete_partition_update_errors") == 1
    assert count(totals, "close_partition_update_errors") == 0


def test_s12_closed_partition_returns_with_its_state(fleet: Fleet) -> None:
    """Given a saved state and a close: there the lease-based coordinator clears it, the enhanced one keeps it.

    We keep it, always: its own documentation says to save before closing, and losing it reads everything again.
    """
    me = fleet.working("me", "X")
    me.leases.save_progress("X", {"S": 1})
    me.leases.close("X", seconds(30))
    fleet.clock.advance(30)
    [again] = me.leases.acquire(1)
    assert (again.progress, again.closed_count, again.reopen_at) == ({"S": 1}, 1, None)


def test_s14_acknowledgment_wait_is_not_shortened_by_renewals(fleet: Fleet) -> None:
    """Given a wait of 2 h: there any renewal or save sets the timeout to 10 min from now.

    Ours leaves the partition without an owner that could, and no write shortens a timeout: the partition would be taken
    over while its data waits to be acknowledged.
    """
    me = fleet.working("me", "X")
    waiting = me.leases.await_acknowledgment("X", timedelta(hours=2))
    assert waiting.ownership_timeout == fleet.clock.now() + timedelta(hours=2)
    for write in (me.leases.renew, lambda key: me.leases.save_progress(key, {"n": 1})):
        with pytest.raises(PartitionNotOwnedError):
            write("X")
    me.leases.renew_due()
    assert fleet.stored("X") == waiting
    [mine] = fleet.working("me too", "Y").leases.held.values()
    fleet.clock.set_wall_clock_back(7200)
    assert mine.renewed(fleet.clock.now()).ownership_timeout == mine.ownership_timeout


def test_s16_giving_up_disowns_and_queues_by_instant(fleet: Fleet) -> None:
    """Given giveUp(K, T): UNASSIGNED without owner and timeout, priority T; without T, the priority is null.

    There null leaves the old priority, the end of the lease, so that the partition queues behind what was never tried,
    and T only orders. Here a partition queues by when it was given up, and with a delay it is not available before.
    """
    me = fleet.working("me", "K")
    me.leases.save_progress("K", {"kept": True})
    me.leases.give_up("K")
    given_up = fleet.stored("K")
    assert (given_up.status, given_up.owner, given_up.ownership_timeout) == (PartitionStatus.UNASSIGNED, None, None)
    assert given_up.priority == fleet.clock.now() and given_up.progress == {"kept": True}
    me.leases.acquire(1)
    me.leases.give_up("K", after=seconds(20))
    assert fleet.stored("K").priority == fleet.clock.now() + seconds(20)
    fleet.clock.advance(19)
    assert me.leases.acquire(1) == []
    fleet.clock.advance(1)
    assert keys(me.leases.acquire(1)) == ["K"]


def test_s17_giving_up_reads_nothing_from_the_store(fleet: Fleet) -> None:
    """Given reads that show another owner twice and then oneself: there giving up succeeds at the third try.

    Ours writes what it holds in hand, conditional on its version, and reads nothing: no retry is needed.
    """
    me = fleet.working("me", "K")

    def behind(source_identifier: str, partition_key: str) -> Partition:
        raise AssertionError("it must not be read")

    fleet.store.get = behind  # type: ignore[method-assign]
    me.leases.give_up("K")
    assert fleet.stored("K").status is PartitionStatus.UNASSIGNED


def test_s17_giving_up_the_lease_of_another_is_refused(fleet: Fleet, totals: MetricTotals) -> None:
    """Given reads that show another owner five times: NotOwned is raised, there after 5 tries, here after one."""
    me = fleet.working("me", "K", metrics=totals)
    fleet.lease_passes()
    other = fleet.owner("other")
    other.leases.acquire(1)
    with pytest.raises(PartitionNotOwnedError, match="owner other"):
        me.leases.give_up("K")
    assert other.leases.owns("K") and count(totals, "partitions_given_up") == 0


def test_s19_owner_with_an_expired_lease_finishes_after_renewal(fleet: Fleet) -> None:
    """Given a timeout an hour in the past and nobody else: there completePartition by the recorded owner succeeds.

    Ours is refused until the lease is renewed: the owner cannot know by itself that nobody took it, and what it did
    in the meantime may not have been its to do. The renewal proves by the version that nobody did.
    """
    me = fleet.working("me", "K")
    fleet.clock.advance(TIMEOUT + 3600)
    with pytest.raises(PartitionNotOwnedError, match="expired before it was renewed"):
        me.leases.complete("K")
    me.leases.renew("K")
    me.leases.complete("K")
    assert fleet.stored("K").status is PartitionStatus.COMPLETED


def test_s21_first_close_of_at_most_one_completes(fleet: Fleet, totals: MetricTotals) -> None:
    """Given close(p, 10 min, 1) with closedCount 0: COMPLETED on the first close.

    There the enhanced coordinator does not count it as completed, though the lease-based one does; we do.
    """
    me = fleet.working("me", "p", metrics=totals)
    assert me.leases.close("p", timedelta(minutes=10), max_closed_count=1).status is PartitionStatus.COMPLETED
    assert (count(totals, "partitions_completed"), count(totals, "partitions_closed")) == (1, 0)


@pytest.mark.parametrize("status", PartitionStatus)
def test_s29_write_of_an_old_version_is_refused(fleet: Fleet, status: PartitionStatus) -> None:
    """Given stored version n+1 and an item of version n: delete and update are refused; with equal ones, applied.

    For every kind of store the contract suite says so too.
    """
    store, now = InMemoryStore(), fleet.clock.now()
    store.create([Partition(source_identifier="s|PARTITION", partition_key="K", status=status, priority=now)])
    item = store.get("s|PARTITION", "K")
    assert item is not None
    [newer] = store.transact(update=[item])
    with pytest.raises(PartitionUpdateError):
        store.transact(update=[item.given_up(now)])
    with pytest.raises(PartitionUpdateError):
        store.delete(item)
    assert store.get("s|PARTITION", "K") == newer
    [newest] = store.transact(update=[newer])
    assert newest.version == item.version + 2
    store.delete(newest)
    assert store.get("s|PARTITION", "K") is None


def test_s34_memory_store_recovers_expired_leases(fleet: Fleet) -> None:
    """Given a lease of 2 min and silence: there nobody ever gets the partition again, and another pipeline may.

    Our store in memory passes the same contract as the others.
    """
    lease = timedelta(minutes=2)
    silent = fleet.working("silent", "K", ownership_timeout=lease)
    stranger = SourceCoordinator(fleet.store, "orders", "stranger", prefix="test", clock=fleet.clock)
    stranger.initialize()
    fleet.clock.advance(180)
    assert stranger.leases.acquire(5) == []
    assert keys(fleet.owner("next").leases.acquire(5)) == ["K"]
    assert not silent.leases.owns("K")


def test_s34_memory_store_supports_giving_up_and_deleting(fleet: Fleet) -> None:
    """There every give-up raises on the default store and orphans the partition; deletion is not supported."""
    me = fleet.working("me", "K", "L")
    me.leases.give_up("K", after=seconds(5))
    me.leases.delete("L")
    fleet.clock.advance(5)
    assert keys(me.leases.acquire(5)) == ["K"]
    assert fleet.store.get("test|clicks|PARTITION", "L") is None
    assert fleet.store.get(GLOBAL_FAMILY, GLOBAL_STATE_KEY) is None
