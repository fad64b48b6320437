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

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentState
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.lease_times import DEFAULT_OWNERSHIP_TIMEOUT, DEFAULT_SAFETY_MARGIN
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.coordination.suspension import REMEMBERED_SECONDS
from airflow_provider_coordination.triggers.acknowledgments import AcknowledgmentTrigger
from airflow_provider_coordination.triggers.conditions import (
    ALWAYS,
    NEVER,
    Condition,
    PartitionsDone,
    PartitionsReopened,
    SetsEnded,
    Sighting,
    Wanted,
    WorkAvailable,
)
from airflow_provider_coordination.triggers.partitions import PartitionsCompletedTrigger
from airflow_provider_coordination.triggers.polling import LISTING_INTERVAL, PURGE_INTERVAL, SourceWatch
from airflow_provider_coordination.triggers.watchers import Watchers
from tests.support.clock import ManualClock
from tests.support.delivered import RUN, delivered, state, status
from tests.support.watched import Watched, in_loop, pause, payload_of, until, watched_store

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
EVERYTHING = Wanted.SETS | Wanted.COMPLETION | Wanted.AVAILABILITY


@pytest.fixture
def store(connect: Any) -> Iterator[Watched]:
    connect("coordination_default", "coordination", extra={"url": "sqlite:////nowhere/coordination.db"})
    connect("the_same", "coordination", extra={"url": "sqlite:////nowhere/coordination.db"})
    with watched_store() as store:
        yield store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clicks(store: Watched, clock: ManualClock) -> SourceCoordinator:
    """Return a coordinator of source `clicks` that asks the store without being counted."""
    coordinator = SourceCoordinator(store.store, "clicks", "a job", clock=clock)
    coordinator.initialize()
    return coordinator


@pytest.fixture
def watch(store: Watched, clicks: SourceCoordinator, clock: ManualClock) -> SourceWatch:
    coordinator = SourceCoordinator(store, "clicks", "a watcher", clock=clock)
    coordinator.initialize()
    store.calls.clear()
    return SourceWatch(coordinator, AcknowledgmentSets(coordinator))


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


def test_triggers_of_one_source_share_a_watcher_and_those_of_one_store_share_the_store(store: Watched) -> None:
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


def test_a_store_stays_open_while_another_source_of_it_is_watched(store: Watched) -> None:
    async def leave(watchers: Watchers) -> None:
        clicks, orders = await waiting(1, "clicks", "orders")
        await until(lambda: store.opened > 0)
        await stopped(clicks)
        await pause(watchers)
        assert list(watchers.stores) and not store.closed
        await stopped(orders)

    in_loop(leave)
    assert store.wait_until_closed()


def test_one_event_tells_all_who_wait(store: Watched, clicks: SourceCoordinator) -> None:
    clicks.create_partitions({"a": {}})
    clicks.leases.acquire(1)

    async def wait(watchers: Watchers) -> list[Any]:
        tasks = await waiting(20, "clicks")
        await until(lambda: store.opened > 0)
        clicks.leases.complete("a", {})
        return await asyncio.gather(*tasks)

    assert [payload["status"] for payload in in_loop(wait)] == ["done"] * 20


def test_a_loop_that_ends_leaves_no_store_open(store: Watched) -> None:
    async def leave_running(watchers: Watchers) -> None:
        await waiting(2, "clicks")
        await until(lambda: store.opened > 0)

    in_loop(leave_running)
    assert store.wait_until_closed()


# A store that is away


