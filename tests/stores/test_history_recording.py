"""A store records a history: its content, its writes, its cost, and no effect on callers."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.browsing import PartitionState, state_of
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import CoordinationError, StoreUnavailableError
from airflow_provider_coordination.coordination.history import (
    FAMILY,
    History,
    HoldingEnd,
    Transition,
    holdings,
    transitions_in,
)
from airflow_provider_coordination.coordination.partition import (
    PARKED_UNTIL,
    ChangeKind,
    Partition,
    PartitionStatus,
    new_partition,
)
from airflow_provider_coordination.coordination.store import Acquisition, all_partitions
from airflow_provider_coordination.stores import StoreSettings, open_store
from airflow_provider_coordination.stores.history_recording import RETRY_PAUSE_SECONDS, RecordingStore
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from tests.support.clock import ManualClock
from tests.support.depth import examples

SOURCE = "test|clicks|PARTITION"
HISTORY = "test|clicks|HISTORY"
WEEK = timedelta(days=7)
LEASE = timedelta(seconds=60)
MARGIN = timedelta(seconds=2)


class CountingStore(InMemoryStore):
    """Counts what each write costs on DynamoDB in requests, of the history apart from the rest; can refuse history."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.of_history = 0
        self.refuses: Exception | None = None
        self.refused = 0

    def create(self, partitions: Sequence[Partition]) -> list[str]:
        for partition in partitions:
            self._count(partition.source_identifier)
        return super().create(partitions)

    def acquire(self, request: Acquisition) -> list[Partition]:
        acquired = super().acquire(request)
        self.writes += len(acquired)
        return acquired

    def transact(self, **changes: Any) -> list[Partition]:
        for partition in (*changes.get("update", ()), *changes.get("create", ()), *changes.get("new", ())):
            self._count(partition.source_identifier)
        return super().transact(**changes)

    def delete(self, partition: Partition) -> None:
        self._count(partition.source_identifier)
        super().delete(partition)

    def _count(self, source_identifier: str) -> None:
        if not source_identifier.endswith(f"|{FAMILY}"):
            self.writes += 1
        elif self.refuses is None:
            self.of_history += 1
        else:
            self.refused += 1
            raise self.refuses


class RecordedPartition:
    """A store in memory that keeps a history, a clock, and a partition."""

    def __init__(
        self,
        *,
        keep_for: timedelta = WEEK,
        max_pages: int = 10_000,
        max_pending: int = 5000,
        randomness: random.Random | None = None,
    ) -> None:
        self.clock = ManualClock()
        self.bare = CountingStore()
        self.keep_for, self.randomness = keep_for, randomness or random.Random(3)
        self.bounds = {"max_pages": max_pages, "max_pending": max_pending}
        self.store = self.another()
        self.store.create([new_partition(SOURCE, "p", self.clock.now())])

    def another(self) -> RecordingStore:
        """Return the store as another process has it."""
        return RecordingStore(self.bare, self.keep_for, clock=self.clock, randomness=self.randomness, **self.bounds)

    def acquire(self, owner: str = "a", limit: int = 1, store: RecordingStore | None = None) -> list[Partition]:
        now = self.clock.now()
        return (store or self.store).acquire(
            Acquisition(
                source_identifier=SOURCE,
                owner=owner,
                limit=limit,
                ownership_timeout=now + LEASE,
                available_by=now,
                expired_by=now - MARGIN,
            )
        )

    def write(self, partition: Partition) -> Partition:
        return self.store.transact(update=[partition])[0]

    def transitions(self) -> list[Transition]:
        """Return what was written so far."""
        pages = all_partitions(self.bare, HISTORY, PartitionStatus.COMPLETED)
        return [transition for page in pages for transition in transitions_in(page)]

    def all_transitions(self) -> list[Transition]:
        """Return all of it: what is gathered is written as at the end of the process."""
        self.store.close()
        return self.transitions()


@pytest.fixture
def recorded_partition() -> RecordedPartition:
    return RecordedPartition()


# What is noted


