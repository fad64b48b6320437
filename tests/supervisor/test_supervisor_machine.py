"""Random histories of a supervisor: jobs, shards, verbs, interrupted turns and zombies.

At any call to the store a turn may be killed, get no answer, or stand still while another one is made in between. Jobs
obey, or do not. Whatever happens, no job runs that the supervisor does not know, every end is counted once, and once
the trouble is over, as many jobs read as there should be.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from airflow_provider_coordination.coordination.errors import (
    SourceError,
    StoreUnavailableError,
    SupervisedElsewhereError,
    SupervisionError,
)
from airflow_provider_coordination.coordination.jobs import JobState
from airflow_provider_coordination.coordination.store import CoordinationStore
from airflow_provider_coordination.supervisor.supervision import Claimant, Supervision
from airflow_provider_coordination.supervisor.turn import JobRequest
from tests.coordination.stepped_store import ProcessKilled, SteppedStore, killed
from tests.supervisor.source_simulation import SourceSimulation, SparkJob, spec
from tests.supervisor.stores import STORES, opening
from tests.support.depth import examples

CALLS = st.integers(0, 60)
"""At which call to the store something happens; a turn makes some twenty."""
MOST_JOBS = 3
TASK_DURATION, COMPLETION_TIMEOUT = 300, 120


class CrashingCluster:
    """A cluster that takes the process along which submits to it, before or after it has."""

    def __init__(self, simulation: SourceSimulation, *, submits: bool) -> None:
        self._cluster, self._submits = simulation.cluster, submits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def start(self, order: JobRequest) -> None:
        if self._submits:
            self._cluster.start(order)
        raise ProcessKilled


class SupervisorMachine(RuleBasedStateMachine):
    """One source, its supervisors, its jobs, and people."""

    def open_store(self) -> CoordinationStore:
        """Open an empty store, one for each life."""
        raise NotImplementedError

    @initialize(shards=st.integers(1, 4), jobs=st.integers(1, MOST_JOBS))
    def begin(self, shards: int, jobs: int) -> None:
        self.simulation = SourceSimulation(*(f"S{number}" for number in range(shards)), store=self.open_store())
        self.numbers = itertools.count(1)
        self.submitted: list[dict[str, Any] | None] = []  # versions of the spec, None for a termination
        self.reported: set[str] = set()
        self.frozen: set[str] = set()
        self.spec_of(jobs, "a")

    # Supervisors

    def claimant(self, *, is_new: bool) -> Claimant:
        if is_new:
            self.simulation.clock.advance(1)
            number = next(self.numbers)
            self.simulation.claimant = Claimant(
                owner=f"run-{number}", dag_id="supervise_clicks", run_at=self.simulation.clock.now()
            )
            self.simulation.supervisor = self.simulation.another_supervisor(self.simulation.claimant)
        return self.simulation.claimant

    @rule(is_new=st.booleans())
    def turn(self, is_new: bool) -> None:
        """A turn is made, by the run that supervises or by a new one."""
        self.claimant(is_new=is_new)
        self.simulation.turn()

    @rule()
    def look(self) -> None:
        """The source is looked at, and if there is a need, a turn is made."""
        if self.simulation.supervisor.poll().needs_turn:
            self.simulation.turn()

    @rule(at=CALLS)
    def turn_is_killed(self, at: int) -> None:
        """A turn is killed before a call to the store."""
        self.stepped(at, before=killed)

    @rule(at=CALLS)
    def turn_gets_no_answer(self, at: int) -> None:
        """The answer to a call is lost."""
        self.stepped(at, answers=False)

    @rule(at=CALLS, is_new=st.booleans())
    def turn_is_overtaken(self, at: int, is_new: bool) -> None:
        """A turn stands still before a call, another one is made, of the same run or a later one, and it goes on."""
        claimant = self.simulation.claimant

        def overtake() -> None:
            self.claimant(is_new=is_new)
            self.simulation.turn()

        self.stepped(at, before=overtake, claimant=claimant)

    @rule(at=CALLS, verb=st.sampled_from(["suspend", "terminate", "submit", "hand_over"]))
    def verb_comes_in_between(self, at: int, verb: str) -> None:
        """A person does something in the middle of a turn."""
        self.stepped(at, before={
            "suspend": self.suspend, "terminate": self.terminate, "hand_over": self.hand_over,
            "submit": lambda: self.spec_of(MOST_JOBS, "c"),
        }[verb])  # fmt: skip

    @rule(submits=st.booleans())
    def turn_dies_with_a_submission(self, submits: bool) -> None:
        """The worker dies while it submits a job, before the cluster has it or after; there is one to submit."""
        if self.begun:
            self.end(self.begun[0])
        with suppress(ProcessKilled):
            self.simulation.supervisor.turn(CrashingCluster(self.simulation, submits=submits))

    def stepped(
        self,
        at: int,
        *,
        before: Callable[[], object] = lambda: None,
        answers: bool = True,
        claimant: Claimant | None = None,
    ) -> None:
        store: Any = SteppedStore(self.simulation.backend, at=at, before=before, answers=answers)
        supervisor = self.simulation.another_supervisor(claimant or self.simulation.claimant, store)
        with suppress(ProcessKilled, StoreUnavailableError, SupervisedElsewhereError):
            supervisor.turn(self.simulation.cluster)

    # Time, jobs and the source

    @rule(seconds=st.sampled_from([1, 10, 30, 65, 130, 310, 700]))
    def time_passes(self, seconds: int) -> None:
        """Time passes, while jobs renew their leases."""
        for _ in range(0, seconds, 20):
            self.simulation.clock.advance(min(20, seconds))
            self.rounds()

    @rule()
    def jobs_begin(self) -> None:
        """Every submitted job begins."""
        for job in self.simulation.running:
            if job.record is None:
                job.begin()
        self.rounds()

    def rounds(self) -> None:
        for job in self.simulation.running:
            if job.record is not None and job.owner not in self.frozen:
                job.round(2)

    @rule(data=st.data(), exit_code=st.sampled_from([0, 0, 1]))
    @precondition(lambda self: self.begun)
    def job_ends(self, data: st.DataObject, exit_code: int) -> None:
        """A job ends, well or not, having counted one record."""
        self.end(data.draw(st.sampled_from(self.begun), label="job"), exit_code)

    def end(self, job: SparkJob, exit_code: int = 0) -> None:
        known = self.simulation.jobs.get(job.owner)
        if known is not None and known.state is JobState.RUNNING:
            job.report(processed=1)
            self.reported.add(job.owner)
        job.end(exit_code, "Boom: no" if exit_code else None)

    @rule()
    def jobs_obey(self) -> None:
        """Every job that was asked to stop ends well."""
        self.rounds()
        for job in self.begun:
            if job.stop is not None:
                self.end(job)

    @rule(data=st.data())
    @precondition(lambda self: self.simulation.running)
    def job_dies(self, data: st.DataObject) -> None:
        """A job is gone without a word."""
        data.draw(st.sampled_from(self.simulation.running), label="job").is_dead = True

    @rule(data=st.data())
    @precondition(lambda self: self.begun)
    def job_freezes(self, data: st.DataObject) -> None:
        """A job stands still, or goes on."""
        self.frozen ^= {data.draw(st.sampled_from(self.begun), label="job").owner}

    @rule(refuses=st.booleans())
    def cluster_refuses(self, refuses: bool) -> None:
        """The cluster takes no jobs, or does again."""
        self.simulation.cluster.refuses = RuntimeError("no room") if refuses else None

    @rule(is_away=st.booleans())
    def stream_is_away(self, is_away: bool) -> None:
        """The source does not answer, or does again."""
        self.simulation.stream.error = SourceError("gone") if is_away else None

    @rule()
    @precondition(lambda self: len(self.simulation.stream.shards) < 12)
    def shard_is_split(self) -> None:
        """A shard is read to its end, and two take its place."""
        leases = sorted(key for key, _ in self.simulation.read_by().items())
        if leases:
            self.simulation.complete(leases[0])
            children = [f"{leases[0]}{side}" for side in "lr"]
            self.simulation.coordinator("reshard").create_partitions({child: {} for child in children})
            self.simulation.stream.shards += children

    @rule()
    def shard_is_finished(self) -> None:
        """A shard is read to its end, and nothing takes its place."""
        leases = sorted(self.simulation.read_by())
        if len(leases) > 1:
            self.simulation.complete(leases[-1])

    # People

    @rule(jobs=st.integers(1, MOST_JOBS), path=st.sampled_from("ab"))
    def submits(self, jobs: int, path: str) -> None:
        """A person submits a spec."""
        self.spec_of(jobs, path)

    def spec_of(self, jobs: int, path: str) -> None:
        made = spec(
            start_delay=0, task_count=jobs, path=f"/data/{path}", task_duration=TASK_DURATION,
            completion_timeout=COMPLETION_TIMEOUT,
        )  # fmt: skip
        version = self.simulation.store.submit(made).version
        if version == len(self.submitted) + 1:
            self.submitted.append(made)

    @rule()
    def suspend(self) -> None:
        """A person suspends the source."""
        self.simulation.suspend()

    @rule()
    def resume(self) -> None:
        """A person resumes it."""
        self.simulation.resume()

    @rule()
    def hand_over(self) -> None:
        """A person asks for a handover."""
        with suppress(SupervisionError):
            self.simulation.store.request_handover()

    @rule()
    def terminate(self) -> None:
        """A person terminates the supervisor."""
        with suppress(SupervisionError):
            self.simulation.store.terminate(by="ann")
            self.submitted.append(None)

    # What is always true

    @property
    def begun(self) -> list[SparkJob]:
        return [job for job in self.simulation.running if job.record is not None]

    @invariant()
    def no_job_runs_that_is_not_remembered(self) -> None:
        unfinished = {job.owner for job in self.simulation.jobs.unfinished()}
        assert unfinished <= {job.owner for job in self.simulation.supervision().jobs}

    @invariant()
    def no_two_jobs_share_an_owner(self) -> None:
        owners = [job.owner for job in self.simulation.cluster.submitted]
        assert len(owners) == len(set(owners))

    @invariant()
    def no_more_jobs_are_to_go_on_than_there_may_be(self) -> None:
        standing = [job for job in self.simulation.supervision().jobs if not job.is_ending]
        replaced = {job.replaces for job in standing}
        assert len([job for job in standing if job.owner not in replaced]) <= MOST_JOBS
        assert len(standing) <= 2 * MOST_JOBS

    @invariant()
    def every_end_is_counted_once(self) -> None:
        memory = self.simulation.supervision()
        left = {job.owner for job in memory.jobs}
        assert memory.totals.get("processed", 0) == len(self.reported - left)

    @invariant()
    def versions_are_what_was_submitted_in_order(self) -> None:
        history = self.simulation.store.history(limit=1000)
        assert [version.spec for version in reversed(history)] == self.submitted
        assert self.simulation.supervision().spec_version == len(self.submitted)

    @invariant()
    def supervision_survives_serialization(self) -> None:
        memory = self.simulation.supervision()
        assert Supervision.from_mapping(memory.to_mapping()) == memory

    @invariant()
    def nothing_is_planned_after_a_termination(self) -> None:
        memory = self.simulation.supervision()
        if memory.terminated_at is not None:
            assert all(job.planned_at <= memory.terminated_at for job in memory.jobs)

    def teardown(self) -> None:
        """Once the trouble is over, as many jobs read as there should be, and all that there is is read."""
        simulation = self.simulation
        simulation.cluster.refuses = simulation.stream.error = None
        simulation.resume()
        self.frozen.clear()
        if self.submitted[-1] is None:
            self.spec_of(2, "final")
        self.claimant(is_new=True)
        for _ in range(90):
            simulation.clock.advance(20)
            for job in simulation.running:
                if job.record is None:
                    job.begin()
                if job.record is not None and job.stop is not None:
                    self.end(job)
            simulation.rounds()
            if simulation.supervisor.poll().needs_turn:
                simulation.turn()
        memory = simulation.supervision()
        ruling = self.submitted[-1]
        assert ruling is not None and memory.spec_version == len(self.submitted)
        wanted = min(ruling["supervise"]["task_count"], len(simulation.read_by()))
        assert {job.spec_version for job in memory.jobs} == {memory.spec_version}
        standing = {job.owner: job for job in memory.jobs if not job.is_ending}
        assert len([job for job in standing.values() if job.replaces not in standing]) == wanted
        assert {job.owner for job in memory.jobs} == set(simulation.owners)
        assert set(simulation.read_by().values()) <= set(simulation.owners)
        assert not memory.health.failed_runs
        simulation.backend.close()


@pytest.mark.deep
@pytest.mark.parametrize("kind", STORES)
def test_supervisor_keeps_its_promises(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    opened = opening(kind, request, tmp_path)
    machine = type(SupervisorMachine.__name__, (SupervisorMachine,), {"open_store": lambda self: opened()})
    number = {"in_memory": 20, "sqlite": 4}.get(kind, 1)
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(number), stateful_step_count=30))
