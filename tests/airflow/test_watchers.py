"""All triggers of a process that wait for a source share one watcher, whose cost does not depend on their number."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.held_leases import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.suspension import CACHE_SECONDS
from airflow_provider_coordination.stores import StoreSettings
from airflow_provider_coordination.triggers.conditions import (
    ALWAYS,
    NEVER,
    Condition,
    PartitionsDone,
    PartitionsReopened,
    SetsEnded,
    SourceSnapshot,
    Wanted,
    WorkAvailable,
)
from airflow_provider_coordination.triggers.partitions import AcknowledgmentTrigger, PartitionsCompletedTrigger
from airflow_provider_coordination.triggers.polling import LISTING_INTERVAL, PURGE_INTERVAL, SourcePoller
from airflow_provider_coordination.triggers.watchers import Watchers
from tests.support.clock import ManualClock
from tests.support.delivered import RUN, delivered, state, status
from tests.support.watched import WatchedStore, in_loop, pause, payload_of, until, watched_store

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
EVERYTHING = Wanted.SETS | Wanted.COMPLETION | Wanted.AVAILABILITY


@pytest.fixture
def store(connect: Any) -> Iterator[WatchedStore]:
    connect("coordination_default", "coordination", extra={"url": "sqlite:////nowhere/coordination.db"})
    connect("the_same", "coordination", extra={"url": "sqlite:////nowhere/coordination.db"})
    with watched_store() as store:
        yield store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clicks(store: WatchedStore, clock: ManualClock) -> SourceCoordinator:
    """Return a coordinator of source `clicks` that asks the store without being counted."""
    coordinator = SourceCoordinator(store.store, "clicks", "a job", clock=clock)
    coordinator.initialize()
    return coordinator


@pytest.fixture
def poller(store: WatchedStore, clicks: SourceCoordinator, clock: ManualClock) -> SourcePoller:
    coordinator = SourceCoordinator(store, "clicks", "a watcher", clock=clock)
    coordinator.initialize()
    store.calls.clear()
    return SourcePoller(coordinator, AcknowledgmentSets(coordinator))


def test_work_can_query_airflow_from_any_thread(store: WatchedStore) -> None:
    """A triggerer of Airflow 3.1 or 3.2 answers a request only in its own event loop."""
    settings = StoreSettings.from_url("sqlite:////nowhere/coordination.db")

    async def requested() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def run(watchers: Watchers) -> None:
        shared = watchers.enter(settings)
        answered_in = [
            await shared.run(async_to_sync(requested), queries_source=queries_source)
            for queries_source in (False, True)
        ]
        assert answered_in == [asyncio.get_running_loop()] * 2
        watchers.leave(settings)

    in_loop(run)


# Sharing


async def waiting(count: int, *sources: str, conn_id: str = "coordination_default") -> list[asyncio.Task[Any]]:
    triggers = [
        PartitionsCompletedTrigger(source=source, coordination_conn_id=conn_id)
        for source in sources
        for _ in range(count)
    ]
    return [asyncio.create_task(payload_of(trigger)) for trigger in triggers]


async def stopped(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def test_triggers_share_watchers_and_stores(store: WatchedStore) -> None:
    async def share(watchers: Watchers) -> tuple[int, int, int]:
        tasks = await waiting(5, "clicks", "orders") + await waiting(5, "clicks", conn_id="the_same")
        await until(lambda: store.opened > 0 and len(watchers.connections) == 2)
        await pause(watchers)
        counts = len(watchers.sources), len(watchers.stores), store.opened
        await stopped(*tasks)
        assert (watchers.sources, watchers.stores, watchers.connections) == ({}, {}, {})
        return counts

    assert in_loop(share) == (2, 1, 1)
    assert store.wait_until_closed()


def test_store_stays_open_while_another_source_is_watched(store: WatchedStore) -> None:
    async def leave(watchers: Watchers) -> None:
        clicks, orders = await waiting(1, "clicks", "orders")
        await until(lambda: store.opened > 0)
        await stopped(clicks)
        await pause(watchers)
        assert list(watchers.stores) and not store.closed
        await stopped(orders)

    in_loop(leave)
    assert store.wait_until_closed()


def test_poll_notifies_all_waiters(store: WatchedStore, clicks: SourceCoordinator) -> None:
    clicks.create_partitions({"a": {}})
    clicks.leases.acquire(1)

    async def wait(watchers: Watchers) -> list[Any]:
        tasks = await waiting(20, "clicks")
        await until(lambda: store.opened > 0)
        clicks.leases.complete("a", {})
        return await asyncio.gather(*tasks)

    assert [payload["status"] for payload in in_loop(wait)] == ["done"] * 20


def test_ended_loop_leaves_no_store_open(store: WatchedStore) -> None:
    async def leave_running(watchers: Watchers) -> None:
        await waiting(2, "clicks")
        await until(lambda: store.opened > 0)

    in_loop(leave_running)
    assert store.wait_until_closed()


# An unavailable store


def test_unavailable_store_is_waited_for_and_logged_once(
    store: WatchedStore, clicks: SourceCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    clicks.create_partitions({"a": {}})
    clicks.leases.acquire(1)
    caplog.set_level(logging.INFO)

    async def wait(watchers: Watchers) -> Any:
        [task] = await waiting(1, "clicks")
        await until(lambda: store.opened > 0)
        store.away = True
        await until(lambda: store.failures >= 3)
        clicks.leases.complete("a", {})
        store.away = False
        return await task

    assert in_loop(wait)["status"] == "done"
    messages = [r.getMessage() for r in caplog.records if "cannot be polled" in r.getMessage()]
    assert messages[0] == "source clicks: the store cannot be polled; trying again: connection reset"
    assert [line for line in messages[1:] if "it succeeded again after" not in line] == []


def test_initially_unavailable_store_is_waited_for(store: WatchedStore, clicks: SourceCoordinator) -> None:
    store.away = True

    async def wait(watchers: Watchers) -> Any:
        [task] = await waiting(1, "clicks")
        await until(lambda: store.failures >= 2)
        clicks.create_partitions({"a": {}})
        clicks.leases.acquire(1)
        clicks.leases.complete("a", {})
        store.away = False
        return await task

    assert in_loop(wait)["status"] == "done"


def test_unexpected_error_does_not_end_the_wait(
    store: WatchedStore, clicks: SourceCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks.create_partitions({"a": {}})
    clicks.leases.acquire(1)
    clicks.leases.complete("a", {})
    failures = iter([ZeroDivisionError("once"), ValueError("twice")])
    query = store.query

    def failing(*args: Any, **kwargs: Any) -> Any:
        if (error := next(failures, None)) is not None:
            raise error
        return query(*args, **kwargs)

    monkeypatch.setattr(store, "query", failing)

    async def wait(watchers: Watchers) -> Any:
        [task] = await waiting(1, "clicks")
        return await task

    assert in_loop(wait)["status"] == "done"


# What a poll costs and finds


def calls(store: WatchedStore, poller: SourcePoller, wanted: Wanted, *instants: datetime) -> Counter[str]:
    store.calls.clear()
    poller.poll(wanted, instants)
    return Counter(store.calls)


@pytest.mark.parametrize(
    ("wanted", "queries"),
    [
        (Wanted.NOTHING, 2),
        (Wanted.SETS, 3),
        (Wanted.AVAILABILITY, 4),
        (Wanted.COMPLETION, 3),
        (EVERYTHING, 6),
    ],
)
def test_poll_costs_a_few_small_queries(
    store: WatchedStore, poller: SourcePoller, clicks: SourceCoordinator, wanted: Wanted, queries: int
) -> None:
    delivered(clicks, *(f"p{number}" for number in range(30)))
    clicks.create_partitions({f"q{number}": {} for number in range(30)})
    for partition in clicks.leases.acquire(10):
        clicks.leases.close(partition.partition_key, HOUR)
    poller.poll(wanted)  # the first one lists the pending sets
    assert calls(store, poller, wanted) == {"query": queries}


def test_suspension_is_queried_only_when_needed_and_cached(
    store: WatchedStore, poller: SourcePoller, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    assert calls(store, poller, EVERYTHING)["get"] == 0
    clicks.create_partitions({"a": {}})
    assert calls(store, poller, Wanted.COMPLETION)["get"] == 0
    assert [calls(store, poller, wanted)["get"] for wanted in (Wanted.AVAILABILITY, Wanted.SUSPENSION)] == [1, 0]
    clock.advance(CACHE_SECONDS)
    assert calls(store, poller, Wanted.SUSPENSION)["get"] == 1


def test_suspended_source_has_no_work_and_is_reported(poller: SourcePoller, clicks: SourceCoordinator) -> None:
    clicks.create_partitions({"a": {}})
    clicks.view.suspensions.suspend("ann")
    seen = poller.poll(EVERYTHING | Wanted.SUSPENSION).snapshot
    assert (seen.is_available, seen.is_suspended, seen.is_unfinished) == (False, True, True)


def test_partition_that_lags_is_queried_first(
    store: WatchedStore, poller: SourcePoller, clicks: SourceCoordinator
) -> None:
    clicks.create_partitions({f"p{number}": {} for number in range(30)})
    poller.poll(Wanted.COMPLETION, [NOON])
    assert calls(store, poller, Wanted.COMPLETION, NOON, NOON + HOUR)["get"] == 1
    assert store.calls.count("query") == 3


def test_pending_sets_are_listed_for_newcomers_and_every_minute(
    store: WatchedStore, poller: SourcePoller, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    [ours] = delivered(clicks, "a")
    assert poller.poll(Wanted.SETS).snapshot.pending == {RUN: frozenset({ours})}
    assert poller.poll(Wanted.SETS).snapshot.pending is None
    assert poller.poll(Wanted.SETS | Wanted.LISTING).snapshot.pending is not None
    clock.advance(LISTING_INTERVAL.total_seconds())
    assert poller.poll(Wanted.SETS).snapshot.pending is not None


def test_sets_ended_since_the_last_poll_are_seen(
    poller: SourcePoller, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    names = delivered(clicks, "a", "b")
    poller.poll(Wanted.SETS)
    AcknowledgmentSets(clicks).acknowledge(names[0], positive=True)
    clock.advance(10)
    assert poller.poll(Wanted.SETS).snapshot.ended == {names[0]}
    AcknowledgmentSets(clicks).cancel(names[1], "not needed")
    clock.advance(40)
    assert names[1] in poller.poll(Wanted.SETS).snapshot.ended


def test_old_ended_sets_are_purged_occasionally(
    poller: SourcePoller, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    [name] = delivered(clicks, "a")
    sets = AcknowledgmentSets(clicks)
    sets.acknowledge(name, positive=True)
    clock.advance(timedelta(days=1).total_seconds() + PURGE_INTERVAL.total_seconds())
    poller.poll(Wanted.NOTHING)
    assert list(sets.view.ended_since(NEVER)) == []


def test_poll_does_due_work_for_every_condition(
    poller: SourcePoller, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    [name] = delivered(clicks, "a", timeout=timedelta(minutes=30))
    clicks.create_partitions({"b": {}})
    clicks.leases.acquire(1)
    clicks.leases.close("b", HOUR)
    began = clock.now()
    assert poller.poll(Wanted.NOTHING).next_due == began + timedelta(minutes=30)
    clock.advance(1800)
    assert poller.poll(Wanted.NOTHING).next_due == began + HOUR
    assert state(clicks, name) is AcknowledgmentState.EXPIRED
    clock.advance(1800)
    assert poller.poll(Wanted.NOTHING).next_due is None
    assert status(clicks, "b") is PartitionStatus.UNASSIGNED


def test_lease_end_is_due_for_those_awaiting_work(
    poller: SourcePoller, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    clicks.create_partitions({"a": {}, "b": {}})
    acquired_at = clock.now()
    clicks.leases.acquire(1)
    clicks.leases.acquire(1)
    clicks.leases.give_up("b", after=timedelta(seconds=30))
    assert poller.poll(Wanted.AVAILABILITY).next_due == clock.now() + timedelta(seconds=30)
    clock.advance(31)
    result = poller.poll(Wanted.AVAILABILITY)
    assert result.snapshot.is_available
    assert result.next_due == acquired_at + DEFAULT_OWNERSHIP_TIMEOUT + DEFAULT_SAFETY_MARGIN


def test_overdue_set_that_cannot_expire_is_not_due_again(
    store: WatchedStore, poller: SourcePoller, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    delivered(clicks, "a")
    item = store.store.query("clicks|ACKNOWLEDGMENT", PartitionStatus.UNASSIGNED)[0]
    store.store.transact(update=[item.with_progress({"no": "set"})])
    clock.advance(7200)
    assert poller.poll(Wanted.SETS).next_due is None


def test_progress_without_a_delivery_instant_is_behind(poller: SourcePoller, clicks: SourceCoordinator) -> None:
    for key, progress in (("a", {}), ("b", {"delivered_until": "soon"}), ("c", {"delivered_until": 7})):
        clicks.create_partitions({key: progress})
        assert poller.poll(Wanted.COMPLETION, [NOON]).snapshot.delivered_until == NEVER


# Conditions


@pytest.mark.parametrize(
    ("condition", "seen", "met"),
    [
        (SetsEnded(["a"]), SourceSnapshot(), None),
        (SetsEnded(["a"]), SourceSnapshot(pending={"r": frozenset("ab")}), None),
        (SetsEnded(["a"]), SourceSnapshot(pending={"r": frozenset("b")}), "ended"),
        (SetsEnded(["a"]), SourceSnapshot(pending={"r": frozenset("ab")}, ended=frozenset("a")), "ended"),
        (SetsEnded(None, "r"), SourceSnapshot(pending={"r": frozenset("a")}), None),
        (SetsEnded(None, "r"), SourceSnapshot(pending={"other": frozenset("a")}), "ended"),
        (PartitionsDone(), SourceSnapshot(exists=False, is_unfinished=False), None),
        (PartitionsDone(), SourceSnapshot(exists=True, is_unfinished=True), None),
        (PartitionsDone(), SourceSnapshot(exists=True, is_unfinished=False), "done"),
        (PartitionsDone(), SourceSnapshot(exists=True, is_parked=True), "parked"),
        (PartitionsDone(NOON), SourceSnapshot(exists=True, delivered_until=NOON - HOUR), None),
        (PartitionsDone(NOON), SourceSnapshot(exists=True, delivered_until=NOON), "done"),
        (PartitionsDone(NOON), SourceSnapshot(exists=False, delivered_until=ALWAYS), None),
        (PartitionsDone(NOON), SourceSnapshot(exists=True, is_parked=True, parked_until=NEVER), "parked"),
        (
            PartitionsDone(NOON),
            SourceSnapshot(exists=True, is_parked=True, parked_until=NOON, delivered_until=NOON),
            "done",
        ),
        (WorkAvailable(), SourceSnapshot(), None),
        (WorkAvailable(), SourceSnapshot(is_available=True), "available"),
        (PartitionsReopened(NOON), SourceSnapshot(reopens_at=NOON), None),
        (PartitionsReopened(NOON), SourceSnapshot(reopens_at=NOON + HOUR), "reopened"),
        (PartitionsReopened(NOON), SourceSnapshot(), "reopened"),
        (PartitionsReopened(NOON), SourceSnapshot(is_suspended=True), None),
    ],
)
def test_condition_is_judged_by_the_snapshot(condition: Condition, seen: SourceSnapshot, met: str | None) -> None:
    assert condition.met_by(seen) == met


def test_sets_condition_requests_the_list_only_at_first() -> None:
    condition = SetsEnded(["a"])
    assert Wanted.LISTING in condition.wanted
    condition.met_by(SourceSnapshot(pending={"r": frozenset("a")}))
    assert Wanted.LISTING not in condition.wanted
    assert condition.met_by(SourceSnapshot(ended=frozenset("a"))) == "ended"


def test_kill_without_a_store_raises_and_leaves_nothing_open(store: WatchedStore) -> None:
    store.away = True

    async def kill(watchers: Watchers) -> None:
        with contextlib.suppress(Exception):
            await AcknowledgmentTrigger(source="clicks", run_name=RUN).on_kill()
            raise AssertionError("it said nothing")
        assert watchers.stores == {}

    in_loop(kill)
    assert store.wait_until_closed()


def test_deadline_that_passes_during_a_poll_is_kept(
    store: WatchedStore,
    poller: SourcePoller,
    clicks: SourceCoordinator,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delivered(clicks, "a", timeout=timedelta(seconds=30))
    due = clock.now() + timedelta(seconds=30)
    clock.advance(29)
    first = poller.coordinator.view.first

    def slowly(status: PartitionStatus) -> Any:
        clock.advance(2)
        return first(status)

    monkeypatch.setattr(poller.coordinator.view, "first", slowly)
    assert poller.poll(Wanted.NOTHING).next_due == due