@pytest.mark.parametrize(
    ("change", "status", "kind", "reason"),
    [
        (lambda p, now: p.given_up(now), PartitionStatus.UNASSIGNED, ChangeKind.GIVEN_UP, "given up"),
        (lambda p, now: p.completed(now), PartitionStatus.COMPLETED, ChangeKind.COMPLETED, "completed"),
        (lambda p, now: p.recovered().completed(now), PartitionStatus.COMPLETED, ChangeKind.COMPLETED, "completed"),
        (lambda p, now: p.closed(now + LEASE), PartitionStatus.CLOSED, ChangeKind.CLOSED, "closed"),
        (lambda p, now: p.failed("no").given_up(now), PartitionStatus.UNASSIGNED, ChangeKind.FAILED, "failed: no"),
        (lambda p, now: p.failed("no").resting(now + LEASE), PartitionStatus.CLOSED, ChangeKind.FAILED, "failed: no"),
        (lambda p, now: p.failed("no").resting(PARKED_UNTIL), PartitionStatus.CLOSED, ChangeKind.FAILED, "failed: no"),
        (lambda p, now: p.reset({}, now), PartitionStatus.UNASSIGNED, ChangeKind.RESET, "reset"),
        (lambda p, now: p.reopened(now), PartitionStatus.UNASSIGNED, ChangeKind.REOPENED, "reopened"),
        (
            lambda p, now: p.awaiting(now + 2 * LEASE),
            PartitionStatus.ASSIGNED,
            ChangeKind.AWAITING,
            "waits for acknowledgments",
        ),
        (
            lambda p, now: p.acquired("b", now + LEASE).because(ChangeKind.HANDED_OVER),
            PartitionStatus.ASSIGNED,
            ChangeKind.HANDED_OVER,
            "handed over",
        ),
    ],
)
def test_each_change_is_a_transition_between_statuses(
    recorded_partition: RecordedPartition,
    change: Callable[[Partition, Any], Partition],
    status: PartitionStatus,
    kind: ChangeKind,
    reason: str,
) -> None:
    [held] = recorded_partition.acquire()
    recorded_partition.clock.advance(1)
    written = recorded_partition.write(change(held, recorded_partition.clock.now()))
    acquired, changed = recorded_partition.all_transitions()
    assert (acquired.previous_status, acquired.previous_owner, acquired.status, acquired.owner, acquired.reason) == (
        PartitionStatus.UNASSIGNED, None, PartitionStatus.ASSIGNED, "a", "acquired"
    )  # fmt: skip
    assert (changed.previous_status, changed.previous_owner, changed.previous_until) == (
        PartitionStatus.ASSIGNED, "a", held.ownership_timeout
    )  # fmt: skip
    assert (changed.status, changed.owner, changed.kind, changed.reason) == (status, written.owner, kind, reason)
    assert (changed.at, changed.version, changed.by) == (recorded_partition.clock.now(), written.version, None)


def test_creation_renewal_and_progress_are_no_transitions(recorded_partition: RecordedPartition) -> None:
    [held] = recorded_partition.acquire()
    held = recorded_partition.write(held.renewed(recorded_partition.clock.now() + 2 * LEASE))
    held = recorded_partition.write(held.with_progress({"checkpoint": 1}).recovered())
    recorded_partition.store.transact(
        update=[held.failed("no")],
        create=[new_partition(SOURCE, "q", recorded_partition.clock.now())],
        new=[new_partition(SOURCE, "r", recorded_partition.clock.now()).completed(recorded_partition.clock.now())],
    )
    assert [transition.reason for transition in recorded_partition.all_transitions()] == ["acquired"]


def test_takeover_of_an_expired_lease_names_its_previous_owner(recorded_partition: RecordedPartition) -> None:
    recorded_partition.acquire("a")
    recorded_partition.clock.advance(63)
    recorded_partition.acquire("b")
    first, second = recorded_partition.all_transitions()
    assert (second.reason, second.owner, second.previous_owner, second.previous_until) == (
        "taken over", "b", "a", first.until
    )  # fmt: skip


def test_deletion_is_a_transition(recorded_partition: RecordedPartition) -> None:
    [held] = recorded_partition.acquire()
    recorded_partition.store.delete(held)
    deleted = recorded_partition.all_transitions()[-1]
    assert (deleted.status, deleted.owner, deleted.previous_owner, deleted.reason) == (None, None, "a", "deleted")


def test_refused_write_is_no_transition(recorded_partition: RecordedPartition) -> None:
    [held] = recorded_partition.acquire()
    recorded_partition.write(held.renewed(recorded_partition.clock.now() + 2 * LEASE))
    for refused in (
        lambda: recorded_partition.write(held.completed(recorded_partition.clock.now())),
        lambda: recorded_partition.store.delete(held),
    ):
        with pytest.raises(CoordinationError):
            refused()
    assert [transition.reason for transition in recorded_partition.all_transitions()] == ["acquired"]


