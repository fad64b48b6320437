"""Suppliers: one worker at a time supplies page by page, and no worker waits forever."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    ConfigurationError,
    PartitionNotOwnedError,
    ProgressError,
    StoreUnavailableError,
    SupplierBusyError,
)
from airflow_provider_coordination.coordination.metrics import MetricTotals
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.supplier import GLOBAL_STATE_KEY, Page, Supplier
from airflow_provider_coordination.coordination.suspension import CACHE_SECONDS
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.coordination.fleet import GLOBAL_FAMILY, MARGIN, TIMEOUT, Fleet, keys, seconds
from tests.coordination.unreliable_store import NOT_MADE, Fault
from tests.support.waiting import until

SUPPLIER_FAILURES = "coordination.supplier_failures"


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


def finding(*names: str, state: Mapping[str, Any] | None = None) -> Supplier:
    """A supplier that finds these on one page."""
    return lambda _: [Page({name: {"found": name} for name in names}, state)]


def never(state: Mapping[str, Any]) -> list[Page]:
    raise AssertionError("the supplier must not run")


def taken(fleet: Fleet, *, by: str) -> None:
    """Let another worker take the global state now."""
    item = fleet.global_state().acquired(by, fleet.clock.now() + seconds(TIMEOUT))
    fleet.store.store.transact(update=[item])


def is_free(fleet: Fleet) -> bool:
    item = fleet.global_state()
    return item.status is PartitionStatus.UNASSIGNED and item.owner is None


def test_partitions_of_a_supplier_are_created(fleet: Fleet) -> None:
    a = fleet.owner("a")
    assert a.supply(finding("x", "y")) == ["x", "y"]
    assert fleet.stored("y").progress == {"found": "y"}


def test_existing_partitions_are_left_alone(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {"old": True}})
    assert a.supply(finding("x", "y")) == ["y"]
    assert fleet.stored("x").progress == {"old": True}


def test_supplier_receives_the_state_of_the_last_run(fleet: Fleet) -> None:
    given: list[Mapping[str, Any]] = []

    def supplier(state: Mapping[str, Any]) -> list[Page]:
        given.append(state)
        return [Page({}, {"runs": state.get("runs", 0) + 1})]

    for name in "abc":
        fleet.owner(name).supply(supplier)
    assert given == [{}, {"runs": 1}, {"runs": 2}]


def test_page_without_a_state_keeps_the_stored_one(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.supply(finding(state={"until": "noon"}))
    a.supply(finding("x"))
    assert fleet.global_state().progress == {"until": "noon"}


def test_partitions_can_be_acquired_during_the_listing(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    acquired: list[list[str]] = []

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        for name in "xyz":
            yield Page({name: {}})
            acquired.append(keys(b.leases.acquire(5)))

    a.supply(supplier)
    assert acquired == [["x"], ["y"], ["z"]]


def test_state_is_written_after_its_partitions(fleet: Fleet) -> None:
    a = fleet.owner("a")
    between: list[tuple[list[str], Mapping[str, Any]]] = []

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        for name in "xy":
            yield Page({name: {}}, {"until": name})
            between.append((sorted(p.partition_key for p in a.view.partitions()), fleet.global_state().progress))

    a.supply(supplier)
    assert between == [(["x"], {"until": "x"}), (["x", "y"], {"until": "y"})]


def test_failed_page_does_not_write_its_state(fleet: Fleet) -> None:
    a = fleet.owner("a")

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"x": {}}, {"until": "x"})
        yield Page({"": {}}, {"until": "an unusable key"})

    with pytest.raises(ConfigurationError):
        a.supply(supplier)
    assert fleet.global_state().progress == {"until": "x"}
    assert is_free(fleet)


def test_supplier_runs_in_one_worker_at_a_time(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        assert b.supply(never) is None
        yield Page({"x": {}})
        assert b.supply(never) is None

    assert a.supply(supplier) == ["x"]
    assert b.supply(finding("y")) == ["y"]


def test_supplier_runs_in_one_thread_even_after_expiry(fleet: Fleet) -> None:
    a = fleet.owner("a")

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        fleet.lease_passes()  # as when the machine was suspended
        assert a.supply(never) is None
        yield Page({"x": {}})

    assert a.supply(supplier) == ["x"]


def test_first_worker_creates_the_global_state(fleet: Fleet) -> None:
    a = fleet.owner("a")
    assert fleet.store.store.get(GLOBAL_FAMILY, GLOBAL_STATE_KEY) is None
    a.supply(finding())
    assert is_free(fleet)
    assert list(a.view.partitions()) == []  # it is in a family of its own


def test_concurrent_creation_of_global_state_runs_one_supplier(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")
    inner: list[list[str] | None] = []

    def supplier(state: Mapping[str, Any]) -> list[Page]:
        inner.append(a.supply(never))
        return [Page({"x": {}})]

    # b comes in just as a, which found nothing, is about to create the item.
    fleet.store.fault = Fault(before=lambda: inner.append(b.supply(supplier)))
    assert a.supply(finding("y")) == ["y"]  # b has finished by now
    assert inner == [None, ["x"]]


def test_second_worker_at_new_global_state_skips_supplier(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")

    def created_and_taken() -> None:
        b.supply(finding("x"))
        taken(fleet, by="b")

    # a found no item, and goes on only now.
    fleet.store.fault = Fault(before=created_and_taken)
    assert a.supply(never) is None
    assert fleet.global_state().owner == "b"


def test_overtaken_worker_skips_the_supplier(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.supply(finding())

    fleet.store.fault = Fault(before=lambda: taken(fleet, by="b"))
    assert a.supply(never) is None
    assert fleet.global_state().owner == "b"


def test_global_state_of_dead_worker_is_taken_over(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.supply(finding(state={"runs": 1}))
    taken(fleet, by="dead")
    fleet.clock.advance(TIMEOUT + MARGIN - 1)
    assert a.supply(never) is None
    fleet.clock.advance(1)
    assert a.supply(finding("x")) == ["x"]
    assert fleet.global_state().progress == {"runs": 1}


# Whose turn it is

TRY = "host:dag:run:find:-1:{}:0a1b2c3d"
PATIENCE_SECONDS = 600


def supply(fleet: Fleet, name: str, supplier: Supplier, *concurrent: Callable[[], object]) -> list[str] | None:
    """Let an owner run a supplier to its end; while it waits, these happen, one each time it looks again."""
    happens = iter(concurrent)

    def sleep(seconds: float) -> None:
        fleet.clock.advance(seconds)
        next(happens, lambda: None)()

    return fleet.owner(name).supply(supplier, wait_timeout=seconds(PATIENCE_SECONDS), sleep=sleep)


def held_by(fleet: Fleet, holder: str, lease: float = TIMEOUT) -> None:
    """Let an owner hold the global state, and leave a state of its own, in the middle of its supplier."""
    fleet.owner("first").supply(finding(state={"until": "noon"}))
    fleet.store.store.transact(update=[fleet.global_state().acquired(holder, fleet.clock.now() + seconds(lease))])


@pytest.mark.parametrize(
    ("holder", "is_taken_over"),
    [
        (TRY.format(1), True),
        (TRY.format(2), True),  # this worker itself, whose release failed
        (TRY.format(2).replace("0a1b2c3d", "another1"), False),
        (TRY.format(3), False),
        (TRY.format(1).replace("host", "another-host"), True),
        (TRY.format(1).replace(":-1:", ":7:"), False),
        (TRY.format(1).replace("run", "scheduled__2026-01-01T00:00:00+00:00"), False),
        (TRY.format(1).replace("find", "ingest"), False),
        (TRY.format(1).replace("dag", "another"), False),
        ("a person", False),
    ],
)
def test_lease_is_taken_over_from_earlier_tries_only(fleet: Fleet, holder: str, is_taken_over: bool) -> None:
    held_by(fleet, holder)
    given: list[Mapping[str, Any]] = []

    def supplier(state: Mapping[str, Any]) -> list[Page]:
        given.append(state)
        return [Page({"x": {}})]

    assert fleet.owner(TRY.format(2)).supply(supplier) == (["x"] if is_taken_over else None)
    assert given == ([{"until": "noon"}] if is_taken_over else []), "it goes on from what the earlier try left"


def test_earlier_try_that_lives_on_writes_nothing(fleet: Fleet) -> None:
    def earlier(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"x": {}}, {"by": "try 1"})
        assert fleet.owner(TRY.format(2)).supply(finding("y", state={"by": "try 2"})) == ["y"]
        yield Page({"z": {}}, {"by": "try 1"})
        raise AssertionError("it must be cut off")

    assert fleet.owner(TRY.format(1)).supply(earlier) == ["x"]
    assert fleet.owner("a").view.get("z") is None
    assert is_free(fleet) and fleet.global_state().progress == {"by": "try 2"}


def test_earlier_try_overtaken_while_writing_creates_nothing(fleet: Fleet) -> None:
    """As many partitions as the page has are one whole: another worker may cut the source into more, or fewer."""

    def lost_race() -> None:
        fleet.owner(TRY.format(2)).supply(finding("1 of 3", "2 of 3", "3 of 3"))

    def earlier(state: Mapping[str, Any]) -> Iterator[Page]:
        fleet.store.fault = Fault(before=lost_race)  # the next write is the creation
        yield Page({"1 of 2": {}, "2 of 2": {}})

    assert fleet.owner(TRY.format(1)).supply(earlier) == []
    assert sorted(p.partition_key for p in fleet.owner("a").view.partitions()) == ["1 of 3", "2 of 3", "3 of 3"]


def test_overtaken_try_that_must_finish_fails(fleet: Fleet) -> None:
    def earlier(state: Mapping[str, Any]) -> Iterator[Page]:
        held_by_later = fleet.global_state().acquired(TRY.format(2), fleet.clock.now() + seconds(TIMEOUT))
        fleet.store.store.transact(update=[held_by_later])
        yield Page({"x": {}})

    with pytest.raises(SupplierBusyError, match=r"'clicks': a later try of this task, host:"):
        supply(fleet, TRY.format(1), earlier)
    assert fleet.global_state().owner == TRY.format(2)


def test_partitions_created_concurrently_belong_to_others(fleet: Fleet) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        fleet.store.fault = Fault(before=lambda: b.create_partitions({"y": {"by": "b"}}))
        yield Page({"x": {}, "y": {}, "z": {}})

    assert a.supply(supplier) == ["x", "z"]
    assert fleet.stored("y").progress == {"by": "b"}


@pytest.mark.parametrize("items", [2, 3, 4, 100])
def test_page_is_created_in_transactions_that_renew_the_lease(fleet: Fleet, items: int) -> None:
    a = fleet.owner("a")
    a.supply(finding("b"))
    before = fleet.global_state().version
    fleet.store.store.transaction_items = items  # type: ignore[misc]
    assert a.supply(finding(*"abcd")) == ["a", "c", "d"]
    acquired_and_given_up = 2
    of_new = {2: 3, 3: 2, 4: 2, 100: 1}[items]
    assert fleet.global_state().version - before == of_new + acquired_and_given_up


@pytest.mark.parametrize("lease", [TIMEOUT, 300, 3600])
def test_wait_for_dead_worker_ends_with_its_lease(fleet: Fleet, lease: int) -> None:
    held_by(fleet, "dead", lease)
    began = fleet.clock.monotonic()
    assert supply(fleet, "a", finding("x")) == ["x"]
    waited = fleet.clock.monotonic() - began
    assert lease + MARGIN <= waited <= lease + MARGIN + 2


def test_supplier_runs_after_a_live_worker_ends(fleet: Fleet) -> None:
    held_by(fleet, "alive")

    def ends() -> None:
        fleet.store.store.transact(update=[fleet.global_state().given_up(fleet.clock.now())])

    began = fleet.clock.monotonic()
    assert supply(fleet, "a", finding("x"), lambda: None, ends) == ["x"]
    assert fleet.clock.monotonic() - began <= 4


def test_wait_for_live_worker_ends_with_the_patience(fleet: Fleet) -> None:
    held_by(fleet, "alive")

    def renews() -> None:
        item = fleet.global_state()
        fleet.store.store.transact(update=[item.renewed(fleet.clock.now() + seconds(TIMEOUT))])

    began = fleet.clock.monotonic()
    with pytest.raises(
        SupplierBusyError,
        match=r"'clicks': another worker, alive, .* for the 600 s that a waited",
    ):
        supply(fleet, "a", never, *[renews] * 400)
    assert fleet.clock.monotonic() - began == PATIENCE_SECONDS


def test_wall_clock_set_back_does_not_prolong_the_wait(fleet: Fleet) -> None:
    held_by(fleet, "dead")
    began = fleet.clock.monotonic()
    with pytest.raises(SupplierBusyError):
        supply(fleet, "a", never, lambda: fleet.clock.set_wall_clock_back(3600))
    assert fleet.clock.monotonic() - began == PATIENCE_SECONDS


def test_overtaken_supplier_runs_again_after_the_other_worker(fleet: Fleet) -> None:
    runs: list[Mapping[str, Any]] = []

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        runs.append(state)
        yield Page({"x": {}}, {"until": "x"})
        if len(runs) == 1:
            fleet.lease_passes()
            taken(fleet, by="b")
        yield Page({"y": {}}, {"until": "y"})

    assert supply(fleet, "a", supplier) == ["x", "y"]
    assert runs == [{}, {"until": "x"}]


def test_constantly_overtaken_supplier_is_not_run_forever(fleet: Fleet) -> None:
    runs: list[int] = []

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        runs.append(1)
        taken(fleet, by="b")
        yield Page({"x": {}})

    with pytest.raises(PartitionNotOwnedError):
        supply(fleet, "a", supplier)
    assert len(runs) == 10


def test_wait_ends_with_the_suspension_of_the_source(fleet: Fleet) -> None:
    held_by(fleet, "alive")

    def suspended() -> None:
        fleet.owner("person").view.suspensions.suspend("ann")
        fleet.clock.advance(CACHE_SECONDS)

    assert supply(fleet, "a", never, suspended) is None


def test_wait_logs_owner_and_end_once_a_minute(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    held_by(fleet, "dead", 90)
    with caplog.at_level("INFO"):
        supply(fleet, "a", finding("x"))
    waiting = "waiting for the worker that runs the supplier: source=clicks owner=a holder=dead leased_until="
    messages = [record.getMessage() for record in caplog.records if record.getMessage().startswith(waiting)]
    assert messages == [f"{waiting}2026-01-01 00:01:30+00:00"] * 2


def test_giving_up_a_dead_owner_includes_its_supplier(fleet: Fleet) -> None:
    held_by(fleet, "dead")
    assert fleet.owner("operator").give_up_owner("alive") == []
    assert fleet.global_state().owner == "dead"
    assert fleet.owner("operator").give_up_owner("dead") == []
    assert fleet.owner("a").supply(finding("x")) == ["x"]


# However it ends


def test_raising_supplier_releases_global_state(fleet: Fleet) -> None:
    totals = MetricTotals()
    a = fleet.owner("a", metrics=totals)

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"x": {}}, {"until": "x"})
        raise ZeroDivisionError("the bucket is gone")

    with pytest.raises(ZeroDivisionError, match="the bucket is gone"):
        a.supply(supplier)
    assert is_free(fleet) and fleet.global_state().progress == {"until": "x"}
    assert fleet.stored("x").status is PartitionStatus.UNASSIGNED
    assert totals.totals[SUPPLIER_FAILURES] == 1
    assert "coordination.partition_creation_supplier_invocations" not in totals.totals


def test_stop_request_releases_the_global_state(fleet: Fleet) -> None:
    def supplier(state: Mapping[str, Any]) -> list[Page]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fleet.owner("a").supply(supplier)
    assert is_free(fleet)


def test_overtaken_supplier_is_cut_off_before_its_next_page(fleet: Fleet) -> None:
    totals = MetricTotals()
    a, b = fleet.owner("a", metrics=totals), fleet.owner("b")
    cleaned_up: list[str] = []

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        try:
            yield Page({"x": {}}, {"by": "a, first page"})
            fleet.lease_passes()
            b.supply(finding("y", state={"by": "b"}))
            yield Page({"z": {}}, {"by": "a, second page"})
            raise AssertionError("it must be cut off")
        finally:
            cleaned_up.append("a")

    assert a.supply(supplier) == ["x"]
    assert cleaned_up == ["a"]
    assert a.view.get("z") is None
    assert is_free(fleet) and fleet.global_state().progress == {"by": "b"}
    assert totals.totals[SUPPLIER_FAILURES] == 1


def test_overtaken_supplier_leaves_global_state_to_its_new_owner(fleet: Fleet) -> None:
    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        taken(fleet, by="b")
        yield Page({"x": {}}, {"by": "a"})

    assert fleet.owner("a").supply(supplier) == []
    assert fleet.global_state().owner == "b" and fleet.global_state().progress == {}


def test_supplier_with_an_expired_free_lease_continues(fleet: Fleet) -> None:
    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        fleet.lease_passes()
        yield Page({"x": {}}, {"until": "x"})

    assert fleet.owner("a").supply(supplier) == ["x"]
    assert fleet.global_state().progress == {"until": "x"}


@pytest.mark.parametrize("error", [None, ZeroDivisionError("the bucket is gone")], ids=["success", "failure"])
def test_failed_release_hides_no_error_and_the_lease_expires(fleet: Fleet, error: Exception | None) -> None:
    a, b = fleet.owner("a"), fleet.owner("b")

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"x": {}})
        fleet.store.fault = NOT_MADE  # the next write is the release
        if error:
            raise error

    if error:
        with pytest.raises(ZeroDivisionError, match="the bucket is gone"):
            a.supply(supplier)
    else:
        assert a.supply(supplier) == ["x"]
    assert b.supply(never) is None
    fleet.lease_passes()
    assert b.supply(finding("y")) == ["y"]


def test_worker_reuses_its_own_lease_after_a_failed_release(fleet: Fleet) -> None:
    a = fleet.owner("a")

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"x": {}})
        fleet.store.fault = NOT_MADE  # the next write is the release

    a.supply(supplier)
    assert fleet.global_state().owner == "a"
    assert a.supply(finding("y")) == ["y"]
    assert is_free(fleet)


def test_unavailable_store_ends_the_listing_with_its_error(fleet: Fleet) -> None:
    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"x": {}})
        fleet.store.away = True
        yield Page({"y": {}})

    with pytest.raises(StoreUnavailableError, match="connection reset"):
        fleet.owner("a").supply(supplier)


def test_generator_is_closed_when_page_creation_fails(fleet: Fleet) -> None:
    cleaned_up = threading.Event()

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        try:
            yield Page({"x" * 2000: {}})
        finally:
            cleaned_up.set()

    with pytest.raises(ConfigurationError, match="the limit is 1024"):
        fleet.owner("a").supply(supplier)
    assert cleaned_up.is_set()


def test_unstorable_state_ends_the_run_and_keeps_the_old(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.supply(finding(state={"runs": 1}))
    with pytest.raises(ProgressError, match="is not JSON"):
        a.supply(finding(state={"runs": object()}))
    assert is_free(fleet) and fleet.global_state().progress == {"runs": 1}


@pytest.mark.parametrize("text", ["not json", '"abc"', "[1]"])
def test_unreadable_state_blocks_the_supplier_and_is_kept(fleet: Fleet, text: str) -> None:
    a = fleet.owner("a")
    a.supply(finding())
    fleet.store.store.transact(update=[replace(fleet.global_state(), unreadable_progress=text)])
    with pytest.raises(ProgressError, match="kept unchanged"):
        a.supply(never)
    assert fleet.global_state().unreadable_progress == text
    assert is_free(fleet)


# Renewal while it runs


@pytest.mark.parametrize("lazy", [True, False], ids=["a generator", "a function that returns a list"])
def test_global_state_is_renewed_while_the_supplier_is_slow(lazy: bool) -> None:
    store = InMemoryStore()

    def worker(name: str) -> SourceCoordinator:
        coordinator = SourceCoordinator(
            store, "clicks", name, prefix="test", ownership_timeout=seconds(1.2), safety_margin=seconds(0.1)
        )
        coordinator.initialize()
        return coordinator

    def version() -> int:
        item = store.get(GLOBAL_FAMILY, GLOBAL_STATE_KEY)
        assert item is not None and item.owner == "a"
        return item.version

    def listing() -> Iterator[Page]:
        start = version()
        until(lambda: version() >= start + 3)  # more than a whole lease
        assert worker("b").supply(never) is None
        yield Page({"x": {}})

    assert worker("a").supply(lambda state: listing() if lazy else list(listing())) == ["x"]
    assert not any(thread.name == "lease-renewal" for thread in threading.enumerate())


# The next partition


def test_available_partition_is_taken_without_the_supplier(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    acquired = a.get_next_partition(never)
    assert acquired is not None and acquired.partition_key == "x" and a.leases.owns("x")


def test_supplier_is_asked_if_no_partition_is_available(fleet: Fleet) -> None:
    acquired = fleet.owner("a").get_next_partition(finding("x", "y"))
    assert acquired is not None and acquired.partition_key == "x"


@pytest.mark.parametrize("supplier", [None, finding()], ids=["no supplier", "one that finds nothing"])
def test_next_partition_may_be_none(fleet: Fleet, supplier: Supplier | None) -> None:
    totals = MetricTotals()
    assert fleet.owner("a", metrics=totals).get_next_partition(supplier) is None
    assert totals.totals["coordination.no_partitions_acquired"] == 1


def test_supplier_runs_while_no_partition_is_held(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})

    def supplier(state: Mapping[str, Any]) -> list[Page]:
        assert a.leases.held == {}
        return []

    assert a.get_next_partition(supplier, force_after=seconds(-1)) is not None


def test_raising_supplier_leaves_no_partition_held(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        yield Page({"y": {}})
        raise ZeroDivisionError

    fleet.clock.advance(301)
    with suppress(ZeroDivisionError):
        a.get_next_partition(supplier, force_after=seconds(300))
    assert a.leases.held == {}
    assert keys(fleet.owner("b").leases.acquire(5)) == ["x", "y"]


def test_forced_run_waits_for_the_minimum_interval(fleet: Fleet) -> None:
    a, runs = fleet.owner("a"), []

    def supplier(state: Mapping[str, Any]) -> list[Page]:
        runs.append(fleet.clock.monotonic())
        return []

    start = fleet.clock.monotonic()
    a.create_partitions({f"p{n}": {} for n in range(20)})
    for _ in range(12):
        assert a.get_next_partition(supplier, force_after=seconds(300))
        fleet.clock.advance(100)
    assert [run - start for run in runs] == [400, 800]


def test_unforced_supplier_never_runs_while_partitions_are_available(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}})
    fleet.clock.advance(10**6)
    assert a.get_next_partition(never)


def test_empty_forced_run_is_not_repeated_in_the_call(fleet: Fleet) -> None:
    a, runs = fleet.owner("a"), []

    def supplier(state: Mapping[str, Any]) -> list[Page]:
        runs.append(1)
        return []

    fleet.clock.advance(301)
    assert a.get_next_partition(supplier, force_after=seconds(300)) is None
    assert runs == [1]
