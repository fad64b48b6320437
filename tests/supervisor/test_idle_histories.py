"""Random histories of a source that idles and wakes, while jobs and supervisors die and people interfere.

Whatever happens, each record is delivered once, no source stays idle while a record is unread, and no more jobs are to
read than the spec allows. Once the trouble is over, everything is delivered and the source is idle again.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination.errors import (
    SourceError,
    StoreUnavailableError,
    SupervisedElsewhereError,
)
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.supervisor.observation import REVIEWED_EVERY
from airflow_provider_coordination.supervisor.supervision import Claimant
from airflow_provider_coordination.supervisor.turn import Supervisor
from tests.coordination.stepped_store import ProcessKilled, SteppedStore, killed
from tests.supervisor.record_simulation import RecordSimulation, position
from tests.supervisor.source_simulation import SparkJob
from tests.support.depth import examples

JOBS = 2
IDLE_AFTER, PERIOD, STEP = 60, 30, 10
TIMES = {"period": PERIOD, "task_count": JOBS, "completion_timeout": 120, "task_duration": 1200}
WAKES_WITHIN = 2 * PERIOD + STEP
"""How long a source may be idle with an unread record: its first poll after an outage only notes that it is over."""
FINDS_WITHIN = REVIEWED_EVERY.total_seconds() + WAKES_WITHIN
"""The same for a record of a new shard."""
SECONDS = (0, STEP, 60, WAKES_WITHIN + STEP, 240)
MAX_SHARDS, MAX_FAILURES = 8, 3
PATIENCE_SECONDS = 7200


class IdleHistory:
    """A source that is idle now and then. Each event gets a number, which chooses what it happens to."""

    def __init__(self, shards: int) -> None:
        self.source = RecordSimulation(*(f"S{number}" for number in range(shards)))
        self.clock = self.source.clock
        self.numbers = itertools.count(1)
        self.former: list[Supervisor] = []
        self.unread_seconds: Counter[bool] = Counter()
        self.failures = 0
        self.source.submit(path="/data/a", idle_after=IDLE_AFTER, **TIMES)

    def go_on(self, seconds: int) -> None:
        """Jobs and the watcher are at work, and no idle source leaves a record unread for long."""
        for _ in range(0, seconds, STEP):
            self.clock.advance(STEP)
            self.source.begin()
            self.source.watch()
            self.check()
            self.check_awake()

    # Records and shards

    def record_arrives(self, number: int) -> None:
        shards = self.source.stream.shards
        self.source.stream.put(shards[number % len(shards)])

    def night_passes(self, number: int) -> None:
        """Nobody watches an idle source for hours; then its positions are confirmed."""
        if self.source.supervision().idle and not self.source.running:
            self.clock.advance(7 * 3600)
            self.source.watch()

    def shard_is_split(self, number: int) -> None:
        shards = self.source.stream.shards
        if len(self.source.stream.records) < MAX_SHARDS:
            self.source.stream.split(shards[number % len(shards)])

    def shard_is_added(self, number: int) -> None:
        """A new shard without a parent, as in a new stream: the next job that looks finds it."""
        if len(self.source.stream.records) < MAX_SHARDS:
            self.source.stream.add(f"N{next(self.numbers)}")
            self.source.stream.put(self.source.stream.shards[-1])

    def stream_is_lost(self, number: int) -> None:
        self.source.stream.error = SourceError("gone")

    def stream_is_found(self, number: int) -> None:
        self.source.stream.error = None

    # Jobs

    def job(self, number: int) -> SparkJob | None:
        """Return one of the jobs that have begun and do not stand still."""
        going = [job for job in self.source.running if job.record and job.owner not in self.source.frozen]
        return going[number % len(going)] if going else None

    def job_is_killed(self, number: int) -> None:
        if (job := self.job(number)) is not None:
            job.is_dead = True

    def job_dies_with_landed_records(self, number: int) -> None:
        """A job that does not notice a request to stop lands a record, and dies before it delivers it."""
        if (job := self.job(number)) is not None:
            self.source.slow.add(job.owner)
            self.source.dying.add(job.owner)
            self.record_arrives(number)

    def job_freezes(self, number: int) -> None:
        if self.source.running:
            self.source.frozen.add(self.source.running[number % len(self.source.running)].owner)

    def jobs_thaw(self, number: int) -> None:
        self.source.frozen.clear()

    def jobs_end_slowly(self, number: int) -> None:
        """The jobs take long to end; the source may wake before."""
        self.source.slow ^= set(self.source.owners)

    def attempt_fails(self, number: int) -> None:
        """The source refuses to let a job read a shard."""
        job = self.job(number)
        if job is not None and (held := sorted(job.coordinator.leases.held)) and self.failures < MAX_FAILURES:
            self.failures += 1
            self.source.fails(job, held[number % len(held)])

    def sink_refuses(self, number: int) -> None:
        """A job cannot deliver what it has landed, and gives the shard back for a while."""
        if (job := self.job(number)) is not None and self.failures < MAX_FAILURES:
            self.failures += 1
            self.source.refused.add(job.owner)
            self.record_arrives(number)

    # Supervisors

    def watcher_dies(self, number: int) -> None:
        """The next run of the DAG supervises; the former one does not know that it is replaced."""
        self.clock.advance(1)
        self.former.append(self.source.supervisor)
        self.source.claimant = Claimant(
            owner=f"run-{next(self.numbers)}", dag_id=self.source.claimant.dag_id, run_at=self.clock.now()
        )
        self.source.supervisor = self.source.another_supervisor(self.source.claimant)

    def former_watcher_goes_on(self, number: int) -> None:
        with suppress(SupervisedElsewhereError):
            if self.former and self.former[-1].poll().needs_turn:
                self.former[-1].turn(self.source.cluster)

    def watcher_is_killed(self, number: int) -> None:
        self._strike(number, before=killed)

    def watcher_gets_no_answer(self, number: int) -> None:
        self._strike(number, answers=False)

    def watcher_is_overtaken(self, number: int) -> None:
        """A watcher stands still at a call, another one takes over, and then both go on."""

        def overtake() -> None:
            self.watcher_dies(number)
            self.source.watch()
            self.source.begin()

        self._strike(number, before=overtake)

    def reset_comes_in_between(self, number: int) -> None:
        self._strike(number, before=lambda: self.shard_is_reset(number))

    def _strike(self, at: int, *, before: Callable[[], object] = lambda: None, answers: bool = True) -> None:
        """Strike a watcher at a call to the store, while there may be something to do."""
        store: Any = SteppedStore(self.source.backend, at=at, before=before, answers=answers)
        supervisor = self.source.another_supervisor(self.source.claimant, store)
        with suppress(ProcessKilled, StoreUnavailableError, SupervisedElsewhereError):
            if supervisor.poll().needs_turn:
                supervisor.turn(self.source.cluster)

    # People

    def spec_is_edited(self, number: int) -> None:
        idle_after = (None, IDLE_AFTER, 2 * IDLE_AFTER)[number % 3]
        idles = {} if idle_after is None else {"idle_after": idle_after}
        self.source.submit(path=f"/data/{'ab'[number % 2]}", **TIMES, **idles)

    def source_is_suspended(self, number: int) -> None:
        self.source.suspend()

    def source_is_resumed(self, number: int) -> None:
        self.source.resume()

    def shard_is_reset(self, number: int) -> None:
        """A shard is read again, from some records before its position."""
        keys = sorted(self.source.stream.records)
        key = keys[number % len(keys)]
        if (partition := self.source.partition(key)) is not None:
            self.source.reset(key, max(0, position(partition) - 1 - number % 3))

    # What is always true

    def check(self) -> None:
        self.source.check()
        memory = self.source.supervision()
        standing = {job.owner: job for job in memory.jobs if not job.is_ending}
        assert len([job for job in standing.values() if job.replaces not in standing]) <= JOBS
        assert {job.owner for job in self.source.jobs.unfinished()} <= {job.owner for job in memory.jobs}

    def check_awake(self) -> None:
        memory, source = self.source.supervision(), self.source
        is_excused = source.stream.error is not None or source.view.suspensions.get() is not None
        known = {shard: source.partition(shard) for shard in source.unread}
        unread = [key for key, found in known.items() if found is None or found.status is not PartitionStatus.CLOSED]
        if memory.idle is None or memory.jobs or is_excused:
            self.unread_seconds.clear()
            return
        for is_known, limit in ((True, WAKES_WITHIN), (False, FINDS_WITHIN)):
            waiting = [shard for shard in unread if (known[shard] is not None) is is_known]
            self.unread_seconds[is_known] = self.unread_seconds[is_known] + STEP if waiting else 0
            assert self.unread_seconds[is_known] <= limit, waiting

    def end(self) -> None:
        """End the trouble: everything is delivered, and no job runs."""
        source = self.source
        source.stream.error = None
        source.resume()
        for owners in (source.frozen, source.slow, source.dying, source.refused):
            owners.clear()
        spec = source.store.current()
        if spec is None or spec.spec is None or "idle_after" not in spec.spec["supervise"]:
            source.submit(idle_after=IDLE_AFTER, **TIMES)
        self.unread_seconds.clear()
        for _ in range(0, PATIENCE_SECONDS, STEP):
            if source.is_settled:
                break
            self.go_on(STEP)
        assert source.is_settled


Event = Callable[[IdleHistory, int], None]
EVENTS: list[Event] = [
    *[IdleHistory.record_arrives] * 6,
    *[IdleHistory.shard_is_added] * 2,
    IdleHistory.night_passes,
    IdleHistory.shard_is_split,
    IdleHistory.shard_is_added,
    IdleHistory.stream_is_lost,
    IdleHistory.stream_is_found,
    IdleHistory.job_is_killed,
    IdleHistory.job_dies_with_landed_records,
    IdleHistory.job_freezes,
    IdleHistory.jobs_thaw,
    IdleHistory.jobs_end_slowly,
    IdleHistory.attempt_fails,
    IdleHistory.sink_refuses,
    IdleHistory.watcher_dies,
    IdleHistory.former_watcher_goes_on,
    IdleHistory.watcher_is_killed,
    IdleHistory.watcher_gets_no_answer,
    IdleHistory.watcher_is_overtaken,
    IdleHistory.reset_comes_in_between,
    IdleHistory.spec_is_edited,
    IdleHistory.source_is_suspended,
    IdleHistory.source_is_resumed,
    IdleHistory.shard_is_reset,
]
EVENT = st.tuples(st.sampled_from(EVENTS), st.integers(0, 40), st.sampled_from(SECONDS))


@pytest.mark.deep
@settings(max_examples=examples(8))
@given(shards=st.integers(1, 3), lead=st.sampled_from((60, 90, 240)), events=st.lists(EVENT, min_size=4, max_size=14))
def test_idle_source_delivers_each_record_once(shards: int, lead: int, events: list[tuple[Event, int, int]]) -> None:
    history = IdleHistory(shards)
    history.go_on(lead)
    for event, number, seconds in events:
        event(history, number)
        history.check()
        history.go_on(seconds)
    history.end()