def test_partitions_alone_have_a_history(recorded_partition: RecordedPartition) -> None:
    now = recorded_partition.clock.now()
    families = ("test|clicks|JOB", "test|clicks|HISTORY", "clicks", "test|clicks|PARTITIONS")
    for family in families:
        [made] = [new_partition(family, "x", now)]
        recorded_partition.store.create([made])
        [held] = recorded_partition.store.transact(update=[made.acquired("a", now + LEASE)])
        recorded_partition.store.delete(held)
    assert recorded_partition.all_transitions() == []
    assert set(recorded_partition.bare.source_identifiers()) <= {SOURCE, *families}


def test_each_source_has_its_own_history(recorded_partition: RecordedPartition) -> None:
    now = recorded_partition.clock.now()
    other = new_partition("orders|PARTITION", "p", now)
    recorded_partition.store.create([other])
    recorded_partition.store.transact(update=[other.acquired("a", now + LEASE)])
    recorded_partition.acquire("b")
    recorded_partition.store.close()
    assert [t.owner for t in History(recorded_partition.bare, "orders|HISTORY").since(now)] == ["a"]
    assert [t.owner for t in History(recorded_partition.bare, HISTORY).since(now)] == ["b"]


def test_acquired_partitions_are_reported_once(recorded_partition: RecordedPartition) -> None:
    [held] = recorded_partition.acquire()
    assert held.change is None
    recorded_partition.write(held.with_progress({"n": 1}))
    assert len(recorded_partition.all_transitions()) == 1


def test_manual_action_names_its_user_and_reason(recorded_partition: RecordedPartition) -> None:
    recorded_partition.acquire()
    Administration(
        recorded_partition.store, SOURCE, recorded_partition.clock, by="ann", reason="stuck since noon"
    ).release("p")
    released = recorded_partition.transitions()[-1]
    assert (released.by, released.reason, released.previous_owner) == ("ann", "released by hand: stuck since noon", "a")


# When it is written


def test_transitions_are_batched_until_the_next_call(recorded_partition: RecordedPartition) -> None:
    [held] = recorded_partition.acquire()
    recorded_partition.write(held.given_up(recorded_partition.clock.now()))
    assert recorded_partition.transitions() == []
    recorded_partition.clock.advance(2)
    assert recorded_partition.transitions() == []
    recorded_partition.store.get(SOURCE, "p")
    assert len(recorded_partition.transitions()) == 2
    assert recorded_partition.bare.of_history == 1


def test_many_transitions_are_written_at_once(recorded_partition: RecordedPartition) -> None:
    recorded_partition.store.create(
        [new_partition(SOURCE, f"p{n}", recorded_partition.clock.now()) for n in range(300)]
    )
    assert len(recorded_partition.acquire(limit=199)) == 199
    assert recorded_partition.transitions() == []
    recorded_partition.acquire(limit=1)
    assert len(recorded_partition.transitions()) == 200


def test_manual_action_is_written_at_once_with_pending_transitions(recorded_partition: RecordedPartition) -> None:
    recorded_partition.acquire()
    Administration(recorded_partition.store, SOURCE, recorded_partition.clock, by="ann").park("p")
    assert [transition.reason for transition in recorded_partition.transitions()] == ["acquired", "parked by hand"]


def test_many_manual_actions_write_one_page_per_second(recorded_partition: RecordedPartition) -> None:
    recorded_partition.store.create([new_partition(SOURCE, f"p{n}", recorded_partition.clock.now()) for n in range(50)])
    administration = Administration(recorded_partition.store, SOURCE, recorded_partition.clock, by="ann")
    for n in range(50):
        administration.park(f"p{n}")
    assert (len(recorded_partition.transitions()), recorded_partition.bare.of_history) == (1, 1)
    recorded_partition.clock.advance(1)
    recorded_partition.store.count_by_status(SOURCE)
    assert (len(recorded_partition.transitions()), recorded_partition.bare.of_history) == (50, 2)


def test_pending_transitions_are_written_at_process_end(recorded_partition: RecordedPartition) -> None:
    recorded_partition.acquire()
    recorded_partition.store.close()
    assert len(recorded_partition.transitions()) == 1


