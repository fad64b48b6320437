"""A supervisor's observations: the number and kind of requests to the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import SourceError
from airflow_provider_coordination.coordination.partition import Partition
from airflow_provider_coordination.supervisor.observation import LagReading
from airflow_provider_coordination.supervisor.observer import PROBE_SECONDS, Observer
from airflow_provider_coordination.supervisor.supervision import SupervisedJob, Supervision
from tests.supervisor.source_simulation import SourceSimulation, Stream


class RecordingStream(Stream):
    """A stream that notes what it is asked, and takes its time."""

    seconds_a_request = 0.0

    def __init__(self, simulation: SourceSimulation, shards: Sequence[str]) -> None:
        super().__init__(simulation, shards)
        self.requests: list[str] = []

    def lag(self, partition: Partition) -> int | None:
        self.requests.append(partition.partition_key)
        self._simulation.clock.advance(self.seconds_a_request)
        return super().lag(partition)


class ObservedSource(SourceSimulation):
    """A source whose stream notes what it is asked."""

    def __init__(self, shards: int) -> None:
        names = [f"S{number:03d}" for number in range(shards)]
        super().__init__(*names)
        self.stream: RecordingStream = RecordingStream(self, names)
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
def observed() -> ObservedSource:
    return ObservedSource(3)


def test_source_is_not_queried_between_two_periods(observed: ObservedSource) -> None:
    assert observed.run().is_full
    for _ in range(5):
        observed.clock.advance(5)
        seen = observed.observe()
        assert (seen.is_full, seen.partitions.readable) == (False, 3)
    assert observed.stream.counts == 1
    observed.clock.advance(5)
    assert observed.observe().is_full
    assert observed.stream.counts == 2


def test_external_changes_are_noticed(observed: ObservedSource) -> None:
    observed.run()
    observed.clock.advance(5)
    observed.complete("S000")
    assert observed.observe().partitions.readable == 3
    observed.polled_at = observed.clock.now()  # a turn was made elsewhere
    assert observed.observe().partitions.readable == 2


def test_new_spec_version_is_noticed_at_once(observed: ObservedSource) -> None:
    observed.run()
    observed.submit(period=10)
    seen = observed.observe()
    assert seen.is_full and seen.settings.period.total_seconds() == 10


def test_functional_spec_changes_alone_outdate_jobs(
    observed: ObservedSource,
) -> None:
    observed.submit(period=30, description="all clicks")
    observed.submit(period=30, path="/data/other")
    job = SupervisedJob(owner="a", spec_version=1, planned_at=observed.clock.now())
    jobs = tuple(replace(job, owner=str(version), spec_version=version) for version in (1, 2, 3))
    assert observed.observe(jobs=jobs).outdated == {1, 2}
    observed.submit(period=30, path="/data/other", description="others")
    assert observed.observe(jobs=jobs).outdated == {1, 2}


def test_unreadable_spec_outdates_its_jobs(observed: ObservedSource) -> None:
    observed.store.submit({"version": 0})
    observed.submit(period=30)
    job = SupervisedJob(owner="a", spec_version=2, planned_at=observed.clock.now())
    seen = observed.observe(jobs=(job,))
    assert seen.outdated == {2} and seen.errors == ()


def test_unresponsive_source_is_not_queried_per_shard(observed: ObservedSource) -> None:
    observed.stream.error = SourceError("gone")
    seen = observed.observe()
    assert [event.is_stream_error for event in seen.errors] == [True]
    assert observed.stream.requests == []


def test_lag_of_an_unresponsive_source_is_unknown(observed: ObservedSource) -> None:
    observed.turn()
    [job] = observed.begin()
    observed.another()
    observed.run()
    job.report(S000=0, S001=40_000, S002=0)
    observed.clock.advance(30)
    observed.stream.error = SourceError("gone")
    observed.run()
    latest = observed.latest()
    assert latest.partitions == {"S000": None, "S001": 40_000, "S002": None}  # unread records stay unread
    assert not latest.is_in_contact

    observed.stream.error = None
    observed.clock.advance(30)
    job.round(0)
    observed.run()
    assert observed.latest().partitions == {"S000": 0, "S001": 40_000, "S002": 0}


def test_unresponsive_source_without_partitions_has_no_lag() -> None:
    observed = ObservedSource(1)
    observed.complete("S000")
    observed.stream.error = SourceError("gone")
    observed.run()
    observed.latest()
    point = observed.store.lag().points[-1]
    assert (point.oldest_ms, point.sum_ms, point.average_ms) == (None, None, None)


def test_lag_of_unreported_closed_partitions_is_queried(observed: ObservedSource) -> None:
    observed.turn()
    [job] = observed.begin()
    job.report(S000=0, S001=0, S002=0)
    for key in ("S000", "S001", "S002"):
        partition = observed.view.get(key)
        assert partition is not None
        observed.backend.transact(update=[partition.closed(observed.clock.now() + timedelta(hours=1))])
    observed.stream.lag_ms = {"S000": 90_000, "S001": 0}
    observed.another()
    observed.clock.advance(30)
    observed.run()
    assert observed.latest().partitions == {"S000": 90_000, "S001": 0, "S002": None}


def test_lag_of_partitions_awaiting_acknowledgments_is_queried(observed: ObservedSource) -> None:
    observed.turn()
    [job] = observed.begin()
    job.report(S000=0, S001=0, S002=0)
    partition = observed.view.get("S000")
    assert partition is not None
    observed.backend.transact(update=[partition.awaiting(observed.clock.now() + timedelta(hours=1))])
    observed.stream.lag_ms = {"S000": 90_000}
    observed.another()
    observed.clock.advance(30)
    observed.run()
    assert observed.latest().partitions == {"S000": 90_000, "S001": 0, "S002": 0}


def test_lag_is_noted_once_per_period(observed: ObservedSource) -> None:
    observed.run()
    assert observed.latest().partitions == {"S000": 7, "S001": 7, "S002": 7}
    for _ in range(9):
        observed.clock.advance(10)
        observed.run()
        observed.observer.save_lag()
    assert len(observed.store.lag().points) == 4


def test_old_report_gives_no_lag(observed: ObservedSource) -> None:
    observed.turn()
    [job] = observed.begin()
    job.report(S000=1, S001=2, S002=3)
    observed.another()
    observed.clock.advance(40)
    job.round(0)
    observed.observe()
    assert observed.latest().partitions == {"S000": 1, "S001": 2, "S002": 3}
    observed.clock.advance(40)
    job.round(0)
    observed.observe()
    assert observed.latest().partitions == {"S000": None, "S001": None, "S002": None}


def test_longest_unqueried_unread_shards_are_queried_first() -> None:
    observed = ObservedSource(100)
    observed.stream.seconds_a_request = PROBE_SECONDS / 10  # ten requests take all the time there is
    for number in range(3):
        observed.run()
        assert observed.latest().point.count == 10 * (number + 1)
        observed.clock.advance(30)
    assert len(observed.stream.requests) == len(set(observed.stream.requests)) == 30


def test_source_without_a_spec_is_not_queried(observed: ObservedSource) -> None:
    observer = observed.another()
    observer.observe(Supervision())
    assert observed.stream.counts == 0
