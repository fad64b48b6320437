"""A source that is quiet runs no job, and a record starts one again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_coordination.coordination.errors import ConfigurationError, SourceError
from airflow_provider_coordination.coordination.job_reports import ErrorEvent
from airflow_provider_coordination.coordination.partition import PartitionStatus
from airflow_provider_coordination.supervisor.observation import REVIEWED_EVERY
from airflow_provider_coordination.supervisor.spec import IngestionSpec
from airflow_provider_coordination.supervisor.supervision import DetailedState
from tests.supervisor.source_simulation import SourceSimulation, spec
from tests.support.freezing import Calls, CountedStore, acting

IDLE_AFTER, PERIOD = 300, 30


def a_source(*shards: str, **supervise: Any) -> SourceSimulation:
    """Return a source whose jobs run."""
    source = SourceSimulation(*shards)
    source.stream.lag_ms = dict.fromkeys(source.stream.shards, 0)
    source.submit(**{"idle_after": IDLE_AFTER, "period": PERIOD, **supervise})
    source.turn()
    source.begin()
    return source


def quiet(source: SourceSimulation, seconds: float = IDLE_AFTER + 2 * PERIOD, processed: int = 7) -> None:
    """Let time pass in which the jobs report that nothing arrives."""
    for _ in range(round(seconds / 10)):
        for job in source.begin():
            job.report(processed, **dict.fromkeys(sorted(job.coordinator.leases.held), 0))
        source.go_on(10)


def an_idle_source(*shards: str, **supervise: Any) -> SourceSimulation:
    source = a_source(*shards, **supervise)
    quiet(source)
    assert source.running == []
    return source


def last_reason(source: SourceSimulation) -> str:
    return source.supervision().task_count_changes[-1].reason


def test_quiet_source_ends_its_jobs_and_is_healthy() -> None:
    source = an_idle_source(task_count=2)
    source.go_on(PERIOD)
    assert (source.state, source.state.is_healthy) == (DetailedState.IDLE, True)
    assert last_reason(source) == "nothing has arrived for PT5M: the source is idle"
    assert {job.owner for job in source.cluster.submitted} == {"job-1", "job-2"}
    assert source.cluster.killed == []


def test_source_stays_idle_without_turns() -> None:
    source = an_idle_source()
    source.go_on(PERIOD)
    for _ in range(100):
        source.clock.advance(PERIOD)
        assert not source.supervisor.poll().needs_turn


def test_poll_of_an_idle_source_reads_every_partition_once() -> None:
    source = an_idle_source(*(f"S{number}" for number in range(9)))
    calls = Calls(worker=acting.get())
    supervisor = source.another_supervisor(source.claimant, CountedStore(source.backend, calls))
    for _ in range(3):  # what is reviewed every few minutes is read by the first one
        calls.made.clear()
        source.clock.advance(PERIOD)
        assert not supervisor.poll().needs_turn
    # Supervision with suspension, renewal of its lease, partitions, and the supplier's state for the watermark.
    assert calls.made == ["store.get_many", "store.transact", "store.browse", "store.get"]


def test_arrival_starts_the_jobs_within_a_period() -> None:
    source = an_idle_source(task_count=2)
    source.go_on(1000)
    source.stream.lag_ms["S0"] = 2_500
    source.go_on(PERIOD)
    assert len(source.running) == 2
    assert last_reason(source) == "records have arrived: they have waited for 2.5 s"
    assert source.state is DetailedState.RUNNING


@pytest.mark.parametrize("idle_after", [IDLE_AFTER, 4 * IDLE_AFTER])
def test_steady_trickle_never_idles(idle_after: int) -> None:
    source = a_source(idle_after=idle_after)
    for processed in range(2 * idle_after // PERIOD + 4):
        quiet(source, PERIOD, processed)
    assert len(source.running) == 1


def test_source_that_woke_idles_only_after_the_whole_time() -> None:
    source = an_idle_source()
    source.stream.lag_ms["S0"] = 10
    source.go_on(PERIOD)
    source.stream.lag_ms["S0"] = 0
    quiet(source, IDLE_AFTER - PERIOD, processed=8)
    assert len(source.running) == 1
    quiet(source, 3 * PERIOD, processed=8)
    assert source.running == []


def test_landed_data_of_a_dead_job_is_delivered() -> None:
    source = an_idle_source()
    [partition, *_] = source.view.partitions(PartitionStatus.UNASSIGNED)
    source.backend.transact(update=[partition.with_progress({"landed": [{"batch_id": "b"}]})])
    source.go_on(PERIOD + 10)
    assert len(source.running) == 1
    assert last_reason(source) == "1 partitions have landed data that is not delivered"


def test_new_shards_start_a_job() -> None:
    source = an_idle_source()
    source.stream.shards.append("S2")
    source.go_on(REVIEWED_EVERY.total_seconds() + PERIOD)
    assert len(source.running) == 1
    assert last_reason(source) == "the source has 3 open partitions, and had 2"


def test_shard_without_a_partition_keeps_jobs_running() -> None:
    source = a_source()
    quiet(source, IDLE_AFTER - PERIOD)
    source.stream.shards.append("S2")
    quiet(source, 3 * PERIOD)
    assert len(source.running) == 1
    source.stream.discover_partitions()
    source.stream.lag_ms["S2"] = 0
    quiet(source)
    assert source.running == []


@pytest.mark.parametrize("is_late", [False, True])
def test_unread_partition_of_a_failed_attempt_needs_a_job(is_late: bool) -> None:
    source = an_idle_source() if is_late else a_source()
    error = ErrorEvent(
        at=source.clock.now(), error_class="SourceError", message="throttled", is_stream_error=True, partition="S0"
    )
    source.store.change(lambda memory: replace(memory, health=memory.health.with_error(error)))
    source.fail("S0", "throttled")
    quiet(source)
    assert len(source.running) == 1
    source.fail("S0", None)
    quiet(source)
    assert source.running == []


def test_new_spec_starts_a_job() -> None:
    source = an_idle_source()
    source.submit(idle_after=IDLE_AFTER, period=PERIOD, path="/data/lake/other")
    source.go_on(10)
    assert len(source.running) == 1


def test_unreachable_source_stays_idle_and_becomes_unhealthy() -> None:
    source = an_idle_source()
    source.stream.error = SourceError("no route to host")
    source.go_on(5 * PERIOD)
    assert source.running == []
    assert source.state is DetailedState.LOST_CONTACT_WITH_STREAM
    source.stream.error = None
    source.stream.lag_ms["S1"] = 1
    source.go_on(PERIOD + 10)
    assert len(source.running) == 1


def test_unknown_lag_starts_a_job_at_the_third_time() -> None:
    source = an_idle_source()
    source.go_on(PERIOD)
    del source.stream.lag_ms["S0"]
    source.go_on(2 * PERIOD)
    assert source.running == []
    source.go_on(2 * PERIOD)
    assert len(source.running) == 1
    assert last_reason(source) == "the lag of 1 partitions is unknown"


def test_unknown_lag_keeps_jobs_running() -> None:
    source = a_source()
    for _ in range(2 * IDLE_AFTER // 10):
        for job in source.begin():
            job.report(7, S0=0)
        source.go_on(10)
    assert len(source.running) == 1


def test_suspended_source_does_not_wake() -> None:
    source = an_idle_source()
    source.suspend()
    source.stream.lag_ms["S0"] = 5_000
    source.go_on(4 * PERIOD)
    assert (source.running, source.state) == ([], DetailedState.SUSPENDED)
    source.resume()
    source.go_on(2 * PERIOD)
    assert len(source.running) == 1


def test_positions_of_an_idle_source_are_confirmed() -> None:
    source = an_idle_source()
    source.stream.lag_ms["S1"] = 0
    source.go_on(7 * 3600, every=300)
    confirmed = {p.partition_key: "delivered_until" in p.progress for p in source.view.partitions()}
    assert confirmed == {"S0": True, "S1": True}
    assert source.running == []


def test_failed_confirmation_is_repeated() -> None:
    source = an_idle_source()
    source.go_on(6 * 3600 - 60, every=300)
    source.stream.error = SourceError("no route to host")
    source.go_on(4 * PERIOD)
    source.stream.error = None
    source.go_on(4 * PERIOD)
    assert all("delivered_until" in p.progress for p in source.view.partitions())


def test_idle_source_is_recorded_rarely() -> None:
    source = an_idle_source()
    source.go_on(400)
    calls: list[str] = []
    original = source.backend.transact
    source.backend.transact = lambda *a, **k: calls.append("write") or original(*a, **k)  # type: ignore[method-assign]
    counts = source.stream.counts
    for _ in range(3600 // PERIOD):
        source.clock.advance(PERIOD)
        assert not source.supervisor.poll().needs_turn
    assert len(calls) <= 3600 // PERIOD + 2 * 12 + 2, "the lease, and the state with the lag every five minutes"
    assert source.stream.counts - counts <= 13
    assert source.state is DetailedState.IDLE


def test_queue_without_messages_needs_no_discovery() -> None:
    source = SourceSimulation()
    source.stream.must_discover_partitions, source.stream.news = True, False
    source.submit(idle_after=IDLE_AFTER, period=PERIOD)
    source.turn()
    looks = source.stream.looks
    source.go_on(10 * PERIOD)
    assert source.stream.looks == looks
    source.stream.news = True
    source.go_on(PERIOD + 10)
    assert source.stream.looks == looks + 1


def test_discovered_partition_starts_a_job_at_once() -> None:
    source = SourceSimulation("S0")
    source.stream.must_discover_partitions, source.stream.news = True, None
    source.submit(idle_after=IDLE_AFTER, period=PERIOD)
    source.turn()
    source.complete("S0")
    source.stream.news = False
    source.go_on(2 * IDLE_AFTER)
    assert source.supervision().idle is not None
    source.stream.shards[:] = ["object"]
    source.stream.news = True
    source.go_on(PERIOD + 10)
    assert len(source.running) == 1
    assert last_reason(source) == "1 partitions can be read"


@pytest.mark.parametrize(
    ("supervise", "error"),
    [
        ({"idle_after": 0}, "spec: field 'supervise.idle_after' must be positive"),
        ({"idle_after": 10}, "spec: field 'supervise.idle_after' must be at least PT30S: the lag is read this often"),
        (
            {"auto_scale": {"task_count_min": 0, "task_count_max": 2}},
            "spec: field 'supervise.auto_scale.task_count_min' must be at least 1; to run no job while nothing "
            "arrives, set 'idle_after' of 'supervise'",
        ),
    ],
)
def test_wrong_idle_settings_are_refused(supervise: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        IngestionSpec.read(spec(**supervise))
    assert str(raised.value).startswith(error)