def test_a_store_that_is_away_is_waited_for_and_told_of_once(
    store: Watched, clicks: SourceCoordinator, caplog: pytest.LogCaptureFixture
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
    told = [r.getMessage() for r in caplog.records if "cannot be watched" in r.getMessage()]
    assert told[0] == "source clicks: the store cannot be watched, trying again: connection reset"
    assert [line for line in told[1:] if "it works again after" not in line] == []


def test_a_store_that_is_away_from_the_start_is_waited_for(store: Watched, clicks: SourceCoordinator) -> None:
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


def test_an_error_that_nobody_foresaw_does_not_end_the_waiting(
    store: Watched, clicks: SourceCoordinator, monkeypatch: pytest.MonkeyPatch
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


# What a look costs and finds


def calls(store: Watched, watch: SourceWatch, wanted: Wanted, *instants: datetime) -> Counter[str]:
    store.calls.clear()
    watch.look(wanted, instants)
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
def test_a_look_costs_a_few_small_queries(
    store: Watched, watch: SourceWatch, clicks: SourceCoordinator, wanted: Wanted, queries: int
) -> None:
    delivered(clicks, *(f"p{number}" for number in range(30)))
    clicks.create_partitions({f"q{number}": {} for number in range(30)})
    for partition in clicks.leases.acquire(10):
        clicks.leases.close(partition.partition_key, HOUR)
    watch.look(wanted)  # the first one lists the pending sets
    assert calls(store, watch, wanted) == {"query": queries}


def test_whether_the_source_is_suspended_is_asked_where_it_matters_and_once_in_some_seconds(
    store: Watched, watch: SourceWatch, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    assert calls(store, watch, EVERYTHING)["get"] == 0
    clicks.create_partitions({"a": {}})
    assert calls(store, watch, Wanted.COMPLETION)["get"] == 0
    assert [calls(store, watch, wanted)["get"] for wanted in (Wanted.AVAILABILITY, Wanted.SUSPENSION)] == [1, 0]
    clock.advance(REMEMBERED_SECONDS)
    assert calls(store, watch, Wanted.SUSPENSION)["get"] == 1


def test_what_is_suspended_has_no_work_and_is_seen_to_be_suspended(
    watch: SourceWatch, clicks: SourceCoordinator
) -> None:
    clicks.create_partitions({"a": {}})
    clicks.view.suspensions.suspend("ann")
    seen = watch.look(EVERYTHING | Wanted.SUSPENSION).sighting
    assert (seen.is_available, seen.is_suspended, seen.is_unfinished) == (False, True, True)


def test_a_partition_that_stays_behind_is_asked_before_all_others(
    store: Watched, watch: SourceWatch, clicks: SourceCoordinator
) -> None:
    clicks.create_partitions({f"p{number}": {} for number in range(30)})
    watch.look(Wanted.COMPLETION, [NOON])
    assert calls(store, watch, Wanted.COMPLETION, NOON, NOON + HOUR)["get"] == 1
    assert store.calls.count("query") == 3


def test_pending_sets_are_listed_for_newcomers_and_once_a_minute(
    store: Watched, watch: SourceWatch, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    [ours] = delivered(clicks, "a")
    assert watch.look(Wanted.SETS).sighting.pending == {RUN: frozenset({ours})}
    assert watch.look(Wanted.SETS).sighting.pending is None
    assert watch.look(Wanted.SETS | Wanted.LISTING).sighting.pending is not None
    clock.advance(LISTING_INTERVAL.total_seconds())
    assert watch.look(Wanted.SETS).sighting.pending is not None


def test_sets_that_ended_since_the_last_look_are_seen_whoever_ended_them(
    watch: SourceWatch, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    names = delivered(clicks, "a", "b")
    watch.look(Wanted.SETS)
    AcknowledgmentSets(clicks).acknowledge(names[0], positive=True)
    clock.advance(10)
    assert watch.look(Wanted.SETS).sighting.ended == {names[0]}
    AcknowledgmentSets(clicks).cancel(names[1], "not needed")
    clock.advance(40)
    assert names[1] in watch.look(Wanted.SETS).sighting.ended


def test_sets_that_ended_long_ago_are_purged_now_and_then(
    watch: SourceWatch, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    [name] = delivered(clicks, "a")
    sets = AcknowledgmentSets(clicks)
    sets.acknowledge(name, positive=True)
    clock.advance(timedelta(days=1).total_seconds() + PURGE_INTERVAL.total_seconds())
    watch.look(Wanted.NOTHING)
    assert list(sets.view.ended_since(NEVER)) == []


def test_a_look_does_what_is_due_whatever_is_wanted(
    watch: SourceWatch, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    [name] = delivered(clicks, "a", timeout=timedelta(minutes=30))
    clicks.create_partitions({"b": {}})
    clicks.leases.acquire(1)
    clicks.leases.close("b", HOUR)
    began = clock.now()
    assert watch.look(Wanted.NOTHING).next_due == began + timedelta(minutes=30)
    clock.advance(1800)
    assert watch.look(Wanted.NOTHING).next_due == began + HOUR
    assert state(clicks, name) is AcknowledgmentState.EXPIRED
    clock.advance(1800)
    assert watch.look(Wanted.NOTHING).next_due is None
    assert status(clicks, "b") is PartitionStatus.UNASSIGNED


def test_the_end_of_a_lease_is_due_for_those_who_wait_for_work(
    watch: SourceWatch, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    clicks.create_partitions({"a": {}, "b": {}})
    acquired_at = clock.now()
    clicks.leases.acquire(1)
    clicks.leases.acquire(1)
    clicks.leases.give_up("b", after=timedelta(seconds=30))
    assert watch.look(Wanted.AVAILABILITY).next_due == clock.now() + timedelta(seconds=30)
    clock.advance(31)
    look = watch.look(Wanted.AVAILABILITY)
    assert look.sighting.is_available
    assert look.next_due == acquired_at + DEFAULT_OWNERSHIP_TIMEOUT + DEFAULT_SAFETY_MARGIN


def test_what_is_overdue_and_cannot_be_done_is_not_due_at_once_again(
    store: Watched, watch: SourceWatch, clicks: SourceCoordinator, clock: ManualClock
) -> None:
    delivered(clicks, "a")
    item = store.store.query("clicks|ACKNOWLEDGMENT", PartitionStatus.UNASSIGNED)[0]
    store.store.transact(update=[item.with_progress({"no": "set"})])
    clock.advance(7200)
    assert watch.look(Wanted.SETS).next_due is None


def test_progress_that_tells_nothing_of_delivery_is_behind(watch: SourceWatch, clicks: SourceCoordinator) -> None:
    for key, told in (("a", {}), ("b", {"delivered_until": "soon"}), ("c", {"delivered_until": 7})):
        clicks.create_partitions({key: told})
        assert watch.look(Wanted.COMPLETION, [NOON]).sighting.delivered_until == NEVER


# Conditions


@pytest.mark.parametrize(
    ("condition", "seen", "met"),
    [
        (SetsEnded(["a"]), Sighting(), None),
        (SetsEnded(["a"]), Sighting(pending={"r": frozenset("ab")}), None),
        (SetsEnded(["a"]), Sighting(pending={"r": frozenset("b")}), "ended"),
        (SetsEnded(["a"]), Sighting(pending={"r": frozenset("ab")}, ended=frozenset("a")), "ended"),
        (SetsEnded(None, "r"), Sighting(pending={"r": frozenset("a")}), None),
        (SetsEnded(None, "r"), Sighting(pending={"other": frozenset("a")}), "ended"),
        (PartitionsDone(), Sighting(exists=False, is_unfinished=False), None),
        (PartitionsDone(), Sighting(exists=True, is_unfinished=True), None),
        (PartitionsDone(), Sighting(exists=True, is_unfinished=False), "done"),
        (PartitionsDone(), Sighting(exists=True, is_parked=True), "parked"),
        (PartitionsDone(NOON), Sighting(exists=True, delivered_until=NOON - HOUR), None),
        (PartitionsDone(NOON), Sighting(exists=True, delivered_until=NOON), "done"),
        (PartitionsDone(NOON), Sighting(exists=False, delivered_until=ALWAYS), None),
        (PartitionsDone(NOON), Sighting(exists=True, is_parked=True, parked_until=NEVER), "parked"),
        (PartitionsDone(NOON), Sighting(exists=True, is_parked=True, parked_until=NOON, delivered_until=NOON), "done"),
        (WorkAvailable(), Sighting(), None),
        (WorkAvailable(), Sighting(is_available=True), "available"),
        (PartitionsReopened(NOON), Sighting(reopens_at=NOON), None),
        (PartitionsReopened(NOON), Sighting(reopens_at=NOON + HOUR), "reopened"),
        (PartitionsReopened(NOON), Sighting(), "reopened"),
        (PartitionsReopened(NOON), Sighting(is_suspended=True), None),
    ],
)
def test_a_condition_is_judged_by_what_was_seen(condition: Condition, seen: Sighting, met: str | None) -> None:
    assert condition.met_by(seen) == met


def test_a_condition_of_sets_asks_for_the_list_only_at_first() -> None:
    condition = SetsEnded(["a"])
    assert Wanted.LISTING in condition.wanted
    condition.met_by(Sighting(pending={"r": frozenset("a")}))
    assert Wanted.LISTING not in condition.wanted
    assert condition.met_by(Sighting(ended=frozenset("a"))) == "ended"


def test_a_kill_while_the_store_is_away_raises_and_leaves_nothing_open(store: Watched) -> None:
    store.away = True

    async def kill(watchers: Watchers) -> None:
        with contextlib.suppress(Exception):
            await AcknowledgmentTrigger(source="clicks", run=RUN).on_kill()
            raise AssertionError("it said nothing")
        assert watchers.stores == {}

    in_loop(kill)
    assert store.wait_until_closed()


def test_what_becomes_due_while_a_look_is_under_way_is_not_forgotten(
    store: Watched, watch: SourceWatch, clicks: SourceCoordinator, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered(clicks, "a", timeout=timedelta(seconds=30))
    due = clock.now() + timedelta(seconds=30)
    clock.advance(29)
    first = watch.coordinator.view.first

    def slowly(status: PartitionStatus) -> Any:
        clock.advance(2)
        return first(status)

    monkeypatch.setattr(watch.coordinator.view, "first", slowly)
    assert watch.look(Wanted.NOTHING).next_due == due