def test_unchanged_partitions_write_nothing(recorded_partition: RecordedPartition) -> None:
    recorded_partition.store.get(SOURCE, "p")
    recorded_partition.store.close()
    assert (recorded_partition.bare.writes, recorded_partition.bare.of_history) == (1, 0)


def test_threads_sharing_a_store_report_everything_once(recorded_partition: RecordedPartition) -> None:
    recorded_partition.store.create(
        [new_partition(SOURCE, f"p{n}", recorded_partition.clock.now()) for n in range(150)]
    )

    def work(worker: int) -> None:
        while acquired := recorded_partition.acquire(f"worker-{worker}", limit=3):
            for partition in acquired:
                recorded_partition.write(partition.completed(recorded_partition.clock.now()))
            recorded_partition.clock.advance(0.1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    all_transitions = [
        (transition.partition_key, transition.reason) for transition in recorded_partition.all_transitions()
    ]
    keys = ["p", *(f"p{n}" for n in range(150))]
    assert sorted(all_transitions) == sorted((key, reason) for key in keys for reason in ("acquired", "completed"))


# What it costs


@pytest.mark.parametrize("at_a_time", [1, 10])
def test_job_makes_at_most_one_additional_write_in_ten(at_a_time: int) -> None:
    recorded_partition = RecordedPartition(keep_for=timedelta(minutes=2))  # so that pages are deleted as well
    coordinator = SourceCoordinator(
        recorded_partition.store, "clicks", "a", prefix="test", clock=recorded_partition.clock
    )
    coordinator.initialize()
    coordinator.create_partitions({f"bucket|events/part-{n:05}.json": {} for n in range(60)})
    while acquired := coordinator.leases.acquire(at_a_time):
        for saves in range(3):
            for partition in acquired:
                recorded_partition.clock.advance(0.3)
                coordinator.leases.checkpoint(partition.partition_key, {"line": 100 * saves})
        for partition in acquired:
            coordinator.leases.complete(partition.partition_key)
    recorded_partition.store.close()
    assert recorded_partition.bare.writes == 1 + 60 + 61 * 5
    # The first page of a process and its last are written in any case.
    assert 3 < recorded_partition.bare.of_history <= 0.1 * recorded_partition.bare.writes + 2
    last_minute = [
        t for t in recorded_partition.transitions() if t.at >= recorded_partition.clock.now() - timedelta(minutes=1)
    ]
    assert {t.reason for t in last_minute} == {"acquired", "completed"}


def test_frequent_owner_changes_cost_no_more_writes(recorded_partition: RecordedPartition) -> None:
    for n in range(200):
        recorded_partition.clock.advance(1)
        [held] = recorded_partition.acquire(f"{n}")
        recorded_partition.write(held.given_up(recorded_partition.clock.now()))
    recorded_partition.store.close()
    assert recorded_partition.bare.of_history <= 0.1 * recorded_partition.bare.writes + 2
    assert len(recorded_partition.transitions()) == 400


def test_manual_writes_are_compensated_later(recorded_partition: RecordedPartition) -> None:
    for _ in range(5):
        recorded_partition.clock.advance(1)
        [held] = recorded_partition.acquire()
        Administration(recorded_partition.store, SOURCE, recorded_partition.clock, by="ann").release("p")
    pages = recorded_partition.bare.of_history
    assert pages == 5
    for _ in range(30):
        recorded_partition.clock.advance(3)
        [held] = recorded_partition.acquire()
        recorded_partition.write(held.given_up(recorded_partition.clock.now()))
    assert recorded_partition.bare.of_history == pages


def test_disabled_history_writes_nothing() -> None:
    assert isinstance(open_store(StoreSettings(kind="in_memory", history_days=0)), InMemoryStore)
    assert isinstance(open_store(StoreSettings(kind="in_memory")), RecordingStore)


# Bounds


def churn(recorded_partition: RecordedPartition, times: int, *, seconds: float) -> None:
    """Let a partition change hands as often as needed for this number of pages."""
    for n in range(times):
        recorded_partition.clock.advance(seconds)
        for _ in range(10):
            [held] = recorded_partition.acquire(f"{n}")
            recorded_partition.write(held.given_up(recorded_partition.clock.now()))


def pages(recorded_partition: RecordedPartition) -> list[Partition]:
    return list(all_partitions(recorded_partition.bare, HISTORY))


def test_expired_pages_are_deleted() -> None:
    recorded_partition = RecordedPartition(keep_for=timedelta(minutes=10))
    churn(recorded_partition, 60, seconds=60)
    kept = pages(recorded_partition)
    age = recorded_partition.clock.now() - kept[0].priority
    assert len(kept) < 40
    assert timedelta(minutes=10) <= age < timedelta(minutes=40)
    assert recorded_partition.clock.now() - kept[-1].priority < timedelta(minutes=5)


def test_number_of_pages_is_limited() -> None:
    recorded_partition = RecordedPartition(max_pages=12, randomness=AlwaysRandom())
    churn(recorded_partition, 30, seconds=60)
    kept = pages(recorded_partition)
    assert len(kept) == 12
    assert recorded_partition.clock.now() - kept[-1].priority < timedelta(minutes=5)


class AlwaysRandom(random.Random):
    """What happens now and then happens each time."""

    def random(self) -> float:
        return 0.0


# It disturbs nobody


@pytest.mark.parametrize("error", [StoreUnavailableError("gone"), RuntimeError("a bug")])
def test_store_refusing_history_disturbs_no_operation(
    recorded_partition: RecordedPartition, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    recorded_partition.bare.refuses = error
    with caplog.at_level(logging.WARNING):
        for n in range(20):
            recorded_partition.clock.advance(3)
            [held] = recorded_partition.acquire(f"{n}")
            assert recorded_partition.write(held.given_up(recorded_partition.clock.now())).owner is None
        recorded_partition.store.close()
    [record] = caplog.records
    assert "the history cannot be written" in record.message
    assert str(error) in record.message


def test_failed_history_write_is_retried_later(recorded_partition: RecordedPartition) -> None:
    recorded_partition.bare.refuses = StoreUnavailableError("gone")
    [held] = recorded_partition.acquire()
    recorded_partition.clock.advance(3)
    recorded_partition.store.get(SOURCE, "p")
    assert recorded_partition.bare.refused == 1
    recorded_partition.write(held.given_up(recorded_partition.clock.now()))
    recorded_partition.clock.advance(RETRY_PAUSE_SECONDS - 1)
    recorded_partition.store.get(SOURCE, "p")
    assert recorded_partition.bare.refused == 1
    recorded_partition.bare.refuses = None
    recorded_partition.clock.advance(1)
    recorded_partition.store.get(SOURCE, "p")
    assert [transition.reason for transition in recorded_partition.transitions()] == ["acquired", "given up"]


def test_retries_slow_down_during_a_long_failure(recorded_partition: RecordedPartition) -> None:
    recorded_partition.bare.refuses = StoreUnavailableError("gone")
    for source in (SOURCE, "orders|PARTITION"):  # what one history waits for, the other does not try
        made = new_partition(source, "q", recorded_partition.clock.now())
        recorded_partition.store.create([made])
        recorded_partition.write(made.acquired("a", recorded_partition.clock.now() + LEASE))
    tried_at = []
    for second in range(0, 1500, 10):
        recorded_partition.clock.advance(10)
        before = recorded_partition.bare.refused
        recorded_partition.store.get(SOURCE, "p")
        tried_at += [second] * (recorded_partition.bare.refused - before)
    assert tried_at == [0, 30, 90, 210, 450, 930]


def test_oldest_transitions_are_dropped_if_writes_keep_failing() -> None:
    recorded_partition = RecordedPartition(max_pending=50)
    recorded_partition.store.create([new_partition(SOURCE, f"p{n}", recorded_partition.clock.now()) for n in range(9)])
    recorded_partition.bare.refuses = StoreUnavailableError("gone")
    for n in range(3):
        recorded_partition.clock.advance(20)
        held = recorded_partition.acquire(f"{n}", limit=10)
        recorded_partition.store.transact(
            update=[partition.given_up(recorded_partition.clock.now()) for partition in held]
        )
    recorded_partition.bare.refuses = None
    recorded_partition.clock.advance(RETRY_PAUSE_SECONDS)
    recorded_partition.store.get(SOURCE, "p")
    all_transitions = recorded_partition.transitions()
    assert len(all_transitions) == 50
    assert all_transitions[-1].previous_owner == "2"
    assert {transition.owner for transition in all_transitions if transition.owner} == {"1", "2"}


def test_undeletable_old_pages_cause_no_failure_or_repetition() -> None:
    recorded_partition = RecordedPartition(keep_for=timedelta(minutes=1), randomness=AlwaysRandom())
    recorded_partition.bare.delete = raising(StoreUnavailableError("gone"))  # type: ignore[method-assign]
    churn(recorded_partition, 20, seconds=60)
    all_transitions = recorded_partition.all_transitions()
    assert len(all_transitions) == len(set(all_transitions)) == 400


def raising(error: Exception) -> Callable[..., Any]:
    def raises(*arguments: Any, **named: Any) -> Any:
        raise error

    return raises


# Whatever happens, it agrees with the store

ACTIONS = st.sampled_from(
    ["acquire", "renew", "complete", "give up", "fail", "close", "await", "hand over", "park", "reset", "delete"]
)
STEPS = st.lists(
    st.tuples(ACTIONS, st.sampled_from("pq"), st.integers(0, 2), st.sampled_from([0.1, 1.0, 5.0, 70.0])),
    min_size=1,
    max_size=40,
)


ORDERS = {"park": ChangeKind.PARKED, "reset": ChangeKind.RESET}


class Fleet:
    """Three workers, each with its own view of the store, that run any operation on two partitions."""

    def __init__(self) -> None:
        self.recorded = RecordedPartition()
        self.stores = [self.recorded.another() for _ in range(3)]
        self.create("q")

    def create(self, key: str) -> None:
        self.recorded.bare.create([new_partition(SOURCE, key, self.recorded.clock.now())])

    def do(self, action: str, key: str, worker: int, seconds: float) -> None:
        clock, store = self.recorded.clock, self.stores[worker]
        clock.advance(seconds)
        now = clock.now()
        if action == "acquire":
            self.recorded.acquire(f"worker-{worker}", store=store)
            return
        partition = store.get(SOURCE, key)
        if partition is None:
            self.create(key)
            return
        if action == "delete":
            store.delete(partition)
        elif action in ORDERS:
            changed = partition.reset({}, now) if action == "reset" else partition.resting(PARKED_UNTIL)
            store.transact(update=[changed.because(ORDERS[action], by="ann")])
        elif partition.owner is not None:
            store.transact(
                update=[
                    {
                        "renew": lambda: partition.renewed(now + LEASE),
                        "complete": lambda: partition.completed(now),
                        "give up": lambda: partition.given_up(now),
                        "fail": lambda: partition.failed("no").resting(now + LEASE),
                        "close": lambda: partition.closed(now + LEASE),
                        "await": lambda: partition.awaiting(now + LEASE),
                        "hand over": lambda: partition.acquired("worker-2", now + LEASE).because(
                            ChangeKind.HANDED_OVER
                        ),
                    }[action]()
                ]
            )

    def check(self, *, by_now: bool) -> None:
        """Check that no two holdings overlap, and that the last one is what the store says.

        :param by_now: whether the partitions are known as they stand now.
        """
        began, now = ManualClock().now(), self.recorded.clock.now()
        current = list(all_partitions(self.recorded.bare, SOURCE))
        all_transitions = History(self.recorded.bare, HISTORY).since(began)
        found = holdings(all_transitions, current if by_now else [], now=now)
        for held in found.values():
            assert all(h.end is not HoldingEnd.HELD and h.ended_at is not None for h in held[:-1])
            times = [t for h in held for t in (h.began_at, h.ended_at) if t is not None]
            assert times == sorted(times)
        for partition in current:
            held = found.get(partition.partition_key, [])
            holder = held[-1].owner if held and held[-1].end is HoldingEnd.HELD else None
            has_run_out = by_now and state_of(partition, now) is PartitionState.EXPIRED
            assert holder == (None if has_run_out else partition.owner)


@settings(max_examples=examples(25))
@given(STEPS)
def test_last_holding_matches_the_store(steps: list[tuple[str, str, int, float]]) -> None:
    fleet = Fleet()
    for step in steps:
        fleet.do(*step)
    for store in fleet.stores:
        store.close()
    fleet.check(by_now=False)
    fleet.check(by_now=True)


@settings(max_examples=examples(25))
@given(STEPS, st.data())
def test_workers_dying_before_reporting_leave_history_correct(
    steps: list[tuple[str, str, int, float]], data: st.DataObject
) -> None:
    fleet = Fleet()
    for step in steps:
        fleet.do(*step)
        if data.draw(st.integers(0, 9)) == 0:
            fleet.stores[step[2]] = fleet.recorded.another()  # what the one before had gathered is lost
    fleet.check(by_now=True)
