"""A source that is suspended while jobs run: they deliver what they have read and end, and the next job continues.

And a partition that is parked under a job's hands.
"""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_coordination.coordination import suspension
from airflow_provider_coordination.coordination.acknowledgment_sets import AcknowledgmentSets
from airflow_provider_coordination.coordination.administration import Administration
from airflow_provider_coordination.coordination.errors import StoreUnavailableError
from airflow_provider_coordination.coordination.partition import Partition, PartitionStatus
from airflow_provider_coordination.coordination.suspension import KEY
from airflow_provider_coordination.sources.kinds import SourceBatches
from airflow_provider_coordination.sources.kinesis.progress import partition_key
from airflow_provider_coordination.spark import ingestion_job, stop_conditions
from airflow_provider_coordination.spark.outcome import Summary
from tests.support.depth import examples
from tests.support.fleet import EPOCH, PHASES, Crash, FakeStream, Fleet, MortalStore, crash_at
from tests.support.waiting import PATIENCE_SECONDS

REASON = "the source is suspended by ann since "


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(FakeStream(2), tmp_path)


@pytest.fixture
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let jobs hear of a suspension at their next look."""
    monkeypatch.setattr(suspension, "CACHE_SECONDS", 0.0)
    monkeypatch.setattr(stop_conditions, "SUSPENSION_POLL_SECONDS", 0.01)


def suspend(fleet: Fleet) -> None:
    fleet.look.view.suspensions.suspend("ann", "the table is migrated")


def suspending(fleet: Fleet, at: str, time: int = 1) -> Callable[[str], None]:
    """Suspend the source when a job passes a phase for the n-th time."""
    left = [time]

    def observer(phase: str) -> None:
        left[0] -= phase == at
        if phase == at and left[0] == 0:
            suspend(fleet)

    return observer


def nobody_works(fleet: Fleet) -> bool:
    return fleet.look.view.count_by_status()[PartitionStatus.ASSIGNED] == 0 and fleet.look.workers.live() == []


@pytest.mark.usefixtures("short_intervals")
@pytest.mark.parametrize("phase", PHASES)
def test_suspended_job_delivers_its_batches_releases_leases_and_ends(fleet: Fleet, phase: str) -> None:
    fleet.stream.send(20)
    summary = fleet.run(suspending(fleet, phase), until_caught_up=False, max_batch_bytes=1)

    assert summary.stopped_because.startswith(REASON) and summary.stopped_because.endswith(": the table is migrated")
    rounds = 2 if phase in ("delivering", "delivered") else 1  # what is recorded is delivered beside the next landing
    assert (summary.failed, summary.lost, summary.rounds) == ({}, [], rounds)
    assert 0 < summary.records_landed == summary.records_delivered < 20
    assert not fleet.progress("shard-0").landed and nobody_works(fleet)

    fleet.look.view.suspensions.resume("ann")
    fleet.stream.split()
    fleet.stream.send(4)
    assert fleet.run().failed == {}
    assert fleet.delivered() == Counter(fleet.stream.sent)


class SuspendingStore(MortalStore):
    """The shared store, in which the source is suspended just before the n-th read of its suspension."""

    def __init__(self, fleet: Fleet, look: int, *, away: bool = False) -> None:
        super().__init__(fleet.store)  # type: ignore[arg-type]
        self.fleet, self.left, self.away = fleet, look, away

    def get(self, source_identifier: str, partition_key: str) -> Partition | None:
        if partition_key == KEY:
            self.left -= 1
            if self.left == 0 and self.away:
                raise StoreUnavailableError("no route to the store")
            if self.left == 0:
                suspend(self.fleet)
        return super().get(source_identifier, partition_key)


@pytest.mark.integration
@pytest.mark.usefixtures("short_intervals")
@pytest.mark.parametrize("look", range(1, 8))
def test_suspension_at_any_moment_loses_nothing(fleet: Fleet, look: int) -> None:
    fleet.stream.send(20)
    summary = fleet.run(store=SuspendingStore(fleet, look), until_caught_up=False, max_batch_bytes=1)
    assert summary.stopped_because.startswith(REASON)
    assert (summary.failed, summary.lost, summary.records_landed) == ({}, [], summary.records_delivered)
    assert nobody_works(fleet)
    fleet.look.view.suspensions.resume()
    fleet.run()
    assert fleet.delivered() == Counter(fleet.stream.sent)


@pytest.mark.usefixtures("short_intervals")
def test_suspension_during_a_round_stops_reading(fleet: Fleet) -> None:
    fleet.stream.send(20)
    looks_of_a_round = 3  # before it, when it shares, and when it acquires
    store = SuspendingStore(fleet, looks_of_a_round + 2)
    summary = fleet.run(store=store, until_caught_up=False, max_batch_bytes=1)
    assert (summary.rounds, summary.records_landed) == (2, 6)


@pytest.mark.integration
@pytest.mark.usefixtures("short_intervals")
def test_suspension_check_waits_for_an_unavailable_store(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion_job, "STORE_POLL_SECONDS", 0.001)
    fleet.stream.send(20)
    for look in range(1, 8):
        fleet.run(store=SuspendingStore(fleet, look, away=True))
    assert fleet.delivered() == Counter(fleet.stream.sent)


@pytest.mark.usefixtures("short_intervals")
def test_batches_held_back_by_an_outage_are_delivered_first(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingestion_job, "STORE_POLL_SECONDS", 0.001)
    fleet.stream.send(4)
    away: list[bool] = []

    def observer(phase: str) -> None:
        if phase == "delivering" and not away:
            away.append(True)
            suspend(fleet)
            raise StoreUnavailableError("no route to the store")

    summary = fleet.run(observer, until_caught_up=False)
    assert away and summary.stopped_because.startswith(REASON)
    assert not fleet.progress("shard-0").landed and not fleet.progress("shard-1").landed
    assert fleet.delivered() == Counter(fleet.stream.sent)


def test_job_started_during_a_suspension_takes_nothing(fleet: Fleet) -> None:
    fleet.stream.send(4)
    suspend(fleet)
    before = list(fleet.look.view.partitions())
    summary = fleet.run()
    assert summary.stopped_because.startswith(REASON)
    assert (summary.rounds, summary.records_landed) == (0, 0)
    assert list(fleet.look.view.partitions()) == before


@pytest.mark.usefixtures("short_intervals")
def test_suspension_ends_an_idle_pause_early(fleet: Fleet) -> None:
    idle = threading.Event()

    def observer(phase: str) -> None:
        if phase == "recorded":  # an idle round, and a pause of an hour
            idle.set()

    with fleet.without_spark(), ThreadPoolExecutor(1) as pool:
        job = pool.submit(fleet.work, observer, until_caught_up=False, idle_duration=3600.0)
        assert idle.wait(PATIENCE_SECONDS)
        suspend(fleet)
        assert job.result(PATIENCE_SECONDS).stopped_because.startswith(REASON)
    assert nobody_works(fleet)


def test_short_pauses_cost_no_additional_check(fleet: Fleet) -> None:
    looks: list[str] = []

    class CountingStore(MortalStore):
        def get(self, source_identifier: str, partition_key: str) -> Partition | None:
            looks.append(partition_key)
            return super().get(source_identifier, partition_key)

    store = CountingStore(fleet.store)  # type: ignore[arg-type]
    fleet.run(store=store, until_caught_up=False, max_idle_rounds=5, idle_duration=0.001)
    assert looks.count(KEY) == 1


@pytest.mark.usefixtures("short_intervals")
def test_suspended_jobs_do_not_take_each_others_partitions(tmp_path: Path) -> None:
    fleet = Fleet(FakeStream(4), tmp_path)
    fleet.stream.send(40)
    owners: list[Counter[str | None]] = []
    both = threading.Event()

    def observer(phase: str) -> None:
        owned = Counter(p.owner for p in fleet.look.view.partitions())
        owners.append(owned)
        if owned.keys() == {"job-1", "job-2"}:
            both.set()

    with fleet.without_spark(), ThreadPoolExecutor(2) as pool:

        def start() -> Future[Summary]:
            return pool.submit(fleet.work, observer, until_caught_up=False, idle_duration=0.01, workers=2)

        jobs = [start(), start()]
        assert both.wait(PATIENCE_SECONDS)
        suspend(fleet)
        summaries = [job.result(PATIENCE_SECONDS) for job in jobs]
    assert all(summary.stopped_because.startswith(REASON) for summary in summaries)
    assert all((summary.failed, summary.lost) == ({}, []) for summary in summaries)
    assert all(count <= 2 for owned in owners for owner, count in owned.items() if owner is not None)
    assert nobody_works(fleet)
    fleet.look.view.suspensions.resume()
    fleet.run()
    assert fleet.delivered() == Counter(fleet.stream.sent)


# Acknowledgments


@pytest.mark.usefixtures("short_intervals")
def test_suspended_batch_awaiting_acknowledgment_is_still_acknowledged(fleet: Fleet) -> None:
    fleet.stream.send(4)
    summary = fleet.run(suspending(fleet, "delivered"), until_caught_up=False, by=("check",))
    assert summary.stopped_because.startswith(REASON) and summary.pending_acknowledgments == 2
    assert all(partition.is_awaiting for partition in fleet.look.view.partitions())

    sets = AcknowledgmentSets(fleet.look, SourceBatches())
    for pending in list(sets.view.pending()):
        sets.acknowledge(pending.set_id, positive=True)
    assert fleet.look.view.count_by_status()[PartitionStatus.UNASSIGNED] == 2
    assert not fleet.progress("shard-0").landed
    assert fleet.run(by=("check",)).records_landed == 0, "it is suspended still"

    fleet.look.view.suspensions.resume()
    fleet.stream.send(4)
    assert fleet.run().records_landed == 4
    assert fleet.delivered() == Counter(fleet.stream.sent)


@pytest.mark.usefixtures("short_intervals")
def test_batch_unconfirmed_during_a_suspension_is_redelivered(fleet: Fleet) -> None:
    fleet.stream.send(4)
    fleet.run(suspending(fleet, "delivered"), until_caught_up=False, by=("check",))
    fleet.clock.ahead += timedelta(hours=2)
    fleet.look.view.suspensions.resume()
    assert fleet.run().records_delivered == 4
    assert fleet.delivered() == Counter(fleet.stream.sent)


# Parking


@pytest.mark.integration
@pytest.mark.parametrize("phase", PHASES)
def test_partition_parked_during_a_job_stays_until_reopened(fleet: Fleet, phase: str) -> None:
    key = partition_key("s", EPOCH, "shard-0")
    person = Administration(fleet.store, fleet.look.view.source_identifier, by="ann", reason="it is too hot")
    first = threading.Lock()

    def observer(passed: str) -> None:
        if passed == phase and first.acquire(blocking=False):  # batches are delivered side by side
            person.park(key)

    fleet.stream.send(20)
    summary = fleet.run(observer)
    assert (summary.failed, summary.lost, summary.closed) == ({}, [], [key])
    parked = fleet.look.view.get(key)
    assert parked is not None and parked.is_parked and parked.last_error == "parked by ann: it is too hot"

    person.reopen(key)
    assert fleet.run().failed == {}
    assert fleet.delivered() == Counter(fleet.stream.sent)


# Whatever happens


steps = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 12)),
    st.tuples(st.just("split"), st.none()),
    st.tuples(st.just("run"), st.none()),
    st.tuples(st.just("crash"), st.tuples(st.sampled_from(PHASES), st.integers(1, 3))),
    st.tuples(st.just("suspend"), st.tuples(st.sampled_from(PHASES), st.integers(1, 3))),
    st.tuples(st.just("resume"), st.none()),
)


@pytest.mark.integration
@settings(max_examples=examples(30))
@given(st.lists(steps, max_size=14))
def test_suspensions_deliver_every_event_once(story: list[tuple[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(suspension, "CACHE_SECONDS", 0.0)
        stream = FakeStream(2)
        fleet = Fleet(stream, Path(folder))
        for action, value in story:
            if action == "send":
                stream.send(value)
            elif action == "split":
                stream.split()
            elif action == "run":
                fleet.run()
            elif action == "crash":
                with suppress(Crash):
                    fleet.run(crash_at(*value))
            elif action == "suspend":
                fleet.run(suspending(fleet, *value), max_batch_bytes=1)
            else:
                fleet.look.view.suspensions.resume()
            assert set(fleet.delivered().values()) <= {1}, "nothing is ever there twice"
        fleet.look.view.suspensions.resume()
        summary = fleet.run()
        assert (summary.failed, summary.lost) == ({}, [])
        assert fleet.delivered() == Counter(stream.sent)
        assert nobody_works(fleet)


def test_summary_has_the_start_of_the_suspension(fleet: Fleet) -> None:
    before = datetime.now(UTC)
    suspend(fleet)
    said = fleet.run().stopped_because.removeprefix(REASON).partition("Z:")[0]
    assert before.replace(microsecond=0) <= datetime.fromisoformat(f"{said}+00:00")
