"""No two owners trust one lease, and no progress is lost, despite clock errors, crashes and lost responses.

Workers act on a few partitions, in any order and with anything going wrong; beside them runs a model that says what
each act does. After each, the store must hold exactly what the model says: what was acknowledged is there, what was
refused is not, what was not answered is one or the other, and nothing else has changed.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    CoordinationError,
    PartitionUpdateError,
    ProgressChangedError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.coordination.supplier import GLOBAL_STATE_KEY, Page
from airflow_provider_coordination.coordination.workers import is_earlier_try
from airflow_provider_coordination.stores.kinds.in_memory import InMemoryStore
from airflow_provider_coordination.stores.sql import SqlStore
from tests.coordination.lease_model import (
    FIRST_DELAY,
    LEASE,
    MARGIN,
    Row,
    a_coordinator,
    row,
)
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE, Fault, UnreliableStore
from tests.support.clock import ManualClock
from tests.support.depth import examples
from tests.support.lease_writes import give

WORKERS, KEYS = 3, ["p0", "p1", "p2"]
FAMILY, GLOBAL_FAMILY, WORKER_FAMILY = "clicks|PARTITION", "clicks|GLOBAL_STATE", "clicks|WORKER"
BEYOND_THE_MARGIN_SECONDS = 600

Rows = dict[str, Row | None]

workers = st.integers(0, WORKERS - 1)
leases = st.integers(0, 11)  # see LeaseSafety.choose
shares = st.sampled_from([0.0, 1.0, -1.0, 0.5])  # of how far a wall clock may be off
seconds = st.sampled_from([1, 10, 30, 55, 60, 66, 200, 7200])
faults = st.sampled_from([*["none"] * 6, "not made", "not answered", "not answered", "slow", "taken", "forced", "away"])
few_faults = st.sampled_from(["none", "none", "none", "not made", "not answered", "away"])


@dataclass(eq=False)
class Worker:
    """One process: an owner with a clock of its own."""

    number: int
    coordinator: SourceCoordinator
    clock: ManualClock
    in_hand: dict[str, int] = field(default_factory=dict)  # work begun: from which count of the partition
    unanswered: set[str] = field(default_factory=set)  # what was written last to these has no answer yet
    must_recover: bool = False  # an answer is missing: nothing new is begun before `recover`

    @property
    def owner(self) -> str:
        return self.coordinator.owner


class LeaseSafety(RuleBasedStateMachine):
    """Three workers on three partitions.

    Each partition's progress is a counter that only its present owner may raise, as a checkpoint is. Wall clocks are
    off by up to the margin or, in other runs, by far more: then two owners may both believe, and all else still holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.store = UnreliableStore(self.open_store())
        self.store.initialize()
        self.rows: dict[str, Row] = {}
        self.versions: dict[str, int] = {}
        self.tenures: dict[str, int] = {}  # the version at which the present owner took over
        self.seen: dict[str, Partition] = {}
        self.seen_workers: dict[str, Partition] = {}  # their items, as somebody has read them
        self.excused: set[tuple[str, str]] = set()  # who lost a lease by force and may not know yet
        self.removed: set[str] = set()  # workers that others took for dead, and that may not know yet
        self.generation = 0
        self.workers = [self.new_worker(number, ManualClock()) for number in range(WORKERS)]
        self.persons_clock = ManualClock()
        self.person = Administration(self.store, FAMILY, self.persons_clock)

    def open_store(self) -> CoordinationStore:
        return InMemoryStore()

    def new_worker(self, number: int, clock: ManualClock) -> Worker:
        self.generation += 1
        # Who takes the place of a worker that was killed is a later try of its task.
        owner = f"host:dag:run:task-{number}:-1:{self.generation}:00000000"
        coordinator = a_coordinator(self.store, owner, clock)
        return Worker(number, coordinator, clock)

    @initialize(beyond=st.booleans(), shares=st.tuples(*[shares] * WORKERS))
    def begin_with_some_partitions(self, beyond: bool, shares: tuple[float, ...]) -> None:
        self.skew_limit = BEYOND_THE_MARGIN_SECONDS if beyond else int(MARGIN.total_seconds())
        self.skews = [0] * WORKERS
        for w, share in enumerate(shares):
            self.a_wall_clock_is_set(w, share)
        self.create(0, KEYS[:2], "none")

    # Surroundings: true time, by which every wall clock is off by up to the limit, is the person's clock

    @rule(seconds=seconds)
    def time_passes(self, seconds: float) -> None:
        for clock in (self.persons_clock, *(worker.clock for worker in self.workers)):
            clock.advance(seconds)

    @rule(w=workers, share=shares)
    def a_wall_clock_is_set(self, w: int, share: float) -> None:
        skew, worker = round(share * self.skew_limit), self.workers[w]
        believed = {key: worker.coordinator.leases.owns(key) for key in KEYS}
        worker.clock.set_wall_clock_back(self.skews[w] - skew)
        self.skews[w] = skew
        believed_now = {key: worker.coordinator.leases.owns(key) for key in KEYS}
        assert believed == believed_now, "only the monotonic clock is trusted"

    @rule(w=workers, is_killed=st.integers(0, 3))
    def a_worker_is_killed_and_another_takes_its_place(self, w: int, is_killed: int) -> None:
        if is_killed == 3:
            self.workers[w] = self.new_worker(w, self.workers[w].clock)

    # What workers do

    @rule(w=workers, names=st.lists(st.sampled_from(KEYS), min_size=1, unique=True), fault=faults)
    def create(self, w: int, names: Sequence[str], fault: str) -> None:
        self.time_passes(0.001)
        worker = self.workers[w]
        now = worker.clock.now()
        self.arm(worker, fault)
        created: list[str] = []
        error = self.outcome(
            lambda: created.extend(worker.coordinator.create_partitions({n: {"count": 0} for n in names}))
        )
        absent: Rows = {name: Row("UNASSIGNED", now) for name in names if name not in self.rows}
        assert error or created == list(absent)
        self.settle(error, absent)

    @rule(w=workers, limit=st.integers(1, 3), fault=faults)
    def acquire(self, w: int, limit: int, fault: str) -> None:
        worker = self.workers[w]
        now = worker.clock.now()
        self.arm(worker, fault)
        acquired: list[Partition] = []
        error = self.outcome(lambda: acquired.extend(worker.coordinator.leases.acquire(limit)))
        queue = sorted(
            (k for k, r in self.rows.items() if r.is_available(now)), key=lambda k: (self.rows[k].place(), k)
        )
        taken: Rows = {key: self.rows[key].acquired(worker.owner, now) for key in queue[:limit]}
        assert error or [p.partition_key for p in acquired] == list(taken)
        self.settle(error, taken)
        self.note(worker, error)
        for partition in acquired:
            assert worker.coordinator.leases.fencing_token(partition.partition_key) == partition.version
            worker.in_hand.pop(partition.partition_key, None)

    @rule(
        n=leases,
        seconds=st.sampled_from([0, 1, 4, 5, 6, 11, -1, -4, -5, -6, -11]),
        other=workers,
        gives_back=st.booleans(),
        fault=faults,
    )
    def a_lease_ends_and_others_are_waiting(
        self, n: int, seconds: int, other: int, gives_back: bool, fault: str
    ) -> None:
        worker, key = self.choose(n)
        if key in self.rows and self.rows[key].status == "ASSIGNED":
            remaining = (self.rows[key].until - self.persons_clock.now()).total_seconds()
            self.time_passes(max(0, remaining + seconds))
        self.acquire(other, 3, "none")
        self.only_the_owner_trusts_its_lease()
        if gives_back:
            self.give_up_all(other, "none")
            self.acquire(worker.number, 3, fault)

    @rule(n=leases)
    def begin_work(self, n: int) -> None:
        worker, key = self.choose(n)
        if worker.coordinator.leases.owns(key) and not worker.must_recover:
            worker.in_hand[key] = worker.coordinator.leases.leased(key).progress["count"]

    @rule(n=leases, delivered=st.booleans(), fault=faults)
    def finish_work(self, n: int, delivered: bool, fault: str) -> None:
        worker, key = self.choose(n)
        if key not in worker.in_hand:
            if worker.must_recover:
                self.recover(worker.number, "none")
            if not worker.coordinator.leases.owns(key):
                return
            worker.in_hand[key] = worker.coordinator.leases.leased(key).progress["count"]
        base = worker.in_hand.pop(key)
        now, progress = worker.clock.now(), {"count": base + 1}
        save = worker.coordinator.leases.checkpoint if delivered else worker.coordinator.leases.save_progress

        def effect(before: Row) -> Rows:
            assert before.count == base, "a checkpoint would go back"
            return {key: before.checkpointed(base + 1, now) if delivered else before.saved(base + 1, now)}

        if self.attempt(worker, key, lambda: save(key, progress), effect, fault) is None:
            worker.in_hand[key] = base + 1

    @rule(
        n=leases,
        child=st.sampled_from(KEYS),
        rests_on=st.sampled_from([None, *KEYS]),
        looks_again=st.booleans(),
        fault=faults,
    )
    def complete(self, n: int, child: str, rests_on: str | None, looks_again: bool, fault: str) -> None:
        worker, key = self.choose(n)
        self.time_passes(0.001)
        now = worker.clock.now()
        if rests_on not in self.seen or looks_again:
            self.somebody_looks(rests_on)
        unchanged = [self.seen[rests_on]] if rests_on in self.seen and rests_on != key else []
        create = {child: {"count": 0}} if child != key else {}

        def effect(before: Row) -> Rows:
            new: Rows = {name: Row("UNASSIGNED", now) for name in create if name not in self.rows}
            return {key: before.completed(now), **new}

        self.attempt(
            worker,
            key,
            lambda: worker.coordinator.leases.complete(key, create=create, unchanged=unchanged),
            effect,
            fault,
            unchanged=unchanged,
        )

    @rule(k=st.sampled_from(KEYS))
    def somebody_looks(self, k: str | None) -> None:
        found = self.store.store.get(FAMILY, k) if k else None
        if k and found:
            self.seen[k] = found

    @rule(n=leases, max_closed_count=st.sampled_from([None, None, 2]), fault=faults)
    def close(self, n: int, max_closed_count: int | None, fault: str) -> None:
        worker, key = self.choose(n)
        now, rest = worker.clock.now(), timedelta(seconds=30)
        self.attempt(
            worker,
            key,
            lambda: worker.coordinator.leases.close(key, rest, max_closed_count=max_closed_count),
            lambda before: {key: before.closed(now + rest, max_closed_count, now)},
            fault,
        )

    @rule(n=leases, times=st.integers(1, 4), fault=faults)
    def fail(self, n: int, times: int, fault: str) -> None:
        worker, key = self.choose(n)
        for _ in range(times):
            now = worker.clock.now()
            self.attempt(
                worker,
                key,
                lambda: worker.coordinator.leases.fail(key, "boom"),
                lambda before, now=now: {key: before.failed("boom", now)},  # type: ignore[misc]
                fault,
                requires_trust=False,
            )
            if times > 1:
                self.time_passes(FIRST_DELAY.total_seconds())
                self.acquire(worker.number, 3, "none")

    @rule(n=leases, after=st.sampled_from([0, 20]), fault=faults)
    def give_up(self, n: int, after: int, fault: str) -> None:
        worker, key = self.choose(n)
        at = worker.clock.now() + timedelta(seconds=after)
        self.attempt(
            worker,
            key,
            lambda: worker.coordinator.leases.give_up(key, after=timedelta(seconds=after)),
            lambda before: {key: before.given_up(at)},
            fault,
            requires_trust=False,
        )

    @rule(n=leases, wait=st.sampled_from([30, 300, 7200]), fault=faults)
    def await_acknowledgment(self, n: int, wait: int, fault: str) -> None:
        worker, key = self.choose(n)
        now, timeout = worker.clock.now(), timedelta(seconds=wait)
        self.attempt(
            worker,
            key,
            lambda: worker.coordinator.leases.await_acknowledgment(key, timeout),
            lambda before: {key: before.awaiting(now, timeout)},
            fault,
        )

    @rule(n=leases, fault=faults)
    def renew(self, n: int, fault: str) -> None:
        worker, key = self.choose(n)
        now = worker.clock.now()
        self.attempt(
            worker,
            key,
            lambda: worker.coordinator.leases.renew(key),
            lambda before: {key: before.renewed(now)},
            fault,
            requires_trust=False,
            by_main_thread=False,
        )

    @rule(n=leases, fault=faults)
    def delete(self, n: int, fault: str) -> None:
        worker, key = self.choose(n)
        self.attempt(worker, key, lambda: worker.coordinator.leases.delete(key), lambda before: {key: None}, fault)

    @rule(w=workers, fault=few_faults)
    def the_renewal_thread_wakes_up(self, w: int, fault: str) -> None:
        worker = self.workers[w]
        now, held = worker.clock.now(), worker.coordinator.leases.held
        due = [k for k, p in held.items() if p.priority - now <= LEASE * 2 / 3 or not worker.coordinator.leases.owns(k)]
        self.arm(worker, fault)
        error = self.outcome(worker.coordinator.leases.renew_due)
        mine: Rows = {k: r.renewed(now) for k in due if (r := self.rows.get(k)) is not None and r.owner == worker.owner}
        self.settle(error, mine, each=True)
        assert error or not any(k in worker.coordinator.leases.held for k in due if k not in mine)

    @rule(w=workers, fault=few_faults)
    def recover(self, w: int, fault: str) -> None:
        worker = self.workers[w]
        now = worker.clock.now()
        self.arm(worker, fault)
        error = self.outcome(worker.coordinator.leases.recover)
        mine: Rows = {k: r.renewed(now) for k, r in self.rows.items() if r.owner == worker.owner}
        self.settle(error, mine, each=True)
        if error is None:
            assert worker.coordinator.leases.held.keys() == mine.keys(), "it holds what the store says that it holds"
            assert self.is_beyond or all(map(worker.coordinator.leases.owns, mine))
            for key in mine:
                self.check_token(worker, key)
            worker.must_recover = False
            worker.in_hand.clear()
            worker.unanswered.clear()

    @rule(w=workers, fault=few_faults)
    def give_up_all(self, w: int, fault: str) -> None:
        worker = self.workers[w]
        now, held = worker.clock.now(), worker.coordinator.leases.held
        self.arm(worker, fault)
        error = self.outcome(worker.coordinator.leases.give_up_all)
        mine: Rows = {k: r.given_up(now) for k, r in self.rows.items() if k in held and r.owner == worker.owner}
        self.settle(error, mine, each=True)
        self.note(worker, error)
        if error:
            worker.unanswered |= held.keys()
        assert error or not worker.coordinator.leases.held

    @rule(w=workers, dead=workers, fault=few_faults)
    def another_gives_up_for(self, w: int, dead: int, fault: str) -> None:
        """As Airflow does for a task that is dead; here it may live, and must notice before its next write."""
        worker, owner = self.workers[w], self.workers[dead].owner
        now = worker.clock.now()
        self.arm(worker, fault)
        self.excused |= {(owner, key) for key, r in self.rows.items() if r.owner == owner}
        error = self.outcome(lambda: worker.coordinator.give_up_owner(owner))
        self.settle(error, {k: r.given_up(now) for k, r in self.rows.items() if r.owner == owner}, each=True)
        self.note(worker, error)
        assert error or self.item_of(owner) is None, "it counts as a worker no more"
        self.removed.add(owner)

    # Workers that know each other, and hand over

    @rule(w=workers, max_leases=st.sampled_from([None, 2]), fault=few_faults)
    def register(self, w: int, max_leases: int | None, fault: str) -> None:
        worker = self.workers[w]
        self.arm(worker, fault)
        error = self.outcome(lambda: worker.coordinator.workers.register(max_leases=max_leases))
        self.settle(None, {})
        item = self.item_of(worker.owner)
        if error is None and not (item is None and worker.owner in self.removed):
            self.removed.discard(worker.owner)
            assert item is not None and item.owner == worker.owner and item.progress["max_leases"] == max_leases
            live = [known.owner for known in worker.coordinator.workers.live()]
            # By a wall clock that was set far ahead since, its own registration has run out, until it is renewed.
            assert self.is_beyond or worker.owner in live
            # A worker whose clock is far behind was removed in passing, and may not know yet.
            self.removed |= {other.owner for other in self.workers if self.item_of(other.owner) is None}

    @rule(w=workers, fault=few_faults)
    def deregister(self, w: int, fault: str) -> None:
        worker = self.workers[w]
        self.arm(worker, fault)
        error = self.outcome(worker.coordinator.workers.deregister)
        self.settle(None, {})
        assert error or self.item_of(worker.owner) is None

    @rule(w=workers)
    def somebody_looks_for_a_worker(self, w: int) -> None:
        if item := self.item_of(self.workers[w].owner):
            self.seen_workers[item.partition_key] = item

    @rule(n=leases, by=st.integers(1, WORKERS - 1), rests_on_it=st.booleans(), looks_again=st.booleans(), fault=faults)
    def hand_over(self, n: int, by: int, rests_on_it: bool, looks_again: bool, fault: str) -> None:
        """A worker makes another one the owner, in some cases only if that worker's item is unchanged."""
        worker, key = self.choose(n)
        taker = self.workers[(worker.number + by) % WORKERS]
        if looks_again:
            self.register(taker.number, None, "none")
            self.somebody_looks_for_a_worker(taker.number)
        seen = self.seen_workers.get(taker.owner)
        now = worker.clock.now()
        unchanged = [seen] if rests_on_it and seen else []
        self.attempt(
            worker,
            key,
            lambda: give(worker.coordinator, key, taker.owner, unchanged=unchanged),
            lambda before: {key: before.acquired(taker.owner, now)},
            fault,
            requires_trust=False,
            unchanged=unchanged,
        )
        if looks_again:
            self.adopt_what_is_handed_over(taker.number, key)

    @rule(w=workers, key=st.sampled_from(KEYS))
    def adopt_what_is_handed_over(self, w: int, key: str) -> None:
        worker = self.workers[w]
        was_held = key in worker.coordinator.leases.held
        adopted = worker.coordinator.leases.adopt(key)
        is_its_own = key in self.rows and self.rows[key].owner == worker.owner
        assert (adopted is not None) == (is_its_own and not was_held)
        self.settle(None, {})
        if adopted is not None:
            self.check_token(worker, key)
            worker.in_hand.pop(key, None)

    @rule(n=leases, by=st.integers(1, WORKERS - 1), fault=few_faults)
    def take_over_by_force(self, n: int, by: int, fault: str) -> None:
        """A worker that was not answered takes a lease; its owner may believe in it until its next write."""
        giver, key = self.choose(n)
        worker = self.workers[(giver.number + by) % WORKERS]
        now, before = worker.clock.now(), self.rows.get(key)
        self.arm(worker, fault)
        self.excused.add((giver.owner, key))
        taken: list[Partition | None] = []
        error = self.outcome(lambda: taken.append(worker.coordinator.leases.take_over(key, giver.owner)))
        is_givers = before is not None and before.owner == giver.owner
        self.settle(error, {key: before.acquired(worker.owner, now)} if before and is_givers else {})
        self.note(worker, error)
        assert error or (taken[0] is not None) == is_givers
        if error is None and is_givers:
            worker.in_hand.pop(key, None)
            self.check_token(worker, key)
            assert self.is_beyond or worker.coordinator.leases.owns(key)

    def item_of(self, owner: str) -> Partition | None:
        return self.store.store.get(WORKER_FAMILY, owner)

    # What a person does

    @rule(
        order=st.sampled_from(["release", "reopen", "reset", "delete"]),
        key=st.sampled_from(KEYS),
        stale=st.booleans(),
        fault=few_faults,
    )
    def a_person_orders(self, order: str, key: str, stale: bool, fault: str) -> None:
        now = self.persons_clock.now()
        before, seen = self.rows.get(key), self.seen.get(key) if stale else None
        if before and before.owner:
            self.excused.add((before.owner, key))
        calls: dict[str, Callable[[], object]] = {
            "release": lambda: self.person.release(key, expected=seen),
            "reopen": lambda: self.person.reopen(key, expected=seen),
            "reset": lambda: self.person.reset(key, {"count": 0}, expected=seen),
            "delete": lambda: self.person.delete(key, expected=seen),
        }
        self.arm(self.workers[0], fault)
        error = self.outcome(calls[order])
        effects: dict[str, Callable[[Row], Row | None]] = {
            "release": lambda r: r.given_up(now),
            "reopen": lambda r: r.reopened(now),
            "reset": lambda r: Row("UNASSIGNED", now),
            "delete": lambda r: None,
        }
        if before is None:
            assert isinstance(error, CoordinationError) or order == "delete"
            self.settle(None, {})
        elif error is None or isinstance(error, StoreUnavailableError):
            only_if_unchanged = not seen or (seen.status, seen.owner) == (before.status, before.owner)
            self.settle(error, {key: effects[order](before)} if only_if_unchanged else {})
        else:
            self.settle(None, {})

    # Suppliers

    @rule(
        w=workers,
        pages=st.lists(st.sampled_from(KEYS), max_size=3),
        fails=st.booleans(),
        fault=faults,
        fault_at=st.integers(0, 3),
    )
    def supply(self, w: int, pages: list[str], fails: bool, fault: str, fault_at: int) -> None:
        worker = self.workers[w]
        self.time_passes(0.001)
        now = worker.clock.now()
        before = self.global_state()
        is_free = (
            before is None
            or (before.priority + (MARGIN if before.owner else timedelta(0)) <= now)
            or before.owner == worker.owner  # it could not give it back
            or is_earlier_try(before.owner or "", than=worker.owner)
        )
        ran: list[int] = []

        def supplier(state: Mapping[str, int]) -> Iterator[Page]:
            ran.append(state.get("count", 0))
            for n, key in enumerate([*pages, None]):
                if n == fault_at:
                    self.time_passes(0.001)
                    self.read_rows(may_create=pages)
                    if fault == "taken":
                        self.time_passes(70)
                        self.supply((w + 1) % WORKERS, KEYS[:1], False, "none", 0)
                    else:
                        self.arm(worker, fault)
                if key is None:
                    break
                yield Page({key: {"count": 0}}, {"count": ran[0] + n + 1})
            if fails:
                raise ZeroDivisionError

        failures = self.store.failures
        error: BaseException | None = None
        created: list[str] | None = None
        try:
            created = worker.coordinator.supply(supplier)
        except (ZeroDivisionError, CoordinationError) as raised:
            error = raised
        self.store.fault, self.store.away = None, False
        self.read_rows(may_create=pages)
        self.note(worker, error if isinstance(error, StoreUnavailableError) else None)
        smooth = self.store.failures == failures and fault == "none"
        after = self.global_state()
        if ran:
            assert is_free, "only one at a time"
            assert ran[0] == (before.progress.get("count", 0) if before else 0), "it gets the state that was left"
        if smooth:
            assert bool(ran) == is_free
            assert isinstance(error, ZeroDivisionError) == (bool(ran) and fails)
            assert (created is None) == (not ran or fails)
            if ran:
                assert after is not None and after.owner is None
                assert after.progress.get("count", 0) == ran[0] + len(pages), "the state after the last page is kept"
        if ran and fault != "taken":
            left = after.progress.get("count", 0) - ran[0] if after else 0
            assert all(key in self.rows for key in pages[:left]), "a state is left once its partitions are there"
        if after and before:
            assert after.progress.get("count", 0) >= before.progress.get("count", 0)

    def global_state(self) -> Partition | None:
        return self.store.store.get(GLOBAL_FAMILY, GLOBAL_STATE_KEY)

    # What holds

    @property
    def is_beyond(self) -> bool:
        """Whether clocks may be off by more than the margin."""
        return self.skew_limit > MARGIN.total_seconds()

    @invariant()
    def only_the_owner_trusts_its_lease(self) -> None:
        if self.is_beyond:
            return
        for key in KEYS:
            for worker in self.workers:
                if worker.coordinator.leases.owns(key) and (worker.owner, key) not in self.excused:
                    assert key in self.rows, f"{worker.owner} believes in {key}, which is gone"
                    assert self.rows[key].owner == worker.owner

    def teardown(self) -> None:
        """Nothing is lost: when all is well again, a new worker can finish whatever is not finished or parked."""
        last = self.new_worker(0, ManualClock(datetime(2027, 1, 1, tzinfo=UTC))).coordinator
        expected = {k for k, r in self.rows.items() if r.status != "COMPLETED" and not r.is_parked}
        acquired = last.leases.acquire(10)
        assert {p.partition_key for p in acquired} == expected
        for partition in acquired:
            assert partition.progress == {"count": self.rows[partition.partition_key].count}
            last.leases.complete(partition.partition_key, {"count": partition.progress["count"] + 1})
        self.store.close()

    # How an act is judged

    def choose(self, n: int) -> tuple[Worker, str]:
        """Choose who acts on what: mostly a worker on a partition that it holds, or believes that it does."""
        if n == 11:
            return self.workers[0], KEYS[0]
        if not (held := self.held()):
            self.acquire(n % WORKERS, 3, "none")
            if not (held := self.held()):  # all is finished, or rests
                self.create(0, KEYS, "none")
                self.a_person_orders("reset", KEYS[n % len(KEYS)], False, "none")
                self.time_passes(2 * BEYOND_THE_MARGIN_SECONDS)
                self.acquire(n % WORKERS, 3, "none")
                held = self.held()
        return held[n % len(held)]

    def held(self) -> list[tuple[Worker, str]]:
        return [(worker, key) for worker in self.workers for key in sorted(worker.coordinator.leases.held)]

    def arm(self, worker: Worker, fault: str) -> None:
        other = (worker.number + 1) % WORKERS
        self.store.away = fault == "away"
        self.store.fault = {
            "none": Fault(),
            "away": Fault(),
            "not made": NOT_MADE,
            "not answered": NOT_ANSWERED,
            "slow": Fault(after=lambda: self.time_passes(70)),
            "taken": Fault(before=lambda: (self.time_passes(70), self.acquire(other, 2, "none"))),
            "forced": Fault(before=lambda: self.another_gives_up_for(other, worker.number, "none")),
        }[fault]

    def outcome(self, call: Callable[[], object]) -> CoordinationError | None:
        """Return what an act is answered with, after checking that no failure is made up or hidden."""
        failures, error = self.store.failures, None
        try:
            call()
        except CoordinationError as raised:
            error = raised
        self.store.fault, self.store.away = None, False
        assert isinstance(error, StoreUnavailableError) == (self.store.failures > failures), error
        return error

    def attempt(
        self,
        worker: Worker,
        key: str,
        call: Callable[[], object],
        effect: Callable[[Row], Rows],
        fault: str,
        *,
        requires_trust: bool = True,
        unchanged: Sequence[Partition] = (),
        by_main_thread: bool = True,
    ) -> CoordinationError | None:
        """Let a worker write a partition, and judge what the store and the worker make of it."""
        known = worker.coordinator.leases.held.get(key)
        may_try = known is not None and (not requires_trust or worker.coordinator.leases.owns(key))
        if known and known.version != self.versions.get(key) and fault in ("taken", "slow"):
            fault = "none"  # an earlier write is found out about in this act: one thing at a time
        self.arm(worker, fault)
        error = self.outcome(call)
        before = self.rows.get(key)
        owns = before is not None and before.owner == worker.owner
        stands = all(self.version_of(p) == p.version for p in unchanged)
        if isinstance(error, StoreUnavailableError):
            self.settle(error, effect(before) if before and owns and known and stands else {})
        elif error is None and not owns:
            # Only what is so already may count as done: its own write, whose answer was lost, or the same by another.
            assert known is not None
            assert self.rows.get(key) == effect(row(known)).get(key)
            self.settle(None, {})
        elif error is None:
            assert before and known is not None and stands
            assert may_try or key in worker.unanswered
            self.settle(None, effect(before))
            if key in worker.coordinator.leases.held:
                self.check_token(worker, key)
                assert fault != "none" or self.is_beyond or worker.coordinator.leases.owns(key)
        else:
            assert isinstance(error, LOST) or (isinstance(error, PartitionUpdateError) and not stands), error
            assert not (owns and may_try and stands) or isinstance(error, ProgressChangedError)
            self.settle(None, {})
        if error:
            worker.in_hand.pop(key, None)
        if isinstance(error, StoreUnavailableError):
            worker.unanswered.add(key)
        elif not isinstance(error, PartitionUpdateError):  # which says nothing about an earlier write
            worker.unanswered.discard(key)
        if by_main_thread:
            self.note(worker, error)
        return error

    def version_of(self, partition: Partition) -> int | None:
        """The version of a partition as the model knows it, or of a worker's item as the store holds it."""
        if partition.source_identifier == FAMILY:
            return self.versions.get(partition.partition_key)
        item = self.item_of(partition.partition_key)
        return None if item is None else item.version

    def note(self, worker: Worker, error: CoordinationError | None) -> None:
        if isinstance(error, StoreUnavailableError):
            worker.must_recover = True
            worker.in_hand.clear()

    def settle(self, error: CoordinationError | None, changes: Rows, *, each: bool = False) -> None:
        """Check that the store holds what it did, with all these changes; or possibly none, if there was no response.

        :param each: whether every change was a write of its own.
        """
        choices: list[Rows] = [changes]
        if error is not None and each:
            parts = [[{}, {key: changed}] for key, changed in changes.items()]
            choices = [dict(pair for part in chosen for pair in part.items()) for chosen in product(*parts)]
        elif error is not None:
            choices = [changes, {}]
        expected = [{k: r for k, r in {**self.rows, **choice}.items() if r is not None} for choice in choices]
        stored = self.stored()
        found = {key: row(partition) for key, partition in stored.items()}
        assert found in expected, f"\nfound    {found}\nexpected {expected}"
        self.adopt(stored, found)

    def read_rows(self, may_create: Sequence[str] = ()) -> None:
        """Check that nothing changed but for new partitions."""
        stored = self.stored()
        found = {key: row(partition) for key, partition in stored.items()}
        for key in found.keys() | self.rows.keys():
            if key in may_create and key not in self.rows:
                assert found[key].status == "UNASSIGNED" and found[key].count == 0
            else:
                assert found[key] == self.rows[key]
        self.adopt(stored, found)

    def stored(self) -> dict[str, Partition]:
        found = (self.store.store.query(FAMILY, status) for status in PartitionStatus)
        return {partition.partition_key: partition for partitions in found for partition in partitions}

    def adopt(self, stored: dict[str, Partition], found: dict[str, Row]) -> None:
        for key, partition in stored.items():
            former = self.rows.get(key)
            if partition.owner is not None and (former is None or former.owner != partition.owner):
                self.excused.discard((partition.owner, key))
                self.tenures[key] = partition.version
        self.rows = found
        self.versions = {key: partition.version for key, partition in stored.items()}

    def check_token(self, worker: Worker, key: str) -> None:
        assert worker.coordinator.leases.fencing_token(key) >= self.tenures[key], "an earlier owner had a larger token"


class LeaseSafetyOnSqlite(LeaseSafety):
    """The same, on a file."""

    def open_store(self) -> CoordinationStore:
        self.folder = tempfile.TemporaryDirectory()
        return SqlStore(f"sqlite:///{Path(self.folder.name)}/coordination.db", table="coordination_partition")

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


def test_owners_never_conflict_and_lose_nothing(no_logging: None) -> None:
    run(LeaseSafety, 30)


@pytest.mark.integration
def test_owners_never_conflict_and_lose_nothing_on_sqlite(no_logging: None) -> None:
    run(LeaseSafetyOnSqlite, 10)


@pytest.mark.integration
@pytest.mark.deep
def test_owners_never_conflict_in_hundreds_of_runs(no_logging: None) -> None:
    run(LeaseSafety, 100)


@pytest.fixture
def no_logging(caplog: pytest.LogCaptureFixture) -> None:
    """Spare the log: there is much to say about tens of thousands of acts."""
    caplog.set_level(logging.CRITICAL, logger="airflow_provider_coordination")


def run(machine: type[LeaseSafety], number: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples(number), stateful_step_count=40, suppress_health_check=list(HealthCheck)
        ),
    )
