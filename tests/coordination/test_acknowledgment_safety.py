"""Each set ends once, and no checkpoint passes an owed batch, despite crashes and lost responses.

Workers land and deliver the batches of two shards, which merge into a third; they, and others without a lease, release,
extend, cancel and expire the acknowledgment sets, in any order and with anything going wrong between any two calls of
the store. Every transaction that is made is judged by itself (see `acknowledgment_model`). At the end of each run, when
all is well again, everything is delivered.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from airflow_provider_coordination.coordination.acknowledgment import AcknowledgmentSet, ReleaseEffect
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.coordinator import SourceCoordinator
from airflow_provider_coordination.coordination.errors import (
    AcknowledgmentError,
    CoordinationError,
    PartitionStatusError,
    PartitionUpdateError,
    StoreUnavailableError,
)
from airflow_provider_coordination.coordination.leases import LOST
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.progress import ShardProgress
from tests.coordination.acknowledgment_model import PARTITIONS, SETS, Act, CheckedStore
from tests.coordination.lease_model import MARGIN, a_coordinator
from tests.coordination.unreliable_store import NOT_ANSWERED, NOT_MADE, UnreliableStore
from tests.support.batches import a_batch, a_child, a_shard, shard_key
from tests.support.clock import ManualClock
from tests.support.depth import examples

T = TypeVar("T")

WORKERS, OTHERS = 2, 2
LEFT, RIGHT, MERGED = (shard_key(name) for name in ("left", "right", "merged"))
LAST_POSITION = 3
SINK, CHECK = "sink", "check"
BEYOND_THE_MARGIN_SECONDS = 600

actors = st.integers(0, WORKERS + OTHERS - 1)
workers = st.integers(0, WORKERS - 1)
numbers = st.integers(0, 11)
shares = st.sampled_from([0.0, 1.0, -1.0, 0.5])  # of how far a wall clock may be off
seconds = st.sampled_from([1, 1, 5, 5, 20, 20, 40, 66, 200, 7200])
timeouts = st.sampled_from([30, 300, 7200, 7200])
kinds = st.sampled_from(
    [*["none"] * 7, "not made", "not answered", "not answered", "away", "killed", *["concurrent"] * 4]
)
houses = st.sampled_from(["renew", "renew", "recover", "give up", "give back", "die", "purge"])
meanwhiles = st.sampled_from([*["acknowledge"] * 2, "reject", "expire", "cancel", "take over", "order", "renew"])


class KilledError(BaseException):
    """A process ends between two calls of the store."""


class InterruptedStore(UnreliableStore):
    """An unreliable store that lets something happen before one of the next calls."""

    def __init__(self, store: CheckedStore) -> None:
        super().__init__(store)
        self.interruption: Callable[[], object] | None = None
        self.countdown = 0

    def _read(self, name: str, call: Callable[[], T]) -> T:
        self._interrupt()
        return super()._read(name, call)

    def _write(self, name: str, call: Callable[[], T]) -> T:
        self._interrupt()
        return super()._write(name, call)

    def _interrupt(self) -> None:
        interruption = self.interruption
        if interruption is not None:
            self.countdown -= 1
            if self.countdown < 0:
                self.interruption = None
                interruption()


@dataclass(frozen=True)
class ActFault:
    """What goes wrong with an act.

    :param kind: what; "none" for nothing.
    :param call: before which of its calls of the store.
    :param what: what others do at the same time.
    """

    kind: str = "none"
    call: int = 0
    what: str = "renew"


troubles = st.builds(ActFault, kinds, st.integers(0, 5), meanwhiles)


@dataclass(eq=False)
class Actor:
    """One process: a worker's owner, or another process, with its own clock."""

    number: int
    sets: AcknowledgmentSets
    clock: ManualClock

    @property
    def coordinator(self) -> SourceCoordinator:
        return self.sets.coordinator

    @property
    def owner(self) -> str:
        return self.coordinator.owner


