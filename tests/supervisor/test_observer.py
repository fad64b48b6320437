"""A supervisor's observations: the number and kind of requests to the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.supervisor.lag import LagReading
from airflow_provider_coordination.supervisor.observer import PROBE_SECONDS, Observer
from airflow_provider_coordination.supervisor.supervision import SupervisedJob, Supervision
from tests.supervisor.source_simulation import SourceSimulation, Stream


class Asked(Stream):
    """A stream that notes what it is asked, and takes its time."""

    seconds_a_request = 0.0

    def __init__(self, simulation: SourceSimulation, shards: Sequence[str]) -> None:
        super().__init__(simulation, shards)
        self.requests: list[str] = []

    def lag(self, partition: Partition) -> int | None:
        self.requests.append(partition.partition_key)
        self._simulation.clock.advance(self.seconds_a_request)
        return super().lag(partition)


class Watched(SourceSimulation):
    """A source whose stream notes what it is asked."""

    def __init__(self, shards: int) -> None:
        names = [f"S{number:03d}" for number in range(shards)]
        super().__init__(*names)
        self.stream: Asked = Asked(self, names)
        self.stream.lag_ms = dict.fromkeys(names, 7)
        self.another()
        self.submit(period=30)
        self.stream.discover_partitions()

    def another(self) -> Observer:
        self.observer = Observer(self.view, self.store, self.jobs, self.stream, "supervisor/clicks")
        return self.observer

    def observe(self, **memory: Any) -> Any:
        known = self.supervision()
        return self.observer.observe(replace(known, **{"polled_at": self.polled_at, **memory}))

    polled_at: Any = None

    def run(self) -> Any:
        """Observe, and note it if it was a run."""
        seen = self.observe()
        if seen.is_full:
            self.polled_at = seen.at
        return seen

    def latest(self) -> LagReading:
        self.observer.save_lag()
        latest = self.store.lag().latest
        assert latest is not None
        return latest


@pytest.fixture
def watched() -> Watched:
    return Watched(3)


def test_source_is_not_queried_between_two_periods(watched: Watched) -> None:
    assert watched.run().is_full
    for _ in range(5):
        watched.clock.advance(5)
        seen = watched.observe()
        assert (seen.is_full, seen.partitions.readable) == (False, 3)
    assert watched.stream.counts == 1
    watched.clock.advance(5)
    assert watched.observe().is_full
    assert watched.stream.counts == 2


def test_external_changes_are_noticed(watched: Watched) -> None:
    watched.run()
    watched.clock.advance(5)
    watched.complete("S000")
    assert watched.observe().partitions.readable == 3
    watched.polled_at = watched.clock.now()  # a turn was made elsewhere
    assert watched.observe().partitions.readable == 2


def test_new_spec_version_is_noticed_at_once(watched: Watched) -> None:
    watched.run()
    watched.submit(period=10)
    seen = watched.observe()
    assert seen.is_full and seen.settings.period.total_seconds() == 10


def test_functional_spec_changes_alone_outdate_jobs(
    watched: Watched,
) -> None:
    watched.submit(period=30, description="all clicks")
    watched.submit(period=30, path="/data/other")
    job = SupervisedJob(owner="a", spec_version=1, planned_at=watched.clock.now())
    jobs = tuple(replace(job, owner=str(version), spec_version=version) for version in (1, 2, 3))
    assert watched.observe(jobs=jobs).outdated == {1, 2}
    watched.submit(period=30, path="/data/other", description="others")
    assert watched.observe(jobs=jobs).outdated == {1, 2}


def test_unreadable_spec_outdates_its_jobs(watched: Watched) -> None:
    watched.store.submit({"version": 0})
    watched.submit(period=30)
    job = SupervisedJob(owner="a", spec_version=2, planned_at=watched.clock.now())
    seen = watched.observe(jobs=(job,))
    assert seen.outdated == {2} and seen.errors == ()


def test_unresponsive_source_is_not_queried_per_shard(watched: Watched) -> None:
    watched.stream.error = SourceError("gone")
    seen = watched.observe()
    assert [event.is_stream_error for event in seen.errors] == [True]
    assert watched.stream.requests == []


def test_lag_of_an_unresponsive_source_is_unknown(watched: Watched) -> None:
    watched.turn()
    [job] = watched.begin()
    watched.another()
    watched.run()
    job.report(S000=0, S001=40_000, S002=0)
    watched.clock.advance(30)
    watched.stream.error = SourceError("gone")
    watched.run()
    latest = watched.latest()
    assert latest.partitions == {"S000": None, "S001": 40_000, "S002": None}  # unread records stay unread
    assert not latest.is_in_contact

    watched.stream.error = None
    watched.clock.advance(30)
    job.round(0)
    watched.run()
    assert watched.latest().partitions == {"S000": 0, "S001": 40_000, "S002": 0}


def test_unresponsive_source_without_partitions_has_no_lag() -> None:
    watched = Watched(1)
    watched.complete("S000")
    watched.stream.error = SourceError("gone")
    watched.run()
    watched.latest()
    point = watched.store.lag().points[-1]
    assert (point.oldest_ms, point.sum_ms, point.average_ms) == (None, None, None)


def test_lag_of_unreported_closed_partitions_is_queried(watched: Watched) -> None:
    watched.turn()
    [job] = watched.begin()
    job.report(S000=0, S001=0, S002=0)
    for key in ("S000", "S001", "S002"):
        partition = watched.view.get(key)
        assert partition is not None
        watched.backend.transact(update=[partition.closed(watched.clock.now() + timedelta(hours=1))])
    watched.stream.lag_ms = {"S000": 90_000, "S001": 0}
    watched.another()
    watched.clock.advance(30)
    watched.run()
    assert watched.latest().partitions == {"S000": 90_000, "S001": 0, "S002": None}


def test_lag_of_partitions_awaiting_acknowledgments_is_queried(watched: Watched) -> None:
    watched.turn()
    [job] = watched.begin()
    job.report(S000=0, S001=0, S002=0)
    partition = watched.view.get("S000")
    assert partition is not None
    watched.backend.transact(update=[partition.awaiting(watched.clock.now() + timedelta(hours=1))])
    watched.stream.lag_ms = {"S000": 90_000}
    watched.another()
    watched.clock.advance(30)
    watched.run()
    assert watched.latest().partitions == {"S000": 90_000, "S001": 0, "S002": 0}


def test_lag_is_noted_once_per_period(watched: Watched) -> None:
    watched.run()
    assert watched.latest().partitions == {"S000": 7, "S001": 7, "S002": 7}
    for _ in range(9):
        watched.clock.advance(10)
        watched.run()
        watched.observer.save_lag()
    assert len(watched.store.lag().points) == 4


def test_old_report_gives_no_lag(watched: Watched) -> None:
    watched.turn()
    [job] = watched.begin()
    job.report(S000=1, S001=2, S002=3)
    watched.another()
    watched.clock.advance(40)
    job.round(0)
    watched.observe()
    assert watched.latest().partitions == {"S000": 1, "S001": 2, "S002": 3}
    watched.clock.advance(40)
    job.round(0)
    watched.observe()
    assert watched.latest().partitions == {"S000": None, "S001": None, "S002": None}


def test_longest_unqueried_unread_shards_are_queried_first() -> None:
    watched = Watched(100)
    watched.stream.seconds_a_request = PROBE_SECONDS / 10  # ten requests take all the time there is
    for number in range(3):
        watched.run()
        assert watched.latest().point.count == 10 * (number + 1)
        watched.clock.advance(30)
    assert len(watched.stream.requests) == len(set(watched.stream.requests)) == 30


def test_source_without_a_spec_is_not_queried(watched: Watched) -> None:
    observer = watched.another()
    observer.observe(Supervision())
    assert watched.stream.counts == 0
