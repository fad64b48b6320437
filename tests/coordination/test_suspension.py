"""A suspended source: no new work starts, held partitions finish, and workers notice within seconds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import PartitionUpdateError, StoreUnavailableError
from airflow_provider_coordination.coordination.partition import PartitionStatus, new_partition
from airflow_provider_coordination.coordination.supplier import Page
from airflow_provider_coordination.coordination.suspension import CACHE_SECONDS, KEY, Suspension
from airflow_provider_coordination.coordination.texts import MAX_TEXT_CHARACTERS
from tests.coordination.fleet import Fleet, keys
from tests.coordination.unreliable_store import Fault

FAMILY = "test|clicks|SUPERVISOR"
HOUR = timedelta(hours=1)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()


@pytest.fixture
def user(fleet: Fleet) -> SourceCoordinator:
    """A user who works on no partition."""
    return fleet.owner("person")


def never(state: Mapping[str, Any]) -> list[Page]:
    raise AssertionError("the supplier must not run")


def test_source_runs_unless_suspended(fleet: Fleet, user: SourceCoordinator) -> None:
    assert user.view.suspensions.get() is None and user.view.suspension() is None
    assert user.view.suspensions.known is None
    assert fleet.store.source_identifiers() == []


def test_suspension_reports_time_user_and_reason(fleet: Fleet, user: SourceCoordinator) -> None:
    said = user.view.suspensions.suspend("ann", "the table is migrated")
    assert said == Suspension(since=fleet.clock.now(), by="ann", reason="the table is migrated")
    assert fleet.owner("b").view.suspension() == said
    assert str(said) == "suspended by ann since 2026-01-01T00:00:00Z: the table is migrated"


def test_suspension_is_reported_in_one_line(user: SourceCoordinator) -> None:
    said = user.view.suspensions.suspend("ann", "first\n  second\r\nthird ")
    assert str(said) == "suspended by ann since 2026-01-01T00:00:00Z: first second third"


def test_user_and_reason_may_be_unknown(user: SourceCoordinator) -> None:
    assert str(user.view.suspensions.suspend()) == "suspended since 2026-01-01T00:00:00Z"


# What it means


def test_suspended_source_is_not_acquired(fleet: Fleet, user: SourceCoordinator) -> None:
    user.create_partitions({"x": {}})
    user.view.suspensions.suspend()
    a = fleet.owner("a")
    assert a.leases.acquire(1) == [] and a.get_next_partition() is None
    assert fleet.stored().status is PartitionStatus.UNASSIGNED


def test_supplier_of_a_suspended_source_does_not_run(fleet: Fleet, user: SourceCoordinator) -> None:
    user.view.suspensions.suspend()
    a = fleet.owner("a")
    assert a.supply(never) is None
    assert a.get_next_partition(never) is None and a.get_next_partition(never, force_after=timedelta(0)) is None
    assert fleet.store.store.get("test|clicks|GLOBAL_STATE", "GLOBAL_STATE") is None


def test_running_supplier_ends_before_its_next_page_and_resumes(fleet: Fleet, user: SourceCoordinator) -> None:
    a = fleet.owner("a")
    asked = []

    def supplier(state: Mapping[str, Any]) -> Iterator[Page]:
        for page in range(state.get("next", 0), 4):
            asked.append(page)
            if page == 2 and asked.count(2) == 1:
                user.view.suspensions.suspend()
                fleet.clock.advance(CACHE_SECONDS)
            yield Page({f"p{page}": {}}, {"next": page + 1})

    assert a.supply(supplier) == ["p0", "p1"]
    assert fleet.global_state().progress == {"next": 2} and fleet.global_state().owner is None
    user.view.suspensions.resume()
    fleet.clock.advance(CACHE_SECONDS)
    assert a.supply(supplier) == ["p2", "p3"]
    assert asked == [0, 1, 2, 2, 3]


def test_suspended_source_has_no_work(fleet: Fleet, user: SourceCoordinator) -> None:
    user.create_partitions({"x": {}})
    assert fleet.owner("a").view.is_available()
    user.view.suspensions.suspend()
    assert not fleet.owner("b").view.is_available()


def test_held_partition_can_complete_and_create_successors(fleet: Fleet, user: SourceCoordinator) -> None:
    a = fleet.working("a", "x", "y", "z")
    user.view.suspensions.suspend()
    fleet.clock.advance(CACHE_SECONDS)
    a.leases.renew("x")
    a.leases.checkpoint("x", {"n": 1})
    a.leases.complete("x", create={"child": {}})
    a.leases.close("y", HOUR)
    a.leases.give_up("z")
    assert fleet.stored("child").status is PartitionStatus.UNASSIGNED
    assert a.leases.acquire(9) == []


def test_partitions_reopen_while_the_source_is_suspended(fleet: Fleet, user: SourceCoordinator) -> None:
    fleet.working("a", "x").leases.close("x", HOUR)
    user.view.suspensions.suspend()
    fleet.clock.advance(3600)
    assert user.reopen_due() == ["x"]


def test_other_sources_and_installations_continue(fleet: Fleet, user: SourceCoordinator) -> None:
    user.view.suspensions.suspend()
    for source, prefix in (("clicks", None), ("clicks", "other"), ("orders", "test")):
        other = SourceCoordinator(fleet.store, source, "a", prefix=prefix, clock=fleet.clock)
        other.initialize()
        other.create_partitions({"x": {}})
        assert keys(other.leases.acquire(1)) == ["x"]


def test_resumed_source_continues(fleet: Fleet, user: SourceCoordinator) -> None:
    user.create_partitions({"x": {}})
    said = user.view.suspensions.suspend("ann")
    a = fleet.owner("a")
    assert a.leases.acquire(1) == []
    assert user.view.suspensions.resume("bob", "done") == said
    assert user.view.suspension() is None
    fleet.clock.advance(CACHE_SECONDS)
    assert keys(a.leases.acquire(1)) == ["x"] and a.supply(lambda state: [Page({"y": {}})]) == ["y"]


# What it costs


def looks(fleet: Fleet) -> int:
    return fleet.store.calls.count("get")


def test_worker_checks_once_in_some_seconds(fleet: Fleet) -> None:
    a = fleet.owner("a")
    a.create_partitions({f"p{n}": {} for n in range(9)})
    for _ in range(3):
        a.leases.acquire(1)
        a.view.is_available()
    assert looks(fleet) == 1
    fleet.clock.advance(CACHE_SECONDS)
    a.leases.acquire(1)
    assert looks(fleet) == 2


def test_work_check_without_work_reads_nothing_more(fleet: Fleet) -> None:
    assert not fleet.owner("a").view.is_available()
    assert looks(fleet) == 0


def test_worker_notices_within_seconds(fleet: Fleet, user: SourceCoordinator) -> None:
    a = fleet.owner("a")
    a.create_partitions({"x": {}, "y": {}})
    a.leases.acquire(1)
    user.view.suspensions.suspend()
    fleet.clock.advance(CACHE_SECONDS)
    assert a.leases.acquire(1) == []


def test_invalidation_forces_an_immediate_check(fleet: Fleet, user: SourceCoordinator) -> None:
    a = fleet.owner("a")
    assert a.view.suspension() is None
    said = user.view.suspensions.suspend()
    assert a.view.suspension() is None
    a.view.suspensions.invalidate()
    assert a.view.suspension() == said and a.view.suspensions.known == said


def test_unavailable_store_neither_suspends_nor_permits(fleet: Fleet) -> None:
    a = fleet.owner("a")
    fleet.store.away = True
    with pytest.raises(StoreUnavailableError):
        a.view.suspension()
    with pytest.raises(StoreUnavailableError):
        a.leases.acquire(1)


def test_suspension_and_resumption_are_logged_once(
    fleet: Fleet, user: SourceCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    user.view.suspensions.suspend("ann", "why not")
    a = fleet.owner("a")
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            a.leases.acquire(1)
            a.supply(never)
        user.view.suspensions.resume("bob")
        fleet.clock.advance(CACHE_SECONDS)
        a.leases.acquire(1)
        a.leases.acquire(1)
    assert caplog.messages == [
        "source is suspended by ann since 2026-01-01T00:00:00Z: why not: no new work starts: source=clicks",
        "source resumed: source=test|clicks by=bob reason=''",
        "source resumed: source=clicks",
    ]


# Saying it


def test_suspending_again_changes_nothing(fleet: Fleet, user: SourceCoordinator) -> None:
    first = user.view.suspensions.suspend("ann", "first")
    fleet.clock.advance(60)
    assert fleet.owner("b").view.suspensions.suspend("bob", "second") == first


def test_resuming_an_active_source_returns_no_suspension(user: SourceCoordinator) -> None:
    assert user.view.suspensions.resume("ann") is None


def test_resume_leaves_a_newer_suspension_alone(fleet: Fleet, user: SourceCoordinator) -> None:
    seen = user.view.suspensions.suspend("ann")
    user.view.suspensions.resume("bob")
    fleet.clock.advance(1)
    now = user.view.suspensions.suspend("bob", "once more")
    with pytest.raises(
        PartitionUpdateError,
        match=r"source 'test\|clicks' was suspended again .*: it is now suspended by bob "
        r"since 2026-01-01T00:00:01Z: once",
    ):
        user.view.suspensions.resume("ann", since=seen.since)
    assert user.view.suspensions.get() == now
    assert user.view.suspensions.resume("ann", since=now.since) == now


def test_concurrent_resumes_both_succeed(fleet: Fleet, user: SourceCoordinator) -> None:
    said = user.view.suspensions.suspend("ann")

    def somebody_is_faster() -> None:
        item = fleet.store.store.get(FAMILY, KEY)
        assert item is not None
        fleet.store.store.delete(item)

    fleet.store.fault = Fault(before=somebody_is_faster)
    assert user.view.suspensions.resume("bob") == said
    assert user.view.suspensions.get() is None


def test_suspend_during_a_resume_suspends_again(fleet: Fleet, user: SourceCoordinator) -> None:
    other = fleet.owner("other").view.suspensions
    other.suspend("ann")
    fleet.clock.advance(1)
    fleet.store.fault = Fault(after=lambda: other.resume("ann"))
    assert user.view.suspensions.suspend("bob").by == "bob"


def test_any_text_of_a_user_can_be_stored(user: SourceCoordinator) -> None:
    said = user.view.suspensions.suspend("ann\0", "\udc80" + "x" * 100_000)
    assert (said.by, len(said.reason), said.reason[:2]) == ("ann\N{REPLACEMENT CHARACTER}", MAX_TEXT_CHARACTERS, "?x")


def test_malformed_suspension_still_suspends(fleet: Fleet, user: SourceCoordinator) -> None:
    item = new_partition(FAMILY, KEY, fleet.clock.now()).with_progress({"by": 7, "reason": None})
    fleet.store.create([item])
    assert user.view.suspension() == Suspension(since=fleet.clock.now())
