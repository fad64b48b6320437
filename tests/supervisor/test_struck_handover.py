"""A supervisor fails at each call of the turn that replaces its jobs, and the next run of its DAG supervises.

The next run takes over while the first stands still, or after it died; then the first goes on. All jobs that run are
known, each shard is read by one job of the new spec, and every end is counted once.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.supervisor.source_simulation import SourceSimulation
from tests.support.depth import at_depth
from tests.support.freezing import Strike
from tests.support.striking import STRIKES, calls_of, counted_store, strike_at

pytestmark = pytest.mark.deep
JOBS = 2
PROCESSED = 5
"""The records that each job of the first spec has processed."""
TIMES = {"task_count": JOBS, "task_duration": 3600, "completion_timeout": 120}


class JobReplacement:
    """A source whose spec has just changed, so that a turn replaces its jobs."""

    def __init__(self) -> None:
        self.simulation = simulation = SourceSimulation("S0", "S1", "S2")
        simulation.submit(**TIMES)
        simulation.turn()
        for job in simulation.begin():
            job.report(processed=PROCESSED)
        simulation.go_on(30)
        simulation.submit(**TIMES, path="/data/lake/other")

    def by_victim(self) -> None:
        """Make turns until the jobs of the former spec have been asked to end, and have ended."""
        store: Any = counted_store(self.simulation.backend)
        supervisor = self.simulation.another_supervisor(self.simulation.claimant, store)
        for _ in range(3):
            supervisor.turn(self.simulation.cluster)
            self.simulation.clock.advance(10)
            self.simulation.begin()

    def by_successor(self) -> None:
        """Supervise as the next run."""
        self.simulation.clock.advance(1)
        self.simulation.claimant = self.simulation.later_claimant()
        self.simulation.supervisor = self.simulation.another_supervisor(self.simulation.claimant)
        self.simulation.turn()
        self.simulation.go_on(60)


@pytest.mark.parametrize("strike", STRIKES)
def test_struck_handover_loses_and_doubles_no_job(strike: Strike) -> None:
    number = len(calls_of(JobReplacement()))
    assert number > 20
    for point in range(1 + STRIKES.index(strike), number + 1, at_depth(short=7, deep=1)):
        story = JobReplacement()
        struck = strike_at(point, strike, story)
        story.simulation.go_on(700, every=20)
        check(story.simulation, struck)


def check(simulation: SourceSimulation, struck: str) -> None:
    memory = simulation.supervision()
    assert (
        {job.owner for job in memory.jobs} == set(simulation.owners) == {j.owner for j in simulation.jobs.unfinished()}
    ), struck
    assert {job.spec_version for job in memory.jobs} == {2} and len(simulation.owners) == JOBS, struck
    assert set(simulation.read_by().values()) == set(simulation.owners), struck
    assert memory.totals.get("processed") == JOBS * PROCESSED, struck
    submitted = [job.owner for job in simulation.cluster.submitted]
    assert len(submitted) == len(set(submitted)), struck