class AcknowledgmentSafety(RuleBasedStateMachine):
    """Two workers and two others on two shards and the one that they merge into."""

    def __init__(self) -> None:
        super().__init__()
        self.checked = CheckedStore()
        self.store = InterruptedStore(self.checked)
        self.generation = 0
        self.actors = [self.new_actor(number, ManualClock()) for number in range(WORKERS + OTHERS)]
        self.person = Administration(self.store, PARTITIONS, ManualClock())
        self.known: list[str] = []

    def new_actor(self, number: int, clock: ManualClock) -> Actor:
        self.generation += 1
        coordinator = a_coordinator(self.store, f"owner-{self.generation}", clock)
        return Actor(number, AcknowledgmentSets(coordinator, SourceBatches()), clock)

    @initialize(beyond=st.booleans(), shares=st.tuples(*[shares] * (WORKERS + OTHERS)), landed=st.integers(0, 3))
    def begin_with_two_shards_in_delivery(self, beyond: bool, shares: tuple[float, ...], landed: int) -> None:
        self.skew_limit = BEYOND_THE_MARGIN_SECONDS if beyond else int(MARGIN.total_seconds())
        self.skews = [0] * len(self.actors)
        for number, share in enumerate(shares):
            self.a_wall_clock_is_set(number, share)
        first = {key: a_shard(name).to_mapping() for key, name in ((LEFT, "left"), (RIGHT, "right"))}
        self.actors[0].coordinator.create_partitions(first)
        for w in range(WORKERS):
            self.acquire(w, 1, ActFault())
            for _ in range(landed):
                self.land(w, 1, [SINK, CHECK][: 1 + w], 7200, True, ActFault())

    # Surroundings

    @rule(seconds=seconds)
    def time_passes(self, seconds: float) -> None:
        for actor in self.actors:
            actor.clock.advance(seconds)

    @rule(number=actors, share=shares)
    def a_wall_clock_is_set(self, number: int, share: float) -> None:
        skew = round(share * self.skew_limit)
        self.actors[number].clock.set_wall_clock_back(self.skews[number] - skew)
        self.skews[number] = skew

    # What workers do

    @rule(w=workers, limit=st.integers(1, 2), trouble=troubles)
    def acquire(self, w: int, limit: int, trouble: ActFault) -> None:
        actor = self.actors[w]
        self.attempt(actor, "hold", lambda: actor.coordinator.leases.acquire(limit), trouble)

    @rule(w=workers, what=houses, trouble=troubles)
    def a_worker_keeps_house(self, w: int, what: str, trouble: ActFault) -> None:
        actor = self.actors[w]
        calls: dict[str, Callable[[], object]] = {
            "renew": actor.coordinator.leases.renew_due,
            "recover": actor.coordinator.leases.recover,
            "give up": actor.coordinator.leases.give_up_all,
            "give back": lambda: actor.sets.give_back(None),
            "die": lambda: self.replace(actor),
            "purge": lambda: actor.sets.purge(older_than=timedelta(seconds=300)),
        }
        self.attempt(actor, "purge" if what == "purge" else "hold", calls[what], trouble)

    @rule(
        n=numbers,
        lengths=st.lists(st.integers(1, 2), min_size=1, max_size=3),
        handles=st.sampled_from([[SINK], [SINK], [SINK, CHECK], [CHECK], [SINK, SINK], []]),
        timeout=timeouts,
        complete=st.sampled_from([True, True, False]),
        trouble=troubles,
    )
    def land_several(
        self, n: int, lengths: list[int], handles: list[str], timeout: int, complete: bool, trouble: ActFault
    ) -> None:
        for length in lengths[1:]:
            self.land(n, length, handles, timeout, complete, ActFault())
        self.land(n, lengths[0], handles, timeout, complete, trouble)

    def land(self, n: int, length: int, handles: list[str], timeout: int, complete: bool, trouble: ActFault) -> None:
        """Record the next batch of a shard with its set."""
        actor, key = self.choose_lease(n)
        if actor is None:
            return
        progress = ShardProgress.from_mapping(actor.coordinator.leases.leased(key).progress)
        if progress.is_ended:
            self.deliver_again(n, n, handles, timeout, trouble)
            return
        start = progress.landed_position
        end = min(LAST_POSITION, length + (int(start) if start.isdigit() else 0))
        ends = end == LAST_POSITION
        children = (a_child("merged", "left", "right"),) if ends and key != MERGED else ()
        batch = a_batch(start, str(end), batch_id=f"{start}-{end}", is_last=ends)
        landed = progress.landing(batch, children)
        self.begin(actor, key, batch.batch_id, handles, timeout, complete, landed, trouble)

    @rule(
        n=numbers,
        which=numbers,
        handles=st.sampled_from([[SINK], [SINK, CHECK], []]),
        timeout=timeouts,
        trouble=troubles,
    )
    def deliver_again(self, n: int, which: int, handles: list[str], timeout: int, trouble: ActFault) -> None:
        """Begin a delivery of a landed batch, be it that another one still goes on."""
        actor, key = self.choose_lease(n)
        if actor is None:
            return
        progress = ShardProgress.from_mapping(actor.coordinator.leases.leased(key).progress)
        open_batches = [b for b in progress.landed if not b.acknowledged]
        idle = [b for b in open_batches if b.acknowledgment_set is None] if which < 9 else []
        if batches := idle or open_batches:
            batch = batches[which % len(batches)]
            self.begin(actor, key, batch.batch_id, handles, timeout, True, None, trouble)

    def begin(
        self,
        actor: Actor,
        key: str,
        batch_id: str,
        handles: list[str],
        timeout: int,
        complete: bool,
        landed: ShardProgress | None,
        trouble: ActFault,
    ) -> None:
        self.attempt(
            actor,
            "begin",
            lambda: actor.sets.begin(
                key,
                batch_id,
                handles,
                timeout=timedelta(seconds=timeout),
                sinks=[SINK] if SINK in handles else [],
                complete=complete,
                progress=None if landed is None else landed.to_mapping(),
            ),
            trouble,
            landed=None if landed is None else batch_id,
        )

    @rule(n=numbers, timeout=timeouts, trouble=troubles)
    def leave_to_wait(self, n: int, timeout: int, trouble: ActFault) -> None:
        actor, key = self.choose_lease(n)
        if actor is None:
            return
        landed = actor.coordinator.leases.leased(key).progress["landed"]
        if not any(batch["acknowledgment_set"] for batch in landed):
            return
        wait = timedelta(seconds=timeout)
        self.attempt(actor, "wait", lambda: actor.coordinator.leases.await_acknowledgment(key, wait), trouble)

    # What anybody does to a set

    @rule(a=actors, backwards=st.booleans(), most=st.integers(1, 6), at=st.integers(0, 8), trouble=troubles)
    def acknowledge(self, a: int, backwards: bool, most: int, at: int, trouble: ActFault) -> None:
        """Release all that some sets owe, those that were made last at first, or at last."""
        pending = self.checked_pending()
        chosen = pending[::-1][:most] if backwards else pending[:most]
        owed = [
            (set_id, handle, f"{handle} {number}")
            for set_id in chosen
            for handle, count in (self.stored_set(set_id) or {}).get("references", {}).items()
            for number in range(count)
        ]
        for n, (set_id, handle, identity) in enumerate(owed):
            now = trouble if n == min(at, len(owed) - 1) else ActFault()
            self.release_of(self.actors[a], set_id, handle, True, identity, False, now)

    @rule(n=numbers, taken=st.booleans(), positive=st.booleans(), owned=st.booleans())
    def a_worker_that_lost_its_lease_has_its_say(self, n: int, taken: bool, positive: bool, owned: bool) -> None:
        actor, key = self.choose_lease(n)
        sets = [s for s in self.checked_pending() if (self.stored_set(s) or {})["partition_key"] == key]
        if actor is None or not sets:
            return
        self.a_person_orders("release", key, ActFault())
        if taken:
            self.acquire((actor.number + 1) % WORKERS, 2, ActFault())
        set_id = sets[n % len(sets)]
        handle = next((h for h in (self.stored_set(set_id) or {})["references"]), SINK)
        self.release_of(actor, set_id, handle, positive, handle, owned, ActFault())

    @rule(
        a=actors,
        n=numbers,
        handle=st.sampled_from([SINK, CHECK]),
        positive=st.sampled_from([True, True, False]),
        identity=st.sampled_from(["", "", "again", "third"]),
        owned=st.booleans(),
        trouble=troubles,
    )
    def release(
        self, a: int, n: int, handle: str, positive: bool, identity: str, owned: bool, trouble: ActFault
    ) -> None:
        set_id = self.choose_set(n)
        if set_id is None:
            return
        found = self.stored_set(set_id)
        if found and handle not in found["references"] and found["references"] and n != 11:
            handle = next(iter(found["references"]))
        key = "" if found is None else found["partition_key"]
        believers = [actor for actor in self.actors if owned and n % 2 and key in actor.coordinator.leases.held]
        self.release_of([*believers, self.actors[a]][0], set_id, handle, positive, identity, owned, trouble)

    def release_of(
        self, actor: Actor, set_id: str, handle: str, positive: bool, identity: str, owned: bool, trouble: ActFault
    ) -> None:
        found = self.stored_set(set_id)
        result, error = self.attempt(
            actor,
            "release",
            lambda: actor.sets.release(
                set_id,
                handle,
                positive=positive,
                release_id=identity or None,
                reason=None if positive else "no",
                owned=owned,
            ),
            trouble,
            set_id=set_id,
            handle=handle,
            positive=positive,
            release_id=identity or handle,
            owned=owned,
        )
        if trouble.kind == "none" and result is not None:
            self.check_effect(actor, found, handle, positive, identity or handle, *result)
        assert not isinstance(error, PartitionUpdateError)

    def check_effect(
        self,
        actor: Actor,
        before: Mapping[str, Any] | None,
        handle: str,
        positive: bool,
        identity: str,
        after: AcknowledgmentSet,
        effect: ReleaseEffect,
    ) -> None:
        assert before is not None
        if before["releases"].get(identity) == {"handle": handle, "positive": positive}:
            assert effect is ReleaseEffect.DUPLICATE
        elif before["state"] != "PENDING" or after.state == "EXPIRED":
            assert effect is ReleaseEffect.LATE
        else:
            assert effect is ReleaseEffect.RELEASED
        assert after == actor.sets.view.get(after.set_id), "the set is as it was returned"

    @rule(
        a=actors,
        n=numbers,
        what=st.sampled_from(["add", "acquire", "complete", "complete", "extend", "extend", "cancel", "cancel"]),
        handle=st.sampled_from([SINK, CHECK]),
        timeout=timeouts,
        trouble=troubles,
    )
    def change(self, a: int, n: int, what: str, handle: str, timeout: int, trouble: ActFault) -> None:
        actor, set_id = self.actors[a], self.choose_set(n)
        if set_id is None:
            return
        calls: dict[str, tuple[str, Callable[[], object]]] = {
            "add": ("more", lambda: actor.sets.add(set_id, handle)),
            "acquire": ("more", lambda: actor.sets.acquire(set_id, handle)),
            "complete": ("more", lambda: actor.sets.complete(set_id)),
            "extend": ("extend", lambda: actor.sets.extend(set_id, timedelta(seconds=timeout))),
            "cancel": ("cancel", lambda: actor.sets.cancel(set_id, "no more")),
        }
        kind, call = calls[what]
        self.attempt(actor, kind, call, trouble, set_id=set_id)

    @rule(a=actors, n=numbers, seconds=st.sampled_from([None, -1, 0, 1, 5]), trouble=troubles)
    def somebody_watches(self, a: int, n: int, seconds: int | None, trouble: ActFault) -> None:
        """Expire overdue sets, possibly just when a set is about to become overdue."""
        pending = [s.expires_at for s in self.actors[a].sets.view.pending()]
        if pending and seconds is not None:
            due = pending[n % len(pending)] - self.actors[a].clock.now()
            self.time_passes(max(0, due.total_seconds() + seconds))
        if n % 3:
            self.expire(a, trouble)

    def expire(self, a: int, trouble: ActFault) -> None:
        actor = self.actors[a]
        before = set(self.checked.endings)
        ended, _ = self.attempt(actor, "expire", actor.sets.expire_overdue, trouble)
        for each in ended or []:
            assert self.checked.endings[each.set_id] == each.state == "EXPIRED" and each.set_id not in before

    # What a person does

    @rule(
        order=st.sampled_from(["release", "release", "reopen", "reopen", "reset"]),
        key=st.sampled_from([LEFT, RIGHT, MERGED]),
        trouble=troubles,
    )
    def a_person_orders(self, order: str, key: str, trouble: ActFault) -> None:
        first = a_shard(key.split(":")[-1]).to_mapping()
        calls: dict[str, Callable[[], object]] = {
            "release": lambda: self.person.release(key),
            "reopen": lambda: self.person.reopen(key),
            "reset": lambda: self.person.reset(key, first),
        }
        trouble = ActFault() if trouble.kind == "killed" else trouble
        self.attempt(self.actors[-1], "order", calls[order], trouble, resets=order == "reset")

    # What holds

    @invariant()
    def set_of_each_waiting_batch_is_pending(self) -> None:
        for key, partition in self.checked.of(PARTITIONS).items():
            waiting = [b for b in partition.progress["landed"] if b["acknowledgment_set"]]
            for batch in waiting:
                found = self.stored_set(batch["acknowledgment_set"])
                assert found is not None and found["state"] == "PENDING"
                assert (found["partition_key"], found["batch_id"]) == (key, batch["batch_id"])
            assert waiting or not partition.is_awaiting, "who waits has something to wait for"

    @invariant()
    def a_merged_shard_follows_its_last_parent_once(self) -> None:
        found = self.checked.of(PARTITIONS)
        assert self.checked.created in ([], [MERGED])
        if all(key in found and found[key].status is PartitionStatus.COMPLETED for key in (LEFT, RIGHT)):
            assert MERGED in found

    def teardown(self) -> None:
        """Nothing is stuck: when all is well again, one worker and one watcher finish everything."""
        self.actors = [self.new_actor(0, ManualClock(datetime(2027, 1, 1, tzinfo=UTC)))]
        last = self.actors[0]
        for _ in range(5):
            self.time_passes(20_000)
            self.expire(0, ActFault())
            assert self.checked_pending() == []
            for key, partition in self.checked.of(PARTITIONS).items():
                if partition.status is PartitionStatus.CLOSED:
                    self.a_person_orders("reopen", key, ActFault())
            self.acquire(0, 3, ActFault())
            for key in list(last.coordinator.leases.held):
                self.work_off(last, key)
        found = self.checked.of(PARTITIONS)
        assert {key: partition.status for key, partition in found.items()} == dict.fromkeys(
            (LEFT, RIGHT, MERGED), PartitionStatus.COMPLETED
        )
        for partition in found.values():
            assert (partition.progress["checkpoint"], partition.progress["landed"]) == (str(LAST_POSITION), [])

    def checked_pending(self) -> list[str]:
        return [key for key, item in self.checked.of(SETS).items() if item.progress["state"] == "PENDING"]

    def work_off(self, last: Actor, key: str) -> None:
        """Deliver all that a shard holds, and all that it ever will."""
        while key in last.coordinator.leases.held:
            progress = ShardProgress.from_mapping(last.coordinator.leases.leased(key).progress)
            idle = [b.batch_id for b in progress.landed if not b.acknowledged]
            if idle:
                self.begin(last, key, idle[0], [CHECK], 300, True, None, ActFault())
                self.release(0, len(self.checked_pending()) - 1, CHECK, True, "", True, ActFault())
            else:
                n = sorted(last.coordinator.leases.held).index(key)
                self.land(n, 2, [], 300, True, ActFault())

    # How an act is made

    def choose_lease(self, n: int) -> tuple[Actor | None, str]:
        """Choose who acts on what: a worker on a shard that it holds, or believes that it does."""

        def held() -> list[tuple[Actor, str]]:
            return [(actor, key) for actor in self.actors[:WORKERS] for key in sorted(actor.coordinator.leases.held)]

        if not held():
            self.acquire(n % len(self.actors[:WORKERS]), 2, ActFault())
        choices = held()
        return choices[n % len(choices)] if choices else (None, "")

    def choose_set(self, n: int) -> str | None:
        """Choose a set: mostly one that is pending."""
        self.known += [key for key in self.checked.of(SETS) if key not in self.known]
        pending = self.checked_pending()
        choices = pending if pending and n < 9 else self.known
        return choices[n % len(choices)] if choices else None

    def stored_set(self, set_id: str) -> Mapping[str, Any] | None:
        found = self.checked.peek(SETS, set_id)
        return None if found is None else found.progress

    def replace(self, actor: Actor) -> None:
        if actor in self.actors:
            self.actors[self.actors.index(actor)] = self.new_actor(actor.number, actor.clock)

    def attempt(
        self, actor: Actor, kind: str, call: Callable[[], T], trouble: ActFault, **about: Any
    ) -> tuple[T | None, CoordinationError | None]:
        """Let an actor act; return its result and its error, after checking that no failure is made up."""
        act = Act(kind=kind, owner=actor.owner, started=actor.clock.now(), **about)
        failures = self.store.failures
        result, error = None, None
        with self.acting(act), self.troubled(actor, act, trouble):
            try:
                result = call()
            except CoordinationError as raised:
                error = raised
            except KilledError:
                self.replace(actor)
        assert isinstance(error, StoreUnavailableError) == (self.store.failures > failures), error
        expected = (StoreUnavailableError, AcknowledgmentError, PartitionUpdateError, PartitionStatusError, *LOST)
        assert error is None or isinstance(error, expected), error
        return result, error

    @contextmanager
    def acting(self, act: Act) -> Iterator[None]:
        self.checked.acts.append(act)
        try:
            yield
        finally:
            self.checked.acts.pop()

    @contextmanager
    def troubled(self, actor: Actor, act: Act, trouble: ActFault) -> Iterator[None]:
        if trouble.kind == "none":
            yield
            return
        self.store.fault = {"not made": NOT_MADE, "not answered": NOT_ANSWERED}.get(trouble.kind)
        self.store.away = trouble.kind == "away"
        if trouble.kind in ("killed", "concurrent"):
            self.store.countdown = trouble.call
            self.store.interruption = lambda: self.act_concurrently(actor, act, trouble)
        try:
            yield
        finally:
            self.store.fault, self.store.away, self.store.interruption = None, False, None

    def act_concurrently(self, actor: Actor, act: Act, trouble: ActFault) -> None:
        """Let something happen between two calls of an act."""
        if trouble.kind == "killed":
            raise KilledError
        other = self.actors[(actor.number + 1 + trouble.call) % len(self.actors)]
        if other is actor:
            other = self.actors[(actor.number + 1) % len(self.actors)]
        n, calm = trouble.call, ActFault()
        number = self.actors.index(other)
        if act.set_id and act.set_id in (pending := self.checked_pending()):
            n = pending.index(act.set_id) if pending.index(act.set_id) < 9 else n
        match trouble.what:
            case "acknowledge":
                self.acknowledge(number, True, 6, 0, calm)
            case "reject":
                self.release(number, n, SINK, False, "", False, calm)
            case "expire":
                self.time_passes(40)
                self.expire(number, calm)
            case "cancel":
                self.change(number, n, "cancel", SINK, 30, calm)
            case "take over":
                self.time_passes(70)
                self.acquire((actor.number + 1) % WORKERS, 2, calm)
            case "order":
                keys = [key for key, p in self.checked.of(PARTITIONS).items() if p.owner == act.owner]
                self.a_person_orders("release", keys[n % len(keys)] if keys else LEFT, calm)
            case "renew":
                self.a_worker_keeps_house((actor.number + 1) % WORKERS, "renew", calm)


def test_sets_end_once_and_checkpoints_pass_nothing_owed(no_logging: None) -> None:
    run(20)


@pytest.mark.integration
@pytest.mark.deep
def test_sets_end_once_in_hundreds_of_runs(no_logging: None) -> None:
    run(70)


@pytest.fixture
def no_logging(caplog: pytest.LogCaptureFixture) -> None:
    """Spare the log: there is much to say about tens of thousands of acts."""
    caplog.set_level(logging.CRITICAL, logger="airflow_provider_coordination")


def run(number: int) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        AcknowledgmentSafety,
        settings=settings(
            max_examples=examples(number), stateful_step_count=40, suppress_health_check=list(HealthCheck)
        ),
    )
