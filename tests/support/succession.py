"""A job that is replaced while it reads, with a fault at a numbered call of it or of its successor.

Both make rounds in turn. One that is killed makes no more, and the other goes on. Once one is frozen, another job takes
over from both, then both go on.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.spark.ingestion_job import IngestionJob
from airflow_provider_coordination.spark.outcome import Summary
from tests.support.fleet import Crash
from tests.support.freezing import HOUR_SECONDS, SUCCESSOR, VICTIM, Strike
from tests.support.struck_jobs import LEASE, MARGIN, StruckItems, StruckShards, StruckSource, acting_as

OLD, NEW = "old", "new"
ROUNDS = 6
"""How many rounds both make once everything has happened."""


class Succession(StruckSource):
    """A source with two jobs, the second of which replaces the first.

    `struck` is the job that is struck: `OLD` or `NEW`.
    """

    struck = OLD
    summaries: dict[str, Summary]
    """What each job did that lived to its end."""

    def story(self) -> None:
        """Let the first job read, then both make rounds until everything has moved."""
        self.summaries = {}
        jobs = {OLD: self._start(OLD)}
        first, *others = self.steps()
        first()
        self._round(jobs)
        with suppress(Crash):
            jobs[NEW] = self._start(NEW)
        for step in (*others, *[lambda: None] * ROUNDS):
            self._round(jobs)
            step()
            self.clock.advance(1)
        for name, job in jobs.items():
            with suppress(StoreUnavailableError, Crash):
                acting_as(self._role(name), job.finish)
            with suppress(Crash):
                acting_as(self._role(name), job.give_back)
                self.summaries[name] = job._summary

    def _role(self, name: str) -> str:
        return VICTIM if name == self.struck else SUCCESSOR

    def _start(self, name: str) -> IngestionJob:
        dag, replaces = (self.case.first, None) if name == OLD else (self.case.then, OLD)
        # The jobs see by their settings whether they deliver alike.
        more = {"replaces": replaces, "schema": f"{dag.name} STRING"}
        return acting_as(self._role(name), lambda: self.job(dag, owner=name, counts=name == self.struck, **more))

    def _round(self, jobs: dict[str, IngestionJob]) -> None:
        for name, job in reversed(list(jobs.items())):
            try:
                acting_as(self._role(name), partial(self.round, job))
            except Crash:
                del jobs[name]
                if self.gives_up:
                    self.look.give_up_owner(name)
                else:
                    self._lease_passes(jobs)

    def _lease_passes(self, jobs: dict[str, IngestionJob]) -> None:
        """Let the leases of a dead job run out; the other one renews its own."""
        for _ in range(4):
            self.clock.advance((LEASE + 3 * MARGIN).total_seconds() / 4)
            for name, job in jobs.items():
                acting_as(self._role(name), partial(self.renew, job))

    def live(self) -> None:
        with self._in_process():
            thread = self._begin(self.story)
            self._wait(thread, self.calls)
            if self.calls.strike is Strike.CLOCK_BACK:
                self.clock.advance(HOUR_SECONDS)
            for name in (OLD, NEW):
                if self.gives_up:
                    self.look.give_up_owner(name)
            if not self.gives_up:
                self.clock.advance((LEASE + 3 * MARGIN).total_seconds())
            self.settle()
            if thread.is_alive():
                self._thaw(thread, self.calls)
                for name in (OLD, NEW):
                    self.look.give_up_owner(name)
                self.settle()
        assert not self.trouble, self.trouble
        self._check_everything()


class ShardSuccession(Succession, StruckShards):
    """The succession of a job that reads a stream."""


class ItemSuccession(Succession, StruckItems):
    """The succession of a job that reads items."""
